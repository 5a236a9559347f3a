#!/usr/bin/env python3
"""Predicts what several workers do: the tables of PREDICTION.md. `--check` compares the solution with closed forms.

The model is a closed queueing network. Each worker is a customer, which always has a request to answer. Its own work,
the system calls included, is a delay: no other worker is in its way. Each line of memory that several cores write is a
station, which serves one worker at a time: a visit takes the time in which the line comes from another core, if it has
to, and the time for which it is held. Visits are those of "Lines that go from core to core" in
docs/internals/concurrency.md. The bucket of each key is a station, visited as often as the key is asked for. The keeper
is one station: each new item of a full cache needs one eviction, and one thread at a time evicts, whichever it is.
With one worker no line moves, and the model gives back the measured cost of a request.

The solution is exact mean value analysis (Reiser and Lavenberg, "Mean-value analysis of closed multichain queueing
networks", J. ACM 27(2), 1980). It takes the times at a station to be exponential. Each move counts as if it were waited
for in full, although the server asks for lines ahead; in this the prediction is on the low side.
"""

import itertools
import math
import sys

WORKERS = (1, 2, 4, 8, 12, 16)
LINE_US = (0.040, 0.080, 0.120)  # in which a line comes from another core: low, middle, high
# Server CPU, us a request, with one worker: Larder and memcached 1.6.45 (bench-compare/README.md).
CPU_US = {"get-32": (0.51, 1.62), "get-32-d1": (5.62, 7.88), "get-300": (0.84, 1.74), "mixed-95-5": (0.66, 1.98),
          "set-300": (0.77, 3.61), "uniform-10m-256": (0.95, 2.21)}
EVICTION_US = 0.22  # of the keeper, for each item (docs/internals/numbers.md); no part of `set-300`
# Lines that the keeper writes for each evicted item of 300 B: its bucket, 0.4 of records, and 7.6 x 8 for a column.
# The table's column of 32 KiB has 8 items of 4,000 B; one of 256 KiB has 750 of 300 B.
ITEMS_A_COLUMN = 750
EVICTION_LINES = 1 + 0.4 + 7.6 * 8 / ITEMS_A_COLUMN
# Assumed: how often an item takes the mutex of a list of columns, and for how long; for how long a writer holds a
# bucket, once it has the lines; and of how many items one core's own cache keeps bucket and record (1 to 2 MiB).
COLUMN_VISITS, COLUMN_HOLD_US, BUCKET_HOLD_US, CACHED_ITEMS = 4 / ITEMS_A_COLUMN, 0.5, 0.05, 4096
ITEMS, THETA, ENTRIES_A_BUCKET, WARMTH_MAX = 1_000_000, 0.99, 6, 3
SETS_A_CAS_LINE, SET_SHARE = 16, 0.05
WARM_UP_S, MEASURED_S = 0.3, 0.8  # of a run of the load client on the device (parts.py)


def zipf(items, theta):
    """Classes of (probability of one item, items): the first 32 items alone, then items of like rank together."""
    edges = [*range(33), *(32 << k for k in range(1, 40) if 32 << k < items), items]
    masses = [sum(rank ** -theta for rank in range(low + 1, high + 1)) for low, high in itertools.pairwise(edges)]
    whole = sum(masses)
    return [(mass / whole / (high - low), high - low) for mass, (low, high) in zip(masses, itertools.pairwise(edges))]


def reach(popularity):
    """Over how many of its own last requests a core's cache reaches back: until they had `CACHED_ITEMS` items."""
    low, high = 0.0, 1e9
    for _ in range(60):
        middle = (low + high) / 2
        items = sum(count * -math.expm1(-p * middle) for p, count in popularity)
        low, high = (middle, high) if items < CACHED_ITEMS else (low, middle)
    return low


def raised(p, reads, most):
    """How often one of an item's first `most` reads is among `reads` reads: the mean of min(most, Poisson)."""
    terms = [math.exp(-p * reads) * (p * reads) ** k / math.factorial(k) for k in range(most)]
    return most - sum((most - k) * term for k, term in enumerate(terms))


class Request:
    """What a request does on average: the worker's own time, and (demand at each, how many of them) of stations."""

    def __init__(self, own_us, line_us=0.0, stations=()):
        self.own_us, self.line_us, self.stations, self.moves = own_us, line_us, [*stations], 0.0

    def visit(self, visits, moves, stations=1, hold_us=0.0):
        """Visits, shared out over like `stations`, that bring lines in `moves` times. The hold is in the own time."""
        self.own_us -= visits * hold_us
        self.moves += moves
        self.stations.append(((visits * hold_us + moves * self.line_us) / stations, stations))

    def wait(self, moves):
        """Brings lines in for which no other worker queues."""
        self.own_us, self.moves = self.own_us + moves * self.line_us, self.moves + moves


def gets(cpu_us, popularity):
    """GETs. The first three reads of an item raise its warmth, the first sets a bit of its record; others only read."""
    window = reach(popularity)

    def make(workers, line_us):
        request = Request(cpu_us, line_us)
        before, during = (seconds * 1e6 * workers / cpu_us for seconds in (WARM_UP_S, MEASURED_S))
        for p, count in popularity:
            held = -math.expm1(-p * window * (workers - 1))
            bucket, record = ((raised(p, before + during, most) - raised(p, before, most)) * count / during
                              for most in (WARMTH_MAX, 1))
            request.visit(bucket, bucket * held, count)
            request.wait(record * held)
        return request
    return make


