"""`bench-compare/device/run.sh`: its commands are ones that the programs take, and a run survives what goes wrong."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

import support
from process_support import is_larder, program

DEVICE = os.path.join(support.REPOSITORY, "bench-compare", "device")
CLIENT = os.path.join(support.REPOSITORY, "target", "debug", "larder-bench-compare")
CURVE = os.path.join(support.REPOSITORY, "crates", "laboratory", "examples", "cuda_curve.rs")
# Writes a figure, as `cuda_curve` does, and then does what is added.
CURVE_STAND_IN = """#!/bin/sh
echo '{"figure": "same", "layout": "line", "memory": "explicit", "references": 7, "questions": 3}' >>"$2"
"""


def setUpModule():
    """Only where there is something to measure."""
    if not is_larder():
        raise unittest.SkipTest("memcached has no such thing")


def said(*words, status=0, **more):
    """What a program prints."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=support.WAIT_SECONDS_MAX, env=dict(os.environ, **more))
    if done.returncode != status:
        raise AssertionError("%s: status %d\n%s" % (" ".join(words), done.returncode, done.stdout))
    return done.stdout


class Commands(unittest.TestCase):
    """What would be run on a machine with a GPU."""

    @classmethod
    def setUpClass(cls):
        lines = said(os.path.join(DEVICE, "run.sh"), "--commands").splitlines()
        cls.commands = [shlex.split(line) for line in lines]

    def of(self, name):
        """The arguments of each command of a program, which another program may start."""
        found = ((words, [os.path.basename(word) for word in words]) for words in self.commands)
        return [words[names.index(name) + 1:] for words, names in found if name in names]

    def test_the_scripts_can_be_parsed(self):
        for script in ("run.sh", "prepare.sh"):
            said("bash", "-n", os.path.join(DEVICE, script))

    def test_larder_takes_its_flags(self):
        flags = {words[words.index("--larder-args") + 1] for words in self.commands if "--larder-args" in words} - {""}
        self.assertGreaterEqual(len(flags), 6, flags)
        for given in flags:
            said(program(), "check-config", *given.split())

    def test_the_load_client_takes_its_flags_and_has_the_loads(self):
        if not os.path.exists(CLIENT):
            self.skipTest("there is no %s (make program)" % CLIENT)
        known = {line.split()[0] for line in said(CLIENT, "--list").splitlines()}
        commands = self.of("larder-bench-compare")
        self.assertGreaterEqual(len(commands), 10)
        for words in commands:
            said(CLIENT, *words, "--list")
            self.assertLessEqual(set(words[words.index("--load") + 1].split(",")), known)

    def test_the_curve_has_the_parts_that_are_asked_for(self):
        with open(CURVE, encoding="utf-8") as file:
            source = file.read()
        [parts] = re.findall(r"enum Part \{(.*?)\}", source, re.DOTALL)
        known = {name.lower() for name in re.findall(r"\w+", parts)}
        commands = self.of("cuda_curve")
        wanted = {word for words in commands for word, before in zip(words[1:], words) if before == "--part"}
        self.assertEqual(wanted, known)
        for flag in {word for words in commands for word in words if word.startswith("--")}:
            self.assertIn("    %s: " % flag[2:], source)

    def test_what_is_built_and_carried_is_what_is_run(self):
        with open(os.path.join(DEVICE, "prepare.sh"), encoding="utf-8") as file:
            prepared = file.read()
        for name in ("larder", "larder-bench-compare", "cuda_curve"):
            self.assertRegex(prepared, r"for program in [^\n]*\b%s\b" % name)
        self.assertTrue(os.path.exists(os.path.join(support.REPOSITORY, "crates", "cuda", "tests", "stand_in_driver",
                                                    "driver.cpp")))


class Runs(unittest.TestCase):
    """A run that is late, then one that goes on, with a stand-in for `cuda_curve` and the real servers."""

    def setUp(self):
        if not os.path.exists(CLIENT):
            self.skipTest("there is no %s (make program)" % CLIENT)
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.carry, self.out = os.path.join(self.folder, "carry"), os.path.join(self.folder, "out")
        os.mkdir(self.carry)
        for path in (os.path.abspath(program()), CLIENT):
            os.symlink(path, os.path.join(self.carry, os.path.basename(path)))

    def curve(self, then):
        """Puts a stand-in for `cuda_curve` there that goes on like this."""
        path = os.path.join(self.carry, "cuda_curve")
        with open(path, "w", encoding="ascii") as file:
            file.write(CURVE_STAND_IN + then)
        os.chmod(path, 0o755)

    def run_parts(self, *words, status=0):
        """Rehearses two parts; returns what is printed."""
        return said(os.path.join(DEVICE, "run.sh"), "--rehearse", "--only", "gpu-same,big-entry", "--carry",
                    self.carry, *words, status=status, OUT=self.out)

    def found(self):
        """The lines of the file of figures."""
        with open(os.path.join(self.out, "figures.jsonl"), encoding="utf-8") as file:
            return file.read().splitlines()

    def test_a_part_that_hangs_is_ended_and_done_again_by_the_next_run(self):
        self.curve("echo $$ >pid\nexec sleep 600\n")
        printed = self.run_parts("--seconds", "9", status=1)
        [late] = map(json.loads, self.found())
        self.assertIn("was not done in its time", late["why"])
        self.assertEqual([row["questions"] for row in late["rows"]], [3], "what it had found is kept")
        self.assertRegex(printed, r"big-entry +no time left")
        with open(os.path.join(self.carry, "pid"), encoding="ascii") as file:
            self.assertFalse(os.path.exists("/proc/" + file.read().strip()), "the program still runs")

        # As if the run had been killed while it wrote.
        with open(os.path.join(self.out, "figures.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"part": "big-en')
        self.curve("")
        self.run_parts()
        self.assertEqual(len(self.found()), 4)
        records = {record["part"]: record for record in map(json.loads, self.found()[2:])}
        self.assertEqual({name: record["state"] for name, record in records.items()},
                         {"gpu-same": "done", "big-entry": "done"})
        [full] = [row for row in records["big-entry"]["rows"] if row["table"] == "big"]
        self.assertTrue(full["server us/request"] > 0 and 0 < full["hit ratio"] < 1, full)
        # Storing ends by the clock.
        self.assertRegex(full["notes"], r"stored [1-9]\d* of 225000 items")
        with open(os.path.join(self.out, "figures.md"), encoding="utf-8") as file:
            page = file.read()
        for part in records:
            self.assertIn("Part `%s`" % part, page)
        self.assertIn("A rehearsal", page)

        self.assertEqual(self.run_parts().count("was done before"), 2)
        refused = said(os.path.join(DEVICE, "run.sh"), "--only", "gpu-same", status=1, OUT=self.out)
        self.assertIn("a folder each", refused)
