#!/usr/bin/env python3
"""Many connections, one promise: a hit is never another key's value, never an older one, never one that was deleted.

A miss is always allowed. Each key has one writer and several readers. The writer numbers what it does to a key, and
writes the number into the value; a reader notes the number of the last answered operation before it asks, and the
number of the last one sent after it was answered. A hit whose number is not between the two is a fault, and so is one
whose value names another key, has the wrong length, or is of an item that had been deleted by then. A set that finds
no memory counts as a delete, which it is; more than one in a thousand is a fault of a cache that makes room.

    tests/process/stress.py --seconds 10 --server "target/debug/larder serve"

The last line says `N passed, N failed, N skipped`: passed are the processes in which no fault was seen.
"""

import argparse
import multiprocessing
import os
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import support  # noqa: E402

PROCESSES = 3
WRITERS = 4
READERS = 4
KEYS_PER_WRITER = 40
SIZES = [0, 1, 20, 100, 480, 600, 3000, 30000, 40000, 200000]
BATCH = 16
REFUSED_SHARE_MAX = 0.001
# In MiB. A connection that gets on with nothing for a while goes first when the memory for connections gets short. A
# busy machine can hold all clients up for so long, and that is no fault of the server.
BUFFERS_MIB = 16
REFUSALS = (b"SERVER_ERROR out of memory storing object", b"SERVER_ERROR Out of memory during read")


class Key:
    """What is known of a key: `sent` and `answered` count the writer's operations on it."""

    def __init__(self, name):
        self.name = name
        self.sent = self.answered = 0


def value_of(name, number, size):
    """A value that tells its key, its number and its length."""
    head = b"%b:%d:%d:" % (name, number, size)
    return head + bytes([97 + number % 26]) * size


def fault_in(key, value, floor, ceiling):
    """None, or what is wrong with a hit."""
    parts = value.split(b":", 3)
    if len(parts) != 4 or parts[0] != key.name:
        return "another key's value: %r" % value[:60]
    number, size = int(parts[1]), int(parts[2])
    if value != value_of(key.name, number, size):
        return "a torn value: %r, %d bytes" % (value[:60], len(value))
    if not floor <= number <= ceiling:
        return "operation %d, where %d had been answered and %d sent" % (number, floor, ceiling)
    return None


class Worker:
    """The threads of one process, on connections of their own."""

    def __init__(self, port, process, seconds):
        self.port, self.process = port, process
        self.deadline = time.monotonic() + seconds
        self.keys = [[Key(b"p%d-w%d-k%d" % (process, writer, i)) for i in range(KEYS_PER_WRITER)]
                     for writer in range(WRITERS)]
        self.faults = []
        self.hits = self.misses = self.writes = self.refused = 0

    def guarded(self, body, *arguments):
        """Runs a thread's body; whatever goes wrong is a fault."""
        try:
            with support.Connection("127.0.0.1", self.port) as connection:
                while time.monotonic() < self.deadline and not self.faults:
                    body(connection, *arguments)
        except Exception as error:  # a thread reports whatever goes wrong
            self.faults.append("%s: %s" % (type(error).__name__, error))

    def write(self, connection, keys, chance):
        """A pipeline of sets and deletes on different keys, then their answers."""
        chosen = chance.sample(keys, BATCH)
        sent = []
        request = bytearray()
        for key in chosen:
            key.sent += 1
            if chance.random() < 0.3:
                request += b"delete %b\r\n" % key.name
                sent.append((key, (b"DELETED", b"NOT_FOUND")))
            else:
                value = value_of(key.name, key.sent, chance.choice(SIZES))
                request += b"set %b 0 0 %d\r\n%b\r\n" % (key.name, len(value), value)
                sent.append((key, (b"STORED",)))
        connection.send(bytes(request))
        for key, allowed in sent:
            answer = connection.line()
            if answer in REFUSALS and allowed == (b"STORED",):
                self.refused += 1
            elif answer not in allowed:
                self.faults.append("%r answered %r" % (key.name, answer))
            key.answered += 1
            self.writes += 1

    def read(self, connection, chance):
        """A multiget, and a look at every hit."""
        chosen = {key.name: key for key in chance.sample(chance.choice(self.keys), BATCH)}
        floors = {name: key.answered for name, key in chosen.items()}
        connection.send(b"get " + b" ".join(chosen) + b"\r\n")
        got = {}
        while True:
            line = connection.line()
            if line == b"END":
                break
            words = line.split()
            got[words[1]] = connection.exactly(int(words[3]))
            connection.exactly(2)
        for name, value in got.items():
            key = chosen.get(name)
            fault = "a key nobody asked for: %r" % name if key is None else fault_in(
                key, value, floors[name], key.sent)
            if fault:
                self.faults.append("%r: %s" % (name, fault))
        self.hits += len(got)
        self.misses += len(chosen) - len(got)

    def run(self):
        """Starts the threads and waits for them."""
        threads = []
        for writer in range(WRITERS):
            chance = random.Random(self.process * 1000 + writer)
            threads.append(threading.Thread(target=self.guarded, args=(self.write, self.keys[writer], chance)))
        for reader in range(READERS):
            chance = random.Random(self.process * 1000 + 500 + reader)
            threads.append(threading.Thread(target=self.guarded, args=(self.read, chance)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def process_main(port, process, seconds, results):
    """One process of clients."""
    worker = Worker(port, process, seconds)
    worker.run()
    if worker.refused > worker.writes * REFUSED_SHARE_MAX:
        worker.faults.append("%d of %d writes found no memory" % (worker.refused, worker.writes))
    results.put((worker.faults[:5], worker.hits, worker.misses, worker.writes, worker.refused))


def main():
    """Runs the processes; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("--flags", default="", help="more flags for the server, in one argument")
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    failed = 0
    flags = ["-o", "read_buf_mem_limit=%d" % BUFFERS_MIB, *arguments.flags.split()]
    with support.Server(arguments.server, flags) as server:
        results = multiprocessing.Queue()
        processes = [multiprocessing.Process(target=process_main, args=(server.port, n, arguments.seconds, results))
                     for n in range(PROCESSES)]
        for process in processes:
            process.start()
        found = [results.get(timeout=arguments.seconds + 60) for _ in processes]
        for process in processes:
            process.join()
        for faults, *_ in found:
            failed += bool(faults)
            for fault in faults:
                print("FAIL " + fault)
        if server.process.poll() is not None:
            failed += 1
            print("FAIL the server ended: " + server.error_text()[-500:])
    hits, misses, writes, refused = (sum(column) for column in list(zip(*found))[1:])
    print("%d hits, %d misses, %d writes, %d of them without memory" % (hits, misses, writes, refused))
    print("%d passed, %d failed, 0 skipped" % (max(0, PROCESSES - failed), failed))
    return 1 if failed or not hits else 0


if __name__ == "__main__":
    sys.exit(main())
