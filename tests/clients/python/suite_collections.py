"""Libraries for Python that keep hashes, sets and sorted sets, against a live server: HOST PORT."""

import asyncio
import os
import sys
import threading
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import coredis  # noqa: E402
import django  # noqa: E402
import redis  # noqa: E402
import redis.asyncio  # noqa: E402
import walrus  # noqa: E402
from cashews import Cache, RateLimitError  # noqa: E402
from celery import Celery, chord, group  # noqa: E402
from celery.contrib.testing.worker import start_worker  # noqa: E402
from django.conf import settings  # noqa: E402
from pottery import (  # noqa: E402
    InefficientAccessWarning, KeyExistsError, RedisCounter, RedisDict, RedisSet, redis_cache,
)
from redis.exceptions import ResponseError, WatchError  # noqa: E402

from checks import AWKWARD, Checks, raises, same, true, until  # noqa: E402

THREADS = 4
# As large as a member can be, and some room for the rest of its collection.
LARGE = AWKWARD * 3500
checks = Checks("collections")
ADDRESS = {"host": checks.host, "port": checks.port, "socket_timeout": 20}
URL = "redis://%s:%d" % (checks.host, checks.port)
client = redis.Redis(**ADDRESS)
# Of the databases that libraries use.
DJANGO, CASHEWS, CELERY = 1, 2, 3
settings.configure(
    SECRET_KEY="of the tests",
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "%s/%d" % (URL, DJANGO)}},
)
django.setup()
warnings.simplefilter("ignore", InefficientAccessWarning)

from django.core.cache import cache as django_cache  # noqa: E402


def in_threads(work):
    """Has several threads do the work, and fails as the first of them fails."""
    wrong = []

    def run(number):
        try:
            work(number)
        except Exception as error:  # it is raised again below
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def rows(reply):
    """Pairs of a reply: with RESP2 they are tuples, with RESP3 lists."""
    return [tuple(row) for row in reply]


# redis-py, with either version of RESP.


def hashes(own):
    same([own.hset("h", "a", 1), own.hset("h", mapping={"b": "two", "c": AWKWARD}), own.hset("h", "a", 2)], [1, 2, 0])
    same([own.hget("h", "a"), own.hget("h", "none"), own.hmget("h", "a", "none", "c")],
         [b"2", None, [b"2", None, AWKWARD]])
    same([own.hgetall("h"), own.hgetall("none")], [{b"a": b"2", b"b": b"two", b"c": AWKWARD}, {}])
    same([sorted(own.hkeys("h")), set(own.hvals("h"))], [[b"a", b"b", b"c"], {b"2", b"two", AWKWARD}])
    same([own.hlen("h"), own.hstrlen("h", "c"), own.hexists("h", "b"), own.hexists("h", "d")],
         [3, len(AWKWARD), True, False])
    same([own.hsetnx("h", "a", 9) in (0, False), own.hsetnx("h", "d", 9) in (1, True)], [True, True])
    same([own.hincrby("h", "a", 40), own.hincrby("h", "new", -1), own.hincrbyfloat("h", "a", 0.5)], [42, -1, 42.5])
    raises(ResponseError, own.hincrby, "h", "b")
    raises(ResponseError, own.hincrbyfloat, "h", "b", 1)
    true(own.hrandfield("h") in (b"a", b"b", b"c", b"d", b"new"))
    same([len(own.hrandfield("h", 3)), len(set(own.hrandfield("h", 9))), len(own.hrandfield("h", -9))], [3, 5, 9])
    same([own.hdel("h", "a", "b", "none"), own.hdel("h", "c", "d", "new"), own.exists("h")], [2, 3, 0])


