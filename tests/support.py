"""Starting a server and talking to it: what every test runner in this folder shares.

A *server command* is the start of a command line, such as `target/release/larder serve`; the port and the other
flags are added to it. Any server that takes memcached's flags will do, memcached itself included.
"""

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT_COMMAND = os.path.join(REPOSITORY, "target", "release", "larder") + " serve"
DEFAULT_FLAGS = ["-U", "0", "-m", "64", "-t", "2"]
START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0


def free_port():
    """A TCP port that was free a moment ago, on every address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def in_ci():
    """Whether a tool that is missing is a failure (CI=true) or a reason to skip."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def tools_folder():
    """Where the tests keep what they install."""
    return os.environ.get("LARDER_TOOLS", os.path.join(REPOSITORY, ".tools"))


class DidNotStart(Exception):
    """The server ended, or did not listen in time. Carries what it printed."""


class Server:
    """A server process on a random port of 127.0.0.1, with what it prints kept in files.

    `flags` come after the default ones, so that a later `-m` wins. Used with `with`, or stopped by `stop`.
    """

    def __init__(self, command=None, flags=(), defaults=None, environment=None, wait=True, port=None,
                 pass_fds=()):
        self.port = free_port() if port is None else port
        self.command = shlex.split(command or DEFAULT_COMMAND)
        self.command[0] = self._executable(self.command[0])
        if os.path.basename(self.command[0]) == "memcached" and os.geteuid() == 0 and "-u" not in self.command:
            self.command += ["-u", "root"]
        arguments = ["-p", str(self.port)] + list(DEFAULT_FLAGS if defaults is None else defaults) + list(flags)
        self.errors = tempfile.TemporaryFile()
        self.output = tempfile.TemporaryFile()
        variables = dict(os.environ)
        variables.update(environment or {})
        self.process = subprocess.Popen(
            self.command + arguments, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors, env=variables,
            pass_fds=pass_fds
        )
        if wait:
            self.wait_until_listening()

    @staticmethod
    def _executable(name):
        path = os.path.join(REPOSITORY, name)
        return path if os.sep in name and os.path.exists(path) else name

    def wait_until_listening(self, host="127.0.0.1"):
        """Returns once a connection is accepted; raises DidNotStart."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DidNotStart("exit status %d: %s" % (self.process.returncode, self.error_text().strip()))
            try:
                socket.create_connection((host, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise DidNotStart("nothing listens after %d s: %s" % (START_SECONDS_MAX, self.error_text().strip()))

    def _text(self, file):
        # Not by seek and read: the server writes at the position of the file, which the two processes share.
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")

    def error_text(self):
        """What the server wrote to standard error so far."""
        return self._text(self.errors)

    def output_text(self):
        """What the server wrote to standard output so far."""
        return self._text(self.output)

    def connect(self, timeout=10.0, receive_buffer=None):
        """A new connection to the server."""
        return Connection("127.0.0.1", self.port, timeout, receive_buffer)

    def resident_bytes(self):
        """The process's resident set, in bytes; 0 once it is gone."""
        return self._status_bytes("VmRSS:")

    def resident_bytes_peak(self):
        """The largest resident set so far, in bytes."""
        return self._status_bytes("VmHWM:")

    def _status_bytes(self, name):
        try:
            with open("/proc/%d/status" % self.process.pid) as status:
                for line in status:
                    if line.startswith(name):
                        return int(line.split()[1]) * 1024
        except OSError:
            pass
        return 0

    def wait(self, seconds=STOP_SECONDS_MAX):
        """The exit status, once the process ended by itself; raises subprocess.TimeoutExpired."""
        return self.process.wait(seconds)

    def stop(self, signal_number=signal.SIGTERM):
        """Asks the server to stop, waits, kills it if it does not listen; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.errors.close()
        self.output.close()


class Closed(Exception):
    """The server closed the connection where an answer was expected."""


class Connection:
    """A TCP (or given) socket with a line reader. Lines end in CRLF, which is removed."""

    def __init__(self, host, port, timeout=10.0, receive_buffer=None, made=None):
        if made is None:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            made = socket.socket(family, socket.SOCK_STREAM)
            if receive_buffer:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            made.settimeout(timeout)
            made.connect((host, port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.settimeout(timeout)
        self.socket = made
        self.buffer = bytearray()

    def send(self, data):
        """Sends all of `data`."""
        self.socket.sendall(data)

    def line(self, end_mark=b"\r\n"):
        """The next line, without its end mark; raises Closed."""
        while True:
            end = self.buffer.find(end_mark)
            if end >= 0:
                taken = bytes(self.buffer[:end])
                del self.buffer[: end + len(end_mark)]
                return taken
            self._more()

    def exactly(self, count):
        """The next `count` bytes; raises Closed."""
        while len(self.buffer) < count:
            self._more()
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def _more(self):
        got = self.socket.recv(65536)
        if not got:
            raise Closed("connection closed after %r" % bytes(self.buffer[-200:]))
        self.buffer += got

    def ask(self, request):
        """Sends a line and returns the first line of the answer."""
        self.send(request + b"\r\n")
        return self.line()

    def set(self, key, value, flags=0, exptime=0):
        """Stores `value`; returns the answer's line."""
        self.send(b"set %b %d %d %d\r\n%b\r\n" % (key, flags, exptime, len(value), value))
        return self.line()

    def get(self, key):
        """The value of `key`, or None."""
        self.send(b"get %b\r\n" % key)
        first = self.line()
        if first == b"END":
            return None
        words = first.split()
        if len(words) != 4 or words[0] != b"VALUE" or words[1] != key:
            raise AssertionError("unexpected answer to get: %r" % first)
        value = self.exactly(int(words[3]))
        rest = (self.exactly(2), self.line())
        if rest != (b"\r\n", b"END"):
            raise AssertionError("unexpected end of an answer: %r" % (rest,))
        return value

    def stats(self, which=b""):
        """The answer to `stats`, as a dictionary of bytes."""
        self.send(b"stats" + (b" " + which if which else b"") + b"\r\n")
        found = {}
        while True:
            line = self.line()
            if line == b"END":
                return found
            words = line.split(b" ", 2)
            if words[0] != b"STAT":
                raise AssertionError("unexpected answer to stats: %r" % line)
            found[words[1]] = words[2] if len(words) > 2 else b""

    def is_closed(self, seconds=5.0):
        """Whether the server closes the connection within `seconds`; what it still sends is dropped."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self):
        """Closes the connection."""
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
