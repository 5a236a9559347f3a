"""Hashes, sets and sorted sets: what they share with every item, and clients that change them together.

What their commands answer is compared with Valkey in tests/differential/resp.py. Sizes, memory, flash, restarts and
users are in test_collections_stored.py.
"""

import random
import threading

import packets
from collections_support import MADE, THREADS, WRONG_TYPE, CollectionsCase, content, say
from process_support import larder_only
from resp_support import ask, command, receive
from support import until
from test_scripts import script
from test_tracking import Reader
from test_watched_keys import words

ROUNDS = 300
NON_NUMERIC = b"CLIENT_ERROR cannot increment or decrement non-numeric value"
# Requests on the string at @.
OF_STRINGS = [
    "GET @", "GETSET @ v", "GETDEL @", "GETEX @", "GETEX @ EX 100", "SET @ v GET", "SET @ v IFEQ x",
    "DELIFEQ @ x", "APPEND @ v", "STRLEN @", "GETRANGE @ 0 1", "SUBSTR @ 0 1", "SETRANGE @ 0 v", "INCR @",
    "DECR @", "INCRBY @ 1", "DECRBY @ 1", "INCRBYFLOAT @ 1", "SETBIT @ 0 1", "GETBIT @ 0", "BITCOUNT @",
    "BITPOS @ 1",
]
# Requests on collections, by the key of MADE that they fit.
OF_COLLECTIONS = {
    b"h": ["HSET @ f v", "HMSET @ f v", "HSETNX @ f v", "HGET @ f", "HMGET @ f", "HDEL @ f", "HLEN @",
           "HEXISTS @ f", "HSTRLEN @ f", "HGETALL @", "HKEYS @", "HVALS @", "HINCRBY @ f 1",
           "HINCRBYFLOAT @ f 1", "HRANDFIELD @", "HRANDFIELD @ 1", "HSCAN @ 0"],
    b"s": ["SADD @ m", "SREM @ m", "SISMEMBER @ m", "SMISMEMBER @ m", "SCARD @", "SMEMBERS @", "SPOP @",
           "SPOP @ 1", "SRANDMEMBER @", "SRANDMEMBER @ 1", "SMOVE @ s m", "SMOVE s @ 1", "SINTER s @",
           "SUNION s @", "SDIFF s @", "SINTERSTORE to s @", "SUNIONSTORE to s @", "SDIFFSTORE to s @",
           "SINTERCARD 2 s @", "SINTER none @", "SSCAN @ 0"],
    b"z": ["ZADD @ 1 m", "ZADD @ INCR 1 m", "ZINCRBY @ 1 m", "ZREM @ m", "ZSCORE @ m", "ZMSCORE @ m",
           "ZCARD @", "ZRANK @ m", "ZREVRANK @ m", "ZCOUNT @ 0 1", "ZLEXCOUNT @ - +", "ZRANGE @ 0 1",
           "ZRANGE @ 0 1 BYSCORE", "ZRANGE @ - + BYLEX", "ZREVRANGE @ 0 1", "ZRANGEBYSCORE @ 0 1",
           "ZREVRANGEBYSCORE @ 1 0", "ZRANGEBYLEX @ - +", "ZREVRANGEBYLEX @ + -", "ZRANGESTORE to @ 0 1",
           "ZREMRANGEBYRANK @ 0 1", "ZREMRANGEBYSCORE @ 0 1", "ZREMRANGEBYLEX @ - +", "ZPOPMIN @",
           "ZPOPMAX @ 1", "ZMPOP 1 @ MIN", "ZRANDMEMBER @", "ZRANDMEMBER @ 1", "ZSCAN @ 0"],
}
# What leaves nothing of the key `k`: what makes it, and what takes the last of it.
EMPTIED = [
    ("HSET k a 1 b 2", "HDEL k a b"),
    ("SADD k a", "SREM k a"),
    ("SADD k a", "SPOP k"),
    ("SADD k a b c", "SPOP k 3"),
    ("SADD k a b c", "SPOP k 100"),
    ("SADD k a", "SMOVE k other a"),
    ("SADD k a", "SDIFFSTORE k k k"),
    ("SADD k a", "SINTERSTORE k k none"),
    ("SADD k a", "SUNIONSTORE k none"),
    ("ZADD k 1 a 2 b", "ZREM k a b"),
    ("ZADD k 1 a", "ZPOPMIN k"),
    ("ZADD k 1 a 2 b", "ZPOPMAX k 2"),
    ("ZADD k 1 a", "ZMPOP 1 k MIN"),
    ("ZADD k 1 a 2 b", "ZREMRANGEBYRANK k 0 -1"),
    ("ZADD k 1 a 2 b", "ZREMRANGEBYSCORE k -inf +inf"),
    ("ZADD k 0 a 0 b", "ZREMRANGEBYLEX k - +"),
    ("ZADD k 1 a", "ZRANGESTORE k k 5 6"),
    ("ZADD k 1 a", "ZINTERSTORE k 2 k none"),
    ("ZADD k 1 a", "ZUNIONSTORE k 1 none"),
    ("ZADD k 1 a", "ZDIFFSTORE k 2 k k"),
    ("SET k v", "SUNIONSTORE k none"),
    ("SET k v", "ZRANGESTORE k none 0 1"),
]
# What is done while the key `k` is watched: what was there before, and whether the transaction is executed.
WATCHED = [
    ("HSET k a 1", "HGETALL k", True),
    ("HSET k a 1", "HSET k a 2", False),
    ("HSET k a 1", "HSET k a 1", False),
    ("HSET k a 1", "HSETNX k a 2", True),
    ("HSET k a 1", "HSETNX k b 2", False),
    ("HSET k a 1", "HDEL k b", True),
    ("HSET k a 1", "HDEL k a", False),
    ("HSET k a 1", "HINCRBY k a 1", False),
    ("HSET k a x", "HINCRBY k a 1", True),
    ("HSET k a 1", "HINCRBYFLOAT k a 1", False),
    ("HSET k a 1", "SADD k m", True),
    ("SADD k a", "SADD k a", True),
    ("SADD k a", "SADD k b", False),
    ("SADD k a", "SREM k b", True),
    ("SADD k a b", "SREM k b", False),
    ("SADD k a b", "SPOP k", False),
    ("SADD k a b", "SPOP k 0", True),
    ("SADD k a", "SMOVE k other b", True),
    ("SADD k a b", "SMOVE k other b", False),
    ("SADD k a", "SMOVE other k b", True),
    ("SADD k a", "SINTER k k", True),
    ("SADD k a", "SUNIONSTORE k k", False),
    ("SADD k a", "SUNIONSTORE other k", True),
    ("ZADD k 1 a", "ZADD k 1 a", True),
    ("ZADD k 1 a", "ZADD k 2 a", False),
    ("ZADD k 1 a", "ZADD k NX 2 a", True),
    ("ZADD k 1 a", "ZADD k XX 2 b", True),
    ("ZADD k 1 a", "ZADD k GT 0 a", True),
    ("ZADD k 1 a", "ZINCRBY k 1 a", False),
    ("ZADD k 1 a", "ZREM k b", True),
    ("ZADD k 1 a", "ZREM k a", False),
    ("ZADD k 1 a", "ZREMRANGEBYSCORE k 5 6", True),
    ("ZADD k 1 a", "ZREMRANGEBYRANK k 0 0", False),
    ("ZADD k 1 a", "ZPOPMIN k", False),
    ("ZADD k 1 a", "ZPOPMIN k 0", True),
    ("ZADD k 1 a", "ZMPOP 2 none k MAX", False),
    ("ZADD k 1 a", "ZRANGE k 0 -1", True),
    ("ZADD k 1 a", "ZRANGESTORE k k 0 0", False),
    ("ZADD k 1 a", "ZUNIONSTORE k 1 k", False),
    ("ZADD k 1 a", "ZUNIONSTORE other 1 k", True),
    ("SADD k a", "EXPIRE k 1000", False),
    ("SADD k a", "RENAME k other", False),
    ("SADD k a", "COPY k other", True),
    ("SADD k a", "SET k v", False),
    ("SADD k a", "MOVE k 1", False),
]
# Requests that read: who tracks keys hears later of a change of the key `k`.
READS = [
    "HGET k a", "HMGET k a b", "HGETALL k", "HKEYS k", "HVALS k", "HLEN k", "HEXISTS k a", "HSTRLEN k a",
    "HRANDFIELD k", "HSCAN k 0", "SMEMBERS k", "SISMEMBER k a", "SMISMEMBER k a b", "SCARD k", "SRANDMEMBER k",
    "SRANDMEMBER k 2", "SINTER none k", "SUNION none k", "SDIFF none k", "SINTERCARD 2 none k", "SSCAN k 0",
    "ZSCORE k a", "ZMSCORE k a", "ZCARD k", "ZRANK k a", "ZREVRANK k a", "ZCOUNT k 0 1", "ZLEXCOUNT k - +",
    "ZRANGE k 0 1", "ZREVRANGE k 0 1", "ZRANGEBYSCORE k 0 1", "ZREVRANGEBYSCORE k 1 0", "ZRANGEBYLEX k - +",
    "ZREVRANGEBYLEX k + -", "ZRANDMEMBER k", "ZUNION 2 none k", "ZINTER 2 none k", "ZDIFF 2 none k",
    "ZINTERCARD 2 none k", "ZSCAN k 0", "TYPE k",
]
# A limiter as libraries send it: whether a call is let through, of those of the last window.
WINDOW = (b"redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', tonumber(ARGV[1]) - tonumber(ARGV[2])) "
          b"if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end "
          b"redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4]) redis.call('PEXPIRE', KEYS[1], 60000) return 1")


