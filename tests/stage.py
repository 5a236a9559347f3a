#!/usr/bin/env python3
"""Runs one stage of `make test`: shows its output, tells how long it took, and keeps its result for the summary.

    tests/stage.py NAME COMMAND...      run a stage
    tests/stage.py --begin              forget the results of an earlier run
    tests/stage.py --summary            print them, and the total as the last line

A stage's counts are those of its closing lines `N passed, N failed, N skipped`, or those of cargo's test harness; a
stage that prints neither counts as one. The summary repeats what a stage that failed has printed of the tests that
failed, or its last lines.

A stage that takes longer than STAGE_MINUTES (an environment variable, 30 if it is not set) is stopped and counts as
failed. Its processes are listed first, so that the output says what was waiting.
"""

import collections
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import support  # noqa: E402

KEPT = os.path.join(support.tools_folder(), "stages.json")
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
HARNESS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
# A test of Rust, of `tests/results.py` or the transcripts, of a client library.
FAILED = re.compile(r"^test (\S+) (?:- .*)?\.\.\. FAILED$|^FAIL (\S.*?)(?: \(\d[\d.]* s\)|: .*)?$"
                    r"|^not ok (.*?)(?:: .*)?$")
# What a test of Rust printed comes behind its name, once all have run.
DETAILS = re.compile(r"^---- (\S+) stdout ----$")
PASSED = re.compile(r"^(?:ok|skip|not ok|FAIL|test|==|--) |^failures:$")
# So many lines of a failure are repeated, of a stage and of each test.
REPEATED_LINES_MAX, LINES_OF_A_TEST_MAX = 40, 20
LINE_BYTES_MAX = 300


def counts_of(line):
    """(passed, failed, skipped) of a closing line, or None."""
    match = CLOSING.match(line) or HARNESS.match(line)
    return tuple(int(group or 0) for group in match.groups()) if match else None


def name_of_failure(line):
    """The name of the test that this line says has failed, or None."""
    found = FAILED.match(line)
    return next(filter(None, found.groups())) if found else None


def results():
    """When the run began, and what the stages so far came to."""
    try:
        with open(KEPT) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {"began": time.time(), "stages": []}


def begin():
    """Forgets the results of an earlier run."""
    os.makedirs(os.path.dirname(KEPT), exist_ok=True)
    with open(KEPT, "w") as file:
        json.dump({"began": time.time(), "stages": []}, file)


def keep(stage):
    """Adds the result of a stage. Stages may end at the same time, so the file is locked."""
    os.makedirs(os.path.dirname(KEPT), exist_ok=True)
    with open(KEPT + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = results()
        found["stages"].append(stage)
        with open(KEPT, "w") as file:
            json.dump(found, file)


class Output(threading.Thread):
    """Shows the output of a stage, adds up the counts in it and keeps what it says of tests that failed."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream = stream
        self.totals = [0, 0, 0]
        self.has_counts = False
        self.repeated = []
        self.lines_left = 0
        self.last = collections.deque(maxlen=LINES_OF_A_TEST_MAX)

    def run(self):
        for raw in self.stream:
            sys.stdout.buffer.write(raw)
            sys.stdout.flush()
            line = raw.decode("utf-8", "replace").rstrip()
            self.repeat(line)
            counts = counts_of(line.strip())
            if counts:
                self.has_counts = True
                self.totals = [old + new for old, new in zip(self.totals, counts)]

    def repeat(self, line):
        """Keeps a line that belongs to a test that failed."""
        if FAILED.match(line) or DETAILS.match(line):
            self.lines_left = LINES_OF_A_TEST_MAX
        elif PASSED.match(line) or counts_of(line):
            self.lines_left = 0
        if not line.strip():
            return
        self.last.append(line[:LINE_BYTES_MAX])
        if self.lines_left and len(self.repeated) < REPEATED_LINES_MAX:
            self.lines_left -= 1
            self.repeated.append(self.last[-1])


def stop(process):
    """Ends the processes of a stage that are left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(name, command):
    """Runs the stage; returns its exit status."""
    minutes = float(os.environ.get("STAGE_MINUTES", "30"))
    print("== %s" % name, flush=True)
    started = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    output = Output(process.stdout)
    output.start()
    try:
        status = process.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        print("== %s: stopped after %g minutes; its processes:" % (name, minutes), flush=True)
        subprocess.run(["ps", "-s", str(process.pid), "-o", "pid,etimes,time,stat,wchan:20,args"], check=False)
        stop(process)
        status = process.wait()
    finally:
        # A process that a test has left behind would keep the output open.
        output.join(2)
        stop(process)
    output.join(2)
    totals = output.totals
    if not output.has_counts:
        totals = [int(status == 0), int(status != 0), 0]
    elif status and not totals[1]:
        totals[1] = 1
    seconds = time.monotonic() - started
    failed = output.repeated or list(output.last)
    keep({"name": name, "seconds": seconds, "totals": totals, "status": status, "failed": failed})
    ended = "done" if status == 0 else "FAILED, status %d," % status
    print("== %s: %s after %.0f s" % (name, ended, seconds), flush=True)
    return status


def summary():
    """The table of stages and the total; returns 1 if a stage failed, or none ran."""
    found = results()
    stages = found["stages"]
    totals = [sum(column) for column in zip(*(stage["totals"] for stage in stages))] or [0, 0, 0]
    print("== summary")
    for stage in stages:
        shown = (stage["name"], stage["seconds"], *stage["totals"], "" if stage["status"] == 0 else "   FAILED")
        print("   %-22s %6.0f s   %5d passed %4d failed %4d skipped%s" % shown)
    print("   %-22s %6.0f s" % ("all stages, added up", sum(stage["seconds"] for stage in stages)))
    print("   %-22s %6.0f s" % ("from begin to end", time.time() - found["began"]))
    for stage in stages:
        if stage["status"]:
            print("== %s failed\n   %s" % (stage["name"], "\n   ".join(stage["failed"])))
    print("%d passed, %d failed, %d skipped" % tuple(totals))
    return int(not stages or any(stage["status"] for stage in stages))


def main():
    """Reads the command line."""
    words = sys.argv[1:]
    if words == ["--begin"]:
        begin()
        return 0
    if words == ["--summary"]:
        return summary()
    if len(words) < 2:
        print(__doc__)
        return 2
    return run(words[0], words[1:])


if __name__ == "__main__":
    sys.exit(main())
