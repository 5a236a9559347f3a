"""What holds of tags and values, whatever clients do to them at the same time; and what all rules share.

Each rule has steps, which clients do, and a check of all that they did between two moments at which nobody did
anything. What was there at the first of them is the rule's `base`, what was there at the second are its `looks`.
"""

import collections
import math
import random
import time

import packets
from invariants_support import Act, Client, Fault, Register, one_of

# Times are kept in milliseconds without their fractions, so a lifetime may be shorter by so much.
FRACTION_S = 0.002
# The clock of a process that takes the items over may be early by less than a second.
EARLY_S = 1.05


class Rule:
    """What clients and the check share: the notes of what was done, and values that exist once."""

    name = ""

    def __init__(self, who, seed):
        self.who, self.chance = who, random.Random("%s %s %d" % (self.name, who, seed))
        self.client, self.acts, self.number = None, [], 0
        self.base, self.notes = {}, collections.Counter()

    def fresh(self):
        """A value that nobody else writes."""
        self.number += 1
        return b"%b.%d" % (self.who.encode(), self.number)

    def note(self, key, what, way, given, call):
        """Does something, and notes what it was and what was found."""
        act = Act(key, what, way, given, self.who)
        self.acts.append(act)
        act.sent = time.monotonic()
        act.found = call()
        act.done = act.end = time.monotonic()
        return act

    def choice(self, ways):
        """The name of a way, and the way."""
        way = self.chance.choice(list(ways))
        return way, ways[way]

    def read(self, key):
        """Reads a key in any way."""
        way, call = self.choice(Client.READS)
        return self.note(key, "read", way, None, lambda: call(self.client, key))

    def store(self, key, value):
        """Stores a value in any way."""
        way, call = self.choice(Client.STORES)
        return self.note(key, "write", way, value, lambda: call(self.client, key, value) and None)

    def delete(self, key):
        """Deletes a key in any way."""
        way, call = self.choice(Client.DELETES)
        return self.note(key, "delete", way, None, lambda: call(self.client, key) and None)

    def step(self):
        """One thing that a client does, or a few."""
        raise NotImplementedError

    def prepare(self):
        """Makes what is not there at a start."""

    def look(self):
        """Reads every key while nobody does anything."""

    def faults(self, acts, looks, promise):
        """What was wrong. `promise` says what a start of the server may have lost: see `Promise`."""
        raise NotImplementedError

    def fault(self, act, seen, expected):
        """A fault of this rule."""
        return Fault(self.name, act, seen, expected)


class Promise:
    """What the server promises of the moment before the looks: `all` is there; `some`, and no older value; `none`.

    `is_stopped` says whether a process has ended there, and `is_cut` whether it was killed, in the middle of anything.
    `stopping` is when it was told to end: connections are closed one by one then.
    """

    def __init__(self, kept="all", is_stopped=False, is_cut=False, stopping=math.inf):
        self.kept, self.is_stopped, self.is_cut, self.stopping = kept, is_stopped, is_cut, stopping
        self.may_lose = kept != "all"


def by_key(acts):
    """Acts by their keys."""
    found = collections.defaultdict(list)
    for act in acts:
        found[act.key].append(act)
    return found


def base_of(look):
    """What a look found, as an act of before."""
    return Act(look.key, "write" if look.found is not None else "delete", "base", look.found, look.who, None, look.sent,
               look.done)


