"""Connections: limits, timeouts, UDP, IPv6, authentication, slow clients, and how they are spread."""

import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import packets
import process_support
import resp_support
import support
import tls_support
from process_support import Case, larder_only, own_address
from resp_support import command

BACKEND_NAMES = {"ring": (b"io_uring",), "poll": (b"poll", b"epoll")}
CORE_TRANSCRIPTS = ["storage", "retrieval", "delete", "arithmetic", "noreply", "errors", "limits", "meta_get",
                    "meta_set", "meta_delete", "meta_arithmetic", "meta_recache", "meta_base64", "meta_misc"]


class Limits(Case):
    """How many connections, and for how long."""

    def test_connections_beyond_the_limit_are_told_so(self):
        server = self.server("-c", "40", wait=False)
        server.wait_until_listening()
        # The connection that has tried whether the server listens goes.
        first = self.connection(server)
        at_rest = 1 if process_support.is_larder() else int(first.stats()[b"curr_connections"])
        support.until(lambda: int(first.stats()[b"curr_connections"]) <= at_rest, "the first connection is alone")
        held = [first]
        refused = 0
        for _ in range(59):
            connection = self.connection(server)
            try:
                answer = connection.ask(b"mn")
            except (support.Closed, ConnectionError):
                answer = b""
            if answer == b"MN":
                held.append(connection)
            else:
                self.assertIn(answer, (b"ERROR Too many open connections", b""))
                refused += 1
        # memcached counts its own descriptors too.
        self.assertGreaterEqual(len(held), 38 if process_support.is_larder() else 20)
        self.assertLessEqual(len(held), 40)
        self.assertGreaterEqual(refused, 20)
        self.assertGreaterEqual(int(held[0].stats()[b"rejected_connections"]), refused)
        for connection in held[1:]:
            connection.close()
        support.until_no_error(lambda: self.assertEqual(self.connection(server).ask(b"mn"), b"MN"),
                               (AssertionError, OSError, support.Closed))

    def test_many_workers_in_little_memory_wait_for_the_rest_of_a_request(self):
        for threads in (32, 64):
            connection = self.connection(self.server("-m", "64", "-t", str(threads)))
            connection.send(b"get a")
            connection.wait_until_read()
            self.assertEqual(connection.ask(b" b"), b"END")
            self.assertEqual(connection.set(b"large", b"l" * 100000), b"STORED")
            self.assertEqual(connection.get(b"large"), b"l" * 100000)

    def test_an_idle_connection_is_closed(self):
        server = self.server("-o", "idle_timeout=1")
        idle, busy = self.connection(server), self.connection(server)
        self.assertEqual(idle.ask(b"mn"), b"MN")
        closed = threading.Event()
        watcher = threading.Thread(target=lambda: idle.is_closed() and closed.set())
        watcher.start()
        kicked = 1

        def goes_on():
            nonlocal busy, kicked
            asked = time.monotonic()
            try:
                self.assertEqual(busy.ask(b"mn"), b"MN")
            except (OSError, support.Closed):
                # A machine that held this client up for a second has made it an idle one.
                self.assertGreater(time.monotonic() - last[0], 0.9)
                busy, kicked = self.connection(server), kicked + 1
            last[0] = asked
            return closed.is_set()
        last = [time.monotonic()]
        support.until(goes_on, "the idle connection is closed")
        watcher.join()
        self.assertEqual(int(self.connection(server).stats()[b"idle_kicks"]), kicked)

    def test_a_thousand_connections(self):
        server = self.server("-c", "1024")
        held = [self.connection(server) for _ in range(900)]
        for number, connection in enumerate(held):
            connection.send(b"set k%d 0 0 4 \r\n%04d\r\n" % (number, number))
        for connection in held:
            self.assertEqual(connection.line(), b"STORED")
        self.assertEqual(held[7].get(b"k899"), b"0899")

    def test_connections_come_and_go(self):
        server = self.server()
        first = self.connection(server)
        for _ in range(500):
            with server.connect() as connection:
                connection.send(b"get a\r\nset b 0 0 10\r\nhalf")

        def are_gone():
            stats = first.stats()
            return int(stats[b"total_connections"]) >= 500 and int(stats[b"curr_connections"]) <= 3
        support.until(are_gone, "connections that are gone are not counted")


