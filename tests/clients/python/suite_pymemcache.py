"""pymemcache, against a live server: HOST PORT [CA]. With an authority to trust, the connection is encrypted."""

import os
import ssl
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from pymemcache.client.base import Client, PooledClient  # noqa: E402
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError  # noqa: E402

from checks import AWKWARD, EXPIRY_SECONDS, LARGE, Checks, raises, same, true, until  # noqa: E402

TLS = ssl.create_default_context(cafile=sys.argv[3]) if len(sys.argv) > 3 else None
checks = Checks("pymemcache with TLS" if TLS else "pymemcache")
client = Client((checks.host, checks.port), default_noreply=False, timeout=20, connect_timeout=5, tls_context=TLS)


def set_get():
    same(client.set("a", b"hello"), True)
    same(client.get("a"), b"hello")
    same(client.get("absent"), None)
    same(client.get("absent", default=7), 7)


def several():
    same(client.set_many({"m%d" % i: b"%d" % i for i in range(300)}), [])
    same(client.get_many(["m%d" % i for i in range(310)]), {"m%d" % i: b"%d" % i for i in range(300)})
    same(client.delete_many(["m1", "m2"]), True)
    same(client.get("m1"), None)


def add_replace():
    client.delete("b")
    same(client.replace("b", b"x"), False)
    same(client.add("b", b"x"), True)
    same(client.add("b", b"y"), False)
    same(client.replace("b", b"z"), True)
    same(client.get("b"), b"z")


def append_prepend():
    client.set("c", b"mid")
    same(client.append("c", b">"), True)
    same(client.prepend("c", b"<"), True)
    same(client.get("c"), b"<mid>")
    same(client.append("absent", b"x"), False)


def cas():
    client.set("d", b"1")
    value, token = client.gets("d")
    same(value, b"1")
    same(client.cas("d", b"2", token), True)
    same(client.cas("d", b"3", token), False)
    same(client.cas("absent", b"3", token), None)
    same(client.get("d"), b"2")
    same(set(client.gets_many(["d", "absent"])), {"d"})


def arithmetic():
    client.set("n", b"10")
    same(client.incr("n", 5), 15)
    same(client.decr("n", 20), 0)
    same(client.incr("absent", 1), None)
    client.set("s", b"text")
    raises(MemcacheClientError, client.incr, "s", 1)


def touch():
    client.set("t", b"x")
    same(client.touch("t", 100), True)
    same(client.touch("absent", 100), False)


def expiry():
    client.set("e", b"x", expire=EXPIRY_SECONDS)
    client.set("f", b"x", expire=100)
    until(lambda: client.get("e") is None)
    same(client.get("f"), b"x")


def awkward_and_large():
    client.set("bin", AWKWARD)
    same(client.get("bin"), AWKWARD)
    client.set("large", LARGE)
    same(client.get("large"), LARGE)
    same(client.get_many(["bin", "large"]), {"bin": AWKWARD, "large": LARGE})
    client.set("empty", b"")
    same(client.get("empty"), b"")


def too_large():
    raises(MemcacheServerError, client.set, "huge", b"x" * 2000000)
    same(client.get("huge"), None)


def unicode_keys():
    wide = Client((checks.host, checks.port), default_noreply=False, allow_unicode_keys=True, tls_context=TLS)
    same(wide.set("grüße-世界", b"x"), True)
    same(wide.get("grüße-世界"), b"x")
    same(wide.get_many(["grüße-世界"]), {"grüße-世界": b"x"})
    wide.close()


def long_keys():
    same(client.set("k" * 250, b"x"), True)
    same(client.get("k" * 250), b"x")


def noreply():
    for i in range(200):
        client.set("q%d" % i, b"%d" % i, noreply=True)
    client.delete("q0", noreply=True)
    client.incr("q5", 5, noreply=True)
    same(client.get("q199"), b"199")
    same(client.get("q5"), b"10")
    same(client.get("q0"), None)


def delete():
    client.set("x", b"x")
    same(client.delete("x"), True)
    same(client.delete("x"), False)


def stats_version():
    stats = client.stats()
    true(stats[b"pid"] and stats[b"curr_items"] > 0)
    true(client.version())
    true(client.stats("settings"))
    same(client.cache_memlimit(64), True)


def raw():
    same(client.raw_command(b"mn", end_tokens=b"\r\n"), b"MN")
    same(client.raw_command(b"ms raw 2 T0\r\nhi", end_tokens=b"\r\n"), b"HD")


def pooled():
    pool = PooledClient((checks.host, checks.port), max_pool_size=4, default_noreply=False, tls_context=TLS)
    same(pool.set("p", b"x"), True)
    same(pool.get("p"), b"x")
    pool.close()


def flush():
    client.set("z", b"x")
    same(client.flush_all(), True)
    same(client.get("z"), None)


for check in (set_get, several, add_replace, append_prepend, cas, arithmetic, touch, expiry, awkward_and_large,
              too_large, unicode_keys, long_keys, noreply, delete, stats_version, raw, pooled, flush):
    checks.run(check.__name__, check)
client.quit()
checks.end()
