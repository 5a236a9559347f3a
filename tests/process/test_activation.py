"""Listening sockets that a service manager hands over: `LISTEN_FDS`."""

import os
import shlex
import socket
import sys
import unittest

import support
from process_support import Case, larder_only, own_address, server_command
from resp_support import ask, command

# Does what a service manager does before it becomes the server: the sockets become descriptors from 3 on, and the
# variables name the process.
WRAPPER = """
import fcntl, os, sys
high = []
for number in map(int, sys.argv[1].split(",")):
    high.append(fcntl.fcntl(number, fcntl.F_DUPFD, 100))
    os.close(number)
for at, number in enumerate(high):
    os.dup2(number, 3 + at)
    os.close(number)
os.environ.update(LISTEN_PID=str(os.getpid() + int(sys.argv[2])), LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=sys.argv[3])
os.execv(sys.argv[4], sys.argv[4:])
"""


def listening(host="127.0.0.1", both=False):
    """A TCP socket that listens on a free port."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    if ":" in host:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
    made.bind((host, 0))
    made.listen(100)
    return made


@larder_only
class Activation(Case):
    """The server serves the sockets that it inherits, and opens only what is missing."""

    def heir(self, sockets, names, *flags, port=None, pid_offset=0, **options):
        """A server that inherits these sockets with these names."""
        words = shlex.split(server_command())
        words[0] = support.Server._executable(words[0])
        wrapped = [sys.executable, "-c", WRAPPER, ",".join(str(each.fileno()) for each in sockets), str(pid_offset),
                   ":".join(names)]
        made = support.Server(shlex.join(wrapped + words), list(flags), port=port,
                              pass_fds=[each.fileno() for each in sockets], **options)
        self.addCleanup(made.__exit__)
        return made

    def socket(self, *arguments, **options):
        """A listening socket that is closed at the end of the test."""
        made = listening(*arguments, **options)
        self.addCleanup(made.close)
        return made

    def unix_socket(self):
        """A listening UNIX socket that is closed at the end of the test, and its path."""
        path = os.path.join(self.folder(), "socket")
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(made.close)
        made.bind(path)
        made.listen(10)
        return made, path

    def client(self, port):
        """A connection to a port of this machine."""
        made = support.Connection("127.0.0.1", port)
        self.addCleanup(made.close)
        return made

    def path_client(self, path):
        """A connection to a UNIX socket."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.connect(path)
        connection = support.Connection(None, None, made=made)
        self.addCleanup(connection.close)
        return connection

    def test_a_socket_outlives_the_server_and_no_client_is_refused(self):
        for backend in ("poll", "auto"):
            listener = self.socket()
            port = listener.getsockname()[1]
            early = self.client(port)
            early.send(b"set k 0 0 1\r\nv\r\n")
            flags = ("-l", "127.0.0.1", "-t", "4", "--backend", backend)
            server = self.heir([listener], ["larder.socket"], *flags, port=port)
            self.assertEqual(early.line(), b"STORED")
            for client in [self.client(port) for _ in range(8)]:
                self.assertEqual(client.get(b"k"), b"v")
            self.assertEqual(server.stop(), 0)
            between = self.client(port)
            between.send(b"version\r\n")
            self.heir([listener], ["larder.socket"], *flags, port=port)
            self.assertTrue(between.line().startswith(b"VERSION"))

    def test_names_say_what_is_spoken(self):
        memcached, resp = self.socket(), self.socket()
        unix, path = self.unix_socket()
        server = self.heir([resp, unix, memcached], ["resp", "unix", "memcached"], "--admin", "off", wait=False)
        self.assertEqual(ask(self.client(resp.getsockname()[1]), b"PING"), b"PONG")
        for client in (self.client(memcached.getsockname()[1]), self.path_client(path)):
            self.assertTrue(client.ask(b"version").startswith(b"VERSION"))
        # The port of -p is not opened beside the socket that takes its place.
        with self.assertRaises(OSError):
            self.client(server.port)
        self.assertEqual(server.stop(), 0)
        self.assertTrue(os.path.exists(path), "the file of a socket belongs to who made it")

    def test_a_socket_opens_no_door_but_its_own(self):
        if own_address() is None:
            self.skipTest("this machine has no address but its loopback address")
        listener, resp = self.socket(), support.free_port()
        server = self.heir([listener], ["memcached"], "--resp-port", str(resp), port=listener.getsockname()[1])
        support.until(lambda: ":%d (RESP)" % resp in server.error_text(), "it listens")
        stranger = support.Connection(own_address(), resp)
        self.addCleanup(stranger.close)
        stranger.send(command(b"SET", b"a", b"b"))
        self.assertTrue(stranger.line().startswith(b"-DENIED"))

    def test_a_unix_socket_is_known_by_its_path(self):
        unix, path = self.unix_socket()
        self.heir([unix], ["any"], "-s", path, wait=False)
        self.assertTrue(self.path_client(path).ask(b"version").startswith(b"VERSION"))

    def test_one_socket_serves_both_families(self):
        listener = self.socket("::", both=True)
        port = listener.getsockname()[1]
        server = self.heir([listener], ["larder.socket"], port=port)
        for host in ("127.0.0.1", "::1"):
            with support.Connection(host, port) as client:
                self.assertTrue(client.ask(b"version").startswith(b"VERSION"))
        self.assertNotIn("0.0.0.0:%d" % port, server.error_text())

    def test_a_socket_that_fits_nothing_keeps_the_server_from_starting(self):
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(datagrams.close)
        datagrams.bind(("127.0.0.1", 0))
        for given, says in ((self.socket(), "where the server does not listen"),
                            (datagrams, "is no listening stream socket")):
            server = self.heir([given], ["other"], "-l", "127.0.0.1", wait=False)
            self.assertNotEqual(server.wait(), 0)
            self.assertEqual(len(server.error_text().strip().splitlines()), 1, server.error_text())
            self.assertIn(says, server.error_text())
            self.assertIn("127.0.0.1:%d (other)" % given.getsockname()[1], server.error_text())

    def test_what_is_meant_for_another_process_is_left_alone(self):
        server = self.heir([self.socket()], ["memcached"], "-l", "127.0.0.1", pid_offset=1)
        self.assertTrue(self.client(server.port).ask(b"version").startswith(b"VERSION"))


if __name__ == "__main__":
    unittest.main()