class Tags(Rule):
    """Nobody sees a value of a tag that was written before the tag was invalidated, and what is there has its tag."""

    name = "tags"
    TAGS = [b"tag0", b"tag1"]
    KEYS = {tag: [b"%b:k%d" % (tag, number) for number in range(4)] for tag in TAGS}
    ALL = [key for keys in KEYS.values() for key in keys]
    STORE = b"redis.call('SET', KEYS[2], ARGV[1]) return redis.call('SADD', KEYS[1], KEYS[2])"
    # Its keys are named, because with flash a script cannot wait for others once it has changed something.
    INVALIDATE = b"""for _, key in ipairs(redis.call('SMEMBERS', KEYS[1])) do redis.call('DEL', key) end
        return redis.call('DEL', KEYS[1])"""
    INVALIDATE_AT_ONCE = b"""local keys = redis.call('SMEMBERS', KEYS[1])
        if #keys > 0 then redis.call('UNLINK', unpack(keys)) end return redis.call('DEL', KEYS[1])"""
    WITHOUT_TAG = b"""local found = {}
        for at = 2, #KEYS do
            if redis.call('EXISTS', KEYS[at]) == 1 and redis.call('SISMEMBER', KEYS[1], KEYS[at]) == 0 then
                found[#found + 1] = KEYS[at]
            end
        end return found"""

    def invalidate_watched(self, tag):
        """By `WATCH`: whether nobody came between."""
        self.client.ask(b"WATCH", tag)
        keys = self.client.ask(b"SMEMBERS", tag)
        return self.client.transaction(*[(b"DEL", key) for key in keys], (b"DEL", tag)) is not None

    INVALIDATIONS = {
        "EVAL": lambda self, tag: self.client.run(self.INVALIDATE, [tag, *self.KEYS[tag]]) is not None,
        "UNLINK in EVAL": lambda self, tag: self.client.run(
            self.INVALIDATE_AT_ONCE, [tag, *self.KEYS[tag]]) is not None,
        "WATCH": invalidate_watched,
    }

    def replace_cas(self, key, value):
        """Replaces what is there by its CAS number."""
        found, cas = self.client.gets(key)
        return found is not None and one_of(self.client.store(b"cas %b 0 0 %d %d" % (key, len(value), cas), value),
                                            b"STORED", b"EXISTS", b"NOT_FOUND") == b"STORED"

    WRITES = {
        "SET, SADD in EVAL": lambda self, tag, key, value: self.client.run(self.STORE, [tag, key], value) < 2,
        "SET, SADD in MULTI": lambda self, tag, key, value: len(self.client.transaction(
            (b"SET", key, value), (b"SADD", tag, key))) == 2,
        "SADD, SET in MULTI": lambda self, tag, key, value: len(self.client.transaction(
            (b"SADD", tag, key), (b"SET", key, value))) == 2,
        # These store only where something is, which has its tag.
        "SET XX": lambda self, tag, key, value: self.client.ask(b"SET", key, value, b"XX") is not None,
        "replace": lambda self, tag, key, value: one_of(
            self.client.store(b"replace %b 0 0 %d" % (key, len(value)), value),
            b"STORED", b"NOT_STORED") == b"STORED",
        "binary replace": lambda self, tag, key, value: self.client.binary_store(key, value, 0x03),
        "cas": lambda self, tag, key, value: self.replace_cas(key, value),
    }

    def step(self):
        tag, roll = self.chance.choice(self.TAGS), self.chance.random()
        key = self.chance.choice(self.KEYS[tag])
        if roll < 0.3:
            way, call = self.choice(self.WRITES)
            value = self.fresh()
            self.note(key, "write", way, value, lambda: call(self, tag, key, value))
        elif roll < 0.5:
            self.read(key)
        elif roll < 0.7:
            self.read_all()
        elif roll < 0.75:
            self.delete(key)
        elif roll < 0.85:
            self.look_for_untagged(tag)
        else:
            way, call = self.choice(self.INVALIDATIONS)
            self.note(tag, "invalidate", way, None, lambda: call(self, tag))

    def read_all(self):
        """Reads every key by one request."""
        way, call = self.choice({
            "get of many": lambda: self.client.multiget(self.ALL),
            "MGET of many": lambda: self.client.ask(b"MGET", *self.ALL),
            "MGET in MULTI": lambda: self.client.transaction((b"MGET", *self.ALL))[0]})
        sent = time.monotonic()
        found = call()
        done = time.monotonic()
        self.acts += [Act(key, "read", way, None, self.who, value, sent, done) for key, value in zip(self.ALL, found)]

    def look_for_untagged(self, tag):
        """Looks for keys without their tag."""
        self.note(tag, "without its tag", "EVAL", None,
                  lambda: self.client.run(self.WITHOUT_TAG, [tag, *self.KEYS[tag]]))

    def look(self):
        for tag in self.TAGS:
            for key in self.KEYS[tag]:
                self.read(key)
            self.look_for_untagged(tag)

    def prepare(self):
        # After a loss, values may be there whose tag is not.
        for tag in self.TAGS:
            for key in self.client.run(self.WITHOUT_TAG, [tag, *self.KEYS[tag]]):
                self.base[key] = base_of(self.note(key, "delete", "DEL", None, lambda: self.client.ask(b"DEL", key)
                                                   and None))

    def faults(self, acts, looks, promise):
        wrong = []
        acts, looks = by_key(acts), by_key(looks)
        for tag, keys in self.KEYS.items():
            invalidations = []
            for act in acts[tag]:
                if act.what == "invalidate" and act.found is not False:
                    deleted = Act(tag, "delete", act.way, sent=act.sent, done=act.done)
                    deleted.end = act.end
                    invalidations.append(deleted)
            for act in acts[tag] + looks[tag]:
                if act.what == "without its tag" and act.found:
                    if act in looks[tag] and (promise.may_lose or promise.is_cut and all(
                            any(write.done is None for write in acts[key]) for key in act.found)):
                        self.notes["keys whose tag was cut off by a kill"] += not promise.may_lose
                        continue
                    wrong.append(self.fault(act, "%r" % act.found, "no key without its tag"))
            for key in keys:
                known = [self.base[key]] if key in self.base else []
                register = Register(known + acts[key] + invalidations)
                for read in acts[key] + looks[key]:
                    if read.what == "read" and read.done is not None:
                        told = register.wrong(read, promise.may_lose and read in looks[key])
                        if told:
                            near = [act for act in acts[tag] if act.what == "invalidate" and act.sent < read.done]
                            wrong.append(self.fault(read, told[0], "%s; the last invalidations: %s" % (
                                told[1], "; ".join(map(str, near[-3:])))))
                self.base[key] = base_of(looks[key][-1])
        return wrong


