"""Deletes by prefix over real sockets: text, meta commands and RESP, with flash and over kill -9."""

import base64
import os
import signal
import threading

from flash_support import FlashCase, noise
from process_support import Case, larder_only
from resp_support import ask
from support import until


def wait_until_forgotten(connection):
    """Waits until the keeper has removed what was deleted."""
    until(lambda: connection.stats()[b"deleted_prefixes"] == b"0", "the prefix is forgotten")


@larder_only
class Commands(Case):
    """The three commands, in memory alone."""

    def setUp(self):
        self.running = self.server("-m", "64", "-t", "2")
        self.client = self.connection(self.running)

    def fill(self, *keys):
        """Stores the keys, each with its own name."""
        for key in keys:
            self.assertEqual(self.client.set(key, key), b"STORED")

    def present(self, *keys):
        """Which of the keys are there, as another connection sees it."""
        with self.connection(self.running) as other:
            return [key for key in keys if other.get(key) is not None]

    def test_text(self):
        self.fill(b"a:1", b"a:2", b"a", b"b:1")
        self.assertEqual(self.client.ask(b"flush_prefix a:"), b"OK")
        self.assertEqual(self.present(b"a:1", b"a:2", b"a", b"b:1"), [b"a", b"b:1"])
        self.fill(b"a:1")
        self.client.send(b"flush_prefix b noreply\r\nversion\r\n")
        self.assertTrue(self.client.line().startswith(b"VERSION"))
        self.assertEqual(self.present(b"a:1", b"a", b"b:1"), [b"a:1", b"a"])
        self.assertEqual(self.client.ask(b"flush_prefix noreply"), b"OK")
        for wrong in (b"flush_prefix", b"flush_prefix a b", b"flush_prefix a b c d", b"flush_prefix " + b"k" * 251):
            self.assertEqual(self.client.ask(wrong), b"CLIENT_ERROR bad command line format", wrong)
        self.assertEqual(self.client.ask(b"flush_prefix " + b"k" * 219), b"OK")
        self.assertEqual(self.client.ask(b"flush_prefix " + b"k" * 220),
                         b"CLIENT_ERROR a prefix has 1 to 219 bytes")
        self.assertEqual(self.present(b"a:1", b"a"), [b"a:1", b"a"])
        self.assertEqual(self.client.stats()[b"cmd_flush_prefix"], b"4")
        wait_until_forgotten(self.client)
        self.assertEqual(self.present(b"a:1", b"a:2", b"a", b"b:1"), [b"a:1", b"a"])
        self.assertEqual(self.client.stats()[b"curr_items"], b"2")

    def test_meta(self):
        ask_text = self.client.ask
        self.fill(b"m:1", b"n:1")
        self.assertEqual(ask_text(b"mf m: O123 k"), b"HD O123 km:")
        self.assertEqual(self.present(b"m:1", b"n:1"), [b"n:1"])
        self.client.send(b"mf n q\r\nmn\r\n")
        self.assertEqual(self.client.line(), b"MN")
        self.assertEqual(self.present(b"n:1"), [])
        # A prefix with a blank and a zero in it can be sent in base64 only.
        binary, prefix = b"x \0y", base64.b64encode(b"x \0")
        self.client.send(b"ms %b 1 b\r\nv\r\n" % base64.b64encode(binary))
        self.assertEqual(self.client.line(), b"HD")
        self.assertEqual(ask_text(b"mf %b b" % prefix), b"HD")
        self.assertEqual(ask_text(b"mg %b b v" % base64.b64encode(binary)), b"EN")
        for wrong, said in ((b"mf", b"CLIENT_ERROR bad command line format"),
                            (b"mf x !", b"CLIENT_ERROR bad command line format"),
                            (b"mf x! b", b"CLIENT_ERROR error decoding key"),
                            (b"mf x q q", b"CLIENT_ERROR duplicate flag"),
                            (b"mf %b q" % (b"k" * 230), b"CLIENT_ERROR a prefix has 1 to 219 bytes")):
            self.assertEqual(ask_text(wrong), said, wrong)

    def test_resp(self):
        resp = self.connection(self.running)
        for key in (b"r:1", b"r:2", b"s:1"):
            self.assertEqual(ask(resp, b"SET", key, b"v"), b"OK")
        long = b"r:long".ljust(1000, b"k")
        self.assertEqual(ask(resp, b"SET", long, b"v"), b"OK")
        self.assertEqual(ask(resp, b"FLUSHPREFIX", b"r:"), b"OK")
        self.assertEqual(ask(resp, b"MGET", b"r:1", b"r:2", b"s:1", long), [None, None, b"v", None])
        self.assertEqual(ask(resp, b"KEYS", b"*"), [b"s:1"])
        self.assertEqual(ask(resp, b"EXISTS", b"r:1"), 0)
        self.assertEqual(ask(resp, b"SCAN", b"0", b"COUNT", b"1000")[1], [b"s:1"])
        for wrong in (b"", b"k" * 220):
            self.assertEqual(ask(resp, b"FLUSHPREFIX", wrong),
                             b"-ERR a prefix has 1 to 219 bytes; FLUSHALL deletes all keys")
        self.assertTrue(ask(resp, b"FLUSHPREFIX").startswith(b"-ERR wrong number of arguments"))
        self.assertEqual(ask(resp, b"COMMAND", b"INFO", b"FLUSHPREFIX")[0][0], b"flushprefix")
        self.assertEqual(ask(resp, b"MULTI"), b"OK")
        self.assertEqual(ask(resp, b"FLUSHPREFIX", b"s"), b"QUEUED")
        self.assertEqual(ask(resp, b"EXEC"), [b"OK"])
        self.assertIsNone(ask(resp, b"GET", b"s:1"))

    def test_what_is_pipelined_behind_it_sees_it(self):
        self.fill(b"p:1")
        self.client.send(b"get p:1\r\nflush_prefix p\r\nget p:1\r\nset p:1 0 0 1\r\nx\r\nget p:1\r\n")
        said = b"VALUE p:1 0 3\r\np:1\r\nEND\r\nOK\r\nEND\r\nSTORED\r\nVALUE p:1 0 1\r\nx\r\nEND\r\n"
        self.assertEqual(self.client.exactly(len(said)), said)

    def test_a_dump_and_the_statistics(self):
        self.fill(*[b"d:%d" % number for number in range(500)], *[b"e:%d" % number for number in range(20)])
        self.assertEqual(self.client.ask(b"flush_prefix d:"), b"OK")
        self.client.send(b"lru_crawler metadump all\r\n")
        lines = []
        while (line := self.client.line(b"\n")) not in (b"END\r", b"END"):
            lines.append(line)
        self.assertTrue(all(line.startswith((b"OK", b"key=e")) for line in lines), lines)
        self.assertEqual(len(lines), 21, "OK, and a line for each item")
        wait_until_forgotten(self.client)
        stats = self.client.stats()
        self.assertEqual((stats[b"curr_items"], stats[b"evictions"]), (b"20", b"0"))
        self.assertGreaterEqual(int(stats[b"reclaimed"]), 500)

    def test_too_many(self):
        replies = [self.client.ask(b"flush_prefix many:%d:" % number) for number in range(300)]
        refused = [reply for reply in replies if reply != b"OK"]
        # The keeper forgets them meanwhile, so that all may be taken.
        self.assertTrue(all(reply.startswith(b"SERVER_ERROR too many prefixes") for reply in refused), refused[:3])
        self.assertEqual(self.client.ask(b"flush_prefix many:"), b"OK")
        wait_until_forgotten(self.client)
        self.assertEqual(self.client.ask(b"flush_prefix many:1:"), b"OK")

    def test_who_may_not(self):
        server = self.server("-F")
        off, resp = self.connection(server), self.connection(server)
        self.assertEqual(off.set(b"k", b"v"), b"STORED")
        self.assertEqual(off.ask(b"flush_prefix k"), b"CLIENT_ERROR flush_prefix not allowed")
        self.assertEqual(off.ask(b"mf k"), b"CLIENT_ERROR flush_prefix not allowed")
        self.assertEqual(ask(resp, b"FLUSHPREFIX", b"k"), b"-ERR flushing is disabled (-F)")
        self.assertEqual(off.get(b"k"), b"v")
        path = os.path.join(self.folder(), "users")
        with open(path, "w", encoding="ascii") as file:
            file.write("ada:lovelace\nreadonly eve:watches\n")
        os.chmod(path, 0o600)
        server = self.server("-Y", path)
        for login, text, meta in ((b"eve watches", b"CLIENT_ERROR not allowed: this user may only read",
                                   b"CLIENT_ERROR not allowed: this user may only read"),
                                  (b"ada lovelace", b"OK", b"HD")):
            connection = self.connection(server)
            connection.send(b"set auth 0 0 %d\r\n%b\r\n" % (len(login), login))
            self.assertEqual(connection.line(), b"STORED")
            self.assertEqual(connection.ask(b"flush_prefix k"), text)
            self.assertEqual(connection.ask(b"mf k"), meta)
        eve = self.connection(server)
        self.assertEqual(ask(eve, b"AUTH", b"eve", b"watches"), b"OK")
        self.assertTrue(ask(eve, b"FLUSHPREFIX", b"k").startswith(b"-NOPERM"))

    def test_beside_readers_and_writers(self):
        """Whoever asks after the answer finds nothing old, while others go on storing."""
        stop, failures = threading.Event(), []

        def others():
            with self.connection(self.running) as other:
                number = 0
                while not stop.is_set():
                    number += 1
                    other.set(b"other:%d" % (number % 500), b"o%d" % number)
                    if other.get(b"other:%d" % (number % 500)) != b"o%d" % number:
                        failures.append(number)

        threads = [threading.Thread(target=others)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(60):
                keys = [b"t:%d:%d" % (turn % 3, number) for number in range(50)]
                self.fill(*keys)
                self.assertEqual(self.client.ask(b"flush_prefix t:%d" % (turn % 3)), b"OK")
                self.assertEqual(self.present(*keys), [])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])


