#!/usr/bin/env python3
"""Real client libraries against a live server, over real sockets.

Each suite has a server of its own. What a suite needs is installed into the tools folder (.tools) first; a suite
whose package manager or library cannot be had is skipped with a reason, or fails where CI=true.

    tests/clients/run.py                                # target/debug/larder serve
    tests/clients/run.py --server "memcached" pymemcache go
    tests/clients/run.py --install-only
"""

import argparse
import filecmp
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, TESTS)

import support  # noqa: E402
import tls_support  # noqa: E402

TOOLS = support.tools_folder()
VENV_PYTHON = os.path.join(TOOLS, "venv", "bin", "python")
GO_BINARY = os.path.join(TOOLS, "bin", "go-clients")
GO_REDIS_BINARY = os.path.join(TOOLS, "bin", "go-redis-clients")
JAVA_FOLDER = os.path.join(TOOLS, "java")
NODE_FOLDER = os.path.join(TOOLS, "node")
# Where systems have the mechanisms of Cyrus SASL. A libmemcached that a Python wheel brings does not know the place.
SASL_PLUGINS = ["/usr/lib/*/sasl2/libplain.so*", "/usr/lib64/sasl2/libplain.so*", "/usr/lib/sasl2/libplain.so*"]
INSTALL_SECONDS_MAX = 420
SUITE_SECONDS_MAX = 180


class Missing(Exception):
    """A suite cannot run here; says why."""


def needs(program):
    """Raises Missing unless the program is on the path."""
    if not shutil.which(program):
        raise Missing("%s is not installed" % program)


