"""RESP over real sockets: how input is cut, large values and keys, what the doors share, and clients that misbehave."""

import os
import time

import support
from process_support import Case, larder_only
from resp_support import ask, command, receive

LARGE = bytes(range(256)) * 3600


def processor_seconds(server):
    """The processor time that a server has taken."""
    return server.processor_ticks() / os.sysconf("SC_CLK_TCK")


@larder_only
class Values(Case):
    """Values and keys of all sizes, however they are cut."""

    def setUp(self):
        self.running = self.server("-m", "128")

    def test_large_values_in_pieces(self):
        connection = self.connection(self.running)
        request = command(b"SET", b"large", LARGE)
        for start in range(0, len(request), 50_001):
            connection.send(request[start:start + 50_001])
            connection.wait_until_read()
        self.assertEqual(receive(connection), b"OK")
        self.assertEqual(ask(connection, b"GET", b"large"), LARGE)
        self.assertEqual(ask(connection, b"GETRANGE", b"large", b"0", b"9"), LARGE[:10])

    def test_a_byte_at_a_time(self):
        connection = self.connection(self.running)
        requests = command(b"SET", b"k", b"value", b"PX", b"60000") + command(b"GET", b"absent") + b"get k\r\n"
        for byte in requests:
            connection.send(bytes([byte]))
        self.assertEqual([receive(connection) for _ in range(3)], [b"OK", None, b"value"])

    def test_long_keys(self):
        connection = self.connection(self.running)
        for length in (249, 250, 251, 252, 1000, 65_536):
            key = (b"%d:" % length).ljust(length, b"k")
            self.assertEqual(ask(connection, b"SET", key, b"v%d" % length), b"OK")
            self.assertEqual(ask(connection, b"MGET", key, key[:-1] + b"x"), [b"v%d" % length, None])
        refused = ask(connection, b"SET", b"k" * 65_537, b"v")
        self.assertEqual(refused, b"-ERR key is too long (65536 bytes at most)")

    def test_long_requests_behind_others(self):
        connection = self.connection(self.running)
        for _ in range(20):
            connection.send(command(b"PING") + command(b"MSET", b"k", LARGE[:300_000]) + command(b"PING"))
            self.assertEqual([receive(connection) for _ in range(3)], [b"PONG", b"OK", b"PONG"])
        self.assertEqual(ask(connection, b"GET", b"k"), LARGE[:300_000])

    def test_replies_of_a_transaction_are_bounded(self):
        connection = self.connection(self.running)
        self.assertEqual(ask(connection, b"SET", b"large", LARGE), b"OK")
        before = self.running.resident_bytes()
        for asked in (command(b"GETEX", b"large"), command(b"COMMAND", b"DOCS")):
            connection.send(command(b"MULTI") + asked * 600 + command(b"SET", b"k", b"v") + command(b"EXEC"))
            self.assertEqual(receive(connection), b"OK")
            self.assertEqual({receive(connection) for _ in range(601)}, {b"QUEUED"})
            replies = receive(connection)
            self.assertEqual((len(replies), replies[-1]), (601, b"OK"))
            self.assertTrue(replies[-2].startswith(b"-OOM"), replies[-2])
        self.assertLess(self.running.resident_bytes() - before, 64 << 20)

    def test_a_list_of_values_in_a_transaction_is_bounded(self):
        connection = self.connection(self.running)
        self.assertEqual(ask(connection, b"SET", b"large", LARGE), b"OK")
        before = self.running.resident_bytes()
        asked = command(b"MGET", *[b"large"] * 5000) + command(b"GET", b"k")
        connection.send(command(b"MULTI") + asked + command(b"EXEC"))
        self.assertEqual([receive(connection) for _ in range(3)], [b"OK", b"QUEUED", b"QUEUED"])
        values, other = receive(connection)
        self.assertTrue(values.startswith(b"-OOM"), values[:100])
        self.assertIsNone(other)
        self.assertLess(self.running.resident_bytes() - before, 64 << 20)

    def test_a_value_above_the_limit_is_refused_however_long_what_is_appended(self):
        connection = self.connection(self.running)
        self.assertEqual(ask(connection, b"SET", b"k", b"x" * 1_040_000), b"OK")
        for more in (10_000, 20_000, 300_000):
            self.assertIn(b"string exceeds maximum", ask(connection, b"APPEND", b"k", b"y" * more))
        self.assertEqual(ask(connection, b"STRLEN", b"k"), 1_040_000)
        self.assertEqual(ask(connection, b"APPEND", b"absent", b"y" * 20_000), 20_000)

    def test_a_long_value_to_compare_with_behind_a_long_value(self):
        connection = self.connection(self.running)
        old = LARGE[:200_000]
        self.assertEqual(ask(connection, b"SET", b"k", old), b"OK")
        for new in (b"short", LARGE[:100_000]):
            self.assertEqual(ask(connection, b"SET", b"k", new, b"IFEQ", old), b"OK")
            self.assertEqual(ask(connection, b"GET", b"k"), new)
            self.assertIsNone(ask(connection, b"SET", b"k", LARGE[:50_000], b"IFEQ", old))
            self.assertEqual(ask(connection, b"SET", b"k", old), b"OK")

    def test_a_long_key_whose_value_cannot_be_stored_is_told_so(self):
        connection = self.connection(self.running)
        value = b"x" * (1 << 20)
        for key in (b"k" * 300, b"k"):
            self.assertIn(b"string exceeds maximum", ask(connection, b"MSETNX", key, value))
            self.assertIn(b"string exceeds maximum", ask(connection, b"MSET", b"other", b"v", key, value))

    def test_a_value_larger_than_the_buffers_can_be_deleted(self):
        connection = self.connection(self.server("-m", "1024", "-I", "128m"))
        for words in ((b"DEL", b"k"), (b"UNLINK", b"k"), (b"DELEX", b"k")):
            self.assertEqual(ask(connection, b"SET", b"k", b"x" * (70 << 20)), b"OK")
            self.assertEqual(ask(connection, *words), 1)
            self.assertEqual(ask(connection, b"EXISTS", b"k"), 0)

    def test_why_a_connection_is_closed_is_told_to_a_client_that_still_sends(self):
        for request in (b"*3\r\n$4\r\nMSET\r\n$1\r\nk\r\n$99999999\r\n", b"*1\r\n$x\r\n"):
            connection = self.connection(self.running)
            connection.send(request + b"x" * 5_000_000)
            self.assertTrue(connection.line().startswith(b"-ERR Protocol error"))

    def test_a_transaction_answers_old_values_of_all_sizes_in_order(self):
        connection = self.connection(self.running)
        old = LARGE[:200_000]
        for key in (b"a", b"b", b"c"):
            self.assertEqual(ask(connection, b"SET", key, old), b"OK")
        asked = ((b"GETDEL", b"a"), (b"GETSET", b"b", b"new"), (b"SET", b"c", b"new", b"GET"), (b"GET", b"b"),
                 (b"GETRANGE", b"absent", b"0", b"1"))
        connection.send(command(b"MULTI") + b"".join(command(*words) for words in asked) + command(b"EXEC"))
        self.assertEqual([receive(connection) for _ in range(6)], [b"OK"] + [b"QUEUED"] * 5)
        self.assertEqual(receive(connection), [old, old, old, b"new", b""])
        self.assertEqual(ask(connection, b"PING"), b"PONG")

    def test_a_pipeline_is_answered_in_order(self):
        connection = self.connection(self.running)
        connection.send(b"".join(command(b"SET", b"k%d" % i, b"v%d" % i) for i in range(2000)))
        self.assertEqual([receive(connection) for _ in range(2000)], [b"OK"] * 2000)
        connection.send(b"".join(command(b"GET", b"k%d" % i) + command(b"INCR", b"n") for i in range(2000)))
        for i in range(2000):
            self.assertEqual((receive(connection), receive(connection)), (b"v%d" % i, i + 1))

    def test_a_client_that_reads_slowly_gets_everything(self):
        connection = self.connection(self.running, receive_buffer=4096)
        self.assertEqual(ask(connection, b"SET", b"large", LARGE), b"OK")
        connection.send(command(b"GET", b"large") * 8)
        connection.wait_until_answered()
        for _ in range(8):
            self.assertEqual(receive(connection), LARGE)

    def test_a_lifetime_of_milliseconds(self):
        connection = self.connection(self.running)
        begun = time.monotonic()
        self.assertEqual(ask(connection, b"SET", b"k", b"v", b"PX", b"1300"), b"OK")
        found = ask(connection, b"GET", b"k"), ask(connection, b"PTTL", b"k")
        if time.monotonic() - begun < 1.2:
            self.assertTrue(found[0] == b"v" and 0 < found[1] <= 1300, found)
        support.until(lambda: ask(connection, b"GET", b"k") is None, "the item has expired")
        # The clock of lifetimes may be a tenth of a second ahead.
        self.assertGreater(time.monotonic() - begun, 1.2)
        self.assertEqual(ask(connection, b"PTTL", b"k"), -2)