@larder_only
class OnFlash(FlashCase):
    """What only flash has, and what a restart finds."""

    def stored(self, client, prefixes=(b"gone:", b"kept:"), count=300):
        """Values that only flash has, by key."""
        values = {b"%b%d" % (prefix, number): noise(number, 300 + number * 11)
                  for prefix in prefixes for number in range(count)}
        self.cold(client, values)
        return values

    def found(self, client, values):
        """How many are found of each prefix. What is found is right."""
        counts = {}
        for key, value in values.items():
            prefix = key.split(b":")[0]
            counts.setdefault(prefix, 0)
            for answer in self.values(client, [key]):
                self.same([answer], [(key, 0, value)])
                counts[prefix] += 1
        return counts

    def test_nothing_comes_back_from_flash(self):
        server = self.flash_server()
        client = self.connection(server)
        values = self.stored(client)
        client.set(b"gone:large", noise(9, 900_000))
        self.push_out(client)
        self.assertEqual(client.ask(b"flush_prefix gone:"), b"OK")
        for _ in range(2):
            counts = self.found(client, values)
            self.assertEqual(counts[b"gone"], 0)
            self.assertGreater(counts[b"kept"], 250)
            self.assertIsNone(client.get(b"gone:large"))
            self.assertEqual(client.ask(b"incr gone:1 1"), b"NOT_FOUND")
            wait_until_forgotten(client)
        self.assertEqual(client.set(b"gone:7", b"new"), b"STORED")
        self.push_out(client)
        self.assertIn(client.get(b"gone:7"), (b"new", None))
        self.assertGreater(self.number(client, b"deleted_prefixes_flash"), 0)

    def test_after_an_ordinary_stop(self):
        server = self.flash_server()
        client = self.connection(server)
        values = self.stored(client)
        client.set(b"gone:hot", b"h")
        client.set(b"kept:hot", b"h")
        self.assertEqual(client.ask(b"mf gone: q\r\nmn"), b"MN")
        client.set(b"gone:1", noise(1, 311))
        self.assertEqual(server.stop(), 0)
        client = self.started_again(self.flash_server())
        self.assertEqual(client.get(b"kept:hot"), b"h")
        self.assertIsNone(client.get(b"gone:hot"))
        counts = self.found(client, values)
        self.assertEqual(counts[b"gone"], 1, "what was stored later is there, and nothing else")
        self.assertGreater(counts[b"kept"], 250)

    def test_kill_9_right_after_the_answer(self):
        for round_number, mode in enumerate(("journal", "best-effort", "journal")):
            flags = ("--flash-recover", mode)
            server = self.flash_server(*flags)
            client = self.connection(server)
            values = self.stored(client, (b"gone%d:" % round_number, b"kept%d:" % round_number))
            # Segments of the last items are on the device by then.
            self.push_out(client, b"more")
            self.assertEqual(client.ask(b"flush_prefix gone%d:" % round_number), b"OK")
            server.stop(signal.SIGKILL)
            again = self.flash_server(*flags)
            client = self.started_again(again)
            counts = self.found(client, values)
            self.assertEqual(counts[b"gone%d" % round_number], 0, mode)
            self.assertGreater(counts[b"kept%d" % round_number], 100, mode)
            self.assertGreater(self.number(client, b"deleted_prefixes_flash"), 0)
            again.stop(signal.SIGKILL)
