"""What the tests of the package and of the image share: clean roots, and servers that run in them."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import support  # noqa: E402

SETTINGS = "/etc/larder/larder.toml"
CLONE_NEWNET = 0x40000000
# What the options of test_package.py name.
paths = types.SimpleNamespace()
# In namespaces of its own: the root with what every process expects, read-only where $2 says so, then the server.
ENTER = """
set -e
root=$1 kind=$2 user=$3
shift 3
ip link set lo up
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
if [ "$kind" = read-only ]; then
    mount --bind "$root/data" "$root/data"
    mount -o remount,ro,bind "$root"
fi
exec chroot --userspec="$user" "$root" "$@"
"""
# As ENTER, for what makes namespaces itself, such as podman and systemd: $1 becomes the root of the mount namespace,
# with devices of its own and no way to change the kernel's settings, and the command runs there.
PIVOT = """
set -e
ip link set lo up
mount --bind "$1" "$1"
cd "$1"
shift
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
ln -s /proc/self/fd dev/fd
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
pivot_root . mnt
cd /
umount -l /mnt
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]


def run(*words, check=True, text=""):
    """Runs a command with `text` as its input; returns (status, stdout and stderr). Raises where it fails."""
    done = subprocess.run(words, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if check and done.returncode:
        raise AssertionError("%s: status %d\n%s" % (" ".join(words), done.returncode, done.stdout))
    return done.returncode, done.stdout


class Root:
    """A copy of a root, with /proc, and with the archives that apt keeps."""

    def __init__(self, of):
        self.path = tempfile.mkdtemp(dir=paths.work)
        run("cp", "-a", "--one-file-system", of + "/.", self.path)
        run("mount", "-t", "proc", "proc", self.at("/proc"))
        run("mount", "--bind", paths.archives, self.at("/var/cache/apt/archives"))

    def at(self, path):
        """The path outside of the root."""
        return self.path + path

    def read(self, path):
        """The text of a file."""
        with open(self.at(path)) as file:
            return file.read()

    def write(self, path, text):
        """Makes or replaces a file."""
        with open(self.at(path), "w") as file:
            file.write(text)

    def run(self, command, check=True, text=""):
        """Runs a shell command in the root; returns (status, stdout and stderr)."""
        return run("chroot", self.path, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
                   "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command, check=check, text=text)

    def install(self, package, text=""):
        """Installs a package file as a user would; returns what apt said. `text` answers its questions."""
        run("cp", package, self.at("/tmp"))
        return self.run("cd /tmp && apt install -y ./" + os.path.basename(package), text=text)[1]

    def files(self):
        """Every path, except those that change by themselves."""
        found = set()
        for folder, folders, names in os.walk(self.path):
            inside = folder[len(self.path):]
            folders[:] = [name for name in folders if inside + "/" + name not in
                          ("/proc", "/dev", "/sys", "/tmp", "/var/cache", "/var/log", "/var/lib/apt")]
            found.update(inside + "/" + name for name in folders + names)
        return found

    def remove(self):
        """Gives the memory back."""
        run("umount", self.at("/proc"), self.at("/var/cache/apt/archives"))
        run("rm", "-rf", "--one-file-system", self.path)


def newer_package():
    """A package of a higher version, with other settings."""
    folder = os.path.join(paths.work, "newer")
    run("rm", "-rf", folder)
    run("dpkg-deb", "--raw-extract", paths.package, folder)
    for path, old, new in (("/DEBIAN/control", r"(?m)^Version: .*$", "Version: 9.9.9-1"),
                           (SETTINGS, r"\Z", "threads = 3\n")):
        with open(folder + path) as file:
            text = re.sub(old, new, file.read(), count=1)
        with open(folder + path, "w") as file:
            file.write(text)
    package = os.path.join(paths.work, "larder_9.9.9-1.deb")
    run("dpkg-deb", "-Znone", "--root-owner-group", "--build", folder, package)
    return package


@contextlib.contextmanager
def network_of(process_id):
    """Sockets made meanwhile are in the network namespace of the process; OSError where it has none of its own yet."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as own, open("/proc/%d/ns/net" % process_id) as other:
        if os.path.sameopenfile(own.fileno(), other.fileno()):
            raise OSError("the process has no network of its own yet")
        if libc.setns(other.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            libc.setns(own.fileno(), CLONE_NEWNET)


class Boxed:
    """A process in a root, as process 1 of namespaces of its own: a server, or systemd."""

    def __init__(self, script, *words, within=()):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*within, *NAMESPACES, "sh", "-c", script, "sh", *words],
                                        stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors)

    def connect(self, port):
        """A connection to the server, as soon as it listens."""
        def connected():
            try:
                with network_of(self.process.pid):
                    return support.Connection("127.0.0.1", port)
            except OSError as error:
                if self.process.poll() is not None:
                    raise AssertionError("%s; the server said: %s" % (error, self.said())) from error
                return None
        return support.until(connected, lambda: "a connection; the server said: " + self.said())

    def said(self):
        """What the server has printed."""
        return os.pread(self.errors.fileno(), 65536, 0).decode()

    def server_id(self):
        """The server's process id outside of its namespace."""
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as file:
            return int(file.read())

    def user_ids(self):
        """The real, effective, saved and file system user of the server."""
        with open("/proc/%d/status" % self.server_id()) as file:
            return next(line for line in file if line.startswith("Uid:")).split()[1:]

    def run(self, *words):
        """Runs another command in the server's namespaces and root; returns (status, output)."""
        return run("nsenter", "--target", str(self.server_id()), "--all", "--root", "--wd", *words, check=False)

    def stop(self, signal_number=signal.SIGUSR1):
        """Asks the server to stop; returns the exit status."""
        os.kill(self.server_id(), signal_number)
        return self.process.wait(support.WAIT_SECONDS_MAX)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()