@larder_only
class Collections(CollectionsCase):
    """On a server with nothing else."""

    def setUp(self):
        self.running = self.server("-m", "64")
        self.door = self.connection(self.running)

    def test_a_collection_is_one_item(self):
        self.make(self.door)
        self.assertEqual(say(self.door, "DBSIZE"), 3)
        self.assertEqual(sorted(say(self.door, "KEYS *")), [b"h", b"s", b"z"])
        self.assertEqual([say(self.door, "TYPE %s" % key) for key in "hszn"], [b"hash", b"set", b"zset", b"none"])
        self.assertEqual(say(self.door, "EXISTS h s z none h"), 4)
        self.assertIn(say(self.door, "RANDOMKEY"), (b"h", b"s", b"z"))
        for kind, key in ((b"hash", b"h"), (b"set", b"s"), (b"zset", b"z")):
            self.assertEqual(ask(self.door, b"SCAN", b"0", b"COUNT", b"100", b"TYPE", kind), [b"0", [key]])
        self.assertEqual(say(self.door, "SCAN 0 COUNT 100 TYPE string"), [b"0", []])
        self.assertIn(b"keys=3,expires=0", say(self.door, "INFO keyspace"))
        self.assertGreater(say(self.door, "MEMORY USAGE h"), 10)
        self.assertEqual(say(self.door, "UNLINK h s"), 2)
        self.assertEqual(say(self.door, "FLUSHALL"), b"OK")
        self.assertEqual(say(self.door, "DBSIZE"), 0)

    def test_an_empty_collection_vanishes(self):
        for makes, takes in EMPTIED:
            with self.subTest(takes):
                say(self.door, "FLUSHALL")
                say(self.door, makes)
                self.assertEqual(say(self.door, "EXISTS k"), 1)
                self.assertFalse(str(say(self.door, takes)).startswith("b'-"))
                self.assertEqual([say(self.door, "EXISTS k"), say(self.door, "TYPE k")], [0, b"none"])
                self.assertEqual(say(self.door, "DBSIZE"), say(self.door, "EXISTS other"))
                self.assertEqual([say(self.door, "TTL k"), say(self.door, "SADD k x")], [-2, 1])

    def test_the_lifetime_of_a_collection_that_vanished_is_gone_with_it(self):
        for makes, takes in EMPTIED:
            say(self.door, makes)
            say(self.door, "EXPIRE k 1000")
            say(self.door, takes)
            say(self.door, "HSET k a 1")
            self.assertEqual(say(self.door, "TTL k"), -1, takes)
            say(self.door, "DEL k other")

    def test_requests_on_another_type_are_refused_and_change_nothing(self):
        self.make(self.door)
        say(self.door, "SET v string")
        requests = {**OF_COLLECTIONS, b"v": OF_STRINGS}
        for key in requests:
            for other, lines in requests.items():
                for line in lines if other != key else ():
                    self.assertEqual(say(self.door, line.replace("@", key.decode())), WRONG_TYPE, (key, line))
        self.check_made(self.door)
        self.assertEqual([say(self.door, "GET v"), say(self.door, "DBSIZE")], [b"string", 4])
        # A set may stand where sorted sets are united.
        self.assertEqual(say(self.door, "ZUNION 2 s z WITHSCORES"),
                         [b"1", b"1", b"2", b"1", b"one", b"1", b"three", b"1", b"two", b"2.5"])
        for key in ("h", "v"):
            for name in ("ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD", "ZUNIONSTORE to", "ZINTERSTORE to"):
                self.assertEqual(say(self.door, "%s 2 z %s" % (name, key)), WRONG_TYPE)

    def test_requests_that_take_every_type(self):
        for key, (makes, held) in MADE.items():
            name = key.decode()
            say(self.door, makes)
            self.assertEqual(say(self.door, "MGET %s none" % name), [None, None])
            self.assertEqual([say(self.door, "SETNX %s v" % name), say(self.door, "MSETNX none 1 %s 2" % name)], [0, 0])
            self.assertEqual(say(self.door, "SET %s v NX" % name), None)
            self.assertEqual(content(self.door, key), held)
            say(self.door, "EXPIRE %s 1000" % name)
            self.assertEqual(say(self.door, "SET %s v" % name), b"OK")
            self.assertEqual([content(self.door, key), say(self.door, "TTL %s" % name)], [b"v", -1])
            say(self.door, "DEL %s" % name)
            say(self.door, makes)
            self.assertEqual(say(self.door, "MSET other 1 %s 2" % name), b"OK")
            self.assertEqual(content(self.door, key), b"2")
            say(self.door, "DEL %s" % name)
            say(self.door, makes)
            self.assertEqual([say(self.door, "DEL %s" % name), say(self.door, "TYPE %s" % name)], [1, b"none"])

    def test_what_a_collection_says_of_its_encoding(self):
        def of(*request):
            ask(self.door, b"DEL", b"k")
            ask(self.door, *request)
            return say(self.door, "OBJECT ENCODING k")

        numbers = [b"%d" % number for number in range(1000)]
        names = [b"m%d" % number for number in range(1000)]
        fields = [word for name in names for word in (name, b"v")]
        scored = [word for name in names for word in (b"1", name)]
        self.assertEqual([of(b"HSET", b"k", *fields[:1024]), of(b"HSET", b"k", *fields[:1026])],
                         [b"listpack", b"hashtable"])
        self.assertEqual([of(b"HSET", b"k", b"f", b"v" * 64), of(b"HSET", b"k", b"f", b"v" * 65)],
                         [b"listpack", b"hashtable"])
        self.assertEqual([of(b"SADD", b"k", *numbers[:512]), of(b"SADD", b"k", *numbers[:513])],
                         [b"intset", b"hashtable"])
        self.assertEqual([of(b"SADD", b"k", *names[:128]), of(b"SADD", b"k", *names[:129])],
                         [b"listpack", b"hashtable"])
        self.assertEqual([of(b"SADD", b"k", b"m" * 65), of(b"SADD", b"k", b"1", b"01")], [b"hashtable", b"listpack"])
        self.assertEqual([of(b"ZADD", b"k", *scored[:256]), of(b"ZADD", b"k", *scored[:258])],
                         [b"listpack", b"skiplist"])

    def test_keys_that_memcached_would_not_take(self):
        for key in (b"k" * 251, b"l" * 1000, b"m" * 65_536, b"", b"\0\r\n \xff"):
            self.assertEqual(ask(self.door, b"HSET", key, b"f", b"v"), 1)
            self.assertEqual(ask(self.door, b"HGET", key, b"f"), b"v")
            self.assertEqual(ask(self.door, b"RENAME", key, key[:-1] + b"x"), b"OK")
            self.assertEqual(content(self.door, key[:-1] + b"x"), {b"f": b"v"})
            for name, more in ((b"SADD", (b"m",)), (b"ZADD", (b"1", b"m"))):
                self.assertEqual(ask(self.door, name, key, *more), 1)
                self.assertEqual(ask(self.door, b"DEL", key), 1)
        for request in ((b"HSET", b"k" * 65_537, b"f", b"v"), (b"SADD", b"k" * 65_537, b"m")):
            self.refused(ask(self.door, *request), b"too long")

    def test_random_members_are_members(self):
        members = [b"m%d" % number for number in range(50)]
        ask(self.door, b"SADD", b"s", *members)
        ask(self.door, b"ZADD", b"z", *[word for member in members for word in (member[1:], member)])
        ask(self.door, b"HSET", b"h", *[word for member in members for word in (member, member + b"v")])
        for name, key in ((b"SRANDMEMBER", b"s"), (b"ZRANDMEMBER", b"z"), (b"HRANDFIELD", b"h")):
            self.door.send(command(name, key) * 2000)
            self.assertEqual({receive(self.door) for _ in range(2000)}, set(members), "every member is drawn")
            for count in (1, 10, 49, 50, 100):
                drawn = ask(self.door, name, key, b"%d" % count)
                self.assertEqual((len(drawn), len(set(drawn)), set(drawn) - set(members)),
                                 (min(count, 50), min(count, 50), set()))
                drawn = ask(self.door, name, key, b"-%d" % count)
                self.assertEqual((len(drawn), set(drawn) - set(members)), (count, set()))
        for count in (b"20", b"-200"):
            drawn = ask(self.door, b"HRANDFIELD", b"h", count, b"WITHVALUES")
            self.assertEqual(drawn[1::2], [field + b"v" for field in drawn[::2]])
            drawn = ask(self.door, b"ZRANDMEMBER", b"z", count, b"WITHSCORES")
            self.assertEqual(drawn[1::2], [member[1:] for member in drawn[::2]])
        popped = ask(self.door, b"SPOP", b"s", b"20")
        self.assertEqual((len(set(popped)), set(popped) | content(self.door, b"s")), (20, set(members)))

    def test_a_scan_shows_each_member_that_stays(self):
        names = [b"m%d" % number for number in range(4000)]
        ask(self.door, b"SADD", b"s", *names)
        ask(self.door, b"ZADD", b"z", *[word for name in names for word in (b"1.5", name)])
        ask(self.door, b"HSET", b"h", *[word for name in names for word in (name, b"v")])
        for name, key, behind in ((b"SSCAN", b"s", None), (b"ZSCAN", b"z", b"1.5"), (b"HSCAN", b"h", b"v")):
            cursor, found, replies = b"0", [], []
            while not replies or cursor != b"0":
                cursor, shown = ask(self.door, name, key, cursor, b"COUNT", b"300")
                if behind:
                    self.assertEqual(set(shown[1::2]), {behind})
                    shown = shown[::2]
                found += shown
                replies.append(len(shown))
                # What goes, comes and changes meanwhile hides no other.
                gone, new = [b"m%d" % number for number in random.sample(range(1000), 50)], b"n%d" % len(replies)
                ask(self.door, {b"s": b"SREM", b"z": b"ZREM", b"h": b"HDEL"}[key], key, *gone)
                if key == b"z":
                    ask(self.door, b"ZADD", b"z", b"XX", b"1.5", random.choice(names), b"1.5", b"m1000")
                ask(self.door, *{b"s": [b"SADD", b"s", new], b"z": [b"ZADD", b"z", b"1.5", new],
                                 b"h": [b"HSET", b"h", new, b"v"]}[key])
            self.assertEqual(set(replies[:-1]), {300})
            self.assertEqual(len(found), len(set(found)))
            self.assertLessEqual(set(names[1000:]), set(found))
            matched, cursor = [], None
            while cursor != b"0":
                cursor, shown = ask(self.door, name, key, cursor or b"0", b"MATCH", b"m1999")
                matched += shown
            self.assertEqual(matched[0], b"m1999")

    def test_a_small_collection_is_shown_at_once(self):
        names = [b"m%d" % number for number in range(512)]
        ask(self.door, b"SADD", b"s", *names)
        cursor, found = ask(self.door, b"SSCAN", b"s", b"0", b"COUNT", b"10")
        self.assertEqual((cursor, sorted(found)), (b"0", sorted(names)))

    def test_a_script_takes_a_large_set_in_parts(self):
        """What the caches of Symfony do with a tag."""
        for start in range(0, 9000, 3000):
            ask(self.door, b"SADD", b"t", *[b"m%d" % number for number in range(start, start + 3000)])
        script = b"""local cursor, gone = '0', 0
            local shown = redis.call('SSCAN', KEYS[1], ARGV[1], 'COUNT', 3000)
            return {shown[1], redis.call('SREM', KEYS[1], unpack(shown[2]))}"""
        cursor, total = b"0", 0
        while not total or cursor != b"0":
            cursor, gone = ask(self.door, b"EVAL", script, b"1", b"t", cursor)
            total += gone
        self.assertEqual((total, ask(self.door, b"EXISTS", b"t")), (9000, 0))

    def test_lifetimes(self):
        for key, (makes, _) in MADE.items():
            name = key.decode()
            say(self.door, makes)
            self.assertEqual(say(self.door, "EXPIRE %s 1000" % name), 1)
            say(self.door, makes)
            say(self.door, {"h": "HSET h c 1", "s": "SREM s 1", "z": "ZINCRBY z 1 one"}[name])
            self.assertTrue(900 < say(self.door, "TTL %s" % name) <= 1000)
            self.assertEqual(say(self.door, "COPY %s copy" % name), 1)
            self.assertTrue(900 < say(self.door, "TTL copy") <= 1000)
            self.assertEqual([say(self.door, "PERSIST %s" % name), say(self.door, "TTL %s" % name)], [1, -1])
            self.assertEqual(say(self.door, "PEXPIRE %s 20" % name), 1)
            until(lambda: say(self.door, "EXISTS %s" % name) == 0, "the collection has expired")
            self.assertEqual(say(self.door, "TYPE %s" % name), b"none")
            # Nothing of it is left in a new one.
            say(self.door, {"h": "HSET h new 1", "s": "SADD s new", "z": "ZADD z 1 new"}[name])
            self.assertEqual([set(content(self.door, key)), say(self.door, "TTL %s" % name)], [{b"new"}, -1])
            self.assertEqual([say(self.door, "EXPIRE %s -1" % name), say(self.door, "EXISTS %s" % name)], [1, 0])
            say(self.door, "DEL copy")
        for makes, stores in (("SADD k a", "SUNIONSTORE k k"), ("ZADD k 1 a", "ZRANGESTORE k k 0 -1"),
                              ("ZADD k 1 a", "ZUNIONSTORE k 1 k")):
            say(self.door, makes)
            say(self.door, "EXPIRE k 1000")
            self.assertEqual([say(self.door, stores), say(self.door, "TTL k"), say(self.door, "DEL k")], [1, -1, 1])

    def test_collections_are_copied_renamed_and_moved(self):
        one = self.connection(self.running)
        say(one, "SELECT 1")
        self.make(self.door)
        for key, (_, held) in MADE.items():
            name = key.decode()
            self.assertEqual(say(self.door, "COPY %s copy" % name), 1)
            self.assertEqual(say(self.door, "COPY %s copy" % name), 0)
            # What happens to the one does not happen to the other.
            say(self.door, {"h": "HSET copy new 1", "s": "SADD copy new", "z": "ZADD copy 1 new"}[name])
            self.assertEqual([len(content(self.door, b"copy")), content(self.door, key)], [len(held) + 1, held])
            self.assertEqual(say(self.door, "RENAME %s renamed" % name), b"OK")
            self.assertEqual([content(self.door, b"renamed"), say(self.door, "EXISTS %s" % name)], [held, 0])
            self.assertEqual(say(self.door, "RENAMENX renamed copy"), 0)
            self.assertEqual(say(self.door, "RENAME renamed %s" % name), b"OK")
            self.assertEqual(say(self.door, "COPY %s there DB 1" % name), 1)
            self.assertEqual(content(one, b"there"), held)
            self.assertEqual([say(self.door, "MOVE %s 1" % name), say(self.door, "EXISTS %s" % name)], [1, 0])
            self.assertEqual(content(one, key), held)
            self.assertEqual(say(one, "MOVE %s 0" % name), 1)
            self.assertEqual([say(one, "DEL there"), say(self.door, "DEL copy")], [1, 1])
        self.check_made(self.door)
        self.assertEqual([say(self.door, "DBSIZE"), say(one, "DBSIZE")], [3, 0])

    def test_databases_have_collections_of_their_own(self):
        doors = [self.connection(self.running) for _ in range(3)]
        for number, door in enumerate(doors):
            say(door, "SELECT %d" % number)
            say(door, "SADD s %d" % number)
            say(door, "HINCRBY h n %d" % number)
            say(door, "ZADD z %d m" % number)
        for number, door in enumerate(doors):
            self.assertEqual(content(door, b"s"), {b"%d" % number})
            self.assertEqual(say(door, "HGET h n"), b"%d" % number)
            self.assertEqual(say(door, "ZSCORE z m"), b"%d" % number)
            self.assertEqual(say(door, "SUNIONSTORE all s none"), 1)
        say(doors[1], "FLUSHDB")
        self.assertEqual([say(door, "DBSIZE") for door in doors], [4, 0, 4])

    def test_requests_in_pieces_and_together(self):
        request = command(b"HSET", b"h", b"f", b"v" * 40_000, b"g", b"w") + command(b"HSTRLEN", b"h", b"f")
        for start in range(0, len(request), 9001):
            self.door.send(request[start:start + 9001])
            self.door.wait_until_read()
        self.assertEqual([receive(self.door), receive(self.door)], [2, 40_000])
        self.door.send(b"".join(command(b"SADD", b"s", b"%d" % (number % 100)) for number in range(1000)))
        self.assertEqual([receive(self.door) for _ in range(1000)], [1] * 100 + [0] * 900)


