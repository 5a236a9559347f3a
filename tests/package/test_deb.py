"""The Debian package in a clean root: what it brings, and what an upgrade, a removal and a purge leave."""

import glob
import gzip
import os
import re
import unittest

import documents
from package_support import ENTER, SETTINGS, Boxed, Root, newer_package, paths, run, support

state = {}


def setUpModule():
    """A root with the package, which the tests only read, or copy."""
    root = Root(paths.root)
    run("cp", paths.package, root.at("/tmp"))
    # What the package depends on comes first, so that what comes with the package itself can be told.
    _, planned = root.run("cd /tmp && apt-get install -s -y ./larder_*.deb")
    others = [name for name in re.findall(r"(?m)^Inst (\S+)", planned) if name != "larder"]
    root.run("apt-get install -y " + " ".join(others))
    state.update(others=others, before=root.files(), said=root.install(paths.package), root=root)


def tearDownModule():
    """Gives the memory back."""
    state["root"].remove()


class Installed(unittest.TestCase):
    """The package after `apt install ./larder_*.deb`."""

    @property
    def root(self):
        """The root with the package."""
        return state["root"]

    def has(self, path):
        """The bytes of a file that the package has; none is empty."""
        with open(self.root.at(path), "rb") as file:
            data = file.read()
        self.assertTrue(data, path)
        return data

    def test_apt_brings_what_makes_the_user(self):
        self.assertIn("systemd", state["others"])
        self.assertNotIn("rror", state["said"])
        self.assertEqual(self.root.run("dpkg --audit"), (0, ""))
        self.assertEqual(self.root.run("dpkg --verify larder"), (0, ""))

    def test_the_program_runs_from_the_path(self):
        version = self.root.run("dpkg-query -W -f '${Version}' larder")[1].split("-")[0]
        self.assertTrue(self.root.run("larder --version")[1].startswith("larder %s " % version))

    def test_the_user_is_one_of_the_system(self):
        name, _, user, _, _, home, shell = self.root.run("getent passwd larder")[1].strip().split(":")
        self.assertEqual((name, home), ("larder", "/var/lib/larder"))
        self.assertLess(int(user), 1000)
        self.assertTrue(shell.endswith("nologin"), shell)

    def test_the_settings_are_a_conffile_and_accepted(self):
        self.assertIn(" %s " % SETTINGS, self.root.run("dpkg-query -W -f '${Conffiles}' larder")[1])
        self.assertEqual(self.root.run("larder check-config --quiet --config " + SETTINGS), (0, ""))

    def test_every_command_has_its_man_page(self):
        commands = re.findall(r"(?m)^(?:usage:)? +larder ([a-z][a-z-]*) ", self.root.run("larder --help")[1])
        self.assertGreater(len(commands), 10)
        for page in ["larder"] + ["larder-" + name for name in commands]:
            self.assertIn(b".TH ", gzip.decompress(self.has("/usr/share/man/man1/%s.1.gz" % page)))

    def test_completions_are_where_the_shells_look(self):
        for path in ("/usr/share/bash-completion/completions/larder", "/usr/share/zsh/vendor-completions/_larder",
                     "/usr/share/fish/vendor_completions.d/larder.fish"):
            self.assertIn(b"memory-limit", self.has(path))
        source = ". /usr/share/bash-completion/completions/larder && complete -p larder"
        self.assertIn("larder", self.root.run("bash -c '%s'" % source)[1])

    def test_every_document_is_there_and_what_it_links_to(self):
        folder = "/usr/share/doc/larder/"
        count, found = documents.dangling(self.root.at(folder))
        self.assertGreater(count, 30)
        self.assertEqual(found, [])
        for name in ("README.md", "copyright", "packaging/alerts.yml", "packaging/grafana-dashboard.json"):
            self.has(folder + name)

    def test_the_program_has_its_debug_symbols_in_a_package_of_their_own(self):
        # The name of a section; the code has it without the zero.
        self.assertFalse(b".debug_line\0" in self.has("/usr/bin/larder"))
        made = os.path.join(support.REPOSITORY, "target", "debian")
        self.assertEqual(len(glob.glob(os.path.join(made, "larder-dbgsym_*.ddeb"))), 1)

    def test_systemd_accepts_the_units(self):
        self.has("/usr/share/larder/larder.socket")
        units = "/usr/lib/systemd/system/larder.service /usr/share/larder/larder.socket"
        self.assertEqual(self.root.run("systemd-analyze verify --man=no " + units), (0, ""))

    def test_the_service_starts_with_the_machine_and_the_socket_does_not(self):
        made = self.root.files() - state["before"]
        self.assertEqual([path for path in made if ".wants/" in path and path.startswith("/etc/")],
                         ["/etc/systemd/system/multi-user.target.wants/larder.service"])

    def test_the_server_of_the_unit_serves(self):
        unit = self.root.read("/usr/lib/systemd/system/larder.service")
        words = re.search(r"(?m)^ExecStart=(.*)$", unit)[1].split()
        user = re.search(r"(?m)^User=(.*)$", unit)[1]
        with Boxed(ENTER, self.root.path, "as-it-is", user + ":" + user, *words) as server:
            with server.connect(11211) as client:
                self.assertEqual(client.set(b"key", b"value"), b"STORED")
                self.assertEqual(client.get(b"key"), b"value")
            number = self.root.run("id -u larder")[1].strip()
            self.assertEqual(server.user_ids(), [number] * 4)
            self.assertEqual(server.stop(), 0, server.said())


