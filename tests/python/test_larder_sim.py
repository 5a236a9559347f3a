#!/usr/bin/env python3
"""The Python module larder_sim answers what the program answers.

    make program python
    .tools/venv/bin/python tests/python/test_larder_sim.py __main__.Simulations

Needs NumPy. The module is the one that `make program` builds; a wheel of it is `maturin build --release` in
crates/python.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import results  # noqa: E402
import support  # noqa: E402

BUILT = os.path.join(support.REPOSITORY, "target", "debug")
# The library is found under the name that a wheel gives it.
with tempfile.TemporaryDirectory() as modules:
    shutil.copy(os.path.join(BUILT, "liblarder_python.so"), os.path.join(modules, "larder_sim.abi3.so"))
    sys.path.insert(0, modules)
    import larder_sim  # noqa: E402
    sys.path.remove(modules)

LAW = "zipfian:keys=3k,requests=60k,sizes=etc,ttls=mix,penalties=tenants,reads=0.8,deletes=0.01,rate=100,seed=5"
POLICIES = ["lru", "s3-fifo", "lhd", "belady", "larder"]


def larder(*words):
    """What a command of the workbench writes with --json."""
    done = subprocess.run([os.path.join(BUILT, "larder"), *words, "--quiet", "--json", "-"], check=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


class Case(unittest.TestCase):
    """Has a trace, as a file and as columns."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "trace.csv")
        subprocess.run([os.path.join(BUILT, "larder"), "workload", LAW, cls.path], check=True,
                       stdout=subprocess.DEVNULL)
        cls.trace = larder_sim.read_trace(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()


class Traces(Case):
    """Files, laws and columns."""

    def test_a_file_has_the_columns_of_the_law_that_wrote_it(self):
        made = larder_sim.workload(LAW)
        names = ["keys", "sizes", "key_sizes", "times", "ops", "ttls", "penalties_us"]
        self.assertEqual((list(made), list(self.trace)), (names, names))
        for name in names:
            self.assertGreater(made[name].max(), 0, name)
            numpy.testing.assert_array_equal(made[name], self.trace[name], name)
        self.assertEqual(len(larder_sim.workload(LAW, limit=17)["keys"]), 17)

    def test_a_text_has_the_columns_that_are_named(self):
        path = os.path.join(self.folder.name, "bare.txt")
        with open(path, "w", encoding="ascii") as file:
            file.write("70 5 100\n72 6 30\nx\n71 5 100\n")
        with self.assertWarnsRegex(UserWarning, "1 lines could not be read and were skipped"):
            read = larder_sim.read_trace(path, columns="time=1,key=2,size=3", skip_bad=True)
        self.assertEqual({name: column.tolist() for name, column in read.items()},
                         {"keys": [5, 6, 5], "sizes": [100, 30, 100], "key_sizes": [0, 0, 0], "times": [0, 2, 2]})


class Curves(Case):
    """The curve of larder mrc."""

    def same(self, flags, **arguments):
        """The points that the program saves are points of the module's curve."""
        saved = larder("mrc", self.path, *flags)["curves"][0]["points"]
        sizes, ratios = larder_sim.miss_ratio_curve(**self.trace, **arguments)
        self.assertGreater(len(saved), 100)
        ours = dict(zip(sizes.tolist(), ratios.tolist()))
        self.assertEqual([ours.get(point["size"]) for point in saved], [point["miss_ratio"] for point in saved])

    def test_in_bytes(self):
        self.same([])
        self.same(["--item-overhead", "48"], overhead=48)

    def test_in_objects(self):
        self.same(["--unit", "objects"], unit="objects")

    def test_of_a_sample(self):
        self.same(["--shards", "0.3", "--seed", "4"], shards=0.3, seed=4)
        self.same(["--shards-size", "500"], shards_size=500)

    def test_of_keys_alone(self):
        sizes, ratios = larder_sim.miss_ratio_curve([7, 8, 7, 7])
        self.assertEqual((sizes.tolist(), ratios.tolist()), ([0, 1, 2], [1.0, 0.75, 0.5]))


class Simulations(Case):
    """The figures of larder simulate."""

    def same(self, flags, chart="Miss ratio", **arguments):
        """The points of a chart of the program are those of the module."""
        report = larder("simulate", self.path, "--policies", ",".join(POLICIES), *flags)
        shown = next(part["chart"]["series"] for part in report["parts"]
                     if part.get("chart", {}).get("title") == chart)
        capacities, figures = larder_sim.simulate(**self.trace, policies=POLICIES, **arguments)
        self.assertEqual(list(figures), POLICIES)
        ours = {name: list(map(list, zip(capacities.tolist(), ratios.tolist()))) for name, ratios in figures.items()}
        self.assertEqual(ours, {series["name"]: series["points"] for series in shown})

    def test_in_objects(self):
        self.same(["--sizes", "1%,10%,700"], capacities=["10%", "1%", numpy.int64(700)], unit="objects")

    def test_in_bytes(self):
        self.same(["--sizes", "16m,32m"], "Byte miss ratio", capacities=["16m", 32 << 20], objective="bytes")

    def test_values_that_shrink(self):
        law = "zipfian:keys=20k,requests=60k,sizes=etc,seed=5"
        report = larder("simulate", "--workload", law, "--policies", "larder", "--sizes", "8m", "--objective",
                        "requests", "--compress", "2.5")
        shown = next(part["chart"]["series"] for part in report["parts"]
                     if part.get("chart", {}).get("title") == "Miss ratio")
        settings = {"capacities": ["8m"], "policies": ["larder"], "objective": "requests"}
        trace = larder_sim.workload(law)
        plain = larder_sim.simulate(**trace, **settings)[1]["larder"][0]
        shrunk = larder_sim.simulate(**trace, **settings, compress=2.5)[1]["larder"][0]
        self.assertEqual(shrunk, shown[0]["points"][0][1])
        self.assertLess(shrunk, plain)

    def test_with_every_setting(self):
        flags = "--sizes 5% --ttls --warmup 0.25 --objective time --hit-us 90 --penalty-us 5000 --seed 3 --threads 1"
        self.same(flags.split(), "Mean service time", capacities=["5%"], unit="objects", expire=True, warmup=0.25,
                  objective="time", hit_us=90, penalty_us=5000, seed=3, threads=1)

    def test_of_keys_alone(self):
        capacities, figures = larder_sim.simulate(numpy.array([1, 2, 1, 3, 1], "int8"), capacities=(2, 1),
                                                  policies=["lru"])
        self.assertEqual((capacities.tolist(), figures["lru"].tolist()), ([1, 2], [1.0, 0.6]))

    def test_what_cannot_run_is_no_number(self):
        with self.assertWarnsRegex(UserWarning, "larder at 1000 bytes: too small"):
            _, figures = larder_sim.simulate([1, 1], [10, 10], capacities=[1000], policies=["lru", "larder"])
        self.assertEqual(figures["lru"].tolist(), [0.5])
        self.assertTrue(numpy.isnan(figures["larder"][0]))

    def test_all_policies_have_a_name(self):
        _, figures = larder_sim.simulate([1, 1], capacities=[1])
        self.assertEqual(list(figures), larder_sim.policies())
        self.assertIn("s3-fifo", larder_sim.policies())


class Document(Case):
    """docs/workbench.md."""

    def test_its_example_runs(self):
        with open(os.path.join(support.REPOSITORY, "docs", "workbench.md"), encoding="utf-8") as file:
            example = file.read().partition("```python\n")[2].partition("```")[0]
        printed = io.StringIO()
        with contextlib.chdir(self.folder.name), contextlib.redirect_stdout(printed):
            exec(compile(example, "docs/workbench.md", "exec"), {})  # pylint: disable=exec-used
        told = printed.getvalue().splitlines()
        self.assertAlmostEqual(float(told[0]), 4 / 6)
        self.assertEqual([line.split()[0] for line in told[1:]], ["lru", "s3-fifo", "larder"])


class Errors(Case):
    """What is refused, and why."""

    def test_arrays(self):
        for arrays, why in [
                ({"keys": [[1]]}, "keys: needs an array of one dimension, not of 2"),
                ({"keys": ["a"]}, "keys: needs an array of whole numbers, not of <U1"),
                ({"keys": [0.5]}, "keys: needs an array of whole numbers, not of float64"),
                ({"keys": [3, -1]}, "keys: -1 at index 1 is not from 0 to 18446744073709551615"),
                ({"sizes": [1]}, "sizes: has 1 elements, and keys has 2"),
                ({"sizes": [1, 1 << 32]}, "sizes: 4294967296 at index 1 is not from 0 to 4294967295"),
                ({"key_sizes": [1, 65536]}, "key_sizes: 65536 at index 1 is not from 0 to 65535"),
                ({"ops": [9, 10]}, "ops: 10 at index 1 is not from 0 to 9"),
                ({"times": [0, 1 << 32]}, "times: 4294967296 is 2\\^32 s or more after the first"),
                ({"unit": "bytes"}, "no sizes in it"),
                ({"unit": "kB"}, "unit: 'kB' is not bytes or objects"),
                ({"shards": 2.0}, "the sampling rate must be above 0 and at most 1, not 2"),
                ({"shards": 0.5, "shards_size": 1}, "not both"),
                ({"shards": 1e-9}, "SHARDS looked at no key")]:
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                larder_sim.miss_ratio_curve(**{"keys": [1, 2], **arrays})

    def test_settings(self):
        for settings, why in [
                ({"policies": ["mru"]}, "there is no policy 'mru'; there are lru, .*larder"),
                ({"policies": []}, "no policy is given: use policies"),
                ({"capacities": []}, "no cache size is given: use capacities"),
                ({"capacities": [0.5]}, "capacities: '0.5' is not a size: give one such as 1%"),
                ({"unit": "bytes"}, "no item sizes, .*: give capacities in items"),
                ({"expire": True}, "no times to live: leave out expire"),
                ({"objective": "bytes"}, "no item sizes: leave out objective bytes"),
                ({"objective": "hits"}, "objective: 'hits' is not requests, bytes or time"),
                ({"warmup": 1.5}, "warmup: 1.5 is neither a share such as 0.2 nor a count"),
                ({"compress": 0.5}, "compress: a ratio is from 1 to 20, such as 2.5, not 0.5"),
                ({"compress": 2}, "in a memory in bytes: give capacities such as 64m, or leave out compress")]:
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                larder_sim.simulate([1, 2], **{"capacities": [1], **settings})

    def test_traces(self):
        with self.assertRaisesRegex(FileNotFoundError, "no/such"):
            larder_sim.read_trace("no/such")
        with self.assertRaisesRegex(ValueError, "format: 'xml' is not oracle-general, .* or monitor"):
            larder_sim.read_trace(self.path, format="xml")
        with self.assertRaisesRegex(ValueError, "columns: 'x' is no column"):
            larder_sim.read_trace(self.path, columns="x=1")
        with self.assertRaisesRegex(ValueError, "trace.csv: line 1: timestamp: .* is no number"):
            larder_sim.read_trace(self.path, format="twitter")
        with self.assertRaisesRegex(ValueError, "there is no workload"):
            larder_sim.workload("zipf")

    def test_times_that_fall_are_told(self):
        with self.assertWarnsRegex(UserWarning, "times: 1 requests bear a time before"):
            larder_sim.miss_ratio_curve([1, 2, 3], times=[1700000000, 1700000009, 1700000008])


class Interrupts(unittest.TestCase):
    """Ctrl-C ends a call in the middle, while other threads of Python run."""

    def end_of(self, call):
        """How a call ended to which another thread sent SIGINT when it began: `c_return` or `c_exception`."""
        events, began = [], threading.Event()

        def watch(_frame, event, function):
            if getattr(function, "__module__", None) == "larder_sim":
                events.append(event)
                began.set()

        def send():
            began.wait()
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        with self.assertRaises(KeyboardInterrupt):
            sys.setprofile(watch)
            try:
                call()
                sender.join()
            finally:
                sys.setprofile(None)
        sender.join()
        return events[-1]

    def test_each_long_call(self):
        # A program that a shell runs in the background begins without a handler.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        # The last call never ends by itself: it would run out of this memory.
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
        keys = numpy.random.default_rng(1).integers(0, 1 << 40, 4_000_000)
        for name, call in [("simulate", lambda: larder_sim.simulate(keys, capacities=["10%"])),
                           ("curve", lambda: larder_sim.miss_ratio_curve(keys)),
                           ("workload", lambda: larder_sim.workload("uniform:keys=1m,requests=1g"))]:
            with self.subTest(name):
                # The signal may come before the call has really begun.
                ended = "c_call"
                while ended == "c_call":
                    ended = self.end_of(call)
                self.assertEqual(ended, "c_exception")


if __name__ == "__main__":
    warnings.simplefilter("always")
    sys.exit(results.run(sys.argv[1:] or ["__main__"]))