class Udp(Case):
    """Requests of one datagram, answers of several."""

    def setUp(self):
        self.port = support.free_port()
        self.server("-U", str(self.port), "-o", "track_sizes")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.settimeout(support.WAIT_SECONDS_MAX)

    def ask(self, request, number=7, total=1):
        """Sends a datagram and puts the answer together."""
        self.socket.sendto(struct.pack(">HHHH", number, 0, total, 0) + request, ("127.0.0.1", self.port))
        parts, count = {}, 1
        while len(parts) < count:
            datagram = self.socket.recv(65536)
            self.assertLessEqual(len(datagram), 1400)
            got, sequence, count, reserved = struct.unpack(">HHHH", datagram[:8])
            self.assertEqual((got, reserved), (number, 0))
            parts[sequence] = datagram[8:]
        self.assertEqual(sorted(parts), list(range(count)))
        return b"".join(parts[sequence] for sequence in range(count))

    def test_set_and_get(self):
        self.assertEqual(self.ask(b"set a 5 0 5\r\nhello\r\n"), b"STORED\r\n")
        self.assertEqual(self.ask(b"get a\r\n", 65535), b"VALUE a 5 5\r\nhello\r\nEND\r\n")
        self.assertEqual(self.ask(b"get absent\r\n", 0), b"END\r\n")
        self.assertEqual(self.ask(b"mg a v\r\n"), b"VA 5\r\nhello\r\n")
        self.assertEqual(self.ask(b"nonsense\r\n"), b"ERROR\r\n")

    def test_an_answer_of_several_datagrams(self):
        value = bytes(range(256)) * 50
        with support.Connection("127.0.0.1", self.tcp_port()) as connection:
            self.assertEqual(connection.set(b"long", value), b"STORED")
        answer = self.ask(b"get long\r\n")
        self.assertEqual(answer, b"VALUE long 0 %d\r\n" % len(value) + value + b"\r\nEND\r\n")

    def test_a_list_of_items_is_refused(self):
        self.assertEqual(self.ask(b"set a 5 0 5\r\nhello\r\n"), b"STORED\r\n")
        refused = b"CLIENT_ERROR a list of items is sent over TCP only\r\n"
        for request in (b"lru_crawler metadump all\r\n", b"lru_crawler mgdump all\r\n", b"stats cachedump 1 0\r\n"):
            self.assertEqual(self.ask(request), refused)

    @larder_only
    def test_all_items_are_measured_over_tcp_only(self):
        self.assertEqual(self.ask(b"stats sizes\r\n"), b"CLIENT_ERROR a list of items is sent over TCP only\r\n")

    def tcp_port(self):
        """The TCP port, as `stats settings` tells over UDP."""
        for line in self.ask(b"stats settings\r\n").split(b"\r\n"):
            if line.startswith(b"STAT tcpport "):
                return int(line.split()[2])
        raise AssertionError("no tcpport in stats settings")

    def test_a_request_of_several_datagrams_is_dropped(self):
        self.socket.sendto(struct.pack(">HHHH", 7, 0, 2, 0) + b"get a\r\n", ("127.0.0.1", self.port))
        # If it were answered, that would come first, and have another number.
        self.assertEqual(self.ask(b"get a\r\n", 8), b"END\r\n")

    def test_datagrams_too_short_for_a_header_are_dropped(self):
        for length in range(8):
            self.socket.sendto(b"\0" * length, ("127.0.0.1", self.port))
        self.assertEqual(self.ask(b"version\r\n")[:8], b"VERSION ")


