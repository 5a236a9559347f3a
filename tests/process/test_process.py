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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import results  # noqa: E402
import support  # noqa: E402

MODULES = ["test_start", "test_network", "test_binary", "test_resp", "test_login", "test_tls", "test_memory",
           "test_hostile", "test_expiry", "test_temperature", "test_penalties", "test_watch", "test_admin",
           "test_flash", "test_flash_counters", "test_flash_devices", "test_flash_holds", "test_flash_restart",
           "test_replay", "test_report", "test_plan", "test_top", "test_operate", "test_activation", "test_keep"]


def main():
    """Runs the tests named, or all; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("tests", nargs="*", default=MODULES)
    arguments = parser.parse_args()
    os.environ["LARDER_SERVER"] = arguments.server
    return results.run(arguments.tests)


if __name__ == "__main__":
    sys.exit(main())