@larder_only
class Doors(Case):
    """Which protocol a connection speaks, and what the protocols share."""

    def test_the_first_byte_tells_on_the_port_of_memcached(self):
        running = self.server()
        self.assertEqual(ask(self.connection(running), b"PING"), b"PONG")
        self.assertEqual(self.connection(running).ask(b"mn"), b"MN")
        # A word is a line of text there.
        self.assertEqual(self.connection(running).ask(b"PING"), b"ERROR")

    def test_a_port_of_resp(self):
        port = support.free_port()
        self.server("--resp-port", str(port))
        with support.Connection("127.0.0.1", port) as connection:
            self.assertEqual(connection.ask(b"PING"), b"+PONG")
            self.assertEqual(ask(connection, b"ECHO", b"hello"), b"hello")

    def test_what_one_stores_the_other_reads(self):
        running = self.server()
        text, resp = self.connection(running), self.connection(running)
        self.assertEqual(text.set(b"t", b"by text", flags=7, exptime=100), b"STORED")
        self.assertEqual(ask(resp, b"GET", b"t"), b"by text")
        self.assertTrue(98 <= ask(resp, b"TTL", b"t") <= 100)
        self.assertEqual(ask(resp, b"SET", b"r", b"5", b"EX", b"100"), b"OK")
        self.assertEqual(text.get(b"r"), b"5")
        self.assertEqual(text.ask(b"incr r 2"), b"7")
        self.assertEqual(ask(resp, b"INCRBY", b"r", b"3"), 10)
        self.assertEqual(ask(resp, b"DEL", b"t", b"r"), 2)
        self.assertIsNone(text.get(b"t"))

    def test_settings_that_applications_make_when_they_start(self):
        connection = self.connection(self.server("-m", "64"))
        for name, value, shown in ((b"notify-keyspace-events", b"Egx", b"gxE"),
                                   (b"maxmemory-policy", b"allkeys-lru", b"allkeys-lru"),
                                   (b"latency-monitor-threshold", b"100", b"100")):
            self.assertEqual(ask(connection, b"CONFIG", b"SET", name, value), b"OK")
            self.assertEqual(ask(connection, b"CONFIG", b"GET", name), [name, shown])
        self.assertIn(b"maxmemory_policy:allkeys-lru", ask(connection, b"INFO", b"memory"))
        for name, value in ((b"notify-keyspace-events", b"Q"), (b"maxmemory-policy", b"noeviction"),
                            (b"maxmemory-policy", b"volatile-lru"), (b"latency-monitor-threshold", b"-1")):
            answer = ask(connection, b"CONFIG", b"SET", b"notify-keyspace-events", b"", name, value)
            self.assertTrue(answer.startswith(b"-ERR "), answer)
        # Where one value is wrong, none changes.
        name = b"notify-keyspace-events"
        self.assertEqual(ask(connection, b"CONFIG", b"GET", name), [name, b"gxE"])

    def test_the_longest_value_is_said_by_its_name(self):
        connection = self.connection(self.server("-m", "64", "-I", "2m"))
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"proto-max-bulk-len"), [b"proto-max-bulk-len", b"2097152"])

    def test_a_connection_says_what_it_has_moved_and_what_it_holds(self):
        server = self.server("-m", "64")
        connection, other = self.connection(server), self.connection(server)

        def fields(of):
            for line in ask(other, b"CLIENT", b"LIST").decode().splitlines():
                found = dict(pair.split("=", 1) for pair in line.split(" "))
                if found["id"] == of:
                    return {name: int(found[name]) for name in ("tot-net-in", "tot-net-out", "tot-mem", "qbuf", "omem")}
        number = b"%d" % ask(connection, b"CLIENT", b"ID")
        came, sent = len(command(b"CLIENT", b"ID")), len(b":%b\r\n" % number)
        self.assertEqual(ask(connection, b"SET", b"k", b"v" * 1000), b"OK")
        came, sent = came + len(command(b"SET", b"k", b"v" * 1000)), sent + len(b"+OK\r\n")
        # A reply may be here before it is counted.
        support.until(lambda: fields(number.decode())["tot-net-out"] >= sent, "replies are counted")
        after = fields(number.decode())
        self.assertEqual((after["tot-net-in"], after["tot-net-out"]), (came, sent))
        self.assertEqual((after["qbuf"], after["omem"]), (0, 0))
        self.assertGreater(after["tot-mem"], 0)
        half = command(b"SET", b"k", b"v" * 3000)[:2000]
        connection.send(half)
        connection.wait_until_read()
        support.until(lambda: fields(number.decode())["qbuf"] >= len(half), "the half of a request is shown")
        self.assertGreaterEqual(fields(number.decode())["tot-mem"], after["tot-mem"] + len(half))

    def test_a_pause_of_clients_is_refused_as_nobody_is_paused(self):
        connection = self.connection(self.server())
        for words in ((b"PAUSE", b"0", b"all"), (b"UNPAUSE",)):
            self.assertEqual(ask(connection, b"CLIENT", *words), b"OK")
        for words in ((b"PAUSE", b"100"), (b"PAUSE", b"100", b"WRITE")):
            self.assertIn(b"pauses no clients", ask(connection, b"CLIENT", *words))
        for words, says in (((b"PAUSE", b"x"), b"not an integer"), ((b"PAUSE", b"-1"), b"negative"),
                            ((b"PAUSE", b"1", b"READ"), b"syntax")):
            self.assertIn(says, ask(connection, b"CLIENT", *words))

    def test_a_watched_key_that_text_changes(self):
        running = self.server()
        text, resp = self.connection(running), self.connection(running)
        for changes, expected in ((False, [b"OK"]), (True, None)):
            self.assertEqual(ask(resp, b"WATCH", b"k"), b"OK")
            if changes:
                self.assertEqual(text.set(b"k", b"changed"), b"STORED")
            self.assertEqual(ask(resp, b"MULTI"), b"OK")
            self.assertEqual(ask(resp, b"SET", b"k", b"v"), b"QUEUED")
            self.assertEqual(ask(resp, b"EXEC"), expected)
        self.assertEqual(text.get(b"k"), b"changed")