def sets(own):
    same([own.sadd("s", "a", "b", 1, AWKWARD), own.sadd("s", "a"), own.scard("s")], [4, 0, 4])
    same([own.smembers("s"), own.smembers("none")], [{b"a", b"b", b"1", AWKWARD}, set()])
    same([bool(own.sismember("s", "a")), bool(own.sismember("s", "x")), own.smismember("s", ["a", "x", 1])],
         [True, False, [1, 0, 1]])
    own.sadd("t", "b", "c")
    same([own.sinter("s", "t"), own.sunion("t", "none"), own.sdiff("t", "s")], [{b"b"}, {b"b", b"c"}, {b"c"}])
    same([own.sinterstore("u", "s", "t"), own.sunionstore("u", "u", "t"), own.sdiffstore("u", "u", "s")], [1, 2, 1])
    same([own.sintercard(2, ["s", "t"]), own.sintercard(2, ["s", "s"], limit=3)], [1, 3])
    same([bool(own.smove("s", "t", "a")), bool(own.smove("s", "t", "a")), own.srem("s", "b", "none")], [True, False, 1])
    same(own.smembers("t"), {b"a", b"b", b"c"})
    true(own.srandmember("t") in (b"a", b"b", b"c"))
    same([set(own.srandmember("t", 5)), len(own.srandmember("t", -5))], [{b"a", b"b", b"c"}, 5])
    popped = own.spop("t")
    same({popped} | set(own.spop("t", 5)), {b"a", b"b", b"c"})
    same([own.spop("t"), own.exists("t"), own.type("s")], [None, 0, b"set"])


def sorted_sets(own):
    same([own.zadd("z", {"a": 1, "b": 2.5, "c": float("inf")}), own.zadd("z", {"a": 1.5, "d": 0}, ch=True)], [3, 2])
    same([own.zadd("z", {"a": 9}, nx=True), own.zadd("z", {"new": 9}, xx=True), own.zadd("z", {"a": 0}, gt=True)],
         [0, 0, 0])
    same([own.zadd("z", {"a": 1}, incr=True), own.zadd("z", {"a": 1}, incr=True, nx=True)], [2.5, None])
    same([own.zscore("z", "c"), own.zscore("z", "none"), own.zmscore("z", ["a", "none"])],
         [float("inf"), None, [2.5, None]])
    same([own.zcard("z"), own.zrank("z", "b"), own.zrevrank("z", "b"), own.zrank("z", "none")], [4, 2, 1, None])
    same(list(own.zrank("z", "b", withscore=True)), [2, 2.5])
    same([own.zincrby("z", 0.5, "d"), own.zcount("z", "(0.5", 2.5), own.zcount("z", "-inf", "+inf")], [0.5, 2, 4])
    same(rows(own.zrange("z", 0, -1, withscores=True)),
         [(b"d", 0.5), (b"a", 2.5), (b"b", 2.5), (b"c", float("inf"))])
    same([own.zrange("z", 0, 1, desc=True), own.zrevrange("z", 2, 3)], [[b"c", b"b"], [b"a", b"d"]])
    same([own.zrangebyscore("z", "-inf", "(2.5"), own.zrangebyscore("z", 2.5, "+inf", start=1, num=1)],
         [[b"d"], [b"b"]])
    same(own.zrange("z", "+inf", 1, byscore=True, desc=True, offset=1, num=5), [b"b", b"a"])
    same([own.zrevrangebyscore("z", 3, 1), own.zrangestore("y", "z", 0, 1), own.zrange("y", 0, -1)],
         [[b"b", b"a"], 2, [b"d", b"a"]])
    same([own.zrem("z", "a", "none"), own.zremrangebyscore("z", 0, 1), own.zremrangebyrank("z", 1, 1)], [1, 1, 1])
    same([own.zrange("z", 0, -1), own.zrandmember("z"), own.zrandmember("z", -2)], [[b"b"], b"b", [b"b", b"b"]])
    same([rows(own.zpopmin("y", 1)), rows(own.zpopmax("y", 5)), own.zpopmin("y"), own.exists("y")],
         [[(b"d", 0.5)], [(b"a", 2.5)], [], 0])
    own.zadd("y", {"a": 1, "b": 2, "c": 3})
    key, popped = own.zmpop(2, ["none", "y"], max=True, count=2)
    same([key, [(member, float(score)) for member, score in popped]], [b"y", [(b"c", 3.0), (b"b", 2.0)]])


def texts_in_order(own):
    own.zadd("names", dict.fromkeys(["anna", "bob", "bert", "carl", "dora"], 0))
    same([own.zrangebylex("names", "[b", "(c"), own.zlexcount("names", "-", "+")], [[b"bert", b"bob"], 5])
    same([own.zrevrangebylex("names", "+", "[c"), own.zrange("names", "[b", "+", bylex=True, offset=1, num=2)],
         [[b"dora", b"carl"], [b"bob", b"carl"]])
    same([own.zremrangebylex("names", "-", "(b"), own.zrange("names", 0, 0)], [1, [b"bert"]])


