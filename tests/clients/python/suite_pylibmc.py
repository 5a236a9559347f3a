"""pylibmc (libmemcached) against a live server: HOST PORT text|binary [USER PASSWORD]."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pylibmc  # noqa: E402

from checks import AWKWARD, EXPIRY_SECONDS, LARGE, Checks, raises, same, true, until  # noqa: E402

BINARY = sys.argv[3] == "binary"
LOGIN = dict(zip(("username", "password"), sys.argv[4:6]))
checks = Checks("pylibmc %s%s" % (sys.argv[3], " with a login" if LOGIN else ""))
address = "%s:%d" % (checks.host, checks.port)


def connect(addresses, **behaviors):
    """A new client."""
    return pylibmc.Client(addresses, binary=BINARY, behaviors=behaviors, **LOGIN)


client = connect([address], tcp_nodelay=True, cas=True)


def set_get():
    true(client.set("a", "hello"))
    same(client.get("a"), "hello")
    same(client.get("absent"), None)
    true(client.set("number", 42))
    same(client.get("number"), 42)
    true(client.set("list", [1, {"two": 2.0}]))
    same(client.get("list"), [1, {"two": 2.0}])


def several():
    same(client.set_multi({"m%d" % i: i for i in range(300)}), [])
    same(client.get_multi(["m%d" % i for i in range(310)]), {"m%d" % i: i for i in range(300)})
    same(client.get_multi(["1", "2"], key_prefix="m"), {"1": 1, "2": 2})
    true(client.delete_multi(["m1", "m2"]))
    same(client.get("m1"), None)


def add_replace():
    client.delete("b")
    if BINARY:
        # The server tells that there is no such item, and the library raises what it is told.
        raises(pylibmc.NotFound, client.replace, "b", "x")
    else:
        same(client.replace("b", "x"), False)
    same(client.add("b", "x"), True)
    same(client.add("b", "y"), False)
    same(client.replace("b", "z"), True)
    same(client.get("b"), "z")


def append_prepend():
    client.set("c", b"mid")
    true(client.append("c", b">"))
    true(client.prepend("c", b"<"))
    same(client.get("c"), b"<mid>")


def cas():
    client.set("d", "1")
    value, token = client.gets("d")
    same(value, "1")
    same(client.cas("d", "2", token), True)
    same(client.cas("d", "3", token), False)
    same(client.get("d"), "2")


def arithmetic():
    client.set("n", 10)
    same(client.incr("n", 5), 15)
    same(client.decr("n", 20), 0)
    try:
        client.incr("absent")
        raise AssertionError("no NotFound")
    except pylibmc.NotFound:
        pass


def touch():
    client.set("t", "x")
    same(client.touch("t", 100), True)
    same(client.touch("absent", 100), False)


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
    client.set("empty", b"")
    same(client.get("empty"), b"")


def compressed():
    client.set("zip", LARGE, min_compress_len=1000)
    same(client.get("zip"), LARGE)


def too_large():
    try:
        client.set("huge", os.urandom(2000000))
        raise AssertionError("no error")
    except pylibmc.Error:
        pass
    same(client.get("huge"), None)


def keys():
    true(client.set("k" * 250, "x"))
    same(client.get("k" * 250), "x")
    true(client.set("grüße-世界", "x"))
    same(client.get("grüße-世界"), "x")


def delete():
    client.set("x", "x")
    same(client.delete("x"), True)
    same(client.delete("x"), False)


def stats():
    (_, found), = client.get_stats()
    true("pid" in found and "curr_items" in found)


def two_servers():
    both = connect([address, address.replace(checks.host, "localhost")], ketama=True)
    same(both.set_multi({"k%d" % i: i for i in range(50)}), [])
    same(both.get_multi(["k%d" % i for i in range(50)]), {"k%d" % i: i for i in range(50)})


def no_reply():
    quiet = connect([address], buffer_requests=False, no_block=True)
    for i in range(100):
        quiet.set("q%d" % i, i)
    same(quiet.get("q99"), 99)


def wrong_login():
    if not LOGIN:
        return
    stranger = pylibmc.Client([address], binary=True, username=LOGIN["username"], password="wrong")
    raises(pylibmc.Error, stranger.set, "stranger", "x")
    same(client.get("stranger"), None)


def flush():
    client.set("z", "x")
    true(client.flush_all())
    same(client.get("z"), None)


for check in (set_get, several, add_replace, append_prepend, cas, arithmetic, touch, expiry, awkward_and_large,
              compressed, too_large, keys, delete, stats, two_servers, no_reply, wrong_login, flush):
    checks.run(check.__name__, check)
checks.end()