class UdpOnTheNetwork(Case):
    """What strangers get over UDP."""

    def setUp(self):
        self.own = own_address()
        if self.own is None:
            self.skipTest("this machine has no address but its loopback address")

    def answered(self, port, request):
        """The bytes of the datagrams that answer a request of this machine's own address, as far as they come soon."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind((self.own, 0))
            client.settimeout(0.02)
            client.sendto(b"\0\7\0\0\0\1\0\0" + request, (self.own, port))
            received = 0
            while True:
                try:
                    received += len(client.recv(65536))
                except OSError:
                    return received

    def answered_whole(self, port, request, at_least):
        """The bytes of the datagrams of an answer, once there are `at_least` so many."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(support.WAIT_SECONDS_MAX)
            client.sendto(b"\0\7\0\0\0\1\0\0" + request, ("127.0.0.1", port))
            received = 0
            while received < at_least:
                received += len(client.recv(65536))
            return received

    @larder_only
    def test_an_address_gets_so_much_and_no_more(self):
        port = support.free_port()
        server = self.server("-l", "0.0.0.0", "-U", str(port), "--udp-reply-limit", "100k", defaults=[])
        connection = self.connection(server)
        self.assertEqual(connection.set(b"large", b"l" * 30000), b"STORED")
        begun, received = time.monotonic(), []

        def is_answered_enough():
            received.append(self.answered(port, b"get large\r\n"))
            # What has not been used of two seconds may be used in one go.
            self.assertLess(sum(received), 102_400 * (time.monotonic() - begun + 2) + 40_000)
            return sum(received) >= 300_000
        support.until(is_answered_enough, "an address gets its share")
        # This machine itself is not limited: every answer is whole.
        for _ in range(12):
            self.assertGreater(self.answered_whole(port, b"get large\r\n", 30_000), 30_000)

    @larder_only
    def test_without_an_address_it_is_for_this_machine_only(self):
        port = support.free_port()
        server = self.server("-U", str(port), defaults=[])
        self.assertGreater(self.answered_whole(port, b"version\r\n", 9), 8)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(support.WAIT_SECONDS_MAX)
            client.connect((self.own, port))
            client.send(b"\0\7\0\0\0\1\0\0version\r\n")
            # The kernel says that nobody listens there.
            with self.assertRaises(ConnectionRefusedError):
                client.recv(65536)
        self.assertIn("UDP is for this machine only", server.error_text())

    @larder_only
    def test_buffers_are_in_the_accounts(self):
        server = self.server("-t", "2", "-m", "64")
        with_udp = self.server("-t", "2", "-m", "64", "-U", str(support.free_port()))
        held = [int(self.connection(one).stats()[b"read_buf_bytes"]) for one in (server, with_udp)]
        self.assertGreaterEqual(held[1] - held[0], 2 * 65536)


