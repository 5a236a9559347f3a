"""`larder replay` against Larder, memcached and Redis, and against servers that go away or lie."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import unittest

import support
from process_support import Case, is_at_work, is_larder, program

LARDER = program() if is_larder() else support.DEFAULT_COMMAND.split()[0]
REPLAY = [LARDER, "replay"]
RUN_SECONDS_MAX = 120.0
LOAD = ["--connections", "4", "--depth", "16"]
ZIPFIAN = "zipfian:keys=10k,requests=%s,theta=0.99,sizes=fixed:100,seed=1"


def needs(program):
    """Skips a test where a program is not installed; in CI the test runs and fails."""
    return unittest.skipUnless(shutil.which(program) or support.in_ci(), program + " is not installed")


def tables_of(report):
    """The tables of a report in JSON, by title: a list of rows, each a dictionary by column."""
    found = {}
    waiting = [report]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if "columns" in part and "rows" in part:
                found[part["title"]] = [dict(zip(part["columns"], row)) for row in part["rows"]]
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return found


class Replayed:
    """A run of `larder replay` that has ended."""

    def __init__(self, process):
        self.output, self.errors = process.communicate(timeout=RUN_SECONDS_MAX)
        self.status = process.returncode
        self.tables = tables_of(json.loads(self.output)) if self.output.startswith("{") else {}

    def total(self, column):
        """A figure of the whole run."""
        return self.tables["totals"][0][column]

    def done(self, operation):
        """How many requests of an operation there were, and how many of them were done."""
        for row in self.tables["latency by operation"]:
            if row["operation"] == operation:
                return row["requests"], row["done"]
        return 0, 0

    def wrong(self):
        """How often which thing went wrong."""
        rows = self.tables.get("what went wrong, in all phases", [])
        return {row["what"]: row["count"] for row in rows}


def begin(server, *arguments):
    """Starts a replay whose report goes to standard output as JSON."""
    command = REPLAY + ["--server", server, "--json", "-"] + list(arguments)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def replay(server, *arguments):
    """A replay, run to its end."""
    return Replayed(begin(server, *arguments))


class Redis:
    """A Redis server on a free port and a UNIX socket."""

    def __init__(self, folder, *flags):
        self.port = support.free_port()
        self.path = os.path.join(folder, "redis.sock")
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.path, "--save", "",
             "--appendonly", "no", "--dir", folder] + list(flags),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        support.path_connection(self.path).close()

    def stop(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()


class Replay(Case):
    """What every server must pass, and what is told of those that do not."""

    def check(self, replayed, requests):
        """Nothing went wrong, and everything was answered."""
        self.assertEqual((replayed.status, replayed.errors), (0, ""))
        self.assertEqual(replayed.total("requests"), requests)
        self.assertEqual(replayed.total("errors"), 0)

    def wait_until_asked(self, server, keys):
        """Returns once the server has been asked for so many keys."""
        def is_asked():
            with server.connect() as connection:
                return int(connection.stats()[b"cmd_get"]) >= keys
        # The listening socket of a server that was killed may outlive it for a moment.
        support.until(lambda: support.until_no_error(is_asked, (OSError, support.Closed)), "the replay asks")

    def all_operations(self):
        """A trace with every operation, on few keys, so that they meet."""
        path = os.path.join(self.folder(), "operations.csv")
        operations = ["get", "set", "add", "replace", "cas", "append", "prepend", "delete", "incr", "decr", "gets"]
        with open(path, "w", encoding="utf-8") as file:
            for at in range(11000):
                operation = operations[(at * 7 + at // 11) % len(operations)]
                counter = operation in ("incr", "decr") or (operation == "set" and at % 2 == 0)
                key = "key-%04d" % (at * 31 % 97 + (100 if counter else 0))
                size = [5, 40, 300][at % 3]
                file.write("%d,%s,8,%d,1,%s,%d\n" % (at // 1000, key, size, operation, at % 2 * 3600))
        return path

    def everything_against(self, address, *flags):
        """A workload that reads through, and a trace with all operations."""
        loaded = replay(address, "--workload", ZIPFIAN % "100k", "--load", "--key-prefix", "l:", *LOAD, *flags)
        self.check(loaded, 100000)
        self.assertEqual(loaded.total("hit ratio"), 1.0)
        self.assertEqual(loaded.tables["values read"][0]["found right"], 100000)
        through = replay(address, "--workload", ZIPFIAN % "100k", "--read-through", "--key-prefix", "r:", *LOAD, *flags)
        self.check(through, 100000)
        self.assertGreater(through.total("hit ratio"), 0.8)
        self.assertEqual(*through.done("fill"))
        trace = replay(address, self.all_operations(), "--format", "twitter", "--ttls", "--key-prefix", "o:", *LOAD,
                       *flags)
        self.check(trace, 11000)
        for operation in ("set", "add", "append", "delete", "incr", "decr"):
            self.assertGreater(trace.done(operation)[1], 0, operation)

    def test_larder(self):
        server = support.Server(LARDER + " serve")
        self.addCleanup(server.__exit__)
        self.everything_against("127.0.0.1:%d" % server.port, "--threads", "2")

    @needs("memcached")
    def test_memcached(self):
        server = support.Server("memcached")
        self.addCleanup(server.__exit__)
        self.everything_against("127.0.0.1:%d" % server.port)

    @needs("redis-server")
    def test_redis_with_a_password_and_a_database(self):
        folder = self.folder()
        server = Redis(folder, "--requirepass", "open sesame")
        self.addCleanup(server.stop)
        password, wrong = os.path.join(folder, "password"), os.path.join(folder, "wrong")
        for path, text in ((password, "open sesame\n"), (wrong, "sesame\n")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        login = ["--password-file", password, "--database", "3"]
        self.everything_against("127.0.0.1:%d" % server.port, *login)
        over_unix = replay(server.path, "--workload", ZIPFIAN % "10k", "--load", *login)
        self.check(over_unix, 10000)
        refused = replay(server.path, "--workload", ZIPFIAN % "10k", "--password-file", wrong)
        self.assertEqual(refused.status, 2)
        self.assertIn("the login was refused", refused.errors)

    def test_unix_socket_and_hdr_log(self):
        folder = self.folder()
        path, log = os.path.join(folder, "larder.sock"), os.path.join(folder, "log.hdr")
        server = support.Server(LARDER + " serve", ["-s", path], wait=False)
        self.addCleanup(server.__exit__)
        support.path_connection(path).close()
        self.check(replay(path, "--workload", ZIPFIAN % "20k", "--read-through", "--hdr", log, *LOAD), 20000)
        with open(log, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertTrue(any(line.startswith("Tag=get,") for line in lines), lines[:5])

    def test_an_open_loop_keeps_its_rate(self):
        server = support.Server(LARDER + " serve")
        self.addCleanup(server.__exit__)
        played = replay("127.0.0.1:%d" % server.port, "--workload", ZIPFIAN % "100k", "--load", "--rate", "2000",
                        "--warmup", "0.5s", "--seconds", "2", "--repeat", "0", *LOAD)
        self.assertEqual((played.status, played.errors), (0, ""))
        # What was due before may be sent behind its time, and nothing is sent before its time.
        self.assertLess(played.total("requests"), 2000 * 2.5 + 100)
        self.assertGreater(played.total("requests"), 0)

    def test_a_server_that_is_not_there(self):
        played = replay("127.0.0.1:%d" % support.free_port(), "--workload", ZIPFIAN % "1k")
        self.assertEqual((played.status, played.output), (2, ""))
        self.assertEqual(len(played.errors.splitlines()), 1)

    def test_a_server_that_is_killed_and_comes_back(self):
        first = support.Server(LARDER + " serve")
        self.addCleanup(first.__exit__)
        # The replay ends with its requests, which the second server has to answer.
        running = begin("127.0.0.1:%d" % first.port, "--workload", ZIPFIAN % "20k", "--read-through", "--rate", "5000",
                        *LOAD)
        self.wait_until_asked(first, 1000)
        first.stop(signal.SIGKILL)
        second = support.Server(LARDER + " serve", port=first.port)
        self.addCleanup(second.__exit__)
        self.wait_until_asked(second, 1000)
        played = Replayed(running)
        self.assertEqual(played.status, 1)
        self.assertTrue({"closed by the server", "reset"} & set(played.wrong()), played.wrong())

    def test_a_server_that_is_killed_for_good(self):
        server = support.Server(LARDER + " serve")
        self.addCleanup(server.__exit__)
        running = begin("127.0.0.1:%d" % server.port, "--workload", ZIPFIAN % "100k", "--rate", "5000",
                        "--seconds", "30", "--repeat", "0", "--give-up", "1", *LOAD)
        self.wait_until_asked(server, 100)
        server.stop(signal.SIGKILL)
        played = Replayed(running)
        self.assertEqual(played.status, 2)
        self.assertIn("given up", played.errors)

    def test_a_server_that_lies(self):
        with contextlib.closing(Liar()) as liar:
            played = replay("127.0.0.1:%d" % liar.port, "--workload", ZIPFIAN % "1k", "--connections", "1")
        self.assertEqual(played.status, 1)
        self.assertEqual(played.wrong(), {"wrong bytes": 1000})
        self.assertIn("1000 x wrong bytes", played.errors)

    def ended_by(self, signal_number, begun, *arguments):
        """What a command reports that a signal ends once `begun` is true: (status, report, errors)."""
        process = subprocess.Popen([LARDER, *arguments, "--json", "-"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        support.until(lambda: begun(process), "the command has begun")
        process.send_signal(signal_number)
        output, errors = process.communicate(timeout=RUN_SECONDS_MAX)
        return process.returncode, json.loads(output) if output else None, errors

    def check_incomplete(self, report):
        """The report says in its title and first of all facts that it is incomplete."""
        report = report.get("report", report)
        self.assertTrue(report["title"].endswith(" (incomplete)"), report["title"])
        self.assertEqual(report["facts"][0][0], "incomplete")
        self.assertRegex(report["facts"][0][1], r"^interrupted after [1-9][\d,]* (requests|reads)")

    def test_an_interrupted_replay_reports_what_it_has(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            server = support.Server(LARDER + " serve")
            self.addCleanup(server.__exit__)
            found, report, errors = self.ended_by(
                number, lambda _, server=server: self.wait_until_asked(server, 1000) or True, "replay", "--server",
                "127.0.0.1:%d" % server.port, "--workload", ZIPFIAN % "1g", "--rate", "5000", "--read-through", *LOAD)
            self.assertEqual(found, status, errors)
            self.assertRegex(errors, r"^larder: interrupted after [\d,]+ requests: the report is incomplete\n$")
            self.check_incomplete(report)
            self.assertGreater(tables_of(report)["totals"][0]["requests"], 0)

    def test_an_interrupted_simulation_or_curve_reports_what_it_has(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for words in (["simulate", "--policies", "lru,sieve", "--sizes", "100"], ["mrc"],
                          ["plan", "--item-bytes", "100"], ["trace", "inspect"]):
                with self.subTest(words=words, status=status):
                    found, report, errors = self.ended_by(number, is_at_work, *words, "--workload", ZIPFIAN % "1g")
                    self.assertEqual(found, status, errors)
                    self.assertRegex(errors, r"^larder: interrupted after [\d,]+ re\w+, [\d.]+ % of the trace: ")
                    self.check_incomplete(report)

    def test_an_interrupted_check_of_a_workload_reports_what_it_has(self):
        found, report, errors = self.ended_by(signal.SIGHUP, is_at_work, "workload", ZIPFIAN % "1g", "--check")
        self.assertEqual(found, 129, errors)
        self.assertRegex(errors, r"^larder: interrupted after [\d,]+ requests, [\d.]+ % of the trace: the report")
        self.check_incomplete(report)

    def test_an_interrupted_conversion_leaves_the_requests_that_it_has_read(self):
        for words in (["workload", ZIPFIAN % "1g"], ["trace", "convert", "--workload", ZIPFIAN % "1g"],
                      ["trace", "sample", "--rate", "0.5", "--workload", ZIPFIAN % "1g"]):
            with self.subTest(words=words):
                out = os.path.join(self.folder(), "trace.csv")
                process = subprocess.Popen([LARDER, *words, out], stdin=subprocess.DEVNULL, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(process.kill)
                support.until(lambda process=process: is_at_work(process), "the command has begun")
                process.send_signal(signal.SIGINT)
                output, errors = process.communicate(timeout=RUN_SECONDS_MAX)
                self.assertEqual(process.returncode, 130, errors)
                done = re.match(r"larder: interrupted after ([\d,]+) requests, [\d.]+ % of the trace: the trace is "
                                r"incomplete\n$", errors)
                self.assertTrue(done, errors)
                with open(out) as file:
                    self.assertEqual(sum(1 for _ in file) - 1, int(done[1].replace(",", "")))
                self.assertIn("trace.csv: %s requests" % done[1].replace(",", ""), output)
                self.assertEqual(os.listdir(os.path.dirname(out)), ["trace.csv"], "nothing temporary is left")

    def test_a_simulation_that_is_interrupted_before_it_begins_reports_nothing(self):
        # The sizes are shares, so the keys are counted first.
        found, report, errors = self.ended_by(signal.SIGINT, is_at_work, "simulate", "--policies", "lru", "--sizes",
                                              "1%", "--workload", ZIPFIAN % "1g")
        self.assertEqual((found, report), (130, None))
        self.assertEqual(errors, "larder: interrupted before anything was measured\n")

    def test_a_command_line_that_cannot_be_obeyed(self):
        for arguments in (["--workload", ZIPFIAN % "1k", "--rate", "5", "--speed", "2"],
                          ["--workload", ZIPFIAN % "1k", "--seconds", "soon"], []):
            played = replay("127.0.0.1:1", *arguments)
            self.assertEqual((played.status, played.output), (64, ""))
            self.assertTrue(played.errors.startswith("larder: "), played.errors)


class Liar:
    """Answers every get with a value that was never stored."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        """Talks with each who comes."""
        with contextlib.suppress(OSError):
            while True:
                talk = self.listener.accept()[0]
                threading.Thread(target=self.talk, args=(talk,), daemon=True).start()

    @staticmethod
    def talk(connection):
        """One connection."""
        with connection, connection.makefile("rwb") as stream, contextlib.suppress(OSError):
            for line in stream:
                words = line.split()
                if words[0] == b"version":
                    stream.write(b"VERSION 0\r\n")
                else:
                    stream.write(b"VALUE %b 0 5\r\nnever\r\nEND\r\n" % words[1])
                stream.flush()

    def close(self):
        """Listens no longer."""
        self.listener.close()
