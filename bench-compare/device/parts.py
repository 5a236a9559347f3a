"""The parts of a run, in the order of what is to be known most: the commands of each, and the rows that it leaves.

A row is a dict of what a table shows; its "table" names the table. `work(run, rows)` of a part appends rows, so that
those found before a failure are kept. It raises Skipped where the machine lacks something, and Failed.
"""

import collections
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# A part may not begin if less time is left than `least_seconds`, and ends after `seconds`.
Part = collections.namedtuple("Part", "name title seconds least_seconds work")

# Worker threads, in the order of what is to be known most; those with the full set of loads first.
WORKERS_FULL, WORKERS_MORE = (12, 1, 4), (8, 2)
LOADS_FULL = ("get-32,get-32-d1", "get-300,get-300-d1,mixed-95-5", "set-300")
LOADS_MORE = ("get-32", "get-300")
# A client thread more does not help a server with one worker, and there are only the other cores.
CLIENTS_MAX = 8
# Connections that divide evenly among all these workers, and among one, two, four or eight clients.
CONNECTIONS = 96
# Items of the big servers: 64 GB, or this share of the memory.
BIG_MIB, BIG_SHARE = 61035, 0.55
# Larder's flags for remembering what is warm.
TEMPERATURES = {
    "hitmap-cuda": "--temperature hitmap --device cuda",
    "hitmap-cpu": "--temperature hitmap --device cpu",
    "entry": "--temperature entry",
    "hitmap-cuda-1024": "--temperature hitmap --device cuda --device-batch 1024",
    "published-cuda": "--temperature hitmap-published --device cuda",
}
# The columns of the tables of `cuda_curve` from the left.
CURVE_COLUMNS = ("table", "layout", "memory", "items", "batch", "million_a_second", "whole_us", "submit_us",
                 "transfer_us", "kernels_us", "bytes_copied")
PAGES = ("transparent", "small", "coloured")
COUNTERS = "cycles,instructions,LLC-loads,LLC-load-misses"


class Skipped(Exception):
    """A part that this machine cannot do. The text says why."""


class Failed(Exception):
    """A part that did not come to its end. The text says why."""


def all_parts(run):
    """The parts that this machine has cores for, most wanted first."""
    found = [
        Part("machine", "What machine this is", 30, 5, machine),
        Part("gpu-same", "The kernels give the answers of the CPU", 60, 3, lambda run, rows: gpu(run, rows, ["same"])),
        Part("gpu-speed", "References, lookups and compaction on the GPU and on the CPU", 90, 15,
             lambda run, rows: gpu(run, rows, ["marks", "lookups", "aging"])),
    ]
    found += [Part("big-" + name, "A full cache: Larder, %s" % TEMPERATURES[name], 75, 20, big_larder(name))
              for name in ("hitmap-cuda", "hitmap-cpu", "entry")]
    most = max(len(run.cores) - 1, 1)
    for workers in [count for count in WORKERS_FULL if count <= most]:
        found.append(cores(workers, LOADS_FULL, 60))
    found += [Part("big-" + name, "A full cache: %s" % name, 75, 20, big_peer(name))
              for name in ("memcached", "valkey")]
    for workers in [count for count in WORKERS_MORE if count <= most]:
        found.append(cores(workers, LOADS_MORE, 30))
    found += [
        Part("lines", "Cache lines that workers share, by count (perf c2c)", 30, 10, lines),
        Part("pages", "Kinds of memory pages, with counters of the last-level cache", 60, 10, pages),
        Part("big-hitmap-cuda-1024", "A full cache: Larder, %s" % TEMPERATURES["hitmap-cuda-1024"], 75, 20,
             big_larder("hitmap-cuda-1024")),
        Part("big-published-cuda", "A full cache: Larder, %s" % TEMPERATURES["published-cuda"], 75, 20,
             big_larder("published-cuda")),
    ]
    return found


def first_line(words):
    """The first line that a program prints, or why there is none."""
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              timeout=10, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout.strip().splitlines() or ["nothing"])[0][:160]


