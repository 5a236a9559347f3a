#!/usr/bin/env python3
"""Shows for each habit of `tidy.py` what it finds and what it leaves alone, for `structure.py` how files are read, for
`lanes.py` in which order targets run, and for `evidence.py` how tables are read, compared and shown.

The last line says `N passed, N failed, N skipped`.
"""

import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench-compare")]

import evidence  # noqa: E402
import evidence_tables  # noqa: E402
import lanes  # noqa: E402
import structure  # noqa: E402
import tidy  # noqa: E402
import wording  # noqa: E402

METRIC = 'fn rows() -> Vec<Family> {\n    vec![count("flash_merged", "%s", "bytes", 1)]\n}\n'
FLAGS = ('static ROWS: &[Row] = &[\n    Row { name: "threads", takes: Value("NUM"), example: "%s",\n'
         '        help: "%s",\n        value: at!(threads, Whole(1, 9)), ..LIMITS },\n];\n')
ROWS = "crates/server/src/settings/table/limits.rs"
ARGUMENT = "struct Arguments {\n    /// %s\n    #[arg(long)]\n    rate: u32,\n}\n"
UNSAFE = "un" + "safe"


DECLARED = '''[[run]]
name = "a"
kind = "counted"
page = "a.md"
command = ["{bin}/a"]

[[claim]]
source = "A paper"
claim = "two levels hit"
run = "a"
row = { levels = "2" }
column = "hits"
expected = 12
tolerance = 0.05
'''
DATA = {"run": "a", "commit": "abc", "date": "2026-01-01", "processor": "2 x P", "kernel": "Linux 6.1", "seconds": 3.0,
        "tables": [{"title": "T", "columns": ["levels", "hits", "misses"],
                    "rows": [["2", "12.5", "2"], ["4", "14", "3"]]}]}


def ring(count, folder="crates/room"):
    """The files of a crate in which each of `count` modules names the next, and the last one the first."""
    files = {folder + "/Cargo.toml": "", folder + "/src/lib.rs": "".join("mod m%d;\n" % i for i in range(count))}
    for i in range(count):
        after = (i + 1) % count
        files["%s/src/m%d.rs" % (folder, i)] = "use crate::m%d::T%d;\npub(crate) struct T%d;\n" % (after, after, i)
    return files


def wide(fields, code="impl A {\n    fn read(&self) {}\n}\n"):
    """A crate with a struct of `fields` fields, and code about it in another file."""
    body = "".join("    field_%d: u32,\n" % i for i in range(fields))
    return {"crates/room/Cargo.toml": "", "crates/room/src/lib.rs": "mod a;\nmod b;\n",
            "crates/room/src/a.rs": "pub(crate) struct A<'a> {\n%s}\n" % body, "crates/room/src/b.rs": code}


def crate(files):
    """A crate of these files."""
    return {"crates/room/Cargo.toml": ""} | {"crates/room/src/" + name: text for name, text in files.items()}


