"""Items that only flash has, while others make it busy: each is there for every command, and none is lost."""

import threading
import unittest

import support
from flash_support import FlashCase
from process_support import larder_only
from resp_support import ask, command, receive

KEYS = 4000


@larder_only
class Alone(FlashCase):
    """A stop has put all items on flash, and a start has left them there."""

    def on_flash(self, *stores, mode="clean"):
        """A connection to a server that has what these functions store for each number, on flash alone."""
        flags = ("--flash-recover", mode)
        server = self.flash_server(*flags, memory=64, flash=64)
        connection, door = self.connection(server), self.connection(server)
        for number in range(KEYS):
            for store in stores:
                store(connection, door, number)
        self.assertEqual(connection.ask(b"mn"), b"MN")
        self.assertEqual(server.stop(), 0)
        server = self.flash_server(*flags, memory=64, flash=64)
        connection = self.connection(server)
        self.wait_for_recovery(connection)
        return server, connection

    @staticmethod
    def text(name):
        """Stores a text under a name and its number."""
        return lambda connection, _, number: connection.send(b"set %b%d 0 0 1 noreply\r\n5\r\n" % (name, number))

    def test_deleting_a_prefix_that_no_key_has_hides_nothing(self):
        server, connection = self.on_flash(self.text(b"k"))
        door, deleter, over, deletes = self.connection(server), self.connection(server), threading.Event(), []

        def delete():
            while not over.is_set():
                deletes.append(deleter.ask(b"flush_prefix nobody:"))
        thread = threading.Thread(target=delete)
        thread.start()
        try:
            wrong = []
            for number in range(KEYS):
                key = b"k%d" % number
                way = number % 4
                if way == 0 and connection.get(key) != b"5":
                    wrong.append((key, "get"))
                elif way == 1 and connection.ask(b"add %b 0 0 1\r\nx" % key) != b"NOT_STORED":
                    wrong.append((key, "add"))
                elif way == 2 and connection.ask(b"incr %b 1" % key) != b"6":
                    wrong.append((key, "incr"))
                elif way == 3 and ask(door, b"SET", key, b"x", b"NX") is not None:
                    wrong.append((key, "SET NX"))
        finally:
            over.set()
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(set(deletes), {b"OK"})

    def test_a_transaction_uses_again_what_it_has_deleted(self):
        def a_set(_, door, number):
            ask(door, b"SADD", b"t%d" % number, b"a")
        server, _ = self.on_flash(a_set, self.text(b"n"), mode="journal")
        door = self.connection(server)
        script = b"""redis.call('DEL', KEYS[1]); local was = redis.call('EXISTS', KEYS[1])
            redis.call('SET', KEYS[1], 'x'); return was"""
        for _ in range(2):
            for number in range(KEYS // 2):
                tags, count = b"t%d" % number, b"n%d" % number
                door.send(command(b"MULTI") + command(b"DEL", tags) + command(b"SADD", tags, b"a")
                          + command(b"GETDEL", count) + command(b"INCR", count) + command(b"EXEC"))
                done = [receive(door) for _ in range(6)][-1]
                self.assertEqual((done[0], done[1], done[3]), (1, 1, 1), number)
                self.assertEqual(ask(door, b"EVAL", script, b"1", b"n%d" % (number + KEYS // 2)), 0)

    def test_a_reclaim_beside_deletes_loses_nothing_else(self):
        _, connection = self.on_flash(self.text(b"t"), self.text(b"n"))
        for number in range(KEYS):
            self.assertEqual(connection.ask(b"delete t%d" % number), b"DELETED")
        support.until(lambda: self.number(connection, b"reclaims", b"flash") > 0, "a zone was reclaimed")
        lost = [number for number in range(KEYS) if connection.get(b"n%d" % number) != b"5"]
        self.assertEqual(lost, [])


if __name__ == "__main__":
    unittest.main()
