"""What the test of invariants shares: clients that speak every protocol, notes of what they did, and what they saw.

An `Act` is a note of one thing that a client did to a key, with the times between which the server must have done it.
All times are those of the machine's monotonic clock, which is one for all processes.
"""

import bisect
import hashlib
import itertools
import math
import struct

import packets
import support
from resp_support import ask, command, receive

HISTORY_ACTS = 14
SHOWN_BYTES = 60


class Act:
    """What was done to a key, in which way, with what, and what was found.

    `done` is when the answer was there; None where no answer came. Then it may have happened up to `end`, or not.
    """

    __slots__ = ("key", "what", "way", "given", "found", "sent", "done", "end", "who")

    def __init__(self, key, what, way="", given=None, who="", found=None, sent=0.0, done=None):
        self.key, self.what, self.way, self.given, self.found = key, what, way, given, found
        self.sent, self.done, self.end, self.who = sent, done, done, who

    def __str__(self):
        def short(value):
            text = repr(value)
            return text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "..."
        answered = "no answer        " if self.done is None else "answered %.6f" % self.done
        return "sent %.6f, %s  %-6s %s %s (%s) %s -> %s" % (
            self.sent, answered, self.who, self.what, self.key.decode(), self.way, short(self.given), short(self.found))


class Fault:
    """What was seen of a key, what was expected, and the act that saw it."""

    def __init__(self, rule, act, seen, expected):
        self.rule, self.act, self.seen, self.expected = rule, act, seen, expected

    def text(self, acts, about):
        """The fault, with the last acts on the key up to the one that saw it, in the order in which they were sent."""
        until = self.act.done or self.act.end or math.inf
        last = sorted((act for act in acts if act.key == self.act.key and act.sent <= until), key=lambda act: act.sent)
        lines = ["FAIL %s, %s: %s; expected: %s (%s)" % (self.rule, self.act.key.decode(), self.seen, self.expected,
                                                          about)]
        return "\n".join(lines + ["     %s" % act for act in last[-HISTORY_ACTS:]] + ["  >  %s" % self.act])


def good(reply):
    """A reply of RESP that is no error."""
    for one in reply if isinstance(reply, list) else [reply]:
        if isinstance(one, bytes) and one.startswith(b"-"):
            raise AssertionError("an error: %r" % one)
    return reply


def one_of(answer, *allowed):
    """An answer that is allowed."""
    if answer not in allowed:
        raise AssertionError("an answer %r, not one of %r" % (answer, allowed))
    return answer


