#!/usr/bin/env python3
"""Makes the figures of docs/evidence anew, compares them with those in docs/evidence/data, and says what moved.

    make evidence                       builds what is needed, then does all that counts (simulations, models, plans)
    make evidence TRACES=FOLDER         the same with the runs that need real traces
    make evidence ONLY=plan-paper       only this run, or several, separated by commas
    make evidence-timed                 what the clock measures, beside other servers
    bench-compare/evidence.py --index   only pages, index and plots, from the data that is there

docs/evidence/evidence.toml declares the runs, the claims that they check, and the plots. A run leaves its tables in
docs/evidence/data; if they are the same as before, the file stays as it is, with the commit and the date at which the
figures first came out. The index is docs/evidence/README.md. In the other pages, tables stand between two comments:

    <!-- table RUN "TITLE" COLUMN | COLUMN -->
    <!-- end -->

The exit status is 1 if a claim has another verdict than before, if a counted table moved, or if a run failed.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(HERE)
sys.path.insert(0, HERE)

import evidence_picture as pictures  # noqa: E402
import evidence_tables as tables  # noqa: E402

DECLARED = "docs/evidence/evidence.toml"
DATA = "docs/evidence/data"
INDEX = "docs/evidence/README.md"
PAGES = ("docs/evidence", "docs/internals", "docs", "bench-compare", ".")
DRAWN_FROM = "<!-- drawn from %s -->\n"
MOVES_SHOWN_MAX = 40


class Evidence:
    """What is declared, and the data that is there, in the repository at `root`."""

    def __init__(self, root=REPOSITORY):
        self.root = root
        with open(os.path.join(root, DECLARED), "rb") as file:
            self.declared = tomllib.load(file)
        self.runs = {run["name"]: run for run in self.declared.get("run", [])}
        self.data = {}
        folder = os.path.join(root, DATA)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.data[name.removesuffix(".json")] = json.load(file)

    def claims(self):
        """Every claim as (claim, our figure or None, verdict, whether it is the expected one)."""
        by_run = {name: data["tables"] for name, data in self.data.items()}
        for claim in self.declared.get("claim", []):
            needed = {claim["run"]} | {spec["run"] for spec in claim.get("of", {}).values() if "run" in spec}
            if not needed <= by_run.keys():
                yield claim, None, "not run yet", True
                continue
            try:
                figure = tables.ours(claim, by_run)
            except (KeyError, ValueError) as error:
                yield claim, None, "NO FIGURE: %s" % error, False
                continue
            yield claim, figure, *tables.verdict(claim, figure)

    def index(self):
        """The text of the index."""
        rows = []
        for claim, figure, verdict, _ in self.claims():
            data = self.data.get(claim["run"], {})
            rows.append([claim["source"], " ".join(claim["claim"].split()), "`ONLY=%s`" % claim["run"],
                         tables.expected_text(claim), tables.tolerance_text(claim),
                         tables.shown(figure, claim.get("decimals")), verdict,
                         seconds_of(self.runs[claim["run"]], data)])  # fmt: skip
        text = INDEX_HEAD + tables.table_text(CLAIM_COLUMNS, rows)
        for kind, heading in (("counted", COUNTED_HEAD), ("timed", TIMED_HEAD)):
            rows = []
            for run in self.runs.values():
                if run["kind"] == kind:
                    data = self.data.get(run["name"])
                    origin = [data[key] for key in ("commit", "date", "processor", "kernel")] if data else [""] * 4
                    rows.append(["`%s`" % run["name"], "[%s](%s)" % (os.path.basename(run["page"]), run["page"]),
                                 "`%s`" % command_text(run), seconds_of(run, data or {}), *origin])  # fmt: skip
            text += heading + tables.table_text(RUN_COLUMNS, rows)
        plots = ["![%s](%s)" % (plot["title"], os.path.relpath(plot["file"], "docs/evidence"))
                 for plot in self.declared.get("picture", []) + self.declared.get("plot", [])
                 if plot["run"] in self.data]  # fmt: skip
        text += PLOTS_HEAD + "\n".join(plots) + "\n"
        rows = [[one["figure"], " ".join(one["reason"].split())] for one in self.declared.get("not_measured", [])]
        return text + NOT_MEASURED_HEAD + tables.table_text(["figure", "why"], rows)

    def pages(self):
        """Every page that has tables of runs: (path from the root, its text, what its text should be)."""
        for folder in PAGES:
            for name in sorted(os.listdir(os.path.join(self.root, folder)) if os.path.isdir(
                    os.path.join(self.root, folder)) else []):  # fmt: skip
                path = os.path.normpath(os.path.join(folder, name))
                if name.endswith(".md") and path != INDEX:
                    with open(os.path.join(self.root, path), encoding="utf-8") as file:
                        text = file.read()
                    if "<!-- table " in text:
                        yield path, text, tables.page(text, self.data)

    def charts(self):
        """Every plot whose run has data: (path from the root, what to draw)."""
        for plot in self.declared.get("plot", []):
            if plot["run"] in self.data:
                yield plot["file"], chart_of(plot, self.data[plot["run"]]["tables"])
        for picture in self.declared.get("picture", []):
            if picture["run"] in self.data:
                yield picture["file"], pictures.bars_of(picture, self.data[picture["run"]]["tables"], tables)

    def stale(self):
        """What does not fit the data, as lines of text."""
        try:
            yield from self.unfit()
        except (KeyError, ValueError) as error:
            yield "%s or a page names what the data do not have: %s" % (DECLARED, error)

    def unfit(self):
        """The pages, tables and plots that do not fit the data."""
        path = os.path.join(self.root, INDEX)
        if text_of(path) != self.index():
            yield "%s is not what evidence.toml and the data say" % INDEX
        for path, text, wanted in self.pages():
            if text != wanted:
                yield "%s: a table is not what the data say" % path
        for path, chart in self.charts():
            if not text_of(os.path.join(self.root, path)).endswith(DRAWN_FROM % digest(chart)):
                yield "%s is not drawn from the data" % path

    def write(self, program):
        """Writes index, pages and plots; `program` draws the plots. Returns whether all could be written."""
        write(os.path.join(self.root, INDEX), self.index())
        for path, text, wanted in self.pages():
            if text != wanted:
                write(os.path.join(self.root, path), wanted)
        due = [(path, chart) for path, chart in self.charts()
               if not text_of(os.path.join(self.root, path)).endswith(DRAWN_FROM % digest(chart))]  # fmt: skip
        due.sort(key=lambda one: "groups" not in one[1])
        for nth, (path, chart) in enumerate(due):
            path = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if "groups" in chart:
                write(path, pictures.svg(chart))
            elif not os.path.exists(program):
                print("%s is not there: %d plots are not drawn" % (program, len(due) - nth))
                return False
            else:
                draw(program, [chart | {"file": os.path.basename(path)}], os.path.dirname(path))
            with open(path, "a", encoding="utf-8") as file:
                file.write(DRAWN_FROM % digest(chart))
        return True


CLAIM_COLUMNS = ["source", "claim", "command: make evidence", "expected", "tolerance", "ours", "verdict", "s"]
RUN_COLUMNS = ["run", "page", "command", "s", "commit", "date", "processor", "kernel"]
INDEX_HEAD = """# Evidence: every claim with its verdict

