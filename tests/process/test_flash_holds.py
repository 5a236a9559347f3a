"""What has room on flash stays there, by the server's defaults, however often it is overwritten, and over a restart."""

import os
import re
import signal
import subprocess
import sys
import unittest

from process_support import TESTS, larder_only, program

PROGRAM = os.path.join(os.path.dirname(TESTS), "bench-compare", "flash_overwrite.py")
# The tier sheds items where it gets too little of the processor or of the disk. So few are stored that it gets enough
# on two cores beside two programs that never rest.
STORES_PER_S = 10000
# What of all items may have been shed nevertheless, percent. It depends on what else the machine does: beside two such
# programs and another server under full load it was up to 7.
SHED_MAX = 25.0
RUN_SECONDS_MAX = 120


@larder_only
class Holds(unittest.TestCase):
    """Runs the program on a flash of 64 MiB."""

    def held(self, missing_max, alwa_max, *arguments):
        """Fails if a value is wrong, if a larger part of the items is missing than was shed and so many percent beside,
        or if more is written for each byte that was admitted."""
        command = [sys.executable, PROGRAM, "--larder", program(), "--flash-mib", "64", "--rate", str(STORES_PER_S),
                   *arguments]
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
