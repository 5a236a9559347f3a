"""The admin page: metrics, health."""

import http.client
import os
import re
import socket
import sys
import unittest
import urllib.error
import urllib.request

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tidy"))

import support  # noqa: E402
import wording  # noqa: E402
from process_support import Case, larder_only  # noqa: E402

SAMPLE = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^}]*\})? [-+0-9.eEInfNa]+$")


class Admin(Case):
    """`--admin 127.0.0.1:PORT`."""

    def setUp(self):
        self.port = support.free_port()

    def fetch(self, path):
        """(status, text) of a page."""
        try:
            page = "http://127.0.0.1:%d%s" % (self.port, path)
            with urllib.request.urlopen(page, timeout=support.WAIT_SECONDS_MAX) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @larder_only
    def test_health(self):
        self.server("--admin", "127.0.0.1:%d" % self.port)
        status, text = self.fetch("/healthz")
        self.assertEqual((status, text.strip()), (200, "ok"))

    @larder_only
    def test_a_name_that_is_not_this_machines_is_not_answered(self):
        self.server("--admin", "127.0.0.1:%d" % self.port, "--admin-host", "cache-1.example")

        def status(host):
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=support.WAIT_SECONDS_MAX)
            client.putrequest("GET", "/metrics", skip_host=True)
            if host is not None:
                client.putheader("Host", host)
            client.endheaders()
            try:
                return client.getresponse().status
            finally:
                client.close()
        for host in ("127.0.0.1:%d" % self.port, "localhost", "cache-1.example:80", socket.gethostname()):
            self.assertEqual(status(host), 200, host)
        for host in ("evil.example", "evil.example:%d" % self.port, "127.0.0.1.evil.example"):
            self.assertEqual(status(host), 421, host)

    @larder_only
    def test_metrics(self):
        server = self.server("--admin", "127.0.0.1:%d" % self.port)
        connection = self.connection(server)
        connection.set(b"a", b"x")
        connection.get(b"a")
        connection.get(b"absent")
        status, text = self.fetch("/metrics")
        families = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
        self.assertEqual(len(families), len(set(families)), sorted(families))
        self.assertEqual(status, 200)
        self.assertIn("# TYPE larder_", text)
        self.assertRegex(text, r'(?m)^larder_build_info\{version="[0-9.]+",arch="\w+"\} 1$')
        for line in text.splitlines():
            if line and not line.startswith("#"):
                self.assertRegex(line, SAMPLE)

    @larder_only
    def test_the_help_of_each_metric_can_be_understood_by_itself(self):
        drives = ["--flash", "sim:open-channel:64m", "--flash", "sim:ftl:64m"]
        self.server("--admin", "127.0.0.1:%d" % self.port, *drives)
        helps = re.findall(r"^# HELP (\S+) (.*)$", self.fetch("/metrics")[1], re.MULTILINE)
        self.assertGreater(len(helps), 100)
        wrong = ["%s: %s: %s" % (name, text, wording.wrong_in_metric(text)) for name, text in helps]
        self.assertEqual([line for line in wrong if not line.endswith(": None")], [])

    @larder_only
    def test_names_are_as_prometheus_wants_them(self):
        """What `promtool check metrics` looks at."""
        self.server("--admin", "127.0.0.1:%d" % self.port, "--flash", "sim:ftl:64m", "--namespaces", "a=10-50")
        families = re.findall(r"^# TYPE (\S+) (\S+)$", self.fetch("/metrics")[1], re.MULTILINE)
        for name, kind in families:
            words = name.split("_")
            self.assertEqual(kind == "counter", words[-1] == "total", name)
            self.assertRegex(name, "^(larder|process)_[a-z0-9_]+$")
            self.assertNotIn(words[-1], ("count", "sum", "bucket", "info") if kind != "gauge" else ("sum", "bucket"))
            self.assertFalse({"counter", "gauge", "histogram", "s", "ms", "us", "ns", "kb", "mb", "milliseconds",
                              "microseconds", "minutes", "hours", "percent"} & set(words), name)
        names = [name for name, _ in families]
        for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
                     "process_open_fds", "process_max_fds", "larder_keeper_cpu_seconds_total"):
            self.assertIn(name, names)

    @larder_only
    def test_a_page_that_does_not_exist(self):
        self.server("--admin", "127.0.0.1:%d" % self.port)
        self.assertEqual(self.fetch("/nothing")[0], 404)

    @larder_only
    def test_the_admin_page_ends_with_the_server(self):
        server = self.server("--admin", "127.0.0.1:%d" % self.port)
        self.assertEqual(self.fetch("/healthz")[0], 200)
        self.assertEqual(server.stop(), 0)
        with self.assertRaises(OSError):
            self.fetch("/healthz")


if __name__ == "__main__":
    unittest.main()
