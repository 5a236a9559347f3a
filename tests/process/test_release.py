"""The archive of a release, made of the program that is tested."""

import gzip
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import documents
import support
from process_support import is_larder, program

PACKAGING = os.path.join(support.REPOSITORY, "packaging")
state = {}


def packaging(script, *words, path=os.environ["PATH"], **more):
    """Runs a script of the folder packaging; returns (status, stderr)."""
    done = subprocess.run([os.path.join(PACKAGING, script), *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, timeout=support.WAIT_SECONDS_MAX, env=dict(os.environ, PATH=path, **more))
    return done.returncode, done.stderr


def setUpModule():
    """An archive of the program as it is, which the tests unpack."""
    if not is_larder():
        raise unittest.SkipTest("memcached has no such thing")
    if not shutil.which("objcopy"):
        raise unittest.SkipTest("there is no objcopy (apt-get install binutils)")
    folder = state["folder"] = tempfile.mkdtemp()
    status, said = packaging("build-archive.py", program(), folder, SOURCE_DATE_EPOCH="1700000000")
    if status:
        raise AssertionError(said)
    [name] = [name.removesuffix(".tar.gz") for name in os.listdir(folder) if name.endswith(".tar.gz")]
    state.update(name=name, archive=os.path.join(folder, name + ".tar.gz"))
    with tarfile.open(state["archive"]) as tar:
        state["entries"] = tar.getmembers()
        tar.extractall(folder)


def tearDownModule():
    """Leaves nothing."""
    shutil.rmtree(state.get("folder", ""), ignore_errors=True)


def at(*parts):
    """The path of what was unpacked."""
    return os.path.join(state["folder"], state["name"], *parts)


class Archive(unittest.TestCase):
    """What somebody has who unpacks it."""

    def test_the_program_runs_and_is_of_the_version_in_the_name(self):
        said = subprocess.run([at("bin", "larder"), "--version"], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=support.WAIT_SECONDS_MAX).stdout
        self.assertEqual(said.split()[:2], state["name"].split("-")[:2])

    def test_debug_symbols_are_in_a_file_of_their_own(self):
        with open(at("bin", "larder"), "rb") as file:
            own = file.read()
        self.assertFalse(b".debug_line\0" in own)
        self.assertTrue((state["name"] + ".debug").encode() + b"\0" in own)
        with gzip.open(os.path.join(state["folder"], state["name"] + ".debug.gz")) as file:
            self.assertTrue(b".debug_line\0" in file.read())

    def test_every_document_is_there_and_what_it_links_to(self):
        count, found = documents.dangling(at("share", "doc", "larder"))
        self.assertGreater(count, 30)
        self.assertEqual(found, [])
        for name in ("README.md", "LICENSE", "CHANGELOG.md", "packaging/larder.toml", "packaging/larder.service"):
            self.assertTrue(os.path.getsize(at("share", "doc", "larder", name)))

    def test_every_command_has_its_man_page(self):
        said = subprocess.run([at("bin", "larder"), "--help"], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=support.WAIT_SECONDS_MAX).stdout
        commands = re.findall(r"(?m)^(?:usage:)? +larder ([a-z][a-z-]*) ", said)
        self.assertGreater(len(commands), 10)
        pages = {"larder.1"} | {"larder-%s.1" % name for name in commands}
        self.assertEqual(pages - set(os.listdir(at("share", "man", "man1"))), set())

    def test_completions_and_other_files_are_where_they_are_looked_for(self):
        for name in ("lib/sysusers.d/larder.conf", "share/larder/larder.socket",
                     "share/bash-completion/completions/larder", "share/zsh/site-functions/_larder",
                     "share/fish/vendor_completions.d/larder.fish"):
            self.assertTrue(os.path.getsize(at(name)), name)

    def test_nothing_in_it_tells_of_the_machine_that_made_it(self):
        names = [entry.name for entry in state["entries"]]
        self.assertEqual(names, sorted(names))
        self.assertEqual({(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in state["entries"]},
                         {(0, 0, "", 1700000000)})
        self.assertEqual({entry.mode for entry in state["entries"]}, {0o644, 0o755})


class Release(unittest.TestCase):
    """What is asked of the machine before the long build."""

    def test_all_tools_that_are_missing_are_named_with_what_installs_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bash", "env", "dirname", "git"):
                os.symlink(shutil.which(name) or "/bin/false", os.path.join(folder, name))
            status, said = packaging("release.sh", path=folder)
        self.assertEqual(status, 1)
        for line in ("cargo-deb (cargo install --locked cargo-deb)", "objcopy (apt-get install binutils)",
                     "cargo-cyclonedx (cargo install --locked cargo-cyclonedx)"):
            self.assertIn("a release needs " + line, said)
        self.assertTrue(re.fullmatch(r"(a release needs .*\n)+", said), said)


if __name__ == "__main__":
    unittest.main()
