#!/usr/bin/env python3
"""Random requests of RESP, for the differential test of RESP: mostly valid ones, with few keys, so that they meet."""

import shlex
import time

from resp_collections import NEVER_CHANGED, Collections


def texts(*lines):
    """Requests written as lines of words, as in a shell."""
    return tuple([word.encode("latin-1") for word in shlex.split(line)] for line in lines)


NUMBERS = (b"0", b"1", b"-1", b"2", b"10", b"100", b"-100", b"9223372036854775807", b"-9223372036854775808",
           b"9223372036854775808", b"01", b"+1", b" 1", b"1 ", b"", b"1.5", b"abc", b"-0", b"3")
DECIMALS = (b"0", b"1.5", b"-2.25", b"0.1", b"3.0e3", b"1e400", b"-1e400", b"1e5000", b"inf", b"-inf", b"nan",
            b"0x10", b"abc", b" 1", b"1 ", b"", b".5", b"5.", b"1e-17", b"1e-5000", b"123456789012345678901234567890",
            b"0.30000000000000004")
VALUES = (b"", b"a", b"hello", b"10", b"-5", b"9223372036854775807", b"12.5", b"\x00\xff\x80", b"foobar",
          b"x" * 44, b"x" * 45, b"y" * 1000, b"z" * 17000, b"0" * 20, b"line\r\nline", b"1e3", b"007")
PATTERNS = (b"*", b"k*", b"*a*", b"?*", b"[kx]*", b"k[^a]", b"\\k*", b"nothing", b"", b"k[a-c]", b"*1", b"K*")
KEYS = (b"ka", b"kb", b"kc", b"x", b"", b"bin\x00\r\n\xff", b"L" * 251, b"L" * 246, b"M" * 3000, b"{t}1", b"{t}2")
USUAL_KEYS = KEYS[:4]
FAR_MS = b"9223372036854775807"
FAR_S = b"9223372036854775"

CLIENT = texts(
    "CLIENT GETNAME", "CLIENT SETNAME name", "CLIENT SETNAME 'na me'", "CLIENT SETNAME ''",
    "CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO nonsense lib", "CLIENT SETINFO lib-ver '1 2'", "CLIENT NO-TOUCH on",
    "CLIENT NO-TOUCH off", "CLIENT NO-EVICT x", "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT UNBLOCK 99999",
    "CLIENT UNBLOCK x", "CLIENT UNBLOCK 1 x", "CLIENT nonsense", "CLIENT KILL 1.2.3.4:5", "CLIENT KILL ID 99999999",
    "CLIENT KILL ID 0", "CLIENT KILL TYPE x", "CLIENT KILL TYPE pubsub", "CLIENT LIST TYPE x", "CLIENT TRACKING off",
    "CLIENT TRACKING x", "CLIENT CACHING yes")
SERVER = texts(
    "ROLE", "HELLO x", "HELLO 4", "HELLO 2 nonsense", "HELLO 3 SETNAME 'a b'", "SLOWLOG GET -2", "SLOWLOG nonsense",
    "LATENCY LATEST", "LATENCY HISTORY command", "LATENCY RESET", "LATENCY GRAPH x", "CLUSTER SLOTS", "ASKING",
    "ACL WHOAMI", "FLUSHALL nonsense", "FLUSHDB ASYNC x", "MEMORY USAGE nothing", "MEMORY USAGE a SAMPLES",
    "OBJECT nonsense", "OBJECT FREQ nothing", "OBJECT IDLETIME nothing", "nonsense a", "DISCARD", "EXEC", "UNWATCH",
    "COMMAND GETKEYS GET a", "COMMAND GETKEYS MSET a 1 b 2", "COMMAND GETKEYS PING", "COMMAND GETKEYS nonsense a",
    "COMMAND GETKEYS GET", "COMMAND GETKEYS COPY a b REPLACE", "CONFIG GET nonsense", "CONFIG SET nonsense 1",
    "CONFIG RESETSTAT", "CONFIG SET maxmemory x", "CONFIG nonsense")
