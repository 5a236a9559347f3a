"""Hashes, sets and sorted sets where they are kept: their sizes, full memory, restarts, flash and namespaces."""

import random
import signal
import threading

from collections_support import MADE, WRONG_TYPE, CollectionsCase, content, noisy, say
from flash_support import FlashCase
from process_support import larder_only
from resp_support import ask, command, receive
from support import Closed, until
from test_keep import KeepCase
from test_scripts import script
from test_tenants import TenantsCase


@larder_only
class Sizes(CollectionsCase):
    """Large collections, and the setting that bounds them."""

    def test_a_collection_is_bounded_by_the_setting(self):
        door = self.connection(self.server("-m", "64", "-I", "64k"))
        adds = {b"h": lambda member: (b"HSET", b"h", member, b"v"), b"s": lambda member: (b"SADD", b"s", member),
                b"z": lambda member: (b"ZADD", b"z", b"1", member)}
        for key, add in adds.items():
            number = 0
            while (said := ask(door, *add(noisy(number, 1000)))) == 1:
                number += 1
            self.refused(said, b"-I")
            # Some of it is the head of the item, and what stands between members.
            self.assertTrue(50 < number < 66, number)
            held = content(door, key)
            self.assertEqual(set(held), {noisy(each, 1000) for each in range(number)})
            self.refused(ask(door, *add(noisy(number, 1000))), b"-I")
            self.assertEqual(ask(door, *add(noisy(0, 1000))), 0, "what is there already needs no room")
            for prepared in ((b"MULTI",), add(noisy(number, 1000))):
                ask(door, *prepared)
            self.refused(ask(door, b"EXEC")[0], b"-I")
            self.refused(script(door, b"return redis.call(unpack(ARGV))", (), add(noisy(number, 1000))), b"-I")
            self.assertEqual(content(door, key), held)
            self.assertEqual([ask(door, b"COPY", key, b"copy"), content(door, b"copy")], [1, held])
            remove = {b"h": b"HDEL", b"s": b"SREM", b"z": b"ZREM"}[key]
            self.assertEqual(ask(door, remove, key, noisy(0, 1000), noisy(1, 1000)), 2)
            self.assertEqual(ask(door, *add(noisy(number, 1000))), 1)
            self.assertEqual(ask(door, b"DEL", b"copy"), 1)
        self.assertEqual(say(door, "DBSIZE"), 3)

    def test_a_change_that_is_too_large_changes_nothing(self):
        door = self.connection(self.server("-m", "64", "-I", "64k"))
        self.make(door)
        many = [noisy(number, 1000) for number in range(80)]
        ask(door, b"SADD", b"most", *many[:40])
        ask(door, b"SADD", b"rest", *many[40:])
        ask(door, b"ZADD", b"zmost", *[word for member in many[:40] for word in (b"1", member)])
        ask(door, b"ZADD", b"zrest", *[word for member in many[40:] for word in (b"1", member)])
        before = {key: content(door, key) for key in (b"most", b"rest", b"zmost", b"zrest")}
        for request in ((b"SADD", b"s", b"small", *many),
                        (b"HSET", b"h", b"a", b"2", *[word for member in many for word in (member, b"v")]),
                        (b"HSET", b"h", b"a", b"v" * 70_000), (b"HMSET", b"h", b"b", b"v" * 70_000),
                        (b"HSETNX", b"h", b"new", b"v" * 70_000), (b"HSETNX", b"h", b"f" * 70_000, b"v"),
                        (b"HINCRBY", b"h", b"f" * 70_000, b"1"), (b"HINCRBYFLOAT", b"h", b"f" * 70_000, b"1"),
                        (b"ZADD", b"z", *[word for member in many for word in (b"1", member)]),
                        (b"ZADD", b"z", b"INCR", b"1", b"m" * 70_000), (b"ZINCRBY", b"z", b"1", b"m" * 70_000),
                        (b"SUNIONSTORE", b"s", b"most", b"rest"), (b"ZUNIONSTORE", b"z", b"2", b"zmost", b"zrest"),
                        (b"SADD", b"new", *many), (b"HSET", b"new", b"f", b"v" * 70_000)):
            self.refused(ask(door, *request), b"-I")
            self.check_made(door, request[:2])
        ask(door, b"SADD", b"most", *[noisy(number, 1000) for number in range(100, 120)])
        held = content(door, b"most")
        said = [ask(door, b"SMOVE", b"rest", b"most", member) for member in many[40:50]]
        self.refused(said[-1], b"-I")
        moved = set(many[40:40 + said.count(1)])
        self.assertEqual(content(door, b"most"), held | moved)
        self.assertEqual(content(door, b"rest"), before[b"rest"] - moved)
        self.assertEqual(say(door, "EXISTS new"), 0)
        self.assertEqual([content(door, key) for key in (b"zmost", b"zrest")], [before[b"zmost"], before[b"zrest"]])

    def test_values_of_every_size(self):
        door = self.connection(self.server("-m", "64"))
        for size in (1, 1000, 15_000, 16_300, 16_384, 16_500, 33_000, 100_000, 400_000, 1_000_000):
            value = noisy(size, size)
            ask(door, b"DEL", b"h", b"s", b"z")
            self.assertEqual(ask(door, b"HSET", b"h", b"before", b"1", b"f", value, b"after", b"2"), 3)
            self.assertEqual(content(door, b"h"), {b"before": b"1", b"f": value, b"after": b"2"})
            self.assertEqual([ask(door, b"HSTRLEN", b"h", b"f"), ask(door, b"HGET", b"h", b"f")], [size, value])
            self.assertEqual(ask(door, b"HMGET", b"h", b"after", b"none", b"f"), [b"2", None, value])
            self.assertEqual(ask(door, b"HINCRBY", b"h", b"after", b"40"), 42)
            self.assertEqual(ask(door, b"HSET", b"h", b"f", value[:-1] + b"!"), 0)
            self.assertEqual(content(door, b"h"), {b"before": b"1", b"f": value[:-1] + b"!", b"after": b"42"})
            self.assertEqual(ask(door, b"HDEL", b"h", b"f"), 1)
            self.assertEqual(content(door, b"h"), {b"before": b"1", b"after": b"42"})
            for key, add, has in ((b"s", (b"SADD", b"s", value, b"other"), b"SISMEMBER"),
                                  (b"z", (b"ZADD", b"z", b"1", value, b"2", b"other"), b"ZSCORE")):
                self.assertEqual(ask(door, *add), 2)
                self.assertIn(ask(door, has, key, value), (1, b"1"))
                self.assertIn(ask(door, has, key, value[:-1] + b"!"), (0, None))
                self.assertEqual(set(content(door, key)), {value, b"other"})
            self.assertEqual([ask(door, b"SREM", b"s", value), ask(door, b"ZPOPMIN", b"z")], [1, [value, b"1"]])

    def test_a_collection_of_many_grows_and_shrinks(self):
        door = self.connection(self.server("-m", "64"))
        sizes = {b"h": (b"HSET", b"HDEL"), b"s": (b"SADD", b"SREM"), b"z": (b"ZADD", b"ZREM")}
        members = [noisy(number, 900) for number in range(1000)]
        for key, (add, remove) in sizes.items():
            for start in range(0, 1000, 50):
                part = members[start:start + 50]
                more = {b"h": [word for member in part for word in (member, b"%d" % len(member))], b"s": part,
                        b"z": [word for member in part for word in (b"1.5", member)]}[key]
                self.assertEqual(ask(door, add, key, *more), 50)
            self.assertEqual(set(content(door, key)), set(members))
            for start in range(0, 1000, 125):
                self.assertEqual(ask(door, remove, key, *members[start:start + 125]), 125)
                self.assertEqual(set(content(door, key) or ()), set(members[start + 125:]))
            self.assertEqual(ask(door, b"EXISTS", key), 0)

    def test_random_changes_of_large_collections_do_what_dictionaries_do(self):
        door, chance = self.connection(self.server("-m", "64")), random.Random(11)
        twin, names = {}, [b"f%d" % number for number in range(40)]
        for step in range(400):
            name = chance.choice(names)
            kind = chance.random()
            if kind < 0.5:
                value = noisy(step, chance.choice((1, 50, 900, 5000, 20_000)))
                self.assertEqual(ask(door, b"HSET", b"h", name, value), int(name not in twin))
                twin[name] = value
            elif kind < 0.7:
                self.assertEqual(ask(door, b"HDEL", b"h", name), int(twin.pop(name, None) is not None))
            elif kind < 0.9:
                self.assertEqual(ask(door, b"HGET", b"h", name), twin.get(name))
            else:
                self.assertEqual(content(door, b"h") or {}, twin)
            self.assertEqual(ask(door, b"HLEN", b"h"), len(twin))

    def test_a_full_memory_refuses_and_loses_nothing(self):
        door = self.connection(self.server("-m", "8", "-M"))
        self.make(door)
        number = 0
        while ask(door, b"SET", b"fill%d" % number, b"x" * 8000) == b"OK":
            number += 1
        for request in ((b"HSET", b"h", b"new", b"v" * 9000), (b"SADD", b"s", b"m" * 9000),
                        (b"ZADD", b"z", b"1", b"m" * 9000), (b"HSET", b"other", b"f", b"v" * 9000)):
            self.refused(ask(door, *request), b"OOM")
        self.check_made(door)
        self.assertEqual([say(door, "HDEL h a"), say(door, "SREM s 1"), say(door, "ZREM z one")], [1, 1, 1])
        self.assertEqual([ask(door, b"GET", b"fill0"), say(door, "DEL h s z")], [b"x" * 8000, 3])

    def test_an_evicted_collection_is_gone_as_a_whole(self):
        door = self.connection(self.server("-m", "16"))
        chance, count = random.Random(3), 6000
        for start in range(0, count, 100):
            requests = []
            for number in range(start, start + 100):
                member = noisy(number, 1300)
                requests += [command(b"HSET", b"h%d" % number, b"a", member, b"b", b"%d" % number, b"c", member),
                             command(b"ZADD", b"z%d" % number, b"1", member, b"2", member + b"x")]
            door.send(b"".join(requests))
            self.assertEqual([receive(door) for _ in range(200)], [3, 2] * 100)
        found = 0
        for number in sorted(chance.sample(range(count), 1000)):
            member = noisy(number, 1300)
            held = content(door, b"h%d" % number)
            self.assertIn(held, (None, {b"a": member, b"b": b"%d" % number, b"c": member}))
            found += held is not None
            self.assertIn(content(door, b"z%d" % number), (None, {member: 1.0, member + b"x": 2.0}))
        self.assertTrue(0 < found < 1000, found)


