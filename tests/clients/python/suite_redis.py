"""redis-py, against a live server: HOST PORT 2|3, the version of RESP."""

import asyncio
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from pymemcache.client.base import Client as Memcached  # noqa: E402
from redis.backoff import NoBackoff  # noqa: E402
from redis.exceptions import ReadOnlyError, ResponseError, WatchError  # noqa: E402
from redis.retry import Retry  # noqa: E402

from checks import AWKWARD, LARGE, Checks, raises, same, true, until  # noqa: E402

PROTOCOL = int(sys.argv[3])
checks = Checks("redis-py RESP%d" % PROTOCOL)
ADDRESS = {"host": checks.host, "port": checks.port, "protocol": PROTOCOL, "socket_timeout": 20}
client = redis.Redis(**ADDRESS)
# It would ask again for a while.
STRANGER = redis.Redis(username="nobody", password="x", retry=Retry(NoBackoff(), 0), **ADDRESS)


def refused(word, *arguments):
    """Fails unless the command is refused with an error that has the word in it."""
    try:
        client.execute_command(*arguments)
    except ResponseError as error:
        if word not in str(error):
            raise AssertionError("%s: %s" % (arguments[0], error)) from error
    else:
        raise AssertionError("%s was not refused" % arguments[0])


def set_get():
    same(client.set("a", "hello"), True)
    same(client.get("a"), b"hello")
    same(client.get("absent"), None)
    same(client.exists("a", "a", "absent"), 2)
    same(client.strlen("a"), 5)
    same(client.type("a"), b"string")
    same(client.type("absent"), b"none")
    same(client.touch("a", "absent"), 1)


def conditions():
    client.delete("b")
    same(client.set("b", "x", xx=True), None)
    same(client.set("b", "x", nx=True), True)
    same(client.set("b", "y", nx=True), None)
    same(client.set("b", "z", get=True), b"x")
    same(client.setnx("b", "w"), False)
    same(client.getset("b", "v"), b"z")
    same(client.getdel("b"), b"v")
    same(client.get("b"), None)


def several():
    same(client.mset({"m%d" % i: i for i in range(300)}), True)
    same(client.mget(["m%d" % i for i in range(302)]), [b"%d" % i for i in range(300)] + [None, None])
    same(client.msetnx({"m0": 1, "fresh": 1}), False)
    same(client.get("fresh"), None)
    same(client.delete("m0", "m1", "absent"), 2)
    same(client.unlink("m2", "m0"), 1)


def arithmetic():
    client.delete("n")
    same(client.incr("n"), 1)
    same(client.incrby("n", 41), 42)
    same(client.decrby("n", 50), -8)
    same(client.decr("n"), -9)
    same(client.incrbyfloat("f", 10.5), 10.5)
    same(client.incrbyfloat("f", 0.1), 10.6)
    client.set("s", "text")
    raises(ResponseError, client.incr, "s")
    client.set("top", 2 ** 63 - 1)
    raises(ResponseError, client.incr, "top")


def parts():
    client.delete("p", "bits")
    same(client.append("p", "Hello"), 5)
    same(client.append("p", " World"), 11)
    same(client.getrange("p", 0, 4), b"Hello")
    same(client.getrange("p", -5, -1), b"World")
    same(client.setrange("p", 6, "Redis"), 11)
    same(client.get("p"), b"Hello Redis")
    same(client.setbit("bits", 7, 1), 0)
    same(client.getbit("bits", 7), 1)
    same(client.bitcount("bits"), 1)


def times_to_live():
    client.set("t", "x", px=1500)
    true(1000 < client.pttl("t") <= 1500)
    same(client.persist("t"), True)
    same(client.ttl("t"), -1)
    same(client.ttl("absent"), -2)
    same(client.expire("t", 100), True)
    same(client.expire("t", 200, nx=True), False)
    same(client.expire("t", 50, gt=True), False)
    same(client.ttl("t"), 100)
    client.set("t", "y", keepttl=True)
    same(client.ttl("t"), 100)
    moment = int(time.time()) + 1000
    same(client.expireat("t", moment), True)
    same(client.expiretime("t"), moment)
    same(client.getex("t", px=5000), b"y")
    true(client.pttl("t") <= 5000)
    same(client.execute_command("SETEX", "t", 10, "z"), True)
    same(client.execute_command("PSETEX", "t", 10000, "z"), True)
    same(client.expire("t", -1), True)
    same(client.exists("t"), 0)


def milliseconds():
    client.set("short", "x", px=120)
    client.set("long", "x", px=60_000)
    until(lambda: client.get("short") is None)
    same(client.get("long"), b"x")


def awkward_and_large():
    for key, value in (("bin", AWKWARD), ("large", LARGE), ("empty", b""), ("", b"no key"), (AWKWARD, b"bytes"),
                       ("grüße-世界", b"x"), ("k" * 65536, b"x")):
        client.set(key, value)
        same(client.get(key), value)
    same(client.mget("bin", "large"), [AWKWARD, LARGE])
    raises(ResponseError, client.set, "huge", b"x" * 2_000_000)
    same(client.get("huge"), None)
    raises(ResponseError, client.set, "k" * 65537, b"x")
    same(client.get("bin"), AWKWARD)


