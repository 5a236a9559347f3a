#!/usr/bin/env python3
"""Sends random operations over all protocols at once to one server, where two features meet, and compares with a model.

    tests/differential/seams.py                                  # each combination for 5 seconds
    tests/differential/seams.py --seconds 600 --combination users
    tests/differential/seams.py --combination keep --seed 1234 --seconds 0   # one case again, as a failure names it

A case is a list of operations, each over the connection of one of several clients that speak different protocols. The
operations come one after the other, so the model knows what every reply has to be. Where items may be evicted, a reply
may also say that there is none; what was deleted, overwritten or flushed must never be seen again. A case that fails
is shrunk: operations go for as long as the case still fails, and what is left is printed.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "process"), os.path.dirname(HERE)]

import packets  # noqa: E402
import resp_support  # noqa: E402
import support  # noqa: E402

KEYS = 24
OPERATIONS = 250
SIZES = (0, 1, 10, 100, 1000, 3000, 17000, 70000)
# A client that stores a value of this many bytes again and again fills memory.
FILLER = b"f" * 20000
SHRINK_TRIES_MAX = 150


class Wrong(Exception):
    """A reply that the model does not allow."""


def value_of(name, length):
    """A value that no other operation stores."""
    return (b"%b:" % name * (length // (len(name) + 1) + 1))[:length]


class Text:
    """The classic text protocol."""

    def __init__(self, server, user=None):
        self.connection = server.connect()
        if user:
            words = b"%b %b" % (user, user)
            answer = self.connection.ask(b"set auth 0 0 %d\r\n%b" % (len(words), words))
            if answer != b"STORED":
                raise Wrong("login of %r: %r" % (user, answer))

    def get(self, key):
        return self.connection.get(key)

    def store(self, verb, key, value):
        return self.connection.ask(b"%b %b 0 0 %d\r\n%b" % (verb, key, len(value), value)) == b"STORED"

    def delete(self, key):
        return self.connection.ask(b"delete " + key) == b"DELETED"

    def increment(self, key):
        answer = self.connection.ask(b"incr %b 1" % key)
        return int(answer) if answer.isdigit() else None

    def touch(self, key):
        return self.connection.ask(b"touch %b 1000" % key) == b"TOUCHED"

    def flush(self):
        return self.connection.ask(b"flush_all")


class Meta(Text):
    """The meta commands."""

    MODES = {b"set": b"S", b"add": b"E", b"replace": b"R", b"append": b"A", b"prepend": b"P"}

    def get(self, key):
        line = self.connection.ask(b"mg %b v" % key)
        return None if line == b"EN" else self.connection.exactly(int(line.split()[1]) + 2)[:-2]

    def store(self, verb, key, value):
        request = b"ms %b %d M%b\r\n%b" % (key, len(value), self.MODES[verb], value)
        return self.connection.ask(request) == b"HD"

    def delete(self, key):
        return self.connection.ask(b"md " + key) == b"HD"

    def increment(self, key):
        line = self.connection.ask(b"ma %b v" % key)
        return int(self.connection.line()) if line.startswith(b"VA") else None

    def touch(self, key):
        return self.connection.ask(b"mg %b T1000" % key) == b"HD"


class Binary:
    """The binary protocol."""

    OPCODES = {b"set": packets.SET, b"add": packets.ADD, b"replace": 0x03, b"append": packets.APPEND, b"prepend": 0x0f}

    def __init__(self, server, user=None):
        self.connection = server.connect()
        if user and packets.ask(self.connection, packets.plain(user, user)).status != packets.OK:
            raise Wrong("login of %r" % user)

    def get(self, key):
        reply = packets.ask(self.connection, packets.packet(packets.GET, key))
        return reply.value if reply.status == packets.OK else None

    def store(self, verb, key, value):
        opcode = self.OPCODES[verb]
        request = packets.store(key, value, opcode)
        if verb in (b"append", b"prepend"):
            request = packets.packet(opcode, key, value)
        return packets.ask(self.connection, request).status == packets.OK

    def delete(self, key):
        return packets.ask(self.connection, packets.packet(packets.DELETE, key)).status == packets.OK

    def increment(self, key):
        extras = (1).to_bytes(8, "big") + bytes(8) + b"\xff" * 4
        reply = packets.ask(self.connection, packets.packet(packets.INCR, key, extras=extras))
        return int.from_bytes(reply.value, "big") if reply.status == packets.OK else None

    def touch(self, key):
        reply = packets.ask(self.connection, packets.packet(0x1c, key, extras=(1000).to_bytes(4, "big")))
        return reply.status == packets.OK

    def flush(self):
        return packets.ask(self.connection, packets.packet(packets.FLUSH)).status


class Resp:
    """RESP."""

    def __init__(self, server, user=None):
        self.connection = server.connect()
        if user and self.ask(b"AUTH", user, user) != b"OK":
            raise Wrong("login of %r" % user)

    def ask(self, *words):
        """The reply to a request."""
        return resp_support.ask(self.connection, *words)

    def get(self, key):
        return self.ask(b"GET", key)

    def store(self, verb, key, value):
        if verb == b"append":
            return isinstance(self.ask(b"APPEND", key, value), int)
        mode = {b"set": (), b"add": (b"NX",), b"replace": (b"XX",)}[verb]
        return self.ask(b"SET", key, value, *mode) == b"OK"

    def delete(self, key):
        return self.ask(b"DEL", key) == 1

    def increment(self, key):
        return self.ask(b"INCR", key)

    def touch(self, key):
        return self.ask(b"EXPIRE", key, b"1000") == 1

    def flush(self):
        return self.ask(b"FLUSHALL")


PROTOCOLS = (Text, Meta, Binary, Resp)


class World:
    """One combination: a server, its clients, and what the model knows. A client is a protocol, a user and the prefix
    of the user's keys."""

    name = "plain"
    flags = ("-m", "64")
    loses = False
    users = (None,)
    # What may happen beside the operations of clients.
    events = ()

    def __init__(self, folder):
        self.folder = folder
        self.server, self.items = None, {}
        self.prepare()
        self.start()

    def prepare(self):
        """Before the server starts."""

    def start(self):
        """Starts the server, and connects all clients."""
        self.server = support.Server(self.command, list(self.flags) + ["--admin", "off"])
        try:
            self.connect()
        except BaseException:
            self.stop()
            raise

    def connect(self):
        """New connections for all clients."""
        self.clients = [(protocol(self.server, user), user) for user in self.users for protocol in PROTOCOLS]

    def stop(self):
        """Ends the server."""
        self.server.stop(signal.SIGKILL)

    def prefix(self, user):
        """What the server puts before the user's keys."""
        return b""

    def may_write(self, user):
        """Whether the user may change items."""
        return True

    def apply(self, operation):
        """Carries out one operation; raises Wrong."""
        kind = operation[0]
        if kind == "event":
            getattr(self, operation[1])(*operation[2:])
            return
        number, name, key, *rest = operation[1:]
        client, user = self.clients[number % len(self.clients)]
        full = self.prefix(user) + key
        expected = self.items.get(full)
        if kind == "flush":
            client.flush()
            if self.may_write(user):
                self.items = {known: value for known, value in self.items.items()
                              if not known.startswith(self.prefix(user))}
            return
        getattr(self, kind)(client, user, full, key, expected, name, *rest)

    def seen(self, full, expected, found, what):
        """Compares what was found with what is expected. An item that is gone is gone for the model too."""
        if found != expected and not (self.loses and found is None):
            raise Wrong("%s %r: %r instead of %r" % (what, full, shown(found), shown(expected)))
        if found is None:
            self.items.pop(full, None)

    def get(self, client, user, full, key, expected, name):
        self.seen(full, expected, client.get(key), "get")

    def store(self, client, user, full, key, expected, name, verb, length):
        if isinstance(client, Resp) and verb == b"prepend":
            verb = b"set"
        value = value_of(name, length)
        done = client.store(verb, key, value)
        if not self.may_write(user):
            if done:
                raise Wrong("%r by a user who may only read" % verb)
            return
        present = expected is not None
        wants = {b"set": True, b"add": not present, b"replace": present, b"append": present or isinstance(client, Resp),
                 b"prepend": present}[verb]
        if done != wants and not self.loses:
            raise Wrong("%r %r: %s" % (verb, full, "done" if done else "refused"))
        if not done:
            # A store that found no room leaves nothing, or what was there.
            if wants and self.loses:
                self.settle(client, full, key, expected)
            return
        if verb == b"append":
            value = (expected or b"") + value
        elif verb == b"prepend":
            value += expected or b""
        if self.loses and verb in (b"append", b"prepend"):
            # The item may have been evicted before.
            found = client.get(key)
            if found not in (value, value_of(name, length) if isinstance(client, Resp) else value, None):
                raise Wrong("%r %r: %r instead of %r" % (verb, full, shown(found), shown(value)))
            value = found
        self.items[full] = value
        if value is None:
            del self.items[full]

    def settle(self, client, full, key, expected):
        """Asks what is there."""
        self.seen(full, expected, client.get(key), "after a refusal")

    def delete(self, client, user, full, key, expected, name):
        done = client.delete(key)
        wants = expected is not None and self.may_write(user)
        if done != wants and not (self.loses and not done):
            raise Wrong("delete %r: %s" % (full, "done" if done else "nothing was there"))
        if self.may_write(user):
            self.items.pop(full, None)

    def increment(self, client, user, full, key, expected, name):
        # Numbers have keys of their own, so that no protocol meets a value that only another one counts.
        full, key = full + b"n", key + b"n"
        expected = self.items.get(full)
        found = client.increment(key)
        if isinstance(found, bytes):
            found = None
        creates = isinstance(client, Resp) and self.may_write(user)
        wants = int(expected) + 1 if expected and self.may_write(user) else 1 if creates else None
        allowed = {wants, 1 if creates else None} if self.loses else {wants}
        if found not in allowed:
            raise Wrong("increment %r: %r instead of %r" % (full, found, wants))
        if found is not None:
            self.items[full] = b"%d" % found
        elif self.may_write(user):
            self.items.pop(full, None)
            if client.store(b"set", key, b"5"):
                self.items[full] = b"5"

    def touch(self, client, user, full, key, expected, name):
        done = client.touch(key)
        # `mg T` of a user who may only read is refused as every other change.
        wants = expected is not None and self.may_write(user)
        if done != wants and not (self.loses and not done):
            raise Wrong("touch %r: %s" % (full, done))

    def check_all(self):
        """Compares every item, by each protocol in turn."""
        clients = [(client, user) for client, user in self.clients if not self.prefix(user)] or self.clients
        for at, (full, expected) in enumerate(sorted(self.items.items())):
            client, user = clients[at % len(clients)]
            if full.startswith(self.prefix(user)):
                self.seen(full, expected, client.get(full[len(self.prefix(user)):]), "at the end")


