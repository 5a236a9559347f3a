"""Flask-Caching, against a live server: HOST PORT redis|memcached."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from flask import Flask, request  # noqa: E402
from flask_caching import Cache  # noqa: E402

from checks import Checks, same, until  # noqa: E402

KIND = sys.argv[3]
checks = Checks("Flask-Caching " + KIND)
app = Flask(__name__)
cache = Cache(app, config={
    "CACHE_TYPE": {"redis": "RedisCache", "memcached": "MemcachedCache"}[KIND],
    "CACHE_REDIS_HOST": checks.host,
    "CACHE_REDIS_PORT": checks.port,
    "CACHE_MEMCACHED_SERVERS": ["%s:%d" % (checks.host, checks.port)],
    "CACHE_KEY_PREFIX": "app:",
    "CACHE_DEFAULT_TIMEOUT": 100,
})
calls = []


@app.route("/page")
@cache.cached(timeout=1, query_string=True)
def page():
    """A page that counts how often it is made."""
    calls.append("page")
    return "page %s of %d" % (request.args.get("n"), len(calls))


@cache.memoize(100)
def square(number):
    """A function that counts its calls."""
    calls.append(number)
    return number * number


def values():
    for value in ("text", 42, None, [1, {"two": 3}], b"\r\n\x00"):
        same(cache.set("a", value), True)
        same(cache.get("a"), value)
    same(cache.get("absent"), None)
    same(cache.add("b", 1), True)
    same(cache.add("b", 2), False)
    same(cache.set_many({"m1": 1, "m2": 2}) is not False, True)
    same(cache.get_many("m1", "absent", "m2"), [1, None, 2])
    same(cache.get_dict("m1", "m2"), {"m1": 1, "m2": 2})
    same(cache.delete("a"), True)
    same(cache.get("a"), None)
    cache.delete_many("m1", "m2")
    same(cache.get_many("m1", "m2"), [None, None])


def pages():
    visitor = app.test_client()
    first = visitor.get("/page?n=1").data
    same(visitor.get("/page?n=1").data, first)
    same(visitor.get("/page?n=2").data, b"page 2 of 2")
    until(lambda: visitor.get("/page?n=1").data == b"page 1 of 3")


def functions():
    del calls[:]
    same([square(3), square(3), square(4)], [9, 9, 16])
    same(calls, [3, 4])
    cache.delete_memoized(square, 3)
    same(square(3), 9)
    cache.delete_memoized(square)
    same(square(4), 16)
    same(calls, [3, 4, 3, 4])


def clear():
    cache.set("c", 1)
    cache.clear()
    same(cache.get("c"), None)


with app.app_context():
    for check in (values, pages, functions, clear):
        checks.run(check.__name__, check)
checks.end()
