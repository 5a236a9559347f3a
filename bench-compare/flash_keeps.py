#!/usr/bin/env python3
"""What flash keeps of what it is given: items are stored five times over, at a pace, and then every last version is
asked for. Larder and memcached with extstore take turns, with the same memory and a file of the same size.

    cargo build --release
    python3 bench-compare/flash_keeps.py --sizes 960,3000,mixed --fills 0.5,0.7,0.8 --paces paced,fast --busy 0,4

`--svg FOLDER` draws the rows, and with `--rows FILE` those of an earlier run, by the example `plots` of the laboratory.

With `--busy 4`, four loops that never rest run beside the servers and the client. Meanwhile another connection stores
and reads one item at a time: the latencies are its own. A value that is not the last version ends the program.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import evidence
from flash_overwrite import Client

BATCH = 100
# What a record takes beside key and value, about, bytes.
RECORD_BYTES = 48
# Stores a second of a pace that is not the fastest, by the size of the values.
PACES = {"100": 60_000, "960": 30_000, "3000": 10_000, "mixed": 8_000}
MIXED_MIN, MIXED_MAX = 100, 8192
# Name of the file, title, quantity of the vertical axis with its unit, column of the rows, pace.
CHARTS = [
    ("found-paced", "Found of the last versions, paced", "found, %", "found", "paced"),
    ("found-fast", "Found of the last versions, at the fastest pace", "found, %", "found", "fast"),
    ("stores-fast", "Stores at the fastest pace", "stores/s", "stores_s", "fast"),
    ("cpu-paced", "Server CPU of a store, paced", "us", "cpu_us", "paced"),
]
# memcached's pages have 64 MiB by default: with the four of a file of 256 MiB it keeps 77 of 100 items of 960 B that
# fill a half, with those of 4 to 16 MiB 96.
PAGES = "ext_page_size=8,ext_wbuf_size=2"


class Server:
    """A server process. `name` is larder or memcached; other names are programs that take Larder's flags."""

    def __init__(self, name, options, directory):
        self.is_larder = name != "memcached"
        port = random.randrange(20000, 30000)
        program = {"larder": options.larder, "memcached": options.memcached}.get(name, name)
        common = ["-l", "127.0.0.1", "-p", str(port), "-t", str(options.threads), "-m", str(options.memory)]
        path = os.path.join(directory, "flash")
        if self.is_larder:
            command = [program, "serve", *common, "--flash", f"{path}:{options.flash_mib}m", *options.args.split()]
        else:
            command = [program, "-u", "nobody", *common, "-o", f"ext_path={path}:{options.flash_mib}m", "-o", PAGES]
            if os.getuid() == 0:
                os.chmod(directory, 0o777)
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                Client(port).socket.close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{name} did not start")

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            ticks = file.read().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def figures(self):
        client = Client(self.port)
        figures = client.stats() if self.is_larder else {}
        client.socket.sendall(b"stats\r\n")
        figures |= dict(re.findall(r"STAT (\S+) (\S+)", client.until_end().decode()))
        return figures

    def stop(self):
        self.process.terminate()
        self.process.wait()


def sizes_of(size, count):
    """The length of each item's value. The mean of mixed lengths is that of a uniform distribution."""
    if size != "mixed":
        return [int(size)] * count
    numbers = random.Random(3)
    return [numbers.randint(MIXED_MIN, MIXED_MAX) for _ in range(count)]