`make evidence` counts anew what does not depend on the clock: simulations, models, plans. `make evidence-timed`
measures on the clock, beside other servers. Both compare with the figures in [data](data) and say what moved;
[evidence.toml](evidence.toml) declares runs, claims and plots. `make evidence ONLY=NAME` does one run. Some runs need
real traces: `TRACES=FOLDER` names them, and without it they are left out and their figures stay.

*Expected* is the figure of the source, or the bar that we set, and a claim *holds* if ours is within the tolerance of
it. A claim that is known not to hold has the word for that: *refuted*, if the same run gives something else, or *not
reproduced*, if the cause is open. `make evidence` fails if a verdict is another one than here. The last column is how
long the whole run takes: seconds of a processor, or, for runs on the clock, seconds.

This page is made by `bench-compare/evidence.py`. The other pages of this folder say how things were measured, and what
follows.

## Claims

"""
COUNTED_HEAD = """
## Runs that count

The same command gives the same figures on any machine. Commit and date are those at which the figures first came out.

"""
TIMED_HEAD = """
## Runs on the clock

"""
PLOTS_HEAD = """
## Plots

"""
NOT_MEASURED_HEAD = """
## Not measured

"""


def seconds_of(run, data):
    """How long a run takes, or nothing where that is not known."""
    seconds = data.get("seconds", run.get("seconds"))
    return "" if seconds is None else "%.0f" % max(1, seconds)


def command_text(run):
    """The command of a run, for people."""
    text = " ".join(run["command"]).replace("{examples}", "target/release/examples")
    if "each" in run:
        text = text.replace("{each}", "EACH").replace("{args}", "EACH")
        names = [one if isinstance(one, str) else " ".join(one["args"]) for one in run["each"]]
        text += "` with EACH `" + "`, `".join(names)
    for name, values in run.get("product", {}).items():
        text = text.replace("{%s}" % name, name.upper()) + "` with %s `" % name.upper() + "`, `".join(map(str, values))
    for name, shown in (("traces", "$TRACES"), ("plain", "$TRACES"), ("bin", "target/release"), ("folder", "FOLDER")):
        text = text.replace("{%s}" % name, shown)
    return re.sub(r" --json (-|\{out\})", "", text).replace("|", "\\|")


def chart_of(plot, found):
    """What to draw for a plot: title, axes, and curves with their points."""
    table = tables.table_of(found, plot.get("table"))
    rows = [row for row in tables.rows_of(table, plot.get("where")) if re.search(plot.get("match", ""), row[0])]
    if plot.get("curves") == "rows":
        # The headings are the places on the horizontal axis, each row is a curve.
        curves = [(row[0], list(zip(table["columns"][1:], row[1:]))) for row in rows]
    else:
        across = tables.place_of(table, plot["x"])
        ups = [(tables.place_of(table, y)) for y in plot["ys"]]
        if "by" in plot:
            by = [tables.place_of(table, name) for name in plot["by"]]
            names = list(dict.fromkeys(" ".join(row[place] for place in by) for row in rows))
            curves = [((name + ", " if name else "") + table["columns"][up] if len(ups) > 1 else name,
                       [(row[across], row[up]) for row in rows if " ".join(row[place] for place in by) == name])
                      for name in names for up in ups]  # fmt: skip
        else:
            curves = [(table["columns"][up], [(row[across], row[up]) for row in rows]) for up in ups]
    series = []
    for name, points in curves:
        numbers = [(tables.number(x), tables.number(y)) for x, y in points]
        series.append({"name": name, "points": sorted(pair for pair in numbers if None not in pair)})
    return {"title": plot["title"], "x": plot["x_label"], "y": plot["y_label"], "x_log": plot.get("x_log", False),
            "y_log": plot.get("y_log", False), "series": series}  # fmt: skip


def digest(chart):
    """What tells a chart from another one."""
    return hashlib.sha256(json.dumps(chart, sort_keys=True).encode()).hexdigest()[:32]


def draw(program, charts, folder):
    """Has charts drawn, each into a file of the folder."""
    subprocess.run([program, folder], input=json.dumps(charts).encode(), check=True)


def text_of(path):
    """The text of a file; nothing if it is not there."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    """Writes a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def origin():
    """Commit, date, processor and kernel."""
    git = lambda *words: subprocess.run(["git", *words], cwd=REPOSITORY, check=False, capture_output=True,  # noqa: E731
                                        text=True).stdout.strip()  # fmt: skip
    # What is changed in the documents, or in what reads the figures, changes no figure.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!*.md", ":!*.py")
    commit = git("describe", "--always", "--exclude=*") + ("+" if changed else "")
    processors = re.findall(r"^model name\s*:\s*(.*)$", text_of("/proc/cpuinfo"), re.M)
    kernel = "%s %s" % (platform.system(), ".".join(platform.release().split(".")[:2]))
    return {"commit": commit or "unknown", "date": datetime.date.today().isoformat(),
            "processor": "%d x %s" % (len(processors), processors[0]) if processors else platform.machine(),
            "kernel": kernel}  # fmt: skip


