"""What stays on flash while it is overwritten: stores items, stores as many again at random several times, reads all.

    cargo build --release
    python3 bench-compare/flash_overwrite.py --fill 0.5 --value-bytes 960 --rate 30000
    python3 bench-compare/flash_overwrite.py --others 100000 --memory 64 --flash-mib 2048 --items 1000000 \\
        --value-bytes 300 --rate 100000 --rounds 1

With --others, a second set of items of 1 KB is stored first and read all the time. The share of them that is found
meanwhile says what the overwriting client takes from others.
"""

import argparse
import bisect
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

BATCH = 200
# What a record takes beside its value, about, bytes.
RECORD_BYTES = 56
# Far more than dictionaries for values hold.
NOISE_BYTES = 16 << 20
# Figures of the server that are added up over its starts.
COUNTED = ("demotions_shed", "store_waits", "quick_drops", "drops_forced", "drops_of_all", "range_drops")


class Client:
    """A connection that sends batches and reads their answers."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.buffer = b""

    def receive(self):
        received = self.socket.recv(1 << 20)
        if not received:
            sys.exit("the server closed the connection")
        self.buffer += received

    def lines(self, count):
        """Reads `count` lines."""
        while self.buffer.count(b"\n") < count:
            self.receive()
        lines, self.buffer = self.buffer, b""
        return lines

    def until_end(self):
        """Reads until the end of a `get` or of `stats`."""
        while (end := self.buffer.find(b"END\r\n")) < 0:
            self.receive()
        answer, self.buffer = self.buffer[:end], self.buffer[end + 5 :]
        return answer

    def store(self, items):
        """Stores items. Returns how many stores were refused."""
        parts = [b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value) for key, value in items]
        self.socket.sendall(b"".join(parts))
        return len(parts) - self.lines(len(parts)).split(b"\r\n").count(b"STORED")

    def get(self, keys):
        """Asks for keys. Returns pairs of a key and the beginning of its value."""
        self.socket.sendall(b"get " + b" ".join(keys) + b"\r\n")
        found = re.findall(rb"VALUE (\S+) \S+ \d+\r\n([0-9.]+)", self.until_end())
        return dict(found)

    def counted(self):
        """Those of `COUNTED` since the server's last start."""
        figures = self.stats()
        return [int(figures[name]) for name in COUNTED]

    def stats(self):
        """The figures of `stats flash`."""
        self.socket.sendall(b"stats flash\r\n")
        return {name: value for name, value in re.findall(r"STAT (\S+) (\S+)", self.until_end().decode())}


def picker(random_numbers, items, zipf):
    """A function that picks an item: each alike, or by a Zipf distribution of exponent 0.99."""
    if not zipf:
        return lambda: random_numbers.randrange(items)
    sums, total = [], 0.0
    for rank in range(1, items + 1):
        total += rank**-0.99
        sums.append(total)
    order = list(range(items))
    random_numbers.shuffle(order)
    return lambda: order[bisect.bisect(sums, random_numbers.random() * total)]


class Values:
    """Values that cannot be compressed. They begin with numbers, which say what they are."""

    def __init__(self, value_bytes):
        self.random = random.Random(value_bytes)
        self.value_bytes = value_bytes
        self.noise = self.random.randbytes(NOISE_BYTES + value_bytes).replace(b"\n", b"x")

    def of(self, number, version):
        start = b"%d.%d.x" % (number, version)
        at = self.random.randrange(NOISE_BYTES)
        return start + self.noise[at : at + self.value_bytes - len(start)]


def overwrite(client, options, versions, rounds):
    """Stores as many items as there are, at random, for each round; the first time all are stored once. Returns how
    many stores a second there were, and how many were refused."""
    items = len(versions)
    pick = picker(random.Random(sum(versions)), items, options.zipf)
    refused, sent, begun = 0, 0, time.monotonic()
    values = Values(options.value_bytes)

    def store(numbers):
        nonlocal refused, sent
        batch = []
        for number in numbers:
            versions[number] += 1
            batch.append((b"key:%d" % number, values.of(number, versions[number])))
        refused += client.store(batch)
        sent += len(batch)
        if options.rate:
            time.sleep(max(0.0, begun + sent / options.rate - time.monotonic()))

    if not any(versions):
        rounds -= 1
        for first in range(0, items, BATCH):
            store(range(first, min(first + BATCH, items)))
    for _ in range(0, items * rounds, BATCH):
        store([pick() for _ in range(BATCH)])
    return sent / (time.monotonic() - begun), refused


