#!/usr/bin/env python3
"""What a burst of large stores does to the others: items of 8 KB are stored faster than the device writes.

    cargo build --release
    python3 bench-compare/flash_burst.py --flash sim:ftl:2g --rate 20000

A set of items of 1 KB, larger than the memory, is stored and read all the time. Then the burst begins: each of its
items is stored once, and one in four is read once, soon after. The program prints how long small requests took before
and during the burst, how much of the set is found afterwards, and how many of the burst's last items, as many as the
flash holds.
"""

import argparse
import multiprocessing
import random
import sys
import tempfile
import time

from flash_overwrite import Client, Server

SET_BYTES = 1000
READ_ONE_IN = 4
HOT_ITEMS = 1000


def set_keys(numbers):
    return [b"set:%d" % number for number in numbers]


def burst_keys(numbers):
    return [b"burst:%d" % number for number in numbers]


def value_of(key, length):
    """A value that begins with the number of its key."""
    return key[key.index(b":") + 1 :].ljust(length, b"x")


def small_requests(port, count, rate, seconds, answers):
    """One small request at a time, `rate` a second: a GET of the set, a GET of one of a few items that stay in memory,
    or a SET of one of these. Puts the share of the set's GETs that were hits, and the latencies of each kind."""
    client, random_numbers = Client(port), random.Random()
    begun, sent, found, latencies = time.monotonic(), 0, 0, {"GET of the set": [], "GET from memory": [], "SET": []}
    while (now := time.monotonic()) < begun + seconds:
        due = begun + sent / rate
        if due > now:
            time.sleep(due - now)
        kind = list(latencies)[sent % 3]
        hot = b"hot:%d" % random_numbers.randrange(HOT_ITEMS)
        asked = time.perf_counter()
        if kind == "SET":
            client.store([(hot, b"0.".ljust(100, b"z"))])
        elif kind == "GET from memory":
            client.get([hot])
        else:
            found += len(client.get(set_keys([random_numbers.randrange(count)])))
        latencies[kind].append(time.perf_counter() - asked)
        sent += 1
    for times in latencies.values():
        times.sort()
    answers.put((found / len(latencies["GET of the set"]), latencies))


def burst(port, options, answers):
    """Stores items at the rate of the burst. Reads one in four when 200 more were stored."""
    client, sent, refused, begun = Client(port), 0, 0, time.monotonic()
    while time.monotonic() < begun + options.seconds:
        numbers = range(sent, sent + 40)
        refused += client.store([(key, value_of(key, options.value_bytes)) for key in burst_keys(numbers)])
        sent += len(numbers)
        read = [number for number in range(sent - 240, sent - 200) if number >= 0 and number % READ_ONE_IN == 0]
        if read:
            client.get(burst_keys(read))
        time.sleep(max(0.0, begun + sent / options.rate - time.monotonic()))
    answers.put((sent, refused, sent / (time.monotonic() - begun)))


def run_reader(port, options, seconds, answers):
    reader = multiprocessing.Process(
        target=small_requests, args=(port, options.items, options.read_rate, seconds, answers), daemon=True
    )
    reader.start()
    return reader


def print_latencies(when, latencies):
    for kind, times in latencies.items():
        picked = [times[int(len(times) * share)] * 1e6 for share in (0.5, 0.9, 0.99, 0.999)]
        print(f"{kind} {when}: p50 {picked[0]:.0f}, p90 {picked[1]:.0f}, p99 {picked[2]:.0f}, p99.9 {picked[3]:.0f} us")


def found_of(client, keys):
    """The share of the keys that is found. Ends the program where a value is another key's."""
    found = {}
    for first in range(0, len(keys), 50):
        found |= client.get(keys[first : first + 50])
    if any(not key.endswith(b":" + number) for key, number in found.items()):
        sys.exit("a key has the value of another one")
    return len(found) / max(len(keys), 1)


def measure(options, port):
    client = Client(port)
    for first in range(0, options.items, 100):
        client.store([(key, value_of(key, SET_BYTES)) for key in set_keys(range(first, first + 100))])
        time.sleep(0.002)
    # Each item is read, so that flash knows that it is wanted.
    found_of(client, set_keys(range(options.items)))
    found_of(client, set_keys(range(options.items)))
    answers = multiprocessing.Queue()
    run_reader(port, options, options.seconds / 3, answers)
    share, before = answers.get()
    print(f"before the burst {100 * share:.2f} % of the GETs of the set are hits")
    written = int(client.stats().get("appended_bytes", 0))
    reader = run_reader(port, options, options.seconds, answers)
    burst_answers = multiprocessing.Queue()
    writer = multiprocessing.Process(target=burst, args=(port, options, burst_answers), daemon=True)
    writer.start()
    sent, refused, rate = burst_answers.get()
    share, during = answers.get()
    reader.join()
    stats = client.stats()
    written = (int(stats.get("appended_bytes", 0)) - written) / options.seconds
    stored = rate * options.value_bytes
    print(f"stored {stored / 1e6:.0f} MB/s ({rate:.0f}/s, {refused} refused), device {written / 1e6:.0f} MB/s")
    print_latencies("before", before)
    print_latencies("during", during)
    print(f"during the burst {100 * share:.2f} % of the GETs of the set are hits")
    print(f"afterwards {100 * found_of(client, set_keys(range(options.items))):.2f} % of the set is found")
    last = range(max(0, sent - int(options.last_mib * 2**20 / options.value_bytes)), sent)
    for name, numbers in (
        ("read", [number for number in last if number % READ_ONE_IN == 0 and number < sent - 240]),
        ("not read", [number for number in last if number % READ_ONE_IN]),
    ):
        share = found_of(client, burst_keys(numbers))
        print(f"of the burst's last {options.last_mib} MiB, {name}: {100 * share:.2f} % found")
    for name in ("alwa", "shed_read", "shed_unread", "quick_drops", "drops_of_all"):
        print(f"{name} {stats.get(name)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", default="target/release/larder", help="the server")
    parser.add_argument("--flash", default="", help="the flash, a file of 2 GiB by default; none: without flash")
    parser.add_argument("--items", type=int, default=100_000, help="items of the set, 1 KB each")
    parser.add_argument("--read-rate", type=float, default=3000, help="small requests a second")
    parser.add_argument("--value-bytes", type=int, default=8192, help="length of a value of the burst")
    parser.add_argument("--rate", type=float, default=20000, help="stores of the burst a second")
    parser.add_argument("--seconds", type=float, default=60, help="length of the burst")
    parser.add_argument("--last-mib", type=int, default=512, help="how much of the end of the burst is looked for")
    parser.add_argument("--memory", type=int, default=64, help="-m of the server, MiB")
    parser.add_argument("--args", default="", help="further arguments of the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        flash = [] if options.flash == "none" else ["--flash", options.flash or f"{directory}/flash:2g"]
        with Server(options, flash) as server:
            measure(options, server.port)


if __name__ == "__main__":
    main()
