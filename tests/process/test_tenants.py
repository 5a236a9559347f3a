"""Users with a namespace: the server puts the name before their keys, and nobody else's keys can be reached."""

import os
import random
import re
import signal
import struct

import packets
from flash_support import FlashCase
from packets import packet, store
from process_support import larder_only, run_to_end
from resp_support import ask, command, receive
from support import until
from users_support import UsersCase

REFUSED = b"CLIENT_ERROR not allowed: this user has a namespace, and this is about the whole server"
TOO_LONG = b"CLIENT_ERROR a key has at most 250 bytes with the namespace of this user before it"


class TenantsCase(UsersCase):
    """A test with three users: ada has the namespace shop, bob has page, and root sees everything."""

    def setUp(self):
        super().setUp()
        self.write("ada:a", "bob:b", "root:r", "readonly eve:e")

    def serve(self, *flags, **options):
        """A server for them."""
        return self.server("-Y", self.path, "--user-namespaces", "ada=shop,bob=page,eve=shop", *flags, **options)

    def door(self, server, user):
        """A text connection of a user who has logged in."""
        connection, said = self.text(server, user, user[0])
        self.assertEqual(said, b"STORED")
        return connection

    def packets_door(self, server, user):
        """A binary connection of a user who has logged in."""
        connection, status = self.binary(server, user, user[0])
        self.assertEqual(status, packets.OK)
        return connection

    def resp_door(self, server, user):
        """A connection of RESP of a user who has logged in."""
        connection = self.connection(server)
        self.assertEqual(ask(connection, b"AUTH", user.encode(), user[:1].encode()), b"OK")
        return connection

    def read_until(self, connection, end):
        """All that is answered up to these bytes."""
        found = bytearray()
        while not found.endswith(end):
            found += connection.exactly(1) + self.here(connection)
        return bytes(found)

    def here(self, connection):
        """What has come already."""
        came, connection.buffer = bytes(connection.buffer), type(connection.buffer)()
        return came

    def list(self, connection, request, end=b"END\r\n"):
        """The lines of a list, in order. Those of a dump end in a line feed."""
        connection.send(request + b"\r\n")
        return sorted(self.read_until(connection, end)[:-len(end)].splitlines())


