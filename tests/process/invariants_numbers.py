"""Counters and limits: numbers that clients raise together in every way there is."""

import itertools
import struct
import time

import packets
from invariants_rules import EARLY_S, FRACTION_S, Rule, by_key
from invariants_support import Client, one_of


class Counters(Rule):
    """A count is what was added to it, each answer is one that nobody else got, and no count goes back."""

    name = "counters"
    STRINGS = [b"count0", b"count1"]
    FIELDS = [(b"hash0", b"f0"), (b"hash0", b"f1")]
    MEMBERS = [(b"zset0", b"m0")]

    def add_watched(self, get, key, new):
        """By `WATCH`; `new` makes the request that stores a number."""
        self.client.ask(b"WATCH", key)
        number = int(float(self.client.ask(*get))) + 1
        return number if self.client.transaction(new(b"%d" % number)) is not None else None

    def add_ifeq(self, key):
        """By comparing values."""
        number = int(self.client.ask(b"GET", key))
        stored = self.client.ask(b"SET", key, b"%d" % (number + 1), b"IFEQ", b"%d" % number)
        return number + 1 if stored is not None else None

    def add_cas(self, key):
        """By comparing CAS numbers."""
        value, cas = self.client.gets(key)
        number = int(value) + 1
        answer = self.client.store(b"cas %b 0 0 %d %d" % (key, len(b"%d" % number), cas), b"%d" % number)
        return number if one_of(answer, b"STORED", b"EXISTS") == b"STORED" else None

    def add_meta(self, key):
        """By `ma`."""
        words = self.client.text.ask(b"ma %b v" % key).split()
        one_of(words[0], b"VA")
        return int(self.client.text.exactly(int(words[1]) + 2))

    ADDS = {
        "INCR": lambda self, key: self.client.ask(b"INCR", key),
        "INCRBY": lambda self, key: self.client.ask(b"INCRBY", key, b"1"),
        "INCRBYFLOAT": lambda self, key: int(self.client.ask(b"INCRBYFLOAT", key, b"1")),
        "INCR in EVAL": lambda self, key: self.client.run(b"return redis.call('INCR', KEYS[1])", [key]),
        "GET, SET in EVAL": lambda self, key: self.client.run(
            b"local n = redis.call('GET', KEYS[1]) + 1 redis.call('SET', KEYS[1], n) return n", [key]),
        "INCR in MULTI": lambda self, key: self.client.transaction((b"GET", key), (b"INCR", key))[1],
        "WATCH": lambda self, key: self.add_watched((b"GET", key), key, lambda new: (b"SET", key, new)),
        "SET IFEQ": add_ifeq,
        "cas": add_cas,
        "incr": lambda self, key: int(self.client.text.ask(b"incr %b 1" % key)),
        "ma": add_meta,
        "binary incr": lambda self, key: struct.unpack(">Q", self.client.packet(
            packets.INCR, key, extras=struct.pack(">QQI", 1, 0, 0xffffffff)).value)[0],
    }
    FIELD_ADDS = {
        "HINCRBY": lambda self, key, field: self.client.ask(b"HINCRBY", key, field, b"1"),
        "HINCRBY in EVAL": lambda self, key, field: self.client.run(
            b"return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)", [key], field),
        "HINCRBY in MULTI": lambda self, key, field: self.client.transaction((b"HINCRBY", key, field, b"1"))[0],
        "HGET, HSET in EVAL": lambda self, key, field: self.client.run(
            b"local n = redis.call('HGET', KEYS[1], ARGV[1]) + 1 redis.call('HSET', KEYS[1], ARGV[1], n) return n",
            [key], field),
        "WATCH, HSET": lambda self, key, field: self.add_watched(
            (b"HGET", key, field), key, lambda new: (b"HSET", key, field, new)),
    }
    MEMBER_ADDS = {
        "ZINCRBY": lambda self, key, member: int(float(self.client.ask(b"ZINCRBY", key, b"1", member))),
        "ZADD INCR": lambda self, key, member: int(float(self.client.ask(b"ZADD", key, b"INCR", b"1", member))),
        "ZINCRBY in EVAL": lambda self, key, member: int(self.client.run(
            b"return redis.call('ZINCRBY', KEYS[1], 1, ARGV[1])", [key], member)),
        "WATCH, ZADD": lambda self, key, member: self.add_watched(
            (b"ZSCORE", key, member), key, lambda new: (b"ZADD", key, new, member)),
    }
    FIELD_READS = {
        "HGET": lambda self, key, field: self.client.ask(b"HGET", key, field),
        "HMGET": lambda self, key, field: self.client.ask(b"HMGET", key, field)[0],
        "HGETALL": lambda self, key, field: dict(zip(*[iter(self.client.ask(b"HGETALL", key))] * 2)).get(field),
    }

    def kinds(self):
        """Every count: its name, its key and perhaps its field, ways to add and ways to read."""
        for key in self.STRINGS:
            yield key, (key,), self.ADDS, {name: lambda self, key, call=call: call(self.client, key)
                                           for name, call in Client.READS.items()}
        for pair in self.FIELDS:
            yield b"/".join(pair), pair, self.FIELD_ADDS, self.FIELD_READS
        for pair in self.MEMBERS:
            yield b"/".join(pair), pair, self.MEMBER_ADDS, {
                "ZSCORE": lambda self, key, member: self.client.ask(b"ZSCORE", key, member)}

    def step(self):
        name, place, adds, reads = self.chance.choice(list(self.kinds()))
        if self.chance.random() < 0.25:
            self.read_count(name, place, reads)
        else:
            way, call = self.choice(adds)
            self.note(name, "add", way, 1, lambda: call(self, *place))

    def read_count(self, name, place, reads):
        """Reads a count in any way."""
        def number():
            found = call(self, *place)
            return None if found is None else int(float(found))
        way, call = self.choice(reads)
        self.note(name, "read", way, None, number)

    def look(self):
        for name, place, _, reads in self.kinds():
            self.read_count(name, place, reads)

    def prepare(self):
        for name, place, *_ in self.kinds():
            if self.base.get(name) is None:
                words = {b"c": (b"SET", *place, b"0"), b"h": (b"HSET", *place, b"0")}.get(
                    name[:1], (b"ZADD", place[0], b"0", place[-1]))
                self.client.ask(*words)
                self.base[name] = 0

    def faults(self, acts, looks, promise):
        wrong = []
        acts = by_key(acts)
        for look in looks:
            found, base = acts[look.key], self.base.get(look.key) or 0
            adds = [act for act in found if act.what == "add"]
            least = base + sum(act.given for act in adds if act.done is not None and act.found is not None)
            most = least + sum(act.given for act in adds if act.done is None)
            if look.found is None:
                if not promise.may_lose:
                    wrong.append(self.fault(look, "nothing", "%d to %d" % (least, most)))
            elif not least <= look.found <= most:
                wrong.append(self.fault(look, "%d" % look.found, "%d to %d, %d at the beginning" % (least, most, base)))
            self.base[look.key] = look.found
            wrong += self.out_of_order([act for act in found if act.done is not None], base)
        return wrong

    def out_of_order(self, acts, base):
        """Answers that two clients got, and numbers that were seen before smaller ones."""
        reads = [act for act in acts if act.what == "read"]
        yield from (self.fault(act, "nothing", "a number") for act in reads if act.found is None)
        acts = [act for act in acts if act.found is not None]
        yield from (self.fault(act, "%d" % act.found, "%d at least" % base) for act in acts if act.found < base)
        added = {}
        for act in acts:
            if act.what == "add":
                if act.found in added or act.found <= base:
                    yield self.fault(act, "%d" % act.found, "more than %d, and what nobody else was told: %s" % (
                        base, added.get(act.found)))
                added[act.found] = act
        # A read of a number comes after the act that made it.
        acts.sort(key=self.rank)
        latest = None
        for _, same in itertools.groupby(acts, self.rank):
            same = list(same)
            for act in same:
                if latest and act.done < latest.sent:
                    yield self.fault(act, "%d" % act.found, "less: a smaller number was seen afterwards: %s" % latest)
            latest = max(same + [latest] * bool(latest), key=lambda act: act.sent)

    @staticmethod
    def rank(act):
        """The place of an act in the order of what it saw."""
        return act.found, act.what == "read"


