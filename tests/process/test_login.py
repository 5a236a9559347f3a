"""Users: who may come in by which protocol, what each may do, and what attempts that fail cost the others."""

import hashlib
import signal
import time

import packets
import support
from packets import packet, plain, store
from process_support import larder_only, run_to_end
from resp_support import ask, command, receive
from users_support import UsersCase

# An attempt that fails is answered after one to two seconds.
DELAY_SECONDS_MIN = 0.9


@larder_only
class Doors(UsersCase):
    """One file for all protocols."""

    def test_a_user_comes_in_by_every_protocol(self):
        digest = hashlib.sha256(b"hidden").hexdigest()
        self.write("# who may come in", "ada:lovelace", "alan:#" + digest)
        server = self.server("-Y", self.path)
        for user, password in (("ada", "lovelace"), ("alan", "hidden")):
            connection, said = self.text(server, user, password)
            self.assertEqual(said, b"STORED")
            self.assertEqual(connection.set(b"k", user.encode()), b"STORED")
            connection, status = self.binary(server, user, password)
            self.assertEqual(status, packets.OK)
            self.assertEqual(packets.ask(connection, packet(packets.GET, b"k")).value, user.encode())
        self.assertEqual(self.counts(server, "ada", "lovelace"), (4, 0))

    def test_a_user_comes_in_by_resp(self):
        self.write("ada:lovelace", "readonly eve:watches")
        server = self.server("-Y", self.path)
        nobody = self.connection(server)
        for words in (b"GET k", b"SET k v", b"INFO", b"MULTI", b"CLIENT LIST", b"SUBSCRIBE c"):
            self.assertTrue(ask(nobody, *words.split()).startswith(b"-NOAUTH"), words)
        self.assertTrue(ask(nobody, b"AUTH", b"ada", b"wrong").startswith(b"-WRONGPASS"))
        self.assertEqual(ask(nobody, b"AUTH", b"ada", b"lovelace"), b"OK")
        self.assertEqual(ask(nobody, b"SET", b"k", b"v"), b"OK")
        owner = self.connection(server)
        self.assertIn(b"proto", ask(owner, b"HELLO", b"3", b"AUTH", b"ada", b"lovelace"))
        self.assertEqual(ask(owner, b"GET", b"k"), b"v")

    def test_a_user_of_resp_who_only_reads(self):
        self.write("ada:lovelace", "readonly eve:watches")
        server = self.server("-Y", self.path, "-A")
        owner, _ = self.text(server, "ada", "lovelace")
        self.assertEqual(owner.set(b"k", b"5"), b"STORED")
        eve = self.connection(server)
        self.assertEqual(ask(eve, b"AUTH", b"eve", b"watches"), b"OK")
        for words in (b"SET k x", b"DEL k", b"UNLINK k", b"GETDEL k", b"GETEX k EX 5", b"INCR k", b"EXPIRE k 5",
                      b"APPEND k x", b"SETRANGE k 0 x", b"RENAME k j", b"COPY k j", b"MSET k x", b"MSETNX j x",
                      b"FLUSHALL", b"DELEX k", b"PERSIST k", b"CONFIG SET maxmemory 1gb", b"CLIENT KILL ID 1",
                      b"SHUTDOWN"):
            self.assertTrue(ask(eve, *words.split()).startswith(b"-NOPERM"), words)
        eve.send(command(b"SET", b"k", b"x" * 500_000))
        self.assertTrue(receive(eve).startswith(b"-NOPERM"))
        self.assertEqual(ask(eve, b"MULTI"), b"OK")
        self.assertTrue(ask(eve, b"SET", b"k", b"x").startswith(b"-NOPERM"))
        self.assertTrue(ask(eve, b"EXEC").startswith(b"-EXECABORT"))
        self.assertEqual(ask(eve, b"GET", b"k"), b"5")

    def test_sasl_alone(self):
        self.write("ada:lovelace")
        for flags, environment in ((["-S", "-Y", self.path], {}), (["-S"], {"MEMCACHED_SASL_PWDB": self.path})):
            server = self.server(*flags, environment=environment)
            connection = self.connection(server)
            self.assertEqual(packets.ask(connection, packet(packets.SASL_LIST)).value, b"PLAIN")
            self.assertEqual(packets.ask(connection, plain(b"ada", b"lovelace")).value, b"Authenticated")
            self.assertEqual(packets.ask(connection, store(b"k", b"v")).status, packets.OK)
            nobody = self.connection(server)
            self.assertEqual(packets.ask(nobody, packet(packets.VERSION)).status, packets.OK)
            self.assertEqual(packets.ask(nobody, packet(packets.GET, b"k")).status, packets.AUTH_ERROR)
            self.assertTrue(nobody.is_closed())
            text = self.connection(server)
            text.send(b"version\r\n" * 5)
            self.assertTrue(text.is_closed())

    def test_what_cannot_be(self):
        self.write("ada:lovelace")
        port = str(support.free_port())
        for flags, words in ((["-S"], "SASL (-S) needs users"),
                             (["-S", "-Y", self.path, "-B", "ascii"], "leave -B out"),
                             (["-Y", self.path, "-U", port], "over UDP")):
            status, _, errors = run_to_end("-p", port, "--admin", "off", *flags)
            self.assertNotEqual(status, 0)
            self.assertIn(words, errors)