@larder_only
class Keys(TenantsCase):
    """Which items a key names."""

    def test_two_users_have_two_items_of_one_key_through_every_protocol(self):
        server = self.serve()
        for user in ("ada", "bob"):
            self.assertEqual(self.door(server, user).set(b"k", user.encode()), b"STORED")
        root = self.door(server, "root")
        self.assertIsNone(root.get(b"k"))
        self.assertEqual((root.get(b"shop:k"), root.get(b"page:k")), (b"ada", b"bob"))
        for user in ("ada", "bob"):
            self.assertEqual(self.door(server, user).get(b"k"), user.encode())
            self.assertEqual(packets.ask(self.packets_door(server, user), packet(packets.GET, b"k")).value,
                             user.encode())
            self.assertEqual(ask(self.resp_door(server, user), b"GET", b"k"), user.encode())
            # What stands before a key is part of it.
            self.assertIsNone(self.door(server, user).get(b"shop:k"))
        self.assertEqual(self.door(server, "eve").get(b"k"), b"ada")

    def test_a_cas_number_is_that_of_the_item(self):
        server = self.serve()
        ada, root = self.door(server, "ada"), self.door(server, "root")
        ada.set(b"k", b"v")
        number = int(self.list(root, b"gets shop:k")[0].split()[-1])
        self.assertEqual(ada.ask(b"mg k c"), b"HD c%d" % number)
        self.assertEqual(ada.ask(b"cas k 0 0 1 %d\r\nw" % number), b"STORED")
        self.assertEqual(ada.ask(b"cas k 0 0 1 %d\r\nx" % number), b"EXISTS")
        self.assertEqual(root.get(b"shop:k"), b"w")

    def test_login_and_requests_in_one_piece(self):
        server = self.serve()
        connection = self.connection(server)
        connection.send(b"set auth 0 0 5\r\nada a\r\nset k 0 0 1\r\nv\r\nget k j\r\nmg k v k\r\n")
        said = [connection.line() for _ in range(7)]
        self.assertEqual(said, [b"STORED", b"STORED", b"VALUE k 0 1", b"v", b"END", b"VA 1 kk", b"v"])
        self.assertEqual(self.door(server, "root").get(b"shop:k"), b"v")

    def test_how_long_a_key_may_be(self):
        server = self.serve()
        longest, longer = b"k" * 245, b"k" * 246
        ada, root = self.door(server, "ada"), self.door(server, "root")
        self.assertEqual(ada.set(longest, b"v"), b"STORED")
        self.assertEqual((ada.get(longest), root.get(b"shop:" + longest)), (b"v", b"v"))
        for request in (b"get %b" % longer, b"get k %b" % longer, b"gat 0 %b" % longer, b"delete %b" % longer,
                        b"incr %b 1" % longer, b"touch %b 1" % longer, b"mg %b v" % longer, b"me %b" % longer,
                        b"set %b 0 0 1\r\nv" % longer, b"ms %b 1\r\nv" % longer, b"flush_prefix %b" % longer,
                        b"set %b 0 0 500000\r\n%b" % (longer, b"v" * 500_000)):
            self.assertEqual(ada.ask(request), TOO_LONG, request[:20])
            self.assertEqual(ada.ask(b"mn"), b"MN", request[:20])
        ada = self.packets_door(server, "ada")
        self.assertEqual(packets.ask(ada, packet(packets.GET, longest)).value, b"v")
        for request in (packet(packets.GET, longer), store(longer, b"v"), packet(packets.DELETE, longer),
                        store(longer, b"v" * 500_000)):
            self.assertEqual(packets.ask(ada, request).status, packets.INVALID)
        # RESP has longer keys. Only a value that is taken in by parts needs one that an item can have as it is.
        ada = self.resp_door(server, "ada")
        for key in (b"", longest, longer, b"k" * 251, b"k" * 60_000):
            self.assertEqual(ask(ada, b"SET", key, b"%d" % len(key)), b"OK")
        for key in (b"", longest, longer, b"k" * 251, b"k" * 60_000):
            self.assertEqual(ask(ada, b"GET", key), b"%d" % len(key))
        self.assertEqual(ask(ada, b"DBSIZE"), 5)
        self.assertEqual(sorted(map(len, ask(ada, b"KEYS", b"*"))), [0, 245, 246, 251, 60_000])
        self.assertEqual(ask(ada, b"SET", longest, b"v" * 500_000), b"OK")
        self.assertIn(b"key is too long", ask(ada, b"SET", longer, b"v" * 500_000))
        self.assertIn(b"key is too long", ask(ada, b"GET", b"k" * 65_532))
        self.assertEqual(ask(ada, b"GET", longer), b"246")