@unittest.skipIf(own_address() is None, "this machine has no address but its loopback address")
class Strangers(Case):
    """Clients of other machines at a server that nobody has opened for them. Who comes from an address of the network
    is taken for one, also from this machine."""

    WHY = b"only clients of the server's own machine are served"

    def come(self, port, encrypt=lambda made: made):
        """A connection from an address of the network."""
        made = socket.create_connection((own_address(), port), support.WAIT_SECONDS_MAX)
        connection = support.Connection(None, None, made=encrypt(made))
        self.addCleanup(connection.close)
        return connection

    def serves(self, port):
        """Whether a stranger is served."""
        answer = self.come(port).ask(b"mn")
        self.assertTrue(answer == b"MN" or self.WHY in answer, answer)
        return answer == b"MN"

    @larder_only
    def test_they_are_told_why_in_their_protocol(self):
        resp = support.free_port()
        server = self.server("--resp-port", str(resp), defaults=[])
        self.assertIn("only clients of this machine are served", server.error_text())
        self.assertEqual(self.connection(server).set(b"k", b"v"), b"STORED")
        text = self.come(server.port)
        text.send(b"set k 0 0 1\r\nw\r\nget k\r\n")
        self.assertTrue(text.line().startswith(b"SERVER_ERROR " + self.WHY))
        self.assertTrue(text.is_closed())
        for port in (server.port, resp):
            client = self.come(port)
            client.send(command(b"GET", b"k") + command(b"SET", b"k", b"w"))
            self.assertTrue(client.line().startswith(b"-DENIED " + self.WHY))
            self.assertTrue(client.is_closed())
        binary = self.come(server.port)
        reply = packets.ask(binary, packets.packet(packets.GET, b"k", opaque=77))
        self.assertEqual((reply.opcode, reply.opaque, reply.status), (packets.GET, 77, packets.AUTH_ERROR))
        self.assertTrue(reply.value.startswith(self.WHY))
        self.assertTrue(binary.is_closed())
        own = self.connection(server)
        self.assertEqual(own.get(b"k"), b"v")
        self.assertEqual(own.stats()[b"stranger_rejected_connections"], b"4")
        self.assertIn("of other machines turned away, the last one from " + own_address(), server.error_text())

    @larder_only
    def test_one_that_says_nothing_does_not_stay(self):
        self.assertTrue(self.come(self.server(defaults=[]).port).is_closed())

    @larder_only
    def test_one_that_is_gone_already_changes_nothing(self):
        for backend in ("poll", "auto"):
            server = self.server("--backend", backend, defaults=[])
            for number in range(300):
                with socket.create_connection((own_address(), server.port), support.WAIT_SECONDS_MAX) as gone:
                    opens = command(b"CONFIG", b"SET", b"open", b"true")
                    gone.sendall(opens if number % 2 else b"set k%d 0 0 1 noreply\r\nx\r\n" % number)
                    # Closed so, the socket has no address any more when the server comes to it.
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            own = self.connection(server)
            support.until(lambda: own.stats()[b"curr_connections"] == b"1", "all others are gone")
            self.assertEqual(own.stats()[b"total_items"], b"0")
            self.assertFalse(self.serves(server.port))

    @larder_only
    def test_they_take_few_places(self):
        server = self.server("-c", "64", defaults=[])
        silent = [self.come(server.port) for _ in range(100)]
        self.assertEqual(self.connection(server).ask(b"mn"), b"MN")
        self.assertEqual(len([one for one in silent if one.is_closed()]), 100)

    @larder_only
    def test_who_is_asked_for_comes_in(self):
        users = os.path.join(self.folder(), "users")
        with open(users, "w") as file:
            file.write("ada:lovelace\n")
        for flags in (("-l", "0.0.0.0"), ("-l", own_address()), ("--open",)):
            server = self.server(*flags, defaults=[], wait=False)
            server.wait_until_listening(own_address())
            self.assertTrue(self.serves(server.port))
        asks = self.server("-Y", users, defaults=[])
        self.assertEqual(self.come(asks.port).set(b"login", b"ada lovelace"), b"STORED")

    @larder_only
    def test_the_door_opens_and_closes_while_the_server_runs(self):
        server = self.server(defaults=[])
        own = self.connection(server)
        self.assertEqual(resp_support.ask(own, b"CONFIG", b"GET", b"protected-mode"), [b"protected-mode", b"yes"])
        self.assertFalse(self.serves(server.port))
        self.assertEqual(resp_support.ask(own, b"CONFIG", b"SET", b"protected-mode", b"no"), b"OK")
        self.assertTrue(self.serves(server.port))
        self.assertEqual(resp_support.ask(own, b"CONFIG", b"SET", b"open", b"false"), b"OK")
        self.assertFalse(self.serves(server.port))

    @larder_only
    @unittest.skipUnless(tls_support.has_openssl(), "openssl is not installed")
    def test_over_tls(self):
        certificates = tls_support.Certificates(self.folder())
        flags = tls_support.flags(*certificates.sign("server"))
        server = self.server(*flags, defaults=[])

        def encrypted(context):
            return lambda made: context.wrap_socket(made, server_hostname="localhost")
        self.assertIn(self.WHY, self.come(server.port, encrypted(certificates.client())).ask(b"mn"))
        # Who shows a certificate is no stranger.
        asks = self.server(*flags, "--tls-verify", "require", "--tls-ca", certificates.authority, defaults=[])
        known = encrypted(certificates.client(certificates.sign("client")))
        self.assertEqual(self.come(asks.port, known).ask(b"mn"), b"MN")


