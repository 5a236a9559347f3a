"""Random conversations in memcached's binary protocol, and how their replies are compared.

`text.py` says what such a module consists of. What the two servers answer differently on purpose is left out:

* an unknown opcode with a key or extras, a touch with a value, `stat` with a value: memcached reads a part of their
  bodies as the next request, or throws a part of the next request away (docs/protocols.md);
* `stat` with the key `detail`: memcached takes bytes that an earlier request left behind the key as the word after it;
* another first byte than 0x80 behind other requests: memcached then drops the replies to those;
* statistics, whose names and values differ, but for those that are an empty list or unknown.
"""

import re
import struct

HEADER = struct.Struct(">BBHBBHIIQ")
VALUE_BYTES_LARGE = 70000
VALUE_BYTES_TOO_LARGE = 1 << 20
NUMBERS = (b"0", b"1", b"9", b"10", b"99", b"100", b"18446744073709551615", b" 5", b"5 ", b"+5", b"-5", b"007", b"",
           b"x1", b"18446744073709551616", b"\t7")
EXPTIMES = (0, 0, 0, 100, 1000, 2592000, 2592001, 0x7fffffff, 0x80000000, 0xffffffff, 4102444800)
DELTAS = (0, 1, 1, 5, 100, 1 << 63, (1 << 64) - 1)
STATS = (b"nonsense", b"reset", b"detail nonsense", b"detail on", b"detail off", b"resetting")
QUIET = {0x00: 0x09, 0x0c: 0x0d, 0x01: 0x11, 0x02: 0x12, 0x03: 0x13, 0x04: 0x14, 0x05: 0x15, 0x06: 0x16, 0x0e: 0x19,
         0x0f: 0x1a, 0x1d: 0x1e, 0x23: 0x24}
UNKNOWN = (0x1b, 0x1f, 0x25, 0x30, 0x3c, 0x40, 0x60, 0xff)
NOOP, VERSION, STAT, GETK = 0x0a, 0x0b, 0x10, 0x0c
OPAQUE_OF_SYNC = 0xfeed0000
# No server gives this number by itself in a test.
CAS_OF_NO_ITEM = 1 << 60
QUIT = re.compile(rb"\x80[\x07\x17]\0{10}", re.DOTALL)


class Cas:
    """Stands for the CAS number that a server shows for a key, plus `more`."""

    def __init__(self, key, more=0):
        self.key, self.more = key, more

    def compose(self, number):
        """The field of a header, for a server that shows this number."""
        return struct.pack(">Q", (number + self.more) % (1 << 64))


class Keys:
    """The keys of one case."""

    def __init__(self, name):
        word = name.encode()
        self.plain = [word + b":" + letter for letter in (b"a", b"b", b" \r\n\0", b"k" * 240)]
        self.numbers = [word + b"#" + letter for letter in (b"m", b"n")]
        self.all = self.plain + self.numbers


def packet(opcode, key=b"", extras=b"", value=b"", cas=None, opaque=0, body_bytes=None):
    """The pieces of a request. The header says `body_bytes` instead of the length of the body, if that is given."""
    body = extras + key + value
    if body_bytes is None:
        body_bytes = len(body)
    header = HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, body_bytes, opaque, 0)
    if cas is None:
        return [header + body]
    return [header[:16], cas if isinstance(cas, Cas) else struct.pack(">Q", cas), body]


def conversation(random, name):
    """The turns of one case."""
    keys = Keys(name)
    return [turn(random, keys) for _ in range(random.randint(2, 8))]


def turn(random, keys):
    """Some commands. Those that count come first: a value that is still on its way to a client is not changed in place
    by memcached, and then does not keep its length."""
    commands = [counting(random, keys) for _ in range(random.choice((0, 0, 1, 2)))]
    makers = (store, store, store, get, get, get, touch, delete, join, around)
    commands += [random.choice(makers)(random, keys) for _ in range(random.randint(1, 10))]
    if random.random() < 0.02:
        commands.append(malformed(random, keys))
    return commands


def some(random, usual, unusual, chance=0.05):
    """One of `usual`, or seldom one of `unusual`."""
    return random.choice(unusual if random.random() < chance else usual)


def loud_or_quiet(random, opcode):
    """The opcode, or its quiet twin."""
    return QUIET[opcode] if random.random() < 0.3 else opcode


def named(random, key):
    """A CAS number for a key: none, the present one, or another one."""
    return some(random, (None,), (Cas(key), Cas(key), Cas(key, 1 << 41), Cas(key, -1), CAS_OF_NO_ITEM), 0.3)


def opaque(random):
    """Four bytes that come back."""
    return random.randrange(OPAQUE_OF_SYNC)


def value_of(random, key):
    """A value for a key."""
    if b"#" in key and random.random() < 0.9:
        return random.choice(NUMBERS)
    unusual = (1025, 2000, 16383, 16385, VALUE_BYTES_LARGE, VALUE_BYTES_LARGE, VALUE_BYTES_TOO_LARGE)
    # Larder looks for no number in a value that it keeps in pieces.
    unusual = (1025, 2000, VALUE_BYTES_TOO_LARGE) if b"#" in key else unusual
    length = some(random, (0, 1, 2, 10, 33, 100, 500), unusual, 0.04)
    # memcached reads a number from beyond a value that has blanks only.
    text = b"a" + bytes(random.randrange(256) for _ in range(40)) + b"v" * length
    return text[:length]


