"""aiomcache and emcache, the clients for asyncio, against a live server."""

import asyncio
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import aiomcache  # noqa: E402
import emcache  # noqa: E402

from checks import AWKWARD, EXPIRY_SECONDS, LARGE, Checks, same, true  # noqa: E402

checks = Checks("asyncio")


async def with_aiomcache(body):
    client = aiomcache.Client(checks.host, checks.port, pool_size=4)
    try:
        await body(client)
    finally:
        await client.close()


async def with_emcache(body):
    client = await emcache.create_client([emcache.MemcachedHostAddress(checks.host, checks.port)], timeout=10)
    try:
        await body(client)
    finally:
        await client.close()


async def aiomcache_storage(client):
    true(await client.set(b"a", b"hello"))
    same(await client.get(b"a"), b"hello")
    same(await client.get(b"absent"), None)
    true(not await client.add(b"a", b"x"))
    true(await client.replace(b"a", b"mid"))
    true(await client.append(b"a", b">"))
    true(await client.prepend(b"a", b"<"))
    same(await client.get(b"a"), b"<mid>")
    true(await client.delete(b"a"))
    true(not await client.delete(b"a"))


async def aiomcache_cas_and_count(client):
    await client.set(b"n", b"10")
    value, token = await client.gets(b"n")
    same(value, b"10")
    true(await client.cas(b"n", b"20", token))
    true(not await client.cas(b"n", b"30", token))
    same(await client.incr(b"n", 5), 25)
    same(await client.decr(b"n", 100), 0)
    true(await client.touch(b"n", 100))


async def aiomcache_many(client):
    await asyncio.gather(*(client.set(b"m%d" % i, b"%d" % i) for i in range(200)))
    got = await client.multi_get(*(b"m%d" % i for i in range(200)))
    same(got, tuple(b"%d" % i for i in range(200)))
    true(await client.version())
    true(b"pid" in await client.stats())


async def aiomcache_values(client):
    await client.set(b"bin", AWKWARD)
    same(await client.get(b"bin"), AWKWARD)
    await client.set(b"large", LARGE)
    same(await client.get(b"large"), LARGE)
    await client.set(b"e", b"x", exptime=EXPIRY_SECONDS)
    async with asyncio.timeout(60):
        while await client.get(b"e") is not None:
            await asyncio.sleep(0.02)


async def emcache_storage(client):
    await client.set(b"a", b"hello", flags=3)
    item = await client.get(b"a", return_flags=True)
    same((item.value, item.flags), (b"hello", 3))
    same(await client.get(b"absent"), None)
    await client.replace(b"a", b"mid")
    await client.append(b"a", b">")
    await client.prepend(b"a", b"<")
    same((await client.get(b"a")).value, b"<mid>")
    await client.delete(b"a")
    same(await client.get(b"a"), None)


async def emcache_cas_and_count(client):
    await client.set(b"n", b"10")
    item = await client.gets(b"n")
    await client.cas(b"n", b"20", item.cas)
    same(await client.increment(b"n", 5), 25)
    same(await client.decrement(b"n", 100), 0)
    await client.touch(b"n", 100)
    same((await client.gat(100, b"n")).value.strip(), b"0")


async def emcache_many(client):
    await asyncio.gather(*(client.set(b"m%d" % i, b"%d" % i) for i in range(200)))
    got = await client.get_many([b"m%d" % i for i in range(200)])
    same({key: item.value for key, item in got.items()}, {b"m%d" % i: b"%d" % i for i in range(200)})


async def emcache_flush(client):
    await client.set(b"z", b"x", noreply=True)
    await client.flush_all(emcache.MemcachedHostAddress(checks.host, checks.port))
    same(await client.get(b"z"), None)


for check in (aiomcache_storage, aiomcache_cas_and_count, aiomcache_many, aiomcache_values):
    checks.run(check.__name__, lambda body=check: asyncio.run(with_aiomcache(body)))
for check in (emcache_storage, emcache_cas_and_count, emcache_many, emcache_flush):
    checks.run(check.__name__, lambda body=check: asyncio.run(with_emcache(body)))
checks.end()
