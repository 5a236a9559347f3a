"""Encrypted connections: what goes through them, who may have one, and what they cost when clients misbehave."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import unittest

import packets
import support
import tls_support
from packets import packet, plain
from process_support import Case, is_larder, larder_only, run_to_end
from resp_support import ask
from tls_support import Certificates

TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
# A client that sends a byte so often would take minutes for a handshake.
DRIBBLE_SECONDS = 0.5


def hello(context):
    """The first message of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


@unittest.skipUnless(tls_support.has_openssl(), "openssl is not installed")
class TlsCase(Case):
    """A test with an authority and a server certificate."""

    @classmethod
    def setUpClass(cls):
        import tempfile
        cls.made = tempfile.TemporaryDirectory()
        cls.certificates = Certificates(cls.made.name)
        cls.identity = cls.certificates.sign("server")

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    def tls_server(self, *more, identity=None):
        """A server that encrypts."""
        return self.server(*(tls_support.flags(*(identity or self.identity)) + list(more)))

    def client(self, server, context=None, session=None, port=None):
        """An encrypted connection."""
        context = context or self.certificates.client()
        plain = socket.create_connection(("127.0.0.1", port or server.port), timeout=support.WAIT_SECONDS_MAX)
        try:
            wrapped = context.wrap_socket(plain, server_hostname="localhost", session=session)
        except Exception:
            plain.close()
            raise
        made = support.Connection(None, None, made=wrapped)
        self.addCleanup(made.close)
        return made


class Traffic(TlsCase):
    """What goes through an encrypted connection."""

    def values_go_through(self, server, context):
        """Stores and reads values of all sizes, and a pipeline whose records are cut anywhere."""
        connection = self.client(server, context)
        for length in (0, 1, 100, 16_383, 16_384, 16_385, 40_000, 300_000, 1_000_000):
            value = os.urandom(length)
            self.assertEqual(connection.set(b"k", value), b"STORED")
            self.assertEqual(connection.get(b"k"), value)
        self.assertEqual(connection.set(b"small", b"v" * 100), b"STORED")
        request = b"get small\r\n" * 500
        for start in range(0, len(request), 37):
            connection.send(request[start:start + 37])
        reply = b"VALUE small 0 100\r\n" + b"v" * 100 + b"\r\nEND\r\n"
        self.assertEqual(connection.exactly(500 * len(reply)), 500 * reply)

    def test_values_of_all_sizes(self):
        for backend in (["--backend", "ring"], ["--backend", "poll"]) if is_larder() else ([],):
            try:
                server = self.tls_server(*backend)
            except support.DidNotStart as error:
                if "io_uring" in str(error):
                    continue
                raise
            for version in (TLS12, TLS13):
                with self.subTest(backend=backend, version=version):
                    self.values_go_through(server, self.certificates.client(version=version))

    def test_rsa_keys_of_all_lengths(self):
        for bits in ("2048", "4096"):
            server = self.tls_server(identity=self.certificates.sign("rsa" + bits, bits))
            self.assertEqual(self.client(server).ask(b"mn"), b"MN")

    def test_a_client_that_reads_slowly_gets_everything(self):
        server = self.tls_server()
        connection = self.client(server)
        value = os.urandom(900_000)
        connection.set(b"k", value)
        connection.send(b"get k\r\n" * 5)
        connection.wait_until_answered()
        for _ in range(5):
            self.assertEqual(connection.line(), b"VALUE k 0 900000")
            self.assertEqual(connection.exactly(900_000), value)
            self.assertEqual((connection.exactly(2), connection.line()), (b"\r\n", b"END"))

    def test_many_connections_at_once(self):
        server = self.tls_server("-m", "64")
        connections = [self.client(server) for _ in range(300)]
        for number, connection in enumerate(connections):
            connection.send(b"set k%d 0 0 2\r\nhi\r\n" % number)
        for connection in connections:
            self.assertEqual(connection.line(), b"STORED")

    def test_both_sides_can_say_that_they_send_no_more(self):
        server = self.tls_server()
        connection = self.client(server)
        self.assertEqual(connection.ask(b"mn"), b"MN")
        connection.socket.unwrap().close()
        other = self.client(server)
        other.send(b"quit\r\n")
        # Without the server's farewell, this would be an error.
        self.assertEqual(other.socket.recv(100), b"")

    def test_all_at_once(self):
        """The end of the handshake, requests, and the client's farewell arrive together."""
        server = self.tls_server()
        reader = self.client(server)
        errors = reader.stats()[b"ssl_handshake_errors"]
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = self.certificates.client(version=TLS13)
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", server.port), timeout=support.WAIT_SECONDS_MAX) as plain:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65_536))
            client.write(b"set k 0 0 1\r\nx\r\n")
            try:
                client.unwrap()
            except ssl.SSLWantReadError:
                pass
            plain.sendall(outgoing.read())
            answer = b""
            while part := plain.recv(65_536):
                answer += part
        self.assertGreater(len(answer), 0)
        self.assertEqual(reader.get(b"k"), b"x")
        self.assertEqual(reader.stats()[b"ssl_handshake_errors"], errors)

    def test_the_binary_protocol_and_a_login(self):
        users = os.path.join(self.folder(), "users")
        with open(users, "w", encoding="ascii") as file:
            file.write("app:secret\n")
        if not is_larder():
            self.skipTest("memcached wants another file for this")
        server = self.tls_server("-Y", users)
        connection = self.client(server)
        self.assertEqual(packets.ask(connection, packet(packets.SASL_LIST)).value, b"PLAIN")
        self.assertEqual(packets.ask(connection, plain(b"app", b"secret")).value, b"Authenticated")
        self.assertEqual(packets.ask(connection, packet(packets.GET, b"k")).value, b"Not found")


