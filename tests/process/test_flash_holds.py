"""What has room on flash stays there, however often and fast it is overwritten, and over a restart."""

import os
import re
import signal
import subprocess
import sys
import unittest

from process_support import TESTS, Case, larder_only, program

PROGRAM = os.path.join(os.path.dirname(TESTS), "bench-compare", "flash_overwrite.py")
# By default a store waits for flash 50 ms at most. The writers may get no turn for so long, on a machine that does
# much else.
SETTINGS = "[flash.tuning]\nstore-wait = 60000\n"
# What the pass takes for itself may leave a worker without a column, which waits for 20 ms only: percent of the items
# that may be shed.
SHED_MAX = 1.0
RUN_SECONDS_MAX = 300


@larder_only
class Holds(Case):
    """Runs the program on a flash of 64 MiB."""

    def held(self, missing_max, alwa_max, *arguments):
        """Fails if a value is wrong, too many were shed, more are missing than were shed and so many percent beside, or
        more is written for each byte that was admitted. The client stores as fast as it can."""
        settings = os.path.join(self.folder(), "settings.toml")
        with open(settings, "w", encoding="utf-8") as file:
            file.write(SETTINGS)
        command = [sys.executable, PROGRAM, "--larder", program(), "--flash-mib", "64",
                   "--args", "--config " + settings, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as running:
            try:
                told, _ = running.communicate(timeout=RUN_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                # Its server as well.
                os.killpg(running.pid, signal.SIGKILL)
                raise
        items = re.search(r"^(\d+) items of .* \((\d+) refused\)$", told, re.MULTILINE)
        found = re.search(r"^found ([0-9.]+) %, with a wrong value (\d+);", told, re.MULTILINE)
        self.assertTrue(items and found, told)
        figures = dict(re.findall(r"^(\w+) ([0-9.]+)$", told, re.MULTILINE))
        self.assertEqual((items.group(2), found.group(2)), ("0", "0"), told)
        for name in ("quick_drops", "drops_forced", "drops_of_all", "range_drops"):
            self.assertEqual(figures[name], "0", told)
        self.assertGreater(int(figures["store_waits"]), 0, told)
        shed = 100 * int(figures["demotions_shed"]) / int(items.group(1))
        self.assertLessEqual(shed, SHED_MAX, told)
        self.assertLessEqual(100 - float(found.group(1)), shed + missing_max, told)
        self.assertLessEqual(float(figures["alwa"]), alwa_max, told)

    def test_a_half_that_is_overwritten(self):
        self.held(0.1, 1.5, "--fill", "0.5", "--rounds", "4")

    def test_seven_tenths_that_are_overwritten_before_and_after_a_stop(self):
        self.held(0.3, 3.5, "--fill", "0.7", "--rounds", "2", "--restarts", "1")


if __name__ == "__main__":
    unittest.main()