@larder_only
class Misbehaviour(Case):
    """What no client sends."""

    def setUp(self):
        self.running = self.server("-m", "64", "-c", "4096")

    def test_what_breaks_the_rules_is_told_and_closed(self):
        for sent, said in (
                (b"*1\r\n" * 10_000, b"expected '$', got '*'"),
                (b"*3000000000\r\n", b"invalid multibulk length"),
                (b"*1\r\n$99999999999\r\n", b"invalid bulk length"),
                (b"*1\r\n$-5\r\n", b"invalid bulk length"),
                (b"*1\r\n$" + b"1" * 100_000, b"too big bulk count string"),
                (b"*" + b"1" * 100_000, b"too big mbulk count string")):
            with self.subTest(sent[:20]):
                connection = self.connection(self.running)
                connection.send(sent)
                line = connection.line()
                self.assertTrue(line.startswith(b"-ERR Protocol error: " + said), line)
                self.assertTrue(connection.is_closed())
        self.assertEqual(ask(self.connection(self.running), b"PING"), b"PONG")

    def test_a_pattern_for_keys_stalls_nobody(self):
        # A matcher that tries every place takes 60 million steps for each of these keys. Time of the processor is
        # counted, which does not depend on what else the machine does.
        server = self.server("-t", "1", "-m", "64")
        client = server.connect()
        for number in range(40):
            self.assertEqual(ask(client, b"SET", b"a" * 60000 + b"%d" % number, b""), b"OK")
        pattern, before = b"*" + b"a" * 1022 + b"b", processor_seconds(server)
        for _ in range(3):
            self.assertEqual(ask(client, b"KEYS", pattern), [])
            self.assertEqual(ask(client, b"SCAN", b"0", b"MATCH", pattern, b"COUNT", b"1000")[1], [])
        self.assertLess(processor_seconds(server) - before, 1.5)
        for request in ((b"KEYS", b"*a" * 16384), (b"SCAN", b"0", b"MATCH", b"*" * 1025)):
            self.assertEqual(ask(client, *request), b"-ERR the pattern is too long (1024 bytes at most)")

    def test_what_is_announced_costs_nothing_until_it_comes(self):
        behaved = self.connection(self.running)
        self.assertEqual(ask(behaved, b"SET", b"k", b"v" * 1000), b"OK")
        before = self.running.resident_bytes()
        for _ in range(1000):
            half = self.connection(self.running)
            half.send(b"*1000000\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nv")
        self.assertEqual(ask(behaved, b"GET", b"k"), b"v" * 1000)
        # Connections and their sessions are outside the account of buffers.
        self.assertLess(self.running.resident_bytes() - before, 20 << 20)