def unions(own):
    own.zadd("one", {"a": 1, "b": 2})
    own.zadd("two", {"b": 10, "c": 20})
    own.sadd("plain", "a", "c")
    same([rows(own.zunion(["one", "two"], withscores=True)), own.zinter(["one", "two"])],
         [[(b"a", 1), (b"b", 12), (b"c", 20)], [b"b"]])
    same([own.zdiff(["one", "two"]), own.zintercard(2, ["one", "two"]), own.zdiffstore("to", ["one", "two"])],
         [[b"a"], 1, 1])
    same([own.zunionstore("to", {"one": 2, "two": 0.5}), rows(own.zrange("to", 0, -1, withscores=True))],
         [3, [(b"a", 2), (b"b", 9), (b"c", 10)]])
    same([own.zinterstore("to", ["one", "two"], aggregate="MIN"), own.zscore("to", "b")], [1, 2])
    same(rows(own.zunion(["one", "two", "plain"], aggregate="MAX", withscores=True)),
         [(b"a", 1), (b"b", 10), (b"c", 20)])


def scans(own):
    names = {b"m%d" % i for i in range(2000)}
    own.sadd("s", *names)
    own.hset("h", mapping=dict.fromkeys(names, b"v"))
    own.zadd("z", dict.fromkeys(names, 1.5))
    same([set(own.sscan_iter("s")), dict(own.hscan_iter("h")), dict(own.zscan_iter("z"))],
         [names, dict.fromkeys(names, b"v"), dict.fromkeys(names, 1.5)])
    same(set(own.sscan_iter("s", match="m19*", count=100)), {name for name in names if name.startswith(b"m19")})
    same(set(own.hscan_iter("h", no_values=True)), names)
    same([set(own.scan_iter(_type="hash")), set(own.scan_iter(_type="zset"))], [{b"h"}, {b"z"}])


def large_members(own):
    same([own.hset("h", "f", LARGE), own.hget("h", "f") == LARGE, own.hgetall("h") == {b"f": LARGE}], [1, True, True])
    same([own.sadd("s", LARGE), own.smembers("s") == {LARGE}], [1, True])
    same([own.zadd("z", {LARGE: 1}), own.zrange("z", 0, 0) == [LARGE], own.zscore("z", LARGE)], [1, True, 1])
    raises(ResponseError, own.hget, "s", "f")


def pipelines_and_transactions(own):
    with own.pipeline(transaction=False) as pipe:
        for i in range(500):
            pipe.hincrby("h", "n", 1).sadd("s", i % 100).zincrby("z", 1, "m")
        same(pipe.execute()[-3:], [500, 0, 500.0])
    with own.pipeline() as pipe:
        same(pipe.hset("h", "a", 1).hgetall("h").smembers("none").execute(), [1, {b"n": b"500", b"a": b"1"}, set()])
        pipe.watch("s")
        own.sadd("s", "new")
        pipe.multi()
        pipe.scard("s")
        raises(WatchError, pipe.execute)
        pipe.watch("s")
        own.sadd("s", "new")
        pipe.multi()
        same(pipe.scard("s").execute(), [101])


def names_and_lifetimes(own):
    own.hset("h", "a", 1)
    own.expire("h", 100)
    own.hset("h", "b", 2)
    same([own.rename("h", "g"), own.copy("g", "h"), own.hgetall("h")], [True, True, {b"a": b"1", b"b": b"2"}])
    true(90 < own.ttl("h") <= 100)
    own.pexpire("h", 20)
    until(lambda: own.hgetall("h") == {})
    same([own.hlen("h"), own.exists("h"), own.type("g")], [0, 0, b"hash"])
    raises(ResponseError, own.get, "g")
    raises(ResponseError, own.sadd, "g", "m")
    same([own.set("g", "v"), own.get("g")], [True, b"v"])


def in_asyncio(protocol):
    async def all_of_it():
        async with redis.asyncio.Redis(protocol=protocol, **ADDRESS) as own:
            await asyncio.gather(*(own.hincrby("h", "n", i) for i in range(30)),
                                 *(own.sadd("s", i) for i in range(30)),
                                 *(own.zadd("z", {i: i}) for i in range(30)))
            return [await own.hget("h", "n"), await own.scard("s"), await own.zrange("z", 28, -1)]

    same(asyncio.run(all_of_it()), [b"435", 30, [b"28", b"29"]])


# Other libraries.


