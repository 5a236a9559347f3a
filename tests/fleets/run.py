#!/usr/bin/env python3
"""Three Larders that share out keys: by a list that cluster clients read, and behind proxies; the files for Kubernetes.

    tests/fleets/run.py                                      # target/debug/larder serve
    tests/fleets/run.py --keys 1000000 twemproxy envoy       # the full number of keys, two proxies only

What it needs is installed into the tests' virtual environment. A client or proxy that cannot be had is skipped with a
reason, or fails where CI=true.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(1, TESTS)

import support  # noqa: E402
import manifests  # noqa: E402
import proxies  # noqa: E402
from fleet import Fleet, Node  # noqa: E402

KEYS = 3000
# The servers of a fleet of three that give slots to a fourth, and what they keep.
BEFORE = {"a": "0-5460", "b": "5461-10921", "c": "10922-16383"}
AFTER = {"a": "0-4095", "b": "5461-9556", "c": "10922-15017", "d": "4096-5460,9557-10921,15018-16383"}


def same(got, wanted, what):
    """Fails unless the two are equal."""
    if got != wanted:
        raise AssertionError("%s: expected %.200r, got %.200r" % (what, wanted, got))


class Cluster:
    """What redis-py's cluster client sees of a fleet; `direct` asks one server and follows no redirection."""

    def __init__(self, fleet):
        import redis
        import redis.cluster
        self.redis, self.fleet = redis, fleet
        self.client = redis.cluster.RedisCluster(host="127.0.0.1", port=fleet.nodes[0].port, socket_timeout=5)
        self.slot_of = self.client.keyslot

    def direct(self, node):
        """A client of one server."""
        return self.redis.Redis(port=node.port, socket_timeout=5)

    def owner(self, key):
        """The server whose slots have the key."""
        slot = self.slot_of(key)
        for node in self.fleet.nodes:
            for part in node.slots.split(","):
                first, _, last = part.partition("-")
                if int(first) <= slot <= int(last or first):
                    return node
        raise AssertionError("nobody has slot %d" % slot)

    def read(self, keys):
        """Reads each key; returns the keys with their values, those that were not found, and those that failed."""
        found, absent, failed = {}, [], {}
        for key in keys:
            try:
                value = self.client.get(key)
            except (self.redis.RedisError, OSError) as error:
                failed[key] = error
                continue
            if value is None:
                absent.append(key)
            else:
                found[key] = value
        return found, absent, failed

    def redirections(self):
        """How many requests the servers sent on."""
        counts = 0
        for node in self.fleet.nodes:
            with self.direct(node) as client:
                counts += client.info("errorstats").get("errorstat_MOVED", {"count": 0})["count"]
        return counts

    def check_shard(self, channel):
        """Fails unless one server has a shard channel, and the others send on to it."""
        owner = self.owner(channel)
        for node in self.fleet.nodes:
            with self.direct(node) as client:
                try:
                    said = client.execute_command("SPUBLISH", channel, "to all")
                    same((node is owner, said), (True, 1), "where %s is heard" % channel)
                except self.redis.exceptions.MovedError as moved:
                    same((node is owner, moved.port), (False, owner.port), "where %s is" % channel)

    def check_places(self, keys):
        """Each server has keys of its own slots only, and sends clients on that ask for another's."""
        for node in self.fleet.nodes:
            with self.direct(node) as client:
                listed = [key.decode() for key in client.keys("*")]
                same({self.owner(key).name for key in listed}, {node.name}, "keys of " + node.name)
                for key in keys[:200]:
                    owner = self.owner(key)
                    try:
                        client.get(key)
                        same(node.name, owner.name, "who answers for " + key)
                    except self.redis.exceptions.MovedError as moved:
                        same((node is owner, moved.port), (False, owner.port), "where %s is" % key)


