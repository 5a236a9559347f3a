"""Listings see both levels: `SCAN`, `KEYS`, `DBSIZE`, `RANDOMKEY`, the dumps of memcached, and `curr_items`."""

import os
import random

from flash_support import FlashCase
from process_support import larder_only
from resp_support import ask, command, receive

ITEMS = 24_000
VALUE = b"v" * 1000


def scanned(connection, *options):
    """Every key that `SCAN` names, in order, with duplicates."""
    keys, cursor = [], b"0"
    while True:
        cursor, found = ask(connection, b"SCAN", cursor, *options)
        keys += found
        if cursor == b"0":
            return keys
        # Some libraries keep the cursor as a floating-point number.
        assert int(cursor) < 1 << 53, cursor


@larder_only
class FlashListing(FlashCase):
    """A server with more items on flash than in memory."""

    def filled(self, *flags, **options):
        """A server, and a connection of RESP and one of memcached; 24,000 items of two prefixes, some of them gone."""
        server = self.flash_server(*flags, **options)
        resp, text = self.connection(server), self.connection(server)
        for start in range(0, ITEMS, 500):
            resp.send(b"".join(command(b"SET", self.name(number), VALUE) for number in range(start, start + 500)))
            self.assertEqual([receive(resp) for _ in range(500)], [b"OK"] * 500)
            self.wait_for_flash(text)
        return resp, text

    @staticmethod
    def name(number):
        """The key of an item."""
        return b"%s:%d" % (b"page" if number % 3 else b"user", number)

    def there(self, resp, prefix=b""):
        """The keys that are found one by one."""
        found = set()
        names = [name for name in map(self.name, range(ITEMS)) if name.startswith(prefix)]
        for start in range(0, len(names), 100):
            part = names[start:start + 100]
            found.update(name for name, value in zip(part, ask(resp, b"MGET", *part)) if value is not None)
        return found

    def test_every_listing_names_what_is_there(self):
        resp, text = self.filled()
        there = self.there(resp)
        # The device may be behind now and then, and an item is lost.
        self.assertGreater(len(there), ITEMS * 9 // 10)
        self.assertGreater(self.number(text, b"items", b"flash"), ITEMS // 4)
        named = scanned(resp, b"COUNT", b"100")
        self.assertLessEqual(there, set(named))
        self.assertEqual(set(named) - {self.name(number) for number in range(ITEMS)}, set())
        keys = ask(resp, b"KEYS", b"*")
        self.assertLessEqual(there, set(keys))
        self.assertEqual(len(keys), len(set(keys)), "KEYS names each key once")
        self.assertEqual(set(ask(resp, b"KEYS", b"user:*")), {key for key in keys if key.startswith(b"user:")})
        for dump, start, end in ((b"lru_crawler metadump all", b"key=", b"END\r\n"),
                                 (b"lru_crawler mgdump hash", b"mg ", b"EN\r\n")):
            text.send(dump + b"\r\n")
            listing = b""
            while not listing.endswith(end):
                listing += text.socket.recv(1 << 20)
            lines = [line for line in listing[:-len(end)].splitlines() if line != b"OK"]
            self.assertEqual([line for line in lines if not line.startswith(start)], [])
            dumped = {line[len(start):].split()[0].replace(b"%3A", b":") for line in lines}
            self.assertLessEqual(there, dumped)
        for count in (ask(resp, b"DBSIZE"), int(text.stats()[b"curr_items"])):
            self.assertLess(abs(count - len(there)), len(there) // 10, "%d of %d" % (count, len(there)))

    def test_what_a_scan_names_can_be_deleted(self):
        resp, text = self.filled()
        named = scanned(resp, b"MATCH", b"page:*")
        for at in range(0, len(named), 500):
            ask(resp, b"DEL", *named[at:at + 500])
        self.assertEqual(scanned(resp, b"MATCH", b"page:*"), [])
        self.assertEqual(self.there(resp, b"page:"), set())
        users = self.there(resp, b"user:")
        self.assertEqual(set(scanned(resp)), users)
        count = ask(resp, b"DBSIZE")
        self.assertLess(abs(count - len(users)), ITEMS // 10, "%d of %d" % (count, len(users)))
        self.assertEqual(ask(resp, b"FLUSHALL"), b"OK")
        self.assertEqual((scanned(resp), ask(resp, b"DBSIZE"), ask(resp, b"KEYS", b"*")), ([], 0, []))
        self.assertEqual(int(text.stats()[b"curr_items"]), 0)

    def test_a_key_that_stays_is_named_while_others_move(self):
        for mode in ("lazy", "strict"):
            self.path += mode
            resp, _ = self.filled(tuning={"promote": mode})
            chooser = random.Random(7)
            there, cursor, named, changed = self.there(resp), b"0", set(), set()
            while True:
                cursor, found = ask(resp, b"SCAN", cursor, b"COUNT", b"200")
                named.update(found)
                if cursor == b"0":
                    break
                # Reads bring items to memory, and push others out.
                for key in chooser.sample(sorted(there), 4):
                    ask(resp, b"GET", key)
                    ask(resp, b"GET", key)
                key = self.name(chooser.randrange(ITEMS))
                ask(resp, b"SET", key, VALUE)
                changed.add(key)
            missing = there - named
            lost = {key for key in missing if ask(resp, b"GET", key) is None}
            self.assertEqual(missing - lost, set(), mode)

    def test_long_keys_and_long_values(self):
        server = self.flash_server()
        resp, text = self.connection(server), self.connection(server)
        items = {b"long:%d:" % number + b"k" * (300 + 700 * number): b"v" * size
                 for number, size in enumerate((10, 1500, 3000, 60_000))}
        items.update({b"large:%d" % size: b"v" * size for size in (2500, 9000, 400_000)})
        for key, value in items.items():
            self.assertEqual(ask(resp, b"SET", key, value), b"OK")
        self.push_out(text)
        there = {key for key in items if ask(resp, b"EXISTS", key)}
        self.assertGreater(len(there), 4)
        self.assertLessEqual(there, set(scanned(resp, b"MATCH", b"l*")))
        self.assertEqual(there, set(ask(resp, b"KEYS", b"l*")))

    def test_in_a_transaction(self):
        resp, _ = self.filled()
        there = self.there(resp, b"user:")
        ask(resp, b"MULTI")
        ask(resp, b"KEYS", b"user:*")
        self.assertLessEqual(there, set(ask(resp, b"EXEC")[0]))


class History:
    """A random history over all protocols, beside what must have become of each key."""

    def __init__(self, case, server, seed):
        self.case, self.chooser = case, random.Random(seed)
        self.resp, self.other, self.text = (case.connection(server) for _ in range(3))
        self.known, self.version = {}, 0
        self.steps = [self.store, self.store, self.store, self.delete, self.get, self.get, self.append, self.rename,
                      self.drop_prefix, self.watch, self.scan]
        self.weights = [30, 15, 15, 10, 20, 20, 5, 3, 0.15, 4, 0.4]

    def key(self):
        """Some key."""
        return b"%s:%d" % (self.chooser.choice((b"page", b"user", b"job")), self.chooser.randrange(2500))

    def step(self):
        """Something happens."""
        self.chooser.choices(self.steps, self.weights)[0]()

    def value(self):
        """A new value."""
        self.version += 1
        return b"%d:" % self.version + b"x" * self.chooser.choice((20, 900, 3000, 8000, 8000, 20_000))

    def store(self):
        """A store by some protocol."""
        key, value = self.key(), self.value()
        how = self.chooser.randrange(3)
        if how == 0:
            self.case.assertEqual(ask(self.resp, b"SET", key, value), b"OK")
        elif how == 1:
            self.case.assertEqual(self.text.set(key, value), b"STORED")
        else:
            self.text.send(b"ms %b %d\r\n%b\r\n" % (key, len(value), value))
            self.case.assertEqual(self.text.line(), b"HD")
        self.known[key] = value

    def delete(self):
        """A delete by some protocol."""
        key = self.key()
        if self.chooser.random() < 0.5:
            ask(self.resp, b"DEL", key)
        else:
            self.text.ask(b"delete " + key)
        self.known.pop(key, None)

    def found(self, key, value):
        """A key has this value: the newest one, or none because the item was lost."""
        self.case.assertIn(value, (None, self.known.get(key)))
        if value is None:
            self.known.pop(key, None)

    def get(self):
        """A read."""
        key = self.key()
        self.found(key, ask(self.resp, b"GET", key))

    def append(self):
        """A change of a part."""
        key = self.key()
        length = ask(self.resp, b"APPEND", key, b"+")
        old = self.known.get(key, b"")
        self.case.assertIn(length, (1, len(old) + 1))
        self.known[key] = old + b"+" if length > 1 else b"+"

    def rename(self):
        """A key gets another name."""
        key, other = self.key(), self.key()
        if ask(self.resp, b"RENAME", key, other) == b"OK":
            self.case.assertIn(key, self.known)
            self.known[other] = self.known.pop(key)
        else:
            self.known.pop(key, None)

    def drop_prefix(self):
        """All keys of a prefix go."""
        prefix = b"%s:%d" % (self.chooser.choice((b"page", b"user")), self.chooser.randrange(1, 10))
        self.case.assertEqual(ask(self.resp, b"FLUSHPREFIX", prefix), b"OK")
        self.known = {key: value for key, value in self.known.items() if not key.startswith(prefix)}

    def watch(self):
        """A transaction that depends on a key, and perhaps a change of the key meanwhile."""
        key, value = self.key(), self.value()
        ask(self.other, b"WATCH", key)
        changes = self.chooser.random() < 0.5
        if changes:
            ask(self.resp, b"SET", key, b"meanwhile")
            ask(self.resp, b"DEL", key)
            self.known.pop(key, None)
        elif self.chooser.random() < 0.5:
            self.found(key, ask(self.resp, b"GET", key))
        ask(self.other, b"MULTI")
        ask(self.other, b"SET", key, value)
        reply = ask(self.other, b"EXEC")
        self.case.assertEqual(reply, None if changes else [b"OK"])
        if not changes:
            self.known[key] = value

    def scan(self):
        """Every listing names what is found, and nothing that is gone."""
        named = set(scanned(self.other, b"COUNT", b"500"))
        listed = ask(self.other, b"KEYS", b"*")
        self.case.assertEqual(len(listed), len(set(listed)))
        self.case.assertEqual(named - set(self.known), set())
        self.case.assertEqual(set(listed) - set(self.known), set())
        for key in list(self.known):
            if key not in named or key not in listed:
                self.case.assertIsNone(ask(self.resp, b"GET", key), key)
                del self.known[key]


@larder_only
class RandomHistories(FlashCase):
    """A flash tier behind 16 MB, all protocols at once, and a model."""

    def test_a_model_agrees(self):
        for promote in ("lazy", "strict"):
            self.path += promote
            server = self.flash_server(tuning={"promote": promote})
            seed = int(os.environ.get("LARDER_SEED") or random.randrange(1 << 32))
            with self.subTest(promote=promote, seed=seed):
                history = History(self, server, seed)
                for _ in range(6000):
                    history.step()
                history.scan()
                self.assertGreater(len(history.known), 1000)
                self.assertGreater(self.number(history.text, b"items", b"flash"), 100)