class Client:
    """A connection for each protocol, and each way to read, to store and to delete a value."""

    def __init__(self, port):
        self.text, self.binary, self.resp = (support.Connection("127.0.0.1", port) for _ in range(3))
        self.runs = 0

    def close(self):
        """Closes all connections."""
        for connection in (self.text, self.binary, self.resp):
            connection.close()

    def ask(self, *words):
        """The reply to a command of RESP."""
        return good(ask(self.resp, *words))

    def run(self, script, keys, *arguments):
        """What a script returns. Every other time it is called by its name, if the server knows that."""
        rest = (b"%d" % len(keys), *keys, *arguments)
        self.runs += 1
        if self.runs % 2:
            reply = ask(self.resp, b"EVALSHA", hashlib.sha1(script).hexdigest().encode(), *rest)
            if not isinstance(reply, bytes) or not reply.startswith(b"-NOSCRIPT"):
                return good(reply)
        return self.ask(b"EVAL", script, *rest)

    def transaction(self, *commands):
        """The replies to a transaction; None if a key that was watched has changed."""
        self.resp.send(b"".join(command(*words) for words in [(b"MULTI",), *commands, (b"EXEC",)]))
        one_of(receive(self.resp), b"OK")
        for _ in commands:
            one_of(receive(self.resp), b"QUEUED")
        return good(receive(self.resp))

    def packet(self, opcode, key, value=b"", extras=b"", cas=0, allowed=(packets.OK,)):
        """The reply to a request of the binary protocol."""
        reply = packets.ask(self.binary, packets.packet(opcode, key, value, extras, cas=cas))
        one_of(reply.status, *allowed)
        return reply

    def gets(self, key):
        """The value of a key and its CAS number, by the text protocol; None and 0 where there is none."""
        self.text.send(b"gets %b\r\n" % key)
        words = self.text.line().split()
        if words == [b"END"]:
            return None, 0
        one_of(words[:2], [b"VALUE", key])
        value = self.text.exactly(int(words[3]) + 2)[:-2]
        one_of(self.text.line(), b"END")
        return value, int(words[4])

    def meta_get(self, key):
        """The same by a meta command."""
        words = self.text.ask(b"mg %b v c" % key).split()
        if words == [b"EN"]:
            return None, 0
        one_of(words[0], b"VA")
        return self.text.exactly(int(words[1]) + 2)[:-2], int(words[2][1:])

    def binary_get(self, key):
        """The same by the binary protocol."""
        reply = self.packet(packets.GET, key, allowed=(packets.OK, packets.NOT_FOUND))
        return (reply.value, reply.cas) if reply.status == packets.OK else (None, 0)

    def quiet_get(self, key):
        """The value by a quiet request and one that is answered behind it."""
        self.binary.send(packets.packet(packets.GETQ, key) + packets.packet(packets.NOOP))
        reply = packets.receive(self.binary)
        if reply.opcode == packets.NOOP:
            return None
        one_of(packets.receive(self.binary).opcode, packets.NOOP)
        return reply.value

    def multiget(self, keys):
        """The values of several keys by one `get`."""
        self.text.send(b"get " + b" ".join(keys) + b"\r\n")
        found = {}
        while (words := self.text.line().split()) != [b"END"]:
            one_of(words[0], b"VALUE")
            found[words[1]] = self.text.exactly(int(words[3]) + 2)[:-2]
        return [found.get(key) for key in keys]

    READS = {
        "get": lambda self, key: self.text.get(key),
        "gets": lambda self, key: self.gets(key)[0],
        "mg": lambda self, key: self.meta_get(key)[0],
        "binary get": lambda self, key: self.binary_get(key)[0],
        "binary getq": quiet_get,
        "GET": lambda self, key: self.ask(b"GET", key),
        "MGET": lambda self, key: self.ask(b"MGET", key)[0],
        "GETEX": lambda self, key: self.ask(b"GETEX", key),
        "GET in EVAL": lambda self, key: self.run(b"return redis.call('GET', KEYS[1])", [key]),
        "GET in MULTI": lambda self, key: self.transaction((b"GET", key))[0],
    }

    def store(self, head, value, pieces=1):
        """The first line that answers a request to store a value, sent in pieces."""
        request = b"%b\r\n%b\r\n" % (head, value)
        step = len(request) // pieces + 1
        for at in range(0, len(request), step):
            self.text.send(request[at:at + step])
        return self.text.line()

    def binary_store(self, key, value, opcode=packets.SET, exptime=0, cas=0,
                     allowed=(packets.OK, packets.NOT_FOUND, 2)):
        """Whether a request of the binary protocol stored a value."""
        extras = struct.pack(">II", 0, exptime)
        return self.packet(opcode, key, value, extras, cas, allowed).status == packets.OK

    def set_quietly(self, key, value):
        """Stores a value without an answer, and asks for one to nothing."""
        self.text.send(b"set %b 0 0 %d noreply\r\n%b\r\nmn\r\n" % (key, len(value), value))
        one_of(self.text.line(), b"MN")

    STORES = {
        "set": lambda self, key, value: one_of(
            self.store(b"set %b 0 0 %d" % (key, len(value)), value), b"STORED"),
        "set noreply": set_quietly,
        "ms": lambda self, key, value: one_of(self.store(b"ms %b %d" % (key, len(value)), value, 2), b"HD"),
        "binary set": lambda self, key, value: self.binary_store(key, value, allowed=(packets.OK,)),
        "SET": lambda self, key, value: one_of(self.ask(b"SET", key, value), b"OK"),
        "MSET": lambda self, key, value: one_of(self.ask(b"MSET", key, value), b"OK"),
        "GETSET": lambda self, key, value: self.ask(b"GETSET", key, value),
        "SET in EVAL": lambda self, key, value: self.run(b"redis.call('SET', KEYS[1], ARGV[1])", [key], value),
        "SET in MULTI": lambda self, key, value: one_of(self.transaction((b"SET", key, value)), [b"OK"]),
    }

    DELETES = {
        "delete": lambda self, key: one_of(self.text.ask(b"delete " + key), b"DELETED", b"NOT_FOUND"),
        "md": lambda self, key: one_of(self.text.ask(b"md " + key), b"HD", b"NF"),
        "binary delete": lambda self, key: self.packet(packets.DELETE, key, allowed=(packets.OK, packets.NOT_FOUND)),
        "DEL": lambda self, key: self.ask(b"DEL", key),
        "UNLINK": lambda self, key: self.ask(b"UNLINK", key),
        "GETDEL": lambda self, key: self.ask(b"GETDEL", key),
        "DEL in EVAL": lambda self, key: self.run(b"return redis.call('DEL', KEYS[1])", [key]),
        "DEL in MULTI": lambda self, key: self.transaction((b"DEL", key)),
    }


class Register:
    """What may be read of a key, given all that was done to it: `write`s of values of their own, and `delete`s.

    A read must not show a value after something that was sent after the value's write was answered, and was answered
    before the read was sent. It must show one where a write was answered, and nothing has deleted it since.
    """

    def __init__(self, acts):
        acts = [act for act in acts if act.what in ("write", "delete") and (act.done is None or act.found is not False)]
        self.writes = {act.given: act for act in acts if act.what == "write"}
        answered = [act for act in acts if act.done is not None]
        changes = sorted(answered, key=lambda act: act.sent)
        self.changes_sent = [act.sent for act in changes]
        # The earliest answer to a change that was sent as late as this one, or later.
        self.answered_first = list(itertools.accumulate(reversed([act.done for act in changes]), min))[::-1]
        stored = sorted((act for act in answered if act.what == "write"), key=lambda act: act.done)
        self.stores_done = [act.done for act in stored]
        self.store_sent_last = list(itertools.accumulate((act.sent for act in stored), max))
        deletes = sorted((act for act in acts if act.what == "delete"), key=lambda act: act.sent)
        self.deletes_sent = [act.sent for act in deletes]
        self.delete_ends_last = list(itertools.accumulate((act.end for act in deletes), max))

    def wrong(self, read, may_be_lost=False):
        """None, or (what was seen, what was expected)."""
        if read.found is None:
            return None if may_be_lost or not self.is_surely_there(read) else ("nothing", "the value that was written")
        write = self.writes.get(read.found)
        if write is None or write.sent > read.done:
            return "%r" % read.found[:SHOWN_BYTES], "a value that was written since the last look at all keys"
        at = bisect.bisect_right(self.changes_sent, write.end)
        if at < len(self.changes_sent) and self.answered_first[at] < read.sent:
            return "%r" % read.found[:SHOWN_BYTES], "no value that was replaced or deleted before the read was sent"
        return None

    def is_surely_there(self, read):
        """Whether a value must be found."""
        at = bisect.bisect_left(self.stores_done, read.sent)
        if not at:
            return False
        before = bisect.bisect_left(self.deletes_sent, read.done)
        return not before or self.delete_ends_last[before - 1] < self.store_sent_last[at - 1]
