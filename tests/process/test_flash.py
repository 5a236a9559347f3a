"""Flash behind memory: what leaves memory is still there, whatever is done to it, and after a restart."""

import socket
import threading
import unittest

import support
from flash_support import FlashCase, noise
from process_support import larder_only
from resp_support import ask

SIZES = {b"tiny": 10, b"small": 1000, b"large": 100_000, b"huge": 3_000_000}


@larder_only
class Levels(FlashCase):
    """Items that memory has let go of."""

    def setUp(self):
        super().setUp()
        self.running = self.flash_server("-I", "8m", memory=32)
        self.client = self.connection(self.running)

    def evicted(self, **items):
        """Stores the items and pushes them out of memory."""
        self.cold(self.client, {key.encode(): value for key, value in items.items()}, mebibytes=96)

    def test_values_of_every_size_come_back(self):
        values = {key: noise(number, size) for number, (key, size) in enumerate(SIZES.items())}
        missing = set(values)
        # A demotion may be shed when the device is behind, and a value of many parts is the likeliest.
        for round_number in range(5):
            for flags, (key, value) in enumerate(values.items()):
                self.assertEqual(self.client.set(key, value, flags=flags + 7), b"STORED")
            self.push_out(self.client, b"r%d" % round_number, mebibytes=96)
            for flags, (key, value) in enumerate(values.items()):
                before = self.number(self.client, b"get_extstore")
                found = self.values(self.client, [key])
                if found:
                    self.same(found, [(key, flags + 7, value)])
                    if self.number(self.client, b"get_extstore") > before:
                        missing.discard(key)
                    # Read again and again: from flash, then promoted, then from memory.
                    for _ in range(3):
                        self.same(self.values(self.client, [key]), [(key, flags + 7, value)])
        self.assertEqual(missing, set())

    def test_cas_numbers_survive(self):
        self.evicted(k=b"old")
        self.client.send(b"gets k\r\n")
        cas = self.client.line().split()[-1]
        self.client.exactly(len(b"old\r\nEND\r\n"))
        self.push_out(self.client, mebibytes=96)
        self.client.send(b"gets k\r\n")
        self.assertEqual(self.client.line(), b"VALUE k 0 3 " + cas)
        self.client.exactly(len(b"old\r\nEND\r\n"))
        self.assertEqual(self.client.ask(b"cas k 0 0 3 %d\r\nnew" % (int(cas) + 1)), b"EXISTS")
        self.assertEqual(self.client.ask(b"cas k 0 0 3 " + cas + b"\r\nnew"), b"STORED")
        self.assertEqual(self.client.get(b"k"), b"new")

    def test_times_to_live_survive(self):
        self.cold(self.client, {b"ever": b"e"}, mebibytes=96)
        self.cold(self.client, {b"long": b"l"}, mebibytes=96, exptime=1000)
        self.client.set(b"short", b"s", exptime=4)
        self.push_out(self.client, mebibytes=96)
        self.assertIn(self.client.ask(b"mg long t"), [b"HD t%d" % left for left in range(900, 1001)])
        self.assertEqual(self.client.ask(b"mg ever t"), b"HD t-1")
        support.until(lambda: self.client.get(b"short") is None, "the item has expired")
        self.assertEqual(self.client.ask(b"mg short v"), b"EN")

    def test_every_operation_finds_the_item(self):
        items = [b"append", b"prepend", b"incr", b"decr", b"replace", b"touch", b"delete", b"md", b"add", b"gat", b"ma",
                 b"me", b"msappend", b"quiet"]
        self.cold(self.client, dict.fromkeys(items, b"50"), mebibytes=96)
        ask = self.client.ask
        self.assertEqual(ask(b"append append 0 0 1\r\n!"), b"STORED")
        self.assertEqual(self.client.get(b"append"), b"50!")
        self.assertEqual(ask(b"prepend prepend 0 0 1\r\n!"), b"STORED")
        self.assertEqual(self.client.get(b"prepend"), b"!50")
        self.assertEqual(ask(b"incr incr 5"), b"55")
        self.assertEqual(ask(b"decr decr 5"), b"45")
        self.assertEqual(ask(b"replace replace 0 0 3\r\nnew"), b"STORED")
        self.assertEqual(self.client.get(b"replace"), b"new")
        self.assertEqual(ask(b"touch touch 500"), b"TOUCHED")
        self.assertIn(ask(b"mg touch t"), [b"HD t500", b"HD t499"])
        self.assertEqual(ask(b"delete delete"), b"DELETED")
        self.assertEqual(ask(b"delete delete"), b"NOT_FOUND")
        self.assertIsNone(self.client.get(b"delete"))
        self.assertEqual(ask(b"md md"), b"HD")
        self.assertEqual(ask(b"md md"), b"NF")
        self.assertEqual(ask(b"add add 0 0 1\r\nx"), b"NOT_STORED")
        self.assertEqual(self.client.get(b"add"), b"50")
        self.assertEqual(ask(b"gat 300 gat"), b"VALUE gat 0 2")
        self.assertEqual((self.client.line(), self.client.line()), (b"50", b"END"))
        self.assertIn(ask(b"mg gat t"), [b"HD t300", b"HD t299"])
        self.assertEqual(ask(b"ma ma v"), b"VA 2")
        self.assertEqual(self.client.line(), b"51")
        self.assertTrue(ask(b"me me").startswith(b"ME me exp=-1"))
        self.assertEqual(ask(b"ms msappend 1 MA\r\n!"), b"HD")
        self.assertEqual(self.client.get(b"msappend"), b"50!")
        self.client.send(b"delete quiet noreply\r\nget quiet\r\n")
        self.assertEqual(self.client.line(), b"END")

    def test_an_item_that_leaves_while_a_large_value_arrives_is_found(self):
        """The item is in memory when the value is announced, and on flash when its last byte comes."""
        new = noise(2, 40_000)
        for case, (command, old_size, outcome) in enumerate((
                (b"append", 10, b"STORED"), (b"add", 10, b"NOT_STORED"), (b"append", 3_000_000, b"STORED"))):
            old = noise(1, old_size)
            for attempt in range(5):
                key = b"k%d-%d" % (case, attempt)
                self.assertEqual(self.client.set(key, old), b"STORED")
                other = self.connection(self.running)
                other.send(b"%b %b 0 0 %d\r\n" % (command, key, len(new)) + new[:-1])
                self.push_out(self.client, b"again%d-" % attempt, mebibytes=64)
                # Only flash has the item now, unless it was shed.
                before = self.number(self.client, b"get_extstore")
                is_there = bool(self.values(self.client, [key]))
                if is_there and self.number(self.client, b"get_extstore") > before:
                    break
            else:
                self.fail("the item was never on flash alone")
            if old_size > len(new):
                # The look at a value of several parts has brought it back.
                self.push_out(self.client, b"last-", mebibytes=64)
            other.send(new[-1:] + b"\r\n")
            self.assertEqual(other.line(), outcome, (command, old_size))
            self.same(self.values(self.client, [key]), [(key, 0, old + new if outcome == b"STORED" else old)])

    def test_what_is_overwritten_or_deleted_does_not_come_back(self):
        keys = [b"k%d" % number for number in range(400)]
        for key in keys:
            self.client.set(key, b"old " + key)
        self.push_out(self.client, mebibytes=96)
        for number, key in enumerate(keys):
            if number % 2:
                self.assertEqual(self.client.set(key, b"new " + key), b"STORED")
            else:
                self.assertEqual(self.client.ask(b"delete " + key), b"DELETED")
        for name in (b"a", b"b"):
            self.push_out(self.client, name, mebibytes=96)
            found = {key: value for key, _, value in self.values(self.client, keys)}
            for number, key in enumerate(keys):
                allowed = (b"new " + key, None) if number % 2 else (None,)
                self.assertIn(found.get(key), allowed)
            self.assertGreater(len(found), 100, "most of what was written last is on flash")

    def test_a_key_that_was_deleted_on_flash_is_found_absent_by_requests_that_look_twice(self):
        keys = [b"gone%d" % number for number in range(3)]
        self.evicted(**{key.decode(): noise(number, 1000) for number, key in enumerate(keys)})
        for key in keys:
            self.assertEqual(self.client.ask(b"delete " + key), b"DELETED")
        # The device has what says so once short items have filled its segment.
        for start in range(0, 60_000, 50):
            self.client.send(b"".join(b"set short%d 0 0 1000 noreply\r\n%b\r\n" % (number, b"s" * 1000)
                                      for number in range(start, start + 50)))
        self.assertEqual(self.client.ask(b"mn"), b"MN")
        self.wait_for_flash(self.client)
        resp = self.connection(self.running)
        self.assertEqual(ask(resp, b"SET", b"here", b"1"), b"OK")
        self.assertEqual(ask(resp, b"RENAME", b"here", keys[0]), b"OK")
        self.assertEqual(ask(resp, b"MSETNX", keys[1], b"2"), 1)
        for words in ([b"MULTI"], [b"INCR", keys[2]]):
            ask(resp, *words)
        self.assertEqual(ask(resp, b"EXEC"), [1])
        self.assertEqual(ask(resp, b"MGET", *keys), [b"1", b"2", b"1"])

    def test_a_large_append_waits_for_the_item(self):
        self.evicted(base=b"b" * 1000)
        more = b"m" * 400_000
        self.client.send(b"append base 0 0 %d\r\n%b\r\n" % (len(more), more))
        self.assertEqual(self.client.line(), b"STORED")
        self.assertEqual(self.client.get(b"base"), b"b" * 1000 + more)

    def test_flush_all_reaches_flash(self):
        self.evicted(a=b"1", b=b"2" * 5000)
        self.assertEqual(self.client.get(b"a"), b"1")
        self.assertEqual(self.client.ask(b"flush_all"), b"OK")
        self.same(self.values(self.client, [b"a", b"b", b"filler1"]), [])
        self.assertEqual(self.client.set(b"a", b"new"), b"STORED")
        self.push_out(self.client, b"again", mebibytes=96)
        self.same(self.values(self.client, [b"a", b"b"]), [(b"a", 0, b"new")])

    def test_multigets_of_both_levels_keep_their_order(self):
        cold = [b"cold%d" % number for number in range(100)]
        self.cold(self.client, {key: noise(number, 10 + number * 50) for number, key in enumerate(cold)}, mebibytes=96)
        hot = [b"hot%d" % number for number in range(100)]
        for number, key in enumerate(hot):
            self.client.set(key, noise(1000 + number, 20))
        mixed, expected = [], []
        for number in range(100):
            mixed += [cold[number], b"absent%d" % number, hot[number]]
            expected += [(cold[number], 0, noise(number, 10 + number * 50)), (hot[number], 0, noise(1000 + number, 20))]
        self.same(self.values(self.client, mixed), expected)
        self.same(self.values(self.client, cold + cold), 2 * [
            (key, 0, noise(number, 10 + number * 50)) for number, key in enumerate(cold)])

    def test_a_pipeline_is_answered_in_order(self):
        keys = [b"p%d" % number for number in range(300)]
        self.cold(self.client, {key: b"%d" % number for number, key in enumerate(keys)}, mebibytes=96)
        asked, expected = [], []
        for number, key in enumerate(keys):
            asked += [b"get %b\r\n" % key, b"incr %b 1\r\n" % key, b"mn\r\n", b"set s%d 0 0 1\r\nx\r\n" % number,
                      b"get %b\r\n" % key]
            expected += [b"VALUE %b 0 %d" % (key, len(str(number))), b"%d" % number, b"END", b"%d" % (number + 1),
                         b"MN", b"STORED", b"VALUE %b 0 %d" % (key, len(str(number + 1))), b"%d" % (number + 1), b"END"]
        self.client.send(b"".join(asked))
        for line in expected:
            self.assertEqual(self.client.line(), line)

    def test_a_pipeline_that_changes_what_it_asked_for(self):
        self.evicted(k=b"old")
        self.client.send(b"get k\r\nset k 0 0 3\r\nnew\r\nget k\r\ndelete k\r\nget k\r\n")
        for line in (b"VALUE k 0 3", b"old", b"END", b"STORED", b"VALUE k 0 3", b"new", b"END", b"DELETED", b"END"):
            self.assertEqual(self.client.line(), line)

    def test_many_clients_at_once(self):
        keys = [b"m%d" % number for number in range(500)]
        self.cold(self.client, {key: noise(number, 1000) for number, key in enumerate(keys)}, mebibytes=96)
        faults = []

        def read(start):
            with self.running.connect() as connection:
                for number in range(start, len(keys), 10):
                    value = connection.get(keys[number])
                    if value != noise(number, 1000):
                        faults.append((number, value and value[:50]))

        threads = [threading.Thread(target=read, args=(start,)) for start in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def test_clients_that_leave_or_do_not_read(self):
        keys = [b"l%d" % number for number in range(200)]
        self.cold(self.client, {key: noise(number, 50_000) for number, key in enumerate(keys)}, mebibytes=96)
        request = b"get " + b" ".join(keys) + b"\r\n"
        for number in range(50):
            leaves = self.running.connect()
            leaves.send(request)
            leaves.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if number % 2:
                leaves.wait_until_answered()
            leaves.close()
        deaf = [self.connection(self.running, receive_buffer=4096) for _ in range(20)]
        for connection in deaf:
            connection.send(request)
        self.assertEqual(self.client.get(keys[0]), noise(0, 50_000))
        for _ in range(50):
            self.assertEqual(self.client.ask(b"mn"), b"MN")
        self.assertEqual(self.client.get(keys[1]), noise(1, 50_000))

    def test_a_client_that_sends_no_more_is_answered(self):
        self.evicted(k=b"value")
        connection = self.connection(self.running)
        connection.send(b"get k\r\n")
        connection.socket.shutdown(socket.SHUT_WR)
        self.assertEqual((connection.line(), connection.line(), connection.line()), (b"VALUE k 0 5", b"value", b"END"))

    def test_udp(self):
        port = support.free_port()
        self.path += "-udp"
        server = self.flash_server("-U", str(port), "-I", "8m", memory=16)
        client = self.connection(server)
        self.cold(client, {b"k": b"value", b"n": b"5"})
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(datagrams.close)
        datagrams.settimeout(support.WAIT_SECONDS_MAX)
        for number, (asked, answer) in enumerate([
                (b"get k\r\n", b"VALUE k 0 5\r\nvalue\r\nEND\r\n"), (b"incr n 2\r\n", b"7\r\n"),
                (b"delete k\r\n", b"DELETED\r\n"), (b"get k\r\n", b"END\r\n")]):
            datagrams.sendto(bytes([0, number, 0, 0, 0, 1, 0, 0]) + asked, ("127.0.0.1", port))
            got = datagrams.recv(2000)
            self.assertEqual((got[1], got[8:]), (number, answer))


if __name__ == "__main__":
    unittest.main()
