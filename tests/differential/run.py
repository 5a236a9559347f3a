#!/usr/bin/env python3
"""Sends the same random requests to two servers and compares the replies. See README.md.

    tests/differential/run.py                             # target/debug/larder serve, .tools/peers/memcached
    tests/differential/run.py --seconds 3600              # for long
    tests/differential/run.py --seed 7 --case 1234        # one case again, as a failure names it
"""

import argparse
import importlib
import os
import random
import select
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import support  # noqa: E402

PROTOCOLS = ["text", "binary"]
# A server that says nothing for so long waits for the rest of a value, or is done with the connection.
QUIET_SECONDS = 0.3
# For so long a server is waited for that says nothing when the other has answered: the machine may be busy.
LATE_SECONDS = 10.0
SYNC_TRIES = 3
FLUSH_EVERY_CASES = 300
CUTS_MAX = 6
# memcached's own threads hold on to items now and then, and then it does not change them in place.
QUIET_REFERENCE = ["-o", "no_lru_maintainer,no_lru_crawler"]
SHOWN_BYTES = int(os.environ.get("DIFFERENTIAL_SHOWN_BYTES", "400"))


class Side:
    """One server's end of a conversation."""

    def __init__(self, server, protocol):
        self.server, self.protocol = server, protocol
        self.open()

    def open(self):
        """A new connection."""
        self.connection = self.server.connect()
        self.socket = self.connection.socket
        self.records = self.protocol.Records()
        self.closed = self.was_reset = False

    def close(self):
        """Ends the connection."""
        self.connection.close()

    def send(self, pieces):
        """Sends bytes in these pieces, with a moment between some of them."""
        for data, pause in pieces:
            try:
                self.socket.sendall(data)
            except OSError:
                # The server closed. What it said before is still to be read.
                self.was_reset = True
                return
            if pause:
                time.sleep(0.0005)

    def receive(self):
        """What has come."""
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            self.was_reset = True
            data = b""
        if not data:
            self.closed = True
            return []
        return self.records.feed(data)


