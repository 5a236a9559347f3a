#!/usr/bin/env python3
"""What a hit from flash takes beside the device: a GET of an item in memory, a GET of an item on flash and a bare read
of the same file take turns.

    cargo build --release
    python3 bench-compare/flash_hit.py --flash FILE --value-bytes 960

The file must be on the device to be measured, and allow O_DIRECT. Bare reads go to random pages of it, and are as long
on average as those of the server. One request is under way at a time.
"""

import argparse
import mmap
import os
import random
import statistics
import sys
import time

from flash_overwrite import Client, Server

PAGE_BYTES = 4096
HOT_ITEMS = 200


def key_of(number):
    return b"key:%d" % number


def fill(client, options):
    """Stores all items, no faster than the flash takes them."""
    for first in range(0, options.items, 100):
        keys = [key_of(number) for number in range(first, min(first + 100, options.items))]
        client.store([(key, b"%d.".ljust(options.value_bytes, b"x") % number)
                      for number, key in enumerate(keys, first)])  # fmt: skip
        time.sleep(100 / options.rate)


class Bare:
    """Reads of what is written of the file itself, without the page cache."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.memory = mmap.mmap(-1, 16 * PAGE_BYTES)
        self.parts, end, length = [], 0, os.fstat(self.file).st_size
        while end < length:
            try:
                begin = os.lseek(self.file, end, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(self.file, begin, os.SEEK_HOLE)
            self.parts.append((begin, (end - begin) // PAGE_BYTES))

    def choose(self, pages):
        """Memory of `pages` pages, and a position to read them from."""
        begin, written = random.choices(self.parts, [pages for _, pages in self.parts])[0]
        at = begin + random.randrange(max(written - pages, 1)) * PAGE_BYTES
        return memoryview(self.memory)[: pages * PAGE_BYTES], at

    def read(self, chosen):
        memory, at = chosen
        os.preadv(self.file, [memory], at)


def timed(call, *arguments):
    begun = time.perf_counter()
    result = call(*arguments)
    return (time.perf_counter() - begun) * 1e6, result


def turns(client, bare, options, mean_pages):
    """One round of turns. Returns the times of each kind in microseconds, and how many GETs of cold items found one."""
    times, found = {"memory": [], "flash": [], "bare": []}, 0
    for _ in range(options.turns):
        hot, cold = random.randrange(HOT_ITEMS), random.randrange(HOT_ITEMS, options.items)
        pages = int(mean_pages) + (random.random() < mean_pages % 1)
        kinds = [("memory", client.get, [b"hot:%d" % hot]), ("flash", client.get, [key_of(cold)]),
                 ("bare", bare.read, bare.choose(pages))]  # fmt: skip
        for kind, call, argument in random.sample(kinds, 3):
            took, result = timed(call, argument)
            times[kind].append(took)
            found += kind == "flash" and bool(result)
    return times, found


def mixed(client, options, share):
    """GETs of which this share asks for items in memory. Returns how many times longer than those all of them take, by
    their means."""
    in_memory, on_flash = [], []
    for _ in range(options.turns):
        if random.random() < share:
            in_memory.append(timed(client.get, [b"hot:%d" % random.randrange(HOT_ITEMS)])[0])
        else:
            on_flash.append(timed(client.get, [key_of(random.randrange(HOT_ITEMS, options.items))])[0])
    return statistics.fmean(in_memory + on_flash) / statistics.fmean(in_memory)


def figures(times):
    """One round in words. The means leave out the longest hundredth."""
    middle = {kind: statistics.median(of) for kind, of in times.items()}
    mean = {kind: statistics.fmean(sorted(of)[: len(of) - len(of) // 100]) for kind, of in times.items()}
    ratios = [of["flash"] / (of["memory"] + of["bare"]) for of in (middle, mean)]
    taken = 0.8 * mean["memory"] + 0.2 * mean["flash"]
    predicted = 0.8 * mean["memory"] + 0.2 * 1.05 * (mean["memory"] + mean["bare"])
    return (", ".join(f"{kind} {middle[kind]:.1f} ({mean[kind]:.1f})" for kind in times)
            + f"; {ratios[0]:.3f}, {ratios[1]:.3f}; {taken:.1f} of {predicted:.1f}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--larder", default="target/release/larder", help="the executable (default: %(default)s)")
    parser.add_argument("--flash", required=True, metavar="FILE", help="a new file for the flash; it is removed")
    parser.add_argument("--flash-mib", type=int, default=1024, help="its size (default: %(default)s)")
    parser.add_argument("--memory", type=int, default=16, metavar="MIB", help="-m of the server (default: %(default)s)")
    parser.add_argument("--items", type=int, default=300_000, help="(default: %(default)s)")
    parser.add_argument("--value-bytes", type=int, default=960, help="(default: %(default)s)")
    parser.add_argument("--rate", type=float, default=40_000, help="items stored a second (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=4000, help="turns of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.99, 0.83, 0.5],
                        help="shares of hits in memory that are measured, too (default: %(default)s)")  # fmt: skip
    parser.add_argument("--args", default="", help="more flags of the server")
    options = parser.parse_args()
    if os.path.exists(options.flash):
        sys.exit(f"{options.flash} is there already")
    try:
        with Server(options, ["--flash", f"{options.flash}:{options.flash_mib}m"]) as server:
            client = Client(server.port)
            fill(client, options)
            time.sleep(2)
            client.store([(b"hot:%d" % number, b"0.".ljust(options.value_bytes, b"x")) for number in range(HOT_ITEMS)])
            bare, mean_pages = Bare(options.flash), 1.0
            print(f"{sum(pages for _, pages in bare.parts) * PAGE_BYTES >> 20} MiB of the file are written")
            print("medians (means) in us; flash / (memory + bare): of the medians, of the means; 80 % memory hits: the "
                  "mean beside the one that memory + bare + 5 % predicts")  # fmt: skip
            for number in range(-1, options.rounds):
                before = client.stats()
                times, found = turns(client, bare, options, mean_pages)
                after = client.stats()
                reads = int(after["device_reads"]) - int(before["device_reads"])
                read_bytes = int(after["device_read_bytes"]) - int(before["device_read_bytes"])
                pages = read_bytes / PAGE_BYTES / max(reads, 1)
                mean_pages = max(1.0, pages)
                if number < 0:
                    continue  # The first round says how long the reads are.
                print(f"round {number}: {figures(times)}; found {found} of {options.turns}, "
                      f"{reads} reads of {pages:.2f} pages")  # fmt: skip
            for share in options.shares:
                factors = sorted(mixed(client, options, share) for _ in range(options.rounds))
                print(f"{100 * share:g} % memory hits: the mean is {statistics.median(factors):.2f} times that of "
                      f"memory hits, {factors[0]:.2f} to {factors[-1]:.2f}")  # fmt: skip
    finally:
        if os.path.exists(options.flash):
            os.remove(options.flash)


if __name__ == "__main__":
    main()