class Users(World):
    """Users with namespaces, one who may only read, and one who sees all keys; the file is read again now and then."""

    name = "users"
    users = (b"all", b"ann", b"bob", b"reader")
    events = ("reload", "reconnect")
    PREFIXES = {b"ann": b"a:", b"bob": b"b:"}

    def prepare(self):
        self.path = os.path.join(self.folder, "users")
        with open(self.path, "w", encoding="ascii") as file:
            file.write("all:all\nann:ann\nbob:bob\nreadonly reader:reader\n")
        os.chmod(self.path, 0o600)
        self.flags = ("-m", "64", "-Y", self.path, "--user-namespaces", "ann=a,bob=b")

    def prefix(self, user):
        return self.PREFIXES.get(user, b"")

    def may_write(self, user):
        return user != b"reader"

    def reload(self):
        """The file of users is read again."""
        self.server.process.send_signal(signal.SIGHUP)

    def reconnect(self):
        """All clients come back."""
        self.connect()


class Keep(World):
    """Memory in a file, and a server that is killed or stopped, and started again."""

    name = "keep"
    events = ("killed", "stopped")

    def prepare(self):
        self.flags = ("-m", "64", "--keep", os.path.join(self.folder, "items"))

    def again(self, number):
        """The server after a stop by this signal."""
        self.server.stop(number)
        self.start()
        self.check_all()

    def killed(self):
        """kill -9."""
        self.again(signal.SIGKILL)

    def stopped(self):
        """A stop in order."""
        self.again(signal.SIGTERM)


