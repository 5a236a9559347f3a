"""The image: its archive, and a server that runs from nothing but its files, as a container runtime would start it."""

import hashlib
import io
import json
import os
import tarfile
import tempfile
import unittest

from package_support import ENTER, NAMESPACES, PIVOT, Boxed, Root, paths, run, support

USER = "65532:65532"
# --cgroups=disabled and the host's network, which is a namespace with a loopback only: the test is about the image, not
# about podman's limits and bridges.
PODMAN = r"""
set -e
export STORAGE_DRIVER=vfs
podman load -i /tmp/larder.tar
podman pull docker-archive:/tmp/larder.tar
podman run -d --name one --read-only --cgroups=disabled --network host --health-interval disable larder -m 100
until podman healthcheck run one; do sleep 0.1; [ $((tries += 1)) -lt 100 ]; done
exec 3<>/dev/tcp/127.0.0.1/11211
printf 'set key 0 0 5\r\nvalue\r\nget key\r\nstats\r\nquit\r\n' >&3
cat <&3
! podman exec one sh -c true
podman stop one
podman inspect --format 'ended with {{.State.ExitCode}}' one
"""


class Image:
    """The image's archive, read as its format says."""

    def __init__(self, path):
        self.tar = tarfile.open(path)
        [entry] = self.json("index.json")["manifests"]
        self.manifest = json.loads(self.blob(entry))
        self.config = json.loads(self.blob(self.manifest["config"]))
        [layer] = self.manifest["layers"]
        self.layer = self.blob(layer)

    def read(self, path):
        """The bytes of a part of the archive."""
        return self.tar.extractfile(path).read()

    def json(self, path):
        """A part that is JSON."""
        return json.loads(self.read(path))

    def blob(self, descriptor):
        """The part that a descriptor names; it has this size and digest."""
        kind, digest = descriptor["digest"].split(":")
        data = self.read("blobs/%s/%s" % (kind, digest))
        if (len(data), hashlib.new(kind, data).hexdigest()) != (descriptor["size"], digest):
            raise AssertionError("%s is not what it says" % descriptor)
        return data

    def unpack(self):
        """A new root of the image's files, with the folders where a runtime mounts something."""
        root = tempfile.mkdtemp(dir=paths.work)
        os.chmod(root, 0o755)
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as layer:
            layer.extractall(root)
        for name in ("proc", "dev"):
            os.mkdir(os.path.join(root, name))
        return root


class Archive(unittest.TestCase):
    """What is written in the archive."""

    def setUp(self):
        self.image = Image(paths.image)

    def test_it_is_an_oci_layout_that_docker_loads_too(self):
        self.assertEqual(self.image.json("oci-layout"), {"imageLayoutVersion": "1.0.0"})
        self.assertEqual(self.image.config["rootfs"]["diff_ids"],
                         ["sha256:" + hashlib.sha256(self.image.layer).hexdigest()])
        [docker] = self.image.json("manifest.json")
        self.assertEqual(json.loads(self.image.read(docker["Config"])), self.image.config)
        self.assertEqual([self.image.read(path) for path in docker["Layers"]], [self.image.layer])

    def test_it_is_set_to_what_the_containerfile_says(self):
        config = self.image.config["config"]
        self.assertEqual(config["User"], USER)
        self.assertEqual(config["StopSignal"], "SIGUSR1")
        self.assertEqual(config["ExposedPorts"], {"11211/tcp": {}, "11219/tcp": {}})
        self.assertEqual(config["Volumes"], {"/data": {}})
        second = 10**9
        self.assertEqual(config["Healthcheck"], {
            "Test": ["CMD", "/usr/bin/larder", "health", "127.0.0.1:11219"], "Interval": 10 * second,
            "Timeout": 3 * second, "StartPeriod": 600 * second, "StartInterval": second})

    def test_it_has_the_program_its_libraries_and_no_shell(self):
        with tarfile.open(fileobj=io.BytesIO(self.image.layer)) as layer:
            entries = {"/" + entry.name: entry for entry in layer}
        programs = [path for path, entry in entries.items() if "/bin/" in path or "/sbin/" in path]
        self.assertEqual(programs, ["/usr/bin/larder"])
        self.assertEqual([path for path, entry in entries.items() if entry.uid], ["/data"])
        self.assertEqual([path for path, entry in entries.items() if entry.mode & 0o6022], [])

    def test_the_same_program_makes_the_same_archive(self):
        again = os.path.join(paths.work, "again.tar")
        program = os.path.join(paths.work, "larder")
        with open(program, "wb") as file, tarfile.open(fileobj=io.BytesIO(self.image.layer)) as layer:
            file.write(layer.extractfile("usr/bin/larder").read())
        os.chmod(program, 0o755)
        run(os.path.join(support.REPOSITORY, "packaging", "build-image.py"), program, again)
        with open(paths.image, "rb") as one, open(again, "rb") as other:
            self.assertEqual(hashlib.sha256(one.read()).digest(), hashlib.sha256(other.read()).digest())


