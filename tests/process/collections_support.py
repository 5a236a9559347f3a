"""What the tests of hashes, sets and sorted sets share: requests as lines, and what a key holds."""

import threading

from process_support import Case
from resp_support import ask
from test_watched_keys import words

THREADS = 4
WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value"
# One collection of each type: its key, the request that makes it, and what it holds then.
MADE = {
    b"h": ("HSET h a 1 b two", {b"a": b"1", b"b": b"two"}),
    b"s": ("SADD s 1 2 three", {b"1", b"2", b"three"}),
    b"z": ("ZADD z 1 one 2.5 two", {b"one": 1.0, b"two": 2.5}),
}


def say(connection, line):
    """The reply to a request that is written as a line."""
    return ask(connection, *words(line))


def content(connection, key):
    """What is stored at a key, as Python would keep it; None if nothing is."""
    kind = ask(connection, b"TYPE", key)
    if kind == b"hash":
        flat = ask(connection, b"HGETALL", key)
        found = dict(zip(flat[::2], flat[1::2]))
    elif kind == b"set":
        members = ask(connection, b"SMEMBERS", key)
        found = set(members)
        assert len(found) == len(members), members
    elif kind == b"zset":
        flat = ask(connection, b"ZRANGE", key, b"0", b"-1", b"WITHSCORES")
        found = {member: float(score) for member, score in zip(flat[::2], flat[1::2])}
    else:
        return ask(connection, b"GET", key)
    # It may be evicted behind the first question.
    return found or None


def noisy(number, size):
    """Bytes that differ from those of any other number."""
    return (b"%d/" % number * (size // len(b"%d/" % number) + 1))[:size]


class CollectionsCase(Case):
    """A test case with collections."""

    def make(self, connection):
        """One collection of each type."""
        for line, _ in MADE.values():
            self.assertIn(say(connection, line), (2, 3))

    def check_made(self, connection, why=None):
        """Every collection is as it was made."""
        for key, (_, held) in MADE.items():
            self.assertEqual(content(connection, key), held, why)

    def refused(self, reply, *parts):
        """Fails unless a reply is an error with these parts."""
        self.assertTrue(isinstance(reply, bytes) and reply.startswith(b"-"), repr(reply)[:200])
        for part in parts:
            self.assertIn(part, reply)

    def in_threads(self, server, work):
        """Has several threads do the work, each with a number and a connection; raises what one of them raised."""
        wrong = []

        def run(number, connection):
            try:
                work(number, connection)
            except Exception as error:  # it is raised again below
                wrong.append(error)

        threads = [threading.Thread(target=run, args=(number, self.connection(server))) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise wrong[0]
