"""A process that stores keys through a proxy and reads them: PORT text|resp NAME COUNT [waits].

It prints `half stored` and `half read` in the middle of each, and what it saw as JSON at the end. With `waits` it reads
the second half of the keys when a line has come to its standard input.
"""

import collections
import json
import socket
import sys
import time

BATCH = 100
# A request that fails is asked again for so long: clients of proxies are told to.
PATIENCE_SECONDS = 10


class Lines:
    """A connection that sends requests in batches and reads replies line by line; it connects again after an error."""

    def __init__(self, port):
        self.port, self.file, self.socket = port, None, None

    def send(self, data):
        """Sends a batch, on a new connection if there is none."""
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=20)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.file = self.socket.makefile("rb")
        self.socket.sendall(data)

    def line(self):
        """The next line without its end; raises ConnectionError once the connection is closed."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        return line[:-2]

    def close(self):
        """Drops the connection."""
        if self.socket is not None:
            self.file.close()
            self.socket.close()
        self.socket = None


class Text:
    """Batches in memcached's text protocol."""

    @staticmethod
    def store(keys):
        """Requests that store the keys."""
        return b"".join(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(key) + 1, b"=" + key) for key in keys)

    @staticmethod
    def stored(lines, _key):
        """Reads one reply; returns None, or the error."""
        line = lines.line()
        return None if line == b"STORED" else line

    @staticmethod
    def read(keys):
        """Requests that read the keys."""
        return b"".join(b"get %b\r\n" % key for key in keys)

    @staticmethod
    def found(lines, key):
        """Reads one reply; returns whether the key was found, and the error."""
        line = lines.line()
        if line == b"END":
            return False, None
        if not line.startswith(b"VALUE "):
            return False, line
        right = (line.split()[1], lines.line(), lines.line()) == (key, b"=" + key, b"END")
        return True, None if right else b"another value"


class Resp:
    """Batches in RESP."""

    @staticmethod
    def store(keys):
        """Requests that store the keys."""
        return b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n=%b\r\n" % (len(key), key, len(key) + 1, key)
                        for key in keys)

    @staticmethod
    def stored(lines, _key):
        """Reads one reply; returns None, or the error."""
        line = lines.line()
        return None if line == b"+OK" else line

    @staticmethod
    def read(keys):
        """Requests that read the keys."""
        return b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key) for key in keys)

    @staticmethod
    def found(lines, key):
        """Reads one reply; returns whether the key was found, and the error."""
        line = lines.line()
        if line == b"$-1":
            return False, None
        if not line.startswith(b"$"):
            return False, line
        return True, None if lines.line() == b"=" + key else b"another value"


def work(port, protocol, name, count, waits):
    """Stores `count` keys through a proxy, reads them; prints what it saw as JSON, and `half` in the middle of each."""
    lines, seen, errors = Lines(port), collections.Counter(), collections.Counter()

    def batch(keys, request, reply):
        """Sends one batch. Returns the keys that failed; the caller asks for them again."""
        left = list(keys)
        try:
            lines.send(request(keys))
            for key in keys:
                error = reply(key)
                if error is None:
                    left.remove(key)
                else:
                    errors[error.decode("utf-8", "replace")[:60]] += 1
        except OSError as error:
            errors[type(error).__name__] += 1
            lines.close()
        return left

    def insist(keys, request, reply):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while keys and time.monotonic() < deadline:
            keys = batch(keys, request, reply)
            if keys:
                time.sleep(0.05)
        seen["given up"] += len(keys)

    def read_one(key):
        found, error = protocol.found(lines, key)
        if error is None:
            seen["found" if found else "absent"] += 1
        elif error == b"another value":
            seen["wrong"] += 1
        return error

    for act, request, reply in (
        ("stored", protocol.store, lambda key: protocol.stored(lines, key)),
        ("read", protocol.read, read_one),
    ):
        for start in range(0, count, BATCH):
            if count // 2 <= start < count // 2 + BATCH:
                print("half " + act, flush=True)
                if waits and act == "read":
                    sys.stdin.readline()
            insist([b"%b:%d" % (name, i) for i in range(start, min(start + BATCH, count))], request, reply)
    print(json.dumps({"seen": seen, "errors": errors}), flush=True)


if __name__ == "__main__":
    work(int(sys.argv[1]), {"text": Text, "resp": Resp}[sys.argv[2]], sys.argv[3].encode(), int(sys.argv[4]),
         sys.argv[5:] == ["waits"])