@larder_only
class Twins(TenantsCase):
    """A user with a namespace is answered as one without is, byte for byte: each has a server of its own."""

    KEYS = [b"a", b"b", b"shop:a", b"k" * 200, b"c%c" % 0xe9]

    def setUp(self):
        super().setUp()
        self.random = random.Random(7)

    def servers(self, flags):
        """A server where ada has a namespace, and one where she has none."""
        return self.serve("-t", "1", *flags()), self.server("-Y", self.path, "-t", "1", *flags())

    def value(self):
        """Some value; a few are numbers, and a few are sent in parts."""
        size = self.random.choice([0, 1, 10, 1000, 20_000, 200_000])
        return self.random.choice([b"7", b"x" * size])

    def text_request(self):
        """One request of the text protocol and of meta commands."""
        key, value = self.random.choice(self.KEYS), self.value()
        keys = b" ".join(self.random.choices(self.KEYS, k=self.random.randrange(1, 9)))
        return self.random.choice([
            b"get %b" % keys, b"gets %b" % keys, b"gat 0 %b" % keys, b"gats 1000 %b" % keys,
            b"set %b 5 0 %d\r\n%b" % (key, len(value), value), b"add %b 0 0 %d\r\n%b" % (key, len(value), value),
            b"set %b 5 0 %d noreply\r\n%b" % (key, len(value), value), b"replace %b 0 0 1\r\nr" % key,
            b"append %b 0 0 1\r\n9" % key, b"cas %b 0 0 1 1\r\nc" % key,
            b"delete %b" % key, b"incr %b 5" % key, b"decr %b 2 noreply" % key, b"touch %b 0" % key,
            b"mg %b v k f s O77" % key, b"mg %b k N30 v" % key, b"mg YQ== b k v", b"mg %b q k" % key,
            b"ms %b %d k T0\r\n%b" % (key, len(value), value), b"ms YQ== 1 b k\r\nv", b"md %b k q" % key,
            b"ma %b N0 J5 k v" % key, b"me %b" % key, b"mn", b"nonsense", b"get", b"set %b 0 0 x" % key,
            b"set %b 0 0 3\r\ntoo long" % key])

    def packet_request(self):
        """One request of the binary protocol."""
        key, value = self.random.choice(self.KEYS), self.value()
        return self.random.choice([
            packet(packets.GET, key), packet(packets.GETK, key), packet(packets.GETQ, key),
            packet(packets.GETKQ, key, opaque=9), packet(0x1d, key, extras=bytes(4)),
            store(key, value, flags=3), store(key, value, packets.ADD), store(key, value, packets.SETQ),
            packet(packets.APPEND, key, b"9"), packet(packets.DELETE, key), packet(0x1c, key, extras=bytes(4)),
            packet(packets.INCR, key, extras=struct.pack(">QQI", 5, 1, 0)),
            store(key, b"c")[:16] + struct.pack(">Q", 5) + store(key, b"c")[24:], packet(packets.NOOP),
            packet(0x99, key)])

    def resp_request(self):
        """One request of RESP."""
        key, other = self.random.choices(self.KEYS + [b"", b"l" * 400], k=2)
        value = self.value()
        return command(*self.random.choice([
            (b"GET", key), (b"MGET", key, other, b"a"), (b"SET", key, value), (b"SET", key, value, b"NX", b"GET"),
            (b"MSET", key, value, other, b"5"), (b"MSETNX", key, b"1", other, b"2"), (b"DEL", key, other),
            (b"EXISTS", key, other), (b"INCR", key), (b"INCRBYFLOAT", key, b"1.5"), (b"APPEND", key, value[:20]),
            (b"GETRANGE", key, b"0", b"5"), (b"SETRANGE", key, b"3", b"xyz"), (b"STRLEN", key), (b"TYPE", key),
            (b"RENAME", key, other), (b"COPY", key, other), (b"EXPIRE", key, b"100"), (b"PERSIST", key),
            (b"GETDEL", key), (b"GETEX", key, b"EX", b"50"), (b"SETNX", key, b"7"), (b"OBJECT", b"ENCODING", key),
            (b"TOUCH", key, other), (b"MULTI",), (b"EXEC",), (b"DISCARD",), (b"WATCH", key), (b"UNWATCH",),
            (b"RANDOMKEY", b"x"), (b"DBSIZE",), (b"DELEX", key, b"IFEQ", b"7"), (b"GET",), (b"NOSUCH", key),
            (b"PING",), (b"SETBIT", key, b"9", b"1"), (b"BITCOUNT", key)]))

    def compare(self, doors, request, end, rounds):
        """Sends the same requests to both, some at a time, and compares all that is answered."""
        for _ in range(rounds):
            sent = [request() for _ in range(self.random.randrange(1, 30))]
            answers = []
            for door in doors:
                door.send(b"".join(sent) + end[0])
                answers.append(self.comparable(self.read_until(door, end[1])))
            self.assertEqual(answers[0], answers[1], [one[:80] for one in sent])

    @staticmethod
    def comparable(answer):
        """An answer without what differs: CAS numbers, times, and what `me` says of bytes, which counts the prefix."""
        if answer.startswith(b"\x81"):
            found = []
            while answer:
                one, answer = packets.take(answer)
                found.append(one._replace(cas=0))
            return found
        answer = re.sub(rb"(VALUE \S+ \d+ \d+) \d+\r\n", rb"\1\r\n", answer)
        return re.sub(rb" (cas|exp|la|size|ttl_ms)=\S+", b"", answer)

    def all_doors(self, flags):
        """The three protocols against two servers with the flags that `flags` returns for each."""
        one, other = self.servers(flags)
        self.compare([self.door(one, "ada"), self.door(other, "ada")], lambda: self.text_request() + b"\r\n",
                     (b"echo-end\r\nmg end-%d\r\nmn\r\n" % 1, b"ERROR\r\nEN\r\nMN\r\n"), 150)
        self.compare([self.packets_door(one, "ada"), self.packets_door(other, "ada")], self.packet_request,
                     (packet(packets.NOOP, opaque=0xfeed), b"\0\0\xfe\xed" + bytes(8)), 150)
        self.compare([self.resp_door(one, "ada"), self.resp_door(other, "ada")], self.resp_request,
                     (command(b"DISCARD") + command(b"ECHO", b"the end"), b"$7\r\nthe end\r\n"), 150)

    def test_in_memory(self):
        self.all_doors(list)

    def test_with_flash(self):
        self.all_doors(lambda: ["--flash", os.path.join(self.folder(), "flash") + ":64m", "--flash-admit", "all"])