def command(arguments, folder=HERE, extra=None):
    """Runs an installer's command; raises Missing with the end of what it printed."""
    variables = dict(os.environ)
    variables.update(extra or {})
    try:
        done = subprocess.run(
            arguments, cwd=folder, env=variables, timeout=INSTALL_SECONDS_MAX, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired:
        raise Missing("%s took longer than %d s" % (arguments[0], INSTALL_SECONDS_MAX)) from None
    if done.returncode:
        tail = " | ".join(done.stdout.strip().splitlines()[-4:])
        raise Missing("%s failed: %s" % (" ".join(arguments[:3]), tail))


def fresh(stamp, *sources):
    """Whether every source is still as it was when `stamp` was taken of it."""
    return all(os.path.exists(copy) and filecmp.cmp(copy, source, shallow=False)
               for copy, source in zip(stamps(stamp, sources), sources))


def stamps(stamp, sources):
    """The places where copies of the sources are kept."""
    return [os.path.join(TOOLS, "stamps", "%s.%s" % (stamp, os.path.basename(source))) for source in sources]


def keep(stamp, *sources):
    """Remembers the sources as they are now."""
    os.makedirs(os.path.join(TOOLS, "stamps"), exist_ok=True)
    for copy, source in zip(stamps(stamp, sources), sources):
        shutil.copyfile(source, copy)


def install_python():
    """The virtual environment with the pinned libraries."""
    wanted = os.path.join(TESTS, "requirements.txt")
    if os.path.exists(VENV_PYTHON) and fresh("venv", wanted):
        return
    command([sys.executable, "-m", "venv", os.path.join(TOOLS, "venv")])
    command([VENV_PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", wanted])
    keep("venv", wanted)


def install_go():
    """The program of gomemcache."""
    build_go("go", GO_BINARY)


def install_go_redis():
    """The program of go-redis. It is a module of its own: go-redis asks for a newer Go than gomemcache."""
    build_go("go-redis", GO_REDIS_BINARY)


def build_go(name, binary, beside=HERE):
    """Builds the Go program in the folder of this name, with its own caches."""
    needs("go")
    folder = os.path.join(beside, name)
    sources = [os.path.join(folder, file) for file in ("go.mod", "go.sum", "main.go")]
    if os.path.exists(binary) and fresh(name, *sources):
        return
    extra = {"GOPATH": os.path.join(TOOLS, "go"), "GOCACHE": os.path.join(TOOLS, "gocache"), "GOFLAGS": "-mod=readonly",
             "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    command(["go", "build", "-o", binary, "."], folder, extra)
    keep(name, *sources)


def install_java():
    """The libraries from Maven, and the compiled suites."""
    needs("javac")
    needs("mvn")
    folder = os.path.join(HERE, "java")
    sources = [os.path.join(folder, name) for name in ("pom.xml", "Spymemcached.java", "Redis.java", "Cluster.java",
                                                       "Sessions.java")]
    if os.path.isdir(os.path.join(JAVA_FOLDER, "classes")) and fresh("java", *sources):
        return
    command(["mvn", "-q", "-B", "-Dmaven.repo.local=" + os.path.join(TOOLS, "m2"), "dependency:copy-dependencies",
             "-DoutputDirectory=" + JAVA_FOLDER], folder)
    command(["javac", "-encoding", "UTF-8", "-cp", os.path.join(JAVA_FOLDER, "*"),
             "-d", os.path.join(JAVA_FOLDER, "classes")] + sources[1:])
    keep("java", *sources)


def install_node():
    """The libraries for Node at the versions of the lock file."""
    needs("node")
    needs("npm")
    sources = [os.path.join(HERE, "node", name) for name in ("package.json", "package-lock.json")]
    if os.path.isdir(os.path.join(NODE_FOLDER, "node_modules", "redis")) and fresh("node", *sources):
        return
    os.makedirs(NODE_FOLDER, exist_ok=True)
    for source in sources:
        shutil.copy(source, NODE_FOLDER)
    command(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", os.path.join(TOOLS, "npm")],
            NODE_FOLDER)
    keep("node", *sources)


def install_php(*wanted):
    """A check that PHP has these, which come with the system: extensions, and files of libraries."""
    def install():
        needs("php")
        code = 'foreach (array_slice($argv, 1) as $name) ' \
            'if (!extension_loaded($name) && !stream_resolve_include_path($name)) echo " $name";'
        asked = subprocess.run(["php", "-r", code, "--", "pcntl", "posix"] + list(wanted), text=True, check=False,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if asked.stdout or asked.returncode:
            raise Missing("PHP lacks" + asked.stdout)
    return install


def python_suite(name):
    """The command of a Python suite."""
    return [VENV_PYTHON, os.path.join(HERE, "python", name)]


def java_suite(name):
    """The command of a Java suite."""
    path = os.pathsep.join([os.path.join(JAVA_FOLDER, "*"), os.path.join(JAVA_FOLDER, "classes")])
    logger = "-Dnet.spy.log.LoggerImpl=net.spy.memcached.compat.log.SunLogger"
    return ["java", "-Xmx256m", "-Dfile.encoding=UTF-8", logger, "-cp", path, name]


def install_memccapable():
    """libmemcached's own program, which comes with the system."""
    needs("memccapable")


USER, PASSWORD = "app", "secret of the app"


def with_login(folder, is_larder):
    """A server whose clients log in by SASL; returns its flags, and arguments for the suite."""
    if not is_larder:
        raise Missing("memcached keeps its users of SASL in another place")
    users = os.path.join(folder, "users")
    with open(users, "w", encoding="ascii") as file:
        file.write("%s:%s\n" % (USER, PASSWORD))
    return ["-S", "-Y", users], [USER, PASSWORD]


def with_tags(_folder, is_larder):
    """A server that evicts nothing, and has time and memory for scripts that delete the thousands of items of a tag."""
    return (["-M", "-m", "256", "--script-ms", "1000"] if is_larder else []), []


def with_tls(folder, _):
    """A server that encrypts; returns its flags, and the authority for the suite to trust."""
    needs("openssl")
    certificates = tls_support.Certificates(folder)
    return tls_support.flags(*certificates.sign("server")), [certificates.authority]


def with_cyrus_login(folder, is_larder):
    """The same for a client that logs in by way of Cyrus SASL."""
    if not any(glob.glob(pattern) for pattern in SASL_PLUGINS):
        raise Missing("Cyrus SASL's mechanism PLAIN is not installed (libsasl2-modules)")
    return with_login(folder, is_larder)


def without_more(_folder, _is_larder):
    """A server without further flags."""
    return [], []


class Suite:
    """What to install, the command without its address, its further arguments, and the server that it needs."""

    def __init__(self, install, command, arguments=(), prepare=without_more):
        self.install, self.prepare = install, prepare
        self.start, self.arguments = command, list(arguments)

    def command(self, port, more):
        """The command for a server at this port."""
        if self.start[0] == "memccapable":
            return self.start + ["-h", "127.0.0.1", "-p", str(port)]
        return self.start + ["127.0.0.1", str(port)] + self.arguments + more


NODE = os.path.join(HERE, "node")
PHP = ["php", os.path.join(HERE, "php", "suite.php")]
SYMFONY = ["redis", "memcached", "Predis/autoload.php", "Psr/SimpleCache/autoload.php"] + [
    "Symfony/Component/%s/autoload.php" % name for name in ("Cache", "HttpFoundation", "Lock", "RateLimiter")]
LARAVEL = ["redis", "memcached", "Predis/autoload.php", "Psr/SimpleCache/autoload.php"] + [
    "Illuminate/%s/autoload.php" % name for name in ("Cache", "Redis", "Session")]
SUITES = {
    "pymemcache": Suite(install_python, python_suite("suite_pymemcache.py")),
    "pymemcache-tls": Suite(install_python, python_suite("suite_pymemcache.py"), prepare=with_tls),
    "pylibmc": Suite(install_python, python_suite("suite_pylibmc.py"), ["text"]),
    "pylibmc-binary": Suite(install_python, python_suite("suite_pylibmc.py"), ["binary"]),
    "pylibmc-sasl": Suite(install_python, python_suite("suite_pylibmc.py"), ["binary"], with_cyrus_login),
    "python-memcached": Suite(install_python, python_suite("suite_python_memcached.py")),
    "asyncio": Suite(install_python, python_suite("suite_async.py")),
    "go": Suite(install_go, [GO_BINARY]),
    "java": Suite(install_java, java_suite("Spymemcached"), ["text"]),
    "java-binary": Suite(install_java, java_suite("Spymemcached"), ["binary"]),
    "java-sasl": Suite(install_java, java_suite("Spymemcached"), ["binary"], with_login),
    "node": Suite(install_node, ["node", os.path.join(NODE, "suite.js")]),
    "memjs": Suite(install_node, ["node", os.path.join(NODE, "memjs.js")]),
    "memjs-sasl": Suite(install_node, ["node", os.path.join(NODE, "memjs.js")], prepare=with_login),
    "memccapable": Suite(install_memccapable, ["memccapable"]),
    "redis-py-resp2": Suite(install_python, python_suite("suite_redis.py"), ["2"]),
    "redis-py-resp3": Suite(install_python, python_suite("suite_redis.py"), ["3"]),
    "redis-scripts": Suite(install_python, python_suite("suite_scripts.py")),
    "redis-hearing": Suite(install_python, python_suite("suite_hearing.py")),
    "redis-collections": Suite(install_python, python_suite("suite_collections.py")),
    "django-redis": Suite(install_python, python_suite("suite_django.py"), ["redis"]),
    "django-pymemcache": Suite(install_python, python_suite("suite_django.py"), ["pymemcache"]),
    "django-pylibmc": Suite(install_python, python_suite("suite_django.py"), ["pylibmc"]),
    "flask-redis": Suite(install_python, python_suite("suite_flask.py"), ["redis"]),
    "flask-memcached": Suite(install_python, python_suite("suite_flask.py"), ["memcached"]),
    "go-redis": Suite(install_go_redis, [GO_REDIS_BINARY]),
    "jedis": Suite(install_java, java_suite("Redis"), ["jedis"]),
    "lettuce": Suite(install_java, java_suite("Redis"), ["lettuce"]),
    "spring": Suite(install_java, java_suite("Redis"), ["spring"]),
    "spring-session": Suite(install_java, java_suite("Sessions")),
    "ioredis": Suite(install_node, ["node", os.path.join(NODE, "redis.js")], ["ioredis"]),
    "node-redis": Suite(install_node, ["node", os.path.join(NODE, "redis.js")], ["node-redis"]),
    "phpredis": Suite(install_php("redis"), PHP, ["phpredis"]),
    "predis": Suite(install_php("Predis/autoload.php"), PHP, ["predis"]),
    "symfony": Suite(install_php(*SYMFONY), PHP, ["symfony"]),
    "symfony-tags": Suite(install_php(*SYMFONY), PHP, ["symfony-tags"], with_tags),
    "laravel": Suite(install_php(*LARAVEL), PHP, ["laravel"]),
    "php-memcached": Suite(install_php("memcached"), PHP, ["memcached"]),
}


class Tally:
    """Counts, and prints the lines that matter."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def missing(self, name, reason):
        """A suite that cannot run here."""
        if support.in_ci():
            self.failed += 1
            print("FAIL %s: %s" % (name, reason), flush=True)
        else:
            self.skipped += 1
            print("skip %s: %s" % (name, reason), flush=True)

    def suite(self, name, output, status, seconds):
        """Reads what a suite printed."""
        passed = failed = 0
        for line in output.splitlines():
            if line.startswith("ok ") or re.search(r"\[pass\]$", line):
                passed += 1
            elif line.startswith("not ok ") or re.search(r"\[FAIL\]$", line, re.IGNORECASE):
                failed += 1
                print("FAIL %s" % line.removeprefix("not ok "), flush=True)
        if (status != 0 or passed == 0) and failed == 0:
            failed = 1
            print("FAIL %s ended with status %s: %s" % (name, status, " | ".join(output.strip().splitlines()[-8:])))
        self.passed += passed
        self.failed += failed
        print("%-16s %3d passed, %d failed, %.1f s" % (name, passed, failed, seconds), flush=True)


def run_suite(name, server_command, flags, tally):
    """Starts a server and runs one suite against it."""
    started = time.monotonic()
    suite = SUITES[name]
    is_larder = "larder" in os.path.basename(shlex.split(server_command)[0])
    with tempfile.TemporaryDirectory() as folder:
        more_flags, arguments = suite.prepare(folder, is_larder)
        output, status = play_suite(suite, arguments, server_command, flags + more_flags)
    tally.suite(name, output.decode("utf-8", "replace"), status, time.monotonic() - started)


def play_suite(suite, arguments, server_command, flags):
    """Runs a suite against a new server; returns what it printed, and its exit status."""
    with support.Server(server_command, flags) as server:
        variables = dict(os.environ, NODE_PATH=os.path.join(NODE_FOLDER, "node_modules"), PYTHONDONTWRITEBYTECODE="1")
        plugins = [path for pattern in SASL_PLUGINS for path in glob.glob(pattern)]
        if plugins:
            variables["SASL_PATH"] = os.path.dirname(plugins[0])
        try:
            done = subprocess.run(
                suite.command(server.port, arguments), timeout=SUITE_SECONDS_MAX, env=variables,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            output, status = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            output, status = late.stdout or b"", "none after %d s" % SUITE_SECONDS_MAX
        if server.process.poll() is not None:
            status = "that of a server that ended: " + server.error_text()[-300:]
    return output, status


def main():
    """Installs, runs, counts; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=support.DEFAULT_COMMAND, help="the server command")
    parser.add_argument("--flags", default="", help="more flags for the server, in one argument")
    parser.add_argument("--install-only", action="store_true", help="fill the tools folder and stop")
    parser.add_argument("suites", nargs="*", help="of: " + " ".join(SUITES))
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES)
    if unknown:
        parser.error("no such suite: " + " ".join(sorted(unknown)))
    tally = Tally()
    for name in arguments.suites or SUITES:
        try:
            SUITES[name].install()
            if not arguments.install_only:
                run_suite(name, arguments.server, arguments.flags.split(), tally)
        except Missing as reason:
            tally.missing(name, reason)
        except support.DidNotStart as error:
            tally.failed += 1
            print("FAIL %s: the server did not start: %s" % (name, error), flush=True)
    print("%d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
