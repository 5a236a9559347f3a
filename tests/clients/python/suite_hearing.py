"""Libraries for Python that hear from a live server unasked (CLIENT TRACKING, SUBSCRIBE): HOST PORT."""

import asyncio
import os
import socket
import sys
import threading
import uuid

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import coredis  # noqa: E402
import redis  # noqa: E402
import redis.asyncio  # noqa: E402
import socketio  # noqa: E402
from broadcaster import Broadcast  # noqa: E402
from cashews import Cache  # noqa: E402
from celery import Celery, states  # noqa: E402
from celery.result import AsyncResult  # noqa: E402
from channels_redis.pubsub import RedisPubSubChannelLayer  # noqa: E402
from coredis.patterns.cache import LRUCache  # noqa: E402
from redis.cache import CacheConfig  # noqa: E402
from redis.connection import CacheProxyConnection  # noqa: E402
from redis.exceptions import ConnectionError as RedisConnectionError, ResponseError  # noqa: E402

from checks import AWKWARD, LARGE, Checks, raises, same, true, until  # noqa: E402

SUBSCRIBERS = 4
MESSAGES = 1000
WAIT_SECONDS_MAX = 60
INVALIDATE = "__redis__:invalidate"
checks = Checks("hearing")
ADDRESS = {"host": checks.host, "port": checks.port, "socket_timeout": 20}
URL = "redis://%s:%d" % (checks.host, checks.port)
client = redis.Redis(**ADDRESS)
# redis-py caches only where HELLO names a Redis of 7.4 or later. What it asks of one, older ones and Valkey do as well.
CacheProxyConnection.MIN_ALLOWED_VERSION = "7.0.0"
CacheProxyConnection.DEFAULT_SERVER_NAME = client.execute_command("HELLO", 3)[b"server"].decode()


def caching(**more):
    """A client of redis-py that keeps what it has read."""
    return redis.Redis(protocol=3, cache_config=more.pop("cache_config", CacheConfig()), **ADDRESS, **more)


def reads():
    """How many reads have reached the server and found something."""
    return client.info("stats")["keyspace_hits"]


def tracking(own):
    """What the server says of a client's tracking, whatever the version of RESP."""
    info = own.client_trackinginfo()
    flags, redirect, prefixes = info.values() if isinstance(info, dict) else info[1::2]
    return set(flags), redirect, set(prefixes)


def forgets(own):
    """Returns once the client has forgotten all that it kept. It hears as it sends."""
    until(lambda: own.ping() and own.get_cache().size == 0)


def memcached(line, wanted):
    """Sends a request by way of memcached's door."""
    with socket.create_connection((checks.host, checks.port), timeout=WAIT_SECONDS_MAX) as door:
        door.sendall(line)
        same(door.recv(1000), wanted)


def next_message(heard):
    """The next message of a subscriber of redis-py: its type, its channel, what it says."""
    got = []
    # It returns without one where it ignores a message of a subscription.
    until(lambda: got.append(heard.get_message(timeout=1)) or got[-1])
    return [got[-1]["type"], got[-1]["channel"], got[-1]["data"]]


def subscribers(channel):
    """How many clients hear the channel."""
    return client.pubsub_numsub(channel)[0][1]


def cache_hits():
    with caching() as own:
        client.set("k", "v")
        same(own.get("k"), b"v")
        before = reads()
        same([own.get("k") for _ in range(20)], [b"v"] * 20)
        same([reads(), own.get_cache().size], [before, 1])
        same([own.mget("k", "absent"), own.exists("k"), own.strlen("k"), own.getrange("k", 0, 0)],
             [[b"v", None], 1, 1, b"v"])
        same([own.get_cache().size, own.get("absent")], [5, None])
        client.set("k", "w")
        forgets(own)
        same([own.get("k"), own.mget("k", "absent"), reads() > before], [b"w", [b"w", None], True])


def cache_of_one_connection():
    with caching(single_connection_client=True) as own:
        client.set("k", "v")
        same([own.get("k"), tracking(own)], [b"v", ({b"on"}, 0, set())])
        client.set("k", "w")
        until(lambda: own.get("k") == b"w")
        own.set("k", "own")
        same(own.get("k"), b"own")