def coredis_types():
    async def all_of_it():
        async with coredis.Redis(host=checks.host, port=checks.port, decode_responses=True) as own:
            same([await own.hset("h", {"a": "1", "b": "2"}), await own.hgetall("h")], [2, {"a": "1", "b": "2"}])
            same([await own.sadd("s", ["x", "y"]), await own.smembers("s")], [2, {"x", "y"}])
            same(await own.zadd("z", {"m": 1, "n": 2.5}), 2)
            return [tuple(row) for row in await own.zrange("z", 0, -1, withscores=True)]

    same(asyncio.run(all_of_it()), [("m", 1.0), ("n", 2.5)])


def cashews_tags():
    async def all_of_it():
        cache = Cache()
        cache.setup("%s/%d" % (URL, CASHEWS), suppress=False)
        await cache.clear()
        calls = []

        @cache(ttl="10m", key="user:{user}:{page}", tags=["users", "user:{user}"])
        async def page_of(user, page):
            calls.append((user, page))
            return "%s %s" % (user, page)

        async def read():
            calls.clear()
            for user in ("ada", "bob"):
                for page in range(5):
                    same(await page_of(user, page), "%s %s" % (user, page))
            return len(calls)

        same([await read(), await read()], [10, 0])
        await cache.delete_tags("user:ada")
        same([await read(), sorted({user for user, _ in calls})], [5, ["ada"]])
        await cache.delete_tags("users")
        same(await read(), 10)
        await cache.set("by hand", "value", expire=600, tags=["some"])
        # More than are taken from a set at once.
        await asyncio.gather(*(cache.set("of many:%d" % i, i, expire=600, tags=["some"]) for i in range(250)))
        await cache.delete_tags("some")
        return [await cache.get("by hand"), await cache.get_many(*("of many:%d" % i for i in range(250)))]

    same(asyncio.run(all_of_it()), [None, (None,) * 250])


def cashews_sliding_limit():
    async def all_of_it():
        cache = Cache()
        cache.setup("%s/%d" % (URL, CASHEWS), suppress=False)

        @cache.slice_rate_limit(limit=5, period="10m", key="sliding")
        async def limited():
            return "done"

        same([await limited() for _ in range(5)], ["done"] * 5)
        try:
            await limited()
        except RateLimitError:
            return await cache.close()
        raise AssertionError("the sixth call was not refused")

    asyncio.run(all_of_it())
    with redis.Redis(db=CASHEWS, **ADDRESS) as own:
        same([own.type(key) for key in own.keys("*sliding*")], [b"zset"])


def django_collections():
    cache = django_cache
    cache.clear()
    same([cache.sadd("s", "a", 1, ("t", 2)), cache.smembers("s"), cache.scard("s")], [3, {"a", 1, ("t", 2)}, 3])
    cache.sadd("t", "a", "b")
    same([cache.sinter("s", "t"), cache.sunion("s", "t"), cache.sdiff("t", "s")],
         [{"a"}, {"a", "b", 1, ("t", 2)}, {"b"}])
    same([cache.smove("s", "t", 1), cache.sismember("t", 1), cache.srem("t", 1), cache.smismember("t", "a", 1)],
         [True, True, 1, [True, False]])
    same([set(cache.sscan_iter("t")), cache.sunionstore("u", "s", "t"), cache.spop("none")], [{"a", "b"}, 3, None])
    same([cache.hset("h", "f", {"deep": [1]}), cache.hexists("h", "f"), cache.hlen("h"), list(cache.hkeys("h"))],
         [1, True, 1, ["f"]])
    same([cache.hdel("h", "f"), cache.hlen("h")], [1, 0])
    same([cache.zadd("z", {"a": 1, "b": 2}), cache.zincrby("z", 5, "a"), cache.zrange("z", 0, -1)],
         [2, 6.0, ["b", "a"]])
    same([cache.zscore("z", "a"), cache.zrank("z", "a"), cache.zcount("z", 0, 3), cache.zcard("z")], [6.0, 1, 1, 2])
    same([rows(cache.zpopmin("z", 1)), cache.zrem("z", "a"), cache.zcard("z")], [[("b", 2.0)], 1, 0])
    with redis.Redis(db=DJANGO, **ADDRESS) as own:
        same(sorted(own.type(key) for key in own.keys("*")), [b"set"] * 3)