class Addresses(Case):
    """Where it listens."""

    def test_a_udp_port_alone_is_the_port_of_tcp_as_well(self):
        port = support.free_port()
        words = process_support.server_words() + ["-U", str(port), "-l", "127.0.0.1"]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        with support.until_no_error(lambda: support.Connection("127.0.0.1", port)) as connection:
            self.assertEqual(connection.set(b"a", b"x"), b"STORED")
            settings = connection.stats(b"settings")
        self.assertEqual((settings[b"tcpport"], settings[b"udpport"]), (b"%d" % port, b"%d" % port))

    def test_what_connections_are_doing(self):
        udp_port = support.free_port()
        server = self.server("-U", str(udp_port))
        half, refused, idle = (self.connection(server) for _ in range(3))
        half.send(b"set a 0 0 6\r\n")
        refused.send(b"set a x 0 60\r\n")
        self.assertEqual(idle.ask(b"version")[:7], b"VERSION")
        asking = self.connection(server)
        for one in (half, refused):
            one.wait_until_read()
        asking.send(b"stats conns\r\n")
        rows = [line.split(b" ", 2)[1:] for line in iter(asking.line, b"END")]
        states = [value for name, value in rows if name.endswith(b":state")]
        for state in (b"conn_listening", b"conn_nread", b"conn_swallow", b"conn_read", b"conn_parse_cmd"):
            self.assertIn(state, states)
        addresses = [value for name, value in rows if name.endswith(b":addr")]
        self.assertTrue(any(re.fullmatch(rb"udp:[0-9.]+:%d" % udp_port, address) for address in addresses), addresses)

    def test_ipv6(self):
        probe = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        try:
            probe.bind(("::1", 0))
        except OSError:
            self.skipTest("this machine has no IPv6")
        finally:
            probe.close()
        server = self.server("-l", "::1", wait=False)
        server.wait_until_listening("::1")
        with support.Connection("::1", server.port) as connection:
            self.assertEqual(connection.set(b"a", b"x"), b"STORED")
            self.assertEqual(connection.get(b"a"), b"x")

    def test_several_addresses_with_ports(self):
        other = support.free_port()
        server = self.server("-l", "127.0.0.1,127.0.0.2:%d" % other)
        self.assertEqual(self.connection(server).set(b"a", b"x"), b"STORED")
        with support.Connection("127.0.0.2", other) as connection:
            self.assertEqual(connection.get(b"a"), b"x")


class Authentication(Case):
    """`-Y`, the passwords of the text protocol."""

    def setUp(self):
        path = os.path.join(self.folder(), "users")
        with open(path, "w") as file:
            file.write("ada:lovelace\nalan:turing\n")
        os.chmod(path, 0o600)
        self.running = self.server("-Y", path, "-B", "ascii")

    def login(self, connection, words):
        """Says who is there; returns the answer."""
        connection.send(b"set auth 0 0 %d\r\n%b\r\n" % (len(words), words))
        return connection.line()

    def test_without_a_password(self):
        connection = self.connection(self.running)
        self.assertEqual(connection.ask(b"get abc"), b"CLIENT_ERROR unauthenticated")

    def test_with_a_password(self):
        for words in (b"ada lovelace", b"alan turing"):
            connection = self.connection(self.running)
            self.assertEqual(self.login(connection, words), b"STORED")
            self.assertEqual(connection.set(b"a", b"x"), b"STORED")
            self.assertEqual(connection.get(b"a"), b"x")

    def test_with_a_wrong_password(self):
        connection = self.connection(self.running)
        self.assertEqual(self.login(connection, b"ada turing"), b"CLIENT_ERROR authentication failure")
        self.assertEqual(connection.ask(b"get abc"), b"CLIENT_ERROR unauthenticated")

    def test_without_a_space(self):
        connection = self.connection(self.running)
        self.assertEqual(self.login(connection, b"adalovelace"), b"CLIENT_ERROR bad authentication token format")

    def test_what_is_no_login_is_refused_and_the_connection_stays(self):
        connection = self.connection(self.running)
        for line in (b"version", b"get abc", b"set abc", b"set abc 0 0 x", b"nonsense", b"mg a v k",
                     b"set a 0 0 99999"):
            refusal = connection.ask(line)
            self.assertIn(refusal, (b"CLIENT_ERROR unauthenticated", b"CLIENT_ERROR auth token too long"), line)
        self.assertEqual(self.login(connection, b"ada lovelace"), b"STORED")
        self.assertEqual(connection.ask(b"version")[:7], b"VERSION")