@larder_only
class Doors(CollectionsCase):
    """Clients of memcached on the same port."""

    def setUp(self):
        running = self.server("-m", "64")
        self.door, self.text, self.binary = [self.connection(running) for _ in range(3)]
        self.make(self.door)

    def test_memcached_finds_no_item(self):
        for key in MADE:
            self.assertIsNone(self.text.get(key))
            for line, said in ((b"gets %b", b"END"), (b"gat 100 %b", b"END"), (b"mg %b v", b"EN"),
                               (b"mg %b v t f s", b"EN"), (b"append %b 0 0 1\r\nx", b"NOT_STORED"),
                               (b"prepend %b 0 0 1\r\nx", b"NOT_STORED"),
                               (b"add %b 0 0 1\r\nx", b"NOT_STORED"), (b"ms %b 1 ME\r\nx", b"NS"),
                               (b"ms %b 1 MA\r\nx", b"NS"), (b"ms %b 1 MP\r\nx", b"NS")):
                self.assertEqual(self.text.ask(line % key), said, line)
            for line in (b"incr %b 1", b"decr %b 1", b"ma %b"):
                self.assertEqual(self.text.ask(line % key), NON_NUMERIC, line)
        self.assertEqual(self.text.set(b"v", b"string"), b"STORED")
        self.text.send(b"get h v s z\r\n")
        self.assertEqual([self.text.line() for _ in range(3)], [b"VALUE v 0 6", b"string", b"END"])
        self.check_made(self.door)
        self.assertEqual([say(self.door, "TTL %s" % key) for key in "hsz"], [-1] * 3)

    def test_the_binary_protocol_finds_no_item(self):
        numbers = b"\0" * 7 + b"\1" + b"\0" * 8 + b"\0" * 4
        for key in MADE:
            self.assertEqual(packets.ask(self.binary, packets.packet(packets.GET, key)).status, packets.NOT_FOUND)
            for request, status in ((packets.store(key, b"x", packets.ADD), 2),
                                    (packets.packet(packets.APPEND, key, b"x"), 5),
                                    (packets.packet(packets.INCR, key, extras=numbers), 6)):
                self.assertEqual(packets.ask(self.binary, request).status, status)
        self.check_made(self.door)

    def test_memcached_replaces_deletes_and_touches(self):
        for key in MADE:
            self.assertEqual(self.text.ask(b"touch %b 1000" % key), b"TOUCHED")
            self.assertTrue(900 < ask(self.door, b"TTL", key) <= 1000)
        self.check_made(self.door)
        for line in (b"set %b 0 0 2\r\n10", b"replace %b 0 0 2\r\n10", b"ms %b 2\r\n10", b"ms %b 2 MR\r\n10"):
            for key, (makes, _) in MADE.items():
                self.assertIn(self.text.ask(line % key), (b"STORED", b"HD"))
                self.assertEqual([self.text.get(key), content(self.door, key)], [b"10", b"10"])
                self.assertEqual(self.text.ask(b"incr %b 1" % key), b"11")
                self.assertEqual(self.text.ask(b"delete %b" % key), b"DELETED")
                say(self.door, makes)
        for line, said in ((b"delete %b", b"DELETED"), (b"md %b", b"HD")):
            for key, (makes, _) in MADE.items():
                self.assertEqual(self.text.ask(line % key), said)
                self.assertEqual(ask(self.door, b"EXISTS", key), 0)
                say(self.door, makes)
        for key in MADE:
            self.assertEqual(packets.ask(self.binary, packets.packet(packets.DELETE, key)).status, packets.OK)
        self.assertEqual(say(self.door, "DBSIZE"), 0)

    def test_memcached_flushes(self):
        self.assertEqual(self.text.ask(b"flush_prefix h"), b"OK")
        self.assertEqual(sorted(say(self.door, "KEYS *")), [b"s", b"z"])
        self.assertEqual(self.text.ask(b"flush_all"), b"OK")
        self.assertEqual(say(self.door, "DBSIZE"), 0)

    def test_an_item_of_memcached_is_a_string(self):
        self.text.set(b"k", b"5", flags=7)
        self.assertEqual(say(self.door, "TYPE k"), b"string")
        for line in ("HSET k a 1", "SADD k a", "ZADD k 1 a", "HGETALL k", "SMEMBERS k", "ZRANGE k 0 -1"):
            self.assertEqual(say(self.door, line), WRONG_TYPE)
        self.assertEqual(self.text.ask(b"incr k 1"), b"6")


