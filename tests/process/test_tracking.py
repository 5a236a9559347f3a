"""Client-side caching: who has read a key is told when it changes, by whatever way it does."""

import random
import threading

import packets
from flash_support import FlashCase, noise
from process_support import Case, larder_only
from resp_support import Pushed, ask, command, receive
from support import until
from test_tenants import TenantsCase

LARGE = b"x" * 200_000
# Requests of memcached's text protocol that change the item `k`, and the beginning of what each is answered.
BY_TEXT = [
    (b"set k 0 0 1\r\nx", b"STORED"),
    (b"replace k 0 0 1\r\nx", b"STORED"),
    (b"append k 0 0 1\r\nx", b"STORED"),
    (b"prepend k 0 0 1\r\nx", b"STORED"),
    (b"incr k 1", b"8"),
    (b"decr k 1", b"6"),
    (b"touch k 100", b"TOUCHED"),
    (b"gat 100 k", b"VALUE"),
    (b"delete k", b"DELETED"),
    (b"ms k 1\r\nx", b"HD"),
    (b"ms k 1 MA\r\nx", b"HD"),
    (b"ma k", b"HD"),
    (b"mg k T100 v", b"VA 1"),
    (b"md k", b"HD"),
    (b"md k I T30", b"HD"),
    (b"set k 0 0 %d\r\n%b" % (len(LARGE), LARGE), b"STORED"),
    (b"flush_all", b"OK"),
    (b"flush_prefix k", b"OK"),
]
# Lines that follow the first one of an answer.
LINES_BEHIND = {b"VA 1": [b"7"], b"VALUE": [b"7", b"END"]}
# The same with RESP.
BY_RESP = [
    (b"SET", b"k", b"x"), (b"SET", b"k", LARGE), (b"SETEX", b"k", b"100", b"x"), (b"MSET", b"j", b"1", b"k", b"2"),
    (b"GETSET", b"k", b"x"), (b"DEL", b"k"), (b"UNLINK", b"k"), (b"GETDEL", b"k"), (b"INCR", b"k"),
    (b"INCRBYFLOAT", b"k", b"0.5"), (b"APPEND", b"k", b"x"), (b"SETRANGE", b"k", b"0", b"x"),
    (b"SETBIT", b"k", b"1", b"1"), (b"EXPIRE", b"k", b"100"), (b"EXPIRE", b"k", b"-1"), (b"GETEX", b"k", b"EX", b"100"),
    (b"RENAME", b"k", b"j"), (b"RENAME", b"other", b"k"), (b"COPY", b"other", b"k", b"REPLACE"), (b"MOVE", b"k", b"1"),
    (b"DELEX", b"k", b"IFEQ", b"7"), (b"FLUSHALL",), (b"FLUSHDB",), (b"FLUSHPREFIX", b"k"),
    (b"EVAL", b"return redis.call('SET', KEYS[1], 'x')", b"1", b"k"),
]


class Reader:
    """A connection that tracks keys, with copies of what it has read."""

    def __init__(self, connection, *options):
        self.connection, self.copies, self.told = connection, {}, []
        ask(connection, b"HELLO", b"3")
        said = ask(connection, b"CLIENT", b"TRACKING", b"ON", *options)
        assert said == b"OK", said

    def ask(self, *words):
        """A reply. What is pushed before it goes where it belongs."""
        self.connection.send(command(*words))
        while True:
            reply = receive(self.connection)
            if not isinstance(reply, Pushed):
                return reply
            self.hear(reply)

    def hear(self, pushed):
        """A message that keys have changed."""
        word, keys = pushed
        assert word == b"invalidate", pushed
        if keys is None:
            self.copies.clear()
            self.told.append(None)
        for key in keys or ():
            self.copies.pop(key, None)
            self.told.append(key)

    def get(self, key):
        """The value of a key, from the copy if there is one."""
        if key not in self.copies:
            self.copies[key] = self.ask(b"GET", key)
        return self.copies[key]

    def news(self):
        """The keys that it was told of since it was asked before; None = all."""
        self.ask(b"PING")
        told, self.told = self.told, []
        return told


