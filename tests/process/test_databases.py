"""Databases of RESP: what is stored in one is in no other, by whatever way it is looked for."""

import os
import random
import signal
import threading

import packets
from flash_support import MEMORY_MIB, FlashCase
from process_support import Case, larder_only
from resp_support import ask, command, receive
from test_keep import KeepCase
from test_prefix import wait_until_forgotten
from test_tenants import TenantsCase


def refused(reply, words):
    """Whether a reply is an error with these words."""
    return isinstance(reply, bytes) and reply.startswith(b"-") and words in reply


class Doors:
    """Connections that have chosen a database."""

    def database(self, server, number):
        """A connection to this database."""
        connection = self.connection(server)
        self.assertEqual(ask(connection, b"SELECT", b"%d" % number), b"OK")
        return connection

    def keys(self, connection):
        """What KEYS and SCAN list, which is the same."""
        listed = sorted(ask(connection, b"KEYS", b"*"))
        cursor, scanned = b"0", set()
        while True:
            cursor, found = ask(connection, b"SCAN", cursor, b"COUNT", b"100")
            scanned.update(found)
            if cursor == b"0":
                break
        self.assertEqual(sorted(scanned), listed)
        return listed


@larder_only
class Databases(Case, Doors):
    """Every command keeps to the database that was chosen."""

    def test_each_database_has_its_own_items(self):
        server = self.server()
        doors = [self.database(server, number) for number in range(16)]
        for number, door in enumerate(doors):
            self.assertEqual(ask(door, b"SET", b"k", b"%d" % number), b"OK")
            self.assertEqual(ask(door, b"SET", b"L" * 300, b"long %d" % number), b"OK")
            self.assertEqual(ask(door, b"SET", b"big", b"%02d" % number + b"x" * 200000), b"OK")
        for number, door in enumerate(doors):
            self.assertEqual(ask(door, b"GET", b"k"), b"%d" % number)
            self.assertEqual(ask(door, b"MGET", b"k", b"L" * 300, b"none"),
                             [b"%d" % number, b"long %d" % number, None])
            self.assertEqual(ask(door, b"GETRANGE", b"big", b"0", b"1"), b"%02d" % number)
            self.assertEqual(self.keys(door), sorted([b"k", b"L" * 300, b"big"]))
            self.assertEqual(ask(door, b"DBSIZE"), 3)
            self.assertIn(ask(door, b"RANDOMKEY"), (b"k", b"L" * 300, b"big"))
        self.assertTrue(refused(ask(doors[0], b"SELECT", b"16"), b"out of range"))
        self.assertTrue(refused(ask(doors[3], b"SELECT", b"x"), b"ERR"))
        self.assertEqual(ask(doors[3], b"GET", b"k"), b"3", "a SELECT that is refused changes nothing")

        # memcached's clients have database 0, and see nothing of the others.
        text = self.connection(server)
        self.assertEqual(text.ask(b"get k"), b"VALUE k 0 1")
        self.assertEqual((text.line(), text.line()), (b"0", b"END"))
        self.assertEqual(text.ask(b"lru_crawler metadump all"), b"OK")
        named = sorted(text.line(b"\n").split()[0] for _ in range(3))
        self.assertEqual(text.line(), b"END")
        self.assertEqual(named[0][:100], b"key=" + b"L" * 96)
        self.assertEqual(named[1:], [b"key=big", b"key=k"])

        listed = ask(doors[5], b"CLIENT", b"LIST")
        self.assertIn(b" db=5 ", listed)
        keyspace = ask(doors[5], b"INFO", b"keyspace")
        self.assertEqual(keyspace.count(b"keys=3,expires=0"), 16, keyspace)

    def test_requests_that_are_sent_together_go_where_the_select_before_them_says(self):
        connection = self.connection(self.server())
        sent = []
        for number in (1, 0, 2, 1, 0):
            sent += [(b"SELECT", b"%d" % number), (b"INCRBY", b"n", b"%d" % (number + 1)), (b"GET", b"n")]
        connection.send(b"".join(command(*words) for words in sent))
        self.assertEqual([receive(connection) for _ in sent],
                         [b"OK", 2, b"2", b"OK", 1, b"1", b"OK", 3, b"3", b"OK", 4, b"4", b"OK", 2, b"2"])
        self.assertEqual(ask(connection, b"SELECT", b"2"), b"OK")
        self.assertEqual(ask(connection, b"RESET"), b"RESET")
        self.assertEqual(ask(connection, b"GET", b"n"), b"2", "RESET goes back to database 0")

    def test_a_flush_is_of_one_database_or_of_all(self):
        server = self.server()
        doors = [self.database(server, number) for number in range(3)]
        for number, door in enumerate(doors):
            for key in range(1000):
                ask(door, b"SET", b"k%d" % key, b"%d" % number)
        self.assertEqual(ask(doors[1], b"FLUSHDB"), b"OK")
        self.assertEqual([len(self.keys(door)) for door in doors], [1000, 0, 1000])
        self.assertEqual(ask(doors[0], b"FLUSHDB"), b"OK")
        self.assertEqual([len(self.keys(door)) for door in doors], [0, 0, 1000])
        self.assertEqual([ask(door, b"DBSIZE") for door in doors], [0, 0, 1000])
        self.assertEqual([ask(door, b"GET", b"k7") for door in doors], [None, None, b"2"])
        self.assertEqual(ask(doors[2], b"FLUSHPREFIX", b"k1"), b"OK")
        self.assertEqual(ask(doors[2], b"DBSIZE"), 1000 - 111)
        self.assertEqual(ask(doors[0], b"SET", b"a", b"new"), b"OK")
        self.assertEqual(ask(doors[1], b"FLUSHALL"), b"OK")
        self.assertEqual([ask(door, b"DBSIZE") for door in doors], [0, 0, 0])
        self.assertEqual(ask(doors[2], b"SET", b"a", b"new"), b"OK")
        self.assertEqual([self.keys(door) for door in doors], [[], [], [b"a"]])

    def test_items_move_and_are_copied_between_databases(self):
        server = self.server()
        zero, one = self.database(server, 0), self.database(server, 1)
        ask(zero, b"SET", b"k", b"v", b"EX", b"1000")
        self.assertTrue(refused(ask(zero, b"MOVE", b"k", b"0"), b"the same"))
        self.assertTrue(refused(ask(zero, b"MOVE", b"k", b"99"), b"out of range"))
        self.assertEqual(ask(zero, b"MOVE", b"k", b"1"), 1)
        self.assertEqual((ask(zero, b"GET", b"k"), ask(one, b"GET", b"k")), (None, b"v"))
        self.assertGreater(ask(one, b"TTL", b"k"), 900)
        self.assertEqual(ask(zero, b"MOVE", b"k", b"1"), 0, "there is no such key")
        ask(zero, b"SET", b"k", b"other")
        self.assertEqual(ask(zero, b"MOVE", b"k", b"1"), 0, "there is one already")
        self.assertEqual((ask(zero, b"GET", b"k"), ask(one, b"GET", b"k")), (b"other", b"v"))
        self.assertEqual(ask(one, b"COPY", b"k", b"k", b"DB", b"0"), 0)
        self.assertEqual(ask(one, b"COPY", b"k", b"k", b"DB", b"0", b"REPLACE"), 1)
        self.assertEqual(ask(one, b"COPY", b"k", b"j", b"DB", b"7"), 1)
        self.assertTrue(refused(ask(one, b"COPY", b"k", b"k", b"DB", b"1"), b"the same"))
        self.assertEqual((ask(zero, b"GET", b"k"), ask(self.database(server, 7), b"GET", b"j")), (b"v", b"v"))

    def test_exchanged_databases_have_each_others_items(self):
        server = self.server()
        doors = [self.database(server, number) for number in range(3)]
        text, packing = self.connection(server), self.connection(server)
        text.ask(b"version")
        for number, door in enumerate(doors):
            for key in range(number + 1):
                ask(door, b"SET", b"k%d" % key, b"%d" % number)
        self.assertEqual(ask(doors[2], b"SWAPDB", b"0", b"1"), b"OK")
        for connections in (doors, [self.database(server, number) for number in range(3)]):
            self.assertEqual([ask(door, b"GET", b"k0") for door in connections], [b"1", b"0", b"2"])
            self.assertEqual([self.keys(door) for door in connections],
                             [[b"k0", b"k1"], [b"k0"], [b"k0", b"k1", b"k2"]])
            self.assertEqual([ask(door, b"DBSIZE") for door in connections], [2, 1, 3])
        for rows in (b"db0:keys=2,", b"db1:keys=1,", b"db2:keys=3,"):
            self.assertIn(rows, ask(doors[0], b"INFO", b"keyspace"))
        self.assertEqual(ask(doors[0], b"MOVE", b"k1", b"1"), 1)
        self.assertEqual((ask(doors[1], b"GET", b"k1"), self.keys(doors[0])), (b"1", [b"k0"]))

        # memcached's clients have database 0, whichever it is: those that are there, and new ones.
        for connection in (text, self.connection(server)):
            self.assertEqual(connection.ask(b"get k0 k1"), b"VALUE k0 0 1")
            self.assertEqual((connection.line(), connection.line()), (b"1", b"END"))
            self.assertEqual(connection.ask(b"set m 0 0 1\r\nm"), b"STORED")
            self.assertEqual(connection.ask(b"mg m v k"), b"VA 1 km")
            self.assertEqual(connection.line(), b"m")
            self.assertEqual(connection.ask(b"lru_crawler metadump all"), b"OK")
            self.assertEqual(sorted(connection.line(b"\n").split()[0] for _ in range(2)), [b"key=k0", b"key=m"])
            self.assertEqual(connection.line(), b"END")
            self.assertEqual(connection.ask(b"verbosity 0"), b"OK", "who has all keys may do all")
        self.assertEqual(packets.ask(packing, packets.packet(packets.GETK, b"m")).key, b"m")
        self.assertEqual(self.keys(doors[0]), [b"k0", b"m"])

        # And back.
        self.assertEqual(ask(doors[0], b"SWAPDB", b"1", b"0"), b"OK")
        self.assertEqual([ask(door, b"GET", b"k0") for door in doors], [b"0", b"1", b"2"])
        self.assertEqual(text.ask(b"get m k0"), b"VALUE k0 0 1")
        self.assertEqual((text.line(), text.line()), (b"0", b"END"))
        self.assertEqual(ask(doors[0], b"SWAPDB", b"2", b"0"), b"OK")
        self.assertEqual(text.ask(b"flush_all"), b"OK", "of all databases")
        self.assertEqual([ask(door, b"DBSIZE") for door in doors], [0, 0, 0])

    def test_what_cannot_be_exchanged_is_said(self):
        connection = self.connection(self.server())
        self.assertEqual(ask(connection, b"SWAPDB", b"3", b"3"), b"OK")
        self.assertTrue(refused(ask(connection, b"SWAPDB", b"0", b"16"), b"out of range"))
        self.assertTrue(refused(ask(connection, b"SWAPDB", b"a", b"1"), b"invalid first DB index"))

    def test_a_transaction_and_a_script_go_on_in_the_exchanged_database(self):
        server = self.server("-t", "1")
        connection, other, text = self.connection(server), self.database(server, 1), self.connection(server)
        text.ask(b"version")
        for door, value in ((connection, b"0"), (other, b"1")):
            ask(door, b"SET", b"k", value)
        # 0 and 1 are exchanged, and then 0 and 2.
        for words in ((b"MULTI",), (b"SWAPDB", b"0", b"1"), (b"GET", b"k"), (b"SELECT", b"1"), (b"GET", b"k"),
                      (b"DBSIZE",), (b"SWAPDB", b"1", b"2"), (b"GET", b"k"), (b"SET", b"k", b"2"),
                      (b"SWAPDB", b"x", b"1"),
                      (b"EVAL", b"return redis.call('GET', KEYS[1])", b"1", b"k"), (b"SELECT", b"2"), (b"GET", b"k"),
                      (b"EVAL", b"return redis.call('SWAPDB', 0, 1)", b"0")):
            ask(connection, *words)
        said = ask(connection, b"EXEC")
        self.assertTrue(refused(said.pop(), b"not allowed from a script in a transaction"), said)
        self.assertTrue(refused(said.pop(8), b"invalid first DB index"), said)
        self.assertEqual(said, [b"OK", b"1", b"OK", b"0", 1, b"OK", None, b"OK", b"2", b"OK", b"0"])
        doors = [self.database(server, number) for number in range(3)]
        self.assertEqual([ask(door, b"GET", b"k") for door in doors], [b"1", b"2", b"0"])
        self.assertEqual(text.get(b"k"), b"1")
        # A script, and requests that were sent with it.
        script = (b"local a = redis.call('GET', 'k') redis.call('SWAPDB', 0, 1) local b = redis.call('GET', 'k') "
                  b"redis.call('SELECT', 1) return {a, b, redis.call('GET', 'k')}")
        sent = [(b"GET", b"k"), (b"EVAL", script, b"0"), (b"GET", b"k"), (b"SET", b"k", b"3"), (b"MGET", b"k", b"k")]
        doors[0].send(b"".join(command(*words) for words in sent))
        self.assertEqual([receive(doors[0]) for _ in sent],
                         [b"1", [b"1", b"2", b"1"], b"2", b"OK", [b"3", b"3"]])
        self.assertEqual([ask(door, b"GET", b"k") for door in doors], [b"3", b"1", b"0"])
        self.assertEqual(text.get(b"k"), b"3")

    def test_an_exchange_is_a_change_for_whoever_watches_or_tracks(self):
        server = self.server()
        connection, other, tracker = self.connection(server), self.database(server, 1), self.connection(server)
        ask(connection, b"SET", b"k", b"0")
        ask(tracker, b"HELLO", b"3")
        self.assertEqual(ask(tracker, b"CLIENT", b"TRACKING", b"ON"), b"OK")
        self.assertEqual(ask(tracker, b"GET", b"k"), b"0")
        ask(connection, b"WATCH", b"k")
        self.assertEqual(ask(other, b"SWAPDB", b"0", b"1"), b"OK")
        self.assertEqual(receive(tracker), [b"invalidate", None])
        ask(connection, b"MULTI")
        ask(connection, b"GET", b"k")
        self.assertIsNone(ask(connection, b"EXEC"))
        # What was queued before is not executed: its keys were those of the other database.
        ask(connection, b"MULTI")
        ask(connection, b"SET", b"k", b"1")
        self.assertEqual(ask(other, b"SWAPDB", b"0", b"1"), b"OK")
        self.assertTrue(refused(ask(connection, b"EXEC"), b"EXECABORT"))
        self.assertEqual((ask(connection, b"GET", b"k"), ask(other, b"GET", b"k")), (b"0", None))

    def test_requests_behind_an_exchange_see_it(self):
        server = self.server()
        connection, other = self.connection(server), self.database(server, 1)
        ask(other, b"SET", b"k", b"1")
        sent = [(b"SET", b"k", b"0"), (b"GET", b"k"), (b"SWAPDB", b"0", b"1"), (b"GET", b"k"), (b"SET", b"k", b"2"),
                (b"MGET", b"k", b"k"), (b"SWAPDB", b"1", b"0"), (b"GET", b"k")] * 50
        connection.send(b"".join(command(*words) for words in sent))
        replies = [receive(connection) for _ in sent]
        self.assertEqual(replies[:8], [b"OK", b"0", b"OK", b"1", b"OK", [b"2", b"2"], b"OK", b"0"])
        self.assertEqual(replies[-8:], [b"OK", b"0", b"OK", b"2", b"OK", [b"2", b"2"], b"OK", b"0"])

    def test_beside_requests_of_all_kinds_an_exchange_happens_at_once(self):
        """Database 0 has one colour, and database 1 the other, whoever looks, and by whatever command."""
        server = self.server("-t", "4")
        doors = [self.database(server, number) for number in range(2)]
        for door, colour in zip(doors, (b"blue", b"green")):
            ask(door, b"MSET", b"a", colour, b"b", colour)
        stop, wrong, looked = threading.Event(), [], [0] * 4

        def look(kind):
            connection = self.connection(server)
            script = b"local a = redis.call('GET', 'a') redis.call('SELECT', 1) return {a, redis.call('GET', 'b')}"
            while not stop.is_set():
                if kind == 0:
                    for words in ((b"MULTI",), (b"GET", b"a"), (b"SELECT", b"1"), (b"GET", b"b"), (b"SELECT", b"0")):
                        ask(connection, *words)
                    seen = ask(connection, b"EXEC")
                    seen = [seen[0], seen[2]] if isinstance(seen, list) else None
                elif kind == 1:
                    seen = ask(connection, b"EVAL", script, b"0")
                elif kind == 2:
                    # It waits to be alone in the middle of its requests, and writes to database 0 before and behind.
                    number = b"%d" % looked[kind]
                    writes = ((b"MULTI",), (b"SET", b"w", number), (b"EXEC",), (b"SET", b"w", number),
                              (b"EVAL", b"redis.call('SET', 'w', ARGV[1])", b"0", number), (b"SET", b"w", number))
                    connection.send(b"".join(command(*words) for words in writes))
                    for _ in writes:
                        receive(connection)
                    seen = None
                else:
                    connection.send(b"".join(command(b"MGET", b"a", b"b") for _ in range(8)))
                    pairs = [receive(connection) for _ in range(8)]
                    wrong.extend(pair for pair in pairs if pair[0] != pair[1])
                    seen = None
                if seen is not None and sorted(seen) != [b"blue", b"green"]:
                    wrong.append(seen)
                looked[kind] += 1

        threads = [threading.Thread(target=look, args=(kind,)) for kind in (0, 1, 2, 2, 2, 2, 3)]
        for thread in threads:
            thread.start()
        text, colours = self.connection(server), [b"blue", b"green"]
        exchanges = 0
        try:
            while exchanges < 300 or min(looked) < 50:
                self.assertEqual(ask(doors[exchanges % 2], b"SWAPDB", b"0", b"1"), b"OK")
                exchanges += 1
                colours.reverse()
                # Whoever asks after the answer sees it, and nobody writes to what is database 1 now.
                written = ask(doors[1], b"GET", b"w")
                self.assertEqual([ask(door, b"GET", b"a") for door in doors], colours)
                self.assertEqual(text.ask(b"get a"), b"VALUE a 0 %d" % len(colours[0]))
                self.assertEqual((text.line(), text.line()), (colours[0], b"END"))
                self.assertEqual(ask(doors[1], b"GET", b"w"), written)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])

    def test_a_flush_of_another_database_leaves_watched_keys_alone(self):
        server = self.server()
        for number in range(2):
            connection, other = self.database(server, number), self.database(server, 1 - number)
            for flush in ([b"FLUSHDB"], [b"FLUSHPREFIX", b"k"]):
                ask(connection, b"SET", b"k", b"v")
                ask(connection, b"WATCH", b"k")
                self.assertEqual(ask(other, *flush), b"OK")
                ask(connection, b"MULTI")
                ask(connection, b"GET", b"k")
                self.assertEqual(ask(connection, b"EXEC"), [b"v"])

    def test_bytes_of_the_mark_lead_to_no_other_database(self):
        server = self.server()
        zero, one = self.database(server, 0), self.database(server, 1)
        for door in (zero, one):
            ask(door, b"SET", b"k", b"v")
        for prefix in (b"\xff", b"\xff\xfe", b"\xff\xfe\xfd", b"a\xff"):
            self.assertTrue(refused(ask(zero, b"FLUSHPREFIX", prefix), b"ERR"), prefix)
        self.assertEqual(self.keys(one), [b"k"])
        ask(one, b"SET", b"\xff\xfe\xfdx", b"v")
        self.assertEqual(self.keys(one), [b"k", b"\xff\xfe\xfdx"])
        self.assertEqual(ask(one, b"FLUSHDB"), b"OK")
        self.assertEqual((self.keys(one), self.keys(zero)), ([], [b"k"]))
        ask(zero, b"SET", b"L" * 65536, b"v")
        self.assertTrue(refused(ask(zero, b"MOVE", b"L" * 65536, b"1"), b"too long"))

    def test_a_transaction_chooses_a_database_when_it_is_executed(self):
        server = self.server()
        connection, other = self.connection(server), self.database(server, 1)
        for words in ((b"MULTI",), (b"SET", b"k", b"0"), (b"SELECT", b"1"), (b"SET", b"k", b"1"), (b"DBSIZE",)):
            ask(connection, *words)
        self.assertEqual(ask(connection, b"EXEC"), [b"OK", b"OK", b"OK", 1])
        self.assertEqual(ask(connection, b"GET", b"k"), b"1")
        self.assertEqual(ask(other, b"GET", b"k"), b"1")
        for words in ((b"MULTI",), (b"SELECT", b"0"), (b"SET", b"k", b"lost"), (b"DISCARD",)):
            ask(connection, *words)
        self.assertEqual(ask(connection, b"GET", b"k"), b"1", "what was discarded chose nothing")
        self.assertEqual(ask(self.connection(server), b"GET", b"k"), b"0")

    def test_databases_are_as_many_as_the_setting_says(self):
        server = self.server("--databases", "2")
        self.assertEqual(ask(self.connection(server), b"CONFIG", b"GET", b"databases"), [b"databases", b"2"])
        self.database(server, 1)
        self.assertTrue(refused(ask(self.connection(server), b"SELECT", b"2"), b"out of range"))

    def test_random_requests_in_four_databases_do_what_four_dictionaries_do(self):
        server = self.server("-m", "64")
        chance = random.Random(7)
        doors = [self.database(server, number) for number in range(4)]
        twins = [{} for _ in doors]
        for step in range(4000):
            at = chance.randrange(4)
            door, twin, key = doors[at], twins[at], b"k%d" % chance.randrange(40)
            kind = chance.random()
            if kind < 0.4:
                twin[key] = b"%d" % step
                self.assertEqual(ask(door, b"SET", key, twin[key]), b"OK")
            elif kind < 0.7:
                self.assertEqual(ask(door, b"GET", key), twin.get(key))
            elif kind < 0.8:
                self.assertEqual(ask(door, b"DEL", key), int(twin.pop(key, None) is not None))
            elif kind < 0.9:
                to = (at + 1 + chance.randrange(3)) % 4
                moves = key in twin and key not in twins[to]
                if moves:
                    twins[to][key] = twin.pop(key)
                self.assertEqual(ask(door, b"MOVE", key, b"%d" % to), int(moves))
            elif kind < 0.98:
                self.assertEqual(self.keys(door), sorted(twin))
            elif kind < 0.99:
                to = chance.randrange(4)
                self.assertEqual(ask(door, b"SWAPDB", b"%d" % at, b"%d" % to), b"OK")
                twins[at], twins[to] = twins[to], twins[at]
            else:
                twin.clear()
                self.assertEqual(ask(door, b"FLUSHDB"), b"OK")


