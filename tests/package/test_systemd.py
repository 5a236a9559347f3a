"""The Debian package on a machine that runs systemd, which is process 1 of namespaces and of a cgroup of its own."""

import os
import signal
import unittest

from package_support import PIVOT, SETTINGS, Boxed, Root, newer_package, paths, run, support

state = {}


def setUpModule():
    """A root with systemd, and a cgroup for it in a tree of cgroups that is mounted for that."""
    state["root"] = Root(paths.root)
    state["root"].run("apt-get install -y systemd")
    tree = os.path.join(paths.work, "cgroups")
    os.mkdir(tree)
    run("mount", "-t", "cgroup2", "cgroup2", tree)
    state["cgroup"] = os.path.join(tree, "larder-package-%d" % os.getpid())


def tearDownModule():
    """Gives the memory back."""
    state["root"].remove()


class Machine(Boxed):
    """A root in which systemd runs."""

    def __init__(self, root):
        os.mkdir(state["cgroup"])
        join = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
        super().__init__(PIVOT, root, "container=larder", "/lib/systemd/systemd",
                         within=["sh", "-c", join, state["cgroup"]])
        support.until(lambda: self.shell("systemctl is-system-running")[1] in ("running\n", "degraded\n"),
                      lambda: "systemd has started: " + self.said())

    def shell(self, command):
        """Runs a shell command; returns (status, output)."""
        try:
            return self.run("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
                            "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command)
        except ValueError:
            return None, "process 1 is not there yet"

    def __exit__(self, *error):
        # The end of process 1 is that of every other, so the cgroups are empty then.
        self.stop(signal.SIGKILL)
        super().__exit__(*error)
        for folder, _, _ in os.walk(state["cgroup"], topdown=False):
            os.rmdir(folder)


class Service(unittest.TestCase):
    """`larder.service` as systemd runs it, with every restriction of the unit; each test boots a machine."""

    def setUp(self):
        root = Root(state["root"].path)
        self.addCleanup(root.remove)
        self.machine = self.enterContext(Machine(root.path))
        self.root = root
        self.install(paths.package)

    def install(self, package):
        """`apt install` of a package file."""
        run("cp", package, self.root.at("/var/tmp"))
        self.done("cd /var/tmp && apt install -y ./" + os.path.basename(package))

    def done(self, command):
        """Runs a command that is to succeed; returns its output."""
        status, said = self.machine.shell(command)
        self.assertEqual(status, 0, said + self.machine.shell("journalctl --no-pager -n 30")[1])
        return said

    def state(self, unit="larder.service"):
        """What systemd says of a unit."""
        return self.machine.shell("systemctl is-active " + unit)[1].strip()

    def main_process(self):
        """The server's process id, as systemd has it."""
        return self.done("systemctl show -P MainPID larder").strip()

    def serves(self):
        """Stores and reads a value."""
        with self.machine.connect(11211) as client:
            self.assertEqual(client.set(b"key", b"value"), b"STORED")
            self.assertEqual(client.get(b"key"), b"value")

    def limit(self):
        """The memory limit that the server has, in MiB."""
        with self.machine.connect(11211) as client:
            return int(client.stats()[b"limit_maxbytes"]) >> 20

    def test_install_upgrade_and_removal_start_restart_and_stop_it(self):
        self.assertEqual(self.state(), "active")
        self.serves()
        self.assertEqual(self.done("stat -c %U /proc/" + self.main_process()), "larder\n")
        before = self.main_process()
        self.install(newer_package())
        self.assertEqual(self.state(), "active")
        self.assertNotEqual(self.main_process(), before)
        self.serves()
        self.done("apt remove -y larder")
        self.assertEqual(self.state(), "inactive")
        self.done("apt purge -y larder")
        self.assertEqual(self.done("systemctl --failed --no-legend"), "")
        self.assertFalse(os.path.exists(self.root.at("/var/lib/larder")))

    def test_a_reload_takes_good_settings_and_refuses_bad_ones(self):
        before = self.main_process()
        self.done("echo 'memory-limit = \"100m\"' >> %s && systemctl reload larder" % SETTINGS)
        self.assertEqual(self.limit(), 100)
        self.done("echo 'nonsense = 1' >> " + SETTINGS)
        self.assertNotEqual(self.machine.shell("systemctl reload larder")[0], 0)
        self.assertIn("there is no setting 'nonsense'", self.done("journalctl --no-pager -u larder"))
        self.assertEqual((self.state(), self.main_process(), self.limit()), ("active", before, 100))

    def test_the_socket_is_off_until_it_is_copied_and_then_serves(self):
        self.assertEqual(self.state("larder.socket"), "inactive")
        self.done("cp /usr/share/larder/larder.socket /etc/systemd/system/")
        self.done("systemctl stop larder && systemctl enable --now larder.socket && systemctl start larder")
        self.assertEqual((self.state("larder.socket"), self.state()), ("active", "active"))
        self.serves()
        self.done("systemctl stop larder.service")
        self.serves()
