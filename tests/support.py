"""Starting a server and talking to it: what every test runner in this folder shares.

A *server command* is the start of a command line, such as `target/debug/larder serve`; the port and the other
flags are added to it. Any server that takes memcached's flags will do, memcached itself included.
"""

import fcntl
import os
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT_COMMAND = os.path.join(REPOSITORY, "target", "debug", "larder") + " serve"
DEFAULT_FLAGS = ["-U", "0", "-m", "64", "-t", "2"]
# A wait ends with the event that it is for. This limit is there so that a test ends that would wait for ever.
WAIT_SECONDS_MAX = 60.0
# Below the ports that the kernel gives to clients.
PORTS = (15_000, 30_000)
# How long a wait rests between two looks.
LOOK_SECONDS = 0.01
# A server that has used no processor time for so long rests.
IDLE_SECONDS = 0.2
# What a busy server has in memory of the program as it is shipped; a build for tests has half as much again.
SHIPPED_CODE_BYTES = 7 << 20


def until(happens, what="the event", seconds=WAIT_SECONDS_MAX):
    """Looks again and again until `happens()` returns something that counts as true, and returns that.

    `what` says in a failure what was waited for; a function is called then, and may tell how far things got.
    """
    deadline = time.monotonic() + seconds
    while not (found := happens()):
        if time.monotonic() > deadline:
            raise AssertionError("after %g s still not: %s" % (seconds, what() if callable(what) else what))
        time.sleep(LOOK_SECONDS)
    return found


def until_no_error(act, errors=(OSError,), seconds=WAIT_SECONDS_MAX):
    """Calls `act` again and again until it raises none of `errors`; returns what it returns."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except errors:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOOK_SECONDS)


def free_port():
    """A port of TCP and UDP that nobody uses, on every address.

    The kernel gives it to no client, and no other test of this machine is given it soon: the last one that was given is
    in a file.
    """
    with open(os.path.join(tempfile.gettempdir(), "larder-tests-%d.port" % os.geteuid()), "a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        port = int(last.read() or 0)
        while True:
            port = port + 1 if PORTS[0] <= port < PORTS[1] else PORTS[0]
            if _is_free(port):
                break
        last.truncate(0)
        last.write(str(port))
    return port


def _is_free(port):
    """Whether nobody uses a port."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


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
        # Larder writes its ports to a file once it has said what it has to say of its start.
        self._ports = tempfile.TemporaryDirectory(prefix="larder-ports-")
        variables = {**os.environ, "MEMCACHED_PORT_FILENAME": os.path.join(self._ports.name, "ports")}
        variables.update(environment or {})
        self.process = subprocess.Popen(
            self.command + arguments, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors, env=variables,
            pass_fds=pass_fds
        )
        is_larder = os.path.basename(self.command[0]) == "larder"
        self.ports_file = variables["MEMCACHED_PORT_FILENAME"] if is_larder else None
        if wait:
            self.wait_until_listening()

    @staticmethod
    def _executable(name):
        path = os.path.join(REPOSITORY, name)
        return path if os.sep in name and os.path.exists(path) else name

    def wait_until_listening(self, host="127.0.0.1"):
        """Returns once a connection is accepted and Larder has ended its start; raises DidNotStart."""
        def listens():
            if self.process.poll() is not None:
                raise DidNotStart("exit status %d: %s" % (self.process.returncode, self.error_text().strip()))
            if self.ports_file and not os.path.exists(self.ports_file):
                return False
            try:
                socket.create_connection((host, self.port), timeout=WAIT_SECONDS_MAX).close()
                return True
            except OSError:
                return False
        try:
            until(listens, "somebody listens")
        except AssertionError as error:
            self.stop()
            raise DidNotStart("%s: %s" % (error, self.error_text().strip())) from None

    def wait_until_idle(self):
        """Returns once the process has used next to no processor time for a while: it has done what it was sent.

        A machine that gives the process no time lets it look idle. So this serves tests of what must not happen: on
        such a machine they see less, and never fail for it.
        """
        def rests():
            before = self.processor_ticks()
            time.sleep(IDLE_SECONDS)
            return self.processor_ticks() - before <= 1
        until(rests, "the server rests")

    def processor_ticks(self):
        """The processor time of the process so far, in ticks; 0 once it is gone."""
        try:
            with open("/proc/%d/stat" % self.process.pid, encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0
        return int(fields[11]) + int(fields[12])

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

    def connect(self, timeout=WAIT_SECONDS_MAX, receive_buffer=None):
        """A new connection to the server."""
        return Connection("127.0.0.1", self.port, timeout, receive_buffer)

    def resident_bytes(self):
        """The process's resident set, in bytes; 0 once it is gone."""
        return self._status_bytes("VmRSS:")

    def resident_bytes_peak(self):
        """The largest resident set so far, in bytes, with no more code than the program has as it is shipped."""
        return self._status_bytes("VmHWM:") - max(0, self._code_bytes() - SHIPPED_CODE_BYTES)

    def _code_bytes(self):
        """What the process has in memory of the file of its program, in bytes; 0 once it is gone."""
        try:
            path = os.readlink("/proc/%d/exe" % self.process.pid)
            with open("/proc/%d/smaps" % self.process.pid) as mappings:
                lines = [line.split() for line in mappings]
        except OSError:
            return 0
        count, is_code = 0, False
        for first, *rest in lines:
            if not first.endswith(":"):
                is_code = rest[4:] == [path]
            elif is_code and first == "Rss:":
                count += int(rest[0]) * 1024
        return count

    def _status_bytes(self, name):
        try:
            with open("/proc/%d/status" % self.process.pid) as status:
                for line in status:
                    if line.startswith(name):
                        return int(line.split()[1]) * 1024
        except OSError:
            pass
        return 0

    def wait(self, seconds=WAIT_SECONDS_MAX):
        """The exit status, once the process ended by itself; raises subprocess.TimeoutExpired."""
        return self.process.wait(seconds)

    def stop(self, signal_number=signal.SIGTERM):
        """Asks the server to stop, waits, kills it if it does not listen; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(WAIT_SECONDS_MAX)
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
        self._ports.cleanup()


def _unread(port, peer_port):
    """How many bytes have come to a socket of this machine that its owner has not read; None where there is none."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path, encoding="ascii") as rows:
            for fields in map(str.split, rows):
                ends = [field.rpartition(":")[2] for field in fields[1:3]]
                if ends == ["%04X" % port, "%04X" % peer_port]:
                    return int(fields[4].partition(":")[2], 16)
    return None


def path_connection(path):
    """A connection to a UNIX socket, once somebody listens there: the file is there a moment before."""
    def connected():
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(path)
        except OSError:
            made.close()
            raise
        return made
    return Connection(None, None, made=until_no_error(connected))


class Closed(Exception):
    """The server closed the connection where an answer was expected."""


class Connection:
    """A TCP (or given) socket with a line reader. Lines end in CRLF, which is removed."""

    def __init__(self, host, port, timeout=WAIT_SECONDS_MAX, receive_buffer=None, made=None):
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

    def wait_until_read(self):
        """Returns once the other side has read all that was sent (over TCP on this machine)."""
        own, other = self.socket.getsockname()[1], self.socket.getpeername()[1]
        until(lambda: not _unread(other, own), "what was sent is read")

    def wait_until_answered(self):
        """Returns once something has come that nobody has read yet."""
        if not select.select([self.socket], [], [], WAIT_SECONDS_MAX)[0]:
            raise AssertionError("no answer")

    def is_closed(self, seconds=WAIT_SECONDS_MAX):
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