def store(random, keys):
    """Set, add or replace."""
    key = random.choice(keys.all)
    flags = random.choice((0, 1, 5, 65535, 0xffffffff))
    extras = struct.pack(">II", flags, random.choice(EXPTIMES))
    opcode = loud_or_quiet(random, random.choice((1, 1, 1, 2, 3)))
    return packet(opcode, key, extras, value_of(random, key), named(random, key), opaque(random))


def join(random, keys):
    """Append or prepend."""
    key = random.choice(keys.all)
    opcode = loud_or_quiet(random, random.choice((0x0e, 0x0f)))
    return packet(opcode, key, b"", value_of(random, key), named(random, key), opaque(random))


def get(random, keys):
    """A retrieval, with a new expiry perhaps."""
    key = random.choice(keys.all + [b"absent"])
    opcode = random.choice((0x00, 0x00, 0x0c, 0x1d, 0x23))
    extras = struct.pack(">I", random.choice(EXPTIMES)) if opcode in (0x1d, 0x23) else b""
    return packet(loud_or_quiet(random, opcode), key, extras, opaque=opaque(random))


def touch(random, keys):
    """A new expiry."""
    extras = struct.pack(">I", random.choice(EXPTIMES))
    return packet(0x1c, random.choice(keys.all), extras, opaque=opaque(random))


def delete(random, keys):
    """A delete."""
    key = random.choice(keys.all)
    return packet(loud_or_quiet(random, 4), key, cas=named(random, key), opaque=opaque(random))


def counting(random, keys):
    """Increment or decrement."""
    key = random.choice(keys.numbers)
    extras = struct.pack(">QQI", random.choice(DELTAS), random.choice((0, 7, 1 << 63)), random.choice(EXPTIMES))
    return packet(loud_or_quiet(random, random.choice((5, 6))), key, extras, b"", named(random, key), opaque(random))


def around(random, _):
    """A command without an item."""
    choice = random.random()
    if choice < 0.3:
        return packet(NOOP, opaque=opaque(random))
    if choice < 0.5:
        return packet(VERSION, opaque=opaque(random))
    if choice < 0.7:
        return packet(random.choice(UNKNOWN), value=b"v" * random.choice((0, 0, 5, 3000)), opaque=opaque(random))
    if choice < 0.8:
        mechanism = random.choice(((0x20, b"", b""), (0x21, b"PLAIN", b"\0user\0password"), (0x22, b"PLAIN", b"x")))
        return packet(mechanism[0], mechanism[1], b"", mechanism[2], opaque=opaque(random))
    return packet(STAT, random.choice(STATS), opaque=opaque(random))


def malformed(random, keys):
    """A request that ends the connection."""
    key = random.choice(keys.plain)
    return random.choice((
        lambda: packet(0x00, b"k" * 251),
        lambda: packet(0x01, key, b"", b"v"),
        lambda: packet(0x01, b"", bytes(8), b"v"),
        lambda: packet(0x00, key, body_bytes=2),
        lambda: packet(0x01, key, bytes(8), b"v", body_bytes=(1 << 30) + 1),
        lambda: packet(0x05, key, bytes(8)),
        lambda: packet(0x00, key, bytes(4)),
        lambda: packet(0x04, key, b"", b"v"),
        lambda: packet(0x18, key),
        lambda: packet(NOOP, key),
        lambda: packet(VERSION, b"", b"", b"v"),
        lambda: packet(0x07, opaque=5),
        lambda: packet(0x17),
        lambda: packet(0x21, b"", b"", b"v"),
    ))()


def sync(number):
    """A request whose reply is like no other."""
    return packet(NOOP, opaque=OPAQUE_OF_SYNC + number % 0x10000)[0]


def is_synced(record, number):
    """Whether this is the reply to that request."""
    return record[0] == NOOP and record[2] == OPAQUE_OF_SYNC + number % 0x10000


def cas_question(key):
    """Asks for the CAS number of a key."""
    return packet(GETK, key)[0]


def cas_answer(record):
    """The CAS number in the answer, or a number that no item has."""
    return record[6] or CAS_OF_NO_ITEM


class Records:
    """Cuts what a server sends into replies: opcode, status, opaque, extras, key, value, CAS number."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data):
        """More bytes came; returns the replies that are complete."""
        self.buffer += data
        found = []
        while len(self.buffer) >= HEADER.size:
            magic, opcode, key, extras, kind, status, body, mark, cas = HEADER.unpack_from(self.buffer)
            if magic != 0x81 or kind != 0 or key + extras > body:
                raise ValueError("no reply: %r" % bytes(self.buffer[:HEADER.size]))
            end = HEADER.size + body
            if len(self.buffer) < end:
                break
            text = bytes(self.buffer[HEADER.size:end])
            found.append((opcode, status, mark, text[:extras], text[extras:extras + key], text[extras + key:], cas))
            del self.buffer[:end]
        return found


class Comparison:
    """Compares the replies of one case. A CAS number of one server stands for one of the other."""

    def __init__(self):
        self.there, self.back = {0: 0}, {0: 0}

    def differ(self, ours, theirs):
        """Whether two replies say different things."""
        if ours[0] == theirs[0] == VERSION and ours[1] == theirs[1] == 0:
            return ours[2] != theirs[2]
        if ours[:6] != theirs[:6]:
            return True
        x, y = ours[6], theirs[6]
        return self.there.setdefault(x, y) != y or self.back.setdefault(y, x) != x
