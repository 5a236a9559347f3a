#!/usr/bin/env python3
"""Runs the tests of the process: starting, stopping, connections, memory, the admin page; its reports.

    tests/process/test_process.py                                 # target/debug/larder serve
    tests/process/test_process.py --server memcached test_start
    tests/process/test_process.py test_network.Udp.test_set_and_get

Files of tests run side by side, `--jobs` at a time, each in a process of its own: most tests wait most of the time.
What a file prints is shown once it has ended. The last line says `N passed, N failed, N skipped`.
"""

import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import results  # noqa: E402
import support  # noqa: E402

# A file of tests that takes longer hangs.
FILE_SECONDS_MAX = 900
# Those that take longest begin first.
LONG = ["test_flash", "test_flash_restart", "test_flash_holds", "test_keep", "test_memory", "test_hostile"]
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def modules():
    """The files of tests in this folder."""
    found = {os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "test_*.py"))} - {"test_process"}
    return LONG + sorted(found - set(LONG))


def run_one(server, name):
    """Runs one file of tests in a process of its own; shows what it printed and returns its counts."""
    words = [sys.executable, os.path.abspath(__file__), "--server", server, "--jobs", "1", name]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=FILE_SECONDS_MAX, check=False)
        printed, ended = done.stdout, "it ended with status %d" % done.returncode if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        printed, ended = late.stdout or b"", "it has not ended after %d s" % FILE_SECONDS_MAX
    printed = printed.decode("utf-8", "replace")
    closing = CLOSING.findall(printed)
    counts = list(map(int, closing[-1])) if closing else [0, 0, 0]
    if ended and not counts[1]:
        printed += "FAIL %s: %s\n" % (name, ended)
        counts[1] = 1
    print(CLOSING.sub("", printed).rstrip(), flush=True)
    return counts


def main():
    """Runs the tests named, or all; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="files at a time")
    parser.add_argument("tests", nargs="*", help="files, classes or tests; default: all files of this folder")
    arguments = parser.parse_args()
    os.environ["LARDER_SERVER"] = arguments.server
    tests = arguments.tests or modules()
    if arguments.jobs == 1 or len(tests) == 1:
        return results.run(tests)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        counts = list(pool.map(lambda name: run_one(arguments.server, name), tests))
    totals = [sum(column) for column in zip(*counts)]
    print("%d passed, %d failed, %d skipped" % tuple(totals))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
