#!/usr/bin/env python3
"""Many clients of all protocols on few keys: locks, limits, counters, tags, copies, channels, and servers that end.

Rounds follow one another. In a round several processes of several threads, each with a connection for each protocol,
do what the rules have for steps (`invariants_rules.py` and the files beside it), and note what they did. Meanwhile
other clients are killed in the middle of a value or of a transaction. A round ends with a rest, or the server is
stopped or killed in the middle of it, and started again. Then every key is read, and each rule checks what was noted.

Several rounds are an era, whose servers have the same memory, of one of these kinds:

    kept      `--keep`: nothing that was answered is lost, whether the server is stopped or killed
    journal   `--flash`, `--flash-recover journal`: a stop loses nothing, a kill may lose keys, and shows no older value
    clean     `--flash`: a stop loses nothing, a kill everything
    memory    each server begins with nothing

    tests/process/invariants.py --seconds 10 --server "target/debug/larder serve"

No check depends on how long something took, except that nothing may end before its time. The last line says
`N passed, N failed, N skipped`: passed are the rules, and the end of each server, of which no fault was seen.
"""

import argparse
import collections
import itertools
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import packets  # noqa: E402
import support  # noqa: E402
from invariants_locks import Locks  # noqa: E402
from invariants_numbers import Counters, Limits  # noqa: E402
from invariants_rules import Promise, Tags, Values  # noqa: E402
from invariants_support import Client, Fault  # noqa: E402
from invariants_told import COMPARE, END, RUN, WRITERS_STOP, Channels, Copies, Subscriber, Tracker  # noqa: E402
from resp_support import command, receive  # noqa: E402
from test_keep import SHARED_MEMORY, is_memory  # noqa: E402

RULES = (Locks, Limits, Counters, Tags, Copies, Channels, Values)
PROCESSES = 3
THREADS = 3
LISTENERS = (Tracker, Subscriber)
ROUND_SECONDS_MAX = 4.0
VICTIM_SECONDS = 0.15
FAULTS_SHOWN = 3
# A script may take the processor for so long: a busy machine makes none of these an error.
FLAGS = ["-m", "64", "-I", "1m", "--admin", "off", "--script-ms", "5000"]

PAUSE, STOP, KILL = "a rest", "a stop", "a kill"


class Era:
    """Servers that follow each other, with the same flags and files."""

    # How a round ends, and what the next one finds then.
    KINDS = {"kept": {STOP: "all", KILL: "all"}, "journal": {STOP: "all", KILL: "some"},
             "clean": {STOP: "all", KILL: "none"}, "memory": {STOP: "none", KILL: "none"}}
    # What is on flash is there after a stop, so a kill behind one has more to lose.
    ENDS = {"kept": [KILL, STOP, PAUSE], "journal": [STOP, KILL, PAUSE], "clean": [STOP, KILL], "memory": [PAUSE, KILL]}

    def __init__(self, kind, command_line, folder):
        self.kind, self.command_line = kind, command_line
        file = os.path.join(folder, kind)
        self.flags = FLAGS + {"kept": ["--keep", file], "journal": ["--flash", file + ":64m", "--flash-recover",
                                                                   "journal"],
                              "clean": ["--flash", file + ":64m"], "memory": []}[kind]

    def start(self):
        """A server of this era, once it knows all that is on its flash: some items are misses before."""
        server = support.Server(self.command_line, self.flags)
        with server.connect() as connection:
            support.until(lambda: connection.stats(b"flash").get(b"recovering", b"0") == b"0", "flash is read back")
        return server

    def promise(self, end, stopping):
        """What is there after such an end, which began at `stopping`."""
        if end == PAUSE:
            return Promise()
        return Promise(self.KINDS[self.kind][end], True, end == KILL, stopping)


class Guard:
    """Runs the threads of a process for one round; keeps what was noted, and what went wrong."""

    def __init__(self):
        self.acts, self.wrong = collections.defaultdict(list), []
        self.lock = threading.Lock()

    def run(self, name, body, at_end):
        """Runs a thread's body. A connection that ends is told with its time, and no fault if a server ended then."""
        try:
            body()
        except (OSError, support.Closed) as error:
            self.wrong.append((time.monotonic(), name, "%s: %s" % (type(error).__name__, error)))
        except Exception as error:  # whatever else goes wrong is a fault
            place = error.__traceback__
            while place.tb_next:
                place = place.tb_next
            self.wrong.append((-1, name, "%s: %s (line %d)" % (type(error).__name__, error, place.tb_lineno)))
        finally:
            with self.lock:
                at_end(self.acts)


