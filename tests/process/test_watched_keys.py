"""`WATCH`: `EXEC` runs if nothing has changed the key since, whatever a change has left behind, and whoever made it.

Each row of the tables is what one connection does before another watches the key `k`, what it does afterwards, and
whether Valkey 9.1 then runs the transaction.
"""

import os

from flash_support import FlashCase
from process_support import Case, larder_only
from resp_support import ask, command, receive
from support import until

STORED = b"set k 0 0 3\r\nold\r\n"
# (name, before, between, whether the transaction runs), in RESP.
RESP_ROWS = [
    ("nothing", [], [], True),
    ("a read", ["SET k v"], ["GET k", "STRLEN k", "TTL k", "EXISTS k", "GETEX k"], True),
    ("set and deleted", [], ["SET k v", "DEL k"], False),
    ("set, and gone by its lifetime", [], ["SET k v PX 5", "!"], False),
    ("set and flushed", [], ["SET k v", "FLUSHALL"], False),
    ("set and renamed away", [], ["SET k v", "RENAME k other"], False),
    ("renamed away and back", ["SET k v"], ["RENAME k other", "RENAME other k"], False),
    ("renamed to", ["SET other v"], ["RENAME other k"], False),
    ("renamed to itself", ["SET k v"], ["RENAME k k"], True),
    ("set and taken", [], ["SET k v", "GETDEL k"], False),
    ("counted and deleted", [], ["INCR k", "DEL k"], False),
    ("appended and deleted", [], ["APPEND k v", "UNLINK k"], False),
    ("set by several", [], ["MSET a 1 k 2", "DEL k"], False),
    ("set if none is there", [], ["MSETNX k 1", "DEL k"], False),
    ("copied to", ["SET other v"], ["COPY other k", "DEL k"], False),
    ("copied from", ["SET k v"], ["COPY k other"], True),
    ("the same value", ["SET k v"], ["SET k v"], False),
    ("not set, one is there", ["SET k v"], ["SET k w NX", "SETNX k w", "MSETNX k 1 l 2"], True),
    ("not set, none is there", [], ["SET k w XX", "GETSET other v"], True),
    ("deleted, none was there", [], ["DEL k", "GETDEL k", "UNLINK k"], True),
    ("deleted and set again", ["SET k v"], ["DEL k", "SET k v"], False),
    ("a bit as it was", ["SET k v"], ["SETBIT k 0 0"], True),
    ("a bit", ["SET k v"], ["SETBIT k 0 1", "SETBIT k 0 0"], False),
    ("a clear bit of nothing", [], ["SETBIT k 0 0", "DEL k"], False),
    ("a clear bit behind the value", ["SET k v"], ["SETBIT k 20 0"], False),
    ("an empty range", ["SET k v"], ["SETRANGE k 0 \"\""], True),
    ("a range as it was", ["SET k v"], ["SETRANGE k 0 v"], False),
    ("nothing appended", ["SET k v"], ["APPEND k \"\""], False),
    ("nothing added", ["SET k 1"], ["INCRBY k 0"], False),
    ("no number", ["SET k v"], ["INCR k"], True),
    ("a lifetime", ["SET k v"], ["EXPIRE k 1000", "PERSIST k"], False),
    ("the same lifetime", ["SET k v EXAT 4000000000"], ["EXPIREAT k 4000000000"], False),
    ("no lifetime to take away", ["SET k v"], ["PERSIST k", "GETEX k PERSIST"], True),
    ("a lifetime refused", ["SET k v"], ["EXPIRE k 1000 XX", "EXPIRE other 10"], True),
    ("a lifetime that is over", ["SET k v"], ["EXPIRE k -1"], False),
    ("a lifetime ends", ["SET k v PX 5"], ["!"], False),
    ("a lifetime had ended", ["SET k v PX 5", "!"], [], True),
    ("flushed", ["SET k v"], ["FLUSHALL"], False),
    ("flushed database", ["SET k v"], ["FLUSHDB"], False),
    ("flushed and set again", ["SET k v"], ["FLUSHALL", "SET k v"], False),
    ("flushed, none was there", [], ["FLUSHALL"], True),
    ("another key", ["SET k v"], ["SET kk v", "DEL kk", "SET K v"], True),
    ("by a transaction", ["SET k v"], ["MULTI", "SET k w", "SET k v", "EXEC"], False),
    ("an empty key of others", [], ["SET \"\" v"], True),
]
# The same with memcached's words; `!` waits until a lifetime has ended.
MEMCACHED_ROWS = [
    ("set and deleted", b"", b"set k 0 0 1\r\nv\r\ndelete k\r\n", False),
    ("stored and deleted", b"", b"ms k 1\r\nv\r\nmd k\r\n", False),
    ("added and deleted", b"", b"add k 0 0 1\r\nv\r\ndelete k\r\n", False),
    ("replaced", STORED, b"replace k 0 0 3\r\nold\r\n", False),
    ("appended nothing", STORED, b"append k 0 0 0\r\n\r\n", False),
    ("compared", b"", b"cas k 0 0 1 1\r\nv\r\n", True),
    ("counted", b"set k 0 0 1\r\n1\r\n", b"incr k 1\r\ndecr k 1\r\n", False),
    ("counted by meta", b"set k 0 0 1\r\n1\r\n", b"ma k\r\nma k MD\r\n", False),
    ("made by a count", b"", b"ma k N0\r\nmd k\r\n", False),
    ("made by a get", b"", b"mg k N30 v\r\nmd k\r\n", False),
    ("touched", STORED, b"touch k 1000\r\ntouch k 0\r\n", False),
    ("got and touched", STORED, b"gat 1000 k\r\n", False),
    ("touched by meta", STORED, b"mg k T1000\r\n", False),
    ("made stale", STORED, b"md k I\r\n", False),
    ("emptied", STORED, b"md k x\r\n", False),
    ("read", STORED, b"get k\r\ngets k\r\nmg k v t h l f\r\nme k\r\n", True),
    ("not deleted", b"", b"delete k\r\nmd k\r\n", True),
    ("refused for its length", STORED, b"set k 0 0 3000000\r\n" + bytes(3_000_000) + b"\r\n", False),
    ("flushed", STORED, b"flush_all\r\n", False),
    ("its prefix flushed", STORED, b"flush_prefix k\r\n", False),
    ("set, and its prefix flushed", b"", b"set k 0 0 1\r\nv\r\nflush_prefix k\r\n", False),
    ("another prefix flushed", STORED, b"flush_prefix l\r\n", True),
    ("another key", STORED, b"set l 0 0 1\r\nv\r\ndelete l\r\n", True),
]


