"""Operating a server: checking its settings, changing them while it runs, and what the system around it sees."""

import glob
import itertools
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
import tomllib
import unittest
import urllib.request

import support
import tls_support
from process_support import Case, is_larder, run_to_end, server_command
from resp_support import ask
from tls_support import Certificates


def program():
    """The path of the program, without the command `serve`."""
    return support.Server._executable(shlex.split(server_command())[0])


def command(*words, **options):
    """(status, stdout, stderr) of a command of the program."""
    done = subprocess.run([program()] + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=support.WAIT_SECONDS_MAX, **options)
    return done.returncode, done.stdout, done.stderr


@unittest.skipUnless(is_larder(), "memcached has no such thing")
class OperateCase(Case):
    """A test with a settings file, which it may write anew."""

    def setUp(self):
        self.path = os.path.join(self.folder(), "larder.toml")

    def write(self, text):
        """The new content of the settings file."""
        with open(self.path, "w") as file:
            file.write(text)

    def follower(self, text, *flags):
        """A server with this settings file and few flags."""
        self.write(text)
        return self.server("--config", self.path, *flags, defaults=["-U", "0"])

    def logged(self, server, *says, after=0):
        """The log behind its first `after` letters, once it has all these texts."""
        def text():
            return server.error_text()[after:]
        support.until(lambda: all(each in text() for each in says),
                      lambda: "%r are all in the log: %s" % (says, text()))
        return text()

    def reload(self, server, text, *says):
        """Writes the settings file, sends SIGHUP, and returns the log from then on, once it has these texts."""
        before = len(server.error_text())
        if text is not None:
            self.write(text)
        server.process.send_signal(signal.SIGHUP)
        return self.logged(server, *says, after=before)


class CheckConfig(OperateCase):
    """`larder check-config`."""

    def test_every_problem_has_its_line(self):
        self.write("thread = 2\nport = 99999\nidle-timeout = 5\n")
        status, shown, problems = command("check-config", "--config", self.path, "-c", "0")
        self.assertEqual(status, 1)
        lines = problems.splitlines()
        self.assertEqual(len(lines), 3, problems)
        for line, says in zip(lines, ("line 1: there is no setting 'thread'", "line 2: bad value '99999'", "-c")):
            self.assertIn(says, line)
        self.assertRegex(shown, r"(?m)^idle-timeout +5 +%s line 3$" % self.path)

    def test_it_says_what_serve_says(self):
        absent = os.path.join(self.folder(), "absent")
        for flags in (["-c", "0"], ["--nonsense"], ["-Z"], ["-Y", absent], ["-I", "64m"], ["--flash", absent],
                      ["-l", "no.such.host.invalid"], ["-t", "1000"], ["-u", "no-such-user"], ["--config", absent]):
            status, _, served = run_to_end("-p", str(support.free_port()), *flags)
            self.assertNotEqual(status, 0, flags)
            checked, _, problems = command("check-config", *flags)
            self.assertEqual(checked, 1, flags)
            words = set(served.strip().splitlines()[-1].split())
            shared = max(len(words & set(line.split())) / len(words) for line in problems.splitlines())
            self.assertGreater(shared, 0.5, "%s: serve: %s, check-config: %s" % (flags, served, problems))

    def test_it_finds_what_only_the_machine_knows(self):
        folder = self.folder()
        taken = os.path.join(folder, "taken")
        with open(taken, "w") as file:
            file.write("something else")
        for flags, says in ((["-c", "10000000"], "open files"),
                            (["-l", "192.0.2.1"], "this machine has no such address"),
                            (["-l", "fe80::1%lo"], "cannot listen on"),
                            (["--admin", "192.0.2.1:80"], "cannot open the admin page"),
                            (["-s", taken], "the file exists"),
                            (["-s", os.path.join(folder, "s" * 120)], "cannot listen on"),
                            (["--keep", "/dev/shm"], "cannot keep memory in /dev/shm (--keep)"),
                            (["--keep", "/dev/null"], "no ordinary file"),
                            (["--flash", "/dev/null"], "neither a file nor a block device"),
                            (["--flash", folder], "is a directory"),
                            (["--flash", taken], "too small"),
                            (["--flash", taken + ":64m"], "only")):
            status, _, served = run_to_end("-p", str(support.free_port()), *flags)
            self.assertNotEqual(status, 0, flags)
            self.assertIn(says, served, flags)
            checked, _, problems = command("check-config", *flags)
            self.assertEqual(checked, 1, flags)
            self.assertIn(says, problems, flags)

    def test_a_file_without_end_is_refused(self):
        zero = "/dev/zero"
        for words in (["check-config", "--config", zero], ["check-config", "-Y", zero],
                      ["check-config", "-Z", "--tls-cert", zero, "--tls-key", zero],
                      ["plan", "--curve", zero]):
            status, _, said = command(*words)
            self.assertNotEqual(status, 0, words)
            self.assertIn("longer than", said, words)

    def test_it_opens_no_port_and_writes_nothing(self):
        server = self.server()
        folder = self.folder()
        status, shown, problems = command("check-config", "-p", str(server.port), "-P", folder + "/pid",
                                          "--flash", folder + "/flash:64m", "-s", folder + "/socket")
        self.assertEqual((status, problems), (0, ""))
        self.assertRegex(shown, r"(?m)^port +%d +flag -p \(--port\)$" % server.port)
        self.assertEqual(os.listdir(folder), [])

    def test_the_environment_is_an_origin(self):
        users = os.path.join(self.folder(), "users")
        with open(users, "w") as file:
            file.write("a:b\n")
        status, shown, _ = command("check-config", "-S", env=dict(os.environ, MEMCACHED_SASL_PWDB=users))
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"(?m)^auth-file +%s +environment variable MEMCACHED_SASL_PWDB$" % users)


