#!/usr/bin/env python3
"""Measures Larder on a machine with a GPU and many cores, part by part, within a fixed time.

    run.sh                    all parts within 530 seconds, in the order of `--list`
    run.sh --seconds 300      within 300 seconds
    run.sh --only PART,PART   these parts
    run.sh --rehearse         everything at tiny sizes, with the stand-in for the CUDA driver
    run.sh --list             names the parts, with the time that each may take at most
    run.sh --commands         prints the commands, and runs none

In the folder $OUT (./device-figures if it is not set) are figures.jsonl, with one JSON object for each part, appended
when the part ends; figures.md, the page that is made of it; and log.txt, the output of all programs. A part that is
done is not done again. A part that fails says so there, and the others go on. MEMORY=GIB says how much memory there
is, on a machine whose memory grows as it is used. The programs come from the folder .carry, which prepare.sh fills.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import page  # noqa: E402
import parts  # noqa: E402

SECONDS = 530
REHEARSAL_SECONDS = 170
# What is kept for writing the page when the time is over.
CLOSING_SECONDS = 5
# Where containers have the driver's libraries, if the loader does not know of them.
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")


def memory_mib():
    """Memory to count on: what the environment says, or what the kernel calls available."""
    if os.environ.get("MEMORY"):
        return int(float(os.environ["MEMORY"]) * 1024)
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemAvailable:"))


class Run:
    """What the parts need to know of this run, and how they start programs."""

    def __init__(self, options):
        self.carry = os.path.abspath(options.carry)
        self.out = os.path.abspath(os.environ.get("OUT") or "device-figures")
        self.rehearse = options.rehearse
        self.dry = options.commands
        self.deadline = time.monotonic() + options.seconds - CLOSING_SECONDS
        self.part_ends = self.deadline
        self.cores = sorted(os.sched_getaffinity(0))
        self.memory_mib = memory_mib()
        self.child = None

    def left(self):
        """Seconds until the part, or everything, must end."""
        return min(self.part_ends, self.deadline) - time.monotonic()

    def program(self, name):
        """The path of a program of the folder .carry."""
        path = os.path.join(self.carry, name)
        if not self.dry and not os.access(path, os.X_OK):
            raise parts.Skipped("there is no %s (prepare.sh puts it there)" % path)
        return path

    def environment(self):
        """The programs find the peers; in a rehearsal also the stand-in for the driver."""
        more = {"PATH": os.path.join(self.carry, "peers") + os.pathsep + os.environ.get("PATH", os.defpath)}
        folders = [os.path.join(self.carry, "stand-in")] if self.rehearse else [
            folder for folder in DRIVER_FOLDERS if os.path.isdir(folder)]
        if folders:
            more["LD_LIBRARY_PATH"] = os.pathsep.join(folders + os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        return dict(os.environ, **more)

    def scratch(self, name):
        """The path of a new file that the part reads and removes."""
        path = os.path.join(self.out, name)
        if os.path.exists(path):
            os.remove(path)
        return path

    def start(self, words, during=None):
        """Runs a program until its end or that of the part; returns what it wrote. `during` is called each half
        second."""
        if self.dry:
            print(shlex.join(words))
            return ""
        if self.left() <= 1:
            raise parts.Failed("no time left")
        with open(os.path.join(self.out, "log.txt"), "ab") as log:
            log.write(("\n$ %s\n" % " ".join(words)).encode())
            log.flush()
            begin = log.tell()
            # From a folder without .tools, so that the load client takes the peers of PATH.
            self.child = subprocess.Popen(words, cwd=self.carry, env=self.environment(), stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                self.wait(during)
                late = self.child.poll() is None
            finally:
                self.stop()
        with open(os.path.join(self.out, "log.txt"), "rb") as log:
            log.seek(begin)
            said = log.read().decode("utf-8", "replace")
        if late:
            raise parts.Failed("%s was not done in its time" % os.path.basename(words[0]))
        if self.child.returncode:
            last = (said.strip().splitlines() or ["nothing"])[-1]
            raise parts.Failed("%s ended with %d: %s" % (os.path.basename(words[0]), self.child.returncode, last[:300]))
        return said

    def wait(self, during):
        """Waits for the program, as long as the part may take."""
        while self.left() > 0:
            try:
                self.child.wait(min(0.5, max(self.left(), 0.01)))
                return
            except subprocess.TimeoutExpired:
                if during:
                    during(self.child.pid)

    def stop(self):
        """Ends the program that runs and all that it started."""
        if self.child and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()


def records(path):
    """What earlier runs have found, by part; of several records of a part, the last one."""
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # Cut off, where a run was killed.
                found[record["part"]] = record
    return found


def append(path, record):
    """Adds a record to what was found, behind a line that may have been cut off."""
    with open(path, "ab+") as file:
        file.seek(max(file.tell() - 1, 0))
        is_torn = file.read() not in (b"", b"\n")
        file.write(b"\n" * is_torn + json.dumps(record).encode() + b"\n")


def do(run, part):
    """Does one part; returns its record."""
    begin = time.monotonic()
    run.part_ends = begin + part.seconds
    rows = []
    record = {"part": part.name, "title": part.title, "rehearsal": run.rehearse, "state": "done", "rows": rows}
    try:
        part.work(run, rows)
    except parts.Skipped as why:
        record.update(state="skipped", why=str(why))
    except parts.Failed as why:
        record.update(state="failed", why=str(why))
    except Exception as error:  # One part must not stop the others.
        record.update(state="failed", why="%s: %s" % (type(error).__name__, error))
    record.update(seconds=round(time.monotonic() - begin, 1), memory_mib=run.memory_mib)
    return record


def main():
    """Does the parts that are not done yet; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, stand-in for the CUDA driver")
    parser.add_argument("--list", action="store_true", help="list the parts and exit")
    parser.add_argument("--commands", action="store_true", help="print the commands and exit")
    parser.add_argument("--only", help="parts to do, separated by commas")
    parser.add_argument("--seconds", type=float, help="time for everything")
    parser.add_argument("--carry", default=os.path.join(HERE, ".carry"), help="folder of the programs")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = REHEARSAL_SECONDS if options.rehearse else SECONDS
    run = Run(options)
    wanted = parts.all_parts(run)
    if options.only:
        names = options.only.split(",")
        unknown = set(names) - {part.name for part in wanted}
        if unknown:
            parser.error("there is no part %s" % ", ".join(sorted(unknown)))
        wanted = [part for part in wanted if part.name in names]
    if options.list:
        for part in wanted:
            print("%-16s %4d s  %s" % (part.name, part.seconds, part.title))
        return 0
    if options.commands:
        return max(int(do(run, part)["state"] == "failed") for part in wanted)
    return work(run, wanted)


