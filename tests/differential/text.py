"""Random conversations in memcached's text protocol, classic and meta, and how their replies are compared.

A protocol of the differential test is a module like this one:

* `conversation(random, name)` makes the turns of one case. A turn is a list of commands that are sent together; a
  command is a list of pieces, each of them bytes or a `Cas`. `name` is a word that no other case has, so that the keys
  of cases differ.
* `sync(number)` is a command that is answered with one record like no other, `is_synced(record, number)` knows it.
* `cas_question(key)` and `cas_answer(record)` ask for the CAS number of a key and leave no trace.
* `QUIT` finds a request to close the connection.
* `Records` cuts the bytes that a server sends into records; `Comparison.differ` compares two of them.

What the two servers answer differently on purpose is listed in docs/protocols.md; conversations leave it out.
"""

import base64
import re

VALUE_BYTES_LARGE = 70000
# Numbers that no server gives by itself in a test.
EXPLICIT_CAS = (0, 1 << 40, (1 << 40) + 1, (1 << 64) - 1)
# A number that no item has. Low ones are those of the first items that a server stores.
ABSENT_CAS = 1 << 50
BAD_NUMBERS = (b"", b"x", b"-", b"1x", b"--1", b"99999999999999999999999", b"000000000000000000000000001")
NUMBERS = (b"0", b"1", b"9", b"10", b"99", b"100", b"18446744073709551615", b" 5", b"5 ", b"5 x", b"+5", b"-5", b"007",
           b"", b"x1")
FLAGS = (b"0", b"1", b"5", b"+5", b"65535", b"4294967295", b"4294967296", b"18446744073709551615", b"007")
EXPTIMES = (b"0", b"0", b"0", b"100", b"1000", b"2592000", b"-1", b"+100", b"2592001", b"4294967295", b"2147483648",
            b"4102444800", b"2147483647")
BAD_LENGTHS = (b"x", b"-1", b"-5", b"2147483647", b"99999999999", b"+3", b"0000000000000")
TTLS = (b"0", b"100", b"1000", b"2592000", b"2147483647", b"-1", b"2592001")
RECACHES = (b"0", b"50", b"500", b"5000", b"2000000", b"-1")
# The clocks tick at different moments, and count from when each server started.
SECONDS_APART_MAX = 3
QUIT = re.compile(rb"quit")


class Cas:
    """Stands for the CAS number that a server shows for a key, plus `more`."""

    def __init__(self, key, more=0):
        self.key, self.more = key, more

    def compose(self, number):
        """The word of a request, for a server that shows this number."""
        return b"%d" % max(0, number + self.more)


class Keys:
    """The keys of one case, by what may be done with them.

    Where memcached forgets that a key came in base64 it shows raw bytes, so keys in base64 are neither created by a
    read nor emptied nor extended.
    """

    def __init__(self, name):
        word = name.encode()
        self.plain = [word + b":" + letter for letter in (b"a", b"b", b"c", b"k" * 200)]
        self.numbers = [word + b"#" + letter for letter in (b"m", b"n")]
        self.binary = [word + b"\0" + letter for letter in (b"p", b"\xff ")]
        self.all = self.plain + self.numbers
        self.absent = word + b":absent"


def conversation(random, name):
    """The turns of one case."""
    keys = Keys(name)
    return [turn(random, keys) for _ in range(random.randint(2, 8))]


def turn(random, keys):
    """Some commands. Those that count come first: a value that is still on its way to a client is not changed in place
    by memcached, and then does not keep its length."""
    commands = [counting(random, keys) for _ in range(random.choice((0, 0, 1, 2)))]
    makers = random.choice((CLASSIC, META, CLASSIC + META))
    commands += [random.choice(makers)(random, keys) for _ in range(random.randint(1, 10))]
    # A value whose length is refused is read as commands, and so is what follows it, up to a line end. Whether a line
    # of more than 2048 bytes is one for memcached depends on how it arrives.
    for at, command in enumerate(commands):
        if any(is_refused_length(piece) for piece in command):
            return commands[:at + 1] + [other for other in commands[at + 1:] if all(map(is_short, other))]
    return commands


def is_refused_length(piece):
    """Whether a piece is a length that is none, or ends in one."""
    return not isinstance(piece, Cas) and piece.split(b" ")[-1] in BAD_LENGTHS


