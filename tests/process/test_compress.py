"""Compressed values through real sockets: who sees them, and how the setting changes."""

import bisect
import functools
import hashlib
import itertools
import json
import os
import random
import signal
import urllib.request

import support
from process_support import larder_only, run_to_end
from resp_support import ask, command, receive
from users_support import UsersCase

# Of each prefix. A third of all fits in.
KEYS = 60_000
BATCH = 500
COMPRESSED = 1_000


@functools.cache
def document(prefix, number):
    """What the back end has under a key: some 250 bytes of JSON, which differ from key to key and are alike."""
    digest = hashlib.sha256(b"%b:%d" % (prefix, number)).hexdigest()
    return json.dumps({"id": number, "kind": prefix.decode(), "name": "customer " + digest[:8],
                       "mail": digest[8:16] + "@example.org", "visits": int(digest[16:20], 16),
                       "address": {"street": "Long Street %d" % int(digest[20:22], 16), "city": "Springfield"},
                       "roles": ["reader", "writer"], "token": digest[24:40], "active": number % 2 == 0}).encode()


@functools.cache
def noise(prefix, number):
    """As many bytes that do not shrink."""
    return random.Random(b"%b:%d" % (prefix, number)).randbytes(250)


class Readers:
    """Clients that read the keys of some prefixes through the cache, some keys much more often than others."""

    def __init__(self, connection, kinds):
        self.connection, self.kinds = connection, kinds
        self.random = random.Random(1)
        weights = itertools.accumulate(1 / (rank + 100) for rank in range(KEYS))
        self.ranks = list(weights)

    def key(self):
        """A key that is asked for, as the pair of its prefix and its number."""
        rank = bisect.bisect(self.ranks, self.random.random() * self.ranks[-1])
        return self.random.choice(list(self.kinds)), rank

    def read_some(self):
        """Reads many keys and stores what was not there; what was there is right."""
        wanted = {b"%b:%d" % pair: pair for pair in (self.key() for _ in range(BATCH))}
        for key, value in zip(wanted, ask(self.connection, b"MGET", *wanted)):
            prefix, number = wanted[key]
            right = self.kinds[prefix](prefix, number)
            if value is None:
                self.connection.send(command(b"SET", key, right))
            elif value != right:
                raise AssertionError("%r has %r, not %r" % (key, value, right))
        self.connection.send(command(b"ECHO", b"done"))
        while receive(self.connection) != b"done":
            pass

    def read_until(self, happens, what):
        """Reads until something has happened."""
        def look():
            self.read_some()
            return happens()
        return support.until(look, what, 4 * support.WAIT_SECONDS_MAX)


