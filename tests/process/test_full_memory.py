"""`-M` with a full memory: commands of all protocols at random, beside a model that loses nothing.

LARDER_SEED gives the first seed, LARDER_FULL_SECONDS how long to go on; a failure names its seed and its last commands.
"""

import os
import random
import struct
import time
import unittest

import packets
import resp_support
from process_support import Case, larder_only

SECONDS = float(os.environ.get("LARDER_FULL_SECONDS", "0"))
SEED = int(os.environ.get("LARDER_SEED", "1"))
STEPS = 6000
# Values of one piece: those of several are copied as a whole to be renamed or invalidated, and that needs room.
SIZES = (1, 90, 700, 2000, 3900)
TOUCH, GAT, GATQ = 0x1c, 0x1d, 0x1e
# Columns that new items may not take, columns that are being filled, and what is left over at their ends.
SPARE_SHARE = 0.06


class Model:
    """What the server must hold: values, and whether each expires."""

    def __init__(self, seed, connect):
        self.random = random.Random(seed)
        # A connection keeps to the protocol of its first request.
        self.connection, self.of_binary, self.of_resp = connect(), connect(), connect()
        self.items = {}
        self.bytes = 0
        self.bytes_max = None
        self.made = 0
        self.told = []

    def ask(self, request):
        """Sends a line and returns the first line of the answer."""
        self.told.append(request[:60])
        return self.connection.ask(request)

    def resp(self, *words):
        """Sends a command of Redis and returns the reply."""
        self.told.append(b" ".join(word[:40] for word in words))
        return resp_support.ask(self.of_resp, *words)

    def binary(self, opcode, key, value=b"", extras=b""):
        """Sends a packet and returns the reply."""
        self.told.append(b"binary %#x %b %d" % (opcode, key, len(value)))
        return packets.ask(self.of_binary, packets.packet(opcode, key, value, extras))

    def value(self):
        """A value of one of the sizes."""
        self.made += 1
        size = self.random.choice(SIZES)
        return (b"%d," % self.made * (size // 2 + 1))[:max(size, 8)]

    def key(self):
        """A key that is there."""
        return self.random.choice(list(self.items)) if self.items else None

    @staticmethod
    def cost(key, value):
        """About the bytes of an item."""
        return len(key) + len(value) + 24

    def put(self, key, value, ttl):
        """The server has said that it has the item."""
        self.drop(key)
        self.items[key] = (value, ttl)
        self.bytes += self.cost(key, value)

    def drop(self, key):
        """The item is gone."""
        if key in self.items:
            self.bytes -= self.cost(key, self.items.pop(key)[0])

    def refused(self, key, value):
        """The server has said that it has no room for the item."""
        present = self.items.get(key)
        assert present is None or len(value) > len(present[0]), "what is not larger has room: %r" % key
        after = self.bytes + self.cost(key, value)
        self.bytes_max = self.bytes_max or self.bytes
        assert after > self.bytes_max * (1 - SPARE_SHARE), \
            "%d of %d bytes are used, and %d are refused" % (self.bytes, self.bytes_max, len(value))

    def store(self, key, value):
        """Stores by one of the protocols."""
        how = self.random.randrange(4)
        ttl = self.random.choice((-1, 5000))
        if how == 0:
            self.told.append(b"set %b %d" % (key, len(value)))
            is_done = self.connection.set(key, value, exptime=max(ttl, 0))
            is_done = {b"STORED": True, b"SERVER_ERROR out of memory storing object": False}[is_done]
        elif how == 1:
            answer = self.ask(b"ms %b %d T%d\r\n%b" % (key, len(value), max(ttl, 0), value))
            is_done = {b"HD": True, b"SERVER_ERROR out of memory storing object": False}[answer]
        elif how == 2:
            reply = self.binary(packets.SET, key, value, struct.pack(">II", 0, max(ttl, 0)))
            is_done = {0: True, 0x82: False}[reply.status]
        else:
            reply = self.resp(b"SET", key, value, *((b"EX", b"5000") if ttl > 0 else ()))
            is_done = reply == b"OK"
            assert is_done or reply.startswith(b"-OOM"), reply
        if is_done:
            self.put(key, value, ttl)
        else:
            self.refused(key, value)
            if how < 3:
                # As in memcached, a value that its client believes to be outdated goes.
                self.drop(key)
            self.check(key)

    def touch(self, key):
        """Gives an item another expiry: that never fails."""
        value, _ = self.items[key]
        how = self.random.randrange(8)
        ttl = 7000 + how
        if how == 0:
            assert self.ask(b"touch %b %d" % (key, ttl)) == b"TOUCHED"
        elif how == 1:
            answer = self.ask(b"gat %d %b" % (ttl, key))
            assert answer.startswith(b"VALUE"), answer
            assert self.connection.exactly(len(value) + 7) == value + b"\r\nEND\r\n"
        elif how == 2:
            assert self.ask(b"mg %b T%d t" % (key, ttl)).startswith(b"HD t%d" % (ttl // 10))
        elif how == 3:
            assert self.binary(TOUCH, key, extras=struct.pack(">I", ttl)).status == 0
        elif how == 4:
            assert self.binary(GAT, key, extras=struct.pack(">I", ttl)).value == value
        elif how == 5:
            assert self.resp(b"EXPIRE", key, b"%d" % ttl) == 1
        elif how == 6:
            assert self.resp(b"GETEX", key, b"EX", b"%d" % ttl) == value
        else:
            assert self.resp(b"PERSIST", key) == (1 if self.items[key][1] > 0 else 0)
            ttl = -1
        self.items[key] = (value, ttl)
        self.check(key)

    def change(self, key):
        """Replaces or renames an item by one that is not larger: that never fails."""
        value, ttl = self.items[key]
        how = self.random.randrange(4)
        if how == 0:
            assert self.ask(b"md %b I" % key) == b"HD"
        elif how == 1 and len(value) > 100:
            assert self.ask(b"md %b x" % key) == b"HD"
            self.put(key, b"", -1)
        elif how == 2:
            to = b"r%b" % key[-40:]
            assert self.resp(b"RENAME", key, to) == b"OK"
            self.drop(key)
            self.put(to, value, ttl)
            key = to
        else:
            shorter = value[:self.random.randrange(len(value) + 1)]
            assert self.connection.set(key, shorter) == b"STORED"
            self.put(key, shorter, -1)
        self.check(key)

    def delete(self, key):
        """Deletes by one of the protocols."""
        how = self.random.randrange(4)
        answer = (lambda: self.ask(b"delete %b" % key) == b"DELETED", lambda: self.ask(b"md %b" % key) == b"HD",
                  lambda: self.binary(packets.DELETE, key).status == 0, lambda: self.resp(b"DEL", key) == 1)[how]()
        assert answer
        self.drop(key)
        self.check(key)

    def check(self, key):
        """The server has of a key what the model has."""
        self.connection.send(b"mg %b v t\r\n" % key)
        line = self.connection.line()
        if key not in self.items:
            assert line == b"EN", line
            return
        value, ttl = self.items[key]
        words = line.split()
        assert words[0] == b"VA", "%r is lost: %r" % (key, line)
        assert self.connection.exactly(int(words[1]) + 2) == value + b"\r\n"
        shown = int(next(word for word in words[2:] if word[:1] == b"t")[1:])
        # A part of a second counts as one, and the clock is read once a second.
        is_right = shown == -1 if ttl < 0 else ttl - 600 < shown <= ttl + 2
        assert is_right, "%r expires in %d, not in %d" % (key, shown, ttl)

    def step(self):
        """One command."""
        if self.random.random() < 0.35:
            return self.store(b"k%d" % self.random.randrange(200_000), self.value())
        key = self.key()
        if key is None:
            return None
        return self.random.choices((self.touch, self.change, self.delete, self.check), (4, 3, 4, 3))[0](key)

    def fill(self):
        """Stores until the first item is refused."""
        number = 0
        while self.bytes_max is None:
            self.store(b"f%d" % number, self.value())
            number += 1


@larder_only
class Full(Case):
    """A full memory under `-M`."""

    def test_commands_at_random_lose_nothing_and_lie_about_nothing(self):
        ends = time.monotonic() + SECONDS
        seed = SEED
        while True:
            running = self.server("-m", "16", "-M", "-t", "2")
            model = Model(seed, lambda: self.connection(running))
            try:
                model.fill()
                for _ in range(STEPS):
                    model.step()
                for key in list(model.items):
                    model.check(key)
            except Exception as failure:
                raise AssertionError("seed %d: %s; last: %r" % (seed, failure, model.told[-5:])) from failure
            running.stop()
            seed += 1
            if time.monotonic() >= ends:
                return


if __name__ == "__main__":
    unittest.main()
