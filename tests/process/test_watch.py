"""`watch`: what watchers are told, in memcached's lines, and what they cost the others.

The tests of lines pass with memcached 1.6.45 in Larder's place: `test_process.py --server .tools/peers/memcached
test_watch`.
"""

import re
import signal
import time
from collections import Counter
from random import Random

import packets
import support
from packets import packet, store
from flash_support import MEMORY_MIB, FlashCase
from process_support import Case, is_larder, larder_only
from resp_support import command, receive
from test_tls import TlsCase

LINE = re.compile(rb"^ts=(\d+)\.(\d{1,6}) gid=(\d+) type=(.*)$")


class Watcher:
    """A connection that watches, with the lines that have come."""

    def __init__(self, case, server, words, **options):
        self.connection = support.until_no_error(lambda: case.connection(server, **options))
        self.said = self.connection.ask((b"watch " + words).strip())
        self.numbers = []

    def line(self):
        """The next line, without its time and its number, which are looked at here."""
        line = self.connection.line(b"\n")
        found = LINE.match(line)
        assert found, line
        assert abs(int(found.group(1)) - time.time()) < 60, line
        number = int(found.group(3))
        assert number not in self.numbers, line
        self.numbers.append(number)
        return re.sub(rb" (cfd|rport)=\d+", rb" \1=N", found.group(4)).decode()

    def lines_until(self, last):
        """The next lines, up to the one that has `last` in it, which is left out."""
        lines = []
        while True:
            line = self.line()
            if last in line:
                return lines
            lines.append(line)


class WatchCase(Case):
    """A test that compares lines."""

    def watch(self, server, words, **options):
        """A watcher that was let in."""
        watcher = Watcher(self, server, words, **options)
        self.assertEqual(watcher.said, b"OK")
        return watcher

    def told(self, server, words, *asked):
        """What a watcher of these streams is told of these requests, which are answered with these lines."""
        watcher = self.watch(server, words)
        connection = self.connection(server)
        for request, reply in asked:
            connection.send(request)
            for line in reply.split(b"\r\n"):
                self.assertEqual(connection.line(), line, request)
        # A line of each kind marks the end.
        for request in (b"set mark 0 0 1\r\nm\r\n", b"get mark\r\n", b"delete mark\r\n"):
            connection.send(request)
            while connection.line() not in (b"STORED", b"END", b"DELETED"):
                pass
        return watcher.lines_until("key=mark ")


