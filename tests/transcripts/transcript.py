"""Reading transcript files: see README.md for the format."""

import re

ESCAPES = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
PIECE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|\{([^{}]*)\}|([^\\{}]+)", re.DOTALL)
RANGE = re.compile(r"(\d+)\.\.(\d+)$")
REPEAT = re.compile(r"(.*)\*(\d+)$", re.DOTALL)
NAME = re.compile(r"([a-z]+)(?:([+-])(\d+))?$")


class Malformed(Exception):
    """A transcript that does not follow the format."""


class Case:
    """One case: `name`, `file`, `line`, `since` (a tuple or None), `uncut`, `differs`, `flags` and `steps`.

    A step is ("send", pieces), ("expect", pieces), ("list", [pieces], pieces), ("eof",) or ("wait", seconds).
    """

    def __init__(self, file, line, name):
        self.file, self.line, self.name = file, line, name
        self.since = None
        self.uncut = False
        self.differs = False
        self.flags = []
        self.steps = []
        self.wanted = []

    def __str__(self):
        return "%s:%d: %s" % (self.file, self.line, self.name)


def pieces_of(text):
    """The pieces of one line: bytes, or a tuple that names a notation in braces."""
    found = []
    position = 0
    while position < len(text):
        match = PIECE.match(text, position)
        if not match:
            raise Malformed("cannot read %r" % text[position:])
        position = match.end()
        number, escape, braces, plain = match.groups()
        if number is not None:
            found.append(bytes([int(number, 16)]))
        elif escape is not None:
            if escape not in ESCAPES:
                raise Malformed("unknown escape \\%s" % escape)
            found.append(ESCAPES[escape])
        elif plain is not None:
            found.append(plain.encode("utf-8"))
        else:
            found.append(_notation(braces))
    return found


def _notation(inside):
    if inside == "*":
        return ("word",)
    if inside == "..":
        return ("rest",)
    match = RANGE.match(inside)
    if match:
        return ("range", int(match.group(1)), int(match.group(2)))
    match = NAME.match(inside)
    if match:
        sign = -1 if match.group(2) == "-" else 1
        return ("name", match.group(1), None if match.group(2) is None else sign * int(match.group(3)))
    match = REPEAT.match(inside)
    if match:
        return b"".join(pieces_of(match.group(1))) * int(match.group(2))
    raise Malformed("unknown notation {%s}" % inside)


def compose(pieces, names):
    """The bytes to send."""
    out = bytearray()
    for piece in pieces:
        if isinstance(piece, bytes):
            out += piece
        elif piece[0] == "name":
            out += _value(piece, names)
        else:
            raise Malformed("%r has no meaning in a line to send" % (piece,))
    return bytes(out)


def _value(piece, names):
    if piece[1] not in names:
        raise Malformed("{%s} stands for nothing yet" % piece[1])
    value = names[piece[1]]
    return value if piece[2] is None else b"%d" % (int(value) + piece[2])


def matches(pieces, line, names):
    """Whether `line` is what `pieces` expect; if it is, names met for the first time are kept in `names`."""
    pattern = bytearray()
    checks = []
    for piece in pieces:
        if isinstance(piece, bytes):
            pattern += re.escape(piece)
        elif piece[0] == "word":
            pattern += rb"[^ \r\n]+"
        elif piece[0] == "rest":
            pattern += rb"[^\r\n]*"
        elif piece[0] == "range":
            pattern += rb"([0-9]+)"
            checks.append(piece)
        elif piece[1] in names:
            pattern += re.escape(_value(piece, names))
        elif piece[2] is None:
            pattern += rb"([^ \r]+)"
            checks.append(piece)
        else:
            raise Malformed("{%s} stands for nothing yet" % piece[1])
    match = re.fullmatch(bytes(pattern), line, re.DOTALL)
    if not match:
        return False
    learnt = {}
    for check, value in zip(checks, match.groups()):
        if check[0] == "range" and not check[1] <= int(value) <= check[2]:
            return False
        if check[0] == "name":
            learnt[check[1]] = value
    names.update(learnt)
    return True


def read_file(path):
    """All cases of a file, in order; raises Malformed."""
    cases = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            try:
                _read_line(cases, path, number, line)
            except Malformed as error:
                raise Malformed("%s:%d: %s" % (path, number, error)) from None
    for case in cases:
        if case.wanted:
            raise Malformed("%s: a list without its last line" % case)
    return cases


def _read_line(cases, path, number, line):
    if not line.strip() or line.startswith("#"):
        return
    if line.startswith("== "):
        cases.append(Case(path, number, line[3:].strip()))
        return
    if not cases:
        raise Malformed("a line before the first case")
    case = cases[-1]
    if line.startswith("! since "):
        case.since = tuple(int(part) for part in line[8:].split("."))
    elif line == "! uncut":
        case.uncut = True
    elif line == "! differs":
        case.differs = True
    elif line.startswith("! -"):
        case.flags += line[2:].split()
    elif line.startswith(">> "):
        case.steps.append(("send", pieces_of(line[3:])))
    elif line.startswith("> ") or line == ">":
        case.steps.append(("send", pieces_of(line[2:]) + [b"\r\n"]))
    elif line.startswith("<? "):
        case.wanted.append(pieces_of(line[3:]))
    elif line.startswith("<. "):
        case.steps.append(("list", case.wanted, pieces_of(line[3:])))
        case.wanted = []
    elif line == "<eof":
        case.steps.append(("eof",))
    elif line.startswith("< ") or line == "<":
        case.steps.append(("expect", pieces_of(line[2:])))
    elif line.startswith("~ "):
        case.steps.append(("wait", float(line[2:])))
    else:
        raise Malformed("unknown kind of line: %r" % line)