class Sessions(TlsCase):
    """Handshakes that are shorter because client and server know each other."""

    def test_a_session_is_resumed(self):
        server = self.tls_server("-o", "ssl_session_cache")
        for version in (TLS12, TLS13):
            context = self.certificates.client(version=version)
            first = self.client(server, context)
            # With TLS 1.3 the ticket comes behind the handshake.
            self.assertEqual(first.ask(b"mn"), b"MN")
            before = int(first.stats()[b"ssl_new_sessions"])
            again = self.client(server, context, session=first.socket.session)
            self.assertTrue(again.socket.session_reused, version)
            self.assertEqual(int(again.stats()[b"ssl_new_sessions"]), before)

    def test_a_new_certificate_serves_new_connections_and_old_ones_go_on(self):
        folder = self.folder()
        certificate, key = (os.path.join(folder, name) for name in ("cert.pem", "key.pem"))
        other = self.certificates.sign("other")

        def put(identity):
            for source, target in zip(identity, (certificate, key)):
                with open(source, "rb") as read, open(target, "wb") as write:
                    write.write(read.read())
        put(self.identity)
        server = self.tls_server(identity=(certificate, key))
        old = self.client(server)

        def name_of(connection):
            return dict(part[0] for part in connection.socket.getpeercert()["subject"])["commonName"]
        self.assertEqual(name_of(old), "server")
        put(other)
        self.assertEqual(name_of(self.client(server)), "server")
        self.assertEqual(old.ask(b"refresh_certs"), b"OK")
        self.assertEqual(name_of(self.client(server)), "other")
        self.assertEqual(old.ask(b"mn"), b"MN")
        # A file that is no certificate changes nothing.
        with open(certificate, "wb") as write:
            write.write(b"nonsense")
        self.assertIn(b"Error loading the certificate", old.ask(b"refresh_certs"))
        self.assertEqual(name_of(self.client(server)), "other")
        if is_larder():
            put(self.identity)
            server.process.send_signal(signal.SIGHUP)
            support.until(lambda: name_of(self.client(server)) == "server", "the certificate is read again")

    @larder_only
    def test_a_certificate_that_has_expired_is_told_and_replaces_no_valid_one(self):
        folder = self.folder()
        expired = self.certificates.sign("expired", days="-1")
        server = self.tls_server(identity=expired)
        self.assertIn("has expired", server.error_text())
        identity = tuple(os.path.join(folder, name) for name in ("cert.pem", "key.pem"))

        def put(other):
            for source, target in zip(other, identity):
                with open(source, "rb") as read, open(target, "wb") as write:
                    write.write(read.read())
        put(self.identity)
        server = self.tls_server(identity=identity)
        self.assertNotIn("has expired", server.error_text())
        put(expired)
        self.assertIn(b"Error", self.client(server).ask(b"refresh_certs"))
        server.process.send_signal(signal.SIGHUP)
        support.until(lambda: "has expired" in server.error_text(), "it is told")
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")

    def ends(self, server, act):
        """Fails unless the server takes leave of a client of which `act` makes the end."""
        connection = self.client(server)
        self.assertEqual(connection.ask(b"mn"), b"MN")
        connection.socket.suppress_ragged_eofs = False
        act()
        self.assertEqual(connection.socket.recv(10), b"")

    @larder_only
    def test_a_server_that_ends_a_connection_takes_leave(self):
        for flags in ((), ("--backend", "poll")):
            server = self.tls_server("-o", "idle_timeout=1", *flags)
            self.ends(server, lambda: None)
            server = self.tls_server(*flags)
            killed, other = self.client(server), self.client(server)
            number = ask(killed, b"CLIENT", b"ID")
            killed.socket.suppress_ragged_eofs = False
            self.assertEqual(ask(other, b"CLIENT", b"KILL", b"ID", b"%d" % number), 1)
            self.assertEqual(killed.socket.recv(10), b"")
            self.ends(server, lambda: server.process.send_signal(signal.SIGTERM))

    def test_a_key_of_another_certificate_changes_nothing(self):
        folder = self.folder()
        key = os.path.join(folder, "key.pem")
        with open(self.identity[1], "rb") as read, open(key, "wb") as write:
            write.write(read.read())
        server = self.tls_server(identity=(self.identity[0], key))
        Certificates.make_key(key)
        self.assertIn(b"Error ", self.client(server).ask(b"refresh_certs"))
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")