def is_short(piece):
    """Whether a piece can be part of a line that is short."""
    return isinstance(piece, Cas) or len(piece) < 1500


# ---- classic ----

def some(random, usual, unusual, chance=0.05):
    """One of `usual`, or seldom one of `unusual`."""
    return random.choice(unusual if random.random() < chance else usual)


def value_of(random, key):
    """A value for a key."""
    if b"#" in key and random.random() < 0.9:
        return random.choice(NUMBERS)
    # Larder looks for no number in a value that it keeps in pieces.
    unusual = (1025, 2000) if b"#" in key else (1025, 2000, 16383, 16385, VALUE_BYTES_LARGE)
    length = some(random, (0, 1, 2, 10, 33, 100, 500), unusual, 0.03)
    if random.random() < 0.1:
        return (b"END\r\nget a\r\n" * (length // 12 + 1))[:length]
    # memcached reads a number from beyond a value that has blanks only.
    text = b"a" + bytes(random.choice(b"abcdefgh \r\n\0") for _ in range(40)) + b"v" * length
    return text[:length]


def line(*words):
    """A line of words, which are bytes or a `Cas`."""
    pieces = []
    for word in words:
        if word is None:
            continue
        if pieces:
            pieces.append(b" ")
        pieces.append(word)
    return pieces + [b"\r\n"]


def noreply(random):
    """Sometimes the word that wants no reply."""
    return some(random, (None,), (b"noreply", b"noreply", b"more"), 0.12)


def store(random, keys):
    """A storage command with its value, or a wrong one."""
    verb = random.choice((b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"))
    key = random.choice(keys.all)
    value = value_of(random, key)
    length = b"%d" % len(value)
    if random.random() < 0.02:
        # The value is then read as commands, and memcached drops its replies when a command is too long.
        value, length = value[:30], random.choice(BAD_LENGTHS)
    key = some(random, (key,), (b"k" * 251,), 0.02)
    words = [verb, key, some(random, FLAGS, (b"x", b"-1", b"18446744073709551616")),
             some(random, EXPTIMES, (b"x", b"9223372036854775808", b"-")), length]
    if verb == b"cas":
        words.append(cas(random, key))
    if random.random() < 0.02:
        words = words[:random.randint(1, 4)]
        return line(*words)
    return line(*words, noreply(random)) + [value, some(random, (b"\r\n",), (b"xx", b"\n\n"), 0.02)]


def cas(random, key):
    """A CAS number for a key: the present one, one beside it, or any."""
    others = (Cas(key, 1 << 41), Cas(key, -1), b"0", b"%d" % ABSENT_CAS, b"x", b"+1", b"-1")
    return some(random, (Cas(key), Cas(key)), others, 0.3)


def get(random, keys):
    """A retrieval."""
    names = [random.choice(keys.all + [keys.absent]) for _ in range(random.choice((1, 1, 1, 2, 5)))]
    verb = random.choice((b"get", b"get", b"gets", b"gat", b"gats"))
    if verb.startswith(b"gat"):
        names.insert(0, some(random, TTLS, BAD_NUMBERS[1:]))
    if random.random() < 0.02:
        names = names[:0]
    return line(verb, *names)


def delete(random, keys):
    """A delete."""
    words = [b"delete", some(random, keys.all, (b"k" * 251,), 0.03), some(random, (None,), (b"0", b"x"), 0.1)]
    return line(*words, noreply(random))


def touch(random, keys):
    """A touch."""
    words = [b"touch", random.choice(keys.all), some(random, TTLS, BAD_NUMBERS[1:])]
    return line(*words[:some(random, (3,), (1, 2))], noreply(random) if len(words) == 3 else None)


def counting(random, keys):
    """An arithmetic command, classic or meta."""
    key = random.choice(keys.numbers + keys.numbers + keys.plain)
    if random.random() < 0.5:
        delta = some(random, (b"0", b"1", b"5", b"91", b"18446744073709551615"), BAD_NUMBERS[1:] + (b"+1", b"-1"))
        return line(random.choice((b"incr", b"decr")), key, delta, noreply(random))
    # memcached loses the flags T and E when the number gets longer.
    changes = random.choice((((b"M", 0.5),), ((b"MD", 1), (b"T", 0.7), (b"E", 0.5))))
    creates = ((b"N", 0.5), (b"J", 0.4)) if key in keys.numbers else ()
    return past_unseen(meta(random, b"ma", key, COUNT_FLAGS + changes + creates, b"ma"))


def other(random, keys):
    """Commands on the server, nonsense, and bare ends of lines."""
    return line(random.choice((
        b"version", b"version x", b"nonsense", b"nonsense noreply", b"", b"x", b"get", b"gets ", b" get a", b" version",
        b"verbosity 0", b" verbosity 0", b"verbosity x", b"verbosity 0 noreply", b"verbosity", b"mn", b"mn x", b"mx a",
        b"slabs automove 1", b"slabs automove 9", b"slabs automove window 2", b"slabs automove ratio x", b"slabs",
        b"slabs reassign 1 1", b"slabs automove 0 noreply", b"lru tune 10 25 0.1 2.0", b"lru tune 50 50 0.1 2.0",
        b"lru tune x 5 0.1 2.0",
        b"lru_crawler tocrawl 5", b"lru_crawler sleep 9999999", b"lru_crawler x",
        b"cache_memlimit 64", b"cache_memlimit 7", b"cache_memlimit x", b"cache_memlimit 2000000000",
        b"cache_memlimit 5000000000", b"flush_all x", b"flush_all x noreply", b"stats nonsense", b"stats detail",
        b"stats cachedump 1", b"stats cachedump x x", b"stats cachedump 900 1", b"shutdown",
        b"extstore x 1", b"delete", b"incr", b"incr a", b"touch a", b"gat 0", b"mg", b"ms a", b"ms a b", b"debugtime 1",
    )))


# ---- meta ----

def flag(random, letter, key, verb):
    """One flag with a value that fits it, or seldom with one that does not."""
    bad = random.random() < 0.03
    if letter in b"TNR":
        # A limit of R is never as far away as an expiry, so a tick of the clock changes nothing.
        usual = RECACHES if letter == b"R" else TTLS
        return letter + (random.choice(BAD_NUMBERS) if bad else random.choice(usual))
    if letter in b"DJ":
        return letter + (random.choice(BAD_NUMBERS) if bad else random.choice((b"0", b"1", b"10", b"99", b"12345")))
    if letter == b"C":
        return [letter, random.choice(BAD_NUMBERS) if bad else cas(random, key)]
    if letter == b"E":
        return letter + (random.choice(BAD_NUMBERS) if bad else b"%d" % random.choice(EXPLICIT_CAS))
    if letter == b"F":
        return letter + (random.choice(BAD_NUMBERS) if bad else random.choice((b"0", b"5", b"4294967295")))
    if letter == b"M":
        modes = {b"ms": (b"S", b"E", b"A", b"P", b"R", b"ADD"), b"ma": (b"I", b"D", b"+", b"-", b"INCR")}
        return letter + (random.choice((b"", b"x", b"1")) if bad else random.choice(modes.get(verb, (b"x", b""))))
    if letter == b"O":
        # memcached looks at the length of an opaque when it has changed an item, and keeps the number of E for another.
        longest = b"o" * (32 if verb == b"md" else 31)
        return letter + (longest if bad else random.choice((b"", b"1", b"abc", b"o" * 31)))
    if letter in b"PL":
        return letter + random.choice((b"", b"hint"))
    return letter


def meta(random, verb, key, chances, known, *before):
    """A meta command: each flag with its chance, in random order, and seldom something that is wrong."""
    flags = [flag(random, letter, key, verb) for letter, chance in chances if random.random() < chance]
    flags += [flag(random, letter, key, verb) for letter in (b"P", b"L") if random.random() < 0.02]
    random.shuffle(flags)
    words = []
    for one in flags:
        words.append(one if isinstance(one, list) else [one])
    if random.random() < 0.03:
        words.append([random.choice((b"Q", b"7", b"t", b"t", b"q", b"S1", b"i"))])
    if random.random() < 0.01 and verb != b"ms":
        words.append([random.choice((b"!", b"\x7f", b"{", b"\xff"))])
    if random.random() < 0.01:
        words += [[b"%c" % letter] for letter in b"vfcskthlquIPLO"]
    pieces = [b" ".join((verb, key) + before)]
    for word in words:
        pieces += [b" ", *word]
    return pieces + [b"\r\n"]


def in_base64(random, keys):
    """A key in base64 with its flag, and the verbs that may be used with it."""
    return base64.b64encode(random.choice(keys.binary)), random.choice((b"mg", b"ms", b"md", b"ma", b"mg"))


COUNT_FLAGS = ((b"q", 0.1), (b"t", 0.4), (b"c", 0.3), (b"v", 0.7), (b"O", 0.2), (b"k", 0.3), (b"D", 0.5),
               (b"C", 0.2))
GET_FLAGS = ((b"v", 0.6), (b"f", 0.3), (b"c", 0.3), (b"s", 0.3), (b"k", 0.3), (b"h", 0.4), (b"l", 0.1), (b"t", 0.3),
             (b"O", 0.2), (b"q", 0.1), (b"u", 0.1), (b"C", 0.1), (b"N", 0.15), (b"R", 0.2), (b"T", 0.15), (b"E", 0.1))
SET_FLAGS = ((b"k", 0.3), (b"O", 0.2), (b"c", 0.3), (b"s", 0.3), (b"q", 0.1), (b"F", 0.4), (b"T", 0.4), (b"C", 0.2),
             (b"E", 0.15), (b"I", 0.15), (b"M", 0.4), (b"N", 0.1))
DELETE_FLAGS = ((b"k", 0.3), (b"O", 0.2), (b"q", 0.1), (b"C", 0.2), (b"E", 0.1), (b"I", 0.4), (b"T", 0.2), (b"x", 0.2),
                (b"F", 0.1))


def without(chances, letters):
    """The chances of all other flags."""
    return tuple(pair for pair in chances if pair[0] not in letters)


def meta_get(random, keys):
    """mg"""
    key = some(random, keys.all + [keys.absent], (b"k" * 251,), 0.02)
    return past_unseen(meta(random, b"mg", key, GET_FLAGS, b"mg"))


def past_unseen(command):
    """A command that does not ask for a time to live in the past, which wraps in memcached."""
    if not any(piece in (b"T-1", b"N-1", b"T2592001", b"N2592001") for piece in command):
        return command
    return [piece for at, piece in enumerate(command) if b"t" not in (piece, *command[at + 1:at + 2] * (piece == b" "))]


def meta_set(random, keys):
    """ms with its value."""
    key = random.choice(keys.all)
    value = value_of(random, key)
    length = b"%d" % len(value)
    if random.random() < 0.02:
        value, length = value[:30], random.choice(BAD_LENGTHS)
    key = some(random, (key,), (b"k" * 251,), 0.02)
    end = some(random, (b"\r\n",), (b"xx",), 0.02)
    # memcached gives the number of E to the next item that the connection stores.
    left_out = (b"E",) if end == b"xx" else ()
    return meta(random, b"ms", key, without(SET_FLAGS, left_out), b"ms", length) + [value, end]


def meta_delete(random, keys):
    """md"""
    return meta(random, b"md", some(random, keys.all, (b"k" * 251,), 0.02), DELETE_FLAGS, b"md")


def meta_binary(random, keys):
    """Any meta command with a key in base64, or the same key as it is."""
    plain = random.choice([key for key in keys.binary if b" " not in key])
    encoded, verb = in_base64(random, keys)
    if random.random() < 0.15:
        return random.choice((line(b"get", plain), line(b"gets", plain), meta(random, b"mg", plain, (
            (b"k", 0.7), (b"v", 0.5), (b"f", 0.5)), b"mg")))
    if random.random() < 0.04:
        encoded = random.choice((b"abc", b"!!!!", b"===="))
    if verb == b"mg":
        command = meta(random, verb, encoded, without(GET_FLAGS, (b"N", b"T", b"C", b"t")), verb)
    elif verb == b"ms":
        value = value_of(random, b"")
        modes = without(SET_FLAGS, (b"M", b"N", b"C"))
        command = meta(random, verb, encoded, modes, verb, b"%d" % len(value))
        return command[:-1] + [b" b", b"\r\n", value, b"\r\n"]
    elif verb == b"md":
        command = meta(random, verb, encoded, without(DELETE_FLAGS, (b"x", b"C")), verb)
    else:
        command = meta(random, verb, encoded, ((b"v", 0.7), (b"k", 0.5), (b"D", 0.3), (b"q", 0.1)), verb)
    return command[:-1] + [b" b", b"\r\n"]


def meta_debug(random, keys):
    """me"""
    key = some(random, keys.all + [keys.absent], (b"k" * 251,), 0.05)
    return line(b"me", key, some(random, (None,), (b"z", b"!"), 0.1))


CLASSIC = [store, store, store, get, get, get, delete, touch, other]
META = [meta_set, meta_set, meta_get, meta_get, meta_get, meta_delete, meta_binary, meta_binary, meta_debug]


# ---- replies ----

def sync(number):
    """A command that is answered with a record like no other."""
    return b"mg sync O%d k\r\n" % number


def is_synced(record, number):
    """Whether this is the answer to `sync(number)`."""
    return record[0] == b"EN O%d ksync" % number


def cas_question(key):
    """Asks for the CAS number of a key and leaves no trace."""
    return b"mg %b c u\r\n" % key


def cas_answer(record):
    """The CAS number in the answer, or a number that no item has."""
    match = re.match(rb"HD c(\d+)", record[0])
    return int(match.group(1)) if match else ABSENT_CAS


class Records:
    """Cuts what a server sends into records: a line without its end, and the value behind it, if there is one."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data):
        """More bytes came; returns the records that are complete."""
        self.buffer += data
        found = []
        while True:
            end = self.buffer.find(b"\n")
            if end < 0:
                return found
            words = bytes(self.buffer[:end]).split()
            length = None
            if words[:1] == [b"VALUE"] and len(words) >= 4:
                length = int(words[3])
            elif words[:1] == [b"VA"] and len(words) >= 2:
                length = int(words[1])
            after = end + 1 + (0 if length is None else length + 2)
            if len(self.buffer) < after:
                return found
            head = bytes(self.buffer[:end])
            found.append((head.removesuffix(b"\r"), None if length is None else bytes(self.buffer[end + 1:after])))
            del self.buffer[:after]


class Comparison:
    """Compares the replies of one case. A CAS number of one server stands for one of the other."""

    def __init__(self):
        self.there, self.back = {}, {}

    def differ(self, ours, theirs):
        """Whether two records say different things."""
        if ours[1] != theirs[1]:
            return True
        a, b = ours[0].split(b" "), theirs[0].split(b" ")
        if a == b:
            # Numbers that are equal by accident have to be known as well.
            return any(self.unequal(x, y) for x, y in self.numbers(a, b))
        if len(a) != len(b) or a[0] != b[0]:
            return True
        if a[0] in (b"VERSION", b"STAT"):
            return a[1] != b[1] if a[0] == b"STAT" else False
        return any(self.words_differ(a[0], at, x, y) for at, (x, y) in enumerate(zip(a, b)))

    def numbers(self, a, b):
        """The CAS numbers of two records."""
        if a[0] == b"VALUE" and len(a) == 5:
            return [(int(a[4]), int(b[4]))]
        if a[0] in (b"HD", b"VA"):
            return [(int(x[1:]), int(y[1:])) for x, y in zip(a, b) if re.match(rb"c\d+$", x)]
        return []

    def unequal(self, x, y):
        """Whether a CAS number is not the one that stood for it before."""
        return self.there.setdefault(x, y) != y or self.back.setdefault(y, x) != x

    def words_differ(self, code, at, x, y):
        """Whether a word of a reply differs in more than time or CAS number may."""
        if code == b"VALUE" and at == 4:
            return self.unequal(int(x), int(y))
        if code == b"ME":
            name, _, value = x.partition(b"=")
            other_name, _, other = y.partition(b"=")
            if name != other_name:
                return True
            if name == b"cas":
                return self.unequal(int(value), int(other))
            if name in (b"cls", b"size", b"la"):
                return False
            return value != other and not (name == b"exp" and near(value, other))
        if code in (b"HD", b"VA", b"EX", b"NF", b"NS") and x[:1] == y[:1]:
            if x[:1] == b"c":
                return self.unequal(int(x[1:]), int(y[1:]))
            if x[:1] in b"tl":
                return not near(x[1:], y[1:])
        return x != y


def near(x, y):
    """Whether two numbers of seconds are as good as equal. -1 is no number of seconds."""
    return x == y or (b"-1" not in (x, y) and abs(int(x) - int(y)) <= SECONDS_APART_MAX)