class Habits(unittest.TestCase):
    """One test for each habit, named after it."""

    def found(self, files):
        """What the habit that the test is named after finds in a repository with these files."""
        habit = getattr(tidy, self._testMethodName.removeprefix("test_"))
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return list(habit(tidy.Tree(root)))

    def one(self, files):
        """Asserts that there is exactly one finding."""
        found = self.found(files)
        self.assertEqual(len(found), 1, found)

    def none(self, files):
        """Asserts that nothing is found."""
        self.assertEqual(self.found(files), [])

    def test_long_functions(self):
        code = "fn f(\n    a: [u8; 4],\n) -> u8\n%s{\n%s}\nfn g();\n"
        self.one({"crates/a/src/a.rs": code % ("", "\n" * 86)})
        self.one({"tests/a.rs": "    pub(crate) async unsafe fn f() {" + "\n" * 90 + "}\n"})
        self.none({"crates/a/src/a.rs": code % ("", "\n" * 85)})

    def test_so_many(self):
        self.one({"a.rs": "/// After so " + "many seconds.\n"})
        self.none({"a.rs": 'const TEXT: &str = "so ' + 'many";\n'})

    def test_long_lines(self):
        self.one({"a.rs": "// " + "x" * 118 + "\n"})
        self.one({"a.md": "word " * 25 + "\n"})
        self.one({"a.py": "é" * 121 + "\n"})
        self.none({"a.rs": "é" * 120 + "\n", "a.json": "x" * 200, "tests/transcripts/get.txt": "x" * 200,
                   "a.md": "| " + "x" * 200 + "\nhttps://" + "x" * 200 + "\n"})

    def test_circles(self):
        self.one(ring(4))
        self.none(ring(3))

    def test_upward_arrows(self):
        above = "use super::b::B;\npub struct A;\n"
        self.one(crate({"lib.rs": "mod a;\nmod b;\n", "a.rs": above, "b.rs": "use crate::a::A;\npub struct B;\n"}))
        self.none(crate({"lib.rs": "mod a;\nmod b;\n", "a.rs": above, "b.rs": "pub struct B;\n"}))
        # Folders, and files deep in them.
        deep = {"lib.rs": "mod a;\nmod b;\nfn main() { a::run() }\n", "a/mod.rs": "mod x;\n",
                "b.rs": "mod y;\nmod z;\n", "a/x.rs": "use crate::b::y::Y;\n", "b/y.rs": "pub struct Y;\n"}
        self.none(crate(deep | {"b/z.rs": "use super::y::Y;\n"}))
        self.one(crate(deep | {"b/z.rs": "use super::super::a;\n"}))
        # A name that a module further up re-exports counts for the module that it comes from.
        shown = {"lib.rs": "mod a;\nmod b;\npub use a::A;\n", "a.rs": above}
        self.one(crate(shown | {"b.rs": "use crate::A;\npub struct B;\n"}))
        # A module and the modules below it are one folder.
        self.none(crate({"lib.rs": "mod a;\n", "a.rs": "mod b;\nuse b::B;\nfn f(_: B) {}\npub struct A;\n",
                         "a/b.rs": "use super::A;\npub struct B;\n"}))
        # Of a circle the fewest arrows run upwards.
        three = {"lib.rs": "mod a;\nmod b;\nmod c;\n", "a.rs": "use crate::b::B;\nuse crate::c::C;\n",
                 "b.rs": "use crate::c::C;\npub struct B;\n", "c.rs": "use crate::a;\npub struct C;\n"}
        self.assertEqual([about for about, _ in self.found(crate(three))], ["crates/room c -> a"])

    def test_wide_structs(self):
        self.one(wide(16))
        self.one(wide(16, "impl<T: Fn() -> u8> Run<T> for super::a::A<'_> where T: Send {\n    fn run(self) {}\n}\n"))
        self.none(wide(15))
        self.none(wide(16, "impl A<'_> {\n    fn new() -> Self {}\n}\nimpl std::fmt::Display for A<'_> {\n"
                           "    fn fmt(&self) {}\n}\nimpl B for C<A> {\n    fn b(&self) {}\n}\n"))

    def test_stale_exceptions(self):
        files = crate({"lib.rs": "// so " + "many\n"})
        self.none(files | {"tests/tidy/known.txt": "# Exceptions.\nso_many crates/room\n"})
        self.one(files | {"tests/tidy/known.txt": "so_many crates/room\nso_many crates/attic\n"})

    def test_metric_helps(self):
        bad = ["Bytes of them.", "Of them, without a read.", "Flushes.", "1 while it finds out what the device holds.",
               "Keys and values of them.", "Times too many tombstones did, and everything was dropped.",
               "Bytes of records that merges wrote", "The records worth it that found no room."]
        for text in bad:
            self.one({"crates/server/src/numbers.rs": METRIC % text})
            self.one({"crates/cache/src/counters.rs": "counters! {\n    /// %s\n    merged,\n}\n" % text})
        good = "Bytes of records that merges wrote to a generation."
        self.none({"crates/server/src/numbers.rs": METRIC % good,
                   "crates/cache/src/counters.rs": "counters! {\n    /// %s\n    merged,\n}\n" % good})

    def test_flag_helps(self):
        for text in ["worker threads", "as above, accepted and ignored", "of live items, the part that is written",
                     "number of worker threads."]:
            self.one({ROWS: FLAGS % ("2", text)})
        self.one({ROWS: FLAGS % ("", "number of worker threads")})
        for text in ["How many of them come with each GET", "Threads", "Their penalty in microseconds"]:
            self.one({"src/cli/workbench/mrc.rs": ARGUMENT % text})
        self.none({ROWS: FLAGS % ("2", "number of worker threads"),
                   "src/cli/workbench/mrc.rs": ARGUMENT % "Requests of each second, evenly spaced"})

    def test_unsafe_elsewhere(self):
        code = "fn f() { %s { g() } }\n" % UNSAFE
        self.one({"crates/item/src/lib.rs": code})
        self.none({"crates/index/src/lib.rs": code, "crates/item/src/lib.rs": "// %s\n" % UNSAFE})

    def test_unsafe_without_reason(self):
        code = "    %s { g() }\n" % UNSAFE
        self.one({"crates/index/src/lib.rs": code})
        self.none({"crates/index/src/lib.rs": "    // SAFETY: g asks for nothing.\n" + code})

    def test_missing_forbid(self):
        self.one({"crates/item/src/lib.rs": "//! Items.\n"})
        self.none({"crates/item/src/lib.rs": "#![forbid(%s_code)]\n" % UNSAFE, "crates/index/src/lib.rs": ""})

    def test_unfinished(self):
        self.one({"a.rs": "// TO" + "DO: the rest\n"})
        self.one({"a.rs": "fn f() { unimpl" + "emented!() }\n"})
        self.none({"a.rs": "// todos\n"})

    def test_machine_paths(self):
        self.one({"a.md": "see /ho" + "me/someone/larder\n"})
        self.none({"a.md": "see target/work/x and $ROOT/work/x\n"})

    def test_registries(self):
        address = "https://py" + "pi.org/simple\n"
        self.one({"requirements.txt": address})
        self.none({"Cargo.lock": address})

    def test_documents(self):
        all_there = {name + ("/0001.md" if name == "docs/decisions" else ""): "" for name in tidy.DOCUMENTS}
        self.none(all_there)
        del all_there["README.md"]
        self.one(all_there)

    def test_broken_links(self):
        self.one({"docs/a.md": "[b](b.md)\n"})
        self.one({"docs/a.md": "[b](b.md#part)\n", "docs/b.md": "# Parts\n"})
        self.none({"docs/a.md": "[b](b.md#a-part) [c](https://example.org) [d](#d)\n# D\n",
                   "docs/b.md": "## A *part*!\n"})

    def test_named_files(self):
        self.one({"docs/a.md": "`docs/b.md`\n"})
        self.one({"docs/a.md": "`device/open.rs`\n", "crates/flash/src/open.rs": ""})
        self.one({"docs/a.md": "`open.rs`\n", "crates/flash/src/reopen.rs": ""})
        self.none({"docs/a.md": "`docs/b.md` `docs/` `target/x` `GET/SET` `device/open.rs` `open.rs`\n",
                   "docs/b.md": "", "crates/flash/src/device/open.rs": ""})

    def test_named_code(self):
        self.one({"docs/a.md": "`Log::put`\n", "a.rs": "struct Log;\n", "b.rs": "fn put() {}\n"})
        self.none({"docs/a.md": "`Log::put` `std::mem::swap`\n", "a.rs": "impl Log {\n    fn put() {}\n}\n"})

    def test_stale_evidence(self):
        files = {"docs/evidence/evidence.toml": DECLARED, "docs/evidence/data/a.json": json.dumps(DATA)}
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs/evidence/data"))
            for name, text in files.items():
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            index = evidence.Evidence(root).index()
        page = "# A\n\n<!-- table a \"T\" hits -->\n%s\n<!-- end -->\n"
        right = "| hits |\n|---|\n| 12.5 |\n| 14 |\n\n" + evidence_tables.origin_text("a", DATA)
        good = files | {"docs/evidence/README.md": index, "docs/evidence/a.md": page % right}
        self.none(good)
        self.one(good | {"docs/evidence/README.md": index + "more\n"})
        self.one(good | {"docs/evidence/a.md": page % right.replace("12.5", "13.5")})
        plot = '\n[[plot]]\nrun = "a"\nx = "levels"\nys = ["hits"]\nfile = "a.svg"\ntitle = "A"\nx_label = "x"\n' \
               'y_label = "y"\n'
        found = self.found(good | {"docs/evidence/evidence.toml": DECLARED + plot})
        self.assertIn("a.svg is not drawn from the data", found)

    def test_white_space(self):
        self.one({"a.rs": "fn f() {} \n"})
        self.one({"a.rs": "fn f() {}"})
        self.none({"a.rs": "fn f() {}\n", "a.md": "a line  \n"})

    def test_a_known_exception_is_no_failure(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "tests/tidy"))
            files = {"a.rs": "// so " + "many\n", "tests/tidy/known.txt": "so_many a.rs\nso_many b.rs\n"}
            for name, text in files.items():
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertEqual(tidy.unknown(tidy.Tree(root), tidy.so_many), [])
            self.assertEqual(len(tidy.unknown(tidy.Tree(root), tidy.stale_exceptions)), 1)
            tidy.forget(tidy.Tree(root))
            self.assertEqual(tidy.Tree(root).text(tidy.KNOWN), "so_many a.rs\n")

    def test_every_habit_has_a_test(self):
        for habit in tidy.HABITS:
            self.assertTrue(hasattr(self, "test_" + habit.__name__), "no test of " + habit.__name__)