def machine(run, rows):
    """Processor, memory, GPU, programs. With MEMORY, takes as much memory as the big servers will."""
    def note(what, value):
        rows.append({"table": "machine", "what": what, "is": value})

    if run.dry:
        return
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = re.findall(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    note("processor", "%d x %s" % (len(run.cores), models[0] if models else platform.machine()))
    siblings = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % run.cores[0]
    note("threads that share the first core", first_line(["cat", siblings]))
    note("kernel", platform.release())
    note("memory to count on, MiB", run.memory_mib)
    note("GPU", first_line(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,pcie.link.gen.current",
                            "--format=csv,noheader"]))
    note("Larder", first_line([run.program("larder"), "--version"]))
    commit = os.path.join(run.carry, "commit")
    if os.path.exists(commit):
        note("commit", first_line(["cat", commit]))
    for peer in ("memcached", "valkey-server"):
        note(peer, first_line([os.path.join(run.carry, "peers", peer), "--version"]))
    if os.environ.get("MEMORY"):
        wanted = min(run.memory_mib // 1024, BIG_MIB // 1024 + 8)
        said = run.start([sys.executable, os.path.join(HERE, "take_memory.py"), str(wanted)]).strip().splitlines()[-1]
        note("memory taken", said)
        got = max(int(said.split()[0]), 1) * 1024
        if said.endswith("no more"):
            run.memory_mib = got
        elif said.endswith("over"):
            # A server can take as much again in the time that it has for storing.
            run.memory_mib = min(run.memory_mib, int(2 * got / BIG_SHARE))


def gpu(run, rows, wanted):
    """`cuda_curve`; its figures are the rows."""
    items, references = ("20000", "200000") if run.rehearse else ("100000000", "10000000")
    figures = run.scratch("gpu.part")
    words = [run.program("cuda_curve"), "--json", figures, "--batch", "1000,3000,10000,30000,100000"]
    for part in wanted:
        words += ["--part", part]
    try:
        said = run.start(words + ["0", items, references])
    finally:
        if os.path.exists(figures):
            with open(figures, encoding="utf-8") as file:
                for row in map(json.loads, file):
                    row["table"] = row.pop("figure")
                    names = sorted(row, key=lambda name: CURVE_COLUMNS.index(name) if name in CURVE_COLUMNS else 99)
                    rows.append({name: rounded(row[name]) for name in names})
            os.remove(figures)
    if "nothing measured" in said:
        raise Skipped(said.strip().splitlines()[-1])


def rounded(value):
    """Four digits of a number with a fraction."""
    return float("%.4g" % value) if isinstance(value, float) else value


def split(run, workers):
    """(cores of the server, cores of the client): `workers` of the one, the others of the other, at most eight."""
    server = run.cores[:workers]
    return server, (run.cores[workers:] or server)[:CLIENTS_MAX]


def bench(run, rows, table, workers, servers, *words, seconds, during=None):
    """A run of the load client on `servers`; a row for each load and server."""
    server_cores, client_cores = split(run, workers)
    document = run.scratch("bench.part")
    listed = lambda numbers: ",".join(map(str, numbers))  # noqa: E731
    try:
        run.start([
            run.program("larder-bench-compare"), "--larder", run.program("larder"), "--only", servers, "--threads",
            str(workers), "--server-cores", listed(server_cores), "--client-cores", listed(client_cores), "--clients",
            str(len(client_cores)), "--connections", str(CONNECTIONS), "--rounds", "1", "--warmup", "0.3", "--seconds",
            str(0.2 if run.rehearse else seconds), "--memory", str(run.memory_mib), "--json", document, *words], during)
    finally:
        # The client ends with a failure if one server did; the figures of the others are there.
        for load in read_json(document).get("loads", []):
            rows += [row_of(table, load, row, workers, len(client_cores)) for row in load["rows"]]


def read_json(path):
    """What a file holds, which is removed; nothing if it holds no whole document."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}
    finally:
        if os.path.exists(path):
            os.remove(path)


def row_of(table, load, row, workers, clients):
    """The row of one server under one load. `capacity` is the rate if all workers were busy all the time."""
    if not row["rounds"]:
        return {"table": table, "workers": workers, "load": load["load"], "server": row["server"],
                "notes": row["failed"]}
    one = row["rounds"][0]
    gets = one["hits"] + one["misses"]
    latency = one["latency"] or {}
    notes = [note for note in [load["note"], *row["notes"]] if note]
    if one["client_busy"] > 0.9 and one["server_busy"] < 0.9 * workers:
        notes.append("the client is the limit")
    return {
        "table": table, "workers": workers, "clients": clients, "load": load["load"], "server": row["server"],
        "requests/s": int(one["requests_per_s"]), "p50, us": latency.get("p50_us"), "p99, us": latency.get("p99_us"),
        "server us/request": rounded(one["server_us_per_request"]),
        "capacity/s": int(workers * 1e6 / max(one["server_us_per_request"], 1e-3)),
        "server busy": rounded(one["server_busy"]), "client busy": rounded(one["client_busy"]),
        "hit ratio": rounded(one["hits"] / gets) if gets else None, "RSS, MiB": int(one["resident_bytes"] / (1 << 20)),
        "notes": "; ".join(notes),
    }


def cores(workers, loads, seconds):
    """The part of all servers with `workers` threads. The empty server shows what the client can do."""
    def work(run, rows):
        for group in loads:
            bench(run, rows, "cores", workers, "empty,memcached,valkey,larder", "--load", group, "--scale",
                  "0.02" if run.rehearse else "1", seconds=0.8)
    title = "Servers with %d worker%s" % (workers, "s" * (workers > 1))
    return Part("cores-%d" % workers, title, seconds, seconds // 4, work)


def big(run, rows, servers, larder_args, during=None):
    """One server whose memory is full, read-through."""
    workers = max(len(run.cores) * 3 // 4, 1)
    mib = 64 if run.rehearse else int(min(BIG_MIB, BIG_SHARE * run.memory_mib))
    bench(run, rows, "big", workers, servers, "--load", "read-through-1g", "--scale", "%.4f" % (mib / 1024),
          "--store-seconds", "35", "--larder-args", larder_args, seconds=6, during=during)


def big_larder(name):
    """Larder with one way of remembering what is warm, and what it says of it."""
    def work(run, rows):
        known = {}
        before = len(rows)
        try:
            big(run, rows, "larder", TEMPERATURES[name], lambda group: known.update(temperature_stats(group)))
        finally:
            for row in rows[before:]:
                row["server"] = name
            if known:
                rows.append({"table": "stats temperature", "server": name, **known})
    return work


def big_peer(name):
    """A server of others, as full."""
    return lambda run, rows: big(run, rows, name, "")


def temperature_stats(group):
    """`stats temperature` of the Larder that a process of this group is, or nothing."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % process, "rb") as file:
                words = file.read().decode("utf-8", "replace").split("\0")
            if words[1:3] != ["serve", "-p"] or os.getpgid(int(process)) != group:
                continue
            with socket.create_connection(("127.0.0.1", int(words[3])), timeout=1) as connection:
                connection.sendall(b"stats temperature\r\n")
                said = b""
                while not said.endswith(b"END\r\n"):
                    piece = connection.recv(65536)
                    if not piece:
                        return {}
                    said += piece
        except (OSError, ValueError, IndexError):
            continue
        stats = (line.split(" ", 2)[1:] for line in said.decode().splitlines() if line.startswith("STAT "))
        return dict(pair for pair in stats if len(pair) == 2)
    return {}


def perf_counts(run):
    """Whether perf is here and counts what the last-level cache does."""
    if run.dry:
        return True
    if not shutil.which("perf"):
        return False
    done = subprocess.run(["perf", "stat", "-x,", "-e", COUNTERS, "true"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=10, check=False)
    return done.returncode == 0 and "<not" not in done.stderr


def under_perf(run, *words):
    """A `run` whose programs are started by perf."""
    wrapped = Wrapped(run)
    wrapped.before = ["perf", *words, "--"]
    return wrapped


class Wrapped:
    """A run that puts words before each command."""

    def __init__(self, run):
        self.run = run
        self.before = []

    def __getattr__(self, name):
        return getattr(self.run, name)

    def start(self, words, during=None):
        """Runs a program with the words before it."""
        return self.run.start(self.before + words, during)


def busy_workers(run):
    """As many workers as leave a few cores to the client."""
    return max(len(run.cores) * 3 // 4, 1)


def lines(run, rows):
    """Loads and stores that met a line that another core had changed, with all workers busy."""
    if not perf_counts(run):
        raise Skipped("perf is not here, or counts no events of the cache")
    data = run.scratch("c2c.part")
    recorded = under_perf(run, "c2c", "record", "-a", "-o", data)
    try:
        bench(recorded, [], "lines", busy_workers(run), "larder", "--load", "mixed-95-5", "--scale",
              "0.02" if run.rehearse else "1", seconds=2)
        said = run.start(["perf", "c2c", "report", "-i", data, "--stats"])
    finally:
        if os.path.exists(data):
            os.remove(data)
    for what, count in re.findall(r"^\s*((?:\w[\w ]*HITM|Total [\w ]+|Load LLC Misses)[\w ]*?)\s*:\s*(\d+)", said,
                                  re.MULTILINE):
        rows.append({"table": "lines", "what": what.strip(), "count": int(count)})


def pages(run, rows):
    """The same uniform GETs on each kind of pages. The counters are those of the server's cores from its start on."""
    counted = perf_counts(run)
    workers = busy_workers(run)
    for kind in PAGES:
        counts = run.scratch("perf.part")
        server_cores = ",".join(map(str, split(run, workers)[0]))
        perf = ["stat", "-x,", "-a", "-C", server_cores, "-e", COUNTERS, "-o", counts]
        before = len(rows)
        bench(under_perf(run, *perf) if counted else run, rows, "pages", workers, "larder", "--larder-args",
              "--pages " + kind, "--load", "uniform-10m-256", "--scale", "0.02" if run.rehearse else "1", seconds=4)
        for row in rows[before:]:
            row["server"] = kind
        if os.path.exists(counts):
            with open(counts, encoding="utf-8") as file:
                fields = [line.split(",") for line in file if line.count(",") > 2]
            os.remove(counts)
            for count, _, event, *_ in fields:
                for row in rows[before:]:
                    row[event] = int(count) if count.isdigit() else count
    if not counted:
        rows.append({"table": "pages", "notes": "perf is not here, or counts no events of the last-level cache"})