class Clients(TlsCase):
    """Which clients may connect."""

    def refused(self, server, context=None, port=None):
        """A client that gets no connection. A server that says nothing has not refused it."""
        with self.assertRaises((OSError, support.Closed)) as caught:
            self.client(server, context, port=port).ask(b"mn")
        self.assertNotIsInstance(caught.exception, TimeoutError)

    def test_clients_that_must_show_a_certificate(self):
        own = self.certificates.sign("client")
        stranger = Certificates(self.folder(), "stranger").sign("stranger")
        server = self.tls_server("-o", "ssl_verify_mode=2,ssl_ca_cert=" + self.certificates.authority)
        for version in (TLS12, TLS13):
            accepted = self.certificates.client(own, version)
            self.assertEqual(self.client(server, accepted).ask(b"mn"), b"MN")
            self.refused(server, self.certificates.client(version=version))
            self.refused(server, self.certificates.client(stranger, version))
        # Who was accepted can resume, and who was not can still not.
        self.assertEqual(self.client(server, self.certificates.client(own)).ask(b"mn"), b"MN")

    def test_clients_that_may_show_a_certificate(self):
        server = self.tls_server("-o", "ssl_verify_mode=1,ssl_ca_cert=" + self.certificates.authority)
        stranger = Certificates(self.folder(), "stranger").sign("stranger")
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")
        self.assertEqual(self.client(server, self.certificates.client(self.certificates.sign("c"))).ask(b"mn"), b"MN")
        self.refused(server, self.certificates.client(stranger))

    def test_each_listener_has_its_own_way(self):
        plain, basic, mutual = (support.free_port() for _ in range(3))
        addresses = "notls:127.0.0.1:%d,btls:127.0.0.1:%d,mtls:127.0.0.1:%d" % (plain, basic, mutual)
        server = self.tls_server("-l", addresses + ",127.0.0.1", "-o", "ssl_ca_cert=" + self.certificates.authority)
        with support.Connection("127.0.0.1", plain) as connection:
            self.assertEqual(connection.set(b"k", b"plain"), b"STORED")
        self.assertEqual(self.client(server, port=basic).get(b"k"), b"plain")
        self.refused(server, port=mutual)
        own = self.certificates.client(self.certificates.sign("client"))
        self.assertEqual(self.client(server, own, port=mutual).get(b"k"), b"plain")

    def test_versions_and_cipher_suites(self):
        server = self.tls_server("-o", "ssl_min_version=3")
        self.refused(server, self.certificates.client(version=TLS12))
        self.assertEqual(self.client(server).socket.version(), "TLSv1.3")
        server = self.tls_server("-o", "ssl_ciphers=ECDHE-ECDSA-CHACHA20-POLY1305")
        context = self.certificates.client(version=TLS12)
        self.assertEqual(self.client(server, context).socket.cipher()[0], "ECDHE-ECDSA-CHACHA20-POLY1305")
        self.assertEqual(self.client(server).socket.version(), "TLSv1.3")