class Lines(WatchCase):
    """What is told of which request."""

    def test_fetchers_are_told_of_hits_and_misses(self):
        server = self.server()
        self.assertEqual(self.connection(server).set(b"a", b"12345"), b"STORED")
        asked = ((b"get a\r\n", b"VALUE a 0 5\r\n12345\r\nEND"), (b"get none\r\n", b"END"),
                 (b"gets none a\r\n", None), (b"mg a v\r\n", b"VA 5\r\n12345"), (b"mg none\r\n", b"EN"),
                 (b"gat 0 a\r\n", b"VALUE a 0 5\r\n12345\r\nEND"), (b"touch a 0\r\n", b"TOUCHED"),
                 (b"touch none 0\r\n", b"NOT_FOUND"), (b"incr none 1\r\n", b"NOT_FOUND"),
                 (b"set b 0 0 1\r\nx\r\n", b"STORED"), (b"set b 0 0 2\r\nxy\r\n", b"STORED"),
                 (b"delete b\r\n", b"DELETED"), (b"delete b\r\n", b"NOT_FOUND"))
        asked = [one for one in asked if one[1]]
        hit = "item_get key=a status=found clsid=1 cfd=N size=5"
        miss = "item_get key=none status=not_found clsid=0 cfd=N size=0"
        expected = [hit, miss, hit, miss, hit, hit, miss, miss,
                    "item_get key=b status=not_found clsid=0 cfd=N size=0",
                    "item_get key=b status=found clsid=1 cfd=N size=1",
                    "item_get key=b status=found clsid=1 cfd=N size=2",
                    "item_get key=b status=not_found clsid=0 cfd=N size=0"]
        self.assertEqual(self.told(server, b"fetchers", *asked), expected)
        self.assertEqual(self.told(server, b"", asked[0], asked[1]), [hit, miss])

    def test_fetchers_are_told_why_an_item_is_not_there(self):
        server = self.server()
        connection = self.connection(server)
        self.assertEqual(connection.set(b"old", b"1", exptime=1), b"STORED")
        self.wait_for_clock(connection, 3)
        # The server may have removed the item already, and so it may one that was flushed.
        line = "item_get key=%s status=%s clsid=0 cfd=N size=0"
        lines = self.told(server, b"fetchers", (b"get old\r\n", b"END"))
        self.assertIn(lines, [[line % ("old", status)] for status in ("expired", "not_found")])
        self.assertEqual(connection.set(b"gone", b"1"), b"STORED")
        # memcached flushes what is older than a second.
        self.wait_for_clock(connection, 0 if is_larder() else 2)
        self.assertEqual(connection.ask(b"flush_all"), b"OK")
        self.wait_for_clock(connection, 0 if is_larder() else 2)
        lines = self.told(server, b"fetchers", (b"get gone\r\n", b"END"))
        self.assertIn(lines, [[line % ("gone", status)] for status in ("flushed", "not_found")])

    def test_mutations_are_told_with_their_outcome(self):
        server = self.server()
        line = "item_store key=a status=%s cmd=%s ttl=%d clsid=1 cfd=N size=%d"
        asked = ((b"set a 0 0 3\r\nabc\r\n", b"STORED", "stored", "set", 0, 3),
                 (b"add a 0 0 1\r\nx\r\n", b"NOT_STORED", "not_stored", "add", 0, 1),
                 (b"replace a 0 0 2\r\nxy\r\n", b"STORED", "stored", "replace", 0, 2),
                 (b"append a 0 0 2\r\nzz\r\n", b"STORED", "stored", "append", 0, 4),
                 (b"prepend a 0 0 2\r\nzz\r\n", b"STORED", "stored", "prepend", 0, 6),
                 (b"cas a 0 0 1 99999999\r\nx\r\n", b"EXISTS", "exists", "cas", 0, 1),
                 (b"ms a 2 T100\r\nhi\r\n", b"HD", "stored", "set", 100, 2),
                 (b"ms a 1 ME\r\nh\r\n", b"NS", "not_stored", "add", 0, 1),
                 (b"ms a 1 C1\r\nh\r\n", b"EX", "exists", "cas", 0, 1),
                 (b"ms a 1 MA\r\nh\r\n", b"HD", "stored", "append", 100, 3))
        lines = self.told(server, b"mutations", *[one[:2] for one in asked])
        self.assertEqual(lines, [line % one[2:] for one in asked])
        none = (b"cas none 0 0 1 1\r\nx\r\n", b"NOT_FOUND"), (b"append none 0 0 1\r\nx\r\n", b"NOT_STORED")
        lines = self.told(server, b"mutations", *none)
        self.assertEqual(lines, ["item_store key=none status=not_found cmd=cas ttl=0 clsid=1 cfd=N size=1",
                                 "item_store key=none status=not_stored cmd=append ttl=0 clsid=1 cfd=N size=1"])

    def test_arithmetic_is_told_where_it_creates(self):
        server = self.server()
        lines = self.told(server, b"mutations", (b"ma n N0 J7\r\n", b"HD"), (b"incr n 1\r\n", b"8"))
        self.assertEqual(lines, ["item_store key=n status=stored cmd=add ttl=0 clsid=1 cfd=N size=1"])

    def test_deletions_are_told_with_their_command(self):
        server = self.server()
        lines = self.told(server, b"deletions", (b"set a 0 0 3\r\nabc\r\n", b"STORED"), (b"delete a\r\n", b"DELETED"),
                          (b"delete a\r\n", b"NOT_FOUND"), (b"set b 0 0 1\r\nb\r\n", b"STORED"),
                          (b"md b I\r\n", b"HD"), (b"md b\r\n", b"HD"), (b"md b\r\n", b"NF"))
        self.assertEqual(lines, ["deleted key=a cmd=delete clsid=1 size=3", "deleted key=b cmd=md clsid=1 size=1"])

    def test_keys_are_written_as_in_addresses(self):
        server = self.server()
        lines = self.told(server, b"fetchers", (b"get a/b:%-._~\x7f\xc3\xa4\r\n", b"END"))
        self.assertEqual(lines, ["item_get key=a%2Fb%3A%25-._~%7F%C3%A4 status=not_found clsid=0 cfd=N size=0"])
        key = b"k" * 250
        lines = self.told(server, b"fetchers", (b"get %b\r\n" % key, b"END"))
        self.assertEqual(lines, ["item_get key=%s status=not_found clsid=0 cfd=N size=0" % key.decode()])

    def test_connections_are_told(self):
        # No connection has tried before whether the server listens.
        server = self.server(wait=False)
        watcher = self.watch(server, b"connevents")
        connection = server.connect()
        self.assertEqual(watcher.line(), "conn_new rip=127.0.0.1 rport=N transport=tcp cfd=N")
        connection.send(b"quit\r\n")
        self.assertEqual(watcher.line(), "conn_close rip=127.0.0.1 rport=N transport=tcp reason=normal cfd=N")
        connection.close()
        connection = server.connect()
        self.assertEqual(watcher.line(), "conn_new rip=127.0.0.1 rport=N transport=tcp cfd=N")
        connection.close()
        self.assertEqual(watcher.line(), "conn_close rip=127.0.0.1 rport=N transport=tcp reason=normal cfd=N")

    @larder_only
    def test_why_a_connection_ended_is_told(self):
        server = self.server("-m", "64", wait=False)
        watcher = self.watch(server, b"connevents")
        for sent, reason in ((b"x" * 70000, "error"), (b"*1\r\n$x\r\n", "error"), (b"quit\r\n", "normal")):
            connection = self.connection(server)
            self.assertIn("conn_new", watcher.line())
            connection.send(sent)
            self.assertTrue(connection.is_closed())
            self.assertIn("reason=%s" % reason, watcher.line(), sent[:9])

    def test_a_connection_that_was_idle(self):
        server = self.server("-o", "idle_timeout=1", wait=False)
        watcher = self.watch(server, b"connevents")
        connection = self.connection(server)
        self.assertIn("conn_new", watcher.line())
        self.assertIn("reason=idle_timeout", watcher.line())
        self.assertEqual(connection.socket.recv(10), b"")
        # A watcher may be idle for longer.
        other = self.connection(server)
        other.ask(b"version")
        self.assertIn("conn_new", watcher.line())

    def test_evictions_are_told(self):
        server = self.server("-m", "8" if is_larder() else "2")
        watcher = self.watch(server, b"evictions")
        connection = self.connection(server)
        for number in range(40000):
            connection.send(b"set key-%d 0 %d 500 noreply\r\n%b\r\n" % (number, number % 2 * 1000, b"v" * 500))
        connection.ask(b"version")
        seen = re.compile(r"eviction key=key-(\d+) fetch=no ttl=(-1|\d+) la=\d+ clsid=\d+ size=500$")
        for _ in range(50):
            found = seen.match(watcher.line())
            self.assertTrue(found)
            has_ttl = int(found.group(1)) % 2 == 1
            self.assertEqual(has_ttl, found.group(2) != "-1")

    def test_the_binary_protocol(self):
        server = self.server()
        watcher = self.watch(server, b"fetchers mutations")
        connection = self.connection(server)
        packets.ask(connection, store(b"a", b"123"))
        packets.ask(connection, packet(packets.GET, b"a"))
        self.assertEqual([watcher.line() for _ in range(3)],
                         ["item_get key=a status=not_found clsid=0 cfd=N size=0",
                          "item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=N size=3",
                          "item_get key=a status=found clsid=1 cfd=N size=3"])


