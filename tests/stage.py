#!/usr/bin/env python3
"""Runs one stage of `make test`: shows its output, tells how long it took, and keeps its result for the summary.

    tests/stage.py NAME COMMAND...      run a stage
    tests/stage.py --begin              forget the results of an earlier run
    tests/stage.py --summary            print them, and the total as the last line

A stage's counts are those of its closing lines `N passed, N failed, N skipped`, or those of cargo's test harness; a
stage that prints neither counts as one.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import support  # noqa: E402

KEPT = os.path.join(support.tools_folder(), "stages.json")
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
HARNESS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")


def counts_of(line):
    """(passed, failed, skipped) of a closing line, or None."""
    match = CLOSING.match(line) or HARNESS.match(line)
    return tuple(int(group or 0) for group in match.groups()) if match else None


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


def run(name, command):
    """Runs the stage; returns its exit status."""
    print("== %s" % name, flush=True)
    started = time.monotonic()
    totals = [0, 0, 0]
    seen = False
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for raw in process.stdout:
        sys.stdout.buffer.write(raw)
        sys.stdout.flush()
        counts = counts_of(raw.decode("utf-8", "replace").strip())
        if counts:
            seen = True
            totals = [old + new for old, new in zip(totals, counts)]
    status = process.wait()
    if not seen:
        totals = [int(status == 0), int(status != 0), 0]
    elif status and not totals[1]:
        totals[1] = 1
    seconds = time.monotonic() - started
    keep({"name": name, "seconds": seconds, "totals": totals, "status": status})
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