class Limits(World):
    """A limit that moves, and a load that fills memory: items may be evicted, and nothing else may happen to them."""

    name = "limits"
    flags = ("-m", "32")
    loses = True
    events = ("limit", "filled", "connections")

    def limit(self):
        """Moves the memory limit."""
        mebibytes = (8, 16, 64, 32)[len(self.items) % 4]
        answer = self.clients[0][0].connection.ask(b"cache_memlimit %d" % mebibytes)
        if answer not in (b"OK", b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"):
            raise Wrong("cache_memlimit: %r" % answer)

    def filled(self):
        """Another client stores more than fits."""
        connection = self.server.connect()
        for begin in range(0, 1600, 100):
            connection.send(b"".join(b"set filler%d 0 0 %d noreply\r\n%b\r\n" % (n, len(FILLER), FILLER)
                                     for n in range(begin, begin + 100)))
        if connection.ask(b"mn") != b"MN":
            raise Wrong("no answer behind a load")
        connection.close()

    def connections(self):
        """The limits of connections move."""
        for name, value in ((b"conn-limit", b"500"), (b"idle-timeout", b"1000"), (b"conn-limit", b"1024")):
            answer = self.clients[3][0].ask(b"CONFIG", b"SET", name, value)
            if answer != b"OK":
                raise Wrong("CONFIG SET %r: %r" % (name, answer))


class Namespaces(World):
    """Tenants with shares that change while the server runs, deletes by prefix, and a load of one of them."""

    name = "namespaces"
    flags = ("-m", "32", "--namespaces", "k1=20-60,k2=0-30/1000")
    loses = True
    events = ("shares", "prefix_deleted", "loaded")

    def shares(self):
        """Other shares."""
        wanted = (b"k1=20-60,k2=0-30/1000", b"k1=10-50", b"", b"k2=30-70,k3=5-20")[len(self.items) % 4]
        answer = self.clients[3][0].ask(b"CONFIG", b"SET", b"namespaces", wanted)
        if answer != b"OK":
            raise Wrong("CONFIG SET namespaces: %r" % answer)

    def prefix_deleted(self):
        """The items of a tenant are deleted by their prefix."""
        prefix = b"k%d:" % (1 + len(self.items) % 3)
        answer = self.clients[0][0].connection.ask(b"flush_prefix " + prefix)
        if answer != b"OK":
            raise Wrong("flush_prefix: %r" % answer)
        self.items = {key: value for key, value in self.items.items() if not key.startswith(prefix)}

    def loaded(self):
        """One tenant stores more than fits."""
        connection = self.server.connect()
        for begin in range(0, 1600, 100):
            connection.send(b"".join(b"set k2:filler%d 0 0 %d noreply\r\n%b\r\n" % (n, len(FILLER), FILLER)
                                     for n in range(begin, begin + 100)))
        if connection.ask(b"mn") != b"MN":
            raise Wrong("no answer behind a load")
        connection.close()


WORLDS = {world.name: world for world in (Users, Keep, Limits, Namespaces)}


def shown(value):
    """A value, not too long."""
    return value if value is None or len(value) < 60 else b"%b... (%d bytes)" % (value[:40], len(value))


def operations(world, seed):
    """The random operations of a case."""
    choose = random.Random(seed)
    made = []
    for at in range(OPERATIONS):
        if world.events and choose.random() < 0.03:
            made.append(("event", choose.choice(world.events)))
            continue
        key = b"k%d:%d" % (choose.randrange(1, 4), choose.randrange(KEYS // 3))
        kind = choose.choices(("get", "store", "delete", "increment", "touch", "flush"), (40, 35, 10, 8, 6, 0.5))[0]
        operation = (kind, choose.randrange(64), b"%d.%d" % (seed, at), key)
        if kind == "store":
            verb = choose.choice((b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend"))
            operation += (verb, choose.choice(SIZES))
        made.append(operation)
    return made


def play(kind, made):
    """Plays a case on a new server. Returns what went wrong, or None."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="larder-seams-") as folder:
        world = kind(folder)
        try:
            for operation in made:
                world.apply(operation)
            world.check_all()
        except (Wrong, OSError, support.Closed, AssertionError) as error:
            return "%s: %s" % (operation, error)
        finally:
            world.stop()
    return None


def shrink(kind, made):
    """As few operations as possible that still fail, and what goes wrong then."""
    why, tries, length = play(kind, made), 0, max(1, len(made) // 2)
    while tries < SHRINK_TRIES_MAX and why:
        smaller = False
        for begin in range(0, len(made), length):
            tries += 1
            fewer = made[:begin] + made[begin + length:]
            failed = play(kind, fewer)
            if failed:
                made, why, smaller = fewer, failed, True
                break
            if tries >= SHRINK_TRIES_MAX:
                break
        if not smaller:
            if length == 1:
                break
            length = max(1, length // 2)
    return made, why


def main():
    """Runs the combinations; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=support.DEFAULT_COMMAND)
    parser.add_argument("--combination", choices=sorted(WORLDS), action="append")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, help="of the first case; default: a new one every time")
    arguments = parser.parse_args()
    World.command = arguments.server
    failed = False
    for name in arguments.combination or WORLDS:
        kind, cases = WORLDS[name], 0
        until = time.monotonic() + arguments.seconds
        seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
        while cases == 0 or time.monotonic() < until:
            made = operations(kind, seed + cases)
            why = play(kind, made)
            cases += 1
            if why:
                failed = True
                fewer, again = shrink(kind, made)
                print("%s: seed %d fails: %s" % (name, seed + cases - 1, why))
                if again:
                    print("shrunk to:", *fewer, sep="\n    ")
                    print("which fails with %s" % again)
                break
        print("%s: %d cases from seed %d of %d operations each, %s" % (
            name, cases, seed, OPERATIONS, "one FAILED" if why else "no difference"), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