class Values(Rule):
    """A value is whole, what a transaction writes is seen together, and what nobody completed is never seen."""

    name = "values"
    KEYS = [b"whole0", b"whole1"]
    PAIR = [b"pair0", b"pair1"]
    # Nobody but `prepare` writes it, and clients that die do not complete what they send for it.
    STEADY = b"steady0"
    SIZES = (10, 1000, 20_000, 100_000)

    @staticmethod
    def value_of(key, ident, size):
        """A value that tells its key, and its end from its beginning."""
        return b"%b=%b;%b;%d" % (key, ident, b"x" * size, size)

    def is_whole(self, key, value):
        """Whether a value is one of these, and not one that was never completed."""
        parts = value.split(b";")
        return len(parts) == 3 and parts[0].startswith(key + b"=") and b"never" not in parts[0] and parts[2] == (
            b"%d" % len(parts[1])) and not parts[1].strip(b"x")

    def store_in_pieces(self, key, value):
        """Stores a value whose request comes in pieces, in one of the protocols."""
        way = self.chance.choice(("set", "binary set", "SET"))
        connection, request = {
            "set": (self.client.text, b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value)),
            "binary set": (self.client.binary, packets.store(key, value)),
            "SET": (self.client.resp, b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
                len(key), key, len(value), value))}[way]

        def send():
            cuts = sorted(self.chance.randrange(len(request)) for _ in range(3))
            for start, end in zip([0] + cuts, cuts + [len(request)]):
                connection.send(request[start:end])
            return packets.receive(connection).status == 0 if way == "binary set" else one_of(
                connection.line(), b"STORED", b"+OK") is not None
        self.note(key, "write", way + " in pieces", value[:30], send)

    PAIR_WRITES = {
        "SET in MULTI": lambda self, values: self.client.transaction(
            *[(b"SET", key, value) for key, value in zip(self.PAIR, values)]),
        "MSET in MULTI": lambda self, values: self.client.transaction(
            (b"MSET", self.PAIR[0], values[0], self.PAIR[1], values[1])),
        "SET in EVAL": lambda self, values: self.client.run(
            b"redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[2])", self.PAIR, *values),
    }
    PAIR_READS = {
        "GET in MULTI": lambda self: self.client.transaction(*[(b"GET", key) for key in self.PAIR]),
        "MGET in MULTI": lambda self: self.client.transaction((b"MGET", *self.PAIR))[0],
        "GET in EVAL": lambda self: self.client.run(
            b"return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}", self.PAIR),
    }

    def step(self):
        roll, key = self.chance.random(), self.chance.choice(self.KEYS)
        if roll < 0.2:
            self.store_in_pieces(key, self.value_of(key, self.fresh(), self.chance.choice(self.SIZES)))
        elif roll < 0.4:
            self.read_whole(key)
        elif roll < 0.5:
            self.read_whole(self.STEADY)
        elif roll < 0.75:
            self.write_pair()
        else:
            self.read_pair()

    def read_whole(self, key):
        """Reads a value; what is noted of it is its beginning, and whether it is whole."""
        def read():
            value = call(self.client, key)
            return value and (value[:30], self.is_whole(key, value))
        way, call = self.choice(Client.READS)
        self.note(key, "read whole", way, None, read)

    def write_pair(self):
        """Writes two keys together."""
        ident, size = self.fresh(), self.chance.choice((1, 100, 5000))
        values = [self.value_of(b"pair", ident, size) for _ in self.PAIR]
        way, call = self.choice(self.PAIR_WRITES)
        self.note(self.PAIR[0], "write pair", way, values[0][:30], lambda: call(self, values) and None)

    def read_pair(self):
        """Reads two keys together."""
        def read():
            values = call(self)
            # What a script returns ends with the first value that is not there.
            values = (values + [None, None])[:2]
            return [value and (value[:30], self.is_whole(b"pair", value)) for value in values]
        way, call = self.choice(self.PAIR_READS)
        self.note(self.PAIR[0], "read pair", way, None, read)

    def look(self):
        for key in self.KEYS + [self.STEADY]:
            self.read_whole(key)
        self.read_pair()

    def prepare(self):
        self.client.ask(b"SET", self.STEADY, self.value_of(self.STEADY, b"steady", 30_000))
        for key in self.KEYS:
            if self.client.ask(b"EXISTS", key) == 0:
                self.client.ask(b"SET", key, self.value_of(key, b"first", 10))
        self.write_pair()

    def faults(self, acts, looks, promise):
        wrong = []
        for act in acts + looks:
            lost = act in looks and promise.may_lose
            if act.what == "read whole" and act.done is not None:
                if act.found is None and not lost:
                    wrong.append(self.fault(act, "nothing", "a value: nobody deletes it"))
                elif act.found and not act.found[1]:
                    wrong.append(self.fault(act, "%r" % (act.found,), "a whole value"))
            elif act.what == "read pair" and act.done is not None:
                if not all(value is None or value[1] for value in act.found):
                    wrong.append(self.fault(act, "%r" % act.found, "whole values"))
                elif act.found[0] != act.found[1] or act.found[0] is None:
                    if act in looks and promise.is_cut:
                        self.notes["transactions cut off by a kill"] += not lost
                    elif not lost:
                        wrong.append(self.fault(act, "%r" % act.found, "two values that were written together"))
        return wrong