@larder_only
class Reload(UsersCase):
    """The file is read again on SIGHUP."""

    def reload(self, server, user, password, said):
        """Sends the signal and waits until a login is answered so."""
        server.process.send_signal(signal.SIGHUP)
        support.until(lambda: self.text(server, user, password)[1] == said, "the users are read again")

    def test_new_users_and_old_connections(self):
        self.write("ada:lovelace", "alan:turing")
        server = self.server("-Y", self.path)
        old, _ = self.text(server, "ada", "lovelace")
        self.write("readonly grace:hopper", "alan:bombe")
        self.reload(server, "grace", "hopper", b"STORED")
        # Who is in stays in.
        self.assertEqual(old.set(b"k", b"v"), b"STORED")
        for user, password in (("ada", "lovelace"), ("alan", "turing")):
            self.assertEqual(self.text(server, user, password)[1], b"CLIENT_ERROR authentication failure")
        # A file that is wrong changes nothing.
        self.write("nonsense")
        server.process.send_signal(signal.SIGHUP)
        support.until(lambda: "the users stay as they were" in server.error_text() + server.output_text(), "it says so")
        self.assertEqual(self.text(server, "alan", "bombe")[1], b"STORED")


@larder_only
class Attempts(UsersCase):
    """Attempts that fail."""

    def setUp(self):
        super().setUp()
        self.write("ada:lovelace")

    def test_they_are_delayed_while_others_are_served(self):
        server = self.server("-Y", self.path, "-t", "1", "-c", "2000")
        served, _ = self.text(server, "ada", "lovelace")
        resident = server.resident_bytes()
        guesses, sent = [], []
        for number in range(600):
            connection = self.connection(server)
            sent.append(time.monotonic())
            if number % 2:
                # A guess behind a guess waits for its turn.
                connection.send(plain(b"ada", b"guess") * 2)
            else:
                connection.send(b"set auth 0 0 9\r\nada guess\r\n" * 2)
            guesses.append(connection)
        # With one worker, this would wait for 600 delays if a delay held the worker up.
        for _ in range(100):
            self.assertEqual(served.ask(b"mn"), b"MN")
        for nth in (1, 2):
            for number, connection in enumerate(guesses):
                if number % 2:
                    self.assertEqual(packets.receive(connection).status, packets.AUTH_ERROR)
                else:
                    self.assertEqual(connection.line(), b"CLIENT_ERROR authentication failure")
                self.assertGreater(time.monotonic() - sent[number], nth * DELAY_SECONDS_MIN)
        self.assertEqual(self.counts(server, "ada", "lovelace")[1], 1200)
        self.assertLess(server.resident_bytes() - resident, 16 << 20)

    def test_clients_that_do_not_wait_leave_nothing(self):
        server = self.server("-Y", self.path, "-t", "1")
        for _ in range(300):
            with support.Connection("127.0.0.1", server.port) as connection:
                connection.send(plain(b"ada", b"guess"))
        connection, said = self.text(server, "ada", "lovelace")
        self.assertEqual(said, b"STORED")
        support.until(lambda: connection.stats()[b"curr_connections"] == b"1", "the others are gone")

    def test_one_that_failed_in_a_transaction_delays_the_next_one(self):
        server = self.server("-Y", self.path)
        resp = self.connection(server)
        self.assertEqual(ask(resp, b"AUTH", b"ada", b"lovelace"), b"OK")
        guess = command(b"AUTH", b"ada", b"guess")
        began = time.monotonic()
        resp.send(command(b"MULTI") + guess + guess + command(b"EXEC") + guess + command(b"PING"))
        self.assertEqual([receive(resp) for _ in range(3)], [b"OK", b"QUEUED", b"QUEUED"])
        wrong = receive(resp)
        self.assertTrue(len(wrong) == 2 and all(one.startswith(b"-WRONGPASS") for one in wrong), wrong)
        self.assertTrue(receive(resp).startswith(b"-WRONGPASS"))
        self.assertGreater(time.monotonic() - began, DELAY_SECONDS_MIN)
        self.assertEqual(receive(resp), b"PONG")

    def test_who_failed_can_still_come_in(self):
        server = self.server("-Y", self.path)
        connection, status = self.binary(server, "ada", "byron")
        self.assertEqual(status, packets.AUTH_ERROR)
        self.assertEqual(packets.ask(connection, plain(b"ada", b"lovelace")).value, b"Authenticated")
        self.assertEqual(packets.ask(connection, packet(packets.SASL_AUTH, b"PLAIN")).status, packets.AUTH_CONTINUE)
        step = packet(packets.SASL_STEP, b"PLAIN", b"\0ada\0lovelace")
        self.assertEqual(packets.ask(connection, step).value, b"Authenticated")
        self.assertEqual(packets.ask(connection, store(b"k", b"v")).status, packets.OK)
        # An attempt to become somebody else takes away what the connection was.
        self.assertEqual(packets.ask(connection, plain(b"ada", b"byron")).status, packets.AUTH_ERROR)
        self.assertEqual(packets.ask(connection, packet(packets.GET, b"k")).status, packets.AUTH_ERROR)

    def test_a_stop_does_not_wait_for_them(self):
        server = self.server("-Y", self.path)
        connection = self.connection(server)
        connection.send(b"set auth 0 0 9\r\nada guess\r\n")
        connection.wait_until_read()
        self.assertEqual(server.stop(), 0)
