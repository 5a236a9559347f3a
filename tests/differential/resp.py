#!/usr/bin/env python3
"""Sends the same random requests of RESP to Larder and to Valkey or Redis, and compares the replies.

    tests/differential/resp.py                            # target/debug/larder serve, .tools/peers/valkey-server
    tests/differential/resp.py --reference PATH/redis-server --seconds 3600
    tests/differential/resp.py --seed 7 --case 1234       # one case again, as a failure names it
    tests/differential/resp.py --field-times              # also lifetimes of the fields of hashes

Replies are compared byte for byte, in RESP2 and in RESP3. What cannot be equal is compared as far as it can be:

* what is left of a lifetime, and the times of the clock, may differ by as much as the servers were asked apart;
* a time beyond 136 years from the start of Larder is taken for that time, and is not tried;
* lists of keys are in an order of their own, and their number may include keys that have expired;
* the members of a set and the fields of a hash are in an order of their own, and a scan of a collection by Larder shows
  all of it at once, where that of Valkey may show a part;
* members and fields that are drawn at random are compared as far as their number and types go;
* a collection may be stored in another way than Valkey's: what it was before decides there. A score of 0 may be -0;
* an unknown command is refused with Larder's own reasons, and COMMAND, INFO, CONFIG, CLIENT LIST and OBJECT FREQ tell
  about another server.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import support  # noqa: E402
from resp_collections import FIELD_TIMES_COMMANDS, TEXTS  # noqa: E402
from resp_requests import SCRIPT, Chooser  # noqa: E402

TIMEOUT_SECONDS = 20.0
# The servers are asked one after the other.
APART_MS = 3000
# Servers count keys that have expired until they meet them, each at another time.
EXPIRED_MAX = 3
CUTS_MAX = 6
SHOWN_BYTES = 300


class Wire:
    """A connection to a server, and the replies that come over it."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def close(self):
        """Ends the connection."""
        self.socket.close()

    def send(self, data, cuts=()):
        """Sends bytes, in pieces that end at `cuts`."""
        ends = list(cuts) + [len(data)]
        start = 0
        for end in ends:
            self.socket.sendall(data[start:end])
            start = end

    def fill(self):
        """Waits for more bytes."""
        more = self.socket.recv(1 << 16)
        if not more:
            raise EOFError("the server closed the connection")
        self.buffer += more

    def line(self):
        """The bytes up to the next line end."""
        while True:
            end = self.buffer.find(b"\r\n")
            if end >= 0:
                line = bytes(self.buffer[:end])
                del self.buffer[:end + 2]
                return line
            self.fill()

    def take(self, count):
        """So many bytes, and the line end behind them."""
        while len(self.buffer) < count + 2:
            self.fill()
        taken = bytes(self.buffer[:count])
        del self.buffer[:count + 2]
        return taken

    def reply(self):
        """The next reply: its type, and its content."""
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind in b"$=!":
            return (kind, None if rest == b"-1" else self.take(int(rest)))
        if kind in b"*~>":
            return (kind, None if rest == b"-1" else tuple(self.reply() for _ in range(int(rest))))
        if kind == b"%":
            return (kind, tuple((self.reply(), self.reply()) for _ in range(int(rest))))
        return (kind, rest)

    def ask(self, *words):
        """The reply to one request."""
        self.send(encode(words))
        return self.reply()