def walrus_hashes():
    h = walrus.Database(**ADDRESS).Hash("h")
    h.update(a=1, b="two")
    h["c"] = "three"
    same([h["a"], h["a", "c"], "b" in h, "x" in h, len(h)], [b"1", [b"1", b"three"], True, False, 3])
    same([h.as_dict(decode=True), sorted(h.keys())], [{"a": "1", "b": "two", "c": "three"}, [b"a", b"b", b"c"]])
    same([h.incr("a", 5), h.incr_float("a", 0.5), h.setnx("a", 1) in (0, False)], [6, 6.5, True])
    del h["b"], h["c"]
    same([dict(h), dict(h.search("a*"))], [{b"a": b"6.5"}] * 2)
    h.expire(100)
    true(90 < client.ttl("h") <= 100)
    h.clear()
    same(len(h), 0)


def walrus_sets():
    database = walrus.Database(**ADDRESS)
    one, two = database.Set("one"), database.Set("two")
    one.add("a", "b", "c")
    two.add("b", "c", "d")
    same([one & two, one | two, one - two, "a" in one, len(one)],
         [{b"b", b"c"}, {b"a", b"b", b"c", b"d"}, {b"a"}, True, 3])
    one &= two
    same([one.as_set(decode=True), one.remove("b"), one.pop(), one.pop()], [{"b", "c"}, 1, b"c", None])
    same([len(two.unionstore("to", one)), set(database.Set("to"))], [3, {b"b", b"c", b"d"}])
    same(set(two.random(3)), {b"b", b"c", b"d"})


def walrus_sorted_sets():
    database = walrus.Database(**ADDRESS)
    z = database.ZSet("z")
    z.add({"a": 1, "b": 2, "c": 3, "d": 4})
    z["e"] = 5
    same([z[:2], rows(z["b":"d", True]), rows(z[-1:, True])], [[b"a", b"b"], [(b"b", 2), (b"c", 3)], [(b"e", 5)]])
    same([z.score("c"), z.rank("a"), z.rank("a", reverse=True), z.count(2, 4), "x" in z], [3, 0, 4, 3, False])
    same([z.range_by_score(2, 3), z.incr("a", 10), z.remove_by_score(2, 3)], [[b"b", b"c"], 11, 2])
    del z["d"]
    same([rows(z.popmin()), rows(z.popmax()), len(z)], [[(b"e", 5)], [(b"a", 11)], 0])
    one, two = database.ZSet("one"), database.ZSet("two")
    one.add({"m": 1})
    two.add({"m": 2, "n": 3})
    same(rows(one.unionstore("to", two)[:, True]), [(b"m", 3), (b"n", 3)])


def walrus_limits_and_caches():
    database = walrus.Database(**ADDRESS)
    cache = database.cache(name="cached")
    same([cache.set("k", {"a": [1]}, 100), cache.get("k"), cache.delete("k"), cache.get("k")],
         [True, {"a": [1]}, 1, None])
    calls = []

    @cache.cached(timeout=100)
    def square(number):
        calls.append(number)
        return number * number

    same([square(4), square(4), square(5), calls], [16, 16, 25, [4, 5]])
    same([cache.flush() >= 2, square(4), calls], [True, 16, [4, 5, 4]])


def pottery_dicts():
    numbers = RedisDict({"one": 1, "two": {"deep": [2]}}, redis=client, key="dict")
    same([numbers["one"], numbers["two"], "one" in numbers, 5 in numbers, len(numbers)],
         [1, {"deep": [2]}, True, False, 2])
    numbers["three"] = None
    numbers.update({"four": 4, "one": 11})
    same(dict(numbers), {"one": 11, "two": {"deep": [2]}, "three": None, "four": 4})
    same([numbers.pop("four"), numbers.setdefault("six", 6), numbers.get("none", "x")], [4, 6, "x"])
    del numbers["two"]
    raises(KeyError, lambda: numbers["two"])
    raises(KeyExistsError, RedisDict, {"a": 1}, redis=client, key="dict")
    same(sorted(RedisDict(redis=client, key="dict")), ["one", "six", "three"])
    numbers.clear()
    same([len(numbers), client.exists("dict")], [0, 0])