class Runner:
    """Runs what is declared with the programs of `options.target`."""

    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="evidence-")
        self.unpacking = threading.Lock()

    def missing(self, run):
        """Why a run cannot be done here, or None."""
        names = run.get("traces", [])
        if names and not self.options.traces:
            return "needs TRACES=FOLDER with %s" % ", ".join(names)
        missing = [name for name in names if not os.path.exists(os.path.join(self.options.traces, name))]
        return "%s has no %s" % (self.options.traces, ", ".join(missing)) if missing else None

    def words(self, run, part_fills, part_words):
        """The command of a run, or of one of its parts."""
        fills = {"bin": self.options.target, "examples": os.path.join(self.options.target, "examples"),
                 "traces": self.options.traces or "", "plain": self.folder, "folder": self.folder, "out": self.out(run),
                 "peers": ".tools/peers", **part_fills}  # fmt: skip
        for word in run["command"]:
            # What stands alone for a part may be several words.
            alone = part_fills.get(word.strip("{}"), word).split() if word[:1] == "{" else [word]
            for one in part_words if word == "{args}" else alone:
                yield re.sub(r"\{(\w+)\}", lambda found: fills[found.group(1)], one)

    def out(self, run):
        """The file that a run writes its figures to."""
        return os.path.join(self.folder, run["name"] + ".json")

    def unpack(self, run):
        """Makes the traces that a program wants uncompressed."""
        for name in run.get("traces", []):
            plain = os.path.join(self.folder, name.removesuffix(".zst"))
            if "{plain}" in json.dumps(run) and not os.path.exists(plain):
                subprocess.run([os.path.join(self.options.target, "larder"), "trace", "convert",
                                os.path.join(self.options.traces, name), plain],
                               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

    def run(self, run):
        """Runs it; returns the tables and how long it took."""
        with self.unpacking:
            self.unpack(run)
        found, seconds = [], 0.0
        for fills, words, names in tables.parts_of(run):
            command = list(self.words(run, fills, words))
            output, spent = self.output(command, run["kind"])
            seconds += spent
            if any("{out}" in word for word in run["command"]):
                output = text_of(self.out(run))
            found += tables.read(run, output, names)
        return tables.derive(run, merged(found)), seconds

    def output(self, command, kind):
        """What a command prints, and how long it took: the time on the clock, or, where it counts, of processors."""
        with tempfile.TemporaryFile(dir=self.folder) as out, tempfile.TemporaryFile(dir=self.folder) as errors:
            begun = time.monotonic()
            nice = (lambda: os.nice(10)) if kind == "counted" else None
            process = subprocess.Popen(command, cwd=REPOSITORY, stdout=out, stderr=errors, preexec_fn=nice)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            errors.seek(0)
            if status:
                raise RuntimeError("%s: status %d: %s" % (
                    " ".join(command), process.returncode, errors.read().decode()[-500:]))  # fmt: skip
            spent = used.ru_utime + used.ru_stime if kind == "counted" else time.monotonic() - begun
            return out.read().decode(), spent

    def close(self):
        """Removes what was made on the way."""
        shutil.rmtree(self.folder, ignore_errors=True)


def merged(found):
    """The tables, those of one title and with the same columns joined."""
    joined = {}
    for table in found:
        if table["title"] in joined and joined[table["title"]]["columns"] == table["columns"]:
            joined[table["title"]]["rows"] += table["rows"]
        else:
            joined[table["title"]] = table
    return list(joined.values())


def taken(evidence, run, found, seconds):
    """Stores the figures of a run, prints what moved. Returns whether all is as before, as far as it must be."""
    if not found or not all(table["rows"] for table in found):
        print("%s: no figures were found in what it printed" % run["name"])
        return False
    old = evidence.data.get(run["name"])
    tolerance = run.get("tolerance", tables.TOLERANCES[run["kind"]])
    moves = list(tables.moved(old["tables"], found, tolerance, run.get("tolerance_least", 0))) if old else []
    if old and old["tables"] == found:
        print("%s: the same as before, in %.0f s" % (run["name"], seconds))
        return True
    print("%s: %s, in %.0f s" % (run["name"], "%d figures moved" % len(moves) if old else "new", seconds))
    for line in moves[:MOVES_SHOWN_MAX]:
        print("    " + line)
    if len(moves) > MOVES_SHOWN_MAX:
        print("    and %d more" % (len(moves) - MOVES_SHOWN_MAX))
    evidence.data[run["name"]] = {"run": run["name"], **origin(), "seconds": round(seconds, 1), "tables": found}
    path = os.path.join(evidence.root, DATA, run["name"] + ".json")
    write(path, json_text(evidence.data[run["name"]]))
    return not moves or run["kind"] == "timed"


def json_text(data):
    """The data of a run, a row of a table on each line."""
    head = {key: value for key, value in data.items() if key != "tables"}
    parts = []
    for table in data["tables"]:
        rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in table["rows"])
        parts.append('  {"title": %s,\n   "columns": %s,\n   "rows": [\n%s\n  ]}' % (
            json.dumps(table["title"], ensure_ascii=False), json.dumps(table["columns"], ensure_ascii=False), rows))
    return json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "tables": [\n%s\n]}\n' % ",\n".join(parts)