class Different(Exception):
    """The servers do not agree."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text


class Pair:
    """The two servers, and the conversations with both."""

    def __init__(self, protocol, ours, theirs):
        self.protocol = protocol
        self.sides = [Side(ours, protocol), Side(theirs, protocol)]
        self.syncs = 0

    def restart(self):
        """New connections to both."""
        for side in self.sides:
            side.close()
            side.open()

    def exchange(self, requests, cut=None):
        """Sends one request to each side; returns the records of both up to the answers to a `sync`, or None for a
        side that closed or waits for more."""
        got = [[], []]
        done = [False, False]
        for number, side in enumerate(self.sides):
            side.send(cut(requests[number]) if cut else [(requests[number], False)])
        earlier = self.syncs
        for attempt in range(SYNC_TRIES):
            self.syncs += 1
            for side, is_done in zip(self.sides, done):
                if not is_done:
                    side.send([(self.protocol.sync(self.syncs), False)])
            self.listen(got, done, earlier)
            if all(is_done or side.closed for side, is_done in zip(self.sides, done)):
                break
        if any(done) and not all(done):
            self.listen(got, done, earlier, LATE_SECONDS)
        return got, done

    def listen(self, got, done, earlier, quiet_seconds=QUIET_SECONDS):
        """Reads until both sides have answered the last sync, have closed, or say nothing. Answers to other syncs after
        `earlier` come from a server that was late."""
        while True:
            waiting = [side for side, is_done in zip(self.sides, done) if not is_done and not side.closed]
            if not waiting:
                return
            readable, _, _ = select.select([side.socket for side in waiting], [], [], quiet_seconds)
            if not readable:
                return
            for number, side in enumerate(self.sides):
                if side.socket in readable:
                    for record in side.receive():
                        if self.protocol.is_synced(record, self.syncs):
                            done[number] = True
                        elif not any(self.protocol.is_synced(record, sync) for sync in range(earlier + 1, self.syncs)):
                            got[number].append(record)

    def play(self, turns, seed):
        """Plays a case; raises Different. Returns whether the connections can be used again."""
        comparison = self.protocol.Comparison()
        chooser = random.Random(seed)
        for turn in turns:
            keys = {piece.key for command in turn for piece in command if not isinstance(piece, bytes)}
            numbers = self.cas_numbers(sorted(keys), comparison)
            requests = [compose(turn, known) for known in numbers]
            state = chooser.getstate()

            def cut(data):
                chooser.setstate(state)
                return pieces(chooser, data)
            got, done = self.exchange(requests, cut if chooser.random() < 0.5 else None)
            self.compare(got, done, comparison, requests[0])
            if not all(done):
                return False
        return True

    def cas_numbers(self, keys, comparison):
        """The CAS numbers of these keys, as each side shows them."""
        if not keys:
            return [{}, {}]
        question = b"".join(map(self.protocol.cas_question, keys))
        got, done = self.exchange([question, question])
        self.compare(got, done, comparison, question)
        if not all(done):
            raise Different("a question for CAS numbers was not answered: %r" % question)
        return [dict(zip(keys, map(self.protocol.cas_answer, records))) for records in got]

    def compare(self, got, done, comparison, request):
        """Raises Different unless both sides said the same."""
        for ours, theirs in zip(*got):
            if comparison.differ(ours, theirs):
                raise Different(report(request, got, ours, theirs))
        states = ["answered" if is_done else "closed" if side.closed else "waits for more"
                  for side, is_done in zip(self.sides, done)]
        # A server that closes before it has read everything resets the connection, and a large value that is on its way
        # to the client is lost. The server under test reads everything but what comes later than a request to quit.
        ours_said_less = len(got[0]) < len(got[1])
        may_be_cut = not ours_said_less or self.protocol.QUIT.search(request)
        is_cut = may_be_cut and self.sides[0 if ours_said_less else 1].was_reset
        if len(got[0]) != len(got[1]) and not is_cut or states[0] != states[1]:
            raise Different(report(request, got, states[0], states[1]))


def compose(turn, numbers):
    """The bytes of a turn."""
    out = bytearray()
    for command in turn:
        for piece in command:
            out += piece if isinstance(piece, bytes) else piece.compose(numbers[piece.key])
    return bytes(out)


def pieces(chooser, data):
    """Cuts bytes at random."""
    places = sorted(chooser.randrange(len(data) + 1) for _ in range(chooser.randint(1, CUTS_MAX)))
    ends = zip([0] + places, places + [len(data)])
    return [(data[start:end], chooser.random() < 0.5) for start, end in ends if start < end]


def shown(value):
    """The head of a value."""
    text = repr(value)
    return text if len(text) < SHOWN_BYTES else text[:SHOWN_BYTES] + "..."


def report(request, got, ours, theirs):
    """What differs, for a person."""
    lines = ["sent     %s" % shown(request), "ours     %s" % shown(ours), "theirs   %s" % shown(theirs)]
    lines += ["all      %s" % shown(records) for records in got]
    return "\n".join(lines)


def differs(pair, turns, seed):
    """What differs when a case is played, or None."""
    try:
        if not pair.play(turns, seed):
            pair.restart()
    except Different as different:
        pair.restart()
        return different.text
    return None


def shrink(pair, make, seed, text):
    """Takes commands out of a case for as long as it still fails. `make` makes the case anew, with keys of its own."""
    kept = [(t, c) for t, turn in enumerate(make()) for c in range(len(turn))]

    def subset(places):
        turns = make()
        chosen = set(places)
        return [[command for c, command in enumerate(turn) if (t, c) in chosen] for t, turn in enumerate(turns)]
    size = max(1, len(kept) // 2)
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size:]
            turns = [turn for turn in subset(fewer) if turn]
            found = differs(pair, turns, seed) if turns else None
            if found:
                kept, text = fewer, found
            else:
                start += size
        size //= 2
    return [turn for turn in subset(kept) if turn], text


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server under test")
    parser.add_argument("--reference", default=os.path.join(support.tools_folder(), "peers", "memcached"),
                        help="the server whose answers are right")
    parser.add_argument("--protocol", choices=PROTOCOLS, default=PROTOCOLS[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one every time")
    parser.add_argument("--case", type=int, default=None, help="only the case of this number")
    parser.add_argument("--failures", type=int, default=3, help="stop after so many")
    return parser.parse_args()


def main():
    """Plays cases until the time is over; returns the exit status."""
    arguments = parse_arguments()
    protocol = importlib.import_module(arguments.protocol)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print("seed %d" % seed, flush=True)
    failed = cases = commands = 0
    with support.Server(arguments.server) as ours, support.Server(arguments.reference, QUIET_REFERENCE) as theirs:
        for server in (ours, theirs):
            # The first item of a server has the CAS number 1, and the number below that stands for none.
            with server.connect() as connection:
                connection.set(b"first", b"")
        pair = Pair(protocol, ours, theirs)
        ends = time.monotonic() + arguments.seconds
        played = 0

        def make_case(number):
            """The case of a number, with keys that no play before it had."""
            def make():
                nonlocal played
                played += 1
                return protocol.conversation(random.Random("%d/%d" % (seed, number)), "k%d" % played)
            return make
        number = arguments.case or 0
        while time.monotonic() < ends and failed < arguments.failures:
            make = make_case(number)
            turns = make()
            cases += 1
            commands += sum(map(len, turns))
            text = differs(pair, turns, number)
            if text:
                failed += 1
                turns, text = shrink(pair, make, number, text)
                print("FAIL case %d (--seed %d --case %d)" % (number, seed, number))
                for turn in turns:
                    numbers = {p.key: 0 for command in turn for p in command if not isinstance(p, bytes)}
                    print("  turn     %s" % shown(compose(turn, numbers)))
                print("  " + text.replace("\n", "\n  "), flush=True)
            if arguments.case is not None:
                break
            if cases % FLUSH_EVERY_CASES == 0:
                for server in (ours, theirs):
                    with server.connect() as connection:
                        connection.ask(b"flush_all")
            number += 1
        for server, name in ((ours, "the server under test"), (theirs, "the reference")):
            if server.process.poll() is not None:
                failed += 1
                print("FAIL %s ended: %s" % (name, server.error_text().strip()[-2000:]))
    print("%d cases with %d commands" % (cases, commands))
    print("%d passed, %d failed" % (cases - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