class Reload(OperateCase):
    """SIGHUP with a settings file."""

    def test_what_may_change_changes_and_the_rest_is_refused_by_name(self):
        server = self.follower(
            "memory-limit = 64\nthreads = 2\nworth = \"penalty\"\nconn-limit = 500\nport = 1\n"
            "flash = \"sim:ftl:64m\"\n")
        log = self.reload(
            server,
            "memory-limit = 128\nthreads = 3\nworth = \"hits\"\nconn-limit = 600\nidle-timeout = 77\n"
            "port = 1\nobjective = \"bytes\"\n[flash]\npath = \"sim:ftl:64m\"\nwrite-budget = \"1g\"\n"
            "[flash.tuning]\nsave = false\n",
            "idle-timeout is 77 now", "flash.tuning.save is off now",
        )
        for says in ("memory-limit is 128m now, it was 64m", "worth is hits now, it was penalty",
                     "conn-limit is 600 now, it was 500", "objective is bytes now, it was time"):
            self.assertIn(says, log)
        refused = [line for line in log.splitlines() if "though the settings say" in line]
        self.assertEqual(len(refused), 1, log)
        self.assertIn("threads stays 2, though the settings say 3", refused[0])
        settings = self.connection(server).stats(b"settings")
        self.assertEqual(settings[b"maxbytes"], b"%d" % (128 << 20))
        self.assertEqual((settings[b"maxconns"], settings[b"idle_timeout"], settings[b"num_threads"]),
                         (b"600", b"77", b"2"))
        # What is refused is said each time.
        self.reload(server, None, "threads stays 2")

    def test_a_broken_file_changes_nothing(self):
        server = self.follower("idle-timeout = 50\n")
        self.reload(server, "idle-timeout = 60\nthreds = 3\n", "all settings stay as they were",
                    "line 2: there is no setting 'threds'")
        self.reload(server, "idle-timeout = 60\nmemory-limit = \"8m\"\nmax-item-size = \"8m\"\n",
                    "all settings stay as they were", "raise -m")
        os.remove(self.path)
        self.reload(server, None, "all settings stay as they were", "cannot read the settings file")
        self.assertEqual(self.connection(server).stats(b"settings")[b"idle_timeout"], b"50")
        self.reload(server, "idle-timeout = 60\n", "idle-timeout is 60 now")

    def test_what_a_client_has_set_stays_until_the_file_changes(self):
        server = self.follower("memory-limit = 64\n")
        connection = self.connection(server)
        self.assertEqual(connection.ask(b"cache_memlimit 100"), b"OK")
        self.reload(server, "memory-limit = 64\nidle-timeout = 9\n", "idle-timeout is 9 now")
        self.assertEqual(connection.stats()[b"limit_maxbytes"], b"%d" % (100 << 20))
        self.reload(server, "memory-limit = 80\n", "memory-limit is 80m now")
        self.assertEqual(connection.stats()[b"limit_maxbytes"], b"%d" % (80 << 20))

    def test_a_flag_wins_over_the_file(self):
        server = self.follower("idle-timeout = 5\n", "--idle-timeout", "500")
        self.reload(server, "idle-timeout = 6\nmaxconns-fast = false\n", "maxconns-fast is false now")
        self.assertEqual(self.connection(server).stats(b"settings")[b"idle_timeout"], b"500")

    def test_connections_follow_their_limits(self):
        server = self.follower("conn-limit = 3\nmaxconns-fast = false\n")
        held = [self.connection(server) for _ in range(3)]
        for connection in held:
            connection.ask(b"version")
        waiting = self.connection(server)
        waiting.send(b"version\r\n")
        support.until(lambda: int(held[0].stats()[b"listen_disabled_num"]), "it stops accepting")
        self.assertEqual(held[0].stats()[b"curr_connections"], b"3")
        self.assertEqual(select.select([waiting.socket], [], [], 0)[0], [])
        self.reload(server, "conn-limit = 4\nmaxconns-fast = true\n", "conn-limit is 4 now")
        self.assertTrue(waiting.line().startswith(b"VERSION"))
        one_too_many = self.connection(server)
        self.assertIn(b"Too many open connections", one_too_many.line())
        self.logged(server, "1 refused beyond the most connections (4, -c)")
        self.reload(server, "conn-limit = 4\nidle-timeout = 1\n", "idle-timeout is 1 now")
        self.assertTrue(held[0].is_closed())

    def test_those_that_wait_for_a_place_are_told_once_nobody_waits_any_more(self):
        server = self.follower("conn-limit = 3\nmaxconns-fast = false\n")
        held = [self.connection(server) for _ in range(3)]
        for connection in held:
            connection.ask(b"version")
        waiting = [self.connection(server) for _ in range(3)]
        self.reload(server, "conn-limit = 3\nmaxconns-fast = true\n", "maxconns-fast is true now")
        for connection in waiting:
            self.assertIn(b"Too many open connections", connection.line())
        self.assertEqual(held[0].stats()[b"accepting_conns"], b"1")

    def test_the_limit_for_each_address_follows_the_file(self):
        server = self.follower("conn-limit = 100\n", "-t", "2")
        held, other = [self.connection(server) for _ in range(2)], self.connection(server)
        for connection in held:
            connection.ask(b"version")
        self.assertEqual(ask(other, b"PING"), b"PONG")
        self.reload(server, "address-conn-limit = 3\n", "address-conn-limit is 3 now, it was 0")
        for refused in (1, 2):
            self.assertEqual(self.connection(server).line(), b"ERROR Too many open connections from this address")
            self.assertEqual(held[0].stats()[b"address_rejected_connections"], b"%d" % refused)
        # It is logged once a minute.
        self.assertEqual(server.error_text().count("1 refused beyond the most connections of one address (3"), 1)
        self.assertEqual(held[0].stats(b"settings")[b"address_conn_limit"], b"3")
        self.assertEqual(ask(other, b"CONFIG", b"SET", b"address-conn-limit", b"4"), b"OK")
        self.assertTrue(self.connection(server).ask(b"version").startswith(b"VERSION"))

    def test_unix_sockets_have_no_address(self):
        path = os.path.join(self.folder(), "socket")
        server = self.server("-s", path, "--address-conn-limit", "1", wait=False)
        self.logged(server, "listening on")
        for _ in range(3):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.connect(path)
            connection = support.Connection(None, None, made=made)
            self.addCleanup(connection.close)
            self.assertTrue(connection.ask(b"version").startswith(b"VERSION"))

    def test_commands_are_refused_and_allowed(self):
        server = self.follower("disable-flush-all = true\n")
        connection = self.connection(server)
        self.assertEqual(connection.ask(b"flush_all"), b"CLIENT_ERROR flush_all not allowed")
        self.reload(server, "disable-dumping = true\n", "disable-flush-all is false now", "disable-dumping is true now")
        self.assertEqual(connection.ask(b"flush_all"), b"OK")
        self.assertIn(b"not allowed", connection.ask(b"lru_crawler metadump all"))

    def test_the_log_says_as_much_as_the_file_asks_for(self):
        server = self.follower("verbose = 0\n")
        connection = self.connection(server)
        connection.get(b"before")
        self.reload(server, "verbose = 2\n", "verbose is 2 now")
        connection.get(b"after")
        self.logged(server, " after -> END")
        self.assertEqual(connection.ask(b"verbosity 0"), b"OK")
        connection.get(b"last")
        connection.get(b"last")
        log = server.error_text()
        self.assertNotIn(" before -> ", log)
        self.assertNotIn(" last -> ", log)

    def test_the_users_may_be_in_another_file(self):
        users = [os.path.join(self.folder(), "users") for _ in range(2)]
        for path, text in zip(users, ("anna:one\n", "berta:two\n")):
            with open(path, "w") as file:
                file.write(text)
        server = self.follower("auth-file = \"%s\"\n" % users[0])

        def may_enter(credentials):
            connection = self.connection(server)
            connection.send(b"set auth x 0 %d\r\n%b\r\n" % (len(credentials), credentials))
            return connection.line() == b"STORED"
        self.assertTrue(may_enter(b"anna one"))
        self.reload(server, "auth-file = \"%s\"\n" % users[1], "auth-file is " + users[1])
        self.assertEqual((may_enter(b"anna one"), may_enter(b"berta two")), (False, True))
        self.reload(server, "auth-file = \"/no/such/file\"\n", "auth-file stays " + users[1])
        self.assertTrue(may_enter(b"berta two"))
        self.reload(server, "", "auth-file stays " + users[1], "decided at the start")
        self.assertFalse(may_enter(b"anna one"))

    @unittest.skipUnless(tls_support.has_openssl(), "openssl is not installed")
    def test_certificate_and_key_change_together(self):
        certificates = Certificates(self.folder())
        (cert, key), (other_cert, other_key) = certificates.sign("server"), certificates.sign("other")
        text = "enable-ssl = true\ntls-cert = \"%s\"\ntls-key = \"%s\"\n"
        server = self.follower(text % (cert, key))
        self.reload(server, text % (other_cert, key), "tls-cert stays " + cert)
        self.reload(server, text % (other_cert, other_key), "tls-cert is " + other_cert, "tls-key is " + other_key)

    def test_a_limit_that_moves_under_load_loses_no_promise(self):
        server = self.follower("memory-limit = 96\n")
        wrong, stop, turns = [], threading.Event(), [0, 0]

        def load(number):
            with server.connect() as connection:
                turn = 0
                while not stop.is_set():
                    turn += 1
                    turns[number] = turn
                    key = b"%d-%d" % (number, turn % 50000)
                    if connection.set(key, key * 50) != b"STORED":
                        wrong.append(b"set " + key)
                    if connection.get(key) not in (key * 50, None):
                        wrong.append(b"get " + key)
        threads = [threading.Thread(target=load, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for mebibytes in (24, 200, 12, 64):
                enough = [turn + 1000 for turn in turns]
                support.until(lambda: wrong or all(map(int.__ge__, turns, enough)), "both go on")
                self.reload(server, "memory-limit = %d\n" % mebibytes, "memory-limit is %dm now" % mebibytes)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.reload(server, "memory-limit = 16\n", "memory-limit is 16m now")
        support.until(lambda: server.resident_bytes() < 64 << 20, "memory is given back")


class Told(OperateCase):
    """What is told of a server that runs."""

    def test_each_setting_has_one_value(self):
        # Exporters take a line of another number of words for an error.
        server = self.server("--flash", "sim:ftl:64m")
        for name, value in self.connection(server).stats(b"settings").items():
            self.assertEqual(len(value.split()), 1, name)

    def test_stores_that_find_no_memory_are_logged(self):
        server = self.server("-m", "8", "-M")
        connection = self.connection(server)
        number = itertools.count()
        support.until(lambda: connection.set(b"k%d" % next(number), b"v" * 100_000) != b"STORED", "memory is full")
        self.logged(server, "stores refused, because memory is full and -M forbids evictions")


class ConfigSet(OperateCase):
    """`CONFIG SET` and `CONFIG GET` with the names of the settings file."""

    def test_live_settings_by_their_names(self):
        server = self.server()
        connection = self.connection(server)
        done = ask(connection, b"CONFIG", b"SET", b"idle-timeout", b"33", b"worth", b"hits", b"conn-limit", b"77")
        self.assertEqual(done, b"OK")
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"idle-timeout"), [b"idle-timeout", b"33"])
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"timeout"), [b"timeout", b"33"])
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"maxclients"), [b"maxclients", b"77"])
        self.assertEqual(ask(connection, b"CONFIG", b"SET", b"maxmemory", b"100mb"), b"OK")
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"memory-limit"), [b"memory-limit", b"100m"])
        self.assertEqual(ask(connection, b"CONFIG", b"SET", b"memory-limit", b"90MB"), b"OK")
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"memory-limit"), [b"memory-limit", b"90m"])
        with server.connect() as other:
            self.assertEqual(other.stats(b"settings")[b"idle_timeout"], b"33")
            self.assertEqual(other.stats(b"worth")[b"mode"], b"hits")
            self.assertEqual(other.ask(b"cache_memlimit 80"), b"OK")
        self.logged(server, "idle-timeout is 33 now, it was 0", "worth is hits now, it was auto",
                    "memory-limit is 90m now, it was 100m", "memory-limit is 80m now, it was 90m")

    def test_what_cannot_change_is_refused_and_nothing_changes(self):
        connection = self.connection(self.server())
        for name, value, says in (
                (b"threads", b"9", b"immutable"), (b"idle-timeout", b"x", b"whole number"),
                (b"flash.tuning.depth", b"7", b"immutable"), (b"memory-limit", b"x", b"expected a size"),
                (b"nonsense", b"1", b"Unknown option"), (b"fleet", b"x", b"protected"),
                (b"enable-shutdown", b"true", b"protected"), (b"tls-key", b"/etc/shadow", b"protected")):
            reply = ask(connection, b"CONFIG", b"SET", b"objective", b"bytes", name, value)
            self.assertTrue(reply.startswith(b"-ERR") and says in reply, reply)
        self.assertEqual(ask(connection, b"CONFIG", b"GET", b"objective"), [b"objective", b"time"])

    def test_where_one_value_is_wrong_none_changes(self):
        connection = self.connection(self.server("-m", "64"))
        before = ask(connection, b"CONFIG", b"GET", b"*")
        for wrong in ((b"maxmemory", b"garbage"), (b"maxmemory", b"1kb"), (b"port", b"1"), (b"slowlog-max-len", b"x")):
            reply = ask(connection, b"CONFIG", b"SET", b"maxclients", b"500", b"loglevel", b"verbose",
                        b"slowlog-log-slower-than", b"7", b"objective", b"bytes", *wrong)
            self.assertTrue(reply.startswith(b"-ERR") and wrong[0] in reply, reply)
            self.assertEqual(ask(connection, b"CONFIG", b"GET", b"*"), before)

    def test_the_write_budget_of_flash(self):
        server = self.server("--flash", "sim:ftl:64m")
        connection = self.connection(server)
        self.assertEqual(ask(connection, b"CONFIG", b"SET", b"flash-write-budget", b"5g"), b"OK")
        with server.connect() as other:
            self.assertEqual(other.stats(b"flash")[b"write_budget_bytes"], b"%d" % (5 << 30))


