#!/usr/bin/env python3
"""Runs suites again and again on a machine that has no time, and names what failed and how often.

    tests/steady.py [--times N] [--busy LOOPS] TARGET...        targets of the Makefile, such as `unit` or `process`
    tests/steady.py [--times N] [--busy LOOPS] --command TEXT   any command, such as one file of tests

Beside the suites run so many loops that never rest: a test that waits for time, and not for an event, fails sooner or
later. The last lines are the tests that failed, each with the number of its failures, and the counts.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import stage  # noqa: E402

REPOSITORY = os.path.dirname(HERE)
STAGE_FAILED = re.compile(r"^== (.*): FAILED, status")


def failures_of(text):
    """The names of the tests that failed, or of the stages if no test is named."""
    names = set(filter(None, map(stage.name_of_failure, text.splitlines())))
    return names or {"stage " + found.group(1) for found in map(STAGE_FAILED.match, text.splitlines()) if found}


def run(name, words):
    """Runs one suite; returns the names of what failed. What a suite that failed has printed is kept in a file."""
    done = subprocess.run(words, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    failed = failures_of(done.stdout)
    if not failed and done.returncode:
        failed = {"%s ended with status %d" % (name, done.returncode)}
    if failed:
        kept = tempfile.NamedTemporaryFile("w", prefix="larder-steady-", suffix=".log", delete=False)
        with kept:
            kept.write(done.stdout)
        print("   %s: %s (%s)" % (name, ", ".join(sorted(failed)), kept.name), flush=True)
    return failed


def main():
    """Reads the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--busy", type=int, default=4, help="loops that never rest; 0 = the suites alone")
    parser.add_argument("--command", help="a command in the place of targets")
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    if bool(arguments.command) == bool(arguments.targets):
        parser.error("name targets or a command")
    make = os.environ.get("MAKE", "make")
    suites = [(target, [make, "--no-print-directory", target]) for target in arguments.targets]
    if arguments.command:
        suites = [(arguments.command, ["bash", "-c", arguments.command])]
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    counts = collections.Counter()
    try:
        for time in range(arguments.times):
            print("== %d of %d" % (time + 1, arguments.times), flush=True)
            for name, words in suites:
                counts.update(run(name, words))
    finally:
        for loop in loops:
            loop.kill()
    for name, count in counts.most_common():
        print("%3d of %d   %s" % (count, arguments.times, name))
    print("%d times, %d tests failed" % (arguments.times, len(counts)))
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