class Kept(KeepCase, CollectionsCase):
    """Where items outlive the process."""

    def test_collections_outlive_a_stop_and_a_kill(self):
        server = self.kept()
        door = self.connection(server)
        self.make(door)
        large = {noisy(number, 900): b"%d" % number for number in range(500)}
        ask(door, b"HSET", b"large", *[word for row in large.items() for word in row])
        ask(door, b"SADD", b"long", b"m" * 300_000, b"n")
        ask(door, b"HSET", b"L" * 3000, b"f", b"v")
        say(door, "SADD lived m")
        say(door, "EXPIRE lived 1000")
        say(door, "SADD gone m")
        say(door, "SREM gone m")
        for turn, signal_number in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)):
            server, door = self.again(server, signal_number)
            self.check_made(door)
            self.assertEqual(content(door, b"large"), large)
            self.assertEqual(content(door, b"long"), {b"m" * 300_000, b"n"})
            self.assertEqual(content(door, b"L" * 3000), {b"f": b"v"})
            self.assertTrue(900 < say(door, "TTL lived") <= 1000)
            self.assertEqual([say(door, "EXISTS gone"), say(door, "DBSIZE")], [0, 7])
            self.assertEqual([say(door, "SCARD lived"), say(door, "SADD lived %d" % turn)], [turn + 1, 1])
            large[noisy(turn, 900)] = b"changed"
            ask(door, b"HSET", b"large", noisy(turn, 900), b"changed")

    def count(self, connection, seen, stop):
        """Counts in a hash, and adds as many members to a sorted set; `seen` has the last answer."""
        try:
            while not stop.is_set():
                connection.send(command(b"HINCRBY", b"h", b"n", b"1")
                                + command(b"ZADD", b"z", b"1", noisy(seen[0], 200)))
                seen[0] = receive(connection)
                receive(connection)
        except (OSError, Closed):
            pass

    def test_a_kill_between_changes_loses_none_that_was_answered(self):
        server, counted = self.kept(), 0
        for _ in range(3):
            stop, seen, enough = threading.Event(), [counted], counted + 100
            thread = threading.Thread(target=self.count, args=(self.connection(server), seen, stop))
            thread.start()
            until(lambda: seen[0] >= enough, "some are counted")
            server.process.kill()
            server.process.wait()
            stop.set()
            thread.join()
            server, door = self.again(server, signal.SIGKILL)
            found = int(say(door, "HGET h n"))
            self.assertIn(found, (seen[0], seen[0] + 1))
            answered = {noisy(number, 200) for number in range(counted, seen[0] - 1)}
            self.assertLessEqual(answered, set(content(door, b"z")))
            say(door, "DEL z")
            counted = found