def mixed(cpu_us, popularity):
    """95 GET : 5 SET of items that are there. A GET brings in what others wrote since this worker looked."""
    window = reach(popularity)

    def make(workers, line_us):
        request, others = Request(cpu_us, line_us), workers - 1
        outdated = SET_SHARE * others / (1 + SET_SHARE * others)
        for p, count in popularity:
            sets_of = SET_SHARE * p * count
            reads = (1 - SET_SHARE) * p * count * -math.expm1(-p * window) * outdated
            held = -math.expm1(-p * window * others)
            # The bucket, and the record: the new one of a GET, whose further lines come along; the old one of a SET.
            request.visit(reads, reads, count)
            request.visit(sets_of, sets_of * held, count, BUCKET_HOLD_US)
            request.wait(reads + sets_of * held)
            # The old record's column counts it as dead. A worker that fills that column has to fetch the line back.
            is_open = -math.expm1(-p * workers * ITEMS_A_COLUMN / 2)
            request.visit(2 * sets_of, 2 * sets_of * is_open * others / workers, workers)
            request.wait(sets_of * (1 - is_open) * held)
        # A turn may have one SET only, so each may take a CAS number of its own.
        request.visit(SET_SHARE, SET_SHARE * others / workers)
        return request
    return make


def new_items(cpu_us, is_full):
    """SETs of new items. An index that grows has one station more, its number of buckets; a full cache, the keeper."""
    def make(workers, line_us):
        foreign = (workers - 1) / workers
        request = Request(cpu_us + is_full * EVICTION_US, line_us)
        request.visit(1, foreign, ITEMS // ENTRIES_A_BUCKET, BUCKET_HOLD_US)
        request.visit(1 / SETS_A_CAS_LINE, foreign / SETS_A_CAS_LINE)
        request.visit(COLUMN_VISITS, COLUMN_VISITS * foreign, 4, COLUMN_HOLD_US)
        if is_full:
            request.visit(1, EVICTION_LINES * foreign, 1, EVICTION_US)
        else:
            # A SET in six splits a bucket and writes the number. The next SET of every other worker reads it anew.
            splits = 1 / ENTRIES_A_BUCKET
            request.visit(1, splits * foreign - math.expm1(-(workers - 1) * splits))
        return request
    return make


def loads():
    """(name, what makes a request, memcached's us a request) of each load."""
    hot, even, ten = zipf(ITEMS, THETA), [(1 / ITEMS, ITEMS)], [(0.1 / ITEMS, 10 * ITEMS)]
    for name, like, kind, of in (
            ("`get-32`", "get-32", gets, hot), ("the same, uniform", "get-32", gets, even),
            ("`get-32-d1`", "get-32-d1", gets, hot), ("`get-300`", "get-300", gets, hot),
            ("`uniform-10m-256`", "uniform-10m-256", gets, ten), ("`mixed-95-5`", "mixed-95-5", mixed, hot),
            ("`set-300`: the index grows", "set-300", new_items, False),
            ("the same, in a full cache", "set-300", new_items, True)):
        yield name, kind(CPU_US[like][0], of), CPU_US[like][1]


def throughput(request, customers):
    """Requests per us by mean value analysis."""
    queues, rate = [0.0] * len(request.stations), 0.0
    for present in range(1, customers + 1):
        times = [demand * (1 + queue) for (demand, _), queue in zip(request.stations, queues)]
        rate = present / (request.own_us + sum(time * count for time, (_, count) in zip(times, request.stations)))
        queues = [rate * time for time in times]
    return rate


def main():
    """Prints the tables: speed-up, requests a second, and 12 workers beside memcached."""
    def three(values):
        texts = ["%.1f" % value for value in values]
        return texts[0] if len(set(texts)) == 1 else " / ".join(texts)
    tables = ([["times one worker, by workers", *WORKERS]], [["million requests/s, by workers", *WORKERS]],
              [["12 workers", "lines moved a request", "memcached at best, million/s", "times memcached at best"]])
    for name, make, memcached_us in loads():
        found = {n: [throughput(make(n, line_us), n) for line_us in LINE_US] for n in WORKERS}
        tables[0].append([name] + [three(a / b for a, b in zip(found[n], found[1])) for n in WORKERS])
        tables[1].append([name] + [three(found[n]) for n in WORKERS])
        tables[2].append([name, "%.2f" % make(12, LINE_US[1]).moves, "%.1f" % (12 / memcached_us),
                          three(rate * memcached_us / 12 for rate in found[12])])
    for head, *rows in tables:
        for words in [head, ["---"] + ["---:"] * (len(head) - 1), *rows]:
            print("| %s |" % " | ".join(map(str, words)))
        print()


def check():
    """Whether the solution agrees with the machine-repairman model, and with sums over all states of three stations."""
    pairs = [(sum(p * count for p, count in zipf(ITEMS, THETA)), 1)]
    for own, service, all_of in ((1.0, 0.3, 7), (5.0, 1.0, 16), (0.5, 0.5, 3)):
        idle = 1 / sum(math.perm(all_of, k) * (service / own) ** k for k in range(all_of + 1))
        pairs.append((throughput(Request(own, stations=[(service, 1)]), all_of), (1 - idle) / service))
    for own, one, two, all_of in ((1.0, 0.5, 0.2, 5), (2.0, 0.1, 1.5, 6)):
        less, full = (sum(one ** a * two ** (b + c) * own ** (n - a - b - c) / math.factorial(n - a - b - c)
                          for a, b, c in itertools.product(range(n + 1), repeat=3) if a + b + c <= n)
                      for n in (all_of - 1, all_of))
        pairs.append((throughput(Request(own, stations=[(one, 1), (two, 2)]), all_of), less / full))
    pairs += [(make(1, LINE_US[2]).moves, 0) for _, make, _ in loads()]
    wrong = sum(not math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12) for found, wanted in pairs)
    print("%d of %d comparisons differ" % (wrong, len(pairs)))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1:] == ["--check"] else main())