class Worker:
    """One process of clients; its rules number their values from the first round to the last."""

    def __init__(self, process, phase, seed):
        self.process, self.phase, self.seed = process, phase, seed
        self.rules = [[rule("p%dt%d" % (process, thread), seed) for rule in RULES] for thread in range(THREADS)]

    def write(self, port, rules, chance, may_delete_prefix):
        """A thread that does steps of all rules."""
        client = Client(port)
        try:
            for rule in rules:
                rule.client, rule.may_delete_prefix = client, may_delete_prefix
            while self.phase.value == RUN:
                rule = chance.choice(rules)
                try:
                    rule.step()
                except AssertionError as error:
                    raise AssertionError("%s; the last act: %s" % (error, (rule.acts or [None])[-1])) from error
        finally:
            client.close()

    def round(self, pipe, port, number, may_delete_prefix):
        """The threads of one round. The other end is told when nobody writes any more, and then what was noted."""
        guard, threads, listening = Guard(), [], []
        for at, rules in enumerate(self.rules):
            def noted(acts, rules=rules):
                for rule in rules:
                    acts[rule.name] += rule.acts
                    rule.acts = []
            chance = random.Random("%d %d %d %d" % (self.seed, self.process, at, number))
            threads.append(threading.Thread(target=guard.run, args=(
                rules[0].who, lambda rules=rules, chance=chance: self.write(port, rules, chance, may_delete_prefix),
                noted)))
        for kind, rule in zip(LISTENERS, (Copies, Channels)):
            listener = kind(port, lambda: self.phase.value, "p%d%s" % (self.process, kind.__name__[0]),
                            self.seed * 1000 + number)

            def heard(acts, listener=listener, rule=rule):
                listener.close()
                acts[rule.name] += listener.acts
            listening.append(threading.Thread(target=guard.run, args=(listener.who, listener.run, heard)))
        for thread in listening + threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send("nobody writes")
        for thread in listening:
            thread.join()
        pipe.send((dict(guard.acts), guard.wrong))

    def serve(self, pipe):
        """Rounds, until there are no more."""
        while order := pipe.recv():
            self.round(pipe, *order)


