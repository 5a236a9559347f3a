#!/usr/bin/env python3
"""Runs the tests of the process: starting, stopping, connections, memory, the admin page; its reports.

    tests/process/test_process.py                                 # target/release/larder serve
    tests/process/test_process.py --server memcached test_start
    tests/process/test_process.py test_network.Udp.test_set_and_get

The last line says `N passed, N failed, N skipped`.
"""

import argparse
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import support  # noqa: E402

MODULES = ["test_start", "test_network", "test_binary", "test_resp", "test_login", "test_tls", "test_memory",
           "test_hostile", "test_expiry", "test_temperature", "test_penalties", "test_watch", "test_admin",
           "test_flash", "test_flash_counters", "test_flash_devices", "test_flash_holds", "test_flash_restart",
           "test_replay", "test_report", "test_plan", "test_top", "test_operate", "test_activation", "test_keep"]


class Result(unittest.TestResult):
    """Prints a line per test."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def tell(self, word, test, text=""):
        """One line, and details under it."""
        print("%-4s %s (%.1f s)%s" % (word, test.id(), time.monotonic() - self.started, text), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1
        self.tell("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell("skip", test, ": " + reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.tell("FAIL", test, "\n" + self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.tell("FAIL", subtest, "\n" + (self.failures or self.errors)[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.tell("FAIL", test, "\n" + self.errors[-1][1])


def main():
    """Runs the tests named, or all; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("tests", nargs="*", default=MODULES)
    arguments = parser.parse_args()
    os.environ["LARDER_SERVER"] = arguments.server
    result = Result()
    unittest.defaultTestLoader.loadTestsFromNames(arguments.tests).run(result)
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed, %d skipped" % (result.passed, failed, len(result.skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