class Kept(KeepCase, Doors):
    """Where items outlive the process."""

    def test_a_later_process_has_every_item_in_its_database(self):
        server = self.kept()
        for number in range(3):
            ask(self.database(server, number), b"SET", b"k", b"%d" % number)
        server, connection = self.again(server, signal.SIGKILL)
        self.assertEqual(ask(connection, b"DBSIZE"), 1)
        self.assertEqual(ask(connection, b"FLUSHDB"), b"OK")
        doors = [self.database(server, number) for number in range(3)]
        self.assertEqual([ask(door, b"GET", b"k") for door in doors], [None, b"1", b"2"])
        # A process that is killed while a delete is under way leaves nothing.
        wait_until_forgotten(self.connection(server))
        self.assertEqual(ask(doors[0], b"SWAPDB", b"0", b"2"), b"OK")
        self.assertEqual(ask(doors[0], b"SWAPDB", b"2", b"1"), b"OK")
        for ending in (signal.SIGKILL, signal.SIGTERM):
            server, connection = self.again(server, ending)
            doors = [self.database(server, number) for number in range(3)]
            self.assertEqual([ask(door, b"GET", b"k") for door in doors], [b"2", None, b"1"])
            self.assertEqual(connection.ask(b"get k"), b"VALUE k 0 1")
            self.assertEqual((connection.line(), connection.line()), (b"2", b"END"))


