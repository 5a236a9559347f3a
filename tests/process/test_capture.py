"""`larder capture`: what the clients of a running server ask for, as a trace that the other commands read."""

import csv
import gzip
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import process_support  # noqa: F401 (finds the modules below)
import support
from process_support import Case, is_at_work, larder_only, program, run_program
from resp_support import ask

VALKEY = os.path.join(support.tools_folder(), "peers", "valkey-server")


def valkey(test):
    """The port of a Valkey that runs until the test ends, and a connection to it."""
    if not os.path.exists(VALKEY):
        test.skipTest("there is no Valkey (see tests/peers.sh)")
    port, client = support.free_port(), []
    server = subprocess.Popen([VALKEY, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
    test.addCleanup(server.wait)
    test.addCleanup(server.kill)
    support.until_no_error(lambda: client.append(support.Connection("127.0.0.1", port)))
    test.addCleanup(client[0].close)
    return port, client[0]


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

    def test_a_redis_tells_by_monitor(self):
        port, client = valkey(self)
        capture = self.capture(port, "--limit", "4")
        support.until(lambda: b"monitor" in ask(client, b"CLIENT", b"LIST"), "it is monitored")
        for words in ((b"GET", b"a"), (b"SET", b"a", b"12345", b"EX", b"9"), (b"MGET", b"a", b"bc")):
            ask(client, *words)
        self.assertIn("MONITOR", self.ended(capture))
        self.assertEqual(self.rows(), [("get", 1, 5), ("set", 1, 5), ("get", 1, 5), ("get", 2, 5)])


class Packets:
    """Writes what passes the loopback device from and to a port to a pcap file, as tcpdump does."""

    EVERY_PROTOCOL, SENT, FORCE_BUFFER = 3, 4, 33

    def __init__(self, path, port, snap_bytes):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(self.EVERY_PROTOCOL))
        self._socket.setsockopt(socket.SOL_SOCKET, self.FORCE_BUFFER, 64 << 20)
        self._socket.bind(("lo", self.EVERY_PROTOCOL))
        self._port, self._snap_bytes, self._last = struct.pack(">H", port), snap_bytes, None
        self._file = open(path, "wb")
        self._file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, snap_bytes, 1))
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self):
        while self._last is None:
            packet, (_, _, way, _, _) = self._socket.recvfrom(1 << 18)
            ports = 14 + (40 if packet[12:14] == b"\x86\xdd" else 20)
            # The device gives each packet as sent and as received.
            if way != self.SENT or self._port not in (packet[ports:ports + 2], packet[ports + 2:ports + 4]):
                continue
            now, kept = time.time_ns() // 1000, packet[:self._snap_bytes]
            self._file.write(struct.pack("<IIII", now // 1000000, now % 1000000, len(kept), len(packet)) + kept)
            if b"MN\r\n" in packet:
                self._last = packet

    def close(self):
        """Ends once the answer to `mn` is written."""
        self._thread.join(support.WAIT_SECONDS_MAX)
        self._file.close()
        self._socket.close()
        if self._last is None:
            raise AssertionError("the last packet has not come")


@larder_only
class CapturedPackets(Case):
    """The packets of real clients and a real server become a trace that has the hits which the server counted."""

    def setUp(self):
        self.out = os.path.join(self.folder(), "trace.csv")
        self.pcap = os.path.join(self.folder(), "traffic.pcap")

    def packets(self, port, snap_bytes):
        """What captures packets, where that is allowed."""
        try:
            return Packets(self.pcap, port, snap_bytes)
        except PermissionError:
            return self.skipTest("packets may be captured by root alone")

    def traffic(self, protocol, snap_bytes):
        """Captures the load of `larder replay` on a server. Returns the port, and how many reads hit and missed."""
        server = self.server()
        packets = self.packets(server.port, snap_bytes)
        self.addCleanup(packets._socket.close)
        status, _, error = run_program(
            "replay", "--server", "127.0.0.1:%d" % server.port, "--protocol", protocol, "--read-through", "--workload",
            "zipfian:keys=500,requests=4k,theta=0.8,sizes=fixed:300,seed=3", "--connections", "3", "--depth", "1")
        self.assertEqual((status, error), (0, ""))
        client = self.connection(server)
        counted = client.stats()
        self.assertEqual(client.ask(b"mn"), b"MN")
        packets.close()
        return server.port, int(counted[b"get_hits"]), int(counted[b"get_misses"])

    def captured(self, *words, given=None):
        """What `larder capture` prints for the packets: (status, standard output, errors)."""
        done = subprocess.run([program(), "capture", *words, "-o", self.out, "--force"], stdin=given, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=support.WAIT_SECONDS_MAX)
        return done.returncode, done.stdout, done.stderr

    def test_the_trace_hits_as_the_server_did(self):
        # The second one keeps the heads of requests and answers, and 90 of the 300 bytes of a value.
        for protocol, snap_bytes in (("memcached", 1 << 18), ("resp", 180)):
            with self.subTest(protocol=protocol, snap_bytes=snap_bytes):
                port, hits, misses = self.traffic(protocol, snap_bytes)
                self.assertTrue(hits > 2000 and misses > 100, (hits, misses))
                status, said, error = self.captured(self.pcap, "--port", str(port))
                self.assertEqual((status, error), (0, ""), said)
                self.assertIn("%.2f %% of %d reads have hit\n" % (100 * hits / (hits + misses), hits + misses), said)
                self.assertNotIn("not captured", said)
                with open(self.out, newline="") as file:
                    rows = list(csv.DictReader(file))
                self.assertEqual({row["value_size"] for row in rows}, {"300"})
                self.assertEqual(len([row for row in rows if row["op"] == "get"]), hits + misses)
                # Nothing was evicted, so the first read of a key is the one that missed.
                status, curve, error = run_program("mrc", self.out, "--json", "-")
                self.assertEqual((status, error), (0, ""))
                curve = json.loads(curve)["curves"][0]
                self.assertEqual((curve["requests"], curve["cold_misses"]), (hits + misses, misses))
                with open(self.pcap, "rb") as file:
                    self.assertEqual(self.captured("-", "--port", str(port), given=file)[0], 0)
                with open(self.out, newline="") as file:
                    self.assertEqual(list(csv.DictReader(file)), rows, "standard input is read alike")

    def test_an_interrupted_one_has_what_it_has_read(self):
        port, hits, misses = self.traffic("memcached", 1 << 18)
        with open(self.pcap, "rb") as file, gzip.open(self.pcap + ".gz", "wb", 1) as longer:
            longer.write(file.read())
            # Packets without a byte.
            for _ in range(30):
                longer.write(bytes(16 * 1_000_000))
        capture = subprocess.Popen([program(), "capture", self.pcap + ".gz", "--port", str(port), "-o", self.out],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(capture.kill)
        support.until(lambda: is_at_work(capture), "the capture has begun")
        capture.send_signal(signal.SIGTERM)
        said, error = capture.communicate(timeout=support.WAIT_SECONDS_MAX)
        self.assertEqual(capture.returncode, 143, error)
        self.assertRegex(error, r"^larder: interrupted after [\d,]+ requests, [\d.]+ % of the trace: the trace is in")
        self.assertIn("of %d reads have hit" % (hits + misses), said)
        with open(self.out) as file:
            self.assertGreater(sum(1 for _ in file), hits + misses)

    def test_what_cannot_be_read_is_told(self):
        port, hits, misses = self.traffic("memcached", 1 << 18)
        status, said, error = self.captured(self.pcap)
        self.assertEqual((status, said), (1, ""))
        self.assertIn("no client has asked for a key at port 11211 or 6379: --port names others", error)
        with open(self.pcap, "r+b") as file:
            file.seek(-6, os.SEEK_END)
            file.truncate()
        status, said, error = self.captured(self.pcap, "--port", str(port))
        self.assertEqual((status, error), (0, ""))
        self.assertRegex(said, r"notice: .*the file breaks off in its packet \d+")
        with open(self.pcap, "ab") as file:
            file.write(b"\xff" * 100)
        status, said, error = self.captured(self.pcap, "--port", str(port))
        self.assertEqual(status, 1)
        self.assertRegex(error, r"is damaged after \d+ packets: .*; the trace has what came before\n$")
        self.assertEqual(int(re.search(r"of (\d+) reads have hit", said)[1]), hits + misses)
        self.assertIn("is for a file of packets", self.captured("127.0.0.1:1", "--port", "1")[2])
        self.assertIn("are for a running server", self.captured(self.pcap, "--from", "redis")[2])


if __name__ == "__main__":
    unittest.main()