def cache_hears_every_write():
    writes = [
        ("SET", "k", "w"), ("DEL", "k"), ("UNLINK", "k"), ("EXPIRE", "k", 100), ("EXPIRE", "k", -1),
        ("APPEND", "k", "w"), ("INCR", "k"), ("GETDEL", "k"), ("MSET", "other", 1, "k", 2), ("SETRANGE", "k", 1, "x"),
        ("SET", "k", "1"), ("GETSET", "k", "9"), ("GETEX", "k", "EX", 100), ("RENAME", "k", "other"),
        ("RENAME", "other", "k"),
        ("EVAL", "return redis.call('SET', KEYS[1], 'w')", 1, "k"), ("FLUSHALL",), ("FLUSHDB",),
    ]
    with caching() as own:
        for write in writes:
            client.mset({"k": 1, "other": 2})
            same(own.get("k"), b"1")
            client.execute_command(*write)
            try:
                forgets(own)
            except AssertionError as error:
                raise AssertionError("%s was not heard" % (write,)) from error
            same(own.get("k"), client.get("k"))
            own.get_cache().flush()


def cache_hears_transactions():
    with caching() as own:
        client.mset({"k": 1, "other": 1})
        same([own.get("k"), own.get("other")], [b"1", b"1"])
        with client.pipeline(transaction=True) as pipe:
            pipe.incr("k").incr("other").incr("k")
            same(pipe.execute(), [2, 2, 3])
        forgets(own)
        same([own.get("k"), own.get("other")], [b"3", b"2"])


def cache_hears_the_end_of_a_key():
    with caching() as own:
        client.set("k", "v", px=300)
        same(own.get("k"), b"v")
        forgets(own)
        same(own.get("k"), None)
        client.set("k", "v")
        same(own.get("k"), b"v")
        client.pexpire("k", 300)
        until(lambda: own.get("k") is None)


def cache_hears_memcached():
    with caching() as own:
        for line, wanted, value in (
            (b"set k 0 0 1\r\nx\r\n", b"STORED", b"x"), (b"delete k\r\n", b"DELETED", None),
            (b"incr k 5\r\n", b"6", b"6"), (b"append k 0 0 1\r\n1\r\n", b"STORED", b"11"),
            (b"touch k 100\r\n", b"TOUCHED", b"1"), (b"ms k 1\r\ny\r\n", b"HD", b"y"),
            (b"md k\r\n", b"HD", None), (b"flush_all\r\n", b"OK", None),
        ):
            client.set("k", "1")
            same(own.get("k"), b"1")
            memcached(line, wanted + b"\r\n")
            forgets(own)
            same(own.get("k"), value)
            own.get_cache().flush()


def cache_of_several_connections():
    with caching(max_connections=SUBSCRIBERS) as own:
        keys = ["pool:%d" % i for i in range(40)]
        client.mset(dict.fromkeys(keys, "old"))
        pool = own.connection_pool
        connections = [pool.get_connection() for _ in range(SUBSCRIBERS)]
        for i, key in enumerate(keys):
            connection = connections[i % SUBSCRIBERS]
            connection.send_command("GET", key, keys=[key])
            same(connection.read_response(), b"old")
        for connection in connections:
            pool.release(connection)
        same([own.get_cache().size, [own.get(key) for key in keys]], [40, [b"old"] * 40])
        client.mset(dict.fromkeys(keys, "new"))
        for key in keys:
            until(lambda: own.get(key) == b"new")
        client.flushall()
        for key in keys:
            until(lambda: own.get(key) is None)