@larder_only
class OnFlash(FlashCase, CollectionsCase):
    """Collections that only flash has."""

    # Requests on a collection that is on flash, what they say, and what it holds then.
    ROWS = [
        ("HGET h a", b"1", None), ("HINCRBY h a 1", 2, {b"a": b"2", b"b": b"two"}),
        ("HSET h c 3", 1, {b"a": b"1", b"b": b"two", b"c": b"3"}), ("HDEL h a", 1, {b"b": b"two"}), ("HLEN h", 2, None),
        ("SISMEMBER s 2", 1, None), ("SADD s 2 four", 1, {b"1", b"2", b"three", b"four"}),
        ("SREM s 1 2 three", 3, None), ("SCARD s", 3, None), ("SMOVE s t 1", 1, {b"2", b"three"}),
        ("ZSCORE z two", b"2.5", None), ("ZADD z 7 one", 0, {b"one": 7.0, b"two": 2.5}),
        ("ZINCRBY z 1 two", b"3.5", {b"one": 1.0, b"two": 3.5}), ("ZPOPMIN z", [b"one", b"1"], {b"two": 2.5}),
        ("ZRANGE z 0 0", [b"one"], None), ("GET h", WRONG_TYPE, None), ("SADD z m", WRONG_TYPE, None),
        ("TYPE s", b"set", None), ("SET h v", b"OK", b"v"), ("DEL s", 1, None), ("EXISTS z", 1, None),
        ("SUNIONSTORE u s", 3, None), ("ZUNIONSTORE u 2 z s", 5, None), ("EXPIRE h 1000", 1, None),
    ]

    def renamed(self, line, number):
        """The request for the collections of a number."""
        return " ".join("%s%d" % (word, number) if word in "hszut" else word for word in line.split())

    def test_collections_are_found_and_changed_on_flash(self):
        server = self.flash_server()
        door = self.connection(server)
        for number in range(len(self.ROWS)):
            for makes, _ in MADE.values():
                say(door, self.renamed(makes, number))
        # What the server saves when it ends has no copy in memory when it begins again.
        self.assertEqual(server.stop(), 0)
        server = self.flash_server()
        self.started_again(server)
        door = self.connection(server)
        for number, (line, said, held) in enumerate(self.ROWS):
            key = line.split()[1].encode() + b"%d" % number
            self.assertEqual(say(door, self.renamed(line, number)), said, line)
            if held is not None:
                self.assertEqual(content(door, key), held, line)
            for made, (_, whole) in MADE.items():
                if made[:1] not in line.encode().split():
                    self.assertEqual(content(door, made + b"%d" % number), whole)

    def test_transactions_and_scripts_find_what_is_on_flash(self):
        server = self.flash_server()
        door = self.connection(server)
        for number in range(40):
            say(door, "HSET h%d a 1" % number)
            say(door, "SADD s%d m" % number)
            say(door, "ZADD z%d 1 m" % number)
        self.assertEqual(server.stop(), 0)
        server = self.flash_server()
        self.started_again(server)
        door = self.connection(server)
        for number in range(20):
            for line in ("MULTI", "HINCRBY h%d a 1", "SADD s%d n", "ZINCRBY z%d 1 m"):
                say(door, line % number if "%" in line else line)
            self.assertEqual(say(door, "EXEC"), [2, 1, b"2"])
        text = (b"redis.call('HINCRBY', KEYS[1], 'a', 1) redis.call('SADD', KEYS[2], 'n') "
                b"return redis.call('ZINCRBY', KEYS[3], 1, 'm')")
        for number in range(20, 40):
            self.assertEqual(script(door, text, [b"%b%d" % (key, number) for key in (b"h", b"s", b"z")]), b"2")
        for number in range(40):
            self.assertEqual([content(door, b"%b%d" % (key, number)) for key in (b"h", b"s", b"z")],
                             [{b"a": b"2"}, {b"m", b"n"}, {b"m": 2.0}])

    def test_what_memory_lets_go_of_is_on_flash_as_it_was(self):
        server = self.flash_server()
        door, text = self.connection(server), self.connection(server)
        held = {}
        for number in range(200):
            size = (10, 1000, 20_000)[number % 3]
            for key, request, value in (
                (b"h%d" % number, (b"HSET", b"f", noisy(number, size)), {b"f": noisy(number, size)}),
                (b"s%d" % number, (b"SADD", noisy(number, size)), {noisy(number, size)}),
                (b"z%d" % number, (b"ZADD", b"1.5", noisy(number, size)), {noisy(number, size): 1.5}),
            ):
                self.assertEqual(ask(door, request[0], key, *request[1:]), 1)
                held[key] = value
            self.wait_for_flash(text)
        self.push_out(text)
        before = self.number(text, b"get_extstore")
        found = {key: content(door, key) for key in held}
        # Flash may have shed some.
        self.assertEqual([key for key, value in found.items() if value not in (held[key], None)], [])
        there = [key for key, value in found.items() if value is not None]
        self.assertGreater(len(there), len(held) // 2)
        self.assertGreater(self.number(text, b"get_extstore"), before)
        self.assertEqual(server.stop(), 0)
        server = self.flash_server()
        self.started_again(server)
        door = self.connection(server)
        self.assertEqual([key for key in there if content(door, key) not in (held[key], None)], [])


@larder_only
class Tenants(TenantsCase, CollectionsCase):
    """Users with a namespace."""

    def test_users_have_collections_of_their_own(self):
        server = self.serve()
        ada, bob, root, eve = (self.resp_door(server, user) for user in ("ada", "bob", "root", "eve"))
        for name, door in ((b"ada", ada), (b"bob", bob), (b"root", root)):
            ask(door, b"HSET", b"h", b"user", name)
            ask(door, b"SADD", b"s", name)
            ask(door, b"ZADD", b"z", b"1", name)
        for name, door in ((b"ada", ada), (b"bob", bob), (b"root", root), (b"ada", eve)):
            self.assertEqual([content(door, key) for key in (b"h", b"s", b"z")],
                             [{b"user": name}, {name}, {name: 1.0}])
        self.assertEqual([content(root, b"shop:s"), content(root, b"page:h")], [{b"ada"}, {b"user": b"bob"}])
        self.assertEqual(say(ada, "SCAN 0 COUNT 100 TYPE zset"), [b"0", [b"z"]])
        for line in ("HSET h a 1", "SADD s m", "ZADD z 1 m", "SPOP s", "ZPOPMIN z", "SUNIONSTORE to s", "HDEL h user"):
            self.refused(say(eve, line), b"NOPERM")
        # Every key of a request is the user's own, and so is one that a reply names.
        self.assertEqual(say(ada, "SADD t x"), 1)
        self.assertEqual(sorted(say(ada, "SUNION s t")), [b"ada", b"x"])
        self.assertEqual([say(ada, "SUNIONSTORE u s t"), say(ada, "SMOVE t u x")], [2, 1])
        self.assertEqual(say(ada, "SINTERCARD 2 s u"), 1)
        self.assertEqual(say(ada, "ZUNIONSTORE v 2 z s"), 1)
        self.assertEqual([say(ada, "ZINTER 2 z s WITHSCORES"), say(ada, "ZRANGESTORE w v 0 -1")], [[b"ada", b"2"], 1])
        self.assertEqual(say(ada, "ZMPOP 2 none v MIN"), [b"v", [[b"ada", b"2"]]])
        self.assertEqual(sorted(say(ada, "KEYS *")), [b"h", b"s", b"u", b"w", b"z"])
        self.assertEqual(sorted(say(bob, "KEYS *")), [b"h", b"s", b"z"])
        self.assertEqual([say(ada, "FLUSHALL"), say(bob, "DBSIZE"), say(root, "SCARD s")], [b"OK", 3, 1])
