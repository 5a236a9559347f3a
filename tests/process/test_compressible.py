"""`larder trace compressible`: what compression would make of a user's own values."""

import json
import os
import random
import shutil

import support
from process_support import Case, larder_only, run_program
from resp_support import ask
from test_capture import valkey

VALUES = 1500
NOISE = bytes(range(33, 127)) + bytes(range(128, 256))


def user(number):
    """A value that has much in common with its like."""
    return json.dumps({"id": number, "name": "user %d" % number, "mail": "user%d@example.org" % number,
                       "city": ("Lagos", "Lima", "Oslo", "Pune")[number % 4], "active": number % 3 == 0,
                       "score": number * 7919 % 10007, "roles": ["reader", "editor"],
                       "created": "2026-03-%02dT10:00:00Z" % (number % 28 + 1)}).encode()


@larder_only
class Compressible(Case):
    """Users shrink to a third, random bytes do not."""

    def values(self):
        """Keys and values of two kinds, and some without one."""
        chance = random.Random(1)
        for number in range(VALUES):
            yield b"user:%d" % number, user(number)
            # Every letter by chance: nothing to be saved but two bits of eight.
            yield b"noise:%d" % number, bytes(chance.choice(NOISE) for _ in range(200))
            yield b"k%d" % number, b"%d" % number

    def rows(self, *words):
        """The kinds of a report: name, values, times smaller, share compressed; and the facts."""
        status, said, error = run_program("trace", "compressible", *words, "--json", "-", "--quiet")
        self.assertEqual((status, error), (0, ""), said)
        report = json.loads(said)
        table = report["tables"][0] if "tables" in report else next(
            part["table"] for part in report["parts"] if "table" in part)
        at = {name: place for place, name in enumerate(table["columns"])}
        return {row[at["kind"]]: [row[at[name]] for name in ("values", "times smaller", "compressed %")]
                for row in table["rows"]}

    def check(self, rows, count=VALUES):
        """Fails unless the rows are those of the values."""
        self.assertEqual(sorted(rows), ["(no kind)", "noise", "user"])
        self.assertEqual({row[0] for row in rows.values()}, {count})
        self.assertGreater(rows["user"][1], 2.5)
        self.assertEqual(rows["user"][2], 100)
        self.assertEqual(rows["noise"][1:], [1, 0])
        self.assertEqual(rows["(no kind)"][1:], [1, 0])

    def store(self, connection):
        """Stores the values by memcached's protocol."""
        for key, value in self.values():
            self.assertEqual(connection.set(key, value), b"STORED")

    def test_a_server_of_larder(self):
        server = self.server()
        self.store(self.connection(server))
        self.check(self.rows("--server", "127.0.0.1:%d" % server.port))

    def test_a_server_of_memcached(self):
        if not shutil.which("memcached"):
            self.skipTest("there is no memcached")
        server = support.Server("memcached", defaults=["-m", "64"])
        self.addCleanup(server.stop)
        self.store(self.connection(server))
        self.check(self.rows("--server", "127.0.0.1:%d" % server.port))

    def test_a_server_of_redis(self):
        port, client = valkey(self)
        for key, value in self.values():
            self.assertEqual(ask(client, b"SET", key, value), b"OK")
        self.assertEqual(ask(client, b"HSET", b"user:h", b"f", b"v"), 1)
        self.check(self.rows("--server", "127.0.0.1:%d" % port))

    def test_a_file(self):
        path = os.path.join(self.folder(), "values")
        with open(path, "wb") as file:
            file.write(b"".join(b"%b\t%b\n" % pair for pair in self.values()))
        self.check(self.rows(path))
        with open(path, "wb") as file:
            file.write(b"".join(user(number) + b"\n" for number in range(2000)))
        rows = self.rows(path, "--values", "1000")
        self.assertEqual((list(rows), rows["(no kind)"][0]), (["(no kind)"], 1000))
        self.assertGreater(rows["(no kind)"][1], 2.5)

    def test_what_cannot_be_read_is_said(self):
        status, _, error = run_program("trace", "compressible", "/nowhere")
        self.assertEqual(status, 1)
        self.assertIn("/nowhere: No such file", error)
        status, _, error = run_program("trace", "compressible", "--server", "127.0.0.1:1")
        self.assertEqual(status, 2)
        self.assertIn("127.0.0.1:1: ", error)
        status, _, error = run_program("trace", "compressible", os.devnull)
        self.assertEqual(status, 1)
        self.assertIn("there are no values", error)