def pottery_sets():
    tags = RedisSet({"a", "b", 1}, redis=client, key="set")
    same([tags == {"a", "b", 1}, "a" in tags, "x" in tags, len(tags)], [True, True, False, 3])
    tags.add("c")
    tags.discard("none")
    tags.remove("a")
    raises(KeyError, tags.remove, "a")
    other = RedisSet({"b", "z"}, redis=client, key="other")
    same([tags.intersection(other), tags.union(other), tags.difference(other)],
         [{"b"}, {"b", "c", 1, "z"}, {"c", 1}])
    same([tags.isdisjoint(other), tags.issuperset({"b"}), tags.to_set()], [False, True, {"b", "c", 1}])
    tags.update(other)
    tags.difference_update({1})
    same(set(tags), {"b", "c", "z"})
    same([{tags.pop(), tags.pop(), tags.pop()}, len(tags)], [{"b", "c", "z"}, 0])
    raises(KeyError, tags.pop)


def pottery_counters_and_caches():
    letters = RedisCounter({"a": 3, "b": 1}, redis=client, key="counter")
    letters["c"] = 7
    same([letters["a"], letters["x"], letters.most_common(2), len(letters)], [3, 0, [("c", 7), ("a", 3)], 3])
    del letters["c"]
    same([letters.to_counter(), client.type("counter")], [{"a": 3, "b": 1}, b"hash"])
    calls = []

    @redis_cache(redis=client, key="cached", timeout=100)
    def square(number):
        calls.append(number)
        return number * number

    same([square(4), square(4), square(5), calls], [16, 16, 25, [4, 5]])
    same([square.cache_info().hits, client.type("cached"), 90 < client.ttl("cached") <= 100], [1, b"hash", True])
    square.cache_clear()
    same([square(4), calls], [16, [4, 5, 4]])


def celery_chords():
    app = Celery(broker="memory://", backend="%s/%d" % (URL, CELERY), set_as_current=False)
    # It waits for results by way of the backend alone.
    app.conf.update(worker_hijack_root_logger=False, task_always_eager=False)

    @app.task
    def double(number):
        return 2 * number

    @app.task
    def total(numbers):
        return [sum(numbers), numbers]

    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        same(chord(group(double.s(i) for i in range(10)), total.s()).apply_async().get(timeout=60),
             [90, [2 * i for i in range(10)]])
        same((group(double.s(i) for i in range(3)) | total.s()).apply_async().get(timeout=60), [6, [0, 2, 4]])


def several_at_once():
    def work(number):
        with redis.Redis(**ADDRESS) as own:
            for i in range(200):
                own.hincrby("h", "n", 1)
                own.sadd("s", "%d:%d" % (number, i))
                own.zincrby("z", 0.5, "m")

    in_threads(work)
    same([client.hget("h", "n"), client.scard("s"), client.zscore("z", "m")],
         [b"%d" % (200 * THREADS), 200 * THREADS, 100.0 * THREADS])


def a_leaderboard():
    def work(number):
        with redis.Redis(**ADDRESS) as own:
            for i in range(100):
                own.zadd("board", {"player%d" % (i % 10): number * 100 + i}, gt=True)

    in_threads(work)
    best = 100 * (THREADS - 1)
    same(rows(client.zrange("board", 0, 2, desc=True, withscores=True)),
         [(b"player%d" % (9 - i), best + 99.0 - i) for i in range(3)])


def a_shared_dict():
    """Each adds to one value, as a transaction that is tried again."""
    def work(_):
        with redis.Redis(**ADDRESS) as own:
            for _ in range(25):
                own.transaction(lambda pipe: add(pipe, int(pipe.hget("h", "n") or 0)), "h")

    def add(pipe, seen):
        pipe.multi()
        pipe.hset("h", "n", seen + 1)

    in_threads(work)
    same(client.hgetall("h"), {b"n": b"%d" % (25 * THREADS)})


def from_nothing(check, *arguments):
    """A check that begins without keys."""
    client.flushall()
    check(*arguments)


for protocol in (2, 3):
    with redis.Redis(protocol=protocol, **ADDRESS) as own_client:
        for check in (hashes, sets, sorted_sets, texts_in_order, unions, scans, large_members,
                      pipelines_and_transactions, names_and_lifetimes):
            checks.run("%s RESP%d" % (check.__name__, protocol), from_nothing, check, own_client)
    checks.run("in_asyncio RESP%d" % protocol, from_nothing, in_asyncio, protocol)
for check in (coredis_types, cashews_tags, cashews_sliding_limit, django_collections, walrus_hashes, walrus_sets,
              walrus_sorted_sets, walrus_limits_and_caches, pottery_dicts, pottery_sets, pottery_counters_and_caches,
              celery_chords, several_at_once, a_leaderboard, a_shared_dict):
    checks.run(check.__name__, from_nothing, check)
client.close()
checks.end()