class Prober(threading.Thread):
    """Stores one item and reads it again, each by itself, and notes how long each took."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.client, self.ended = Client(port), threading.Event()
        self.stores, self.gets = [], []

    def run(self):
        number = 0
        while not self.ended.is_set():
            key = b"probe:%d" % (number % 16)
            begun = time.perf_counter()
            self.client.store([(key, b"0.0.".ljust(400, b"p"))])
            stored = time.perf_counter()
            self.client.get([key])
            self.stores.append(stored - begun)
            self.gets.append(time.perf_counter() - stored)
            number += 1
            time.sleep(0.002)

    def stop(self):
        self.ended.set()
        self.join()


def milliseconds(times, share):
    times = sorted(times)
    return 1000 * times[int(len(times) * share)] if times else 0.0


def store_all(client, lengths, versions, rounds, rate):
    """Stores every item once and then at random, `rounds` times as many as there are in all. Returns how many stores
    a second there were, and how many were refused."""
    count, numbers = len(lengths), random.Random(1)
    filling = b"x" * max(lengths)
    refused, sent, begun = 0, 0, time.monotonic()

    def store(batch):
        nonlocal refused, sent
        items = []
        for number in batch:
            versions[number] += 1
            start = b"%d.%d." % (number, versions[number])
            items.append((b"key:%d" % number, start + filling[len(start) : lengths[number]]))
        refused += client.store(items)
        sent += len(items)
        if rate:
            time.sleep(max(0.0, begun + sent / rate - time.monotonic()))

    for first in range(0, count, BATCH):
        store(range(first, min(first + BATCH, count)))
    for _ in range(0, count * (rounds - 1), BATCH):
        store([numbers.randrange(count) for _ in range(BATCH)])
    return sent / (time.monotonic() - begun), refused


def found_of(client, versions):
    """How many items are found. Ends the program where one is not the last version."""
    found = 0
    for first in range(0, len(versions), 50):
        numbers = range(first, min(first + 50, len(versions)))
        values = client.get([b"key:%d" % number for number in numbers])
        found += len(values)
        for number in numbers:
            value = values.get(b"key:%d" % number)
            if value is not None and not value.startswith(b"%d.%d." % (number, versions[number])):
                sys.exit(f"key:{number} has {value[:30]}, and its last version is {versions[number]}")
    return found


def measure(options, name, size, pace, fill):
    mean = (MIXED_MIN + MIXED_MAX) / 2 if size == "mixed" else int(size)
    count = int(options.flash_mib * fill * 2**20 / (mean + RECORD_BYTES))
    lengths, versions = sizes_of(size, count), [0] * count
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        server = Server(name, options, directory)
        try:
            client, prober = Client(server.port), Prober(server.port)
            prober.start()
            rate = 0 if pace == "fast" else options.rate or PACES.get(size, 10_000)
            stores_s, refused = store_all(client, lengths, versions, options.rounds, rate)
            prober.stop()
            cpu = server.cpu_seconds()
            time.sleep(2)
            found = found_of(client, versions)
            figures = server.figures()
        finally:
            server.stop()
    row = {
        "server": name, "size": size, "pace": pace, "fill": fill, "found": 100 * found / count,
        "stores_s": stores_s, "refused": refused, "cpu_s": cpu, "cpu_us": 1e6 * cpu / (count * options.rounds),
        "store_p99_ms": milliseconds(prober.stores, 0.99), "get_p99_ms": milliseconds(prober.gets, 0.99),
    }  # fmt: skip
    for figure in ("alwa", "demotions_shed", "zones_free", "stores_waited"):
        if figure in figures:
            row[figure] = float(figures[figure])
    return row


def charts_of(rows):
    """The charts: one curve for each server and size of the values, over the share of the flash that the items take.
    Rows that were measured beside busy loops are left out, and of several rows of one kind the last counts."""
    for file, title, quantity, column, pace in CHARTS:
        curves = {}
        for row in rows:
            if row["pace"] == pace and row["busy"] == 0:
                curve = curves.setdefault((row["size"], row["server"]), {})
                curve[round(row["fill"] * 100)] = row[column]
        series = [{"name": f"{server}, {size}{' B' if size.isdigit() else ''}", "points": sorted(curve.items())}
                  for (size, server), curve in sorted(curves.items())]  # fmt: skip
        yield {"file": file + ".svg", "title": title, "x": "share of the flash that the items take, %", "y": quantity,
               "series": series}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", default="target/release/larder", help="the server")
    parser.add_argument("--memcached", default=".tools/peers/memcached", help="memcached with extstore")
    parser.add_argument("--servers", default="larder,memcached", help="which, in this order; also paths of others")
    parser.add_argument("--sizes", default="960,3000,mixed", help="lengths of values, bytes; mixed: 100 B to 8 KiB")
    parser.add_argument("--fills", default="0.5,0.7,0.8", help="shares of the flash that the items take")
    parser.add_argument("--paces", default="paced,fast", help="paced, fast: as fast as one client can")
    parser.add_argument("--busy", default="0,4", help="numbers of loops that run beside the servers")
    parser.add_argument("--rate", type=float, default=0, help="stores a second of `paced`; 0: by the size")
    parser.add_argument("--rounds", type=int, default=5, help="how often an item is stored on average")
    parser.add_argument("--repeat", type=int, default=1, help="how often every row is measured")
    parser.add_argument("--memory", type=int, default=16, help="-m of the servers, MiB")
    parser.add_argument("--threads", type=int, default=1, help="worker threads of the servers")
    parser.add_argument("--flash-mib", type=int, default=256, help="size of the file, MiB")
    parser.add_argument("--directory", default=None, help="where the file is made")
    parser.add_argument("--args", default="", help="further arguments of Larder")
    parser.add_argument("--json", help="writes the rows to this file")
    parser.add_argument("--svg", help="draws the rows into this folder")
    parser.add_argument("--rows", help="measures nothing: the rows are those of this file")
    parser.add_argument("--plots", default="target/release/examples/plots", help="the program that draws")
    options = parser.parse_args()
    rows = measured(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    if options.svg:
        evidence.draw(options.plots, list(charts_of(rows)), options.svg)


def measured(options):
    """The rows: those of an earlier run, or measured now and printed on the way."""
    if options.rows:
        with open(options.rows, encoding="utf-8") as file:
            return json.load(file)
    columns = ("server", "busy", "size", "pace", "fill", "found", "stores_s", "cpu_us", "store_p99_ms", "get_p99_ms",
               "alwa", "demotions_shed")  # fmt: skip
    print(" ".join(f"{column:>12}" for column in columns), flush=True)
    rows = []
    for busy in options.busy.split(","):
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(busy))]
        try:
            for size in options.sizes.split(","):
                for pace in options.paces.split(","):
                    for fill in map(float, options.fills.split(",")):
                        for name in options.servers.split(",") * options.repeat:
                            row = measure(options, name, size, pace, fill) | {"busy": int(busy)}
                            rows.append(row)
                            shown = (row.get(column, "") for column in columns)
                            print(" ".join(f"{cell:12.2f}" if isinstance(cell, float) else f"{str(cell)[-12:]:>12}"
                                           for cell in shown), flush=True)  # fmt: skip
        finally:
            for loop in loops:
                loop.kill()
    return rows


if __name__ == "__main__":
    main()