LOGINS = texts("AUTH a b c", "AUTH default x", "AUTH x")
OTHERS = texts(
    "PING", "PING hello", "PING a b", "SELECT 0", "SELECT x", "SELECT -1", "SELECT 99999999999", "SWAPDB 0 0",
    "SWAPDB 0 1", "SWAPDB 1 0", "SWAPDB x 0", "SWAPDB 0 x", "WAIT 0 0", "WAIT 0 10", "WAIT 0 -1", "WAIT 0 x", "SCAN x",
    "SCAN -1", "SCAN 1.5",
    "SCAN '1 '", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 MATCH", "SCAN 0 NOVALUES", "SCAN 0 nonsense 1", "DBSIZE",
    "RANDOMKEY", "PUBLISH channel message", "SPUBLISH channel message", "PUBSUB CHANNELS", "PUBSUB CHANNELS a b",
    "PUBSUB NUMSUB", "PUBSUB NUMSUB a b", "PUBSUB NUMPAT", "PUBSUB SHARDCHANNELS", "PUBSUB SHARDNUMSUB a",
    "PUBSUB nonsense")
FLUSHES = texts("FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "FLUSHDB sync")

# How many of a hundred cases are about strings and about collections, and the share of collections in each.
CASES = (60, 40)
COLLECTIONS_SHARES = (0.03, 0.85)

# Executes the request that follows.
SCRIPT = [b"EVAL", b"return redis.pcall(unpack(ARGV))", b"0"]


class Chooser:
    """Makes the requests of a case."""

    def __init__(self, chance, is_valkey, with_field_times=False):
        self.chance = chance
        self.is_valkey = is_valkey
        self.collections_share = chance.choices(COLLECTIONS_SHARES, CASES)[0]
        self.collections = Collections(self, with_field_times)
        self.makers = self.by_key() + self.by_several_keys() + self.of_times() + self.of_parts() + self.without_keys()

    def pick(self, usual, unusual=(), seldom=0.06):
        """One of `usual`, or seldom one of `unusual`."""
        return self.chance.choice(unusual if unusual and self.chance.random() < seldom else usual)

    def key(self):
        """A key."""
        if self.chance.random() < self.collections_share / 3:
            return self.collections.any_key()
        return self.pick(USUAL_KEYS, KEYS, 0.2)

    def keys(self, most):
        """Some keys."""
        return [self.key() for _ in range(self.chance.randint(1, most))]

    def pairs(self, most):
        """Some keys with values."""
        return [word for key in self.keys(most) for word in (key, self.value())]

    def number(self):
        """A whole number, or what is none."""
        return self.pick((b"1", b"2", b"10", b"-3", b"100"), NUMBERS, 0.3)

    def decimal(self):
        """A number with a fraction, or what is none."""
        return self.pick(DECIMALS)

    def value(self):
        """A value."""
        return self.pick(VALUES)

    # Seldom the same time twice: which of two times is later would depend on the milliseconds between the servers.

    def seconds(self):
        """A lifetime in seconds."""
        wrong = (b"0", b"-1", b"abc", FAR_MS, FAR_S, b"1.5", b"-9223372036854775808", b"-9223372036854776")
        return self.pick([b"%d" % self.chance.randint(100, 99999)], wrong, 0.25)

    def milliseconds(self):
        """A lifetime in milliseconds."""
        wrong = (b"0", b"-5", b"x", FAR_MS, b"-9223372036854775808")
        return self.pick([b"%d" % self.chance.randint(100000, 99999999)], wrong, 0.2)

    def unix_seconds(self):
        """A time in seconds."""
        wrong = (b"0", b"-1", b"1", b"x", FAR_MS, b"4102444800")
        return self.pick([b"%d" % (int(time.time()) + self.chance.randint(100, 99999))], wrong, 0.25)

    def unix_milliseconds(self):
        """A time in milliseconds."""
        wrong = (b"0", b"-1", b"1", b"x", b"9223372036854775808")
        return self.pick([b"%d" % (int(time.time()) * 1000 + self.chance.randint(100000, 99999999))], wrong, 0.25)

    def expiry_option(self):
        """The words of a time."""
        kind = self.chance.choice((b"EX", b"PX", b"EXAT", b"PXAT", b"ex"))
        maker = {b"EX": self.seconds, b"PX": self.milliseconds, b"EXAT": self.unix_seconds,
                 b"PXAT": self.unix_milliseconds}[kind.upper()]
        return [kind, maker()] if self.chance.random() < 0.95 else [kind]

    def set_options(self):
        """What follows the value of a SET."""
        words = []
        if self.chance.random() < 0.5:
            words += self.expiry_option()
        for share, choices in ((0.15, (b"KEEPTTL",)), (0.35, (b"NX", b"XX", b"xx", b"nx")), (0.3, (b"GET", b"get"))):
            if self.chance.random() < share:
                words.append(self.chance.choice(choices))
        if self.is_valkey and self.chance.random() < 0.2:
            words += [b"IFEQ", self.value()]
        if self.chance.random() < 0.05:
            words.append(self.chance.choice((b"NX", b"XX", b"nonsense", b"EX", b"PERSIST", b"GET", b"")))
        return words

    def getex_options(self):
        """What follows the key of a GETEX."""
        if self.chance.random() < 0.7:
            return self.expiry_option()
        return self.pick(([b"PERSIST"], []), ([b"KEEPTTL"], [b"PERSIST", b"EX", b"1"]))

    def expire_options(self):
        """What follows the time of an EXPIRE."""
        words = []
        while self.chance.random() < 0.3:
            words.append(self.pick((b"NX", b"XX", b"GT", b"LT", b"gt"), (b"nonsense", b"")))
        return words

    def copy_options(self):
        """What follows the keys of a COPY."""
        usual = ([], [b"REPLACE"], [b"DB", self.database()], [b"replace", b"DB", self.database()])
        return self.pick(usual, ([b"DB", b"-1"], [b"DB", b"x"], [b"nonsense"], [b"DB"]))

    def database(self):
        """The number of a database."""
        return self.pick((b"0", b"0", b"1", b"2"), (b"-1", b"x", b"15", b"16"))

    def bit_range(self):
        """What follows the key of a BITCOUNT."""
        words = []
        if self.chance.random() < 0.6:
            words.append(self.number())
            # Redis wants an end too, and looks at the words in another order.
            if self.chance.random() < 0.9 or not self.is_valkey:
                words.append(self.number())
                if self.chance.random() < 0.4:
                    words.append(self.pick((b"BIT", b"BYTE", b"bit"), (b"nonsense",) if self.is_valkey else ()))
        return words

    def bit(self):
        """The number of a bit."""
        return self.pick((b"0", b"1", b"7", b"8", b"100", b"4000"), (b"-1", b"4294967296", b"x", b"1.5"))

    def offset(self):
        """An offset into a value."""
        return self.pick((b"0", b"1", b"5", b"100"), (b"-1", b"x", b"536870912", FAR_MS))

    # Each of the following returns pairs of a weight and a function that makes a request.

    def by_key(self):
        """Requests on the value of one key."""
        key, value = self.key, self.value
        return (
            (8, lambda: [b"GET", key()]),
            (10, lambda: [b"SET", key(), value()] + self.set_options()),
            (3, lambda: [b"SETNX", key(), value()]),
            (2, lambda: [b"SETEX", key(), self.seconds(), value()]),
            (2, lambda: [b"PSETEX", key(), self.milliseconds(), value()]),
            (2, lambda: [b"GETSET", key(), value()]),
            (2, lambda: [b"GETDEL", key()]),
            # Redis wants a number even where there is no key.
            (3 if self.is_valkey else 0, lambda: [b"GETEX", key()] + self.getex_options()),
            (3, lambda: [b"APPEND", key(), value()]),
            (2, lambda: [b"STRLEN", key()]),
            (4, lambda: [self.pick((b"INCR", b"DECR")), key()]),
            (4, lambda: [self.pick((b"INCRBY", b"DECRBY")), key(), self.number()]),
            (3, lambda: [b"INCRBYFLOAT", key(), self.decimal()]),
            (2 if self.is_valkey else 0, lambda: [b"DELIFEQ", key(), value()]),
            (2, lambda: [b"TYPE", key()]),
            (2, lambda: [b"OBJECT", b"ENCODING", key()]),
            (1, lambda: [b"OBJECT", b"REFCOUNT", key()]),
        )

    def by_several_keys(self):
        """Requests on several keys."""
        return (
            (3, lambda: [b"MGET"] + self.keys(5)),
            (2, lambda: [b"MSET"] + self.pairs(4)),
            (2, lambda: [b"MSETNX"] + self.pairs(3)),
            (3, lambda: [self.pick((b"DEL", b"UNLINK"))] + self.keys(4)),
            (2, lambda: [self.pick((b"EXISTS", b"TOUCH"))] + self.keys(4)),
            (2, lambda: [b"RENAME", self.key(), self.key()]),
            (2, lambda: [b"RENAMENX", self.key(), self.key()]),
            (2, lambda: [b"COPY", self.key(), self.key()] + self.copy_options()),
            (2, lambda: [b"KEYS", self.pick(PATTERNS)]),
            (2, lambda: [b"MOVE", self.key(), self.database()]),
        )

    def of_times(self):
        """Requests on what is left of a lifetime."""
        shown = (b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME")
        return (
            (4, lambda: [b"EXPIRE", self.key(), self.seconds()] + self.expire_options()),
            (3, lambda: [b"PEXPIRE", self.key(), self.milliseconds()] + self.expire_options()),
            (2, lambda: [b"EXPIREAT", self.key(), self.unix_seconds()] + self.expire_options()),
            (2, lambda: [b"PEXPIREAT", self.key(), self.unix_milliseconds()] + self.expire_options()),
            (4, lambda: [self.pick(shown), self.key()]),
            (2, lambda: [b"PERSIST", self.key()]),
        )

    def of_parts(self):
        """Requests on parts of a value."""
        return (
            (3, lambda: [self.pick((b"GETRANGE", b"SUBSTR")), self.key(), self.number(), self.number()]),
            (3, lambda: [b"SETRANGE", self.key(), self.offset(), self.value()]),
            (2, lambda: [b"SETBIT", self.key(), self.bit(), self.pick((b"0", b"1"), (b"2", b"x"))]),
            (2, lambda: [b"GETBIT", self.key(), self.bit()]),
            (2, lambda: [b"BITCOUNT", self.key()] + self.bit_range()),
            (2, lambda: [b"BITPOS", self.key(), self.pick((b"0", b"1"), (b"2", b"x"))] + self.bit_range()),
        )

    def without_keys(self):
        """Requests on the connection and on the server."""
        # Redis 8.0 leaves an AUTH that fails behind a SET in one packet without a reply.
        return (
            (4, lambda: self.pick(OTHERS)),
            (2, lambda: self.pick(CLIENT)),
            (3, lambda: self.pick(SERVER + (LOGINS if self.is_valkey else ()))),
            (1, lambda: self.pick(FLUSHES)),
            (1, lambda: [b"ECHO", self.value()]),
            (4, lambda: [b"SELECT", self.database()]),
        )

    def request(self):
        """The words of a request."""
        chance = self.chance
        makers = self.collections.makers if chance.random() < self.collections_share else self.makers
        words = list(chance.choices(makers, [weight for weight, _ in makers])[0][1]())
        # Redis and Valkey refuse these with other words, or not at all.
        is_fixed = words[:2] == [b"CONFIG", b"SET"] or words[0][:3] in (b"BIT", b"CLI") and not self.is_valkey
        is_fixed = is_fixed or words[0] in NEVER_CHANGED
        if chance.random() < 0.03 and not is_fixed:
            words = words[:-1] if len(words) > 1 and chance.random() < 0.5 else words + [self.value()]
        if chance.random() < 0.1:
            words[0] = words[0].lower()
        return SCRIPT + words if chance.random() < 0.06 else words
