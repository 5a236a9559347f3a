"""Several devices behind memory: what happens at a start with other devices, and when one of them fails."""

import os
import shutil
import subprocess
import unittest

from flash_support import FlashCase, noise
from process_support import larder_only, run_to_end

FLASH_EACH_MIB = 64
ITEMS = 4000
# Longer than the writes that are under way when a device fails.
ROUNDS_MAX = 6


def tools_are_there(*names):
    """Whether these programs are there, and this is root."""
    return os.geteuid() == 0 and all(shutil.which(name) for name in names)


class FailingDisk:
    """A disk that can be made to fail: a loop device whose file is taken away under it."""

    def __init__(self, backing, mebibytes):
        self.backing = backing
        with open(backing, "wb") as file:
            file.truncate(mebibytes << 20)
        self.path = subprocess.run(["losetup", "--find", "--show", backing], check=True, capture_output=True,
                                   text=True).stdout.strip()

    def fail(self):
        """From now on every read and write fails: the disk has no bytes any more."""
        os.truncate(self.backing, 0)
        subprocess.run(["losetup", "--set-capacity", self.path], check=True, capture_output=True)

    def remove(self):
        """Takes the disk away."""
        subprocess.run(["losetup", "--detach", self.path], check=False, capture_output=True)


@larder_only
class Several(FlashCase):
    """Two devices."""

    def setUp(self):
        super().setUp()
        self.other = os.path.join(os.path.dirname(self.path), "other")

    def places(self, *paths):
        """The flags for these devices."""
        return [word for path in paths for word in ("--flash", "%s:%dm" % (path, FLASH_EACH_MIB))]

    def two(self, *flags, first=None, other=None):
        """A server with two devices."""
        return self.server("-m", "16", "--admin", "off", *self.places(first or self.path, other or self.other), *flags)

    def fill(self, connection):
        """Stores items and pushes them out of memory."""
        for start in range(0, ITEMS, 500):
            for number in range(start, start + 500):
                self.assertEqual(connection.set(b"k%d" % number, noise(number, 1000)), b"STORED")
            self.wait_for_flash(connection)
        self.push_out(connection)

    def found(self, connection):
        """How many of the items are found. No value is wrong."""
        count = 0
        for start in range(0, ITEMS, 100):
            for key, _, value in self.values(connection, [b"k%d" % number for number in range(start, start + 100)]):
                self.assertTrue(value == noise(int(key[1:]), 1000), "%s has a wrong value" % key.decode())
                count += 1
        return count

    def refusal(self, *paths):
        """The line with which a start with these devices is refused."""
        code, _, error = run_to_end("-m", "16", "-s", self.path + "-socket", "--admin", "off", *self.places(*paths))
        self.assertNotEqual(code, 0)
        return error.strip().splitlines()[-1]

    def test_both_are_used_and_are_there_after_a_restart(self):
        running = self.two()
        client = self.connection(running)
        self.fill(client)
        before = self.found(client)
        self.assertGreater(before, ITEMS * 9 // 10)
        stats = client.stats(b"flash")
        self.assertEqual((stats[b"devices"], stats[b"devices_failed"]), (b"2", b"0"))
        written = [int(stats[b"device_%d:appended_bytes" % number]) for number in (1, 2)]
        self.assertLess(max(written) - min(written), sum(written) // 4, written)
        running.stop()
        again = self.connection(self.two())
        self.assertGreater(self.found(again), before * 9 // 10)

    def test_other_devices_are_refused_and_nothing_is_lost(self):
        running = self.two()
        client = self.connection(running)
        self.fill(client)
        before = self.found(client)
        running.stop()
        third = self.path + "-third"
        self.assertIn("device 2 of a set of 2, and is given as device 1 of 2", self.refusal(self.other, self.path))
        self.assertIn("device 1 of a set of 2, and is given alone", self.refusal(self.path))
        self.assertIn("is blank", self.refusal(self.path, third))
        self.assertIn("is given twice", self.refusal(self.path, self.path))
        again = self.connection(self.two())
        self.assertGreater(self.found(again), before * 9 // 10)

    def test_a_file_that_is_cut_short_costs_its_share(self):
        running = self.two()
        client = self.connection(running)
        self.fill(client)
        before = self.found(client)
        os.truncate(self.other, 0)
        self.push_out(client)
        self.assertGreater(self.found(client), before // 4)
        self.assertEqual(client.set(b"new", b"value"), b"STORED")
        self.assertEqual(client.get(b"new"), b"value")

    @unittest.skipUnless(tools_are_there("losetup"), "needs root and losetup")
    def test_a_disk_that_fails_under_load_costs_its_share(self):
        try:
            disk = FailingDisk(self.path + "-backing", FLASH_EACH_MIB)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest("no loop device here: %s" % error)
        self.addCleanup(disk.remove)
        running = self.two(other=disk.path)
        self.addCleanup(running.stop)
        client = self.connection(running)
        self.fill(client)
        before = self.found(client)
        self.assertGreater(before, ITEMS * 9 // 10)
        disk.fail()
        for round_number in range(ROUNDS_MAX):
            stats = client.stats(b"flash")
            if stats[b"devices_failed"] == b"1" or stats[b"on"] == b"0":
                break
            self.push_out(client, b"round%d-" % round_number, mebibytes=16)
        stats = client.stats(b"flash")
        self.assertEqual((stats[b"on"], stats[b"device_1:state"], stats[b"device_2:state"]),
                         (b"1", b"works", b"failed"))
        # Memory holds a part of them again, because they were read.
        found = self.found(client)
        self.assertTrue(before // 3 < found < before, "%d of %d" % (found, before))
        # What is stored from now on is on the other one, and is found.
        self.fill(client)
        self.assertGreater(self.found(client), ITEMS * 9 // 10)


if __name__ == "__main__":
    unittest.main()
