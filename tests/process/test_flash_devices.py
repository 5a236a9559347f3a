"""Several devices behind memory: what happens at a start with other devices, and when one of them fails."""

import os
import shlex
import shutil
import subprocess
import unittest
import urllib.request

import support
from flash_support import FlashCase, noise
from process_support import larder_only, run_to_end, server_command

FLASH_EACH_MIB = 64
ITEMS = 4000
# Longer than the writes that are under way when a device fails.
ROUNDS_MAX = 6
FILLS_MAX = 5


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

    def fill(self, connection, pushed_mebibytes=FLASH_EACH_MIB):
        """Stores items and pushes them out of memory. Returns how many are found.

        Flash refuses items while the device is behind, so this is tried a few times.
        """
        for _ in range(FILLS_MAX):
            for start in range(0, ITEMS, 500):
                for number in range(start, start + 500):
                    self.assertEqual(connection.set(b"k%d" % number, noise(number, 1000)), b"STORED")
                self.wait_for_flash(connection)
            self.push_out(connection, mebibytes=pushed_mebibytes)
            found = self.found(connection)
            if found > ITEMS * 9 // 10:
                break
        return found

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
        before = self.fill(client)
        self.assertGreater(before, ITEMS * 9 // 10)
        stats = client.stats(b"flash")
        self.assertEqual((stats[b"devices"], stats[b"devices_failed"]), (b"2", b"0"))
        written = [int(stats[b"device_%d:appended_bytes" % number]) for number in (1, 2)]
        self.assertLess(max(written) - min(written), sum(written) // 4, written)
        running.stop()
        again = self.started_again(self.two())
        self.assertGreater(self.found(again), before * 9 // 10)

    def test_other_devices_are_refused_and_nothing_is_lost(self):
        running = self.two()
        client = self.connection(running)
        before = self.fill(client)
        running.stop()
        third = self.path + "-third"
        self.assertIn("device 2 of a set of 2, and is given as device 1 of 2", self.refusal(self.other, self.path))
        self.assertIn("device 1 of a set of 2, and is given alone", self.refusal(self.path))
        self.assertIn("is blank", self.refusal(self.path, third))
        self.assertIn("is given twice", self.refusal(self.path, self.path))
        again = self.started_again(self.two())
        self.assertGreater(self.found(again), before * 9 // 10)

    def test_a_file_that_is_cut_short_costs_its_share(self):
        running = self.two()
        client = self.connection(running)
        before = self.fill(client)
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
        before = self.fill(client)
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
        self.assertGreater(self.fill(client, FLASH_EACH_MIB // 2), ITEMS * 9 // 10)


@larder_only
class Simulated(FlashCase):
    """A simulated drive in memory."""

    def on_channels(self, stats, name):
        """A number of each channel, in their order."""
        values = []
        while (key := b"channel_%d:%s" % (len(values) + 1, name.encode())) in stats:
            values.append(int(stats[key]))
        return values

    def test_the_figures_of_channels_are_metrics_too(self):
        admin = "127.0.0.1:%d" % support.free_port()
        running = self.server("-m", "16", "--admin", admin, "--flash", "sim:open-channel:64m")
        client = self.connection(running)
        channels = len(self.on_channels(client.stats(b"flash"), "programmed_bytes"))
        self.assertGreater(channels, 1)
        with urllib.request.urlopen("http://%s/metrics" % admin, timeout=60) as answer:
            text = answer.read().decode()
        for name in ("flash_programmed_on_channel_bytes_total", "flash_erases_least_on_channel",
                     "flash_erases_most_on_channel"):
            self.assertEqual(text.count("larder_%s{channel=" % name), channels, name)
        self.assertIn("larder_flash_dlwa ", text)

    def test_every_profile_holds_what_leaves_memory(self):
        for profile in ("ftl", "ftl-28", "zoned", "open-channel"):
            with self.subTest(profile=profile):
                running = self.server("-m", "16", "--admin", "off", "--flash", "sim:%s:128m" % profile)
                client = self.connection(running)
                items = {b"k%d" % number: noise(number, 1000) for number in range(1000)}
                self.cold(client, items, mebibytes=40)
                self.same(self.values(client, list(items)[:100]),
                          [(key, 0, value) for key, value in list(items.items())[:100]])
                stats = client.stats(b"flash")
                # A part of a word line may still be in the drive's buffer.
                self.assertGreater(float(stats[b"dlwa"]), 0.95)
                self.assertGreaterEqual(int(stats[b"erases_most"]), int(stats[b"erases_least"]))
                programmed = self.on_channels(stats, "programmed_bytes")
                self.assertEqual(sum(value > 0 for value in programmed), len(programmed), programmed)
                self.assertGreater(sum(programmed), 30 << 20)
                self.assertEqual(max(self.on_channels(stats, "erases_most")), int(stats[b"erases_most"]))
                client.close()
                running.stop()

    def test_several_are_spread_over_and_a_size_beyond_memory_is_refused(self):
        running = self.server("-m", "16", "--admin", "off", "--flash", "sim:open-channel:64m", "--flash",
                              "sim:open-channel:64m")
        self.assertEqual(self.connection(running).stats(b"flash")[b"devices"], b"2")
        code, _, error = run_to_end("-m", "16", "-s", self.path + "-socket", "--admin", "off", "--flash",
                                    "sim:zoned:1t")
        self.assertNotEqual(code, 0)
        self.assertIn("lives in memory and needs", error)

    def test_what_is_no_drive_is_refused_in_words(self):
        for value, says in (("sim:", "expected sim:PROFILE:SIZE, where PROFILE is ftl, ftl-28, zoned, open-channel"),
                            ("sim:disk:1g", "where PROFILE is ftl, ftl-28, zoned, open-channel"),
                            ("sim:ftl", "expected sim:PROFILE:SIZE"), ("sim:ftl:1m", "expected a size from 64m to 1t"),
                            ("sim:ftl:much", "expected a size")):
            code, _, error = run_to_end("-m", "16", "-s", self.path + "-socket", "--flash", value)
            self.assertNotEqual(code, 0)
            self.assertIn(says, error)
        beside = ("--flash", "sim:ftl:64m", "--flash", self.path + ":64m")
        code, _, error = run_to_end("-m", "16", "-s", self.path + "-socket", *beside)
        self.assertNotEqual(code, 0)
        self.assertIn("not both", error)
        words = [support.Server._executable(shlex.split(server_command())[0])]
        done = subprocess.run(words + ["format-flash", "--flash", "sim:ftl:64m"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("blank at every start", done.stderr)


if __name__ == "__main__":
    unittest.main()