@larder_only
class OnFlash(TenantsCase, FlashCase):
    """Items of a user with a namespace that only flash has."""

    def test_every_protocol_reads_them(self):
        flash = os.path.join(self.folder(), "flash") + ":256m"
        server = self.serve("-m", "16", "--flash", flash, "--admin", "off")
        ada = self.door(server, "ada")
        items = {b"key%d" % number: b"%d" % number * 400 for number in range(200)}
        names, values = list(items), list(items.values())
        self.cold(ada, items)
        before = self.number(ada, b"get_extstore")
        for _ in range(2):
            self.same(self.values(ada, names), [(key, 0, value) for key, value in items.items()])
        door = self.packets_door(server, "ada")
        door.send(b"".join(packet(packets.GETK, key) for key in names))
        self.assertEqual([packets.receive(door)[5:] for _ in names], list(items.items()))
        door = self.resp_door(server, "ada")
        self.assertEqual(ask(door, b"MGET", *names), values)
        door.send(b"".join(command(b"GET", key) for key in names))
        self.assertEqual([receive(door) for _ in names], values)
        self.assertGreater(self.number(ada, b"get_extstore"), before + len(names))
        ada.send(b"".join(b"append %b 0 0 1\r\n+\r\n" % key for key in names))
        self.assertEqual([ada.line() for _ in names], [b"STORED"] * len(names))
        self.assertEqual(ask(door, b"MGET", *names), [value + b"+" for value in values])


