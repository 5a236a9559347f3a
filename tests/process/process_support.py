"""What the process tests share: the server under test, and how it is started by hand."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, TESTS)

import support  # noqa: E402



def server_command():
    """The server command, from the environment."""
    return os.environ.get("LARDER_SERVER", support.DEFAULT_COMMAND)


def is_larder():
    """Whether the server is Larder, and not memcached in its place."""
    return "larder" in os.path.basename(shlex.split(server_command())[0])


def larder_only(test):
    """Marks a test of what memcached does not have."""
    return unittest.skipUnless(is_larder(), "memcached has no such thing")(test)


def start(*flags, **options):
    """A running server with these flags."""
    return support.Server(server_command(), list(flags), **options)


def server_words():
    """The words of the server command."""
    words = shlex.split(server_command())
    words[0] = support.Server._executable(words[0])
    return words if is_larder() else words + ["-u", "root"]


def program():
    """The path of the program that the server command runs."""
    return support.Server._executable(shlex.split(server_command())[0])


def run_to_end(*arguments, environment=None):
    """Runs the server where it should end by itself; returns (status, stdout, stderr)."""
    return run_program(*shlex.split(server_command())[1:], *arguments, environment=environment)


def run_program(*arguments, environment=None):
    """Runs another command of the program; returns (status, stdout, stderr)."""
    words = [program()]
    variables = dict(os.environ, **(environment or {}))
    done = subprocess.run(words + list(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=support.WAIT_SECONDS_MAX, env=variables)
    return done.returncode, done.stdout, done.stderr


def is_at_work(process):
    """Whether a process waits for signals and has used a third of a second of processor time."""
    with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
        caught = int(re.search(r"SigCgt:\s*(\w+)", file.read()).group(1), 16)
    with open("/proc/%d/stat" % process.pid, encoding="ascii") as file:
        ticks = sum(int(field) for field in file.read().rsplit(")", 1)[1].split()[11:13])
    return caught >> (signal.SIGTERM - 1) & 1 and ticks > os.sysconf("SC_CLK_TCK") / 3


def own_address():
    """An address of this machine that is not the loopback address, or None."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # Nothing is sent.
        probe.connect(("192.0.2.254", 9))
        found = probe.getsockname()[0]
    except OSError:
        return None
    finally:
        probe.close()
    return None if found.startswith(("127.", "0.")) else found


class Case(unittest.TestCase):
    """A test case with a folder of its own, and a server that is stopped whatever happens."""

    def folder(self):
        """A new folder that goes with the test."""
        # A browser that was ended may still write to its profile while that is removed.
        made = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(made.cleanup)
        return made.name

    def server(self, *flags, **options):
        """A server that is stopped at the end of the test."""
        made = start(*flags, **options)
        self.addCleanup(made.__exit__)
        return made

    def service_manager(self):
        """A socket of a service manager such as systemd, and the environment of a service."""
        path = os.path.join(self.folder(), "notify")
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(made.close)
        made.bind(path)
        made.settimeout(support.WAIT_SECONDS_MAX)
        return made, {"NOTIFY_SOCKET": path}

    def wait_for_clock(self, connection, seconds):
        """Returns once the server's clock has gone on by so many seconds."""
        begun = int(connection.stats()[b"time"])
        support.until(lambda: int(connection.stats()[b"time"]) >= begun + seconds, "the server's clock goes on")

    def told_until(self, manager, word):
        """What a service manager is told, up to the message that has this line."""
        heard = []
        while not heard or word not in heard[-1].splitlines():
            heard.append(manager.recv(4096).decode())
        return heard

    def connection(self, server, **options):
        """A connection that is closed at the end of the test."""
        made = server.connect(**options)
        self.addCleanup(made.close)
        return made
