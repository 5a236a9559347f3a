#!/usr/bin/env python3
"""Runs targets of the Makefile in lanes that go side by side: one that compiles beside one that waits for servers.

    tests/lanes.py [--one-after-another] LANE... [--then LANE]

A lane is a list of targets with spaces between, run in this order. `target@other` runs once the target `other`, of any
lane, has ended. The targets behind `--then` go to the lane that is the first to have none left. What a target prints is
shown when the target has ended, so that the output of two lanes does not mix. A target that fails stops nothing. The
exit status is 1 if any target failed.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

MAKE = os.environ.get("MAKE", "make")


class Lanes:
    """The targets, and which of them have ended."""

    def __init__(self, lanes, then=""):
        self.lanes = [[target.partition("@")[::2] for target in lane.split()] for lane in lanes]
        self.then = [target.partition("@")[::2] for target in then.split()]
        self.changed = threading.Condition()
        self.ended = {}
        pairs = [pair for lane in [*self.lanes, self.then] for pair in lane]
        names = [name for name, _ in pairs]
        unknown = {after for _, after in pairs if after and after not in names}
        if unknown or len(names) != len(set(names)):
            sys.exit("lanes.py: a target stands twice, or waits for one that is not there: %s" % " ".join(names))

    def run(self):
        """Runs all lanes; returns the targets that failed."""
        threads = [threading.Thread(target=self.run_lane, args=(lane,)) for lane in self.lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [name for name, status in self.ended.items() if status]

    def targets_of(self, lane):
        """The targets of one lane, and then what no other lane has taken of the rest."""
        yield from lane
        while True:
            with self.changed:
                if not self.then:
                    return
                pair = self.then.pop(0)
            yield pair

    def run_lane(self, lane):
        """Runs the targets of one lane."""
        for name, after in self.targets_of(lane):
            with self.changed:
                while after and after not in self.ended:
                    self.changed.wait()
            status = 1
            try:
                status = self.run_target(name)
            finally:
                with self.changed:
                    self.ended[name] = status
                    self.changed.notify_all()

    def run_target(self, name):
        """Runs one target; returns its exit status."""
        started = time.monotonic()
        print("-- %s began" % name, flush=True)
        with tempfile.TemporaryFile() as printed:
            done = subprocess.run([MAKE, "--no-print-directory", name], stdin=subprocess.DEVNULL, stdout=printed,
                                  stderr=subprocess.STDOUT, check=False)
            printed.seek(0)
            with self.changed:
                print("-- %s, %.0f s:" % (name, time.monotonic() - started), flush=True)
                sys.stdout.buffer.write(printed.read())
                sys.stdout.flush()
        return done.returncode


def in_one_lane(lanes):
    """All targets in one lane, each behind the target that it waits for."""
    order = []
    pending = [target.partition("@")[::2] for lane in lanes for target in lane.split()]
    while pending:
        ready = next((pair for pair in pending if not pair[1] or pair[1] in order), None)
        if ready is None:
            sys.exit("lanes.py: targets wait for each other: %s" % " ".join(name for name, _ in pending))
        pending.remove(ready)
        order.append(ready[0])
    return " ".join(order)


def main():
    """Reads the command line; returns the exit status."""
    lanes, then = sys.argv[1:], ""
    if lanes[-2:-1] == ["--then"]:
        lanes, then = lanes[:-2], lanes[-1]
    if lanes[:1] == ["--one-after-another"]:
        lanes, then = [in_one_lane([*lanes[1:], then])], ""
    if not any(lane.split() for lane in lanes):
        print(__doc__)
        return 2
    failed = Lanes(lanes, then).run()
    if failed:
        print("-- failed: %s" % " ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