@larder_only
class Whole(TenantsCase):
    """What is about many keys at once."""

    def filled(self):
        """A server where each of ada, bob and root has two items."""
        server = self.serve("-A", "--admin", "off")
        self.fill(server)
        return server

    def fill(self, server):
        """Stores what they have."""
        for user in ("ada", "bob", "root"):
            door = self.door(server, user)
            for key in (b"x:1", b"y:1"):
                self.assertEqual(door.set(key, b"v"), b"STORED")

    def keys(self, server):
        """All keys there are."""
        found = ask(self.resp_door(server, "root"), b"KEYS", b"*")
        return sorted(found)

    OTHERS = [b"page:x:1", b"page:y:1", b"x:1", b"y:1"]

    def test_lists_have_own_keys_only(self):
        server = self.filled()
        ada = self.door(server, "ada")
        self.assertEqual(self.list(ada, b"lru_crawler mgdump all", b"EN\r\n"), [b"OK", b"mg x:1", b"mg y:1"])
        shown = [line.split()[0] for line in self.list(ada, b"lru_crawler metadump all")]
        self.assertEqual(shown, [b"OK", b"key=x%3A1", b"key=y%3A1"])
        shown = [line.split()[1] for line in self.list(ada, b"stats cachedump 1 0")]
        self.assertEqual(shown, [b"x:1", b"y:1"])
        self.assertTrue(ada.ask(b"me x:1").startswith(b"ME x:1 "))
        ada = self.resp_door(server, "ada")
        self.assertEqual(sorted(ask(ada, b"KEYS", b"*")), [b"x:1", b"y:1"])
        self.assertEqual(ask(ada, b"KEYS", b"x*"), [b"x:1"])
        self.assertEqual(ask(ada, b"KEYS", b"shop*"), [])
        self.assertEqual(sorted(ask(ada, b"SCAN", b"0", b"COUNT", b"1000")[1]), [b"x:1", b"y:1"])
        self.assertEqual(ask(ada, b"DBSIZE"), 2)
        self.assertEqual({ask(ada, b"RANDOMKEY") for _ in range(100)}, {b"x:1", b"y:1"})
        self.assertEqual(ask(self.resp_door(server, "root"), b"DBSIZE"), 6)

    def test_deletes_by_prefix(self):
        server = self.filled()
        for request, left in ((b"flush_prefix x:", [b"shop:y:1"]), (b"mf x:", [b"shop:y:1"]), (b"flush_all", []),
                              (b"flush_all noreply\r\nmn", [])):
            self.fill(server)
            self.assertIn(self.door(server, "ada").ask(request), (b"OK", b"HD", b"MN"))
            self.assertEqual(self.keys(server), sorted(self.OTHERS + left), request)
        for words, left in (((b"FLUSHPREFIX", b"x:"), [b"shop:y:1"]), ((b"FLUSHALL",), []), ((b"FLUSHDB",), [])):
            self.fill(server)
            self.assertEqual(ask(self.resp_door(server, "ada"), *words), b"OK")
            self.assertEqual(self.keys(server), sorted(self.OTHERS + left), words)
        self.fill(server)
        self.assertEqual(packets.ask(self.packets_door(server, "ada"), packet(packets.FLUSH)).status, packets.OK)
        self.assertEqual(self.keys(server), sorted(self.OTHERS))
        self.assertEqual(self.door(server, "root").ask(b"flush_all"), b"OK")
        self.assertEqual(self.keys(server), [])

    def test_what_is_about_the_server_is_refused(self):
        server = self.filled()
        ada = self.door(server, "ada")
        for request in (b"flush_all 10", b"watch mutations", b"stats hotkeys", b"stats largekeys",
                        b"stats detail dump", b"stats detail on", b"stats reset", b"cache_memlimit 100",
                        b"shutdown", b"verbosity 1", b"refresh_certs", b"worth mode hits"):
            self.assertEqual(ada.ask(request), REFUSED, request)
        self.assertEqual(ada.stats()[b"curr_items"], b"6")
        ada = self.packets_door(server, "ada")
        self.assertEqual(packets.ask(ada, packet(packets.STAT, b"reset")).status, packets.AUTH_ERROR)
        self.assertEqual(packets.ask(ada, packet(packets.FLUSH, extras=struct.pack(">I", 10))).status,
                         packets.AUTH_ERROR)
        ada = self.resp_door(server, "ada")
        for words in (b"SHUTDOWN", b"CONFIG SET idle-timeout 5", b"CONFIG RESETSTAT", b"SLOWLOG GET",
                      b"CLIENT KILL ID 1"):
            self.assertTrue(ask(ada, *words.split()).startswith(b"-NOPERM"), words)
        self.assertEqual(ask(ada, b"CLIENT", b"NO-EVICT", b"ON"), b"OK", "it changes nothing")
        self.assertEqual(self.keys(server), sorted(self.OTHERS + [b"shop:x:1", b"shop:y:1"]))

    def test_the_empty_key_of_resp_has_no_line_in_a_list(self):
        server = self.filled()
        resp, ada = self.resp_door(server, "ada"), self.door(server, "ada")
        self.assertEqual(ask(resp, b"SET", b"", b"v"), b"OK")
        self.assertEqual(self.list(ada, b"lru_crawler mgdump all", b"EN\r\n"), [b"OK", b"mg x:1", b"mg y:1"])
        self.assertEqual(len(self.list(ada, b"stats cachedump 1 0")), 2)
        self.assertEqual(len(ask(resp, b"KEYS", b"*")), 3)

    def test_a_hot_key_is_shown_under_the_name_of_who_asked(self):
        server = self.serve()
        connection = self.connection(server)
        # The requests and the next login are executed together.
        as_ada = command(b"AUTH", b"ada", b"a") + 20 * command(b"GET", b"of-ada")
        for _ in range(200):
            connection.send(as_ada + command(b"AUTH", b"bob", b"b"))
            self.assertEqual({receive(connection) for _ in range(22)}, {b"OK", None})
        connection.send(command(b"AUTH", b"ada", b"a") + 4000 * command(b"GET", b"of-ada"))
        self.assertEqual({receive(connection) for _ in range(4001)}, {b"OK", None})
        shown = [value for name, value in self.door(server, "root").stats(b"hotkeys").items() if b":key" in name]
        self.assertEqual(shown, [b"shop%3Aof-ada"])

    def test_the_curve_of_the_own_namespace(self):
        ada = self.door(self.serve("--namespaces", "shop=0-50,page=0-50"), "ada")
        for name in (b"page", b"sho", b"shop:", b"nobody"):
            self.assertEqual(ada.ask(b"stats mrc " + name), REFUSED, name)
        self.assertTrue(ada.ask(b"stats mrc shop").startswith(b"STAT state "))

    def test_who_may_only_read_has_a_namespace_too(self):
        server = self.filled()
        eve = self.door(server, "eve")
        self.assertEqual(eve.get(b"x:1"), b"v")
        for request in (b"set x:1 0 0 1\r\nw", b"set x:1 0 0 500000\r\n" + b"w" * 500_000, b"delete x:1",
                        b"flush_all", b"gat 5 x:1", b"mg x:1 T5"):
            self.assertEqual(eve.ask(request), b"CLIENT_ERROR not allowed: this user may only read", request[:20])
        eve = self.resp_door(server, "eve")
        self.assertEqual(ask(eve, b"GET", b"x:1"), b"v")
        self.assertTrue(ask(eve, b"FLUSHALL").startswith(b"-NOPERM"))

    def test_long_retrievals(self):
        server = self.serve("-t", "1")
        ada = self.door(server, "ada")
        names = [b"%d" % number for number in range(3000)]
        ada.send(b"".join(b"set %b 0 0 %d noreply\r\n%b\r\n" % (name, 500, name.ljust(500)) for name in names))
        self.assertEqual(ada.ask(b"mn"), b"MN")
        ada.send(b"".join(b"get %b\r\n" % b" ".join(names) for _ in range(3)) + b"mn\r\n")
        for _ in range(3):
            for name in names:
                self.assertEqual(ada.line(), b"VALUE %b 0 500" % name)
                self.assertEqual(ada.exactly(502), name.ljust(500) + b"\r\n")
            self.assertEqual(ada.line(), b"END")
        self.assertEqual(ada.line(), b"MN")
        door, more = self.resp_door(server, "ada"), [b"m%d" % number for number in range(3000)]
        self.assertEqual(ask(door, b"MGET", *names), [name.ljust(500) for name in names])
        # Two that go on for long, in turns.
        other = self.resp_door(server, "bob")
        for one in (door, other):
            one.send(command(b"MSET", *(word for name in more for word in (name, name))) + command(b"GET", b"m2999")
                     + command(b"DEL", *names) + command(b"EXISTS", *names, *more))
        self.assertEqual([receive(door) for _ in range(4)], [b"OK", b"m2999", 3000, 3000])
        self.assertEqual([receive(other) for _ in range(4)], [b"OK", b"m2999", 0, 3000])