def worker_main(process, pipe, phase, seed):
    """A process of clients."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(process, phase, seed).serve(pipe)


def victim_main(port, seed):
    """A client that is killed in the middle of something."""
    chance = random.Random(seed)
    try:
        connection = support.Connection("127.0.0.1", port)
    except OSError:
        # The server was stopped or killed meanwhile.
        return
    name = b"victim.never.%d" % seed
    key = chance.choice(Values.KEYS + [Values.STEADY])
    never = Values.value_of(key, name, chance.choice(Values.SIZES))
    pair = Values.value_of(b"pair", b"victim.%d" % seed, chance.choice((1, 5000)))
    pair_never = Values.value_of(b"pair", name, 10)
    both = [command(b"SET", key, pair) for key in Values.PAIR]
    tag, tagged = Tags.TAGS[0], Tags.KEYS[Tags.TAGS[0]][0]
    whole, cut = chance.choice([
        (b"", b"set %b 0 0 %d\r\n%b\r\n" % (key, len(never), never)),
        (b"", b"ms %b %d\r\n%b\r\n" % (key, len(never), never)),
        (b"", packets.store(key, never)),
        (b"", command(b"SET", key, never)),
        (b"", command(b"EVAL", b"redis.call('SET', KEYS[1], ARGV[1])", b"1", key, never)),
        (command(b"MULTI"), command(b"SET", Values.PAIR[0], pair_never) + command(b"SET", Values.PAIR[1], pair_never)),
        (command(b"MULTI") + b"".join(both) + command(b"EXEC"), b""),
        (command(b"MULTI"), b"".join(both) + command(b"EXEC")),
        (command(b"MULTI"), command(b"SET", tagged, name) + command(b"SADD", tag, tagged) + b"*1\r\n$4\r\nEXEC\r\n"),
        (command(b"SET", Locks.KEYS[0], name, b"NX", b"PX", b"100") + command(b"WATCH", *Values.PAIR), b""),
        (command(b"HELLO", b"3") + command(b"CLIENT", b"TRACKING", b"ON") + command(b"MGET", *Copies.KEYS, *Tags.ALL),
         b""),
        (command(b"SUBSCRIBE", b"victims") + command(b"PSUBSCRIBE", b"victim*"), b""),
    ])
    try:
        connection.send(whole + cut[:chance.randrange(len(cut)) if cut else 0])
        if chance.random() < 0.5 and whole:
            receive(connection)
    except (OSError, support.Closed):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


class Driver:
    """Rounds, ends of servers, and the checks in between."""

    def __init__(self, command_line, seconds, seed):
        self.command_line, self.seed, self.chance = command_line, seed, random.Random(seed)
        self.seconds, self.deadline = seconds, time.monotonic() + seconds
        self.phase = multiprocessing.Value("i", END, lock=False)
        self.workers, self.victims, self.rounds = [], 0, 0
        self.counts, self.notes, self.ends = (collections.Counter() for _ in range(3))
        self.failed, self.shown = collections.Counter(), collections.Counter()

    def begin(self):
        """Starts the processes."""
        for process in range(PROCESSES):
            here, there = multiprocessing.Pipe()
            started = multiprocessing.Process(target=worker_main, args=(process, there, self.phase, self.seed),
                                              daemon=True)
            started.start()
            there.close()
            self.workers.append((started, here))

    def end(self):
        """Ends the processes."""
        for started, pipe in self.workers:
            pipe.send(None)
            started.join()

    def tell(self, fault, acts, about):
        """Counts a fault, and shows it unless there were some of the kind."""
        self.failed[fault.rule] += 1
        if self.failed[fault.rule] <= FAULTS_SHOWN:
            print(fault.text(acts, about), flush=True)

    def tell_of_server(self, text, about):
        """The same of a fault of no rule."""
        self.failed["server"] += 1
        if self.failed["server"] <= FAULTS_SHOWN:
            print("FAIL server: %s (%s)" % (text, about), flush=True)

    def heard(self, pipe):
        """What a process says."""
        if not pipe.poll(2 * support.WAIT_SECONDS_MAX):
            raise AssertionError("a process of clients hangs")
        return pipe.recv()

    def round(self, server, end, seconds, may_delete_prefix):
        """One round: what was noted by rule, what went wrong, and when the server began to end."""
        self.phase.value = RUN
        self.rounds += 1
        for _, pipe in self.workers:
            pipe.send((server.port, self.rounds, may_delete_prefix))
        until, victims = time.monotonic() + seconds, []
        while time.monotonic() < until and server.process.poll() is None:
            self.victims += 1
            victims.append(multiprocessing.Process(
                target=victim_main, args=(server.port, self.seed * 100_000 + self.victims)))
            victims[-1].start()
            time.sleep(self.chance.random() * VICTIM_SECONDS)
        ended = time.monotonic()
        status = None
        if end != PAUSE:
            status = server.stop(signal.SIGKILL if end == KILL else signal.SIGTERM)
        self.phase.value = WRITERS_STOP
        for _, pipe in self.workers:
            self.heard(pipe)
        for victim in victims:
            victim.join()
        self.phase.value = COMPARE if end == PAUSE else END
        noted, wrong = collections.defaultdict(list), []
        for _, pipe in self.workers:
            acts, errors = self.heard(pipe)
            wrong += [(name, text) for at, name, text in errors if end == PAUSE or at < ended]
            for rule, some in acts.items():
                noted[rule] += some
        self.phase.value = END
        now = time.monotonic()
        for act in itertools.chain(*noted.values()):
            act.end = now if act.end is None else act.end
            self.counts["acts"] += 1
            self.counts["without an answer"] += act.done is None
        if end == STOP and status:
            wrong.append(("server", "the exit status is %s" % status))
        return noted, wrong, ended

    def era(self, kind, folder):
        """The rounds of an era."""
        era = Era(kind, self.command_line, folder)
        rules = [rule("check", self.seed + self.rounds) for rule in RULES]
        ends = Era.ENDS[kind] + self.chance.choices((PAUSE, STOP, KILL), k=min(6, int(self.seconds / 20)))
        server, promise = era.start(), Promise("none", True)
        try:
            for end in ends:
                self.look(rules, server, {}, promise, "a start")
                seconds = min(ROUND_SECONDS_MAX, self.seconds / 25) * self.chance.uniform(0.5, 1.5)
                about = "round %d, %s, which ends with %s" % (self.rounds + 1, kind, end)
                before = sum(self.failed.values())
                noted, wrong, stopping = self.round(server, end, seconds, kind == "memory")
                for name, text in wrong:
                    self.tell_of_server("%s: %s" % (name, text), about)
                self.check_server(server, end, about)
                self.ends[kind, end] += 1
                if end != PAUSE:
                    server.__exit__()
                    server = era.start()
                self.look(rules, server, noted, era.promise(end, stopping), about)
                promise = Promise()
                if sum(self.failed.values()) > before:
                    break
        except support.DidNotStart as error:
            self.tell_of_server("it did not start: %s" % error, kind)
        finally:
            server.__exit__()

    def check_server(self, server, end, about):
        """What a server has written, and whether it ended by itself."""
        text = server.error_text()
        if server.process.poll() not in {PAUSE: (None,), STOP: (0,), KILL: (-signal.SIGKILL,)}[end]:
            self.tell_of_server("it ended by itself: %s" % text[-500:], about)
        for word in ("panicked", "damaged", "cache is empty"):
            if word in text:
                self.tell_of_server("it says: %s" % text[-500:], about)

    def look(self, rules, server, noted, promise, about):
        """Reads all keys while nobody writes, checks what was noted, and makes what is missing."""
        client = Client(server.port)
        try:
            for rule in rules:
                rule.client, rule.acts = client, []
                rule.look()
                acts, looks = noted.get(rule.name, []), rule.acts
                for act in looks:
                    found = any(act.found) if isinstance(act.found, list) else act.found
                    if promise.kept == "none" and found:
                        self.tell(Fault(rule.name, act, "%r" % (act.found,), "nothing: the server began anew"), acts,
                                  about)
                self.counts[rule.name] += len(acts)
                for fault in rule.faults(acts, looks, promise):
                    self.tell(fault, acts + looks, about)
                rule.prepare()
                self.notes += rule.notes
                rule.notes.clear()
        finally:
            client.close()

    def run(self, kinds):
        """Eras, one of each kind at least, and others until the time is over."""
        for number, kind in enumerate(itertools.cycle(kinds)):
            if number >= len(kinds) and time.monotonic() > self.deadline:
                break
            with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if kind == "kept" else None,
                                             prefix="larder-invariants-") as folder:
                self.era(kind, folder)


def main():
    """Runs the eras; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LARDER_SEED") or time.time()))
    parser.add_argument("--kinds", default=",".join(Era.KINDS), help="the kinds of eras, separated by commas")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    skipped = "kept" in kinds and not is_memory(SHARED_MEMORY)
    if skipped:
        print("skip kept: there is no tmpfs at " + SHARED_MEMORY)
        kinds.remove("kept")
    driver = Driver(arguments.server, arguments.seconds, arguments.seed)
    driver.begin()
    driver.run(kinds)
    driver.end()
    counts, notes = driver.counts, driver.notes
    print("seed %d: %d rounds, %d acts, %d of them without an answer; %d clients killed" % (
        arguments.seed, driver.rounds, counts["acts"], counts["without an answer"], driver.victims))
    for kind in kinds:
        print("%s: rounds that end with %s" % (kind, ", ".join(
            "%s %d" % (end, driver.ends[kind, end]) for end in (PAUSE, STOP, KILL) if driver.ends[kind, end])))
    print(", ".join("%s %d" % (rule.name, counts[rule.name]) for rule in RULES))
    print("allowed: %s" % (", ".join("%s %d" % row for row in sorted(notes.items()) if row[1]) or "nothing"))
    names = [rule.name for rule in RULES] + ["server"]
    for rule in RULES:
        if not counts[rule.name]:
            print("FAIL %s: nothing was checked" % rule.name)
            driver.failed[rule.name] += 1
    failed = sum(driver.failed[name] > 0 for name in names)
    print("%d passed, %d failed, %d skipped" % (len(names) - failed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
