"""A small collector of checks for the Python suites: one line per check, and an exit status."""

import os
import sys
import time
import traceback


class Checks:
    """Runs functions and prints `ok NAME`, `not ok NAME: REASON` or `skip NAME: REASON` for each.

    `prefix` names the library. HOST and PORT are the two arguments of the program.
    """

    def __init__(self, prefix):
        self.prefix = prefix
        self.failed = 0
        self.host = sys.argv[1]
        self.port = int(sys.argv[2])

    def run(self, name, function, *arguments):
        """One check: it passes if `function` raises nothing."""
        try:
            function(*arguments)
            print("ok %s %s" % (self.prefix, name), flush=True)
        except Exception as error:  # a check reports whatever goes wrong
            self.failed += 1
            place = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in place if os.path.dirname(frame.filename) == os.path.dirname(__file__)]
            text = str(error).replace("\n", " ") or type(error).__name__
            print("not ok %s %s: %s (line %s)" % (self.prefix, name, text[:300], lines[-1:]), flush=True)

    def end(self):
        """Leaves the program with the suite's exit status."""
        sys.exit(1 if self.failed else 0)


def same(got, wanted):
    """Fails unless the two are equal."""
    if got != wanted:
        raise AssertionError("expected %s, got %s" % (short(wanted), short(got)))


def true(got):
    """Fails unless the value counts as true."""
    if not got:
        raise AssertionError("expected something true, got %s" % short(got))


def raises(kind, function, *arguments, **named):
    """Fails unless the call raises `kind`."""
    try:
        function(*arguments, **named)
    except kind:
        return
    raise AssertionError("no %s" % kind.__name__)


def until(happens):
    """Returns once `happens()` returns something that counts as true; fails if that takes a minute."""
    deadline = time.monotonic() + 60
    while not happens():
        true(time.monotonic() < deadline)
        time.sleep(0.02)


def short(value):
    """A value's representation, cut."""
    text = repr(value)
    return text if len(text) < 120 else text[:117] + "..."


AWKWARD = bytes(range(256)) + b"\r\nEND\r\nVALUE a 0 1\r\n\x80\x81"
LARGE = bytes(range(256)) * 3900
EXPIRY_SECONDS = 1