def check_redis_py(command, folder, report):
    """redis-py's cluster client while a server dies, comes back, and a fourth is added."""
    keys = ["key:%d" % i for i in range(KEYS)]
    with Fleet(command, folder, BEFORE) as fleet:
        for node in fleet.nodes:
            node.slots = BEFORE[node.name]
        fleet.reload()
        cluster = Cluster(fleet)
        for key in keys:
            cluster.client.set(key, "value of " + key)
        same(len(cluster.read(keys)[0]), KEYS, "keys that are read")
        cluster.check_places(keys)
        same(cluster.client.mget("{tag}1", "{tag}2"), [None, None], "keys with a hash tag")
        report("redis-py cluster: each key is where its slot says")
        with cluster.client.pubsub() as heard:
            for channel in ("shard:%d" % i for i in range(20)):
                heard.ssubscribe(channel)
                cluster.check_shard(channel)
            same(cluster.client.spublish("shard:7", "x"), 1, "those who hear a shard channel")
            support.until(lambda: (heard.get_sharded_message(timeout=0.1) or {}).get("data") == b"x",
                          "the message comes")
        report("redis-py cluster: each shard channel is where its slot says")

        lost = fleet.nodes[1]
        fleet.stop(lost, signal.SIGKILL)
        share = {key for key in keys if cluster.owner(key) is lost}
        others = [key for key in keys if key not in share]
        same(len(cluster.read(others)[0]), len(others), "keys of the others after one was killed")
        some = sorted(share)[:2]
        same(len(cluster.read(some)[2]), len(some), "keys of the lost server that fail")
        same(len(cluster.read(others)[0]), len(others), "keys of the others after a failure")
        report("redis-py cluster: killing one of three loses its %d of %d keys only" % (len(share), KEYS))

        fleet.start(lost)
        came = time.monotonic()
        found, absent, failed = cluster.read(keys)
        same((len(found), set(absent), failed), (len(others), share, {}), "keys after the server came back")
        for key in share:
            cluster.client.set(key, "value of " + key)
        report("redis-py cluster: the first request after it is back succeeds (%.2f s for all keys)"
               % (time.monotonic() - came))

        add_a_fourth(fleet)
        moved = {key for key in keys if cluster.owner(key).name == "d"}
        found, absent, failed = cluster.read(keys)
        same((set(absent), failed), (moved, {}), "keys that are not found after a server was added")
        for key in moved:
            cluster.client.set(key, "new value of " + key)
        cluster.check_places([key for key in keys if key in moved])
        report("redis-py cluster: adding a fourth moves its %d of %d keys only" % (len(moved), KEYS))

        gone = fleet.nodes.pop()
        for node in fleet.nodes:
            node.slots = BEFORE[node.name]
        fleet.reload()
        gone.server.stop()
        found, absent, failed = cluster.read(keys)
        same((set(absent), failed), (moved, {}), "keys that are not found after a server was taken out")
        same({value for key, value in found.items() if value != ("value of " + key).encode()}, set(), "old values")
        report("redis-py cluster: slots that come back bring no old value")


