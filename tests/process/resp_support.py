"""Requests and replies of RESP."""


def command(*words):
    """A request."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Pushed(list):
    """Values that answer no request."""


def receive(connection):
    """The next reply: bytes, a number, a list, None, or an error as the bytes of its line."""
    line = connection.line()
    kind, rest = line[:1], line[1:]
    if kind in (b"+", b"-"):
        return line if kind == b"-" else rest
    if kind == b":":
        return int(rest)
    if kind == b",":
        return float(rest)
    if kind == b"_" or rest == b"-1":
        return None
    if kind == b"$":
        return connection.exactly(int(rest) + 2)[:-2]
    if kind == b">":
        return Pushed(receive(connection) for _ in range(int(rest)))
    if kind in (b"*", b"%", b"~"):
        return [receive(connection) for _ in range(int(rest) * (2 if kind == b"%" else 1))]
    raise AssertionError("no reply: %r" % line)


def ask(connection, *words):
    """Sends a request and returns its reply."""
    connection.send(command(*words))
    return receive(connection)
