"""Libraries for Python that send scripts, against a live server: HOST PORT."""

import asyncio
import logging
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import aiocache  # noqa: E402
import django  # noqa: E402
import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock  # noqa: E402
from aiocache.serializers import JsonSerializer  # noqa: E402
from cashews import Cache, RateLimitError  # noqa: E402
from django.conf import settings  # noqa: E402
from dogpile.cache import make_region  # noqa: E402
from limits import RateLimitItemPerHour, RateLimitItemPerSecond  # noqa: E402
from limits.storage import RedisStorage  # noqa: E402
from limits.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter  # noqa: E402
from pottery import AIORedlock, NextID, Redlock, ReleaseUnlockedLock  # noqa: E402
from redis.exceptions import (  # noqa: E402
    LockError, LockNotOwnedError, NoScriptError, ReadOnlyError, ResponseError,
)

from checks import AWKWARD, EXPIRY_SECONDS, LARGE, Checks, raises, same, true, until  # noqa: E402

THREADS = 4
checks = Checks("scripts")
ADDRESS = {"host": checks.host, "port": checks.port, "socket_timeout": 20}
URL = "redis://%s:%d" % (checks.host, checks.port)
client = redis.Redis(**ADDRESS)
# Of the databases that libraries use.
DJANGO, CASHEWS = 1, 2
settings.configure(
    SECRET_KEY="of the tests",
    CACHES={"default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "%s/%d" % (URL, DJANGO),
        "KEY_PREFIX": "site",
    }},
)
django.setup()
logging.getLogger("pottery").setLevel(logging.ERROR)

from django.core.cache import cache as django_cache  # noqa: E402