def work(run, wanted):
    """Does parts until the time is over; those that failed in an earlier run come last."""
    os.makedirs(run.out, exist_ok=True)
    path = os.path.join(run.out, "figures.jsonl")
    found = records(path)
    if any(record["rehearsal"] != run.rehearse for record in found.values()):
        print("%s: a rehearsal and a measurement need a folder each (OUT)" % path, file=sys.stderr)
        return 1
    if "machine" in found:
        run.memory_mib = min(run.memory_mib, found["machine"]["memory_mib"])
    kept = {name for name, record in found.items() if record["state"] in ("done", "skipped")}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for part in sorted(wanted, key=lambda part: part.name in found):
            if part.name in kept:
                print("%-16s was done before" % part.name, flush=True)
                continue
            if run.deadline - time.monotonic() < part.least_seconds:
                print("%-16s no time left" % part.name, flush=True)
                continue
            record = found[part.name] = do(run, part)
            append(path, record)
            page.write(os.path.join(run.out, "figures.md"), found, parts.all_parts(run))
            said = "%s: %s" % (record["state"], record["why"]) if "why" in record else record["state"]
            print("%-16s %5.1f s  %s" % (part.name, record["seconds"], said), flush=True)
    finally:
        run.stop()
        page.write(os.path.join(run.out, "figures.md"), found, parts.all_parts(run))
    print("figures: %s" % os.path.join(run.out, "figures.md"))
    return int(any(found.get(part.name, {"state": "missing"})["state"] in ("failed", "missing") for part in wanted))


if __name__ == "__main__":
    sys.exit(main())
