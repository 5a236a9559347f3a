"""What stays when memory is full, and where that is decided: `--temperature` and `--device`."""

import os
import shutil
import subprocess
import unittest

import support
from process_support import Case, larder_only, run_to_end

KERNELS = os.path.join(support.REPOSITORY, "crates", "cuda", "kernels")
STAND_IN = os.path.join(support.REPOSITORY, "crates", "cuda", "tests", "stand_in_driver", "driver.cpp")
HOT_KEYS = 2000
# Several times what 16 MiB hold.
COLD_KEYS = 150_000
COLD_BATCH = 500
# More than half of what 16 MiB hold, which the keeper makes a hitmap for, and less than all.
COLD_BEFORE_HITMAP = 18_000
VALUE = b"v" * 300
KEPT_MIN = 0.8 * HOT_KEYS
# What a hitmap has not been told yet can go. (Nothing at all stays with `off`.)
KEPT_BY_HITMAP_MIN = 0.5 * HOT_KEYS
# References on one page: so many, and those of the page behind it, may be on their way.
PAGE_REFERENCES = 1024


def read_and_flood(connection, in_step=False):
    """Reads a few keys again and again while many others are stored once; returns how many of the few are left.

    `in_step` = memory is filled once there is a hitmap, and each batch then waits until the keeper has told it of what
    was stored and read before. On a busy machine the keeper would be late otherwise, and what goes does not come back.
    """
    hot = [b"hot%d" % number for number in range(HOT_KEYS)]
    for key in hot:
        connection.send(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(VALUE), VALUE))
    for first in range(0, COLD_KEYS, COLD_BATCH):
        connection.send(b"".join(b"set cold%d 0 0 %d noreply\r\n%b\r\n" % (number, len(VALUE), VALUE)
                                 for number in range(first, first + COLD_BATCH)))
        # Each hot key is read once while a tenth of the cold ones pass.
        at = first // COLD_BATCH * (10 * HOT_KEYS * COLD_BATCH // COLD_KEYS) % HOT_KEYS
        hits = count_hits(connection, (hot + hot)[at:at + 10 * HOT_KEYS * COLD_BATCH // COLD_KEYS])
        if in_step and first > COLD_BEFORE_HITMAP:
            noted += COLD_BATCH + hits
            support.until(lambda: told(connection) >= noted - 2 * PAGE_REFERENCES, "the hitmap is told")
        elif in_step and first == COLD_BEFORE_HITMAP:
            support.until(lambda: count_hits(connection, hot) and told(connection), "the hitmap wants to know")
            noted = told(connection)
    return sum(count_hits(connection, hot[at:at + 100]) for at in range(0, HOT_KEYS, 100))


def told(connection):
    """How many reads and stores the hitmap was told of, or never will be."""
    stats = connection.stats(b"temperature")
    return int(stats[b"references"]) + PAGE_REFERENCES * int(stats[b"reference_pages_dropped"])


def count_hits(connection, keys):
    """How many of the keys are there."""
    connection.send(b"get " + b" ".join(keys) + b"\r\n")
    found = 0
    while connection.line() != b"END":
        connection.exactly(len(VALUE) + 2)
        found += 1
    return found


@larder_only
class Kinds(Case):
    """Each kind of temperature in a full cache."""

    def kept(self, *flags, in_step=False):
        """How many hot keys stay, and what the server has to say of it."""
        connection = self.connection(self.server("-m", "16", "-t", "2", *flags))
        kept = read_and_flood(connection, in_step)
        stats = connection.stats()
        self.assertGreater(int(stats[b"evictions"]), COLD_KEYS // 2)
        return kept, connection.stats(b"temperature")

    def test_entry(self):
        kept, stats = self.kept()
        self.assertGreater(kept, KEPT_MIN)
        self.assertEqual(stats[b"temperature"], b"entry")
        self.assertGreater(int(stats[b"promoted_from_probation"]), KEPT_MIN)
        self.assertGreater(int(stats[b"main_columns"]), 0)
        self.assertGreater(int(stats[b"bytes"]), 0)
        self.assertGreater(int(stats[b"keeper_cpu_ns"]), 0)

    def test_hitmap(self):
        kept, stats = self.kept("--temperature", "hitmap", in_step=True)
        self.assertGreater(kept, KEPT_BY_HITMAP_MIN)
        self.assertEqual(stats[b"hitmap_on"], b"the CPU")
        self.assertGreater(int(stats[b"references"]), COLD_KEYS // 4)

    def test_hitmap_published(self):
        kept, stats = self.kept("--temperature", "hitmap-published", in_step=True)
        # As in the paper, a new item is marked as if it had been read, and marked again in the set counter. In a flood
        # of new items this leaves little time to tell which items are hot. (With `off` nothing is kept.)
        self.assertGreater(kept, HOT_KEYS // 100)
        self.assertGreater(int(stats[b"references"]), COLD_KEYS // 4)
        self.assertGreater(int(stats[b"agings"]), 0)

    def test_off(self):
        kept, stats = self.kept("--temperature", "off")
        self.assertLess(kept, HOT_KEYS // 10)
        self.assertEqual(int(stats[b"references"]), 0)

    def test_a_hitmap_is_within_the_promise_of_memory(self):
        server = self.server("-m", "64", "--temperature", "hitmap-published")
        connection = self.connection(server)
        for number in range(600_000):
            connection.send(b"set k%d 0 0 40 noreply\r\n%b\r\n" % (number, VALUE[:40]))
        connection.stats()
        self.assertLess(server.resident_bytes_peak(), 64 * 1.05 * (1 << 20) + (16 << 20))


@larder_only
class Devices(Case):
    """A hitmap on a device that is there, is not there, or fails."""

    def test_a_device_without_a_hitmap(self):
        status, _, errors = run_to_end("--device", "cuda")
        self.assertEqual(status, 64)
        self.assertIn("--temperature hitmap", errors)

    def test_no_driver(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("this machine has a driver")
        server = self.server("-m", "16", "--temperature", "hitmap", "--device", "cuda")
        self.assertEqual(server.error_text().count("the CPU keeps the hitmap"), 1, server.error_text())
        self.assertGreater(read_and_flood(self.connection(server), True), KEPT_BY_HITMAP_MIN)

    def stand_in(self, orders):
        """A server that finds the stand-in driver, with these orders."""
        folder = self.folder()
        compiler = next(filter(shutil.which, ("c++", "g++", "clang++")))
        for name in ("libcuda.so", "libcuda.so.1"):
            subprocess.run([compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-I", KERNELS, "-x", "c++",
                            STAND_IN, "-o", os.path.join(folder, name)], check=True)
        environment = {"LD_LIBRARY_PATH": folder, "STAND_IN": orders}
        return self.server("-m", "16", "--temperature", "hitmap", "--device", "cuda:0", environment=environment)

    def test_a_device(self):
        server = self.stand_in("")
        connection = self.connection(server)
        self.assertGreater(read_and_flood(connection, True), KEPT_BY_HITMAP_MIN)
        self.assertIn(b"stand-in", connection.stats(b"temperature")[b"hitmap_on"])
        self.assertNotIn("hitmap", server.error_text())

    def test_a_device_that_fails_in_the_middle(self):
        server = self.stand_in("lose=200")
        connection = self.connection(server)
        # The device takes its bits with it: what is evicted before the keys are read again was cold.
        read_and_flood(connection)
        support.until(lambda: b"the CPU" in connection.stats(b"temperature")[b"hitmap_on"], "the device is given up")
        self.assertGreater(read_and_flood(connection, True), KEPT_BY_HITMAP_MIN)
        self.assertEqual(server.error_text().count("CUDA device lost"), 1, server.error_text())


if __name__ == "__main__":
    unittest.main()