class Watching(WatchCase):
    """Who may watch, and what becomes of a connection that does."""

    def test_names_may_be_abbreviated_and_several(self):
        server = self.server()
        lines = self.told(server, b"f mut del", (b"set a 0 0 1\r\nx\r\n", b"STORED"), (b"delete a\r\n", b"DELETED"))
        self.assertEqual([line.split(" ")[0] for line in lines], ["item_get", "item_store", "item_get", "deleted"])
        for word in (b"r", b"rawcmds", b"e", b"sysevents"):
            self.watch(server, word)

    def test_refusals(self):
        server = self.server()
        self.assertEqual(Watcher(self, server, b"nonsense").said, b"ERROR")
        self.assertEqual(Watcher(self, server, b"fetchers nonsense").said, b"ERROR")
        connection = self.connection(server)
        connection.send(b"get a\r\nwatch\r\n")
        self.assertEqual((connection.line(), connection.line()),
                         (b"END", b"ERROR cannot pipeline other commands before watch"))
        off = self.server("-W")
        self.assertEqual(Watcher(self, off, b"fetchers").said, b"CLIENT_ERROR watch commands not allowed")

    @larder_only
    def test_a_server_that_is_no_proxy(self):
        server = self.server()
        for word in (b"proxyreqs", b"proxyevents", b"proxyuser", b"p"):
            self.assertIn(b"no proxy", Watcher(self, server, word).said)

    def test_there_are_at_most_20(self):
        server = self.server("-c", "100")
        watchers = [self.watch(server, b"fetchers") for _ in range(20)]
        self.assertEqual(Watcher(self, server, b"").said, b"WATCHER_TOO_MANY log watcher limit reached")
        stats = self.connection(server).stats()
        if is_larder():
            self.assertEqual(stats[b"log_watchers"], b"20")
        watchers[7].connection.close()
        support.until(lambda: Watcher(self, server, b"").said == b"OK", "there is room again")

    def test_a_watcher_is_answered_nothing_else(self):
        server = self.server()
        watcher = self.watch(server, b"fetchers")
        watcher.connection.send(b"get a\r\nquit\r\nversion\r\n")
        watcher.connection.wait_until_read()
        connection = self.connection(server)
        connection.ask(b"get b")
        self.assertEqual(watcher.line(), "item_get key=b status=not_found clsid=0 cfd=N size=0")
        if is_larder():
            states = [value for name, value in connection.stats(b"conns").items() if name.endswith(b":state")]
            self.assertIn(b"conn_watch", states)

    def test_what_arrives_together_with_a_watch_is_not_answered(self):
        server = self.server()
        for more in (b"get a\r\nquit\r\nversion\r\n", b"get " + b"0123456789abcdef " * 200):
            watcher = self.watch(server, b"fetchers\r\n" + more)
            self.connection(server).ask(b"get b")
            self.assertEqual(watcher.line(), "item_get key=b status=not_found clsid=0 cfd=N size=0")
            watcher.connection.close()

    @larder_only
    def test_a_watcher_that_goes_leaves_nothing(self):
        server = self.server()
        before = self.connection(server).stats()
        watchers = [self.watch(server, b"fetchers mutations") for _ in range(5)]
        during = self.connection(server).stats()
        self.assertGreater(int(during[b"read_buf_bytes"]), int(before[b"read_buf_bytes"]))
        for watcher in watchers:
            watcher.connection.close()

        def nothing_is_left():
            after = self.connection(server).stats()
            return int(after[b"read_buf_bytes"]) <= int(before[b"read_buf_bytes"]) and after[b"log_watchers"] == b"0"
        support.until(nothing_is_left, "the watchers are gone")

    @larder_only
    def test_a_server_that_is_watched_stops(self):
        server = self.server()
        watchers = [self.watch(server, b"connevents") for _ in range(3)]
        self.assertEqual(server.stop(signal.SIGTERM), 0)
        self.assertTrue(watchers[0].connection.is_closed())

    @larder_only
    def test_a_server_that_is_watched_drains(self):
        server = self.server()
        watchers = [self.watch(server, b"connevents") for _ in range(3)]
        busy = self.connection(server)
        busy.send(b"set half 0 0 5\r\n12")
        busy.wait_until_read()
        server.process.send_signal(signal.SIGUSR1)
        for watcher in watchers:
            self.assertTrue(watcher.connection.is_closed())
        # Whoever is in the middle of a request is waited for, and watchers are not.
        self.assertIsNone(server.process.poll())
        busy.send(b"345\r\n")
        self.assertEqual(busy.line(), b"STORED")
        self.assertEqual(server.wait(), 0)

    @larder_only
    def test_monitor_names_watch(self):
        server = self.server()
        connection = self.connection(server)
        connection.send(command(b"MONITOR"))
        self.assertIn(b"watch", connection.line())

    @larder_only
    def test_commands_of_redis_are_told(self):
        server = self.server()
        watcher = self.watch(server, b"fetchers mutations deletions")
        connection = self.connection(server)
        for words in ((b"SET", b"a", b"123"), (b"GET", b"a"), (b"APPEND", b"a", b"4"), (b"DEL", b"a")):
            connection.send(command(*words))
            receive(connection)
        self.assertEqual([watcher.line() for _ in range(7)],
                         ["item_get key=a status=not_found clsid=0 cfd=N size=0",
                          "item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=N size=3",
                          "item_get key=a status=found clsid=1 cfd=N size=3",
                          "item_get key=a status=found clsid=1 cfd=N size=3",
                          "item_store key=a status=stored cmd=append ttl=0 clsid=1 cfd=N size=4",
                          "item_get key=a status=found clsid=1 cfd=N size=4",
                          "deleted key=a cmd=delete clsid=1 size=4"])

    def test_values_that_come_in_pieces_are_told(self):
        server = self.server("-I", "8m")
        watcher = self.watch(server, b"mutations")
        connection = self.connection(server)
        self.assertEqual(connection.set(b"large", b"v" * 3000000), b"STORED")
        self.assertRegex(watcher.line(), r"^item_store key=large status=stored cmd=set ttl=0 clsid=\d+ cfd=N "
                                         r"size=3000000$")