def words(line):
    """The words of a request; `""` is an empty one."""
    return [b"" if word == '""' else word.encode() for word in line.split()]


class Watching(Case):
    """What two connections see of each other, with a clean slate for each row."""

    def run_resp(self, running, lines):
        """Sends requests of RESP."""
        for line in lines:
            if line == "!":
                until(lambda: ask(running, b"EXISTS", b"k") == 0, "the item is gone")
            else:
                ask(running, *words(line))

    def ends(self, watcher):
        """Whether the transaction of a connection that watches is executed."""
        self.assertEqual(ask(watcher, b"MULTI"), b"OK")
        self.assertEqual(ask(watcher, b"SET", b"k", b"from exec"), b"QUEUED")
        reply = ask(watcher, b"EXEC")
        self.assertIn(reply, (None, [b"OK"]))
        return reply is not None

    def check_rows(self, server):
        """Every row in RESP."""
        watcher, other = self.connection(server), self.connection(server)
        for name, before, between, runs in RESP_ROWS:
            with self.subTest(name):
                ask(other, b"FLUSHALL")
                self.run_resp(other, before)
                self.assertEqual(ask(watcher, b"WATCH", b"k"), b"OK")
                self.run_resp(other, between)
                self.assertEqual(self.ends(watcher), runs)