class Manager(OperateCase):
    """What a service manager such as systemd is told."""

    def test_ready_reloading_stopping(self):
        manager, environment = self.service_manager()
        self.write("idle-timeout = 5\n")
        server = self.server("--config", self.path, environment=environment)
        self.assertEqual(self.told_until(manager, "READY=1"), ["READY=1\n"])
        self.write("idle-timeout = 6\n")
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        server.process.send_signal(signal.SIGHUP)
        reloading, ready = self.told_until(manager, "READY=1")
        self.assertIn("RELOADING=1\n", reloading)
        since = int(re.search(r"MONOTONIC_USEC=(\d+)", reloading).group(1))
        self.assertGreaterEqual(since, before)
        self.assertEqual(ready, "READY=1\n")
        self.assertEqual(self.connection(server).stats(b"settings")[b"idle_timeout"], b"6")
        server.process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.told_until(manager, "STOPPING=1"), ["STOPPING=1\n"])
        self.assertEqual(server.wait(), 0)

    def test_the_watchdog_is_fed_while_the_server_works(self):
        manager, environment = self.service_manager()
        server = self.server(environment=dict(environment, WATCHDOG_USEC="1000000"))
        self.told_until(manager, "READY=1")
        for _ in range(3):
            self.assertLess(len(self.told_until(manager, "WATCHDOG=1")), 2)

    def test_without_a_watchdog_nothing_is_sent(self):
        manager, environment = self.service_manager()
        server = self.server(environment=environment)
        self.told_until(manager, "READY=1")
        connection = self.connection(server)
        support.until(lambda: int(connection.stats()[b"uptime"]) >= 2, "the server has run for two seconds")
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.told_until(manager, "STOPPING=1"), ["STOPPING=1\n"])