@larder_only
class Connections(TenantsCase):
    """Logins in the middle of a connection."""

    def test_a_connection_of_resp_becomes_somebody_else(self):
        server = self.serve()
        connection = self.connection(server)
        connection.send(b"".join(command(*words.split()) for words in (
            b"AUTH ada a", b"SET k 1", b"GET k", b"AUTH bob b", b"GET k", b"SET k 2", b"AUTH root r", b"GET k",
            b"MGET shop:k page:k", b"HELLO 3 AUTH ada a", b"GET k")))
        said = [receive(connection) for _ in range(11)]
        self.assertEqual(said[:9], [b"OK", b"OK", b"1", b"OK", None, b"OK", b"OK", None, [b"1", b"2"]])
        self.assertEqual(said[10], b"1")
        # One that fails to log in is who it was.
        self.assertTrue(ask(connection, b"AUTH", b"root", b"wrong").startswith(b"-WRONGPASS"))
        self.assertEqual(ask(connection, b"GET", b"k"), b"1")
        self.assertEqual(ask(connection, b"RESET"), b"RESET")
        self.assertTrue(ask(connection, b"GET", b"k").startswith(b"-NOAUTH"))
        self.assertEqual(ask(connection, b"AUTH", b"root", b"r"), b"OK")
        self.assertEqual(ask(connection, b"GET", b"page:k"), b"2")

    def test_transactions(self):
        server = self.serve()
        ada, root = self.resp_door(server, "ada"), self.resp_door(server, "root")
        self.assertEqual(ask(ada, b"WATCH", b"k"), b"OK")
        self.assertEqual(ask(root, b"SET", b"k", b"other"), b"OK")
        self.assertEqual(ask(ada, b"MULTI"), b"OK")
        self.assertEqual(ask(ada, b"SET", b"k", b"1"), b"QUEUED")
        self.assertEqual(ask(ada, b"MGET", b"k", b"shop:k"), b"QUEUED")
        self.assertEqual(ask(ada, b"EXEC"), [b"OK", [b"1", None]])
        self.assertEqual(ask(ada, b"WATCH", b"k"), b"OK")
        self.assertEqual(ask(root, b"SET", b"shop:k", b"2"), b"OK")
        self.assertEqual(ask(ada, b"MULTI"), b"OK")
        self.assertEqual(ask(ada, b"SET", b"k", b"3"), b"QUEUED")
        self.assertIsNone(ask(ada, b"EXEC"))
        self.assertEqual(ask(ada, b"GET", b"k"), b"2")
        # What was queued has the keys of whoever queued it.
        self.assertEqual(ask(ada, b"MULTI"), b"OK")
        for words in (b"SET q ada", b"AUTH root r", b"SET q still-ada"):
            self.assertEqual(ask(ada, *words.split()), b"QUEUED")
        self.assertEqual(ask(ada, b"EXEC"), [b"OK", b"OK", b"OK"])
        self.assertEqual((ask(ada, b"GET", b"q"), ask(ada, b"GET", b"shop:q")), (None, b"still-ada"))

    def test_a_packet_connection_becomes_somebody_else(self):
        server = self.serve()
        connection = self.packets_door(server, "ada")
        connection.send(store(b"k", b"ada") + packets.plain(b"bob", b"b") + packet(packets.GET, b"k")
                        + store(b"k", b"bob") + packets.plain(b"root", b"r") + packet(packets.GETK, b"page:k"))
        said = [packets.receive(connection) for _ in range(6)]
        self.assertEqual([one.status for one in said], [0, 0, packets.NOT_FOUND, 0, 0, 0])
        self.assertEqual((said[5].key, said[5].value), (b"page:k", b"bob"))