class Limits(Rule):
    """A window has as many places as its limit, and no window ends early."""

    name = "limits"
    LIMIT = 5
    FIXED, SLIDING = b"fixed0", b"sliding0"
    FIXED_MS, SLIDING_MS = 200, 100

    def count_meta(self, key):
        """By `ma`, which makes the counter."""
        words = self.client.text.ask(b"ma %b v N1 J1" % key).split()
        one_of(words[0], b"VA")
        return int(self.client.text.exactly(int(words[1]) + 2))

    # What each is told, and the seconds that a window surely has which it began.
    COUNTS = {
        "INCR, PEXPIRE in EVAL": (lambda self, key: self.client.run(
            b"local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end "
            b"return n", [key], b"%d" % self.FIXED_MS), FIXED_MS / 1000),
        "INCR, EXPIRE in EVAL": (lambda self, key: self.client.run(
            b"local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('EXPIRE', KEYS[1], 1) end return n",
            [key]), 1),
        "SET NX, INCR in MULTI": (lambda self, key: self.client.transaction(
            (b"SET", key, b"0", b"NX", b"PX", b"%d" % self.FIXED_MS), (b"INCR", key))[1], FIXED_MS / 1000),
        "ma": (count_meta, 0),
        "binary incr": (lambda self, key: struct.unpack(">Q", self.client.packet(
            packets.INCR, key, extras=struct.pack(">QQI", 1, 1, 1)).value)[0], 0),
    }

    SLIDE = b"""
        local now = tonumber(ARGV[1])
        local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
        if last[2] and tonumber(last[2]) > now then now = tonumber(last[2]) end
        redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[3]))
        if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
        redis.call('ZADD', KEYS[1], now, ARGV[2])
        redis.call('PEXPIRE', KEYS[1], 60000)
        return now"""

    def slide_watched(self, now, member):
        """One more in the sliding window, by `WATCH`: its time, 0 if there is no room, None if others came between."""
        key = self.SLIDING
        self.client.ask(b"WATCH", key)
        last = self.client.ask(b"ZRANGE", key, b"-1", b"-1", b"WITHSCORES")
        now = max(now, int(float(last[1])) if last else 0)
        old = b"%d" % (now - self.SLIDING_MS)
        if self.client.ask(b"ZCOUNT", key, b"(" + old, b"+inf") >= self.LIMIT:
            self.client.ask(b"UNWATCH")
            return 0
        replies = self.client.transaction((b"ZREMRANGEBYSCORE", key, b"-inf", old), (b"ZCARD", key),
                                          (b"ZADD", key, b"%d" % now, member), (b"PEXPIRE", key, b"60000"))
        if replies is not None and (replies[1] >= self.LIMIT or replies[2] != 1):
            raise AssertionError("a transaction whose key was watched found another: %r" % replies)
        return now if replies is not None else None

    def step(self):
        roll = self.chance.random()
        if roll < 0.4:
            way, (call, lifetime) = self.choice(self.COUNTS)
            self.note(self.FIXED, "count", way, lifetime, lambda: call(self, self.FIXED))
            return
        now, member = time.monotonic_ns() // 1_000_000, self.fresh()
        if roll < 0.7:
            self.note(self.SLIDING, "slide", "EVAL", (now, member), lambda: self.client.run(
                self.SLIDE, [self.SLIDING], b"%d" % now, member, b"%d" % self.SLIDING_MS, b"%d" % self.LIMIT))
        else:
            self.note(self.SLIDING, "slide", "WATCH", (now, member), lambda: self.slide_watched(now, member))

    def look(self):
        self.note(self.FIXED, "look", "GET", None, lambda: int(self.client.ask(b"GET", self.FIXED) or 0))
        self.note(self.SLIDING, "look", "ZRANGE", None, lambda: [
            (member, int(float(score))) for member, score in
            zip(*[iter(self.client.ask(b"ZRANGE", self.SLIDING, b"0", b"-1", b"WITHSCORES"))] * 2)])
        # A server that is killed between INCR and EXPIRE leaves a window without an end.
        if self.client.ask(b"PTTL", self.FIXED) == -1:
            self.notes["windows without an end"] += 1

    def prepare(self):
        if self.client.ask(b"PTTL", self.FIXED) == -1:
            self.client.ask(b"DEL", self.FIXED)
            self.base[self.FIXED] = 0

    def faults(self, acts, looks, promise):
        acts = by_key(acts)
        fixed, sliding = looks
        wrong = list(self.fixed_faults(acts[self.FIXED], fixed, promise))
        return wrong + list(self.sliding_faults(acts[self.SLIDING], sliding, promise))

    def fixed_faults(self, acts, look, promise):
        """A window's numbers are each given once, and it has its time."""
        base = self.base.get(self.FIXED, 0)
        done = sorted((act for act in acts if act.done is not None), key=lambda act: act.sent)
        starts = [act for act in done if act.found == 1]
        for first, second in zip(starts, starts[1:]):
            if second.done - first.sent < first.given - FRACTION_S:
                yield self.fault(second, "a window begins at %.6f at the latest" % second.done,
                                 "none before %.6f" % (first.sent + first.given))
        given = {}
        for act in done:
            window = sum(start.done < act.sent for start in starts)
            if act.found > 1 and window == sum(start.sent < act.done for start in starts):
                if (window, act.found) in given or not window and act.found <= base:
                    yield self.fault(act, "%d" % act.found, "a number that nobody else got in this window: %s" % (
                        given.get((window, act.found), base)))
                given[window, act.found] = act
        unknown = sum(act.done is None for act in acts)
        most = max([base] + [act.found for act in done]) + unknown
        if look.found > most:
            yield self.fault(look, "%d" % look.found, "%d at most" % most)
        if starts and not promise.may_lose:
            until = starts[-1].sent + starts[-1].given - FRACTION_S - EARLY_S * promise.is_stopped
            last = max((act.found for act in done if act.sent > starts[-1].done), default=1)
            if look.done < until and look.found < last:
                yield self.fault(look, "%d" % look.found, "%d at least, until %.6f" % (last, until))
        self.base[self.FIXED] = look.found

    def sliding_faults(self, acts, look, promise):
        """No more were let in than the limit within any window, and those that were are in the set."""
        let_in = self.base.get(self.SLIDING, [])
        let_in = sorted(let_in + [(act.found, act.given[1], act) for act in acts if act.done is not None and act.found])
        for first, last in zip(let_in, let_in[self.LIMIT:]):
            if last[0] - first[0] < self.SLIDING_MS:
                yield self.fault(last[2], "let in at %d" % last[0], "refused: %d were since %d" % (
                    self.LIMIT, first[0]))
        latest = max([act.given[0] for act in acts] + [row[0] for row in let_in], default=0)
        let_in = [row for row in let_in if row[0] > latest - self.SLIDING_MS]
        found = dict(look.found)
        may_be = {row[1] for row in let_in} | {act.given[1] for act in acts if act.done is None or act.found}
        for member in set(found) - may_be:
            yield self.fault(look, "the member %r" % member, "nobody who was not let in since the last look")
        if found or not promise.may_lose:
            for score, member, act in let_in:
                if found.get(member) != score:
                    yield self.fault(look, "%r at %s" % (member, found.get(member)), "%d, as it was let in" % score)
        known = {member: act for _, member, act in let_in}
        self.base[self.SLIDING] = [(score, member, known.get(member, look)) for member, score in look.found]
