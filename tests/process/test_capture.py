"""`larder capture`: what the clients of a running server ask for, as a trace that the other commands read."""

import csv
import os
import signal
import subprocess
import unittest

import process_support  # noqa: F401 (finds the modules below)
import support
from process_support import Case, larder_only, program, run_program
from resp_support import ask

VALKEY = os.path.join(support.tools_folder(), "peers", "valkey-server")


@larder_only
class Capture(Case):
    """A server of memcached's protocol tells by `watch`, one of Redis's by `MONITOR`."""

    def setUp(self):
        self.out = os.path.join(self.folder(), "trace.csv")

    def capture(self, port, *flags):
        """A capture that runs."""
        made = subprocess.Popen([program(), "capture", "127.0.0.1:%d" % port, "-o", self.out, *flags], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(made.communicate)
        self.addCleanup(made.kill)
        return made

    def watched(self, *flags):
        """A connection to a server that a capture of these flags watches, and the capture."""
        server = self.server()
        capture = self.capture(server.port, *flags)
        client = self.connection(server)
        support.until(lambda: b"conn_watch" in client.stats(b"conns").values(), "the server is watched")
        return client, capture

    def ended(self, capture, status=0):
        """What a capture printed that has ended."""
        printed = capture.communicate(timeout=support.WAIT_SECONDS_MAX)
        self.assertEqual(capture.returncode, status, printed)
        return "".join(printed)

    def rows(self):
        """The requests of the trace: operation, bytes of key and value."""
        with open(self.out, newline="") as file:
            return [(row["op"], int(row["key_size"]), int(row["value_size"])) for row in csv.DictReader(file)]

    def test_reads_and_stores_become_a_trace(self):
        client, capture = self.watched("--limit", "400")
        for number in range(100):
            # A page of events that is full takes no more.
            told = b"%d" % (6 * number)
            support.until(lambda told=told: client.stats()[b"log_watcher_sent"] == told, "the lines are sent")
            key = b"key:%03d" % number
            self.assertIsNone(client.get(key))
            self.assertEqual(client.set(key, b"v" * (number + 1)), b"STORED")
            self.assertEqual(client.get(key), b"v" * (number + 1))
            self.assertEqual(client.ask(b"delete " + key), b"DELETED")
        self.assertIn("50.00 % of 200 reads have hit", self.ended(capture))
        expected = [(op, 7, number + 1) for number in range(100) for op in ("get", "set", "get", "delete")]
        self.assertEqual(self.rows(), expected, "a read that missed has the size of the store")
        status, said, error = run_program("mrc", self.out, "--sizes", "1m")
        self.assertEqual((status, error), (0, ""))
        status, said, error = run_program("plan", "--trace", self.out, "--dram", "1g", "--flash", "2g")
        self.assertEqual(status, 0, error)
        self.assertIn("A machine with 1 GiB of DRAM and 2 GiB of flash", said)

    def test_an_interrupted_one_has_what_has_come(self):
        client, capture = self.watched("--quiet")
        for number in range(50):
            client.set(b"%d" % number, b"value")
            told = b"%d" % (2 * number + 2)
            support.until(lambda told=told: client.stats()[b"log_watcher_sent"] == told, "the lines are sent")
        capture.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(capture), "")
        self.assertEqual(self.rows(), [("set", len(str(number)), 5) for number in range(50)])

    def test_what_cannot_be_done_is_told(self):
        server = self.server()
        self.assertIn("no client has asked for a key", self.ended(self.capture(server.port, "--for", "1s"), 1))
        self.assertFalse(os.path.exists(self.out))
        free = support.free_port()
        self.assertIn("127.0.0.1:%d" % free, self.ended(self.capture(free), 2))
        with open(self.out, "w") as file:
            file.write("mine")
        self.assertIn("exists already", self.ended(self.capture(server.port), 1))
        self.assertIn("is not a time", self.ended(self.capture(server.port, "--for", "soon"), 64))

    def test_a_server_that_tells_nothing(self):
        self.assertIn("does not tell what its clients do", self.ended(self.capture(self.server("-W").port), 2))

    @unittest.skipUnless(os.path.exists(VALKEY), "there is no Valkey (see tests/peers.sh)")
    def test_a_redis_tells_by_monitor(self):
        port = support.free_port()
        server = subprocess.Popen([VALKEY, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        client = []
        support.until_no_error(lambda: client.append(support.Connection("127.0.0.1", port)))
        self.addCleanup(client[0].close)
        capture = self.capture(port, "--limit", "4")
        support.until(lambda: b"monitor" in ask(client[0], b"CLIENT", b"LIST"), "it is monitored")
        for words in ((b"GET", b"a"), (b"SET", b"a", b"12345", b"EX", b"9"), (b"MGET", b"a", b"bc")):
            ask(client[0], *words)
        self.assertIn("MONITOR", self.ended(capture))
        self.assertEqual(self.rows(), [("get", 1, 5), ("set", 1, 5), ("get", 1, 5), ("get", 2, 5)])


if __name__ == "__main__":
    unittest.main()