@larder_only
class Compressed(UsersCase):
    """A server whose memory is full."""

    def begin(self, *flags, kinds=None):
        """A server and its readers, who log in where there are users."""
        mode = () if "--compress" in flags else ("--compress", "auto")
        self.running = self.server("-m", "16", "-t", "2", *mode, *flags)
        self.memcached, self.redis, readers = (self.connection(self.running) for _ in range(3))
        if os.path.exists(self.path):
            self.assertEqual(self.memcached.ask(b"set auth 0 0 6\r\nroot r"), b"STORED")
            for connection in (self.redis, readers):
                self.assertEqual(ask(connection, b"AUTH", b"root", b"r"), b"OK")
        self.readers = Readers(readers, kinds or {b"user": document, b"page": document})

    def count(self, name):
        """A number of `stats compression`."""
        return int(self.memcached.stats(b"compression")[name])

    def moved(self):
        """Items that passes have kept since the start."""
        return int(self.memcached.stats(b"temperature")[b"moved"])

    def read_until_moved(self, more):
        """Reads until passes have kept so many more items."""
        begun = self.moved()
        self.readers.read_until(lambda: self.moved() >= begun + more, "passes keep items")

    def read_until_compressed(self):
        """Reads until many items are compressed."""
        self.readers.read_until(lambda: self.count(b"compressed_items") >= COMPRESSED,
                                lambda: "items are compressed: %r" % self.memcached.stats(b"compression"))

    def compressed_keys(self, prefixes=(b"user", b"page")):
        """The keys of compressed items, each once, with their values: the server expands what it is asked for."""
        for prefix, number in itertools.product(prefixes, range(KEYS)):
            key, value = b"%b:%d" % (prefix, number), self.readers.kinds[prefix](prefix, number)
            before = self.count(b"expansions")
            found = self.memcached.get(key)
            if found is None:
                continue
            self.assertEqual(found, value, key)
            if self.count(b"expansions") > before:
                yield key, value

    def test_each_command_answers_as_for_a_plain_value(self):
        port = support.free_port()
        self.begin("--admin", "127.0.0.1:%d" % port)
        self.read_until_compressed()
        self.look_at_numbers(port)
        keys = self.compressed_keys()
        self.ask_redis(keys)
        self.ask_memcached(keys)

    def look_at_numbers(self, port):
        """`stats compression`, and the metrics."""
        stats = self.memcached.stats(b"compression")
        self.assertGreater(float(stats[b"ratio"]), 1.33)
        self.assertGreater(int(stats[b"compress_mean_ns"]), 0)
        numbers = [name[:-5] for name in stats if name.endswith(b":kind")]
        self.assertEqual(len(numbers), int(stats[b"dictionaries"]))
        self.assertIn(stats[numbers[0] + b":kind"], (b"shared", b"own", b"outgoing"))
        for row in (b"bytes", b"age_s", b"values", b"ratio", b"items"):
            self.assertIn(numbers[0] + b":" + row, stats)
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=support.WAIT_SECONDS_MAX) as reply:
            text = reply.read().decode()
        for sample in (r'compression_items\{form="compressed"\} [1-9]',
                       r'compression_values_bytes\{form="plain"\} [1-9]', "compression_ratio [1-9]",
                       "compression_dictionaries_bytes [1-9]", "compressed_total [1-9]",
                       "compress_seconds_total [0-9.]*[1-9]", r"expansions_total \d"):
            self.assertRegex(text, "(?m)^larder_" + sample)

    def ask_redis(self, keys):
        """A command of RESP on a compressed item, and on a plain one with the same value."""
        for words in (b"GET K", b"GETRANGE K 3 90", b"GETRANGE K -20 -1", b"SUBSTR K 100 200", b"STRLEN K",
                      b"APPEND K tail", b"SETRANGE K 5 xyz", b"BITCOUNT K", b"BITCOUNT K 3 20", b"BITPOS K 0",
                      b"GETBIT K 77", b"SETBIT K 77 1", b"INCR K", b"DECRBY K 2", b"INCRBYFLOAT K 1.5", b"MGET K K",
                      b"GETEX K EX 100", b"GETSET K new", b"SET K new GET", b"SET K new NX", b"SETNX K new",
                      b"COPY K copy REPLACE", b"RENAME K copy", b"GETDEL K", b"TYPE K", b"EXISTS K", b"EXPIRE K 100",
                      b"LCS K K LEN", b"PFCOUNT K", b"HGET K f", b"OBJECT ENCODING K", b"DUMP K", b"MEMORY USAGE K"):
            key, value = next(keys)
            self.assertEqual(ask(self.redis, b"SET", b"plain", value), b"OK")
            answers = []
            for name in (key, b"plain"):
                asked = [name if word == b"K" else word for word in words.split()]
                answers.append([ask(self.redis, *asked), ask(self.redis, b"GET", name),
                                ask(self.redis, b"GET", b"copy"), ask(self.redis, b"DEL", b"copy")])
            if words.startswith(b"MEMORY"):
                self.assertLess(answers[0][0], answers[1][0] + 50)
                answers = [answer[1:] for answer in answers]
            self.assertEqual(answers[0], answers[1], words)

    def ask_memcached(self, keys):
        """The same for memcached's text and meta commands. Sizes are those of the plain value."""
        for words in (b"get K", b"gat 100 K", b"mg K v s f", b"mg K s", b"mg K v s T100", b"incr K 1", b"ma K",
                      b"touch K 100", b"append K 0 0 4\r\ntail", b"prepend K 0 0 4\r\nhead", b"add K 0 0 1\r\nx",
                      b"replace K 0 0 1\r\nx", b"ms K 4 MA\r\ntail", b"md K q x\r\nmg K v s"):
            key, value = next(keys)
            self.memcached.set(b"plain", value)
            answers = []
            for name in (key, b"plain"):
                self.memcached.send(words.replace(b"K", name) + b"\r\nmn\r\n")
                answers.append(list(iter(self.memcached.line, b"MN")) + [self.memcached.get(name)])
                answers[-1] = [line.replace(name, b"K") if line else line for line in answers[-1]]
            self.assertEqual(answers[0], answers[1], words)
            if words == b"mg K s":
                self.assertEqual(answers[0][0], b"HD s%d" % len(value))

    def test_the_setting_changes_while_the_server_runs(self):
        self.begin()
        self.read_until_compressed()
        self.assertEqual(ask(self.redis, b"CONFIG", b"GET", b"compress"), [b"compress", b"auto"])
        self.assertEqual(ask(self.redis, b"CONFIG", b"SET", b"compress", b"off"), b"OK")
        # What was under way has ended once more items were kept.
        self.read_until_moved(2_000)
        before = self.count(b"compressed")
        self.read_until_moved(5_000)
        self.assertEqual(self.count(b"compressed"), before)
        next(self.compressed_keys())
        self.assertEqual(ask(self.redis, b"CONFIG", b"SET", b"compress", b"page"), b"OK")
        self.assertEqual(self.memcached.stats(b"settings")[b"compress"], b"page")
        self.readers.read_until(lambda: self.count(b"compressed") > before, "values are compressed again")
        for wrong, says in ((b"page,off", b"off alone"), (b"", b"names"), (b"a:b", b"`a:b` has the delimiter `:`"),
                            (b"a\r\nEND", b"control character"), (b"on", b"auto alone")):
            self.assertIn(says, ask(self.redis, b"CONFIG", b"SET", b"compress", wrong))
        self.assertEqual(ask(self.redis, b"CONFIG", b"GET", b"compress"), [b"compress", b"page"])

    def test_a_list_of_names(self):
        self.begin("--compress", "page")
        self.read_until_compressed()
        next(self.compressed_keys([b"page"]))
        before = self.count(b"expansions")
        users = [b"user:%d" % number for number in range(KEYS)]
        found = [ask(self.redis, b"MGET", *users[first:first + 5_000]) for first in range(0, KEYS, 5_000)]
        self.assertGreater(sum(value is not None for part in found for value in part), COMPRESSED)
        self.assertEqual(self.count(b"expansions"), before)

    def test_names_are_those_of_all_databases(self):
        self.begin("--compress", "user")
        self.assertEqual(ask(self.readers.connection, b"SELECT", b"3"), b"OK")
        self.read_until_compressed()

    def test_values_that_do_not_shrink_are_left_alone(self):
        # Most values shrink, so that a dictionary is shared, with which the others are tried.
        self.begin(kinds={b"noise": noise, b"page": document, b"user": document, b"cart": document})
        self.read_until_compressed()
        self.read_until_moved(30_000)
        refused = self.count(b"compress_refused")
        self.assertGreater(refused, 0)
        self.read_until_moved(30_000)
        # About a quarter of what was kept is noise.
        self.assertLess(self.count(b"compress_refused") - refused, 1_000)
        before = self.count(b"expansions")
        self.assertGreater(sum(self.memcached.get(b"noise:%d" % number) is not None for number in range(5_000)), 100)
        self.assertEqual(self.count(b"expansions"), before)

    def values(self, kind):
        """Values that were compressed with dictionaries of this kind."""
        stats = self.memcached.stats(b"compression")
        numbers = [name[:-5] for name, value in stats.items() if name.endswith(b":kind") and value == kind]
        return sum(int(stats[number + b":values"]) for number in numbers)

    def test_tenants_share_no_dictionary(self):
        self.begin("--namespaces", "user=0-100")
        self.read_until_compressed()
        self.assertEqual(self.values(b"shared"), 0)
        self.assertEqual(ask(self.redis, b"CONFIG", b"SET", b"namespaces", b""), b"OK")
        self.readers.read_until(lambda: self.values(b"shared"), "a dictionary is shared")
        self.assertEqual(ask(self.redis, b"CONFIG", b"SET", b"namespaces", b"user=0-100"), b"OK")
        # What was under way has ended once more items were kept.
        self.read_until_moved(5_000)
        before = self.values(b"shared")
        self.read_until_moved(5_000)
        self.assertEqual(self.values(b"shared"), before)

    def test_users_with_namespaces_share_no_dictionary(self):
        config = os.path.join(self.folder(), "larder.toml")

        def configure(namespaces):
            with open(config, "w", encoding="ascii") as file:
                file.write('auth-file = "%s"\nuser-namespaces = %s\n' % (self.path, namespaces))

        self.write("root:r", "ada:a")
        configure('["ada=user"]')
        self.begin("--config", config)
        self.read_until_compressed()
        self.assertEqual(self.values(b"shared"), 0)
        configure("[]")
        self.running.process.send_signal(signal.SIGHUP)
        self.readers.read_until(lambda: self.values(b"shared"), "a dictionary is shared")

    def test_a_name_that_no_key_begins_with(self):
        status, _, error = run_to_end("-D", "/", "--compress", "a/b")
        self.assertNotEqual(status, 0)
        self.assertIn("--compress: `a/b` has the delimiter `/` in it", error)