class SlowClients(Case):
    """A client that sends a byte at a time keeps nobody else waiting."""

    def test_a_byte_at_a_time(self):
        server = self.server()
        slow, other = self.connection(server), self.connection(server)
        for byte in b"set slow 0 0 5\r\nhello\r\nget slow\r\n":
            slow.send(bytes([byte]))
            self.assertEqual(other.ask(b"mn"), b"MN")
            slow.wait_until_read()
        self.assertEqual(slow.line(), b"STORED")
        self.assertEqual(slow.line(), b"VALUE slow 0 5")

    def test_a_reader_that_does_not_read_delays_nobody(self):
        server = self.server()
        deaf, other = self.connection(server, receive_buffer=4096), self.connection(server)
        deaf.set(b"large", b"x" * 900000)
        deaf.socket.setblocking(False)
        try:
            for _ in range(200):
                deaf.socket.send(b"get large\r\n" * 10)
        except BlockingIOError:
            pass
        for _ in range(50):
            self.assertEqual(other.ask(b"mn"), b"MN")

    def test_a_large_answer_is_whole_for_a_slow_reader(self):
        server = self.server()
        slow = self.connection(server, receive_buffer=4096)
        value = bytes(range(256)) * 3500
        self.assertEqual(slow.set(b"large", value), b"STORED")
        slow.send(b"get large\r\n" * 5 + b"mn\r\n")
        for _ in range(5):
            self.assertEqual(slow.line(), b"VALUE large 0 %d" % len(value))
            server.wait_until_idle()
            self.assertEqual(slow.exactly(len(value)), value)
            self.assertEqual(slow.exactly(7), b"\r\nEND\r\n")
        self.assertEqual(slow.line(), b"MN")


class Spread(Case):
    """Few connections, and every worker has its share."""

    def test_connections_are_spread_over_the_workers(self):
        server = self.server()
        connections = [self.connection(server) for _ in range(8)]
        before, begun = self.ticks(server), server.processor_ticks()
        request = b"get absent\r\n" * 400
        # As long as it takes until each of two equal shares is many ticks.
        while server.processor_ticks() - begun < 60:
            for connection in connections:
                connection.send(request)
            for connection in connections:
                connection.exactly(len(b"END\r\n") * 400)
        after = self.ticks(server)
        spent = sorted((after[task] - before.get(task, 0) for task in after), reverse=True)[:2]
        self.assertGreater(spent[1], 0.25 * sum(spent), "processor ticks of the two busiest threads: %r" % spent)

    @staticmethod
    def ticks(server):
        """Processor ticks of each thread so far."""
        found = {}
        folder = "/proc/%d/task" % server.process.pid
        for task in os.listdir(folder):
            with open(os.path.join(folder, task, "stat")) as file:
                fields = file.read().rsplit(")", 1)[1].split()
            found[task] = int(fields[11]) + int(fields[12])
        return found


class Backends(Case):
    """Both ways to wait for the network give the same answers.

    The stage `transcripts` replays everything with the backend that the server chooses; these tests replay the core
    transcripts with the other backend.
    """

    def transcripts(self, backend):
        """Replays the core transcripts on a server with this backend, unless it is the one that the server chooses."""
        try:
            with process_support.start("--backend", backend) as server, process_support.start() as plain:
                named, chosen = (self.connection(one).stats(b"settings")[b"backend"] for one in (server, plain))
        except support.DidNotStart as reason:
            self.skipTest("no backend %s here: %s" % (backend, reason))
        self.assertIn(named, BACKEND_NAMES[backend])
        if named == chosen:
            return
        folder = os.path.join(process_support.TESTS, "transcripts")
        done = subprocess.run(
            [sys.executable, os.path.join(folder, "run.py"), "--server", process_support.server_command(),
             "--flags=--backend " + backend, "--cut", "bytes"]
            + [os.path.join(folder, name + ".txt") for name in CORE_TRANSCRIPTS],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])

    @larder_only
    def test_ring(self):
        self.transcripts("ring")

    @larder_only
    def test_poll(self):
        self.transcripts("poll")


if __name__ == "__main__":
    unittest.main()