class Health(OperateCase):
    """`larder health`."""

    def test_a_server_that_serves_and_one_that_is_gone(self):
        admin = "127.0.0.1:%d" % support.free_port()
        server = self.server("--admin", admin)
        self.assertEqual(command("health", admin), (0, "ok\n", ""))
        server.stop()
        status, shown, problem = command("health", admin)
        self.assertEqual((status, shown), (1, ""))
        self.assertIn(admin + " does not answer", problem)
        status, _, problem = command("health", "--nonsense")
        self.assertEqual((status, "HOST:PORT" in problem), (1, True))

    def test_a_server_that_stops_is_alive_and_not_ready(self):
        admin = "127.0.0.1:%d" % support.free_port()
        server = self.server("--admin", admin)
        connection = self.connection(server)
        # The stop waits for the rest of this request.
        connection.send(b"version\r\nset k 0 0 5\r\nab")
        connection.line()
        server.process.send_signal(signal.SIGUSR1)
        support.until(lambda: command("health", admin)[0] != 0, "it is not ready while it stops")
        self.assertEqual(command("health", admin)[::2], (1, "larder: %s answers 503 the server stops\n" % admin))
        with urllib.request.urlopen("http://%s/livez" % admin, timeout=support.WAIT_SECONDS_MAX) as answer:
            self.assertEqual((answer.status, answer.read()), (200, b"ok\n"))
        connection.send(b"cde\r\n")
        self.assertEqual(connection.line(), b"STORED")
        self.assertEqual(server.wait(), 0)


