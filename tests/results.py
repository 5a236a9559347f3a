"""How the unittest suites in this folder report: a line per test, and the counts as the last line."""

import time
import unittest


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


def run(names):
    """Runs the tests with these names; returns the exit status."""
    result = Result()
    unittest.defaultTestLoader.loadTestsFromNames(names).run(result)
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed, %d skipped" % (result.passed, failed, len(result.skipped)))
    return 1 if failed else 0
