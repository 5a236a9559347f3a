#!/usr/bin/env python3
"""What heavy neighbours do to a normal client: its latencies alone, and beside each of them.

    cargo build --release
    python3 bench-compare/neighbours.py
    python3 bench-compare/neighbours.py --neighbours metadump,multiget --seconds 20 --repeats 5

The normal client has one connection and sends one GET at a time, a fixed number a second. A request that is due while
the one before it is not answered counts from when it was due. For each neighbour the client runs alone and then beside
it, and that several times over. In between the neighbour does the same to another server of the machine: what the
client suffers then is the processor's doing. The table has the medians of the repeats, and of their ratios.
"""

import argparse
import multiprocessing
import random
import re
import socket
import statistics
import struct
import time

from flash_overwrite import Client, Server

VALUE_BYTES = 1000
PERCENTILES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
# The neighbour has begun by then.
LEAD_SECONDS = 0.5
LARGE_BYTES = 64 << 20


def keys_of(numbers):
    return [b"item:%d" % number for number in numbers]


def normal_client(port, options, answers):
    """Sends GETs at a fixed rate. Puts the percentiles of their latencies, in microseconds."""
    client, random_numbers, latencies = Client(port), random.Random(), []
    begun = time.perf_counter()
    due = begun
    while due < begun + options.seconds:
        now = time.perf_counter()
        if now < due:
            time.sleep(due - now)
        counts_from = time.perf_counter() if now < due else due
        client.get(keys_of([random_numbers.randrange(options.items)]))
        latencies.append(time.perf_counter() - counts_from)
        due += 1 / options.rate
    latencies.sort()
    answers.put([latencies[int(len(latencies) * share)] * 1e6 for _, share in PERCENTILES])


def drain(client, request, end):
    """Sends a request and throws its reply away, up to these last bytes of it."""
    client.socket.sendall(request)
    tail = b""
    while not tail.endswith(end):
        client.receive()
        tail, client.buffer = (tail + client.buffer)[-len(end) :], b""


def metadump(port, options):
    client = Client(port)
    while True:
        drain(client, b"lru_crawler metadump all\r\n", b"END\r\n")
        yield


def multiget(port, options):
    client, random_numbers = Client(port), random.Random()
    while True:
        keys = keys_of(random_numbers.randrange(options.items) for _ in range(1000))
        drain(client, b"get " + b" ".join(keys) + b"\r\n", b"\r\nEND\r\n")
        yield


def sizes(port, options):
    client = Client(port)
    while True:
        drain(client, b"stats sizes\r\n", b"END\r\n")
        yield


def scan(port, options):
    client, cursor = Client(port), b"0"
    while True:
        client.socket.sendall(b"*4\r\n$4\r\nSCAN\r\n$%d\r\n%b\r\n$5\r\nCOUNT\r\n$4\r\n1000\r\n" % (len(cursor), cursor))
        while not (head := re.match(rb"\*2\r\n\$\d+\r\n(\d+)\r\n\*(\d+)\r\n", client.buffer)):
            client.receive()
        # A key is two lines.
        lines = 4 + 2 * int(head[2])
        while client.buffer.count(b"\n") < lines:
            client.receive()
        cursor, client.buffer = head[1], b""
        yield


def keys(port, options):
    client = Client(port)
    # No key matches, so that the work is the search.
    while True:
        drain(client, b"*2\r\n$4\r\nKEYS\r\n$8\r\n*absent*\r\n", b"*0\r\n")
        yield


def flush_prefix(port, options):
    client = Client(port)
    while True:
        client.store([(b"other:%d" % number, b"0".ljust(100)) for number in range(1000)])
        drain(client, b"flush_prefix other:\r\n", b"OK\r\n")
        yield


def flood(port, options):
    client, number = Client(port), 0
    while True:
        client.store([(b"cold:%d" % one, b"0".ljust(VALUE_BYTES)) for one in range(number, number + 100)])
        number += 100
        yield


def large(port, options):
    client, value = Client(port), b"x" * LARGE_BYTES
    while True:
        drain(client, b"set large 0 0 %d\r\n" % LARGE_BYTES + value + b"\r\n", b"STORED\r\n")
        drain(client, b"get large\r\n", b"\r\nEND\r\n")
        yield


def connects(port, options):
    while True:
        client = Client(port)
        # Closed with a reset, so that no port of this machine has to wait.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
        yield


