"""The files for Kubernetes: they are rendered, have the form that Kubernetes asks for, and agree with the server."""

import importlib.util
import json
import os
import re
import subprocess
import tomllib
import urllib.request

import support

PACKAGING = os.path.join(support.REPOSITORY, "packaging")
BINARY = os.path.join(support.tools_folder(), "bin", "kustomize")
MIB = 1 << 20
# What a memory limit leaves beside the memory of items and of flash: docs/operate.md.
BESIDE_MIB = 256
BESIDE_SHARE = 10
FLASH_MEMORY_SHARE = 64
# How long the server waits for requests that have come (GRACE in crates/server/src/run.rs).
STOP_SECONDS = 10


def same(got, wanted, what):
    """Fails unless the two are equal."""
    if got != wanted:
        raise AssertionError("%s: expected %r, got %r" % (what, wanted, got))


def mebibytes(text):
    """A size with a unit of Kubernetes or of Larder, in MiB."""
    number, unit = re.fullmatch(r"(\d+)([MG])i?", text.upper().replace("I", "i")).groups()
    return int(number) * {"M": 1, "G": 1024}[unit]


class Set:
    """The objects of a folder, by kind, and what the tests ask of them."""

    def __init__(self, name):
        import kubernetes_validate
        import yaml
        made = subprocess.run([BINARY, os.path.join(PACKAGING, "kubernetes", name)], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=support.WAIT_SECONDS_MAX)
        same((made.returncode, made.stderr), (0, ""), "kustomize of " + name)
        self.of = {each["kind"]: each for each in yaml.safe_load_all(made.stdout)}
        for kind, each in self.of.items():
            try:
                kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
            except kubernetes_validate.ValidationError as error:
                raise AssertionError("%s of %s: %s" % (kind, name, error.message)) from None
        self.spec = self.of["StatefulSet"]["spec"]
        self.pod = self.spec["template"]["spec"]
        [self.container] = self.pod["containers"]
        self.settings = self.of["ConfigMap"]["data"]["larder.toml"]

    def words(self, folder, own):
        """What the container runs behind `larder`, for the server of this name, with its files in a folder."""
        with open(os.path.join(PACKAGING, "Containerfile"), encoding="ascii") as file:
            entry = json.loads(re.search(r"(?m)^ENTRYPOINT (.*)$", file.read())[1])
        path = os.path.join(folder, "larder.toml")
        with open(path, "w", encoding="ascii") as file:
            # In a pod the name of the machine says it.
            file.write(self.settings.replace("[fleet]\n", '[fleet]\nself = "%s"\n' % own))
        places = {"/etc/larder/larder.toml": path, "/data/": folder + "/"}
        for there, here in places.items():
            self.container["args"] = [word.replace(there, here) for word in self.container["args"]]
        return entry[1:] + self.container["args"]

    def check_names(self):
        """The list of servers, the pods, the service and the probes name the same things."""
        service, ports = self.of["Service"], {port["name"] for port in self.container["ports"]}
        labels = self.spec["template"]["metadata"]["labels"]
        for selector in (service["spec"]["selector"], self.spec["selector"]["matchLabels"],
                         self.of["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]):
            same(selector, labels, "labels of the pods")
        same(self.spec["serviceName"], service["metadata"]["name"], "the service of the set")
        same({port["port"] for port in service["spec"]["ports"]},
             {port["containerPort"] for port in self.container["ports"]}, "ports of the service")
        same({self.container[kind]["httpGet"]["port"] for kind in ("readinessProbe", "livenessProbe")} - ports, set(),
             "ports of the probes")
        name = self.of["StatefulSet"]["metadata"]["name"]
        pods = ["%s-%d" % (name, number) for number in range(self.spec["replicas"])]
        nodes = tomllib.loads(self.settings)["fleet"]["node"]
        same([node["name"] for node in nodes], pods, "servers of the list")
        same([node["host"] for node in nodes], ["%s.%s" % (pod, self.spec["serviceName"]) for pod in pods], "hosts")
        return pods

    def check_limits(self):
        """The memory limit leaves what docs/operate.md says; the time to stop is enough; returns what is beside -m."""
        flash = [re.search(r"--flash=\S+:(\w+)", word) for word in self.container["args"]]
        flash_mib = sum(mebibytes(found[1]) for found in flash if found)
        asked = mebibytes(tomllib.loads(self.settings)["memory-limit"]) + flash_mib // FLASH_MEMORY_SHARE
        limit = mebibytes(self.container["resources"]["limits"]["memory"])
        if limit < asked + max(BESIDE_MIB, asked // BESIDE_SHARE):
            raise AssertionError("a limit of %d MiB for %d MiB of items and flash" % (limit, asked))
        claims = self.spec.get("volumeClaimTemplates", [])
        room = sum(mebibytes(each["spec"]["resources"]["requests"]["storage"]) for each in claims)
        same((bool(claims), room >= flash_mib), (bool(flash_mib), True), "room for flash")
        with open(os.path.join(PACKAGING, "larder.service"), encoding="ascii") as file:
            minutes = int(re.search(r"(?m)^TimeoutStopSec=(\d+)min$", file.read())[1])
        wanted = minutes * 60 if flash_mib else 2 * STOP_SECONDS
        if self.pod["terminationGracePeriodSeconds"] < wanted:
            raise AssertionError("a stop may take %d s" % wanted)


def install(clients):
    """Builds kustomize, as a library; raises clients.Missing. The libraries come with requirements.txt."""
    clients.build_go("kustomize", BINARY, os.path.dirname(os.path.abspath(__file__)))
    for name in ("kubernetes_validate", "yaml"):
        if not importlib.util.find_spec(name):
            raise clients.Missing("%s is not installed" % name)


def check(command, folder, report):
    """Base and overlay; the server that the base describes is started."""
    program = support.Server._executable(command.split()[0])
    for name in ("base", "flash"):
        made = Set(name)
        pods = made.check_names()
        made.check_limits()
        for pod in pods:
            words = made.words(folder, pod)
            done = subprocess.run([program, "check-config", "--quiet"] + words[1:], text=True, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            same((done.returncode, done.stdout), (0, ""), "check-config of " + pod)
        report("kubernetes: %s has the form that is asked for, and agrees with the server" % name)
    made = Set("base")
    flags = made.words(folder, "larder-1")[1:]
    admin = "127.0.0.1:%d" % support.free_port()
    with support.Server(command, flags + ["--admin", admin], defaults=[]) as server:
        for probe in ("readinessProbe", "livenessProbe"):
            url = "http://%s%s" % (admin, made.container[probe]["httpGet"]["path"])
            with urllib.request.urlopen(url, timeout=support.WAIT_SECONDS_MAX) as answer:
                same(answer.status, 200, probe)
        with server.connect() as connection:
            connection.send(b"config get cluster\r\n")
            listed = connection.exactly(int(connection.line().split()[3])).decode().split("\n")[1].split(" ")
        same([each.split("|")[0] for each in listed], [pod + ".larder" for pod in pods], "what clients are told")
    report("kubernetes: the server of the base is ready, and tells clients the names of all")