class Evidence(unittest.TestCase):
    """How `evidence.py` reads, compares and shows tables."""

    def test_tables_in_markdown_are_named_by_headings(self):
        text = ("## one\n\nA line.\n\n| a | b |\n|---|---:|\n| x | 1 |\n\n| a |\n|---|\n| y |\n"
                "## two\n| c |\n|---|\n| z |\n")
        found = evidence_tables.markdown(text)
        self.assertEqual([table["title"] for table in found], ["one", "one (2)", "two"])
        self.assertEqual((found[0]["columns"], found[0]["rows"]), (["a", "b"], [["x", "1"]]))
        plain = evidence_tables.markdown("A line.\n\n| a |\n|---|\n| 1 |\n")
        self.assertEqual(plain, [{"title": "A line.", "columns": ["a"], "rows": [["1"]]}])

    def test_lines_and_parts_become_tables_and_are_turned(self):
        run = {"format": "none", "each": ["p", "q"], "lines": [
            {"title": "all", "pattern": r"^(\w+) (\d+)$", "columns": ["part", "policy", "misses"]}], "pivot": [
                {"title": "turned", "from": "all", "rows": "policy", "columns": "part", "value": "misses"}]}
        found = sum((evidence_tables.read(run, "lru %d\nfifo 7\nnot this\n" % n, [part])
                     for n, part in ((3, "p"), (4, "q"))), [])
        found = evidence_tables.derive(run, evidence.merged(found))
        self.assertEqual(found[0]["rows"],
                         [["p", "lru", "3"], ["p", "fifo", "7"], ["q", "lru", "4"], ["q", "fifo", "7"]])
        self.assertEqual((found[1]["columns"], found[1]["rows"]),
                         (["policy", "p", "q"], [["lru", "3", "4"], ["fifo", "7", "7"]]))

    def test_a_report_keeps_whole_numbers_and_six_digits(self):
        report = {"parts": [{"text": "x"}, {"table": {"title": "T", "columns": ["a", "b", "c"],
                                                      "rows": [["x", 1200000, 0.12345678], [None, 1.0, 2.5]]}}]}
        found = evidence_tables.report(json.dumps(report))
        self.assertEqual(found[0]["rows"], [["x", "1200000", "0.123457"], ["", "1", "2.5"]])

    def test_only_what_differs_by_more_than_the_tolerance_has_moved(self):
        old = [{"title": "T", "columns": ["name", "hits"], "rows": [["lru", "10.0 of 1,000"], ["fifo", "7"]]}]
        new = [{"title": "T", "columns": ["name", "hits"], "rows": [["lru", "10.4 of 1,000"], ["fifo", "9"]]}]
        self.assertEqual(len(list(evidence_tables.moved(old, new, 0, 0))), 2)
        self.assertEqual(list(evidence_tables.moved(old, new, 0.05, 0)), ["T: fifo, hits: 9, was 7"])
        self.assertEqual(list(evidence_tables.moved(old, new, 0, 2)), [])
        self.assertEqual(list(evidence_tables.moved(old, old, 0, 0)), [])
        self.assertEqual(len(list(evidence_tables.moved(old, [], 0, 0))), 1)
        self.assertFalse(evidence_tables.alike("7 a", "7 b", 1, 1))

    def test_figures_are_picked_and_reckoned_with(self):
        tables = {"a": DATA["tables"]}
        claim = {"run": "a", "row": {"levels": "2"}, "column": "hits", "expected": 12, "tolerance": 0.05}
        self.assertEqual(evidence_tables.ours(claim, tables), 12.5)
        self.assertEqual(evidence_tables.verdict(claim, 12.5), ("holds", True))
        self.assertEqual(evidence_tables.verdict(claim, 12.7), ("OUT OF TOLERANCE", False))
        known = claim | {"otherwise": "refuted"}
        self.assertEqual(evidence_tables.verdict(known, 12.7), ("refuted", True))
        self.assertEqual(evidence_tables.verdict(known, 12.5), ("holds", False))
        reckoned = {"run": "a", "value": "mean(100 * (b - a) / a)", "of": {
            "a": {"row": {"levels": "2"}}, "b": {"row": {"levels": "4"}}}, "at_least": 10}
        self.assertEqual(evidence_tables.ours(reckoned, tables), 100 * (1.5 / 12.5 + 1 / 2) / 2)
        self.assertEqual(evidence_tables.bounds(reckoned), (10, float("inf")))
        with self.assertRaises(KeyError):
            evidence_tables.ours(claim | {"column": "nothing"}, tables)

    def test_a_page_shows_the_columns_that_are_asked_for(self):
        table = DATA["tables"][0]
        self.assertEqual(evidence_tables.chosen(table, "levels | hits*2:.1 -> twice | #3"),
                         (["levels", "twice", "misses"], [["2", "25.0", "2"], ["4", "28.0", "3"]]))
        self.assertEqual(evidence_tables.chosen(table, ""), (table["columns"], table["rows"]))
        text = "<!-- table b \"T\" -->\nas it was\n<!-- end -->\n"
        self.assertEqual(evidence_tables.page(text, {"a": DATA}), text)
        self.assertIn("| 2 | 12.5 | 2 |", evidence_tables.page(text.replace("table b", "table a"),
                                                               {"a": DATA}))

    def test_a_table_beside_another_one_shows_what_differs(self):
        rows = [["lru", "10.00", "7.00"], ["fifo", "1.00", "2.00"]]
        one = {"title": "T", "columns": ["policy", "x", "y"], "rows": rows}
        other = {"title": "T", "columns": ["policy", "y", "x"], "rows": [["lru", "7.25", "10.00"]]}
        self.assertEqual(evidence_tables.beside(one, other)["rows"],
                         [["lru", "10.00", "7.00 (-0.25)"], ["fifo", "1.00", "2.00"]])

    def test_a_plot_has_a_curve_for_each_column_or_row(self):
        plot = {"run": "a", "x": "levels", "ys": ["hits"], "title": "A", "x_label": "x", "y_label": "y"}
        self.assertEqual(evidence.chart_of(plot, DATA["tables"])["series"],
                         [{"name": "hits", "points": [(2.0, 12.5), (4.0, 14.0)]}])
        wide = [{"title": "T", "columns": ["who", "1 M", "2 M"], "rows": [["lru", "5", "6"], ["none", "x", "-"]]}]
        plot = {"curves": "rows", "match": "lru", "title": "A", "x_label": "x", "y_label": "y"}
        self.assertEqual(evidence.chart_of(plot, wide)["series"], [{"name": "lru", "points": [(1.0, 5.0), (2.0, 6.0)]}])

    def test_what_is_stored_is_read_again(self):
        self.assertEqual(json.loads(evidence.json_text(DATA)), DATA)