def cache_while_others_write():
    """A client for each thread: several threads with one such client stand still, with Valkey too."""
    client.set("n", 0)
    behind = []

    def read():
        with caching() as own:
            last = 0
            while last < 500:
                now = int(own.get("n"))
                behind.extend([now] if now < last else [])
                last = now

    threads = [threading.Thread(target=read) for _ in range(SUBSCRIBERS)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        client.incr("n")
    for thread in threads:
        thread.join()
    same(behind, [])


def cache_that_decodes():
    with caching(decode_responses=True) as own:
        client.set("grüße", "世界")
        same([own.get("grüße"), own.get("grüße"), own.get_cache().size], ["世界", "世界", 1])
        client.set("grüße", "x")
        until(lambda: own.get("grüße") == "x")
        client.flushall()
        until(lambda: own.get("grüße") is None)


def cache_of_few():
    with caching(cache_config=CacheConfig(max_size=10)) as own:
        client.mset({"few:%d" % i: i for i in range(30)})
        for _ in range(2):
            same([own.get("few:%d" % i) for i in range(30)], [b"%d" % i for i in range(30)])
        same(own.get_cache().size, 10)
        client.mset({"few:%d" % i: "x" for i in range(30)})
        forgets(own)
        same({own.get("few:%d" % i) for i in range(30)}, {b"x"})


def redis_py_knows_the_server():
    """What redis-py and Jedis ask of HELLO before they cache."""
    hello = client.execute_command("HELLO", 3)
    same(hello[b"server"], b"redis")
    true([int(part) for part in hello[b"version"].split(b".")] >= [7, 4, 0])


def tracked(*arguments, **more):
    """A client of one connection that is told of invalid keys, and the list of what it is told."""
    own = redis.Redis(protocol=3, single_connection_client=True, **ADDRESS, **more)
    told = []
    own.connection._parser.set_invalidation_push_handler(lambda push: told.append(push[1]))
    same(own.execute_command("CLIENT", "TRACKING", "ON", *arguments), b"OK")
    return own, told


def hears(own, told, *keys):
    """Waits until the client is told that just these keys, in this order, are no longer valid."""
    def told_keys():
        own.ping()
        return [key for push in told for key in push or [None]]

    until(lambda: len(told_keys()) >= len(keys))
    same(told_keys(), list(keys))
    told.clear()


def tracking_by_prefix():
    own, told = tracked("BCAST", "PREFIX", "user:", "PREFIX", "page:")
    client.mset({"user:1": "x", "other": "x", "page:1": "x"})
    until(lambda: own.ping() and len([key for push in told for key in push]) >= 2)
    same(sorted(key for push in told for key in push), [b"page:1", b"user:1"])
    told.clear()
    client.set("other", "y")
    own.set("user:own", "x")
    hears(own, told, b"user:own")
    client.delete("user:1")
    hears(own, told, b"user:1")
    raises(ResponseError, own.execute_command, "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "user:1")
    raises(ResponseError, own.execute_command, "CLIENT", "TRACKING", "ON")
    client.flushall()
    hears(own, told, None)
    same(tracking(own), ({b"on", b"bcast"}, 0, {b"user:", b"page:"}))
    own.close()


def tracking_without_a_loop():
    own, told = tracked("NOLOOP")
    own.mset({"own": 1, "other": 1})
    same(own.mget("own", "other"), [b"1", b"1"])
    own.set("own", 2)
    client.set("other", 2)
    hears(own, told, b"other")
    own.close()
    own, told = tracked("BCAST", "NOLOOP")
    own.set("own", 3)
    client.set("other", 3)
    hears(own, told, b"other")
    own.close()


def tracking_by_choice():
    client.mset({"a": 1, "b": 1})
    own, told = tracked("OPTIN")
    own.get("a")
    same(own.execute_command("CLIENT", "CACHING", "YES"), b"OK")
    own.get("b")
    client.mset({"a": 2, "b": 2})
    hears(own, told, b"b")
    own.close()
    own, told = tracked("OPTOUT")
    own.get("a")
    same(own.execute_command("CLIENT", "CACHING", "NO"), b"OK")
    own.get("b")
    client.mset({"a": 2, "b": 2})
    hears(own, told, b"a")
    same(own.execute_command("CLIENT", "TRACKING", "OFF"), b"OK")
    own.get("a")
    client.set("a", 3)
    same([own.ping(), told], [True, []])
    raises(ResponseError, own.execute_command, "CLIENT", "CACHING", "NO")
    own.close()


def redirected(protocol, *more):
    """A subscriber of INVALIDATE, and a client whose invalid keys it is told of."""
    heard = redis.Redis(protocol=2, **ADDRESS).pubsub()
    heard.execute_command("CLIENT", "ID")
    number = heard.parse_response()
    heard.subscribe(INVALIDATE)
    same(next_message(heard), ["subscribe", INVALIDATE.encode(), 1])
    own = redis.Redis(protocol=protocol, single_connection_client=True, **ADDRESS)
    same(own.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", number, *more), b"OK")
    same(own.client_getredir(), number)
    return heard, number, own


def tracking_to_another_connection(protocol):
    heard, number, own = redirected(protocol)
    client.mset({"a": 1, "b": 1})
    same(own.mget("a", "b"), [b"1", b"1"])
    client.set("a", 2)
    same(next_message(heard), ["message", INVALIDATE.encode(), [b"a"]])
    if protocol == 2:  # Valkey tells a subscriber with RESP2 in RESP3 where the client that it hears for has RESP3
        client.flushall()
        same(next_message(heard), ["message", INVALIDATE.encode(), None])
    client.set("short", "x", px=200)
    same(own.get("short"), b"x")
    same(next_message(heard), ["message", INVALIDATE.encode(), [b"short"]])
    client.client_kill_filter(_id=number)
    own.get("a")
    client.set("a", 3)
    until(lambda: b"broken_redirect" in tracking(own)[0])
    raises(ResponseError, client.execute_command, "CLIENT", "TRACKING", "ON", "REDIRECT", number)
    own.close()
    heard.close()


def tracking_of_a_prefix_to_another_connection():
    heard, _, own = redirected(2, "BCAST", "PREFIX", "user:", "NOLOOP")
    own.set("user:own", 1)
    client.mset({"other": 1, "user:1": 1})
    same(next_message(heard), ["message", INVALIDATE.encode(), [b"user:1"]])
    own.close()
    heard.close()


def subscribing(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub() as heard:
        same(heard.get_message(), None)
        heard.subscribe("news", "grüße")
        same(next_message(heard), ["subscribe", b"news", 1])
        same(next_message(heard), ["subscribe", "grüße".encode(), 2])
        same(heard.get_message(), None)
        same([own.publish("news", "hello"), own.publish("grüße", AWKWARD), own.publish("none", "x")], [1, 1, 0])
        same(next_message(heard), ["message", b"news", b"hello"])
        same(next_message(heard), ["message", "grüße".encode(), AWKWARD])
        for text in (b"", LARGE):
            same(client.publish("news", text), 1)
            true(next_message(heard) == ["message", b"news", text])
        heard.unsubscribe("news")
        same(next_message(heard), ["unsubscribe", b"news", 1])
        same([client.publish("news", "x"), client.publish("grüße", "y")], [0, 1])
        same(next_message(heard), ["message", "grüße".encode(), b"y"])
        heard.unsubscribe()
        same(next_message(heard), ["unsubscribe", "grüße".encode(), 0])
        same([heard.subscribed, heard.get_message()], [False, None])
        heard.subscribe("again")
        same(next_message(heard), ["subscribe", b"again", 1])


def subscribing_to_patterns(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub(ignore_subscribe_messages=True) as heard:
        heard.psubscribe("a?c", "h[ae]llo", "x\\*")
        heard.subscribe("abc")
        until(lambda: heard.get_message() is None and subscribers("abc") == 1)
        same([client.publish(name, name) for name in ("abc", "hello", "hillo", "x*", "xy")], [2, 1, 0, 1, 0])
        same([next_message(heard) for _ in range(4)], [
            ["message", b"abc", b"abc"], ["pmessage", b"abc", b"abc"], ["pmessage", b"hello", b"hello"],
            ["pmessage", b"x*", b"x*"]])
        heard.punsubscribe("a?c")
        until(lambda: heard.get_message() is None and client.publish("abc", "last") == 1)
        same(next_message(heard), ["message", b"abc", b"last"])
        heard.punsubscribe()
        heard.unsubscribe()
        until(lambda: heard.get_message() is None and not heard.subscribed)
        same(client.pubsub_numpat(), 0)


def subscribing_to_shards(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub() as heard:
        heard.ssubscribe("shard")
        same(next_message(heard), ["ssubscribe", b"shard", 1])
        same([client.spublish("shard", "x"), client.publish("shard", "y"), client.spublish("none", "z")], [1, 0, 0])
        same(next_message(heard), ["smessage", b"shard", b"x"])
        heard.subscribe("shard")
        same(next_message(heard), ["subscribe", b"shard", 1])
        same(client.publish("shard", "y"), 1)
        same(next_message(heard), ["message", b"shard", b"y"])
        same([client.execute_command("PUBSUB", "SHARDCHANNELS", "sh*"), subscribers("shard")], [[b"shard"], 1])
        same(client.execute_command("PUBSUB", "SHARDNUMSUB", "shard", "none"), [b"shard", 1, b"none", 0])
        heard.sunsubscribe()
        same(next_message(heard), ["sunsubscribe", b"shard", 0])
        same([client.spublish("shard", "x"), client.publish("shard", "z")], [0, 1])
        same(next_message(heard), ["message", b"shard", b"z"])


def listening(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe("many")
        until(lambda: subscribers("many") == 1)
        with client.pipeline(transaction=False) as pipe:
            for i in range(MESSAGES):
                pipe.publish("many", i)
            same(pipe.execute(), [1] * MESSAGES)
        numbers = []
        for message in heard.listen():
            numbers.extend([int(message["data"])] if message else [])
            if len(numbers) == MESSAGES:
                heard.unsubscribe()
        same(numbers, list(range(MESSAGES)))


def hearing_in_a_thread(protocol):
    got, patterns, shards = [], [], []
    with redis.Redis(protocol=protocol, decode_responses=True, **ADDRESS) as own:
        heard = own.pubsub(ignore_subscribe_messages=True)
        heard.subscribe(thread=lambda message: got.append(message["data"]))
        heard.psubscribe(**{"thr*": lambda message: patterns.append((message["channel"], message["data"]))})
        heard.ssubscribe(**{"thread": lambda message: shards.append(message["data"])})
        thread = heard.run_in_thread(sleep_time=0.01)
        until(lambda: client.spublish("thread", "s") == 1)
        same(client.publish("thread", "x"), 2)
        until(lambda: [got, patterns, len(shards)] == [["x"], [("thread", "x")], 1])
        thread.stop()
        thread.join()
    until(lambda: subscribers("thread") == 0)


def what_is_subscribed(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub() as one, own.pubsub() as other:
        one.subscribe("seen:a", "seen:b")
        other.subscribe("seen:b")
        other.psubscribe("p*", "q*")
        one.psubscribe("p*")
        until(lambda: [subscribers("seen:a"), subscribers("seen:b"), own.pubsub_numpat()] == [1, 2, 2])
        same(sorted(own.pubsub_channels("seen:*")), [b"seen:a", b"seen:b"])
        same([own.pubsub_channels("none*"), own.pubsub_numsub()], [[], []])
        same(own.pubsub_numsub("seen:a", "seen:b", "none"), [(b"seen:a", 1), (b"seen:b", 2), (b"none", 0)])
        same(own.publish("seen:b", "x"), 2)
        same(len([1 for each in own.client_list(_type="pubsub") if each["psub"] in ("1", "2")]), 2)
    until(lambda: client.pubsub_channels("seen:*") == [])


def healths_of_subscribers(protocol):
    with redis.Redis(protocol=protocol, health_check_interval=1000, **ADDRESS) as own, own.pubsub() as heard:
        heard.subscribe("health")
        same(next_message(heard), ["subscribe", b"health", 1])
        heard.connection.next_health_check = 0
        heard.check_health()
        same(heard.health_check_response_counter, 1)
        until(lambda: heard.get_message() is None and heard.health_check_response_counter == 0)
        heard.ping()
        true(heard.get_message(timeout=WAIT_SECONDS_MAX) in (None, {
            "type": "pong", "pattern": None, "channel": None, "data": b""}))
        heard.ping("text")
        same(next_message(heard), ["pong", None, b"text"])
        client.publish("health", "x")
        same(next_message(heard), ["message", b"health", b"x"])


def subscribers_that_come_back(protocol):
    with redis.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe("kept")
        heard.psubscribe("kep?")
        until(lambda: heard.get_message() is None and client.publish("kept", "before") == 2)
        same([next_message(heard)[2] for _ in range(2)], [b"before"] * 2)
        true(client.execute_command("CLIENT", "KILL", "TYPE", "PUBSUB") >= 1)
        until(lambda: subscribers("kept") == 0)

        def hears_again():
            try:
                heard.get_message()
            except RedisConnectionError:
                pass
            return subscribers("kept") == 1 and client.pubsub_numpat() == 1

        until(hears_again)
        same(client.publish("kept", "after"), 2)
        same([next_message(heard)[2] for _ in range(2)], [b"after"] * 2)


def words_while_subscribed(protocol):
    """With RESP3 a subscriber may send anything; with RESP2 it may not."""
    with redis.Redis(protocol=protocol, single_connection_client=True, **ADDRESS) as own:
        client.set("k", "v")
        own.connection.send_command("SUBSCRIBE", "words")
        push = {"push_request": True} if protocol == 3 else {}
        same(own.connection.read_response(**push), [b"subscribe", b"words", 1])
        if protocol == 3:
            own.connection._parser.set_pubsub_push_handler(lambda push: got.append(push[2]))
            got = []
            same([own.get("k"), own.publish("words", "x")], [b"v", 1])
            until(lambda: own.get("k") == b"v" and got == [b"x"])
        else:
            raises(ResponseError, own.get, "k")
            own.connection.send_command("PING")
            same(own.connection.read_response(), [b"pong", b""])
            own.connection.send_command("RESET")
            same([own.connection.read_response(), own.get("k")], [b"RESET", b"v"])


def publishing_in_transactions_and_scripts():
    with client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe("told")
        heard.ssubscribe("told")
        until(lambda: heard.get_message() is None and client.spublish("told", 0) == 1)
        with client.pipeline(transaction=True) as pipe:
            same(pipe.publish("told", 1).set("k", "v").publish("told", 2).execute(), [1, True, 1])
        same(client.eval("return {redis.call('PUBLISH', 'told', 3), redis.call('SPUBLISH', 'told', 4)}", 0), [1, 1])
        same([next_message(heard)[2] for _ in range(5)], [b"%d" % i for i in range(5)])


def several_subscribers():
    heard = [client.pubsub(ignore_subscribe_messages=True) for _ in range(SUBSCRIBERS)]
    for each in heard:
        each.subscribe("all")
    until(lambda: subscribers("all") == SUBSCRIBERS)
    with client.pipeline(transaction=False) as pipe:
        for i in range(100):
            pipe.publish("all", i)
        same(pipe.execute(), [SUBSCRIBERS] * 100)
    for each in heard:
        same([int(next_message(each)[2]) for _ in range(100)], list(range(100)))
        each.close()
    until(lambda: subscribers("all") == 0)


def hearing_in_asyncio(protocol):
    async def all_of_it():
        async with redis.asyncio.Redis(protocol=protocol, **ADDRESS) as own, own.pubsub() as heard:
            await heard.subscribe("async")
            await heard.psubscribe("asy*")
            got = [await heard.get_message(timeout=WAIT_SECONDS_MAX) for _ in range(2)]
            same([each["type"] for each in got], ["subscribe", "psubscribe"])
            same(await asyncio.gather(*(own.publish("async", i) for i in range(50))), [2] * 50)
            data = []
            async for message in heard.listen():
                data.append(message["data"])
                if len(data) == 100:
                    break
            return data

    same(sorted(asyncio.run(all_of_it()), key=int), [b"%d" % (i // 2) for i in range(100)])


async def soon(happens):
    """As `until`, for a coroutine."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await happens():
            await asyncio.sleep(0.02)


def cashews_client_side():
    async def all_of_it():
        caches = [Cache(), Cache()]
        for cache in caches:
            # It reads messages of a channel, which a subscriber gets with RESP2 alone.
            cache.setup(URL + "?protocol=2", client_side=True, suppress=False, client_side_listen_timeout=20)
        one, other = caches

        async def sees(wanted):
            await soon(lambda: has(wanted))

        async def has(wanted):
            return await other.get("user") == wanted

        await one.set("user", "old", expire=100)
        await sees("old")
        before = reads()
        same([await other.get("user") for _ in range(20)], ["old"] * 20)
        same(reads(), before)
        await one.set("user", "new", expire=100)
        await sees("new")
        await one.delete("user")
        await sees(None)
        await one.set("user", "short", expire=0.3)
        await sees("short")
        await sees(None)
        await one.set("user", "last", expire=100)
        await sees("last")
        client.flushall()
        await sees(None)
        for cache in caches:
            await cache.close()

    asyncio.run(all_of_it())


def coredis_cache():
    async def all_of_it():
        cache = LRUCache(max_keys=100)
        async with coredis.Redis(host=checks.host, port=checks.port, cache=cache, decode_responses=True) as own:
            client.mset({"core": "old", "b": 1})
            same(await own.get("core"), "old")
            before = reads()
            same([await own.get("core") for _ in range(20)], ["old"] * 20)
            same([reads(), cache.stats.hits.total() >= 20], [before, True])
            client.set("core", "new")
            await soon(lambda: has(own, "new"))
            client.set("core", "short", px=200)
            await soon(lambda: has(own, None))

    async def has(own, wanted):
        return await own.get("core") == wanted

    asyncio.run(all_of_it())


def coredis_subscriber():
    async def all_of_it():
        async with coredis.Redis(host=checks.host, port=checks.port, decode_responses=True) as own:
            async with own.pubsub(ignore_subscribe_messages=True, channels=["core"], patterns=["cor?"]) as heard:
                same([client.publish("core", i) for i in range(3)], [2] * 3)
                got = []
                await soon(lambda: has_six(heard, got))
                same(got, [(kind, str(i)) for i in range(3) for kind in ("message", "pmessage")])
                await heard.unsubscribe("core")
                await heard.punsubscribe("cor?")
                same([client.publish("core", "x"), heard.subscribed], [0, False])

    async def has_six(heard, got):
        message = await heard.get_message(timeout=1)
        got.extend([(message["type"], message["data"])] if message else [])
        return len(got) == 6

    asyncio.run(all_of_it())


def celery_results():
    app = Celery(broker="memory://", backend=URL, set_as_current=False)
    backend, number = app.backend, str(uuid.uuid4())
    result, got = AsyncResult(number, app=app), []
    waiting = threading.Thread(target=lambda: got.append(result.get(timeout=WAIT_SECONDS_MAX)))
    waiting.start()
    until(lambda: subscribers("celery-task-meta-" + number) == 1)
    backend.store_result(number, {"progress": 1}, "PROGRESS")
    backend.store_result(number, {"answer": [42, "世界"]}, states.SUCCESS)
    waiting.join()
    same([got, result.state], [[{"answer": [42, "世界"]}], states.SUCCESS])
    true(0 < client.ttl("celery-task-meta-" + number) <= 86400)
    until(lambda: subscribers("celery-task-meta-" + number) == 0)
    same(AsyncResult(number, app=app).get(timeout=WAIT_SECONDS_MAX), {"answer": [42, "世界"]})
    result.forget()
    same(client.exists("celery-task-meta-" + number), 0)


def celery_failures_and_groups():
    app = Celery(broker="memory://", backend=URL, set_as_current=False)
    backend, numbers = app.backend, [str(uuid.uuid4()) for _ in range(5)]
    backend.mark_as_failure(numbers[0], ValueError("wrong"))
    raises(ValueError, AsyncResult(numbers[0], app=app).get, timeout=WAIT_SECONDS_MAX)
    group = app.GroupResult("group-" + numbers[0], [AsyncResult(number, app=app) for number in numbers[1:]])
    group.save()
    for i, number in enumerate(numbers[1:]):
        backend.mark_as_done(number, i)
    restored = app.GroupResult.restore(group.id, app=app)
    same([restored.get(timeout=WAIT_SECONDS_MAX), restored.completed_count()], [[0, 1, 2, 3], 4])
    group.delete()
    same(app.GroupResult.restore(group.id, app=app), None)


def broadcaster_events():
    async def all_of_it():
        async with Broadcast(URL) as sender, Broadcast(URL) as hearer:
            async with hearer.subscribe("room") as one, hearer.subscribe("other") as other:
                await soon(heard)
                await sender.publish("room", "hello")
                await sender.publish("other", "grüße")
                events = [await asyncio.wait_for(each.get(), WAIT_SECONDS_MAX) for each in (one, other)]
                return [(event.channel, event.message) for event in events]

    async def heard():
        return [subscribers("room"), subscribers("other")] == [1, 1]

    same(asyncio.run(all_of_it()), [("room", "hello"), ("other", "grüße")])


def channels_layers():
    async def all_of_it():
        one, other = [RedisPubSubChannelLayer(hosts=[URL]) for _ in range(2)]
        names = [await one.new_channel(), await one.new_channel(), await other.new_channel()]
        for layer, name in zip((one, one, other), names):
            await layer.group_add("chat", name)
        await soon(lambda: has_three(names))
        await other.group_send("chat", {"type": "chat", "text": "to all"})
        await other.send(names[0], {"type": "chat", "text": "to one"})
        receive = [one.receive(names[0]), one.receive(names[1]), other.receive(names[2]), one.receive(names[0])]
        texts = [(await asyncio.wait_for(each, WAIT_SECONDS_MAX))["text"] for each in receive]
        await other.group_discard("chat", names[2])
        await soon(only_one)
        for layer in (one, other):
            await layer.flush()
        return texts

    async def has_three(names):
        return [subscribers(name) for name in names + ["asgi__group__chat"]] == [1, 1, 1, 2]

    async def only_one():
        return subscribers("asgi__group__chat") == 1

    same(asyncio.run(all_of_it()), ["to all"] * 3 + ["to one"])


def socketio_managers():
    got = []
    manager = socketio.RedisManager(URL)
    server = socketio.Server(client_manager=manager, async_mode="threading")
    manager._handle_emit = got.append
    server.manager.initialize()
    until(lambda: subscribers("socketio") == 1)
    socketio.RedisManager(URL, write_only=True).emit("news", {"text": "grüße"}, room="readers")
    until(lambda: len(got) == 1)
    same([got[0]["event"], got[0]["data"], got[0]["room"]], ["news", [{"text": "grüße"}], "readers"])

    async def in_asyncio():
        await socketio.AsyncRedisManager(URL, write_only=True).emit("again", [1, 2])

    asyncio.run(in_asyncio())
    until(lambda: len(got) == 2)
    same([got[1]["event"], got[1]["data"]], ["again", [[1, 2]]])


client.flushall()
for check in (redis_py_knows_the_server, cache_hits, cache_of_one_connection, cache_hears_every_write,
              cache_hears_transactions, cache_hears_the_end_of_a_key, cache_hears_memcached,
              cache_of_several_connections, cache_while_others_write, cache_that_decodes, cache_of_few,
              tracking_by_prefix, tracking_without_a_loop, tracking_by_choice,
              tracking_of_a_prefix_to_another_connection):
    checks.run(check.__name__, check)
for protocol in (2, 3):
    for check in (tracking_to_another_connection, subscribing, subscribing_to_patterns, subscribing_to_shards,
                  listening, hearing_in_a_thread, what_is_subscribed, healths_of_subscribers,
                  subscribers_that_come_back, words_while_subscribed, hearing_in_asyncio):
        checks.run("%s RESP%d" % (check.__name__, protocol), check, protocol)
for check in (publishing_in_transactions_and_scripts, several_subscribers, cashews_client_side, coredis_cache,
              coredis_subscriber, celery_results, celery_failures_and_groups, broadcaster_events, channels_layers,
              socketio_managers):
    checks.run(check.__name__, check)
client.close()
checks.end()