def runner_of_clients():
    """The module tests/clients/run.py, which installs clients."""
    spec = importlib.util.spec_from_file_location("clients_run", os.path.join(TESTS, "clients", "run.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_go_redis(command, folder, report):
    """go-redis's cluster client."""
    clients = runner_of_clients()
    try:
        clients.install_go_redis()
    except clients.Missing as reason:
        raise Skipped(str(reason)) from None
    with Fleet(command, folder, BEFORE) as fleet:
        done = subprocess.run([clients.GO_REDIS_BINARY, "127.0.0.1", str(fleet.nodes[0].port), "cluster"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=support.WAIT_SECONDS_MAX)
        for line in done.stdout.splitlines():
            if line.startswith("ok "):
                report(line[3:])
        if done.returncode:
            raise AssertionError(" | ".join(line for line in done.stdout.splitlines() if not line.startswith("ok ")))


def check_cluster_client(library, install, command_of):
    """The cluster client of a library: 1,000 keys and several keys of one slot, before and after slots move to a fourth
    server. `command_of` makes the command without its arguments from the module tests/clients/run.py."""
    def run(server, folder, report):
        clients = runner_of_clients()
        try:
            getattr(clients, install)()
        except clients.Missing as reason:
            raise Skipped(str(reason)) from None
        fleet = Fleet(server, folder, BEFORE)
        for node in fleet.nodes:
            node.slots = BEFORE[node.name]
        with fleet:
            variables = dict(os.environ, NODE_PATH=os.path.join(clients.NODE_FOLDER, "node_modules"))
            words = command_of(clients) + ["127.0.0.1", str(fleet.nodes[0].port), library]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env=variables) as program:
                try:
                    lines = until_ready(program)
                    cluster = Cluster(fleet)
                    same(cluster.redirections(), 0, "redirections of a client that knows the slots")
                    add_a_fourth(fleet)
                    lines += program.communicate("go on\n", timeout=support.WAIT_SECONDS_MAX)[0].splitlines()
                finally:
                    program.kill()
            for line in lines:
                if line.startswith("ok "):
                    report(line[3:])
            if program.returncode:
                raise AssertionError(" | ".join(line for line in lines if not line.startswith("ok "))[-1000:])
            moved = [key for key in map("key:%d".__mod__, range(1000)) if cluster.owner(key).name == "d"]
            same([line for line in lines if line.startswith("absent ")], ["absent %d" % len(moved)], "keys that moved")
            count = cluster.redirections()
            if not count:
                raise AssertionError("nothing was redirected")
            report("%s cluster: %d of 1000 keys moved, found by %d redirections" % (library, len(moved), count))
    return run


def until_ready(program):
    """The lines of a program until it waits for the change."""
    lines = []
    for line in program.stdout:
        if line == "ready\n":
            return lines
        lines.append(line.rstrip("\n"))
    raise AssertionError("the client ended: " + " | ".join(lines)[-1000:])


def add_a_fourth(fleet):
    """Gives slots of all servers to a new one."""
    fleet.nodes.append(Node("d", support.free_port()))
    for node in fleet.nodes:
        node.slots = AFTER[node.name]
    fleet.reload()
    fleet.start(fleet.nodes[-1])


def check_kubernetes(command, folder, report):
    """The files for Kubernetes."""
    clients = runner_of_clients()
    try:
        manifests.install(clients)
    except clients.Missing as reason:
        raise Skipped(str(reason)) from None
    manifests.check(command, folder, report)


def node_client(clients):
    """The program for Node."""
    return ["node", os.path.join(clients.NODE, "cluster.js")]


def java_client(clients):
    """The program for Java."""
    return clients.java_suite("Cluster")


def check_discovery(command, folder, report):
    """`config get cluster`, which clients of memcached ask for the servers, before and after a change."""
    with Fleet(command, folder, BEFORE) as fleet:
        def listed(node):
            with node.server.connect() as connection:
                connection.send(b"config get cluster\r\n")
                head = connection.line().split()
                text = connection.exactly(int(head[3]))
                same((connection.line(), connection.line()), (b"", b"END"), "the end of the list")
                version, servers = text.decode().rstrip("\n").split("\n")
                return int(version), {int(each.split("|")[2]) for each in servers.split(" ")}

        ports = {node.port for node in fleet.nodes}
        same([listed(node) for node in fleet.nodes], [(1, ports)] * 3, "the list")
        fleet.nodes.pop().server.stop()
        fleet.reload()
        same([listed(node)[0] for node in fleet.nodes], [2, 2], "the version of the list after a change")
        same(len(listed(fleet.nodes[0])[1]), 2, "servers after a change")
        report("config get cluster: the list, and a higher version after a change")


class Skipped(Exception):
    """A check cannot run here; says why."""


def prepare():
    """Goes on in the tests' virtual environment, with redis-py and Envoy."""
    clients = runner_of_clients()
    wanted = os.path.join(HERE, "requirements.txt")
    if sys.executable == clients.VENV_PYTHON:
        return
    try:
        clients.install_python()
        if not clients.fresh("fleets", wanted):
            clients.command([clients.VENV_PYTHON, "-m", "pip", "install", "-q", "-r", wanted])
            clients.keep("fleets", wanted)
    except clients.Missing as reason:
        print("missing: %s" % reason, flush=True)
    if os.path.exists(clients.VENV_PYTHON):
        os.execv(clients.VENV_PYTHON, [clients.VENV_PYTHON, os.path.abspath(__file__)] + sys.argv[1:])


def main():
    """Runs, counts; returns the exit status."""
    prepare()
    checks = {"redis-py": check_redis_py, "go-redis": check_go_redis, "discovery": check_discovery,
              "kubernetes": check_kubernetes}
    for library, install, command_of in (("ioredis", "install_node", node_client),
                                         ("node-redis", "install_node", node_client),
                                         ("jedis", "install_java", java_client),
                                         ("lettuce", "install_java", java_client)):
        checks[library] = check_cluster_client(library, install, command_of)
    checks.update(proxies.CHECKS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("--keys", type=int, default=30_000, help="keys behind each proxy, in all")
    parser.add_argument("checks", nargs="*", help="of: " + " ".join(checks))
    arguments = parser.parse_args()
    proxies.keys_in_all = arguments.keys
    counts = {"passed": 0, "failed": 0, "skipped": 0}

    def report(text):
        counts["passed"] += 1
        print("ok " + text, flush=True)

    for name in arguments.checks or checks:
        try:
            with tempfile.TemporaryDirectory() as folder:
                checks[name](arguments.server, folder, report)
        except (Skipped, proxies.Skipped, ImportError) as reason:
            counts["failed" if support.in_ci() else "skipped"] += 1
            print("skip %s: %s" % (name, reason), flush=True)
        except (AssertionError, support.DidNotStart, subprocess.TimeoutExpired) as error:
            counts["failed"] += 1
            print("FAIL %s: %s" % (name, error), flush=True)
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
