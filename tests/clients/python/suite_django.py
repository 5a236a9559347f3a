"""Django's cache backends, against a live server: HOST PORT redis|pymemcache|pylibmc."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

from checks import EXPIRY_SECONDS, Checks, raises, same, true, until  # noqa: E402

KIND = sys.argv[3]
BACKENDS = {
    "redis": "django.core.cache.backends.redis.RedisCache",
    "pymemcache": "django.core.cache.backends.memcached.PyMemcacheCache",
    "pylibmc": "django.core.cache.backends.memcached.PyLibMCCache",
}
checks = Checks("Django " + KIND)
ADDRESS = "%s:%d" % (checks.host, checks.port)
settings.configure(
    SECRET_KEY="of the tests",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={"default": {
        "BACKEND": BACKENDS[KIND],
        "LOCATION": "redis://%s/1" % ADDRESS if KIND == "redis" else ADDRESS,
        "KEY_PREFIX": "site",
    }},
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache  # noqa: E402
from django.core.cache.utils import make_template_fragment_key  # noqa: E402


def set_get():
    for value in ("text", 42, -1, 2.5, None, True, b"\x00\r\n\xff", [1, {"two": (3,)}], "grüße 世界"):
        cache.set("a", value)
        same(cache.get("a", "absent"), value)
    same(cache.get("absent"), None)
    same(cache.get("absent", 7), 7)
    same("a" in cache, True)


def several():
    same(cache.set_many({"m%d" % i: i for i in range(300)}, timeout=100), [])
    same(cache.get_many(["m%d" % i for i in range(303)]), {"m%d" % i: i for i in range(300)})
    cache.delete_many(["m1", "m2"])
    same(cache.get_many(["m0", "m1", "m2"]), {"m0": 0})


def add_and_get_or_set():
    same(cache.add("b", 1), True)
    same(cache.add("b", 2), False)
    same(cache.get_or_set("b", 3), 1)
    same(cache.get_or_set("computed", lambda: 4, 100), 4)


def arithmetic():
    cache.set("n", 10)
    same(cache.incr("n"), 11)
    same(cache.incr("n", 5), 16)
    same(cache.decr("n", 6), 10)
    same(cache.get("n"), 10)
    raises(ValueError, cache.incr, "absent")


def timeouts():
    cache.set("e", "x", EXPIRY_SECONDS)
    cache.set("f", "x", None)
    cache.set("g", "x", EXPIRY_SECONDS)
    same(cache.touch("g", 100), True)
    same(cache.touch("absent", 100), False)
    cache.set("month", "x", 60 * 60 * 24 * 60)
    until(lambda: cache.get("e") is None)
    same([cache.get(key) for key in ("f", "g", "month")], ["x", "x", "x"])


def a_timeout_of_zero_or_less():
    for timeout in (0, -1):
        cache.set("z", "before")
        cache.set("z", "after", timeout)
        same(cache.get("z"), None)


def large():
    value = "x" * 900_000
    cache.set("large", value)
    same(cache.get("large"), value)


def delete():
    cache.set("x", 1)
    same(cache.delete("x"), True)
    same(cache.delete("x"), False)


def versions():
    cache.set("v", 1, version=1)
    cache.set("v", 2, version=2)
    same([cache.get("v"), cache.get("v", version=2)], [1, 2])
    same(cache.incr_version("v"), 2)
    same(cache.get("v", version=2), 1)


def sessions_and_fragments():
    session = SessionStore()
    session["user"] = {"name": "Ada"}
    session.set_expiry(100)
    session.create()
    same(SessionStore(session.session_key)["user"], {"name": "Ada"})
    session.flush()
    same(dict(SessionStore(session.session_key).items()), {})
    key = make_template_fragment_key("sidebar", ["ada"])
    cache.set(key, "<p>")
    same(cache.get(key), "<p>")


def clear():
    cache.set("c", 1)
    cache.clear()
    same(cache.get("c"), None)
    true(not cache.get_many(["a", "b"]))


for check in (set_get, several, add_and_get_or_set, arithmetic, timeouts, a_timeout_of_zero_or_less, large, delete,
              versions, sessions_and_fragments, clear):
    checks.run(check.__name__, check)
cache.close()
checks.end()