@larder_only
class Start(TlsCase):
    """Settings that cannot be obeyed."""

    def fails(self, words, *flags):
        """A server that does not start, and says why in one line."""
        status, _, errors = run_to_end("-p", str(support.free_port()), "--admin", "off", *flags)
        self.assertNotEqual(status, 0)
        self.assertIn(words, errors)
        self.assertEqual(len([line for line in errors.splitlines() if line.startswith("larder: ")]), 1, errors)

    def test_files_that_are_missing_or_wrong(self):
        certificate, key = self.identity
        nonsense = os.path.join(self.folder(), "nonsense")
        with open(nonsense, "w", encoding="ascii") as file:
            file.write("nonsense")
        self.fails("TLS (-Z) needs a certificate", "-Z")
        self.fails("cannot read /no/such.pem (--tls-cert)", "-Z", "--tls-cert", "/no/such.pem")
        self.fails("no certificate in", "-Z", "--tls-cert", nonsense)
        self.fails("no private key in", "-Z", "--tls-cert", certificate)
        self.fails("no private key in", "-Z", "--tls-cert", certificate, "--tls-key", nonsense)
        other = os.path.join(self.folder(), "other.key")
        Certificates.make_key(other)
        self.fails("cannot be used", "-Z", "--tls-cert", certificate, "--tls-key", other)
        self.fails("no cipher suite 'HIGH'", "-Z", "--tls-cert", certificate, "--tls-key", key, "--tls-ciphers", "HIGH")
        self.fails("(--tls-ca)", "-Z", "--tls-cert", certificate, "--tls-key", key, "--tls-ca", nonsense)
        self.fails("turn TLS on with -Z", "-l", "notls:127.0.0.1")

    def test_certificate_and_key_in_one_file(self):
        both = os.path.join(self.folder(), "both.pem")
        with open(both, "wb") as write:
            for source in self.identity:
                with open(source, "rb") as read:
                    write.write(read.read())
        server = self.server("-Z", "--tls-cert", both)
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")


