"""Requests and replies of memcached's binary protocol, for tests over real sockets."""

import collections
import struct

HEADER = struct.Struct(">BBHBBHIIQ")
GET, SET, ADD, DELETE, INCR, QUIT, FLUSH, GETQ, NOOP, VERSION, GETK, GETKQ, APPEND, STAT, SETQ = (
    0x00, 0x01, 0x02, 0x04, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x10, 0x11)
SASL_LIST, SASL_AUTH, SASL_STEP = 0x20, 0x21, 0x22
OK, NOT_FOUND, TOO_LARGE, INVALID, AUTH_ERROR, AUTH_CONTINUE, UNKNOWN = 0, 1, 3, 4, 0x20, 0x21, 0x81

Reply = collections.namedtuple("Reply", "opcode status opaque cas extras key value")


def packet(opcode, key=b"", value=b"", extras=b"", opaque=0, cas=0):
    """A request."""
    body = extras + key + value
    return HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, len(body), opaque, cas) + body


def store(key, value, opcode=SET, flags=0, exptime=0, opaque=0):
    """A request that stores a value."""
    return packet(opcode, key, value, struct.pack(">II", flags, exptime), opaque)


def plain(user, password):
    """A login by SASL PLAIN."""
    return packet(SASL_AUTH, b"PLAIN", b"\0%b\0%b" % (user, password))


def take(data):
    """The first reply in `data`, and what follows it."""
    magic, opcode, key, extras, _, status, body, opaque, cas = HEADER.unpack_from(data)
    if magic != 0x81 or len(data) < HEADER.size + body:
        raise AssertionError("no reply: %r" % data[:100])
    text, rest = data[HEADER.size:HEADER.size + body], data[HEADER.size + body:]
    return Reply(opcode, status, opaque, cas, text[:extras], text[extras:extras + key], text[extras + key:]), rest


def receive(connection):
    """The next reply on a connection."""
    header = connection.exactly(HEADER.size)
    return take(header + connection.exactly(HEADER.unpack(header)[6]))[0]


def ask(connection, request):
    """Sends a request and returns its reply."""
    connection.send(request)
    return receive(connection)