@larder_only
class OnFlash(FlashCase, WatchCase):
    """Items that leave memory for flash."""

    def test_items_that_go_to_flash_are_told(self):
        server = self.flash_server()
        watcher = self.watch(server, b"evictions")
        self.push_out(self.connection(server), mebibytes=2 * MEMORY_MIB, exptime=5000)
        kinds = Counter()
        for _ in range(100):
            line = watcher.line()
            kinds[line.split(" ")[0]] += 1
            self.assertRegex(line, r"^(extwrite key=filler\d+ fetch=no ttl=(5000|49\d\d) la=\d+ clsid=1 bucket=0"
                                   r"|eviction key=filler\d+ fetch=no ttl=(5000|49\d\d) la=\d+ clsid=1 size=8000)$")
        self.assertGreater(kinds["extwrite"], 0, kinds)
        # An item that is read from flash is found.
        fetchers = self.watch(server, b"fetchers")
        connection, statuses = self.connection(server), Counter()
        for number in range(0, 2000, 50):
            reply = connection.ask(b"mg filler%d s" % number)
            found = "status=found clsid=1 cfd=N size=8000" if reply == b"HD s8000" else \
                "status=not_found clsid=0 cfd=N size=0"
            self.assertEqual(fetchers.line(), "item_get key=filler%d %s" % (number, found))
            statuses[reply] += 1
        self.assertGreater(statuses[b"HD s8000"], 0, statuses)


