#!/usr/bin/env python3
r"""Runs the tests of the Debian package and of the image. tests/package/run.sh makes what the options name.

    tests/package/test_package.py --root FOLDER --archives FOLDER --work FOLDER --package FILE --image FILE \
        [TEST...]

It mounts, so it is to run as root in a mount namespace of its own. The last line says `N passed, N failed, N skipped`.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import package_support  # noqa: E402
import results  # noqa: E402


def main():
    """Reads the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, meaning in (("root", "a minimal Debian"), ("archives", "where apt keeps packages"),
                          ("work", "where a tmpfs for copies of the root is mounted"),
                          ("package", "the Debian package"), ("image", "the image's archive")):
        parser.add_argument("--" + name, required=True, type=os.path.abspath, help=meaning)
    parser.add_argument("tests", nargs="*", default=["test_deb", "test_systemd", "test_image"])
    arguments = parser.parse_args()
    vars(package_support.paths).update(vars(arguments))
    package_support.run("mount", "-t", "tmpfs", "-o", "size=8g", "tmpfs", arguments.work)
    return results.run(arguments.tests)


if __name__ == "__main__":
    sys.exit(main())
