"""The promise of `-m`: whatever clients do, the process stays within it, and goes on answering."""

import os
import socket
import threading
import unittest

import support
from process_support import Case, larder_only
from resp_support import command

MEBIBYTE = 1 << 20
LIMIT_MIB = 64
BOUND_BYTES = int(LIMIT_MIB * MEBIBYTE * 1.05) + 16 * MEBIBYTE
HOSTILE_CONNECTIONS = 1000
# The keeper gives memory back that nobody has needed for some seconds.
QUIET_SECONDS = 7


class Limited(Case):
    """`-m 64`, and what the tests of it need."""

    def fill(self, mebibytes=96):
        """Stores more than fits."""
        connection = self.connection(self.running)
        for size, share in ((100, 0.2), (1500, 0.4), (30000, 0.2), (700000, 0.2)):
            value = os.urandom(size)
            for number in range(int(mebibytes * MEBIBYTE * share / (size + 60)) // 100 + 1):
                batch = 100 if size < 30000 else 10
                for repeat in range(100 // batch):
                    keys = [b"f%d-%d-%d-%d" % (size, number, repeat, i) for i in range(batch)]
                    connection.send(b"".join(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, size, value) for key in keys))
        self.assertEqual(connection.ask(b"mn"), b"MN")
        return connection

    def crowd(self, count, first, receive_buffer=None):
        """`count` connections, each of which sends `first` as far as the server takes it."""
        made = []
        for number in range(count):
            connection = self.connection(self.running, receive_buffer=receive_buffer)
            connection.socket.setblocking(False)
            self.push(connection, first(number))
            made.append(connection)
        self.running.wait_until_idle()
        return made

    @staticmethod
    def push(connection, data):
        """Sends what the server takes at once; the rest is dropped."""
        view = memoryview(data)
        try:
            while view:
                view = view[connection.socket.send(view):]
        except OSError:
            return

    def within(self, what):
        """Fails if the process was ever larger than promised."""
        peak = self.running.resident_bytes_peak()
        self.assertIsNone(self.running.process.poll(), "the server ended: " + self.running.error_text()[-500:])
        self.assertLessEqual(peak, BOUND_BYTES, "%s: peak of %.1f MiB, promised %.1f MiB" % (
            what, peak / MEBIBYTE, BOUND_BYTES / MEBIBYTE))

    def still_answers(self, connection):
        """Fails unless a client that behaves is served."""
        self.assertEqual(connection.ask(b"mn"), b"MN")
        self.assertEqual(connection.set(b"after", b"x" * 1000), b"STORED")
        self.assertEqual(connection.get(b"after"), b"x" * 1000)


class Bound(Limited):
    """The cache full, every connection as greedy as it can be."""

    def setUp(self):
        self.running = self.server("-m", str(LIMIT_MIB), "-c", "1024")

    @larder_only
    def test_full_memory(self):
        connection = self.fill(160)
        self.within("full memory")
        self.assertGreater(int(connection.stats()[b"evictions"]), 0)
        self.still_answers(connection)

    @larder_only
    def test_memory_that_is_taken_at_once_is_within_the_promise_too(self):
        lazy = self.server("-m", "64")
        self.running = self.server("-m", str(LIMIT_MIB), "--prefault")
        for server in (lazy, self.running):
            # The socket listens before memory is taken, but nobody answers.
            self.assertEqual(self.connection(server).ask(b"mn"), b"MN")
        self.assertLess(lazy.resident_bytes(), 32 * MEBIBYTE)
        self.assertGreater(self.running.resident_bytes(), 48 * MEBIBYTE)
        # It stays though nobody stores anything for a while.
        self.wait_for_clock(self.connection(self.running), QUIET_SECONDS)
        self.assertGreater(self.running.resident_bytes(), 48 * MEBIBYTE)
        connection = self.fill(160)
        self.within("memory taken at once")
        self.still_answers(connection)

    @larder_only
    def test_an_endless_line(self):
        behaved = self.fill()
        self.crowd(100, lambda number: (b"get" if number % 2 else b"") + b" endless" * 100000)
        self.within("endless lines")
        self.still_answers(behaved)

    @larder_only
    def test_half_sent_values(self):
        behaved = self.fill()
        self.crowd(HOSTILE_CONNECTIONS, lambda number: b"set half%d 0 0 900000\r\n" % number + b"h" * 450000)
        self.within("%d half-sent values" % HOSTILE_CONNECTIONS)
        self.still_answers(behaved)

    @larder_only
    def test_half_sent_small_values(self):
        behaved = self.fill()
        self.crowd(HOSTILE_CONNECTIONS, lambda number: b"set half%d 0 0 30000\r\n" % number + b"h" * 29000)
        self.within("%d half-sent small values" % HOSTILE_CONNECTIONS)
        self.still_answers(behaved)

    @larder_only
    def test_unread_answers(self):
        behaved = self.fill()
        behaved.set(b"large", b"l" * 900000)
        self.crowd(HOSTILE_CONNECTIONS, lambda number: b"get large\r\n" * 100, receive_buffer=4096)
        self.within("%d deaf clients" % HOSTILE_CONNECTIONS)
        self.still_answers(behaved)

    @larder_only
    def test_unread_small_answers(self):
        behaved = self.fill()
        behaved.set(b"small", b"s" * 400)
        self.crowd(200, lambda number: b"get small small small small small small\r\n" * 20000, receive_buffer=4096)
        self.within("200 deaf clients that ask for much")
        self.still_answers(behaved)

    @larder_only
    def test_memory_comes_back_when_they_are_gone(self):
        behaved = self.fill()
        crowd = self.crowd(500, lambda number: b"set half%d 0 0 900000\r\n" % number + b"h" * 450000)
        for connection in crowd:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        support.until(lambda: int(behaved.stats()[b"curr_connections"]) <= 20, "they are gone")
        self.fill(160)
        self.within("after 500 clients that left")
        self.still_answers(behaved)

    @larder_only
    def test_half_requests_to_the_admin_page(self):
        port = support.free_port()
        self.running = self.server("-m", str(LIMIT_MIB), "--admin", "127.0.0.1:%d" % port)
        connection = self.fill()
        crowd = []
        for _ in range(180):
            client = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(client.close)
            client.setblocking(False)
            crowd.append(client)
        head = b"GET /metrics HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (n, b"y" * 7000) for n in range(50))
        for client in crowd:
            try:
                client.send(head)
            except OSError:
                pass
        self.running.wait_until_idle()
        self.within("half requests to the admin page")
        self.still_answers(connection)


class Shared(Limited):
    """Memory for buffers is shared: who holds most of it goes first, and who only sends is served all the same."""

    KEYS = 60000
    PIPELINES = 40

    def setUp(self):
        self.running = self.server("-m", str(LIMIT_MIB))

    def harmed_by(self, requests):
        """Fails if a client that reads is refused while 80 others send `requests` and read nothing."""
        connection = self.connection(self.running)
        for begin in range(0, self.KEYS, 1000):
            numbers = range(begin, begin + 1000)
            connection.send(b"".join(b"set key-number-%d 0 0 1 noreply\r\nx\r\n" % n for n in numbers))
        self.assertEqual(connection.ask(b"mn"), b"MN")
        behaved = [self.connection(self.running) for _ in range(4)]
        deaf = [self.connection(self.running) for _ in range(80)]
        for _ in range(self.PIPELINES):
            for number, one in enumerate(deaf):
                one.socket.setblocking(False)
                try:
                    one.socket.send(requests)
                except BlockingIOError:
                    pass
                except OSError:
                    deaf[number] = self.connection(self.running)
            for one in behaved:
                one.send(b"".join(b"set v%d 0 0 450\r\n%b\r\n" % (n, b"z" * 450) for n in range(105)))
            for one in behaved:
                self.assertEqual([one.line() for _ in range(105)], [b"STORED"] * 105)

    @larder_only
    def test_who_lists_keys_and_does_not_read_harms_nobody(self):
        self.harmed_by(command(b"KEYS", b"*") * 50)

    @larder_only
    def test_who_watches_many_keys_harms_nobody(self):
        self.harmed_by(command(b"WATCH", *(b"watched-%d" % n for n in range(5000))) * 10)

    @larder_only
    def test_who_queues_many_commands_harms_nobody(self):
        self.harmed_by(command(b"MULTI") + command(b"SET", b"a", b"y" * 1000) * 3000)

    def sent_whole(self, requests, reply, times):
        """Sends all requests, and reads only then."""
        connection = self.connection(self.running)
        connection.send(requests)
        for _ in range(times // 1000):
            self.assertTrue(connection.exactly(1000 * len(reply)) == 1000 * reply)

    @larder_only
    def test_a_pipeline_that_is_sent_whole_before_it_is_read_is_answered(self):
        times = 1000000
        self.sent_whole(b"".join(b"set k%d 0 0 1\r\nv\r\n" % n for n in range(times)), b"STORED\r\n", times)
        self.sent_whole(b"".join(command(b"SET", b"k%d" % n, b"v") for n in range(times)), b"+OK\r\n", times)
        self.assertEqual(self.connection(self.running).set(b"long", b"l" * 1000), b"STORED")
        self.sent_whole(b"get long\r\n" * 200000, b"VALUE long 0 1000\r\n" + b"l" * 1000 + b"\r\nEND\r\n", 200000)
        self.within("pipelines that are sent whole")


class Large(Limited):
    """Values that take much of the memory are not copied beside it."""

    def setUp(self):
        self.running = self.server("-m", str(LIMIT_MIB), "-I", "24m", "-t", "2")

    def test_what_is_added_to_large_values(self):
        connection = self.fill()
        expected = os.urandom(8 * MEBIBYTE)
        self.assertEqual(connection.set(b"large", expected), b"STORED")
        for number in range(12):
            more = os.urandom(2 * MEBIBYTE if number % 4 == 0 else 100 + number)
            verb = b"prepend" if number % 3 == 0 else b"append"
            expected = more + expected if verb == b"prepend" else expected + more
            self.assertEqual(connection.ask(b"%b large 0 0 %d\r\n%b" % (verb, len(more), more)), b"STORED")
            self.assertTrue(connection.get(b"large") == expected, "%s of %d bytes" % (verb, len(more)))
        self.assertTrue(connection.ask(b"md large I").startswith(b"HD"))
        self.assertTrue(connection.get(b"large") == expected)
        self.within("what is added to large values")

    @larder_only
    def test_slow_uploads_among_small_items(self):
        quick = self.fill()
        slow = [self.connection(self.running) for _ in range(200)]
        for number, connection in enumerate(slow):
            connection.send(b"set slow-%d 0 0 300000\r\n" % number)
            connection.socket.setblocking(False)
        for round in range(30):
            for number, connection in enumerate(slow):
                self.push(connection, b"s" * 8192)
                keys = [b"small-%d-%d-%d" % (round, number, nth) for nth in range(30)]
                quick.send(b"".join(b"set %b 0 0 1000\r\n%b\r\n" % (key, b"v" * 1000) for key in keys))
                for key in keys:
                    self.assertEqual(quick.line(), b"STORED", key)
        self.within("slow uploads")
        self.still_answers(quick)


class Full(Case):
    """A full cache makes room, or says so."""

    def test_a_full_cache_takes_new_items(self):
        server = self.server("-m", "64")
        connection = self.connection(server)
        value = b"v" * 10000
        for number in range(12000):
            connection.send(b"set k%d 0 0 10000 noreply\r\n%b\r\n" % (number, value))
        self.assertEqual(connection.get(b"k11999"), value)
        stats = connection.stats()
        self.assertGreater(int(stats[b"evictions"]), 0)
        self.assertLess(int(stats[b"bytes"]), LIMIT_MIB * MEBIBYTE)

    def test_a_full_cache_that_may_not_evict_says_so(self):
        server = self.server("-m", "64", "-M")
        connection = self.connection(server)
        answers = {connection.set(b"k%d" % number, b"v" * 10000) for number in range(9000)}
        self.assertEqual(answers, {b"STORED", b"SERVER_ERROR out of memory storing object"})
        self.assertEqual(connection.get(b"k0"), b"v" * 10000)


class Moved(Case):
    """`cache_memlimit`: the limit goes up and down while the server works."""

    # At this limit in MiB or less, large values may be evicted at once, and small ones while others are stored.
    LEAST_MIB = 8

    def serves_everything(self, connection, name, is_least):
        """Fails unless small and large values, long multigets and pipelines are served."""
        for size in (10, 1000, 32000, 60000, 300000):
            key = b"%b-%d" % (name, size)
            self.assertEqual(connection.set(key, b"m" * size), b"STORED", "%d bytes after %r" % (size, name))
            may_miss = size >= 100000 or (is_least and size >= 32000)
            self.assertIn(connection.get(key), (b"m" * size, None) if may_miss else (b"m" * size,))
        connection.send(b"".join(b"set %b%d 0 0 100\r\n%b\r\n" % (name, i, b"s" * 100) for i in range(300)))
        self.assertEqual([connection.line() for _ in range(300)], [b"STORED"] * 300)
        connection.send(b"get " + b" ".join(b"%b%d" % (name, i) for i in range(300)) + b"\r\n")
        found = 0
        while connection.line() != b"END":
            found += 1
            connection.exactly(102)
        self.assertGreaterEqual(found, 100 if is_least else 300)

    def moves(self, start, limits, *flags):
        """Starts with `-m start`, moves the limit to each of `limits`, and works after each."""
        server = self.server("-m", str(start), *flags)
        connection, other = self.connection(server), self.connection(server)
        taken = []
        for number, mebibytes in enumerate([start, *limits]):
            answer = connection.ask(b"cache_memlimit %d" % mebibytes)
            self.assertIn(answer, (b"OK", b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"))
            is_least = (mebibytes if answer == b"OK" else taken[-1]) <= self.LEAST_MIB
            if answer == b"OK":
                taken.append(mebibytes)
                # The workers change their receive buffers with the next tick.
                support.until_no_error(
                    lambda: self.serves_everything(self.connection(server), b"tick%d" % number, is_least),
                    (AssertionError, OSError, support.Closed))
            for one in (connection, other, self.connection(server)):
                self.serves_everything(one, b"k%d-%d" % (number, mebibytes), is_least)
            self.assertEqual(int(other.stats()[b"limit_maxbytes"]), taken[-1] * MEBIBYTE)
        return taken

    def test_down(self):
        self.assertEqual(self.moves(256, [128, 50, 32]), [256, 128, 50, 32])

    def test_down_to_the_least(self):
        self.assertIn(8, self.moves(64, [16, 8]))

    def test_up(self):
        self.assertEqual(self.moves(32, [64, 40, 100]), [32, 64, 40, 100])

    @larder_only
    def test_down_and_up_with_many_workers(self):
        taken = self.moves(1024, [64, 24, 512, 1024], "-t", "8")
        self.assertEqual(taken, [1024, 64, 24, 512, 1024])

    @larder_only
    def test_under_load(self):
        server = self.server("-m", "128", "-t", "2")
        ends = threading.Event()
        wrong, limit, turns = [], [128], [0] * 4

        def work(number):
            connection, count = server.connect(), 0
            try:
                while not ends.is_set() and not wrong:
                    count += 1
                    turns[number] = count
                    key = b"w%d-%d" % (number, count % 20000)
                    for size in (100, 5000, 40000 if count % 50 == 0 else 300):
                        answer = connection.set(key, b"w" * size)
                        if answer != b"STORED":
                            wrong.append("%d bytes at %d MiB: %r" % (size, limit[0], answer))
                        connection.get(key)
            except (OSError, support.Closed, AssertionError) as error:
                wrong.append(repr(error))
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        control = self.connection(server)
        try:
            for mebibytes in (16, 256, 40, 10, 128) * 4:
                limit[0] = mebibytes
                self.assertEqual(control.ask(b"cache_memlimit %d" % mebibytes), b"OK")
                enough = [count + 300 for count in turns]
                support.until(lambda: wrong or all(map(int.__ge__, turns, enough)), "each worker goes on")
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