def encode(words):
    """A request as an array of bulk strings."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def encode_inline(words):
    """A request as a line of quoted words."""
    def quoted(word):
        inner = "".join(chr(byte) if 32 < byte < 127 and byte not in b"\"\\" else "\\x%02x" % byte for byte in word)
        return '"%s"' % inner
    return (" ".join(map(quoted, words)) + "\r\n").encode()


# Commands that answer about the server, whose replies are compared only as far as their type goes.
TYPE_ONLY = {b"HELLO", b"SLOWLOG", b"RANDOMKEY", b"MEMORY", b"ROLE", b"COMMAND", b"LATENCY"}
# docs/protocols.md says what Larder bounds.
PATTERN_BYTES_MAX = 1024
TOO_LONG = (b"-", b"ERR the pattern is too long (%d bytes at most)" % PATTERN_BYTES_MAX)
TIMES = {b"TTL": 3, b"PTTL": APART_MS, b"EXPIRETIME": 3, b"PEXPIRETIME": APART_MS}
UNORDERED = {b"KEYS", b"SMEMBERS", b"SINTER", b"SUNION", b"SDIFF", b"SPOP", b"HKEYS", b"HVALS"}
DRAWN = {b"SRANDMEMBER", b"HRANDFIELD", b"ZRANDMEMBER"}
BY_TEXT = {b"ZRANGEBYLEX", b"ZREVRANGEBYLEX", b"ZLEXCOUNT"}
SCANS = {b"SCAN", b"HSCAN", b"SSCAN", b"ZSCAN"}
ENCODINGS = ({b"listpack", b"hashtable"}, {b"intset", b"listpack", b"hashtable"}, {b"listpack", b"skiplist"})
ZEROS = {b"0", b"-0"}


def same(words, ours, theirs, transaction=None):
    """Whether two replies say the same."""
    if words[:len(SCRIPT)] == SCRIPT:
        words = words[len(SCRIPT):]
    name = words[0].upper()
    if ours == theirs or ours == TOO_LONG and max(map(len, words)) > PATTERN_BYTES_MAX:
        return True
    if name == b"EXEC" and transaction and ours[1] and theirs[1] and len(ours[1]) == len(theirs[1]) == len(transaction):
        return all(same(*pair) for pair in zip(transaction, ours[1], theirs[1]))
    if ours[0] != theirs[0]:
        return False
    if ours[0] == b"-":
        return same_error(ours[1], theirs[1])
    if name in UNORDERED:
        return isinstance(ours[1], tuple) and sorted(ours[1]) == sorted(theirs[1])
    if name == b"HGETALL":
        return sorted(pairs(ours[1], ours[0] == b"%")) == sorted(pairs(theirs[1], ours[0] == b"%"))
    if name in SCANS:
        return same_scan(words, ours[1], theirs[1])
    if name in DRAWN:
        return shape(ours) == shape(theirs)
    if is_by_text(words) and words[1] not in TEXTS:
        # Where scores differ, what is between two texts is nobody's promise.
        return True
    if name.startswith(b"Z"):
        return same_scores(ours, theirs)
    if name in FIELD_TIMES_COMMANDS:
        return same_field_times(name, ours[1], theirs[1])
    if name == b"DBSIZE":
        return abs(int(ours[1]) - int(theirs[1])) <= EXPIRED_MAX
    if name in TIMES:
        mine, other = int(ours[1]), int(theirs[1])
        return min(mine, other) >= 0 and abs(mine - other) <= TIMES[name]
    if name == b"OBJECT":
        # Which strings Valkey keeps beside their keys depends on the lengths of both, and a sum of INCRBYFLOAT is text.
        is_long = len(words[-1]) > 64
        both = {ours[1], theirs[1]}
        return (ours[0] in b":_" or is_long or both in ({b"embstr", b"raw"}, {b"embstr", b"int"})
                or any(both <= encodings for encodings in ENCODINGS))
    return name in TYPE_ONLY


def is_by_text(words):
    """Whether a request asks for the members of a sorted set between two texts."""
    return words[0].upper() in BY_TEXT or any(word.upper() == b"BYLEX" for word in words[4:])


def pairs(values, are_paired=False):
    """Values that come in pairs."""
    return values if are_paired else tuple(zip(values[::2], values[1::2]))


def same_scan(words, ours, theirs):
    """Whether one call of Larder shows all that a call of Valkey shows, and no more if that is all."""
    name, asked = words[0].upper(), words[1 if words[0].upper() == b"SCAN" else 2]
    have_values = name == b"ZSCAN" or name == b"HSCAN" and b"NOVALUES" not in [word.upper() for word in words]
    mine, other = [pairs(rows[1][1]) if have_values else rows[1][1] for rows in (ours, theirs)]
    is_all = asked == b"0" and theirs[0][1] == b"0"
    if name == b"SCAN":
        return not is_all or ours[0][1] != b"0" or set(mine) == set(other)
    if name == b"ZSCAN":
        # Valkey writes the scores of a large sorted set with all their digits.
        mine, other = [[(member, float(score[1])) for member, score in rows] for rows in (mine, other)]
    mine, other = set(mine), set(other)
    if ours[0][1] != b"0":
        # Of a large collection each shows a part, and not the same one.
        return theirs[0][1] != b"0" or mine <= other
    return mine == other if is_all else mine >= other or asked != b"0"


def shape(reply):
    """The types of a reply and of what is in it."""
    kind, content = reply
    return (kind, tuple(map(shape, content))) if isinstance(content, tuple) else (kind, content is None)


def same_scores(ours, theirs):
    """Whether two replies say the same with 0 for -0: in a small sorted set Valkey keeps it as a whole number."""
    if isinstance(ours[1], tuple) and isinstance(theirs[1], tuple):
        return (ours[0], len(ours[1])) == (theirs[0], len(theirs[1])) and all(map(same_scores, ours[1], theirs[1]))
    return ours == theirs or ours[0] == theirs[0] and {ours[1], theirs[1]} == ZEROS


def same_field_times(name, ours, theirs):
    """Whether the lifetimes of fields are the same."""
    apart = TIMES.get(name[1:])
    if not apart or not isinstance(ours, tuple) or len(ours) != len(theirs):
        return False
    return all(mine == other or min(int(mine[1]), int(other[1])) >= 0 and abs(int(mine[1]) - int(other[1])) <= apart
               for mine, other in zip(ours, theirs))


def same_error(ours, theirs):
    """Whether two errors mean the same. Larder says why it does not have a command."""
    if b" from script" in ours and (b" from script" in theirs or theirs.startswith(b"ERR unknown subcommand")):
        return True
    for start in (b"ERR unknown command '", b"ERR unknown subcommand"):
        if ours.startswith(start) and theirs.startswith(start):
            return True
    # The words around a name of Redis differ between Redis and Valkey too.
    return ours.split(b" ")[0] == theirs.split(b" ")[0] != b"ERR"


class Case:
    """The turns of a case: lists of requests that are sent together."""

    def __init__(self, seed, number, is_valkey, with_field_times=False):
        self.chance = random.Random("%d/%d" % (seed, number))
        chooser = Chooser(self.chance, is_valkey, with_field_times)
        self.version = self.chance.choice((2, 3))
        self.turns = []
        for _ in range(self.chance.randint(3, 12)):
            turn = [chooser.request() for _ in range(self.chance.randint(1, 12))]
            if self.chance.random() < 0.15:
                # A script in a transaction exchanges no databases.
                turn = [words[len(SCRIPT):] if words[3:4] in ([b"SWAPDB"], [b"swapdb"]) else words for words in turn]
                turn = [[b"MULTI"]] + turn + [[self.chance.choice((b"EXEC", b"EXEC", b"EXEC", b"DISCARD"))]]
                if self.chance.random() < 0.3:
                    turn.insert(0, [b"WATCH", chooser.key()])
            self.turns.append(turn)


class Different(Exception):
    """The servers do not agree."""


class Pair:
    """Two servers."""

    def __init__(self, ports):
        self.ports = ports
        self.wires = None

    def restart(self, version):
        """New connections, to servers without keys."""
        for wire in self.wires or ():
            wire.close()
        self.wires = [Wire(port) for port in self.ports]
        for wire in self.wires:
            wire.ask("FLUSHALL")
            wire.ask("CONFIG", "RESETSTAT")
            wire.ask("HELLO", version)

    def play(self, turns, version, seed):
        """Plays a case; raises Different."""
        self.restart(version)
        chance = random.Random(seed)
        for turn in turns:
            inline = chance.random() < 0.1
            data = b"".join(encode_inline(words) if inline and all(words) else encode(words) for words in turn)
            cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, CUTS_MAX))))
            replies = []
            for wire in self.wires:
                wire.send(data, cuts)
                got = []
                for _ in turn:
                    try:
                        got.append(wire.reply())
                    except (EOFError, OSError) as error:
                        got.append((b"closed", str(error)))
                        break
                replies.append(got)
            transaction = None
            for words, ours, theirs in zip(turn, *replies):
                if words == [b"MULTI"]:
                    transaction = []
                elif transaction is not None and ours == (b"+", b"QUEUED"):
                    transaction.append(words)
                if not same(words, ours, theirs, transaction):
                    raise Different("request  %s\nours     %s\ntheirs   %s" % tuple(map(shown, (words, ours, theirs))))


def shown(value):
    """The head of a value."""
    text = repr(value)
    return text if len(text) < SHOWN_BYTES else text[:SHOWN_BYTES] + "..."


def differs(pair, turns, version, number):
    """What differs when a case is played, or None."""
    try:
        pair.play(turns, version, number)
    except Different as different:
        return str(different)
    return None


def shrink(pair, turns, version, number, text):
    """Takes requests out of a case for as long as it still fails."""
    kept = [(t, c) for t, turn in enumerate(turns) for c in range(len(turn))]

    def subset(places):
        chosen = set(places)
        kept_turns = [[words for c, words in enumerate(turn) if (t, c) in chosen] for t, turn in enumerate(turns)]
        return [turn for turn in kept_turns if turn]
    size = max(1, len(kept) // 2)
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size:]
            found = differs(pair, subset(fewer), version, number) if fewer else None
            if found:
                kept, text = fewer, found
            else:
                start += size
        size //= 2
    return subset(kept), text


class Reference:
    """Valkey or Redis on a port of its own."""

    def __init__(self, path):
        self.port = support.free_port()
        flags = ["--save", "", "--appendonly", "no", "--databases", "16", "--bind", "127.0.0.1"]
        command = [path, "--port", str(self.port)] + flags
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        support.until_no_error(lambda: Wire(self.port).close())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server under test")
    parser.add_argument("--reference", default=os.path.join(support.tools_folder(), "peers", "valkey-server"),
                        help="the server whose answers are right")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one every time")
    parser.add_argument("--case", type=int, default=None, help="only the case of this number")
    parser.add_argument("--failures", type=int, default=3, help="stop after so many")
    parser.add_argument("--field-times", action="store_true", help="also the lifetimes of the fields of hashes")
    return parser.parse_args()


def main():
    """Plays cases until the time is over; returns the exit status."""
    arguments = parse_arguments()
    if not os.path.exists(arguments.reference):
        print("there is no %s (see tests/peers.sh): nothing is compared" % arguments.reference)
        return 1 if support.in_ci() else 0
    is_valkey = "valkey" in os.path.basename(arguments.reference)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print("seed %d" % seed, flush=True)
    failed = cases = commands = 0
    with support.Server(arguments.server) as ours, Reference(arguments.reference) as theirs:
        pair = Pair((ours.port, theirs.port))
        ends = time.monotonic() + arguments.seconds
        number = arguments.case or 0
        while time.monotonic() < ends and failed < arguments.failures:
            case = Case(seed, number, is_valkey, arguments.field_times)
            cases += 1
            commands += sum(map(len, case.turns))
            text = differs(pair, case.turns, case.version, number)
            if text:
                failed += 1
                turns, text = shrink(pair, case.turns, case.version, number, text)
                print("FAIL case %d (--seed %d --case %d, RESP%d)" % (number, seed, number, case.version))
                for turn in turns:
                    print("  turn     %s" % " | ".join(shown(words) for words in turn))
                print("  " + text.replace("\n", "\n  "), flush=True)
            if arguments.case is not None:
                break
            number += 1
        if ours.process.poll() is not None:
            failed += 1
            print("FAIL the server under test ended: %s" % ours.error_text().strip()[-2000:])
    print("%d cases with %d commands" % (cases, commands))
    print("%d passed, %d failed" % (cases - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