def main():
    """Does what the arguments ask for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only these runs, separated by commas")
    parser.add_argument("--timed", action="store_true", help="the runs on the clock instead of those that count")
    parser.add_argument("--index", action="store_true", help="run nothing, write index, pages and plots")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs that count, at one time")
    parser.add_argument("--traces", default="", help="folder of the real traces")
    parser.add_argument("--target", default="target/release", help="folder of the programs")
    parser.add_argument("--plots", default="", help="the program that draws (examples/plots of --target)")
    options = parser.parse_args()
    options.target = os.path.abspath(options.target)
    options.traces = options.traces and os.path.abspath(options.traces)
    evidence, runner, good = Evidence(), Runner(options), True
    kind = "timed" if options.timed else "counted"
    wanted = [name for name in options.only.split(",") if name]
    unknown = [name for name in wanted if name not in evidence.runs]
    if unknown:
        sys.exit("no run %s; there are %s" % (", ".join(unknown), ", ".join(evidence.runs)))
    due = [] if options.index else [run for run in evidence.runs.values()
                                    if (run["name"] in wanted if wanted else run["kind"] == kind)]  # fmt: skip
    missing = {run["name"]: runner.missing(run) for run in due}
    for name, reason in missing.items():
        if reason:
            print("%s: skipped: %s" % (name, reason), flush=True)
            # What was named is wanted.
            good &= name not in wanted
    with concurrent.futures.ThreadPoolExecutor(options.jobs if kind == "counted" else 1) as pool:
        begun = {pool.submit(runner.run, run): run for run in due if not missing[run["name"]]}
        for ended in concurrent.futures.as_completed(begun):
            run = begun[ended]
            try:
                good &= taken(evidence, run, *ended.result())
            except (OSError, RuntimeError, KeyError, ValueError, subprocess.CalledProcessError) as error:
                print("%s: FAILED: %s" % (run["name"], error))
                good = False
            sys.stdout.flush()
    runner.close()
    for claim, figure, verdict, expected in evidence.claims():
        if not expected:
            print("%s: %s: %s, ours is %s: %s" % (
                claim["source"], claim["claim"], tables.expected_text(claim), tables.shown(figure) or "none",
                "it holds now, unlike before" if verdict == "holds" else verdict))  # fmt: skip
            good = False
    good &= evidence.write(options.plots or os.path.join(options.target, "examples", "plots"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
