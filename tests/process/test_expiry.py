"""Expired items make room before anything live goes: real time, a real socket, the flags as they are."""

import unittest

from process_support import Case, larder_only
from support import until

KEPT_MIN = 0.998
VALUE = b"v" * 400
BATCH = 500


class Expiry(Case):
    """What lives always fits."""

    def store(self, connection, name, count, exptime):
        """Stores `count` items without waiting for the answers."""
        for first in range(0, count, BATCH):
            lines = (b"set %b-%d 0 %d %d noreply\r\n%b\r\n" % (name, number, exptime, len(VALUE), VALUE)
                     for number in range(first, min(first + BATCH, count)))
            connection.send(b"".join(lines))
        self.assertEqual(connection.ask(b"mn"), b"MN")

    def found(self, connection, name, count):
        """How many of the items are there."""
        there = 0
        for first in range(0, count, BATCH):
            asked = range(first, min(first + BATCH, count))
            connection.send(b"".join(b"mg %b-%d\r\n" % (name, number) for number in asked))
            there += sum(connection.line() == b"HD" for _ in asked)
        return there

    def kept(self, load):
        """Stores what never expires, then what soon does, and then as much again."""
        connection = self.connection(self.server("-m", "64"))
        never, soon = int(50_000 * load), int(70_000 * load)
        self.store(connection, b"never", never, 0)
        self.store(connection, b"soon", soon, 2)
        # Of all that expire, the last one expires last.
        until(lambda: connection.ask(b"mg soon-%d" % (soon - 1)) == b"EN", "they have expired")
        self.store(connection, b"new", soon, 0)
        stats = connection.stats()
        kept = (self.found(connection, b"never", never) + self.found(connection, b"new", soon)) / (never + soon)
        self.assertGreaterEqual(kept, KEPT_MIN, stats)
        return connection

    @larder_only
    def test_full(self):
        stats = self.kept(1.0).stats()
        self.assertGreater(int(stats[b"reclaimed"]), 10_000)
        self.assertGreater(int(stats[b"expired_unfetched"]), 10_000)

    @larder_only
    def test_half_full(self):
        connection = self.kept(0.5)
        # Without need, expired columns are freed as well.
        until(lambda: int(connection.stats()[b"expired_bytes"]) < 4 << 20, "expired columns are freed")
        self.assertEqual(int(connection.stats()[b"evictions"]), 0)


if __name__ == "__main__":
    unittest.main()