class Structure(unittest.TestCase):
    """How `structure.py` reads code."""

    def edges(self, files):
        """Which file knows which, by name."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            found = structure.Crate(root).edges()
        return {("::".join(one), "::".join(other)) for one, others in found.items() for other in others}

    def test_a_path_in_code_counts_and_one_in_a_comment_or_string_does_not(self):
        files = {"lib.rs": "mod a;\nmod b;\n", "a.rs": "fn f() { crate::b::g() }\n", "b.rs": "pub fn g() {}\n"}
        self.assertEqual(self.edges(files), {("a", "b")})
        files["a.rs"] = "// crate::b::g()\nconst A: (&str, char) = (\"crate::b::g\", '\"');\n"
        self.assertEqual(self.edges(files), set())

    def test_an_import_leads_to_the_file_that_its_path_names(self):
        files = {"lib.rs": "mod a;\nmod b;\npub use b::B;\n", "a.rs": "use crate::B;\n", "b.rs": "pub struct B;\n"}
        self.assertEqual(self.edges(files), {("a", "")})
        files["a.rs"] = "use crate::b::inner::B;\n"
        self.assertEqual(self.edges(files), {("a", "b")})

    def test_a_file_that_uses_what_it_re_exports_knows_it(self):
        files = {"lib.rs": "mod b;\npub use b::B;\nfn f(_: B) {}\n", "b.rs": "pub struct B;\n"}
        self.assertEqual(self.edges(files), {("", "b")})

    def test_tests_do_not_count(self):
        files = {"lib.rs": "mod a;\nmod b;\n", "b.rs": "pub fn g() {}\n", "a/tests.rs": "use crate::b::g;\n",
                 "a.rs": "#[cfg(test)]\nmod tests { use crate::b::g; }\n"}
        self.assertEqual(self.edges(files), set())


class Lanes(unittest.TestCase):
    """The order of targets in `tests/lanes.py`."""

    def ended(self, *named):
        """The targets in the order in which they ended, and those that failed; `bad` fails."""
        run = lanes.Lanes(named)
        run.run_target = lambda name: int(name == "bad")
        failed = run.run()
        return list(run.ended), failed

    def test_a_target_waits_for_a_target_of_another_lane(self):
        ended, failed = self.ended("a@d b", "c d")
        self.assertLess(ended.index("d"), ended.index("a"))
        self.assertEqual((sorted(ended), failed), (["a", "b", "c", "d"], []))

    def test_a_target_that_fails_stops_nothing(self):
        ended, failed = self.ended("bad b", "c@bad")
        self.assertEqual((ended[0], sorted(ended), failed), ("bad", ["b", "bad", "c"], ["bad"]))

    def test_the_rest_goes_to_the_lane_that_has_none_left(self):
        run = lanes.Lanes(["a b@d", "c"], "d@c e")
        run.run_target = lambda name: 0
        self.assertEqual((run.run(), sorted(run.ended)), ([], ["a", "b", "c", "d", "e"]))
        self.assertLess(list(run.ended).index("d"), list(run.ended).index("b"))

    def test_in_one_lane_each_target_comes_behind_the_one_it_waits_for(self):
        self.assertEqual(lanes.in_one_lane(["a@d b", "c d"]), "b c d a")

    def test_a_target_that_waits_for_nothing_known_is_refused(self):
        with self.assertRaises(SystemExit):
            lanes.Lanes(["a@x"])
        with self.assertRaises(SystemExit):
            lanes.in_one_lane(["a@b b@a"])


class Repository(unittest.TestCase):
    """The habits look at what they mean to look at, in this repository."""

    def test_the_texts_of_metrics_and_flags_are_found(self):
        tree = tidy.Tree(tidy.REPOSITORY)
        rust = [name for name in tree.files if name.endswith(".rs") and "/src/" in "/" + name]
        metrics = [text for name in rust if name.startswith("crates/")
                   for text in wording.metrics(name, tree.text(name))]
        flags = [flag for name in rust for flag in wording.flags(tree.text(name)) if "/settings/table/" in name]
        arguments = [text for name in rust for text in wording.arguments(tree.text(name))]
        self.assertGreater(len(metrics), 100)
        self.assertGreater(len(flags), 50)
        self.assertGreater(len(arguments), 100)

    def test_the_crates_are_found(self):
        self.assertGreater(len(list(structure.sources(tidy.REPOSITORY))), 10)


def main():
    """Runs all; returns the exit status."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]).run(result)
    for test, text in result.failures + result.errors:
        print("FAIL %s\n%s" % (test.id(), text))
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed, %d skipped" % (result.testsRun - failed, failed, len(result.skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