class Misbehaviour(TlsCase):
    """Clients that harm no others."""

    def slow(self, server, data=b""):
        """A connection whose handshake does not go on."""
        connection = support.Connection("127.0.0.1", server.port)
        self.addCleanup(connection.close)
        if data:
            connection.send(data)
        return connection

    @larder_only
    def test_handshakes_that_do_not_go_on_are_closed(self):
        server = self.tls_server()
        before = int(self.client(server).stats()[b"ssl_handshake_errors"])
        first = hello(self.certificates.client())
        slow = [self.slow(server, data) for data in (b"", first[:1], first[:4], first[:60], first)]
        dribble = self.slow(server)
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")
        for byte in first:
            try:
                dribble.send(bytes([byte]))
            except OSError:
                break
            if dribble.is_closed(DRIBBLE_SECONDS):
                break
        else:
            self.fail("a handshake may go on for ever, byte by byte")
        for connection in slow:
            self.assertTrue(connection.is_closed())
        self.assertEqual(int(self.client(server).stats()[b"ssl_handshake_errors"]), before + 6)

    def test_what_is_no_handshake_ends_its_connection(self):
        server = self.tls_server()
        for data in (b"get k\r\n" * 20, b"\x80" * 100, os.urandom(5000), b"\x16\x03\x01\xff\xff" + b"\0" * 70_000):
            connection = self.slow(server)
            try:
                connection.send(data)
            except OSError:
                continue
            self.assertTrue(connection.is_closed())
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")

    def test_bytes_that_cannot_be_decrypted_end_their_connection(self):
        server = self.tls_server()
        for version in (TLS12, TLS13):
            connection = self.client(server, self.certificates.client(version=version))
            self.assertEqual(connection.ask(b"mn"), b"MN")
            raw = socket.socket(fileno=os.dup(connection.socket.fileno()))
            raw.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))
            raw.close()
            with self.assertRaises((OSError, support.Closed)):
                connection.line()
        if is_larder():
            self.assertEqual(int(self.client(server).stats()[b"ssl_proto_errors"]), 2)

    def test_half_a_record_costs_little_and_its_rest_is_understood(self):
        server = self.tls_server()
        context = self.certificates.client()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        connection = self.slow(server)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.send(outgoing.read())
                incoming.write(connection.socket.recv(65536))
        client.write(b"set k 0 0 10000\r\n" + b"v" * 10_000 + b"\r\nget k\r\n")
        records = outgoing.read()
        for start in range(0, len(records), 999):
            connection.send(records[start:start + 999])
            connection.wait_until_read()
        said = b""
        while not said.endswith(b"END\r\n"):
            try:
                said += client.read(65536)
            except ssl.SSLWantReadError:
                incoming.write(connection.socket.recv(65536))
        self.assertEqual(said, b"STORED\r\nVALUE k 0 10000\r\n" + b"v" * 10_000 + b"\r\nEND\r\n")

    @larder_only
    def test_half_records_keep_no_other_from_being_served(self):
        server = self.tls_server("-m", "64", "-c", "1024")
        for _ in range(240):
            client = self.client(server)
            self.assertEqual(client.ask(b"mn"), b"MN")
            # Most of a record of 16 KiB, past the library that would encrypt it.
            os.write(client.socket.fileno(), b"\x17\x03\x03\x40\x00" + b"r" * 16_000)

        def all_are_stored():
            for number in range(10):
                self.assertEqual(self.client(server).set(b"k%d" % number, b"v" * 60_000), b"STORED")
        # It takes a while until those that have to go are gone.
        support.until_no_error(all_are_stored, (AssertionError, OSError, support.Closed))

    def test_no_client_begins_anew_within_a_connection(self):
        server = self.tls_server()
        asked = subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % server.port, "-tls1_2", "-quiet", "-no_ign_eof"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(asked.kill)
        # A server that says nothing would leave the next line of the client waited for.
        alarm = threading.Timer(support.WAIT_SECONDS_MAX, asked.kill)
        alarm.start()
        self.addCleanup(alarm.cancel)
        asked.stdin.write(b"mn\r\n")
        asked.stdin.flush()
        self.assertTrue(any(b"MN" in line for line in asked.stdout))
        asked.stdin.write(b"R\n")
        asked.stdin.flush()
        # The words of OpenSSL, which asked for it.
        self.assertTrue(any(b"no renegotiation" in line for line in asked.stdout))
        self.assertEqual(self.client(server).ask(b"mn"), b"MN")

    @larder_only
    def test_connections_beyond_their_memory_are_refused_and_others_served(self):
        # An eighth of 16 MiB is for sessions, of 6 KiB each.
        server = self.tls_server("-m", "16", "-I", "1m", "-t", "1")
        served = self.client(server)
        connections, refused = [], 0
        for _ in range(400):
            try:
                connections.append(self.client(server))
                self.assertEqual(connections[-1].ask(b"mn"), b"MN")
            except TimeoutError:
                raise
            except (OSError, support.Closed):
                refused += 1
        self.assertGreater(refused, 20)
        self.assertGreater(len(connections), 300)
        self.assertEqual(served.ask(b"mn"), b"MN")
        for connection in connections[:50]:
            connection.close()
        support.until_no_error(lambda: self.assertEqual(self.client(server).ask(b"mn"), b"MN"),
                               (OSError, support.Closed))

    @larder_only
    def test_a_storm_of_handshakes_delays_nobody(self):
        server = self.tls_server("-t", "2", identity=self.certificates.sign("storm", "4096"))
        served = self.client(server)
        first, ends = hello(self.certificates.client()), threading.Event()
        begun = [0]

        def storm():
            while not ends.is_set():
                try:
                    with support.Connection("127.0.0.1", server.port) as connection:
                        connection.send(first)
                        begun[0] += 1
                        connection.socket.recv(100)
                except OSError:
                    pass
        threads = [threading.Thread(target=storm) for _ in range(8)]
        for thread in threads:
            thread.start()
        answers = 0
        try:
            while begun[0] < 300:
                self.assertEqual(served.ask(b"mn"), b"MN")
                answers += 1
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        # One signature takes 4 ms and more. In a worker, a request would wait for several in a row.
        self.assertGreater(answers, 300)
