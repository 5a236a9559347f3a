"""python-memcached, against a live server."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import memcache  # noqa: E402

from checks import AWKWARD, EXPIRY_SECONDS, LARGE, Checks, same, true, until  # noqa: E402

checks = Checks("python-memcached")
client = memcache.Client(["%s:%d" % (checks.host, checks.port)], cache_cas=True, socket_timeout=20)


def set_get():
    true(client.set("a", "hello"))
    same(client.get("a"), "hello")
    same(client.get("absent"), None)
    true(client.set("number", 42))
    same(client.get("number"), 42)
    true(client.set("dict", {"two": 2.0}))
    same(client.get("dict"), {"two": 2.0})


def several():
    same(client.set_multi({"m%d" % i: i for i in range(300)}), [])
    same(client.get_multi(["m%d" % i for i in range(310)]), {"m%d" % i: i for i in range(300)})
    true(client.delete_multi(["m1", "m2"]))
    same(client.get("m1"), None)


def add_replace():
    client.delete("b")
    true(not client.replace("b", "x"))
    true(client.add("b", "x"))
    true(not client.add("b", "y"))
    true(client.replace("b", "z"))
    same(client.get("b"), "z")


def append_prepend():
    client.set("c", "mid")
    true(client.append("c", ">"))
    true(client.prepend("c", "<"))
    same(client.get("c"), "<mid>")


def cas():
    client.set("d", "1")
    same(client.gets("d"), "1")
    true(client.cas("d", "2"))
    same(client.gets("d"), "2")
    client.set("d", "other")
    true(not client.cas("d", "3"))
    same(client.get("d"), "other")
    client.reset_cas()


def arithmetic():
    client.set("n", 10)
    same(client.incr("n", 5), 15)
    same(client.decr("n", 20), 0)
    same(client.incr("absent"), None)


def touch():
    client.set("t", "x")
    true(client.touch("t", 100))
    true(not client.touch("absent", 100))


def expiry():
    client.set("e", "x", time=EXPIRY_SECONDS)
    client.set("f", "x", time=100)
    until(lambda: client.get("e") is None)
    same(client.get("f"), "x")


def awkward_and_large():
    client.set("bin", AWKWARD)
    same(client.get("bin"), AWKWARD)
    client.set("large", LARGE)
    same(client.get("large"), LARGE)


def keys():
    true(client.set("k" * 250, "x"))
    same(client.get("k" * 250), "x")
    true(client.set("grüße-世界", "x"))
    same(client.get("grüße-世界"), "x")


def delete():
    client.set("x", "x")
    same(client.delete("x"), 1)
    same(client.get("x"), None)


def noreply():
    client.set("q", "x", noreply=True)
    same(client.get("q"), "x")
    client.delete("q", noreply=True)
    same(client.get("q"), None)


def stats():
    (_, found), = client.get_stats()
    true("pid" in found and "version" in found)
    true(client.get_stats("settings"))


def flush():
    client.set("z", "x")
    client.flush_all()
    same(client.get("z"), None)


for check in (set_get, several, add_replace, append_prepend, cas, arithmetic, touch, expiry, awkward_and_large,
              keys, delete, noreply, stats, flush):
    checks.run(check.__name__, check)
client.disconnect_all()
checks.end()