class Container(unittest.TestCase):
    """A server from the image: its user, a read-only root, process 1, a network of its own."""

    def setUp(self):
        self.image = Image(paths.image)
        self.root = self.image.unpack()
        self.addCleanup(run, "rm", "-rf", "--one-file-system", self.root)

    def start(self, *flags):
        """A container with these flags behind the name of the image, or with those of CMD."""
        config = self.image.config["config"]
        return Boxed(ENTER, self.root, "read-only", config["User"], *config["Entrypoint"], *(flags or config["Cmd"]))

    def test_it_serves_is_healthy_and_stops(self):
        config = self.image.config["config"]
        with self.start() as server:
            with server.connect(11211) as client:
                self.assertEqual(client.set(b"key", b"value"), b"STORED")
                self.assertEqual(client.get(b"key"), b"value")
                self.assertEqual(client.stats()[b"limit_maxbytes"], b"%d" % (64 << 20))
            self.assertEqual(server.user_ids(), ["65532"] * 4)
            self.assertEqual(server.run(*config["Healthcheck"]["Test"][1:])[0], 0)
            self.assertEqual(server.run("/usr/bin/larder", "health", "127.0.0.1:11220")[0], 1)
            self.assertEqual(server.stop(), 0, server.said())

    def test_flags_behind_the_name_replace_those_of_the_image(self):
        with self.start("-m", "100", "-c", "50") as server, server.connect(11211) as client:
            found = client.stats()
            self.assertEqual((found[b"limit_maxbytes"], found[b"max_connections"]), (b"%d" % (100 << 20), b"50"))

    def test_it_writes_to_data_and_nowhere_else(self):
        with self.start("-m", "64", "--flash", "/data/flash:64m") as server:
            with server.connect(11211) as client:
                self.assertEqual(client.set(b"key", b"value"), b"STORED")
            self.assertEqual(server.stop(), 0, server.said())
        self.assertEqual(os.stat(os.path.join(self.root, "data", "flash")).st_uid, 65532)
        with self.start("-m", "64", "--flash", "/data/flash:64m") as server, server.connect(11211) as client:
            self.assertEqual(client.get(b"key"), b"value")
        os.mkdir(os.path.join(self.root, "var"))
        os.chmod(os.path.join(self.root, "var"), 0o777)
        with self.start("-m", "64", "--flash", "/var/flash:64m") as server:
            self.assertNotEqual(server.process.wait(support.WAIT_SECONDS_MAX), 0)
            self.assertIn("/var/flash is read-only", server.said())


class Podman(unittest.TestCase):
    """The image in podman, in a clean root."""

    def test_podman_runs_it_read_only_healthy_and_without_a_shell(self):
        root = Root(paths.root)
        self.addCleanup(root.remove)
        status, said = root.run("apt-get install -y --no-install-recommends podman ca-certificates", check=False)
        if status:
            self.skipTest("podman cannot be installed: " + said.strip().splitlines()[-1])
        run("cp", paths.image, root.at("/tmp/larder.tar"))
        _, said = run(*NAMESPACES, "sh", "-c", PIVOT, "sh", root.path, "bash", "-c", PODMAN)
        self.assertIn("STORED\nVALUE key 0 5\nvalue\nEND\n", said)
        self.assertIn("STAT limit_maxbytes %d\n" % (100 << 20), said)
        self.assertIn("executable file `sh` not found", said)
        self.assertTrue(said.endswith("ended with 0\n"), said)