@larder_only
class WatchedKeys(Watching):
    """A change to a watched key is a change."""

    def test_every_change_by_resp(self):
        self.check_rows(self.server("-m", "64"))

    def test_every_change_by_memcached(self):
        server = self.server("-m", "64")
        watcher, other = self.connection(server), self.connection(server)
        for name, before, between, runs in MEMCACHED_ROWS:
            with self.subTest(name):
                self.assertEqual(other.ask(b"flush_all"), b"OK")
                for requests, watch in ((before, True), (between, False)):
                    other.send(requests + b"mn\r\n")
                    while other.line() != b"MN":
                        pass
                    if watch:
                        self.assertEqual(ask(watcher, b"WATCH", b"k"), b"OK")
                self.assertEqual(self.ends(watcher), runs)

    def test_a_long_key_is_watched(self):
        server = self.server("-m", "64")
        watcher, other = self.connection(server), self.connection(server)
        key = b"k" * 1000
        for changed, reply in ((b"k" * 999, [b"PONG"]), (key, None)):
            ask(watcher, b"WATCH", key)
            ask(other, b"SET", changed, b"v")
            ask(other, b"DEL", changed)
            ask(watcher, b"MULTI")
            ask(watcher, b"PING")
            self.assertEqual(ask(watcher, b"EXEC"), reply)

    def test_a_watch_ends(self):
        server = self.server("-m", "64")
        watcher, other = self.connection(server), self.connection(server)
        for end in ([b"UNWATCH"], [b"RESET"], [b"MULTI", b"DISCARD"], [b"MULTI", b"EXEC"]):
            ask(watcher, b"WATCH", b"k")
            ask(other, b"SET", b"k", b"v")
            for word in end:
                ask(watcher, word)
            self.assertTrue(self.ends(watcher))
        # Its own changes count as well, and those of a transaction for all others.
        ask(watcher, b"WATCH", b"k")
        ask(watcher, b"SET", b"k", b"v")
        self.assertFalse(self.ends(watcher))
        ask(watcher, b"WATCH", b"k")
        ask(other, b"WATCH", b"k")
        self.assertTrue(self.ends(watcher))
        self.assertFalse(self.ends(other))

    def test_watches_take_no_memory_when_they_are_over(self):
        server = self.server("-m", "64")
        control = self.connection(server)
        for _ in range(20):
            watcher = server.connect()
            watcher.send(b"".join(command(b"WATCH", *(b"key:%d" % (100 * part + number) for number in range(100)))
                                  for part in range(20)))
            self.assertEqual([receive(watcher) for _ in range(20)], [b"OK"] * 20)
            watcher.close()
        until(lambda: control.stats()[b"curr_connections"] == b"1", "the watchers are gone")
        self.assertEqual(control.set(b"key:1", b"v"), b"STORED")

    def test_an_eviction_is_no_change(self):
        server = self.server("-m", "16")
        watcher, other = self.connection(server), self.connection(server)
        ask(other, b"SET", b"k", b"v")
        ask(watcher, b"WATCH", b"k")
        value, number = os.urandom(8000), 0
        while ask(other, b"EXISTS", b"k"):
            ask(other, b"SET", b"filler:%d" % number, value)
            number += 1
        self.assertTrue(self.ends(watcher))


@larder_only
class WatchedOnFlash(FlashCase, Watching):
    """With flash behind memory."""

    def test_every_change(self):
        self.check_rows(self.flash_server())

    def test_demotion_and_promotion_are_no_change(self):
        server = self.flash_server()
        watcher, other = self.connection(server), self.connection(server)
        for between, runs in ((b"get k\r\n", True), (b"delete k\r\n", False), (b"flush_all\r\n", False)):
            self.cold(other, {b"k": b"v" * 900})
            ask(watcher, b"WATCH", b"k")
            self.push_out(other)
            other.send(between + b"mn\r\n")
            while other.line() != b"MN":
                pass
            self.assertEqual(self.ends(watcher), runs)