NEIGHBOURS = {
    "metadump": (metadump, "lru_crawler metadump all, over and over"),
    "multiget": (multiget, "get of 1000 keys"),
    "sizes": (sizes, "stats sizes"),
    "scan": (scan, "RESP's SCAN with COUNT 1000"),
    "keys": (keys, "RESP's KEYS with a pattern that nothing matches"),
    "flush_prefix": (flush_prefix, "1000 stores and a delete of them by prefix"),
    "flood": (flood, "100 stores of 1 KB of new keys"),
    "large": (large, "a store and a get of a value of 64 MiB"),
    "connects": (connects, "a connection that is opened and closed"),
}


def neighbour(name, port, options, done):
    """Does its work until it is ended; `done` counts how often."""
    for _ in NEIGHBOURS[name][0](port, options):
        with done.get_lock():
            done.value += 1


def latencies(server, options):
    answers = multiprocessing.Queue()
    client = multiprocessing.Process(target=normal_client, args=(server.port, options, answers), daemon=True)
    client.start()
    found = answers.get()
    client.join()
    return found


def beside(name, server, heavy_server, options):
    """The client's latencies beside a neighbour that uses `heavy_server`, and how often a second that did its work."""
    done = multiprocessing.Value("Q", 0)
    other = multiprocessing.Process(target=neighbour, args=(name, heavy_server.port, options, done), daemon=True)
    other.start()
    time.sleep(LEAD_SECONDS)
    before, begun = done.value, time.monotonic()
    found = latencies(server, options)
    rate = (done.value - before) / (time.monotonic() - begun)
    if not other.is_alive():
        raise SystemExit(f"the neighbour {name} ended: {NEIGHBOURS[name][1]}")
    other.terminate()
    other.join()
    return found, rate


def fill(server, options):
    client = Client(server.port)
    for first in range(0, options.items, 100):
        names = keys_of(range(first, min(first + 100, options.items)))
        client.store([(name, name[len("item:") :].ljust(VALUE_BYTES, b"x")) for name in names])


def measure(options, server, other):
    fill(server, options)
    fill(other, options)
    rounds = {name: [] for name in options.neighbours}
    for _ in range(options.repeats):
        for name in options.neighbours:
            alone = latencies(server, options)
            elsewhere, _ = beside(name, server, other, options)
            rounds[name].append((alone, elsewhere, *beside(name, server, server, options)))
    places = ("alone", "elsewhere", "beside")
    head = [f"{place} {name}" for place in places for name, _ in PERCENTILES]
    head += [f"{name} to {place}" for place in places[:2] for name, _ in PERCENTILES]
    print(f"GETs: {options.rate:.0f}/s on one connection, us, medians of {options.repeats} repeats of "
          f"{options.seconds:g} s; server: {' '.join(server.command)}")  # fmt: skip
    print("| beside | its work/s | " + " | ".join(head) + " |")
    print("|---|" + "---|" * (len(head) + 1))
    for name, found in rounds.items():
        cells = [f"{statistics.median(rate for *_, rate in found):.1f}"]
        for place in range(len(places)):
            cells += [f"{statistics.median(one[place][nth] for one in found):.0f}" for nth in range(len(PERCENTILES))]
        for place in range(len(places) - 1):
            cells += [f"{statistics.median(one[-2][nth] / one[place][nth] for one in found):.2f}"
                      for nth in range(len(PERCENTILES))]  # fmt: skip
        print(f"| {name} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", default="target/release/larder", help="the server")
    parser.add_argument("--neighbours", default=",".join(NEIGHBOURS), type=lambda names: names.split(","),
                        help="which, separated by commas: " + "; ".join(f"{name} ({what})" for name, (_, what)
                                                                         in NEIGHBOURS.items()))  # fmt: skip
    parser.add_argument("--items", type=int, default=200_000, help="items of the normal client, 1 KB each")
    parser.add_argument("--rate", type=float, default=500, help="GETs a second")
    parser.add_argument("--seconds", type=float, default=20, help="length of a run")
    parser.add_argument("--repeats", type=int, default=5, help="runs alone and beside, of each neighbour")
    parser.add_argument("--memory", type=int, default=1024, help="-m of the server, MiB")
    parser.add_argument("--args", default="-I 128m --namespaces item=40-100",
                        help="further arguments of the server; the items of the normal client are a namespace of their"
                             " own, so that what others store does not evict them")
    options = parser.parse_args()
    unknown = [name for name in options.neighbours if name not in NEIGHBOURS]
    if unknown:
        parser.error(f"no such neighbour: {', '.join(unknown)}")
    with Server(options, []) as server, Server(options, []) as other:
        measure(options, server, other)


if __name__ == "__main__":
    main()