def names():
    client.delete("old", "new", "copy")
    client.set("old", "x", ex=100)
    same(client.rename("old", "new"), True)
    same(client.ttl("new"), 100)
    same(client.copy("new", "copy"), True)
    same(client.copy("new", "copy"), False)
    same(client.copy("new", "copy", replace=True), True)
    same(client.renamenx("new", "copy"), False)
    raises(ResponseError, client.rename, "old", "new")
    true(client.randomkey())


def listing():
    wanted = {b"scan:%d" % i for i in range(500)}
    client.mset({key: b"x" for key in wanted})
    same(set(client.scan_iter(match="scan:*", count=50)), wanted)
    same(set(client.keys("scan:*")), wanted)
    true(client.dbsize() >= 500)


def pipelines():
    with client.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.set("q%d" % i, i)
            pipe.get("q%d" % i)
        same(pipe.execute()[1::2], [b"%d" % i for i in range(1000)])


def transactions():
    client.set("balance", 10)
    with client.pipeline() as pipe:
        same(pipe.incrby("balance", 5).get("balance").execute(), [15, b"15"])
        pipe.watch("balance")
        seen = int(pipe.get("balance"))
        client.set("balance", 99)
        pipe.multi()
        pipe.set("balance", seen + 1)
        raises(WatchError, pipe.execute)
        same(client.get("balance"), b"99")
        pipe.watch("balance")
        pipe.multi()
        same(pipe.set("balance", 1).execute(), [True])
    with client.pipeline() as pipe:
        pipe.set("word", "a").incr("word").set("after", "x")
        raises(ResponseError, pipe.execute)
        same(client.get("after"), b"x")


def locks():
    same(client.set("lock", "mine", nx=True, px=30_000), True)
    same(client.execute_command("DELEX", "lock", "IFEQ", "theirs"), 0)
    same(client.execute_command("SET", "lock", "theirs", "IFEQ", "theirs", "PX", 1000), None)
    same(client.execute_command("SET", "lock", "mine", "IFEQ", "mine", "PX", 60_000), True)
    true(client.pttl("lock") > 30_000)
    same(client.execute_command("DELEX", "lock", "IFEQ", "mine"), 1)
    same(client.execute_command("DELIFEQ", "lock", "mine"), 0)
    lock = client.lock("scripted", timeout=10)
    same(lock.acquire(), True)
    same(client.execute_command("DELEX", "scripted", "IFEQ", "theirs"), 0)
    lock.release()
    same(client.get("scripted"), None)


def what_is_refused():
    for word, command in (("no lists", "LPUSH"), ("no blocking", "BZPOPMIN"), ("no streams", "XADD")):
        refused(word, command, "x", "1", "a", "b")
    refused("keeps no functions", "FCALL", "x", 0)
    refused("out of range", "SELECT", 16)
    raises((ResponseError, ReadOnlyError), client.execute_command, "REPLICAOF", "a", 1)
    raises(redis.exceptions.AuthenticationError, STRANGER.ping)


def about_the_server():
    same(client.ping(), True)
    same(client.echo("x"), b"x")
    true(abs(client.time()[0] - time.time()) < 10)
    info = client.info()
    true(info["redis_version"] and info["maxmemory"] > 0 and info["db0"]["keys"] > 0)
    true(int(client.config_get("maxmemory")["maxmemory"]) > 0)
    same(client.config_resetstat(), True)
    same(client.client_setname("suite"), True)
    same(client.client_getname() in ("suite", b"suite"), True)
    true(any(each["name"] == "suite" and each["lib-name"] == "redis-py" for each in client.client_list()))
    true(client.client_id() > 0)
    true(client.memory_usage("bin") > len(AWKWARD))
    client.set("number", 42)
    same(client.object("encoding", "number"), b"int")
    true(client.command_count() > 80)
    same(client.command()["get"]["arity"], 2)
    same(client.slowlog_len() >= 0, True)


def what_others_store():
    other = Memcached((checks.host, checks.port), default_noreply=False)
    other.set("theirs", b"text", expire=100, flags=7)
    same(client.get("theirs"), b"text")
    true(99 <= client.ttl("theirs") <= 100)
    client.append("theirs", "!")
    same(other.get("theirs"), b"text!")
    client.set("ours", "5", px=100_000)
    same(other.get("ours"), b"5")
    same(other.incr("ours", 2), 7)
    same(client.get("ours"), b"7")
    _, token = other.gets("ours")
    client.set("ours", "8")
    same(other.cas("ours", b"9", token), False)
    same(other.get("ours"), b"8")
    other.close()


def threads_and_asyncio():
    async def many():
        async with redis.asyncio.Redis(**ADDRESS) as other:
            await asyncio.gather(*(other.set("async%d" % i, i) for i in range(100)))
            return await other.mget(["async%d" % i for i in range(100)])

    same(asyncio.run(many()), [b"%d" % i for i in range(100)])


def a_killed_connection():
    other = redis.Redis(**ADDRESS)
    number = other.client_id()
    same(client.client_kill_filter(_id=number), 1)
    same(other.get("a"), b"hello")
    other.close()


def flush():
    client.set("z", "x")
    same(client.flushdb(), True)
    same(client.get("z"), None)
    same(client.flushall(asynchronous=True), True)
    same(client.dbsize(), 0)


for check in (set_get, conditions, several, arithmetic, parts, times_to_live, milliseconds, awkward_and_large, names,
              listing, pipelines, transactions, locks, what_is_refused, about_the_server, what_others_store,
              threads_and_asyncio, a_killed_connection, flush):
    checks.run(check.__name__, check)
client.close()
checks.end()
