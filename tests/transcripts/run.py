#!/usr/bin/env python3
"""Replays the transcripts of this folder over TCP. See README.md."""

import argparse
import glob
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import support  # noqa: E402
import transcript  # noqa: E402

# The memcached release whose answers the transcripts have.
RELEASE = "1.6.45"
CUT_BYTES_MAX = 6000


class Mismatch(Exception):
    """The answer is not the one in the transcript."""


class Replay:
    """One case on one connection; `cut` says how what is sent is divided."""

    def __init__(self, server, cut):
        self.connection = server.connect()
        self.cut = cut

    def send(self, data):
        """Sends `data` in the pieces that the cut asks for."""
        if self.cut == "bytes" and len(data) <= CUT_BYTES_MAX:
            for byte in data:
                self.connection.send(bytes([byte]))
            return
        self.connection.send(data)

    def run(self, case):
        """Replays the whole case; raises Mismatch, Closed, OSError."""
        if "-F" not in case.flags:
            self.must_answer(b"flush_all", b"OK")
        names = {}
        for step in merged(case.steps):
            self.step(step, names)
        if case.steps and case.steps[-1][0] == "eof":
            return
        self.must_answer(b"mn", b"MN")

    def step(self, step, names):
        """Plays one step."""
        if step[0] == "send":
            self.send(b"".join(transcript.compose(pieces, names) for pieces in step[1:]))
        elif step[0] == "wait":
            time.sleep(step[1])
        elif step[0] == "expect":
            self.check(step[1], self.connection.line(), names)
        elif step[0] == "list":
            self.check_list(step[1], step[2], names)
        else:
            self.check_eof()

    def must_answer(self, line, answer):
        """A question of the runner's own, around the case."""
        got = self.connection.ask(line)
        if got != answer:
            raise Mismatch("%s must answer %s, got %r" % (line.decode(), answer.decode(), short(got)))

    def check(self, pieces, line, names):
        """One expected line."""
        if not transcript.matches(pieces, line, names):
            raise Mismatch("expected %s\n       got      %r" % (shown(pieces), short(line)))

    def check_list(self, wanted, last, names):
        """Lines in any order, up to the last."""
        missing = list(wanted)
        seen = []
        while True:
            line = self.connection.line(b"\n").removesuffix(b"\r")
            if transcript.matches(last, line, dict(names)):
                break
            seen.append(line)
            missing = [pieces for pieces in missing if not transcript.matches(pieces, line, names)]
        if missing:
            raise Mismatch("no line like %s among %d lines" % (", ".join(map(shown, missing)), len(seen)))

    def check_eof(self):
        """The end of the connection, and nothing before it."""
        try:
            rest = bytes(self.connection.buffer) or self.connection.socket.recv(4096)
        except ConnectionError:
            return
        if rest:
            raise Mismatch("expected the end of the connection\n       got      %r" % short(rest))


def merged(steps):
    """The steps, with sends in a row joined: a turn is sent at once."""
    out = []
    for step in steps:
        if step[0] == "send" and out and out[-1][0] == "send":
            out[-1] = out[-1] + (step[1],)
        else:
            out.append(step)
    return out


def shown(pieces):
    """A pattern as a person can read it."""
    return "".join(repr(p)[2:-1] if isinstance(p, bytes) else "{%s}" % ",".join(map(str, p)) for p in pieces)[:300]


def short(data):
    """The head of some bytes."""
    return data if len(data) <= 300 else data[:300] + b"..."


def play(server, case, cut):
    """Plays a case; returns None, or what went wrong."""
    replay = None
    try:
        replay = Replay(server, cut)
        replay.run(case)
    except (Mismatch, support.Closed, transcript.Malformed, OSError) as error:
        if cut == "bytes" and case.steps[-1][0] == "eof" and isinstance(error, ConnectionError):
            return None
        return str(error) or type(error).__name__
    finally:
        if replay:
            replay.connection.close()
    return None


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("--flags", default="", help="more flags for the server, in one argument")
    parser.add_argument("--cut", choices=["whole", "bytes"], default="whole")
    parser.add_argument("--release", help="the server is memcached of this release, and not Larder")
    parser.add_argument("--case", help="only the cases whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the cases' names and stop")
    parser.add_argument("files", nargs="*", help="transcripts; default: all of this folder")
    return parser.parse_args()


def load(arguments):
    """The cases to play."""
    files = arguments.files or sorted(glob.glob(os.path.join(HERE, "*.txt")))
    cases = [case for file in files for case in transcript.read_file(file)]
    return [case for case in cases if not arguments.case or arguments.case in case.name]


def play_group(arguments, flags, cases, failures):
    """Plays the cases that share a set of flags on one server; returns how many passed and were skipped."""
    passed = skipped = 0
    with support.Server(arguments.server, arguments.flags.split() + list(flags)) as server:
        for case in cases:
            if case.uncut and arguments.cut != "whole":
                skipped += 1
                continue
            wrong = play(server, case, arguments.cut)
            if case.differs and arguments.release:
                # What is listed as a difference has to be one.
                wrong = None if wrong else "the release answers this as Larder does"
            if wrong is None:
                passed += 1
            else:
                failures.append((case, wrong))
                print("FAIL %s\n       %s" % (case, wrong), flush=True)
            if server.process.poll() is not None:
                failures.append((case, "the server ended"))
                print("FAIL %s\n       the server ended: %s" % (case, server.error_text().strip()[-500:]))
                break
    return passed, skipped


def main():
    """Plays everything; returns the exit status."""
    arguments = parse_arguments()
    release = tuple(int(part) for part in (arguments.release or RELEASE).split("."))
    cases = load(arguments)
    if arguments.list:
        print("\n".join(str(case) for case in cases))
        return 0
    groups = {}
    skipped = 0
    for case in cases:
        is_older = release < tuple(int(part) for part in RELEASE.split("."))
        if is_older and (case.differs or (case.since and case.since > release)):
            skipped += 1
            continue
        groups.setdefault(tuple(case.flags), []).append(case)
    passed = 0
    failures = []
    for flags, group in groups.items():
        try:
            done, left = play_group(arguments, flags, group, failures)
            passed, skipped = passed + done, skipped + left
        except support.DidNotStart as error:
            failures += [(case, "the server did not start") for case in group]
            print("FAIL %d cases: the server did not start with %s: %s" % (len(group), " ".join(flags), error))
    print("%d passed, %d failed, %d skipped" % (passed, len(failures), skipped))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