def other_keys(numbers):
    return [b"other:%d" % number for number in numbers]


def read_others(port, count, ended, shares):
    """Reads items of the others until `ended`. Notes the share that is found, about once a second."""
    client, random_numbers = Client(port), random.Random(2)
    while not ended.is_set():
        found = asked = 0
        until = time.monotonic() + 1
        while time.monotonic() < until and not ended.is_set():
            keys = other_keys({random_numbers.randrange(count) for _ in range(20)})
            found, asked = found + len(client.get(keys)), asked + len(keys)
            time.sleep(0.01)
        shares.append(found / max(asked, 1))


class Server:
    """A server on a free port, with this flash. It runs until the end of the `with`."""

    def __init__(self, options, flash):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [options.larder, "serve", "-l", "127.0.0.1", "-p", str(self.port), "-t", "1",
                        "-m", str(options.memory), *flash, *options.args.split()]  # fmt: skip
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                Client(self.port).socket.close()
                return self
            except OSError:
                time.sleep(0.05)
        sys.exit("the server did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def restart(self):
        """Stops it in order, and starts it again."""
        self.__exit__()
        self.__enter__()


def measure(options, server):
    client = Client(server.port)
    items = options.items
    if not items:
        items = int(options.flash_mib * options.fill * 2**20 / (options.value_bytes + RECORD_BYTES))
    long = Values(1000)
    for first in range(0, options.others, 100):
        client.store([(key, long.of(0, 0)) for key in other_keys(range(first, first + 100))])
        time.sleep(0.003)
    ended, shares = threading.Event(), []
    reader = threading.Thread(target=read_others, args=(server.port, options.others, ended, shares))
    if options.others:
        time.sleep(2)
        reader.start()
    versions = [0] * items
    rate, refused = overwrite(client, options, versions, options.rounds)
    counted = []
    for _ in range(options.restarts):
        counted.append(client.counted())
        server.restart()
        client = Client(server.port)
        rate, more = overwrite(client, options, versions, 1)
        refused += more
    ended.set()
    if options.others:
        reader.join()
    time.sleep(3)
    found = wrong = 0
    for first in range(0, items, 50):
        numbers = range(first, min(first + 50, items))
        values = client.get([b"key:%d" % number for number in numbers])
        found += len(values)
        wrong += sum(
            not value.startswith(b"%d.%d." % (number, versions[number]))
            for number in numbers
            if (value := values.get(b"key:%d" % number)) is not None
        )
    stats = client.stats()
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as file:
        ticks = file.read().rsplit(")", 1)[1].split()[11:13]
    seconds = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    print(f"{items} items of {options.value_bytes} B, {rate:,.0f} stores/s ({refused} refused)")
    print(f"found {100 * found / items:.2f} %, with a wrong value {wrong}; server's processor time {seconds:.1f} s")
    if options.others:
        print(f"of the others' items found meanwhile, at least {100 * min(shares, default=0):.1f} %")
    for name, counts in zip(COUNTED, zip(*counted, client.counted())):
        print(f"{name} {sum(counts)}")
    for name in ("alwa", "reads_per_hit"):
        print(f"{name} {stats[name]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", default="target/release/larder", help="the server")
    parser.add_argument("--fill", type=float, default=0.5, help="share of the flash that the items take")
    parser.add_argument("--items", type=int, default=0, help="how many items, instead of --fill")
    parser.add_argument("--value-bytes", type=int, default=960, help="length of a value")
    parser.add_argument("--rate", type=float, default=0, help="stores a second; 0: as many as this client can")
    parser.add_argument("--rounds", type=int, default=5, help="how often an item is stored on average")
    parser.add_argument("--restarts", type=int, default=0, help="stops and starts, each with another round after it")
    parser.add_argument("--zipf", action="store_true", help="stores again by Zipf, exponent 0.99")
    parser.add_argument("--others", type=int, default=0, help="items of 1 KB that are read meanwhile")
    parser.add_argument("--memory", type=int, default=16, help="-m of the server, MiB")
    parser.add_argument("--flash-mib", type=int, default=256, help="size of the file, MiB")
    parser.add_argument("--directory", default=None, help="where the file is made")
    parser.add_argument("--args", default="", help="further arguments of the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        with Server(options, ["--flash", f"{directory}/flash:{options.flash_mib}m"]) as server:
            measure(options, server)


if __name__ == "__main__":
    main()