class Flash(FlashCase, Doors):
    """With items on flash."""

    def test_items_on_flash_are_those_of_their_database(self):
        server = self.flash_server()
        doors, text = [self.database(server, number) for number in range(3)], self.connection(server)
        value, count = b"x" * 1000, 4 * MEMORY_MIB * 900
        for start in range(0, count, 300):
            for number, door in enumerate(doors):
                keys = range(start + number, start + 300, 3)
                door.send(b"".join(command(b"SET", b"k%d" % key, b"%d" % number + value) for key in keys))
            self.assertEqual({receive(door) for door in doors for _ in range(100)}, {b"OK"})
            self.wait_for_flash(text)
        self.assertGreater(self.number(text, b"items", b"flash"), 1000)
        for key in range(0, count, 97):
            found = [ask(door, b"GET", b"k%d" % key) for door in doors]
            self.assertEqual(found.pop(key % 3), b"%d" % (key % 3) + value)
            self.assertEqual(found, [None, None])
        self.assertEqual(ask(doors[1], b"FLUSHDB"), b"OK")
        self.assertEqual([len(self.keys(door)) for door in doors], [count // 3, 0, count // 3])
        self.assertEqual(ask(doors[0], b"FLUSHDB"), b"OK")
        self.assertEqual([len(self.keys(door)) for door in doors], [0, 0, count // 3])

    def test_a_restart_finds_exchanged_databases_or_none_of_their_items(self):
        for recover in ("journal", "clean"):
            with self.subTest(recover):
                self.path = os.path.join(self.folder(), "flash")
                options = ("--flash-recover", recover)
                server = self.flash_server(*options)
                doors = [self.database(server, number) for number in range(2)]
                for number, door in enumerate(doors):
                    self.assertEqual(ask(door, b"SET", b"k", b"%d" % number), b"OK")
                self.assertEqual(ask(doors[0], b"SWAPDB", b"0", b"1"), b"OK")
                server.stop()
                server = self.flash_server(*options)
                doors = [self.database(server, number) for number in range(2)]
                self.wait_for_recovery(self.connection(server))
                self.assertGreater(sum(ask(door, b"DBSIZE") for door in doors), 0, "before memory has anything")
                self.assertEqual([ask(door, b"GET", b"k") for door in doors], [b"1", b"0"])
                for _ in range(2):
                    # What a kill leaves on flash is still of its database; in mode `clean` nothing is left.
                    server.stop(signal.SIGKILL)
                    server = self.flash_server(*options)
                    doors = [self.database(server, number) for number in range(2)]
                    for found, right in zip([ask(door, b"GET", b"k") for door in doors], (b"1", b"0")):
                        self.assertIn(found, (right, None))
                server.stop()


class Tenants(TenantsCase, Doors):
    """Users with a namespace have databases of their own."""

    def test_a_user_has_databases_that_nobody_else_sees(self):
        server = self.serve()
        doors = {}
        for user in ("ada", "bob", "root"):
            for number in range(2):
                door = self.resp_door(server, user)
                self.assertEqual(ask(door, b"SELECT", b"%d" % number), b"OK")
                self.assertEqual(ask(door, b"SET", b"k", b"%s %d" % (user.encode(), number)), b"OK")
                doors[user, number] = door
        for (user, number), door in doors.items():
            self.assertEqual(ask(door, b"GET", b"k"), b"%s %d" % (user.encode(), number))
            if user != "root":
                self.assertEqual(self.keys(door), [b"k"])
        self.assertEqual(self.keys(doors["root", 0]), [b"k", b"page:k", b"page:\xff\xfe\xfd\x01k", b"shop:k",
                                                       b"shop:\xff\xfe\xfd\x01k"])
        self.assertEqual(self.keys(doors["root", 1]), [b"k"])
        self.assertTrue(refused(ask(doors["ada", 0], b"SWAPDB", b"0", b"1"), b"a user with a namespace"))
        for _ in range(2):
            # The databases of others stay where they are.
            self.assertEqual(ask(doors["root", 0], b"SWAPDB", b"0", b"1"), b"OK")
            self.assertEqual(ask(doors["ada", 1], b"GET", b"k"), b"ada 1")
        self.assertEqual(ask(doors["ada", 1], b"MOVE", b"k", b"0"), 0)
        self.assertEqual(ask(doors["ada", 0], b"FLUSHDB"), b"OK")
        self.assertEqual([ask(doors["ada", number], b"DBSIZE") for number in range(2)], [0, 1])
        self.assertEqual(ask(doors["ada", 1], b"MOVE", b"k", b"0"), 1)
        self.assertEqual(ask(doors["ada", 1], b"SET", b"j", b"x"), b"OK")
        self.assertEqual(self.door(server, "ada").ask(b"flush_all"), b"OK")
        self.assertEqual([ask(doors["ada", number], b"DBSIZE") for number in range(2)], [0, 0])
        self.assertEqual([ask(doors["bob", number], b"DBSIZE") for number in range(2)], [1, 1])
        self.assertEqual([self.keys(doors["root", number]) for number in range(2)],
                         [[b"k", b"page:k", b"page:\xff\xfe\xfd\x01k"], [b"k"]])

    def test_who_has_not_logged_in_gets_nothing_of_an_exchanged_database(self):
        server = self.serve()
        root, waiting = self.resp_door(server, "root"), self.connection(server)
        ask(root, b"SET", b"k", b"secret")
        self.assertEqual(waiting.ask(b"get k"), b"CLIENT_ERROR unauthenticated")
        self.assertEqual(ask(root, b"SWAPDB", b"0", b"1"), b"OK")
        ask(root, b"SET", b"k", b"secret")
        for connection in (waiting, self.connection(server)):
            for line in (b"get k", b"get k", b"mg k v", b"gat 0 k", b"lru_crawler metadump all", b"stats settings",
                         b"watch", b"version", b"set auth 0 0 6\r\nroot x", b"get k", b"delete k"):
                self.assertTrue(connection.ask(line).startswith(b"CLIENT_ERROR"), line)
            self.assertEqual(connection.ask(b"set auth 0 0 6\r\nroot r"), b"STORED")
            self.assertEqual(connection.get(b"k"), b"secret")
        _, status = self.binary(server, "root", "x")
        self.assertNotEqual(status, packets.OK)
        self.assertTrue(refused(ask(self.connection(server), b"GET", b"k"), b"NOAUTH"))
        self.assertEqual(self.door(server, "ada").get(b"k"), None)

    def test_a_login_between_multi_and_exec_moves_nothing_of_others(self):
        server = self.serve()
        root, ada = self.resp_door(server, "root"), self.resp_door(server, "ada")
        ask(root, b"SET", b"k", b"v")
        for words in ((b"MULTI",), (b"AUTH", b"ada", b"a"), (b"MOVE", b"k", b"1")):
            ask(root, *words)
        said = ask(root, b"EXEC")
        self.assertTrue(refused(said[1], b"ERR"), said)
        self.assertEqual(ask(ada, b"DBSIZE"), 0)