class Changes(unittest.TestCase):
    """What happens to a package that is there; each test has a root of its own."""

    def setUp(self):
        self.root = Root(state["root"].path)
        self.addCleanup(self.root.remove)

    def version(self):
        """The version and the state that dpkg knows."""
        return self.root.run("dpkg-query -W -f '${Version} ${db:Status-Status}' larder", check=False)[1]

    def test_an_upgrade_brings_new_settings_where_none_were_changed(self):
        self.root.install(newer_package())
        self.assertEqual(self.version(), "9.9.9-1 installed")
        self.assertTrue(self.root.read(SETTINGS).endswith("threads = 3\n"))

    def test_an_upgrade_keeps_settings_that_were_changed(self):
        mine = self.root.read(SETTINGS) + "threads = 1\n"
        self.root.write(SETTINGS, mine)
        # dpkg asks which settings to keep; an empty line is the answer that it proposes.
        said = self.root.install(newer_package(), text="\n")
        self.assertIn("keep your currently-installed version", said)
        self.assertEqual(self.version(), "9.9.9-1 installed")
        self.assertEqual(self.root.read(SETTINGS), mine)
        self.assertEqual(self.root.run("larder check-config --quiet --config " + SETTINGS), (0, ""))

    def test_a_removal_keeps_settings_and_items(self):
        mine = self.root.read(SETTINGS) + "threads = 1\n"
        self.root.write(SETTINGS, mine)
        self.leave_items()
        self.root.run("apt remove -y larder")
        self.assertFalse(os.path.exists(self.root.at("/usr/bin/larder")))
        self.assertFalse(os.path.exists(self.root.at("/usr/lib/systemd/system/larder.service")))
        self.assertEqual(self.root.read(SETTINGS), mine)
        self.assertEqual(self.root.read("/var/lib/larder/flash"), "items")
        self.root.install(paths.package)
        self.assertEqual(self.root.read(SETTINGS), mine)
        wants = "/etc/systemd/system/multi-user.target.wants/larder.service"
        self.assertEqual(os.readlink(self.root.at(wants)), "/lib/systemd/system/larder.service")

    def leave_items(self):
        """What a server with flash leaves behind."""
        os.mkdir(self.root.at("/var/lib/larder"))
        self.root.write("/var/lib/larder/flash", "items")

    def test_a_purge_leaves_nothing(self):
        added = self.root.files() - state["before"]
        self.assertIn("/usr/bin/larder", added)
        self.leave_items()
        self.root.write("/etc/larder/users", "name:word\n")
        self.root.install(newer_package())
        self.root.run("apt purge -y larder")
        self.assertEqual(self.root.files() ^ state["before"], set())

    def test_a_purge_after_a_removal_leaves_nothing(self):
        self.root.run("apt remove -y larder")
        self.root.run("apt purge -y larder")
        self.assertEqual(self.root.files() ^ state["before"], set())