class RaceCase(Case):
    """A test case in which readers keep copies while others write."""

    def race(self, server, value=lambda number: b"%d" % number, keys=40, writes=4000):
        """Writers by every door, and readers that keep copies: at the end each copy is what the server has."""
        names = [b"key%d" % number for number in range(keys)]
        readers = [Reader(self.connection(server)) for _ in range(4)]
        over, wrong = threading.Event(), []

        def write(number):
            connection, chance = self.connection(server), random.Random(number)
            for step in range(0, writes, 20):
                lines = []
                for at in range(20):
                    key, new = chance.choice(names), value(10_000 * number + step + at)
                    lines.append(chance.choice([
                        b"set %b 0 0 %d\r\n%b\r\n" % (key, len(new), new),
                        b"ms %b %d\r\n%b\r\n" % (key, len(new), new),
                        b"delete %b\r\n" % key,
                        b"set %b 0 0 %d\r\n%b\r\n" % (key, len(new), new),
                    ]))
                connection.send(b"".join(lines))
                for _ in lines:
                    connection.line()

        def write_resp(number):
            connection, chance = self.connection(server), random.Random(number)
            for step in range(writes // 4):
                key, new = chance.choice(names), value(10_000 * number + step)
                ask(connection, *chance.choice([
                    (b"SET", key, new), (b"DEL", key), (b"APPEND", key, b"x"), (b"RENAME", key, chance.choice(names)),
                    (b"EVAL", b"return redis.call('SET', KEYS[1], ARGV[1])", b"1", key, new),
                    (b"SET", key, new, b"PX", b"%d" % chance.randrange(1, 50)),
                ]))

        def read(reader, number):
            chance = random.Random(100 + number)
            try:
                while not over.is_set():
                    for _ in range(20):
                        reader.get(chance.choice(names))
                    reader.ask(b"PING")
            except Exception as error:  # it is raised again below
                wrong.append(error)

        writers = [threading.Thread(target=work, args=(number,))
                   for number, work in enumerate((write, write, write_resp, write_resp))]
        others = [threading.Thread(target=read, args=row) for row in zip(readers, range(4))]
        for thread in others + writers:
            thread.start()
        for thread in writers:
            thread.join()
        over.set()
        for thread in others:
            thread.join()
        self.assertEqual(wrong, [])
        # Without copies; what has a time to live may end until then, and is told within a second or so.
        plain = self.connection(server)

        def stale():
            found = []
            for reader in readers:
                reader.news()
                for key, copy in list(reader.copies.items()):
                    if ask(plain, b"GET", key) != copy:
                        found.append(key)
            return found

        until(lambda: not stale(), "every copy is what the server has")
        self.assertGreater(sum(len(reader.copies) for reader in readers), 0)


@larder_only
class Tracking(RaceCase):
    """Without flash or users."""

    def test_a_reader_hears_of_every_change_once(self):
        server = self.server("-m", "64")
        reader, text, resp = Reader(self.connection(server)), self.connection(server), self.connection(server)

        def prepare():
            for key, value in ((b"k", b"7"), (b"other", b"1"), (b"j", b"1")):
                ask(resp, b"SET", key, value)
            reader.news()
            self.assertEqual(reader.ask(b"GET", b"k"), b"7")

        for request, said in BY_TEXT:
            prepare()
            self.assertTrue(text.ask(request).startswith(said), request[:40])
            behind = LINES_BEHIND.get(said, [])
            self.assertEqual([text.line() for _ in behind], behind)
            self.assertEqual(reader.news(), [None] if request == b"flush_all" else [b"k"], request[:40])
        for words in BY_RESP:
            prepare()
            said = ask(resp, *words)
            self.assertFalse(isinstance(said, bytes) and said.startswith(b"-"), (words, said))
            whole = words[0] == b"FLUSHALL"
            self.assertIn(reader.news(), ([[None]] if whole else [[b"k"], [None]]), words[:2])
        prepare()
        for words in ((b"MULTI",), (b"SET", b"k", b"1"), (b"GET", b"k"), (b"SET", b"k", b"2"), (b"EXEC",)):
            ask(resp, *words)
        self.assertEqual(reader.news(), [b"k"])
        prepare()
        binary = self.connection(server)
        self.assertEqual(packets.ask(binary, packets.store(b"k", b"x")).status, packets.OK)
        self.assertEqual(reader.news(), [b"k"])

    def test_reads_that_change_nothing_and_what_nobody_reads_are_not_told(self):
        server = self.server()
        reader, text, resp = Reader(self.connection(server)), self.connection(server), self.connection(server)
        ask(resp, b"SET", b"k", b"7")
        reader.get(b"k")
        for words in ((b"GET", b"k"), (b"SET", b"k", b"x", b"NX"), (b"SET", b"j", b"x"), (b"DEL", b"none"),
                      (b"EXISTS", b"k"), (b"DELEX", b"k", b"IFEQ", b"8")):
            ask(resp, *words)
        self.assertEqual(text.ask(b"mg k t"), b"HD t-1")
        self.assertEqual(text.ask(b"add k 0 0 1\r\nx"), b"NOT_STORED")
        self.assertEqual(reader.news(), [])
        for words in ((b"EXISTS", b"a"), (b"TTL", b"b"), (b"STRLEN", b"c"), (b"MGET", b"d", b"e"), (b"TYPE", b"f"),
                      (b"GETRANGE", b"g", b"0", b"1"), (b"OBJECT", b"FREQ", b"h")):
            reader.ask(*words)
        for key in b"abcdefgh":
            ask(resp, b"SET", bytes([key]), b"x")
        self.assertEqual(reader.news(), [bytes([key]) for key in b"abcdefgh"])
        reader.ask(b"EVAL", b"return redis.call('GET', KEYS[1])", b"1", b"by a script")
        for words in ((b"MULTI",), (b"GET", b"in a transaction"), (b"EXEC",)):
            reader.ask(*words)
        for key in (b"by a script", b"in a transaction"):
            ask(resp, b"SET", key, b"x")
        self.assertEqual(reader.news(), [b"by a script", b"in a transaction"])
        reader.ask(b"SET", b"own", b"1")
        reader.get(b"own")
        reader.ask(b"SET", b"own", b"2")
        self.assertEqual(reader.news(), [b"own"])
        reader.ask(b"CLIENT", b"TRACKING", b"OFF")
        reader.get(b"late")
        ask(resp, b"SET", b"late", b"x")
        self.assertEqual(reader.news(), [])
        self.assertIn(b"\r\ntracking_total_keys:0\r\n", ask(resp, b"INFO", b"stats"))

    def test_keys_that_no_item_can_have_are_tracked_too(self):
        server = self.server()
        reader, resp = Reader(self.connection(server)), self.connection(server)
        broad = Reader(self.connection(server), b"BCAST", b"PREFIX", b"L")
        for key in (b"", b"L" * 251, b"L" * 5000):
            reader.get(key)
            ask(resp, b"SET", key, b"x")
            self.assertEqual(reader.news(), [key])
        self.assertEqual(set(broad.news()), {None})

    def test_a_key_whose_time_is_over_is_told(self):
        server = self.server()
        reader, resp = Reader(self.connection(server)), self.connection(server)
        broad = Reader(self.connection(server), b"BCAST", b"PREFIX", b"b")
        ask(resp, b"SET", b"a", b"x", b"PX", b"200")
        ask(resp, b"SET", b"long", b"x", b"EX", b"1000")
        reader.ask(b"MGET", b"a", b"long")
        ask(resp, b"SET", b"b", b"x", b"PX", b"200")
        self.assertEqual(broad.news(), [b"b"])
        until(lambda: b"a" in reader.told or reader.news() == [b"a"], "the reader hears of the end of the time")
        until(lambda: broad.news() == [b"b"], "so does the other")
        self.assertEqual(ask(resp, b"GET", b"a"), None)
        # An item that was there before anybody tracked its prefix.
        ask(resp, b"SET", b"before", b"x", b"PX", b"1500")
        late = Reader(self.connection(server), b"BCAST", b"PREFIX", b"be")
        self.assertEqual(late.ask(b"MGET", b"before", b"none"), [b"x", None])
        self.assertEqual(late.news(), [])
        until(lambda: late.news() == [b"before"], "who has read it hears of the end of its time")

    def test_an_item_that_is_evicted_is_told(self):
        server = self.server("-m", "8")
        reader, text = Reader(self.connection(server)), self.connection(server)
        names = [b"k%d" % number for number in range(500)]
        for name in names:
            self.assertEqual(text.ask(b"set %b 0 0 1000\r\n%b" % (name, b"x" * 1000)), b"STORED")
        reader.ask(b"MGET", *names)
        filled, told = 0, []
        while not told and filled < 100_000:
            text.send(b"".join(b"set f%d 0 0 2000 noreply\r\n%b\r\n" % (number, b"x" * 2000)
                               for number in range(filled, filled + 200)))
            self.assertEqual(text.ask(b"mn"), b"MN")
            filled += 200
            told = reader.news()
        self.assertEqual({text.ask(b"get %b" % name) for name in told}, {b"END"})

    def test_no_copy_is_stale_when_all_is_quiet(self):
        self.race(self.server("-t", "4", "-m", "64"))

    def test_a_reader_may_choose_what_is_tracked(self):
        server = self.server()
        resp = self.connection(server)
        opt_in = Reader(self.connection(server), b"OPTIN")
        opt_in.ask(b"GET", b"a")
        self.assertEqual(opt_in.ask(b"CLIENT", b"CACHING", b"YES"), b"OK")
        opt_in.ask(b"GET", b"b")
        opt_in.ask(b"GET", b"c")
        opt_in.ask(b"CLIENT", b"CACHING", b"YES")
        for words in ((b"MULTI",), (b"GET", b"d"), (b"GET", b"e"), (b"EXEC",), (b"GET", b"f")):
            opt_in.ask(*words)
        opt_out = Reader(self.connection(server), b"OPTOUT", b"NOLOOP")
        opt_out.ask(b"CLIENT", b"CACHING", b"NO")
        for key in b"abc":
            opt_out.ask(b"GET", bytes([key]))
        opt_out.ask(b"SET", b"b", b"own")
        for key in b"abcdef":
            ask(resp, b"SET", bytes([key]), b"x")
        self.assertEqual(opt_in.news(), [b"b", b"d", b"e"])
        self.assertEqual(opt_out.news(), [b"c"], "not a, for which it said no, nor b, which it changed itself")
        opt_out.ask(b"GET", b"b")
        ask(resp, b"SET", b"b", b"y")
        self.assertEqual(opt_out.news(), [b"b"])
        for reader, words in ((opt_in, [b"on", b"optin"]), (opt_out, [b"on", b"optout", b"noloop"])):
            self.assertEqual(reader.ask(b"CLIENT", b"TRACKINGINFO"),
                             [b"flags", words, b"redirect", 0, b"prefixes", []])

    def test_whoever_wants_all_keys_with_a_prefix_hears_of_them(self):
        server = self.server()
        resp = self.connection(server)
        broad = Reader(self.connection(server), b"BCAST", b"PREFIX", b"foo", b"PREFIX", b"bar")
        every = Reader(self.connection(server), b"BCAST", b"NOLOOP")
        for words in ((b"MULTI",), (b"INCR", b"foo:1"), (b"INCR", b"bar:1"), (b"INCR", b"foo:2"), (b"INCR", b"baz"),
                      (b"EXEC",)):
            ask(resp, *words)
        self.assertEqual(sorted(broad.news()), [b"bar:1", b"foo:1", b"foo:2"])
        self.assertEqual(sorted(every.news()), [b"bar:1", b"baz", b"foo:1", b"foo:2"])
        every.ask(b"SET", b"foo:1", b"x")
        self.assertEqual((broad.news(), every.news()), ([b"foo:1"], []))
        self.assertEqual(every.ask(b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"NOLOOP"), b"OK", "again")
        self.assertEqual(broad.ask(b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"PREFIX", b"more"), b"OK")
        self.assertEqual(broad.ask(b"CLIENT", b"TRACKINGINFO")[-1], [b"foo", b"bar", b"more"])
        ask(resp, b"FLUSHPREFIX", b"foo:")
        self.assertEqual((broad.news(), every.news()), ([None], [None]))
        self.assertIn(b"\r\ntracking_total_prefixes:4\r\n", ask(resp, b"INFO", b"stats"))
        self.assertIn(b"\r\ntracking_clients:2\r\n", ask(resp, b"INFO", b"clients"))
        broad.ask(b"RESET")
        self.assertIn(b"\r\ntracking_total_prefixes:1\r\n", ask(resp, b"INFO", b"stats"))

    def test_who_only_listens_hears_of_all(self):
        server = self.server("-t", "1", "-m", "1024")
        broad, text = Reader(self.connection(server), b"BCAST"), self.connection(server)
        names = [b"key%d" % number for number in range(20_000)]
        for start in range(0, len(names), 4000):
            text.send(b"".join(b"set %b 0 0 1 noreply\r\nx\r\n" % name for name in names[start:start + 4000]))
        heard = set()
        while len(heard) < len(names):
            heard.update(receive(broad.connection)[1])
        self.assertEqual(heard, set(names))

    def test_another_connection_hears_instead(self):
        server = self.server()
        target, reader, resp = (self.connection(server) for _ in range(3))
        number = ask(target, b"CLIENT", b"ID")
        self.assertEqual(ask(reader, b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", b"%d" % number), b"OK")
        self.assertEqual(ask(reader, b"CLIENT", b"GETREDIR"), number)
        ask(reader, b"GET", b"unheard")
        ask(resp, b"SET", b"unheard", b"x")
        ask(target, b"PING")
        self.assertEqual(ask(target, b"SUBSCRIBE", b"__redis__:invalidate"), [b"subscribe", b"__redis__:invalidate", 1])
        ask(reader, b"GET", b"k")
        ask(resp, b"SET", b"k", b"x")
        self.assertEqual(receive(target), [b"message", b"__redis__:invalidate", [b"k"]])
        ask(resp, b"FLUSHALL")
        self.assertEqual(receive(target), [b"message", b"__redis__:invalidate", None])
        self.assertIn(b" flags=t ", ask(reader, b"CLIENT", b"INFO"))
        self.assertIn(b" redir=%d " % number, ask(reader, b"CLIENT", b"INFO"))
        ask(reader, b"GET", b"k")
        resp.send(command(b"CLIENT", b"KILL", b"ID", b"%d" % number) + command(b"SET", b"k", b"x"))
        self.assertEqual([receive(resp) for _ in range(2)], [1, b"OK"])
        self.assertEqual(ask(reader, b"CLIENT", b"TRACKINGINFO")[1], [b"on", b"broken_redirect"], "at once")
        said = ask(resp, b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", b"%d" % number)
        self.assertIn(b"does not exist", said)
        until(lambda: b"id=%d " % number not in ask(resp, b"CLIENT", b"LIST"), "the target is gone")
        ask(reader, b"HELLO", b"3")
        ask(reader, b"CLIENT", b"TRACKING", b"OFF")
        self.assertEqual(ask(reader, b"CLIENT", b"TRACKING", b"ON"), b"OK")
        ask(reader, b"GET", b"k")
        ask(resp, b"SET", b"k", b"x")
        self.assertEqual(receive(reader), [b"invalidate", [b"k"]])

    def test_what_cannot_be_asked_for_is_refused_in_redis_words(self):
        connection = self.connection(self.server())
        for line, words in (
            (b"ON PREFIX foo", b"PREFIX option requires BCAST"),
            (b"ON OPTIN OPTOUT", b"both OPTIN mode and OPTOUT mode"),
            (b"ON BCAST OPTIN", b"not compatible with BCAST"),
            (b"ON REDIRECT 99", b"does not exist"),
            (b"ON REDIRECT x", b"not an integer"),
            (b"ON REDIRECT", b"syntax error"),
            (b"MAYBE", b"syntax error"),
            (b"ON BCAST PREFIX foo PREFIX foobar", b"'foo' overlaps with another provided prefix 'foobar'"),
            (b"ON BCAST PREFIX a", None),
            (b"ON BCAST PREFIX ab", b"'ab' overlaps with an existing prefix 'a'"),
            (b"ON", b"can't switch BCAST mode on/off"),
            (b"OFF", None),
            (b"ON OPTIN", None),
            (b"ON OPTOUT", b"can't switch OPTIN/OPTOUT mode"),
            (b"ON OPTIN NOLOOP", None),
        ):
            said = ask(connection, b"CLIENT", b"TRACKING", *line.split())
            is_right = said == b"OK" if words is None else said.startswith(b"-ERR") and words in said
            self.assertTrue(is_right, (line, said))
        self.assertIn(b"only valid when tracking is enabled in OPTOUT", ask(connection, b"CLIENT", b"CACHING", b"NO"))
        self.assertIn(b"syntax error", ask(connection, b"CLIENT", b"CACHING", b"MAYBE"))
        ask(connection, b"CLIENT", b"TRACKING", b"OFF")
        self.assertIn(b"can be called only when", ask(connection, b"CLIENT", b"CACHING", b"YES"))

    def test_the_table_is_bounded_and_tells_of_what_it_forgets(self):
        server = self.server("-m", "64")
        reader, resp = Reader(self.connection(server)), self.connection(server)
        count = 40_000
        for start in range(0, count, 100):
            reader.connection.send(b"".join(command(b"GET", b"key%d" % number)
                                            for number in range(start, start + 100)))
            replies = 0
            while replies < 100:
                reply = receive(reader.connection)
                if isinstance(reply, Pushed):
                    reader.hear(reply)
                else:
                    replies += 1
        told = reader.news()
        rows = dict(line.split(b":", 1) for line in ask(resp, b"INFO", b"stats").split(b"\r\n") if b":" in line)
        kept = int(rows[b"tracking_total_keys"])
        self.assertGreater(kept, 1000)
        self.assertTrue(None in told or len(set(told)) == count - kept, (kept, len(told)))
        self.assertLess(kept * 100, 1 << 20, "a quarter of the memory for connection buffers")

    def test_a_request_for_many_keys_notes_each(self):
        server = self.server("-m", "1024")
        reader, text = Reader(self.connection(server)), self.connection(server)
        names = [b"key%d" % number for number in range(20_000)]
        self.assertEqual(reader.ask(b"MGET", *names), [None] * len(names))
        for start in range(0, len(names), 500):
            text.send(b"".join(b"set %b 0 0 1 noreply\r\nx\r\n" % name for name in names[start:start + 500]))
        self.assertEqual(text.ask(b"mn"), b"MN")
        self.assertEqual(sorted(reader.news()), sorted(names))

    def test_who_reads_nothing_is_told_once_that_all_has_changed(self):
        server = self.server("-m", "64")
        reader, text = Reader(self.connection(server, receive_buffer=4096), b"BCAST"), self.connection(server)
        # Many times what the sockets between server and reader can hold.
        names = [b"k%06d" % number + b"x" * 240 for number in range(100_000)]
        for start in range(0, len(names), 500):
            text.send(b"".join(b"set %b 0 0 1 noreply\r\nx\r\n" % name for name in names[start:start + 500]))
        self.assertEqual(text.ask(b"mn"), b"MN")
        self.assertIn(None, reader.told + reader.news(), "its mailbox was full")
        reader.ask(b"GET", names[0])
        self.assertEqual(text.ask(b"set %b 0 0 1\r\ny" % names[0]), b"STORED")
        self.assertIn(reader.news()[-1], (names[0], None))


class Users(TenantsCase):
    """A user with a namespace hears of its own keys, by its own names."""

    def test_a_user_hears_of_its_own_keys_alone(self):
        server = self.serve()
        readers = {user: Reader(self.resp_door(server, user)) for user in ("ada", "bob", "root")}
        broad = Reader(self.resp_door(server, "ada"), b"BCAST")
        for user, reader in readers.items():
            reader.get(b"k" if user != "root" else b"shop:k")
        self.assertEqual(self.door(server, "ada").ask(b"set k 0 0 1\r\nx"), b"STORED")
        self.assertEqual([readers[user].news() for user in ("ada", "bob", "root")], [[b"k"], [], [b"shop:k"]])
        self.assertEqual(broad.news(), [b"k"])
        for reader in readers.values():
            reader.ask(b"SELECT", b"1")
            reader.get(b"j")
        root = self.resp_door(server, "root")
        self.assertEqual(ask(root, b"SET", b"shop:\xff\xfe\xfd\x01j", b"x"), b"OK")
        self.assertEqual([readers[user].news() for user in ("ada", "bob", "root")], [[b"j"], [], []])
        self.assertEqual(broad.news(), [b"j"])
        # Who logs in as another user hears of that user's keys.
        moved = readers["ada"]
        moved.get(b"j")
        self.assertEqual(moved.ask(b"AUTH", b"bob", b"b"), b"OK")
        self.assertEqual(moved.news(), [None], "what it has read as ada, it hears of no more")
        redirecting = self.resp_door(server, "ada")
        own = b"%d" % ask(self.resp_door(server, "ada"), b"CLIENT", b"ID")
        self.assertEqual(ask(redirecting, b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", own), b"OK")
        self.assertEqual(ask(redirecting, b"AUTH", b"bob", b"b"), b"OK")
        self.assertEqual(ask(redirecting, b"CLIENT", b"GETREDIR"), -1, "ada's connection hears nothing of bob")
        self.assertEqual(ask(root, b"SET", b"shop:\xff\xfe\xfd\x01j", b"y"), b"OK")
        self.assertEqual(moved.news(), [])
        moved.ask(b"GET", b"j")
        self.assertEqual(ask(root, b"SET", b"page:\xff\xfe\xfd\x01j", b"y"), b"OK")
        self.assertEqual(moved.news(), [b"j"])
        # Nobody hears instead who belongs to another user, unless root says so.
        numbers = {user: b"%d" % ask(self.resp_door(server, user), b"CLIENT", b"ID") for user in ("ada", "bob", "eve")}
        ada = self.resp_door(server, "ada")
        own = b"%d" % ask(ada, b"CLIENT", b"ID")
        for number, said in ((numbers["bob"], b"does not exist"), (own, b"OK")):
            self.assertIn(said, ask(ada, b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", number))
        self.assertEqual(ask(root, b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", numbers["bob"]), b"OK")


class OnFlash(FlashCase, RaceCase):
    """With items on flash."""

    def test_the_end_of_an_item_on_flash_is_told_when_it_comes(self):
        server = self.flash_server("--enable-debugtime")
        text = self.connection(server)
        names = [b"k%d" % number for number in range(20)]
        for name in names:
            self.assertEqual(text.ask(b"set %b 0 1000 1000\r\n%b" % (name, b"x" * 1000)), b"STORED")
        self.push_out(text, exptime=100_000)
        reader = Reader(self.connection(server))
        broad = Reader(self.connection(server), b"BCAST", b"PREFIX", b"k")
        for one in (reader, broad):
            self.assertEqual([one.ask(b"GET", name) for name in names[:10]], [b"x" * 1000] * 10)
            self.assertEqual(one.ask(b"MGET", *names[10:]), [b"x" * 1000] * 10)
            self.assertEqual(one.news(), [])
        self.assertEqual(text.ask(b"debugtime 1500"), b"OK")
        heard = {reader: set(), broad: set()}

        def all_heard():
            for one, keys in heard.items():
                keys.update(one.news())
            return all(keys == set(names) for keys in heard.values())

        until(all_heard, "both hear of the end of each")

    def test_a_copy_of_an_item_on_flash_is_told_of_too(self):
        server = self.flash_server()
        text = self.connection(server)
        names = [b"k%d" % number for number in range(50)]
        for number, name in enumerate(names):
            value = noise(number, 5000)
            self.assertEqual(text.ask(b"set %b 0 0 5000\r\n%b" % (name, value)), b"STORED")
        self.push_out(text)
        reader = Reader(self.connection(server))
        self.assertEqual([reader.get(name) for name in names], [noise(number, 5000) for number in range(50)])
        reader.ask(b"MGET", *names)
        self.assertEqual(reader.news(), [], "that it comes from flash is no change")
        for name in names[:25]:
            self.assertEqual(text.ask(b"set %b 0 0 1\r\nx" % name), b"STORED")
        for name in names[25:]:
            self.assertEqual(text.ask(b"delete %b" % name), b"DELETED")
        self.assertEqual(reader.news(), names)
        self.push_out(text, name=b"again")
        self.assertEqual(reader.get(names[0]), b"x")
        self.assertEqual(text.ask(b"flush_prefix k"), b"OK")
        self.assertEqual(reader.news(), [names[0]])

    def test_no_copy_of_what_comes_and_goes_is_stale(self):
        server = self.flash_server("-t", "4")
        self.race(server, value=lambda number: noise(number, 8000), keys=4000)
        self.assertGreater(self.number(self.connection(server), b"items", b"flash"), 0)