@larder_only
class Together(CollectionsCase):
    """Transactions, scripts, clients that hear of changes, and several at once."""

    def setUp(self):
        self.running = self.server("-m", "64")
        self.door, self.other = [self.connection(self.running) for _ in range(2)]

    def test_transactions(self):
        for line in ("MULTI", "HSET h a 1", "HINCRBY h a 4", "SADD s x y", "SMOVE s t x", "ZADD z 1 m", "ZINCRBY z 2 m",
                     "SADD h m", "HGETALL h", "ZRANGE z 0 -1 WITHSCORES", "SCARD s"):
            self.assertIn(say(self.door, line), (b"OK", b"QUEUED"))
        self.assertEqual(say(self.other, "DBSIZE"), 0)
        self.assertEqual(say(self.door, "EXEC"),
                         [1, 5, 2, 1, 1, b"3", WRONG_TYPE, [b"a", b"5"], [b"m", b"3"], 1])
        for line in ("MULTI", "HSET h a", "HSET h a 9"):
            say(self.door, line)
        self.refused(say(self.door, "EXEC"), b"EXECABORT")
        self.assertEqual(say(self.door, "HGET h a"), b"5")

    def test_a_watched_collection(self):
        for before, between, runs in WATCHED:
            with self.subTest(between):
                say(self.other, "FLUSHALL")
                say(self.other, before)
                self.assertEqual(say(self.door, "WATCH k"), b"OK")
                say(self.other, between)
                say(self.door, "MULTI")
                say(self.door, "PING")
                self.assertEqual(say(self.door, "EXEC"), [b"PONG"] if runs else None)

    def test_scripts_change_collections(self):
        for text, keys, args, said in (
            (b"return redis.call('HSET', KEYS[1], 'a', 1, 'b', 2)", (b"h",), (), 2),
            (b"return redis.call('HGETALL', KEYS[1])", (b"h",), (), [b"a", b"1", b"b", b"2"]),
            (b"local n = 0 for k, v in ipairs(redis.call('HMGET', KEYS[1], 'a', 'none')) do n = n + 1 end return n",
             (b"h",), (), 2),
            (b"return redis.call('HMGET', KEYS[1], 'none', 'a')[1] == false", (b"h",), (), 1),
            (b"for n = 1, 500 do redis.call('SADD', KEYS[1], n) end return redis.call('SCARD', KEYS[1])", (b"s",), (),
             500),
            (b"return #redis.call('SMEMBERS', KEYS[1])", (b"s",), (), 500),
            (b"return redis.call('ZADD', KEYS[1], 1.5, 'a', 2, 'b')", (b"z",), (), 2),
            (b"return redis.call('ZSCORE', KEYS[1], 'a')", (b"z",), (), b"1.5"),
            (b"return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", (b"z",), (), [b"a", b"1.5", b"b", b"2"]),
            (b"return redis.call('ZPOPMIN', KEYS[1])[1]", (b"z",), (), b"a"),
            (b"return redis.call('TYPE', KEYS[1]).ok", (b"z",), (), b"zset"),
            (b"return redis.pcall('GET', KEYS[1]).err", (b"z",), (), WRONG_TYPE[1:]),
            (b"redis.call('DEL', unpack(KEYS)) return redis.call('DBSIZE')", (b"h", b"s", b"z"), (), 0),
        ):
            self.assertEqual(script(self.door, text, keys, args), said, text)

    def told(self, reader, line):
        """What a reader that has read the key `k` is told of a request."""
        reader.news()
        reader.ask(b"EXISTS", b"k")
        say(self.other, line)
        return reader.news()

    def test_who_tracks_keys_is_told_of_changes(self):
        reader = Reader(self.door)
        for before, between, is_same in WATCHED + [row + (False,) for row in EMPTIED]:
            say(self.other, "FLUSHALL")
            say(self.other, before)
            self.assertEqual(self.told(reader, between), [] if is_same else [b"k"], (before, between))
        for makes, changes in (("SADD other m", "SUNIONSTORE k other"), ("ZADD other 1 m", "ZUNIONSTORE k 1 other"),
                               ("SADD other m", "SMOVE other k m"), ("SADD other m", "COPY other k"),
                               ("SADD other m", "RENAME other k")):
            say(self.other, "FLUSHALL")
            say(self.other, makes)
            self.assertEqual(self.told(reader, changes), [b"k"], changes)

    def test_every_read_is_tracked(self):
        reader = Reader(self.door)
        for line in READS:
            say(self.other, "FLUSHALL")
            makes = {"H": "HSET k a 1", "S": "SADD k a", "Z": "ZADD k 1 a", "T": "SADD k a"}[line[0]]
            say(self.other, makes)
            reader.news()
            reader.ask(*words(line))
            say(self.other, "DEL k")
            self.assertEqual(reader.news(), [b"k"], line)

    def test_several_count_at_once(self):
        def work(number, door):
            for turn in range(ROUNDS):
                door.send(command(b"HINCRBY", b"h", b"all", b"1") + command(b"HINCRBY", b"h", b"of%d" % number, b"2")
                          + command(b"SADD", b"s", b"%d:%d" % (number, turn))
                          + command(b"SADD", b"shared", b"%d" % turn)
                          + command(b"ZADD", b"z", b"%d" % turn, b"%d:%d" % (number, turn))
                          + command(b"ZINCRBY", b"scores", b"1.5", b"all"))
                for _ in range(6):
                    said = receive(door)
                    assert not str(said).startswith("b'-"), said

        self.in_threads(self.running, work)
        total = THREADS * ROUNDS
        self.assertEqual(content(self.door, b"h"),
                         {b"all": b"%d" % total, **{b"of%d" % n: b"%d" % (2 * ROUNDS) for n in range(THREADS)}})
        every = {b"%d:%d" % (number, turn): float(turn) for number in range(THREADS) for turn in range(ROUNDS)}
        self.assertEqual([content(self.door, b"s"), content(self.door, b"z")], [set(every), every])
        self.assertEqual(content(self.door, b"shared"), {b"%d" % turn for turn in range(ROUNDS)})
        self.assertEqual(content(self.door, b"scores"), {b"all": 1.5 * total})

    def test_each_member_is_taken_once(self):
        members = {b"m%d" % number for number in range(THREADS * ROUNDS)}
        ask(self.door, b"SADD", b"s", *members)
        ask(self.door, b"ZADD", b"z", *[word for member in members for word in (member[1:], member)])
        taken = {b"SPOP": [], b"ZPOPMIN": [], b"ZMPOP": []}

        def work(_, door):
            while (member := say(door, "SPOP s")) is not None:
                taken[b"SPOP"].append(member)
                taken[b"ZPOPMIN"] += say(door, "ZPOPMIN z")[:1]
                taken[b"ZMPOP"] += [row[0] for row in (say(door, "ZMPOP 1 z MAX COUNT 2") or [None, []])[1]]

        self.in_threads(self.running, work)
        self.assertEqual(len(taken[b"SPOP"]), len(members))
        self.assertEqual(set(taken[b"SPOP"]), members)
        both = taken[b"ZPOPMIN"] + taken[b"ZMPOP"]
        self.assertEqual((len(both), set(both)), (len(members), members))
        self.assertEqual(say(self.door, "DBSIZE"), 0)

    def test_members_that_move_are_in_one_set(self):
        members = {b"m%d" % number for number in range(20)}
        ask(self.door, b"SADD", b"s0", *members)

        def work(number, door):
            chance = random.Random(number)
            for _ in range(ROUNDS):
                ask(door, b"SMOVE", b"s%d" % chance.randrange(3), b"s%d" % chance.randrange(3),
                    b"m%d" % chance.randrange(20))
                # Between the two it is in neither, or in both, for nobody.
                assert len(ask(door, b"SUNION", b"s0", b"s1", b"s2")) == 20

        self.in_threads(self.running, work)
        found = [member for number in range(3) for member in ask(self.door, b"SMEMBERS", b"s%d" % number)]
        self.assertEqual((len(found), set(found)), (20, members))

    def test_a_window_lets_through_as_many_as_it_has_room_for(self):
        let_through = []

        def work(number, door):
            for turn in range(100):
                if script(door, WINDOW, (b"window",), (b"1000", b"500", b"50", b"%d:%d" % (number, turn))):
                    let_through.append((number, turn))

        self.in_threads(self.running, work)
        self.assertEqual([len(let_through), say(self.door, "ZCARD window")], [50, 50])
        # A later call finds room.
        self.assertEqual(script(self.door, WINDOW, (b"window",), (b"1501", b"500", b"50", b"late")), 1)
        self.assertEqual(say(self.door, "ZRANGE window 0 -1 WITHSCORES"), [b"late", b"1501"])

    def test_what_has_a_tag_goes_with_the_tag(self):
        over = threading.Event()

        def write(number, door):
            for turn in range(ROUNDS):
                key = b"%d:%d" % (number, turn % 50)
                # Stored first: what a tag takes away is what was stored before its member was there.
                assert ask(door, b"SET", key, b"v") == b"OK"
                ask(door, b"SADD", b"tag", key)
            over.set()

        def invalidate(door):
            if random.random() < 0.5:
                keys = say(door, "SPOP tag 1000")
            else:
                for line in ("MULTI", "SMEMBERS tag", "DEL tag"):
                    say(door, line)
                keys = say(door, "EXEC")[0]
            if keys:
                ask(door, random.choice((b"DEL", b"UNLINK")), *keys)

        def work(number, door):
            if number:
                write(number, door)
            while number == 0 and not over.is_set():
                invalidate(door)

        self.in_threads(self.running, work)
        left = set(say(self.door, "KEYS *:*"))
        self.assertLessEqual(left, content(self.door, b"tag") or set())
        invalidate(self.door)
        self.assertEqual(say(self.door, "DBSIZE"), 0)