def in_threads(work):
    """Has several threads do the work, and fails as the first of them fails."""
    wrong = []

    def run():
        try:
            work()
        except Exception as error:  # it is raised again below
            wrong.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def redis_py_lock(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own:
        own.delete("lock")
        own.script_flush()
        lock = own.lock("lock", timeout=20)
        same(lock.acquire(), True)
        same([lock.locked(), lock.owned()], [True, True])
        same(lock.extend(40), True)
        true(50_000 < own.pttl("lock") <= 60_000)
        same(lock.extend(30, replace_ttl=True), True)
        true(20_000 < own.pttl("lock") <= 30_000)
        same(lock.reacquire(), True)
        true(10_000 < own.pttl("lock") <= 20_000)
        lock.release()
        same([lock.locked(), own.exists("lock")], [False, 0])
        raises(LockError, lock.release)
        raises(LockError, lock.extend, 10)
        with own.lock("lock", timeout=20, blocking_timeout=5) as lock:
            same(lock.owned(), True)
        same(own.exists("lock"), 0)


def redis_py_lock_of_somebody_else(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own:
        own.delete("lock")
        mine, theirs = own.lock("lock", timeout=20), own.lock("lock", timeout=20)
        same(mine.acquire(token="mine"), True)
        same(theirs.acquire(blocking=False), False)
        raises(LockError, theirs.release)
        own.set("lock", "theirs")
        raises(LockNotOwnedError, mine.extend, 10)
        raises(LockNotOwnedError, mine.reacquire)
        raises(LockNotOwnedError, mine.release)
        same(own.get("lock"), b"theirs")
        own.delete("lock")
        expired = own.lock("lock", timeout=0.05)
        same(expired.acquire(), True)
        until(lambda: not expired.locked())
        raises(LockNotOwnedError, expired.release)


def redis_py_lock_that_several_want():
    client.set("counter", 0)

    def add():
        for _ in range(25):
            with client.lock("wanted", timeout=60, sleep=0.001):
                client.set("counter", int(client.get("counter")) + 1)

    in_threads(add)
    same(client.get("counter"), b"%d" % (THREADS * 25))


def redis_py_lock_in_asyncio():
    async def add(own):
        for _ in range(10):
            async with own.lock("async lock", timeout=60, sleep=0.001):
                await own.set("counter", int(await own.get("counter")) + 1)

    async def many():
        async with redis.asyncio.Redis(**ADDRESS) as own:
            await own.set("counter", 0)
            await asyncio.gather(*(add(own) for _ in range(THREADS)))
            lock = own.lock("async lock", timeout=20)
            same(await lock.acquire(), True)
            same(await lock.extend(20), True)
            await own.set("async lock", "theirs")
            try:
                await lock.release()
            except LockNotOwnedError:
                return await own.get("counter")

    same(asyncio.run(many()), b"%d" % (THREADS * 10))


def redis_py_registered_script(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own:
        own.delete("sum")
        same(own.script_flush(), True)
        add = own.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1]) + ARGV[2]")
        same(own.script_exists(add.sha), [False])
        raises(NoScriptError, own.evalsha, add.sha, 1, "sum", 1, 1)
        same(add(keys=["sum"], args=[5, 100]), 105)
        same(own.script_exists(add.sha, "0" * 40), [True, False])
        same(own.evalsha(add.sha, 1, "sum", 5, 100), 110)
        same(own.evalsha(add.sha.upper(), 1, "sum", 5, 100), 115)
        same(own.script_load("return 'loaded'"), "b534286061d4b9e4026607613b95c06c06015ae8")
        same(own.evalsha("b534286061d4b9e4026607613b95c06c06015ae8", 0), b"loaded")
        raises(ResponseError, own.script_load, "return (")
        same(own.script_flush("ASYNC"), True)
        same(add(keys=["sum"], args=[5, 100]), 120)


def redis_py_scripts_in_a_pipeline(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own:
        add = own.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        for transaction in (True, False):
            own.delete("sum", "word")
            own.script_flush()
            with own.pipeline(transaction=transaction) as pipe:
                pipe.set("word", "text")
                for i in range(1, 101):
                    add(keys=["sum"], args=[i], client=pipe)
                pipe.get("sum")
                same(pipe.execute(), [True] + [i * (i + 1) // 2 for i in range(1, 101)] + [b"5050"])
                add(keys=["word"], args=[1], client=pipe)
                pipe.set("word", "after")
                raises(ResponseError, pipe.execute)
            same(own.get("word"), b"after")


def redis_py_values(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own:
        same(own.eval("return {KEYS[1], ARGV[1], ARGV[2]}", 1, AWKWARD, AWKWARD, ""), [AWKWARD, AWKWARD, b""])
        same(own.eval("return {1, 2.9, -2.9, 'x', false, {3, {}}, nil, 4}", 0), [1, 2, -2, b"x", None, [3, []]])
        same(own.eval("return redis.status_reply('FINE')", 0), b"FINE")
        same([own.eval("return %s" % what, 0) for what in ("true", "false", "nil", "2^53")], [1, None, None, 2 ** 53])
        same(own.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "bin", AWKWARD), b"OK")
        same(own.eval("return redis.call('GET', KEYS[1])", 1, "bin"), AWKWARD)
        same(own.eval("return redis.call('MGET', 'bin', 'absent')", 0), [AWKWARD, None])
        wrong = b"ERR value is not an integer or out of range"
        same(own.eval("return redis.pcall('INCR', KEYS[1]).err", 1, "bin"), wrong)
        for text in ("return redis.call('INCR', 'bin')", "error('x')", "return redis.error_reply('MINE x')", "x = 1",
                     "return nothing", "return redis.call('NONE')", "return redis.call('GET')"):
            raises(ResponseError, own.eval, text, 0)


def redis_py_values_of_resp3(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own:
        same(own.eval("redis.setresp(3); return {true, false}", 0), [True, False] if protocol == 3 else [1, 0])
        same(own.eval("redis.setresp(3); return redis.call('GET', 'absent') == nil", 0), protocol == 3 or 1)
        same(own.eval("return {double=2.5}", 0), 2.5 if protocol == 3 else b"2.5")
        same(own.eval("return {map={a=1}}", 0), {b"a": 1} if protocol == 3 else [b"a", 1])


def redis_py_large_values():
    same(client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "large", LARGE[:300_000]), b"OK")
    same(client.eval("return redis.call('GET', KEYS[1])", 1, "large"), LARGE[:300_000])
    same(client.eval("return #redis.call('GET', KEYS[1])", 1, "large"), 300_000)


def redis_py_reading_scripts():
    client.set("read", "x")
    same(client.eval_ro("return redis.call('GET', KEYS[1])", 1, "read"), b"x")
    sha = client.script_load("return redis.call('GET', KEYS[1])")
    same(client.evalsha_ro(sha, 1, "read"), b"x")
    raises((ReadOnlyError, ResponseError), client.eval_ro, "return redis.call('SET', KEYS[1], 'y')", 1, "read")
    raises(ResponseError, client.eval, "#!lua flags=no-writes\nreturn redis.call('DEL', KEYS[1])", 1, "read")
    same(client.get("read"), b"x")


def redis_py_scripts_in_asyncio():
    async def many():
        async with redis.asyncio.Redis(**ADDRESS) as own:
            await own.delete("sum")
            add = own.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
            await asyncio.gather(*(add(keys=["sum"], args=[2]) for _ in range(100)))
            return await own.get("sum")

    same(asyncio.run(many()), b"200")


def django_counts():
    django_cache.set("n", 0, timeout=100)
    in_threads(lambda: [django_cache.incr("n") for _ in range(300)])
    same(django_cache.get("n"), THREADS * 300)
    in_threads(lambda: [django_cache.decr("n", 2) for _ in range(150)])
    same(django_cache.get("n"), 0)
    true(50 < django_cache.ttl("n") <= 100)
    same(django_cache.incr("n", 5), 5)
    raises(ValueError, django_cache.incr, "absent")
    same(django_cache.incr("fresh", 7, ignore_key_check=True), 7)
    django_cache.set("top", 2 ** 63 - 1)
    same(django_cache.incr("top"), 2 ** 63)


def django_lock():
    with django_cache.lock("job", timeout=20) as lock:
        same(lock.owned(), True)
        same(django_cache.lock("job", timeout=20).acquire(blocking=False), False)
        same(lock.extend(20), True)
    again = django_cache.lock("job", timeout=20)
    same(again.acquire(blocking=False), True)
    again.release()


def django_patterns():
    django_cache.set_many({"page:%d" % i: i for i in range(300)})
    django_cache.set("other", "stays")
    same(sorted(django_cache.keys("page:1?")), ["page:%d" % i for i in range(10, 20)])
    same(len(set(django_cache.iter_keys("page:*"))), 300)
    same(django_cache.delete_pattern("page:*", itersize=50), 300)
    same([django_cache.get("page:7"), django_cache.get("other")], [None, "stays"])


def django_times_to_live():
    django_cache.set("t", "x", timeout=100)
    true(90 < django_cache.ttl("t") <= 100)
    true(90_000 < django_cache.pttl("t") <= 100_000)
    same(django_cache.expire("t", 200), True)
    true(190 < django_cache.ttl("t") <= 200)
    same(django_cache.pexpire("t", 5000), True)
    true(django_cache.pttl("t") <= 5000)
    same(django_cache.persist("t"), True)
    same(django_cache.ttl("t"), None)
    same(django_cache.touch("t", 50), True)
    true(40 < django_cache.ttl("t") <= 50)
    same(django_cache.ttl("absent"), 0)
    same(django_cache.set("t", "y", nx=True), False)


def django_database():
    django_cache.set("where", 1)
    with redis.Redis(db=DJANGO, **ADDRESS) as own:
        same(own.exists("site:1:where"), 1)
    same(client.exists("site:1:where"), 0)


def limits_fixed_window():
    storage = RedisStorage(URL)
    limiter, hourly = FixedWindowRateLimiter(storage), RateLimitItemPerHour(100)
    limiter.clear(hourly, "user")
    allowed = []
    in_threads(lambda: allowed.extend(limiter.hit(hourly, "user") for _ in range(50)))
    same([allowed.count(True), allowed.count(False)], [100, THREADS * 50 - 100])
    same(limiter.get_window_stats(hourly, "user").remaining, 0)
    same(limiter.test(hourly, "user"), False)
    true(0 < client.ttl("LIMITS:%s" % hourly.key_for("user")) <= 3600)
    same(limiter.hit(hourly, "other", cost=100), True)
    same(limiter.hit(hourly, "other"), False)
    same(storage.reset(), 2)
    same(limiter.hit(hourly, "user"), True)


def limits_sliding_window():
    storage = RedisStorage(URL)
    limiter, item = SlidingWindowCounterRateLimiter(storage), RateLimitItemPerSecond(10, 1)
    limiter.clear(item, "user")
    hourly = RateLimitItemPerHour(10)
    same([limiter.hit(hourly, "user") for _ in range(12)], [True] * 10 + [False] * 2)
    same(limiter.get_window_stats(hourly, "user").remaining, 0)
    same([limiter.hit(item, "user", cost=11), limiter.hit(item, "user", cost=10)], [False, True])
    until(lambda: storage.get_sliding_window(item.key_for("user"), 1)[0] == 10)
    until(lambda: limiter.hit(item, "user", cost=10))
    true(storage.reset() >= 2)


def dogpile_region():
    """A region of dogpile.cache whose locks are the server's."""
    return make_region().configure("dogpile.cache.redis", expiration_time=100, arguments={
        "host": checks.host, "port": checks.port, "redis_expiration_time": 200, "distributed_lock": True,
        "thread_local_lock": False, "lock_timeout": 60, "lock_sleep": 0.005,
    })


def dogpile_lock():
    client.delete("dog", "function")
    regions, calls, made = [dogpile_region(), dogpile_region()], [], []

    def create():
        calls.append(1)
        until(lambda: client.exists("_lockdog") == 1)
        return "value"

    def ask():
        made.extend(region.get_or_create("dog", create) for region in regions)

    in_threads(ask)
    same([len(calls), made], [1, ["value"] * 2 * THREADS])
    same(client.exists("_lockdog"), 0)
    mutex = regions[0].backend.get_mutex("dog")
    same([mutex.acquire(), regions[1].backend.get_mutex("dog").acquire(wait=False)], [True, False])
    mutex.release()
    same(mutex.locked(), False)


def aiocache_locks():
    made = []

    async def create():
        made.append(1)
        return {"n": len(made)}

    async def all_of_it():
        arguments = {"endpoint": checks.host, "port": checks.port, "namespace": "aio"}
        async with aiocache.Cache(aiocache.Cache.REDIS, **arguments) as cache:
            await cache.clear()
            async with RedLock(cache, "job", lease=60):
                same(await cache.exists("job-lock"), True)
                await cache.set("job", "x", ttl=100)
            same(await cache.exists("job-lock"), False)
            cached = aiocache.cached_stampede(lease=60, ttl=100, cache=aiocache.RedisCache, key="made",
                                              serializer=JsonSerializer(), **arguments)(create)
            same([await cached() for _ in range(3)], [{"n": 1}] * 3)
            same(await cache.exists("made-lock"), False)
            same([await cache.increment("n", 5), await cache.increment("n", -2)], [5, 3])
            await cached.cache.close()
            async with OptimisticLock(cache, "job") as lock:
                same(await lock.cas("y", ttl=50), True)
            same([await cache.get("job"), client.ttl("aio:job") <= 50], ["y", True])
            async with OptimisticLock(cache, "job") as lock:
                await cache.set("job", "theirs")
                try:
                    await lock.cas("mine")
                except OptimisticLockError:
                    return await cache.get("job")

    same(asyncio.run(all_of_it()), "theirs")


def cashews_locks_and_limits():
    async def all_of_it():
        cache = Cache()
        cache.setup("%s/%d" % (URL, CASHEWS), suppress=False)
        await cache.clear()
        most = running = 0

        @cache.rate_limit(limit=3, period="10m", key="rate")
        async def limited():
            return "done"

        async def job():
            nonlocal most, running
            async with cache.lock("job", expire=60):
                running += 1
                most = max(most, running)
                await cache.incr("jobs")
                running -= 1

        await asyncio.gather(*(job() for _ in range(10)))
        same([most, await cache.get("jobs"), await cache.is_locked("job")], [1, 10, False])
        same([await cache.set_lock("own", token, expire=60) for token in ("mine", "x")], [True, False])
        same([bool(await cache.unlock("own", "x")), bool(await cache.unlock("own", "mine"))], [False, True])
        same([await cache.incr("counted", expire=50), await cache.incr("counted", expire=90)], [1, 2])
        true(40 < await cache.get_expire("counted") <= 50)
        same([await limited() for _ in range(3)], ["done"] * 3)
        try:
            await limited()
        except RateLimitError:
            return await cache.close()
        raise AssertionError("the fourth call was not refused")

    asyncio.run(all_of_it())
    with redis.Redis(db=CASHEWS, **ADDRESS) as own:
        same(own.get("jobs"), b"10")


def pottery_locks():
    lock = Redlock(key="printer", masters={client}, auto_release_time=60)
    same([bool(lock.locked()), lock.acquire(), 0 < lock.locked() <= 60], [False, True, True])
    other = Redlock(key="printer", masters={client}, auto_release_time=60)
    same(other.acquire(blocking=False), False)
    raises(ReleaseUnlockedLock, other.release)
    lock.extend()
    lock.release()
    raises(ReleaseUnlockedLock, lock.release)
    same(client.exists("redlock:printer"), 0)
    with Redlock(key="printer", masters={client}, auto_release_time=EXPIRY_SECONDS) as short_lived:
        until(lambda: not short_lived.locked())
        same(other.acquire(), True)
        raises(ReleaseUnlockedLock, short_lived.release)
        other.release()
        same(short_lived.acquire(), True)


def pottery_numbers_and_asyncio():
    numbers = NextID(key="orders", masters={client})
    numbers.reset()
    same([next(numbers) for _ in range(20)], list(range(1, 21)))

    async def locked():
        async with redis.asyncio.Redis(**ADDRESS) as own:
            lock = AIORedlock(key="shower", masters={own}, auto_release_time=60)
            same([await lock.acquire(), 0 < await lock.locked() <= 60], [True, True])
            await lock.extend()
            await lock.release()
            return await lock.locked()

    same(asyncio.run(locked()), 0)


client.flushall()
for protocol in (2, 3):
    for check in (redis_py_lock, redis_py_lock_of_somebody_else, redis_py_registered_script,
                  redis_py_scripts_in_a_pipeline, redis_py_values, redis_py_values_of_resp3):
        checks.run("%s RESP%d" % (check.__name__, protocol), check, protocol)
for check in (redis_py_lock_that_several_want, redis_py_lock_in_asyncio, redis_py_large_values,
              redis_py_reading_scripts, redis_py_scripts_in_asyncio, django_counts, django_lock, django_patterns,
              django_times_to_live, django_database, limits_fixed_window, limits_sliding_window, dogpile_lock,
              aiocache_locks, cashews_locks_and_limits, pottery_locks, pottery_numbers_and_asyncio):
    checks.run(check.__name__, check)
client.close()
checks.end()