class Packages(OperateCase):
    """What is in packaging/."""

    def file(self, name):
        """The text of a file of packaging/."""
        with open(os.path.join(support.REPOSITORY, "packaging", name)) as file:
            return file.read()

    def test_dashboard_and_alerts_name_metrics_that_exist(self):
        port = support.free_port()
        self.server("--admin", "127.0.0.1:%d" % port, "--flash", "sim:ftl:64m")
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=support.WAIT_SECONDS_MAX) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        samples = {}
        for line in lines:
            name, labels = re.match(r"([a-z0-9_]+)(?:\{(.*)\})?", line).groups()
            samples.setdefault(name, []).append(labels or "")
        board = json.loads(self.file("grafana-dashboard.json"))
        shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
        alerts = self.file("alerts.yml")
        named = 0
        for text in shown + [alerts]:
            for name, labels in re.findall(r"\b(larder_[a-z0-9_]+)(?:\{([^}]*)\})?", text):
                named += 1
                self.assertIn(name, samples, text)
                for label in re.findall(r'[a-z_]+="[^"]*"', labels):
                    self.assertTrue(any(label in each for each in samples[name]), "%s{%s}" % (name, label))
        self.assertGreater(named, 40)
        used = set(re.findall(r"by \(([a-z_, ]+)\)", " ".join(shown) + alerts))
        for label in {label.strip() for labels in used for label in labels.split(",")} - {"instance"}:
            self.assertTrue(any(label + '="' in line for line in lines), label)

    def test_the_unit_is_one_and_its_commands_are_understood(self):
        unit = self.file("larder.service")
        commands = re.findall(r"^Exec(?:Start|Reload)=/usr/bin/larder (.*)$", unit, re.MULTILINE)
        self.assertEqual(len(commands), 2, unit)
        config = os.path.join(support.REPOSITORY, "packaging", "larder.toml")
        for words in commands:
            words = words.replace("/etc/larder/larder.toml", config).split()
            status, shown, problems = command("check-config", "--quiet", *[w for w in words[1:] if w != "--quiet"])
            self.assertEqual((status, shown, problems), (0, "", ""))
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        path = os.path.join(self.folder(), "larder.service")
        with open(path, "w") as file:
            file.write(re.sub("(?m)^Documentation=.*$", "", unit).replace("/usr/bin/larder", program()))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              timeout=support.WAIT_SECONDS_MAX)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_socket_unit_names_what_the_server_knows(self):
        unit = self.file("socket/larder.socket")
        self.assertEqual(re.findall(r"(?m)^FileDescriptorName=(.*)$", unit), ["memcached"])
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        folder = self.folder()
        for name, text in (("larder.socket", unit), ("larder.service", self.file("larder.service"))):
            with open(os.path.join(folder, name), "w") as file:
                file.write(re.sub("(?m)^Documentation=.*$", "", text).replace("/usr/bin/larder", program()))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", os.path.join(folder, "larder.socket")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=support.WAIT_SECONDS_MAX)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_settings_file_names_settings_that_exist(self):
        text = re.sub(r"(?m)^#(?=[a-z\[])", "", self.file("larder.toml"))
        text = text.replace("/etc/larder/users", self.path).replace("/var/lib/larder", self.folder())
        self.write("a:b\n")
        path = self.path + ".all"
        with open(path, "w") as file:
            file.write(text)
        self.assertEqual(command("check-config", "--quiet", "--config", path), (0, "", ""))

    def test_the_image_starts_the_server_with_flags_that_exist(self):
        lines = dict(re.findall(r"(?m)^ *(ENTRYPOINT|CMD) (\[.*\])$", self.file("Containerfile")))
        words = json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"])
        self.assertEqual(words[:2], ["/usr/bin/larder", "serve"])
        self.assertEqual(command("check-config", "--quiet", *words[2:]), (0, "", ""))
        self.assertIn("USER 65532:65532", self.file("Containerfile"))

    def test_man_pages_and_completions_have_every_flag(self):
        folder = self.folder()
        self.assertEqual(command("man", folder), (0, "", ""))
        flags = re.findall(r"(?m)^  (?:-\w, |    )--([a-z-]+)", command("serve", "--help")[1])
        self.assertGreater(len(flags), 60)
        with open(os.path.join(folder, "larder-serve.1")) as file:
            page = file.read().replace("\\-", "-")
        scripts = [command("completions", shell)[1] for shell in ("bash", "zsh", "fish")]
        for flag in flags:
            self.assertIn("--" + flag, page)
            for script in scripts:
                self.assertIn(flag, script)
        self.assertNotIn("memory-file", page)
        for name in ("larder.1", "larder-check-config.1", "larder-plan.1"):
            self.assertIn(name, os.listdir(folder))
        done = subprocess.run(["bash", "-n"], input=scripts[0], text=True,
                              timeout=support.WAIT_SECONDS_MAX)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(command("completions", "csh")[0], 64)

    def test_the_package_is_made_of_files_that_exist(self):
        with open(os.path.join(support.REPOSITORY, "Cargo.toml"), "rb") as file:
            package = tomllib.load(file)["package"]["metadata"]["deb"]
        script = self.file("build-pages.sh")
        for source, at, mode in package["assets"]:
            made = source.startswith("target/packaging/")
            if made:
                self.assertIn(os.path.basename(source).replace("*.1", "/man"), script)
            elif not source.startswith("target/"):
                self.assertTrue(glob.glob(os.path.join(support.REPOSITORY, source)), source)
            self.assertFalse(at.startswith("/"), at)
            self.assertIn(mode, ("644", "755"))
        at = {"/" + at + (os.path.basename(source) if at.endswith("/") else "") for source, at, _ in package["assets"]}
        self.assertLessEqual(set(package["conf-files"]), at)
        for name in os.listdir(os.path.join(support.REPOSITORY, package["maintainer-scripts"])):
            path = os.path.join(support.REPOSITORY, package["maintainer-scripts"], name)
            self.assertEqual(subprocess.run(["sh", "-n", path], timeout=support.WAIT_SECONDS_MAX).returncode, 0)
            self.assertIn("#DEBHELPER#", self.file("debian/" + name))


if __name__ == "__main__":
    unittest.main()