@larder_only
class Bounds(CollectionsCase):
    """Small requests that ask for much, and others that change nothing."""

    def setUp(self):
        self.running = self.server("-m", "64", "-t", "2")
        self.door, self.other = [self.connection(self.running) for _ in range(2)]

    def test_a_reply_has_a_bound(self):
        ask(self.door, b"HSET", b"h", b"f", b"v" * 500_000)
        for request in ([b"HMGET", b"h"] + [b"f"] * 10_000, [b"HGETEX", b"h", b"FIELDS", b"10000"] + [b"f"] * 10_000,
                        [b"HGETEX", b"h", b"PERSIST", b"FIELDS", b"10000"] + [b"f"] * 10_000,
                        words("HRANDFIELD h -1000000000"), words("HRANDFIELD h -1000000000 WITHVALUES")):
            self.refused(ask(self.door, *request), b"-OOM")
        self.assertEqual(len(ask(self.door, *[b"HGETDEL", b"h", b"FIELDS", b"10000"] + [b"f"] * 10_000)), 10_000)
        self.assertEqual(say(self.door, "EXISTS h"), 0)
        for makes, request in (("SADD k member", "SRANDMEMBER k -1000000000"),
                               ("ZADD z 1 m", "ZRANDMEMBER z -1000000000")):
            say(self.door, makes)
            self.refused(say(self.door, request), b"-OOM")

    def test_keys_that_are_named_often_are_read_once(self):
        ask(self.door, b"SADD", b"s", *[b"%05d" % number for number in range(5000)])
        for name in (b"SUNION", b"SINTER"):
            self.assertEqual(len(ask(self.door, name, *[b"s"] * 2000)), 5000)
        self.assertEqual(ask(self.door, b"SDIFF", *[b"s"] * 2000), [])
        # Scores are added as often as the key is named.
        say(self.door, "ZADD z 2 m")
        self.assertEqual(say(self.door, "ZUNION 3 z z z WITHSCORES"), [b"m", b"6"])
        self.assertEqual(say(self.door, "ZINTER 3 z z z WITHSCORES WEIGHTS 1 2 3"), [b"m", b"12"])

    def test_sets_of_many_members_are_compared_quickly(self):
        for key, step in ((b"one", 2), (b"two", 3)):
            for start in range(0, 60_000, 20_000):
                numbers = [number for number in range(start, start + 20_000) if number % step == 0]
                ask(self.door, b"SADD", key, *[b"%05d" % number for number in numbers])
        self.assertEqual(say(self.door, "SINTERCARD 2 one two"), 60_000 // 6)
        self.assertEqual(len(say(self.door, "SDIFF one two")), 60_000 // 2 - 60_000 // 6)
        self.assertEqual(ask(self.door, b"SREM", b"one", *[b"%05d" % number for number in range(0, 60_000, 2)]), 30_000)

    def test_a_huge_offset_on_a_collection_is_refused(self):
        say(self.door, "SADD k a")
        for line in ("SETRANGE k 9000000000000000000 x", "SETRANGE k 50000000000 x", "SETBIT k 4294967295 1"):
            self.assertEqual(say(self.door, line), WRONG_TYPE, line)
        stop = threading.Event()

        def make_and_unmake():
            while not stop.is_set():
                say(self.other, "SADD k a")
                say(self.other, "DEL k")

        thread = threading.Thread(target=make_and_unmake)
        thread.start()
        for _ in range(ROUNDS):
            self.refused(say(self.door, "SETRANGE k 9000000000000000000 x"))
        stop.set()
        thread.join()

    def test_what_is_not_shown_is_not_touched(self):
        text = self.connection(self.running)
        self.make(self.door)
        for key in MADE:
            self.assertEqual(text.ask(b"mg %b v T1" % key), b"EN")
            self.assertEqual(text.ask(b"mg %b v N1" % key), b"EN")
            self.assertEqual(text.ask(b"gat 1 %b" % key), b"END")
            self.assertEqual(ask(self.door, b"TTL", key), -1)
        self.check_made(self.door)

    def test_a_refused_change_is_told_to_nobody(self):
        watcher, _ = self.connection(self.running), self.make(self.door)
        self.assertEqual(watcher.ask(b"watch mutations"), b"OK")
        for line in ("INCR h", "APPEND s x", "SETRANGE z 0 x", "HDEL h none", "SADD s 1"):
            say(self.door, line)
        say(self.door, "SET last v")
        self.assertIn(b"key=last", watcher.line(b"\n"))

    def test_what_is_popped_is_shown(self):
        ask(self.door, b"SET", b"large", b"v" * 700_000)
        ask(self.door, b"SADD", b"s", *[b"%05d" % number for number in range(500)])
        say(self.door, "MULTI")
        for line in ("GET large", "GET large", "SPOP s 400", "SADD s more"):
            self.assertEqual(say(self.door, line), b"QUEUED")
        replies = say(self.door, "EXEC")
        self.refused(replies[2], b"-OOM")
        self.assertEqual([replies[3], say(self.door, "SCARD s")], [1, 501])

    def test_a_script_that_reads_nothing_tracks_nothing(self):
        reader = Reader(self.door)
        reader.ask(b"EVAL_RO", b"return 1", b"1", b"k")
        say(self.other, "SET k v")
        self.assertEqual(reader.news(), [])
        reader.ask(b"EVAL_RO", b"return redis.call('SCARD', KEYS[1])", b"1", b"s")
        say(self.other, "SADD s a")
        self.assertEqual(reader.news(), [b"s"])

    def test_where_the_keys_of_a_command_are(self):
        def ranges(name):
            found = ask(self.door, b"COMMAND", b"INFO", name)[0][8]
            return [[spec[1::2][1][3][1]] + spec[1::2][2][3][1::2] for spec in found]

        self.assertEqual(ranges(b"sunionstore"), [[1, 0, 1, 0], [2, -1, 1, 0]])
        self.assertEqual(ranges(b"zunionstore"), [[1, 0, 1, 0], [2, 0, 1, 1]])
        self.assertEqual(ranges(b"zunion"), [[1, 0, 1, 1]])


@larder_only
class FieldTimes(CollectionsCase):
    """Fields of hashes that live for a time."""

    def setUp(self):
        self.door = self.connection(self.server("-m", "64"))

    def test_a_field_is_gone_when_its_time_is_over(self):
        say(self.door, "HSET h a 1 b 2 c 3")
        self.assertEqual(say(self.door, "HPEXPIRE h 30 FIELDS 2 a b"), [1, 1])
        until(lambda: say(self.door, "HLEN h") == 1, "fields end")
        self.assertEqual([say(self.door, line) for line in ("HGETALL h", "HGET h a", "HEXISTS h b", "HRANDFIELD h")],
                         [[b"c", b"3"], None, 0, b"c"])
        self.assertEqual(say(self.door, "HSET h a 4"), 1)
        self.assertEqual(say(self.door, "HTTL h FIELDS 3 a b c"), [-1, -2, -1])

    def test_a_hash_keeps_its_own_lifetime(self):
        say(self.door, "HSET h a 1")
        say(self.door, "EXPIRE h 1000")
        say(self.door, "HEXPIRE h 100 FIELDS 1 a")
        self.assertTrue(900 < say(self.door, "TTL h") <= 1000)
        say(self.door, "HSET h b 2")
        self.assertTrue(900 < say(self.door, "TTL h") <= 1000)
        say(self.door, "HPERSIST h FIELDS 1 a")
        self.assertTrue(900 < say(self.door, "TTL h") <= 1000)
        self.assertEqual([say(self.door, "PERSIST h"), say(self.door, "TTL h")], [1, -1])

    def test_a_hash_is_over_with_the_last_of_its_fields(self):
        looks = (("EXISTS h", 0), ("TYPE h", b"none"), ("TTL h", -2), ("PERSIST h", 0), ("EXPIRE h 100", 0),
                 ("HLEN h", 0), ("HGETALL h", []), ("STRLEN h", 0), ("GETDEL h", None), ("APPEND h v", 1),
                 ("INCR h", 1), ("SADD h m", 1), ("ZADD h 1 m", 1), ("SET h v GET", None), ("COPY h other", 0),
                 ("RENAME h other", b"-ERR no such key"), ("OBJECT ENCODING h", None), ("DEL h", 0), ("GET h", None),
                 ("COPY full h", 1), ("RENAMENX full h", 1), ("HSET h b 2", 1), ("HSETNX h b 2", 1))
        for line, reply in looks:
            say(self.door, "FLUSHALL")
            say(self.door, "HSET full a 1")
            say(self.door, "HSET h a 1 c 2")
            say(self.door, "EXPIRE h 1000")
            say(self.door, "HPEXPIRE h 10 FIELDS 2 a c")
            until(lambda: say(self.door, "HPTTL h FIELDS 1 a") == [-2], "the fields end")
            self.assertEqual(say(self.door, line), reply, line)
            if "other" not in line and reply != 0:
                self.assertIn(say(self.door, "TTL h"), (-1, -2), line)

    def test_times_that_are_far_away(self):
        say(self.door, "HSET h a 1")
        self.assertEqual(say(self.door, "HPEXPIREAT h 9223372036854775807 FIELDS 1 a"), [1])
        self.assertEqual(say(self.door, "HPEXPIRETIME h FIELDS 1 a"), [9223372036854775807])
        self.assertEqual(say(self.door, "HEXPIRETIME h FIELDS 1 a"), [9223372036854776])
        self.assertEqual(say(self.door, "HGET h a"), b"1")