@larder_only
class Encrypted(TlsCase):
    """A watcher whose connection is encrypted."""

    def test_lines_go_through_tls(self):
        server = self.tls_server()
        watcher = self.client(server)
        self.assertEqual(watcher.ask(b"watch mutations"), b"OK")
        connection = self.client(server)
        for number in range(3000):
            connection.send(b"set key-%d 0 0 1 noreply\r\nx\r\n" % number)
            if number % 100 == 0:
                connection.ask(b"version")
        seen = [watcher.line(b"\n") for _ in range(500)]
        self.assertTrue(all(b" type=item_store key=key-" in line for line in seen))


class Slow(WatchCase):
    """Watchers that do not read, while others are served."""

    def load(self, connection, batches=100):
        """Asks for a key again and again."""
        request = b"get some-key-of-middle-length\r\n" * 50
        for _ in range(batches):
            connection.send(request)
            self.assertEqual(connection.exactly(50 * len(b"END\r\n")), 50 * b"END\r\n")

    def load_until_skipped(self, connection):
        """Asks until a watcher has missed something; returns the statistics."""
        def is_skipped():
            self.load(connection)
            stats = connection.stats()
            return int(stats[b"log_watcher_skipped"]) > 0 and stats
        return support.until(is_skipped, "a watcher misses something")

    def test_what_a_slow_watcher_misses_is_counted_and_told(self):
        server = self.server()
        slow = self.watch(server, b"fetchers", receive_buffer=4096)
        connection = self.connection(server)
        stats = self.load_until_skipped(connection)
        self.assertEqual(int(stats[b"log_watchers"]), 1)

        # The line that tells comes before the next one that fits.
        for _ in range(200_000):
            line = slow.connection.line(b"\n")
            if line.startswith(b"skipped="):
                break
            self.assertRegex(line, LINE)
            connection.ask(b"get another")
        self.assertTrue(line.startswith(b"skipped="), "it is never told")
        self.assertGreater(int(line[len(b"skipped="):]), 0)

    @larder_only
    def test_watchers_that_are_stopped_cost_bounded_memory(self):
        server = self.server("-m", "64")
        for _ in range(5):
            self.watch(server, b"fetchers mutations", receive_buffer=4096)
        connection = self.connection(server)
        self.load_until_skipped(connection)
        before = server.resident_bytes()
        self.load(connection, 2000)
        self.assertLess(server.resident_bytes() - before, 4 << 20)
        self.assertEqual(int(connection.stats()[b"log_watchers"]), 5)