@larder_only
class Shares(TenantsCase):
    """Shares, counters and the longest time to live are those of the user's namespace."""

    def test_counters_and_the_longest_time_to_live(self):
        server = self.serve("--namespaces", "shop=0-100/100,page=0-100")
        ada, bob = self.door(server, "ada"), self.door(server, "bob")
        for door in (ada, bob):
            door.set(b"k", b"v", exptime=5000)
            self.assertEqual(door.get(b"k"), b"v")
        self.assertIsNone(ada.get(b"none"))
        self.assertIn(ada.ask(b"mg k t"), (b"HD t100", b"HD t99"))
        self.assertIn(bob.ask(b"mg k t"), (b"HD t5000", b"HD t4999"))
        resp = self.resp_door(server, "ada")
        self.assertEqual(ask(resp, b"SET", b"j", b"v"), b"OK")
        self.assertIn(ask(resp, b"TTL", b"j"), (100, 99))
        self.assertEqual(ask(resp, b"MGET", b"j", b"none"), [b"v", None])
        stats = self.door(server, "root").stats(b"namespaces")
        self.assertEqual((stats[b"shop:sets"], stats[b"shop:gets"], stats[b"shop:hits"]), (b"2", b"5", b"3"))
        self.assertEqual((stats[b"page:sets"], stats[b"page:gets"], stats[b"page:hits"]), (b"1", b"2", b"2"))

    def test_a_flood_and_a_share(self):
        server = self.serve("-m", "64", "-t", "2", "--namespaces", "shop=40-100")
        ada, bob = self.door(server, "ada"), self.door(server, "bob")
        value = b"v" * 400
        for door, count in ((ada, 20_000), (bob, 300_000)):
            for start in range(0, count, 200):
                door.send(b"".join(b"set %d 0 0 400 noreply\r\n%b\r\n" % (number, value)
                                   for number in range(start, start + 200)))
                self.assertEqual(door.ask(b"mn"), b"MN")
        found = 0
        for start in range(0, 20_000, 100):
            ada.send(b"get " + b" ".join(b"%d" % number for number in range(start, start + 100)) + b"\r\n")
            while ada.line() != b"END":
                ada.exactly(402)
                found += 1
        self.assertGreaterEqual(found, 20_000 * 97 // 100)
        count = ask(self.resp_door(server, "ada"), b"DBSIZE")
        self.assertLess(abs(count - found), found // 4)


@larder_only
class Setting(TenantsCase):
    """The setting."""

    def test_what_cannot_be(self):
        users = ("-Y", self.path)
        for flags, words in (((*users, "--user-namespaces", "ada"), "expected USER=NAME"),
                             ((*users, "--user-namespaces", "=shop"), "expected USER=NAME"),
                             ((*users, "--user-namespaces", "ada="), "1 to 100"),
                             ((*users, "--user-namespaces", "ada=a:b"), "without ':'"),
                             ((*users, "--user-namespaces", "ada=a b"), "1 to 100"),
                             ((*users, "--user-namespaces", "ada=" + "n" * 101), "1 to 100"),
                             ((*users, "--user-namespaces", "ada=a,ada=b"), "the user 'ada' has two namespaces"),
                             ((*users, "--user-namespaces", "Ada=shop"), "the user 'Ada' has a namespace"),
                             (("--user-namespaces", "ada=shop"), "need users")):
            status, _, error = run_to_end("-p", "0", "--admin", "off", *flags)
            self.assertNotEqual(status, 0, flags)
            self.assertIn(words, error)
            self.assertEqual(len(error.strip().splitlines()), 1, error)

    def test_a_change_counts_for_logins_from_then_on(self):
        config = os.path.join(self.folder(), "larder.toml")

        def configure(users):
            with open(config, "w", encoding="ascii") as file:
                file.write('auth-file = "%s"\nuser-namespaces = %s\n' % (self.path, users))

        configure('["ada=shop"]')
        server = self.server("--config", config)
        old = self.door(server, "ada")
        old.set(b"k", b"v")
        configure('["bob=page"]')
        server.process.send_signal(signal.SIGHUP)
        until(lambda: self.door(server, "ada").get(b"shop:k"), "the file is read again")
        self.assertEqual(old.get(b"k"), b"v")
        self.door(server, "bob").set(b"k", b"page")
        root = self.resp_door(server, "root")
        self.assertEqual(ask(root, b"GET", b"page:k"), b"page")
        self.assertEqual(ask(root, b"CONFIG", b"GET", b"user-namespaces"), [b"user-namespaces", b"bob=page"])
        self.assertTrue(ask(root, b"CONFIG", b"SET", b"user-namespaces", b"").startswith(b"-ERR"))

    def test_who_is_removed_has_no_moment_with_all_keys(self):
        config = os.path.join(self.folder(), "larder.toml")

        def configure(lines, namespaces):
            self.write(*lines)
            with open(config, "w", encoding="ascii") as file:
                file.write('auth-file = "%s"\nuser-namespaces = %s\n' % (self.path, namespaces))

        # Reading them takes a while.
        others = ["other%d:o" % number for number in range(900)]
        with_bob = (["root:r", "bob:b", *others], '["bob=page"]')
        configure(*with_bob)
        server = self.server("--config", config)
        root = self.door(server, "root")
        root.set(b"rootkey", b"secret")
        bob = self.connection(server)
        for _ in range(4):
            for users, is_there in ((with_bob, True), ((["root:r", *others], "[]"), False)):
                configure(*users)
                server.process.send_signal(signal.SIGHUP)

                def follows():
                    admitted = ask(bob, b"AUTH", b"bob", b"b") == b"OK"
                    if admitted:
                        self.assertIsNone(ask(bob, b"GET", b"rootkey"))
                    return admitted == is_there
                until(follows, "the file is read again")