@larder_only
class Keys(Case):
    """Hot keys and large items."""

    REQUESTS = 300000

    def ranked(self, server, which):
        """The rows of `stats hotkeys` or `stats largekeys`, the first rank first."""
        stats = self.connection(server).stats(which)
        ranks = sorted({int(name.split(b":")[0]) for name in stats if b":" in name})
        self.assertEqual(ranks, list(range(1, len(ranks) + 1)))
        row = lambda rank: {name.split(b":")[1].decode(): value for name, value in stats.items()
                            if name.startswith(b"%d:" % rank)}
        return [row(rank) for rank in ranks], stats

    def test_the_hottest_of_a_skewed_load_are_named_within_the_stated_error(self):
        server = self.server()
        connection = self.connection(server)
        # The key of rank n is asked for in proportion to 1 / n^1.2.
        random = Random(7)
        weights = [1 / rank ** 1.2 for rank in range(1, 5001)]
        counts, left = Counter(), self.REQUESTS
        while left > 0:
            keys = random.choices(range(5000), weights, k=1000)
            counts.update(keys)
            connection.send(b"".join(b"get key/%d\r\n" % key for key in keys))
            for _ in keys:
                self.assertEqual(connection.line(), b"END")
            left -= len(keys)
        rows, stats = self.ranked(server, b"hotkeys")
        self.assertEqual(len(rows), 20)
        # The counts are halved once in a minute; the shares stay.
        total = int(stats[b"requests"])
        named = [int(row["key"].decode().replace("key%2F", "")) for row in rows]
        true = [key for key, _ in counts.most_common(40)]
        self.assertEqual(named[0], true[0])
        self.assertLessEqual(set(true[:5]), set(named[:10]))
        self.assertLessEqual(set(named[:10]), set(true[:20]))
        within = 0
        for key, row in zip(named, rows):
            error = 1.5 * (int(row["sample_error"]) + int(row["too_high_max"])) / total
            within += abs(int(row["requests"]) / total - counts[key] / self.REQUESTS) <= error
            self.assertAlmostEqual(float(row["share"]), int(row["requests"]) / total, places=3)
        self.assertGreaterEqual(within, 19)
        self.assertEqual(self.connection(server).ask(b"stats hotkeys reset"), b"RESET")
        self.assertEqual(self.ranked(server, b"hotkeys")[0], [])

    def test_the_largest_items_are_named_while_they_are_there(self):
        server = self.server()
        connection = self.connection(server)
        for number in range(300):
            self.assertEqual(connection.set(b"small-%d" % number, b"v" * 100), b"STORED")
        sizes = {b"big-%d" % number: 10000 * (number + 1) for number in range(10)}
        for key, size in sizes.items():
            self.assertEqual(connection.set(key, b"v" * size), b"STORED")
        self.assertEqual(connection.ask(b"delete big-9"), b"DELETED")
        self.assertEqual(connection.set(b"big-8", b"v"), b"STORED")
        self.assertEqual(connection.ask(b"append big-0 0 0 200000\r\n" + b"w" * 200000), b"STORED")
        rows, _ = self.ranked(server, b"largekeys")
        expected = [("big-0", 210000)] + [("big-%d" % number, 10000 * (number + 1)) for number in range(7, 0, -1)]
        found = [(row["key"].decode(), int(row["bytes"])) for row in rows]
        self.assertEqual(found[:8], expected)
        self.assertEqual({size for _, size in found[8:]}, {100})
        self.assertEqual(connection.ask(b"stats largekeys reset"), b"RESET")
        self.assertEqual(self.ranked(server, b"largekeys")[0], [])

    def test_no_key_is_named_where_dumps_are_forbidden(self):
        server = self.server("-X")
        for which in (b"hotkeys", b"largekeys"):
            self.assertEqual(self.connection(server).ask(b"stats " + which), b"CLIENT_ERROR stats of keys not allowed")
