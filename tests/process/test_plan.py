"""What a running server says of other sizes of its memory: `stats mrc`, `larder plan --server`, the admin page."""

import json
import os
import random
import re
import socket
import threading
import types
import unittest
import urllib.request

import process_support  # noqa: F401 (finds the modules below)
import support
from process_support import Case, larder_only, run_program
from resp_support import ask
from test_report import CHROMIUM, Browser

KEYS = 60000


def read_through(connection, count, keys=KEYS, seed=1, name=b"key"):
    """Reads of random keys, small ones more often; a miss stores the key. Returns how many missed."""
    chance, misses = random.Random(seed), 0
    for _ in range(count // 50):
        asked = sorted({b"%b:%d" % (name, int(keys ** chance.random())) for _ in range(50)})
        connection.send(b"".join(b"get %s\r\n" % key for key in asked))
        stores = []
        for key in asked:
            line = connection.line()
            if line == b"END":
                stores.append(b"set %s 0 0 400 noreply\r\n%s\r\n" % (key, b"v" * 400))
                continue
            connection.read(int(line.split()[3]) + 2)
            assert connection.line() == b"END"
        misses += len(stores)
        connection.send(b"".join(stores) + b"mn\r\n")
        assert connection.line() == b"MN"
    return misses


class Wire:
    """A connection that reads lines and bytes."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=support.WAIT_SECONDS_MAX)
        self.file = self.socket.makefile("rb")

    def send(self, words):
        """Sends all of it."""
        self.socket.sendall(words)

    def line(self):
        """The next line without its end."""
        return self.file.readline().rstrip(b"\r\n")

    def read(self, count):
        """So many bytes."""
        return self.file.read(count)

    def stats(self, topic):
        """The rows of `stats topic`."""
        self.send(b"stats %s\r\n" % topic.encode())
        rows = {}
        while (line := self.line()) != b"END":
            word, name, value = line.decode().split(" ", 2)
            assert word == "STAT", line
            rows[name] = value
        return rows

    def close(self):
        """Ends the connection."""
        self.file.close()
        self.socket.close()


class Plan(Case):
    """Sizing advice of a running server."""

    def loaded(self, *flags, reads=150000):
        """A server of 16 MiB that was read from, and a connection to it."""
        server = self.server("-m", "16", "-t", "2", *flags)
        wire = Wire(server.port)
        self.addCleanup(wire.close)
        self.misses = read_through(wire, reads)

        def is_ready():
            """Whether enough reads were sampled. The sample is random: one of too few of the hot keys takes longer."""
            if wire.stats("mrc")["state"] == "ready":
                return True
            self.misses += read_through(wire, 10000)
            return False
        support.until(is_ready, lambda: wire.stats("mrc"))
        return server, wire

    @larder_only
    def test_the_curve_of_the_traffic(self):
        def whole():
            """A server whose keeper has seen all that its workers noted. On a busy machine pages may be dropped."""
            server, wire = self.loaded()
            if wire.stats("temperature")["reference_pages_dropped"] == "0":
                return wire
            server.stop()
            return None
        wire = support.until(whole, "a keeper that loses no page")
        rows = wire.stats("mrc")
        ratios = [float(rows[size + ":miss_ratio"]) for size in ("0.5x", "1x", "1.5x", "2x", "4x")]
        self.assertEqual(rows["state"], "ready", rows)
        self.assertEqual(int(rows["limit_maxbytes"]), 16 << 20)
        self.assertEqual(int(rows["2x:memory_bytes"]), 32 << 20)
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        self.assertGreater(ratios[0], ratios[-1] + 0.03, "the load asks for more memory than there is")
        since_start = float(rows["miss_ratio_since_start"])
        self.assertAlmostEqual(ratios[1], since_start, delta=0.12)
        curve = [(int(name[6:]), *map(float, value.split())) for name, value in rows.items()
                 if name.startswith("curve:")]
        self.assertEqual([row[0] for row in curve], sorted(row[0] for row in curve))
        self.assertGreater(len(curve), 10)
        times = wire.stats("latency")
        self.assertGreater(int(times["get:count"]), 100000)
        buckets = sum(int(value) for name, value in times.items() if name.startswith("bucket:"))
        self.assertAlmostEqual(buckets, int(times["all:count"]), delta=10)

    def curve_of(self, wire, name):
        """The rows of `stats mrc name` once they rest on enough reads, and the miss ratio by bytes of items."""
        support.until(lambda: wire.stats("mrc " + name)["state"] != "young", "the curve of a tenant")
        rows = wire.stats("mrc " + name)
        self.assertEqual(rows["state"], "ready", rows)
        curve = [(int(of[6:]), float(value.split()[0])) for of, value in rows.items() if of.startswith("curve:")]
        return rows, lambda size: min(ratio for at, ratio in curve if at <= size)

    @larder_only
    def test_the_curves_of_two_tenants(self):
        port = support.free_port()
        server = self.server("-m", "256", "-t", "2", "--namespaces", "small=0-100,large=0-100",
                             "--admin", "127.0.0.1:%d" % port)
        wire = Wire(server.port)
        self.addCleanup(wire.close)
        read_through(wire, 120000, 8000, name=b"small")
        read_through(wire, 120000, 400000, name=b"large")
        (small, small_at), (large, large_at) = self.curve_of(wire, "small"), self.curve_of(wire, "large")
        for name, rows in (("small", small), ("large", large)):
            # Nothing was evicted, so what missed is what every size misses: the first reads of keys.
            self.assertAlmostEqual(float(rows["4x:miss_ratio"]), float(rows["miss_ratio_since_start"]), delta=0.06)
            ratios = [float(rows[size + ":miss_ratio"]) for size in ("0.5x", "1x", "1.5x", "2x", "4x")]
            self.assertEqual(ratios, sorted(ratios, reverse=True))
            self.assertEqual(int(rows["2x:memory_bytes"]), 2 * int(rows["item_bytes"]))
        self.assertGreater(int(large["item_bytes"]), 3 * int(small["item_bytes"]))
        self.assertGreater(large_at(4 << 20), small_at(4 << 20) + 0.1, "the small one has all it needs in 4 MiB")
        samples = [int(rows["sample_bytes"]) for rows in (small, large, wire.stats("mrc"))]
        self.assertLess(sum(samples), (256 << 20) / 500)

        def fetch(path):
            page = "http://127.0.0.1:%d%s" % (port, path)
            with urllib.request.urlopen(page, timeout=support.WAIT_SECONDS_MAX) as answer:
                return answer.read().decode()
        gauge = r'^larder_namespace_expected_miss_ratio\{namespace="(\w+)",memory="2x"\} (\S+)$'
        found = re.findall(gauge, fetch("/metrics"), re.M)
        self.assertEqual([name for name, _ in found], ["large", "small"])
        self.assertAlmostEqual(float(found[0][1]), float(large["2x:miss_ratio"]), delta=0.02)
        curves = json.loads(fetch("/api/curve.json"))["namespaces"]
        young = [(name, curves[name]["young"]) for name in sorted(curves)]
        self.assertEqual(young, [("large", False), ("small", False)])
        self.assertGreater(len(curves["large"]["points"]), 10)
        if CHROMIUM:
            self.choose_on_the_page("http://127.0.0.1:%d/" % port)

        status, text, errors = run_program("plan", "--server", "127.0.0.1:%d" % server.port)
        self.assertEqual((status, errors), (0, ""))
        self.assertRegex(text, r"namespace small: its items take .*: 0.5x \d+\.\d %, 1x \d+\.\d %, 2x")

    @larder_only
    def test_tenants_that_come_and_go(self):
        server = self.server("-m", "256", "-t", "2", "--namespaces", "old=0-100,stays=0-100")
        wire, resp = Wire(server.port), self.connection(server)
        self.addCleanup(wire.close)
        read_through(wire, 100000, 8000, name=b"old")
        read_through(wire, 100000, 8000, name=b"stays")
        before, _ = self.curve_of(wire, "stays")
        self.assertEqual(ask(resp, b"CONFIG", b"SET", b"namespaces", b"new=0-100,stays=0-100"), b"OK")
        for unknown in (b"old", b"nobody", b"stays:1"):
            wire.send(b"stats mrc %b\r\n" % unknown)
            self.assertEqual(wire.line(), b"CLIENT_ERROR no such namespace")
        new = wire.stats("mrc new")
        self.assertEqual((new["state"], new["sampled_reads"], new["sampled_keys"]), ("young", "0", "0"))
        self.assertGreaterEqual(int(wire.stats("mrc stays")["sampled_reads"]), int(before["sampled_reads"]))
        read_through(wire, 100000, 8000, name=b"new")
        self.curve_of(wire, "new")

    @larder_only
    def test_a_server_too_small_for_curves_of_tenants(self):
        wire = Wire(self.server("-m", "64", "-t", "2", "--namespaces", "a=0-100").port)
        self.addCleanup(wire.close)
        rows = wire.stats("mrc a")
        self.assertEqual((rows["state"], "no room" in rows["why"]), ("none", True))
        needed = -(-int(rows["limit_maxbytes_needed"]) >> 20)
        for limit, state in ((needed - 1, "none"), (needed, "young")):
            wire = Wire(self.server("-m", str(limit), "-t", "2", "--namespaces", "a=0-100").port)
            self.addCleanup(wire.close)
            self.assertEqual(wire.stats("mrc a")["state"], state, limit)

    @larder_only
    def test_a_plan_for_a_running_server(self):
        server, _ = self.loaded()
        address = "127.0.0.1:%d" % server.port
        status, text, errors = run_program("plan", "--server", address, "--json", "-", "--target", "5ms")
        self.assertEqual((status, errors), (0, ""))
        report = json.loads(text)
        told = json.dumps(report)
        self.assertIn("recent reads of the server at " + address, told)
        self.assertIn("What the server has now", told)
        self.assertIn("Cheapest at a mean latency of at most 5000 us", told)
        for words in ([], ["--target", "0.2"], ["--backend-latency", "20ms"]):
            status, text, errors = run_program("plan", "--server", address, *words)
            self.assertEqual((status, errors), (0, ""), words)
            self.assertIn("DRAM and flash", text)
            # Figures that a person reads have three digits or so, and sizes have the names of powers of 1024.
            self.assertRegex(text, r"overheads +[\d,.]{1,5} bytes per item in DRAM")
            self.assertNotRegex(text, r"[1-9]\d*\.\d{3}|\d [KMG]B\b|per GB\b")
            self.assertRegex(text, r"\d [KM]iB +")

    @larder_only
    def test_a_server_with_flash(self):
        flash = os.path.join(self.folder(), "flash")
        server, wire = self.loaded("--flash", flash + ":64m", "--flash-memory", "4m", reads=120000)
        self.assertGreater(int(wire.stats("mrc")["flash_bytes"]), 32 << 20)
        status, text, errors = run_program("plan", "--server", "127.0.0.1:%d" % server.port)
        self.assertEqual((status, errors), (0, ""))
        self.assertRegex(text, r"flash: [\d,]+ of [\d,]+ lookups on it hit")

    @larder_only
    def test_a_server_that_cannot_be_planned_for(self):
        nobody = "127.0.0.1:%d" % support.free_port()
        status, text, errors = run_program("plan", "--server", nobody)
        self.assertEqual((status, text), (2, ""))
        self.assertIn("no server at " + nobody, errors)
        young = self.server("-m", "16")
        status, text, errors = run_program("plan", "--server", "127.0.0.1:%d" % young.port)
        self.assertEqual((status, text), (1, ""))
        self.assertIn("too young", errors)
        stranger = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(stranger.close)

        def answer():
            client = stranger.accept()[0]
            client.recv(100)
            client.sendall(b"-ERR unknown command 'stats'\r\n")
            client.close()
        threading.Thread(target=answer, daemon=True).start()
        status, text, errors = run_program("plan", "--server", "127.0.0.1:%d" % stranger.getsockname()[1])
        self.assertEqual((status, text), (1, ""))
        self.assertIn("not Larder", errors)
        for text in (errors, run_program("plan", "--server", nobody, "--target", "fast")[2]):
            self.assertEqual(len(text.strip().splitlines()), 1, text)

    def choose_on_the_page(self, address):
        """The page has the two tenants, and draws the curve of the one that is chosen."""
        browser = Browser(os.path.join(self.folder(), "profile"))
        self.addCleanup(browser.close)
        browser.open(types.SimpleNamespace(as_uri=lambda: address), 1400)
        line = "document.querySelector('#curve path')?.getAttribute('d')"

        def until(script, is_there=bool):
            support.until(lambda: is_there(browser.ask(script)), script)
            return browser.ask(script)
        whole = until(line)
        cells = "[...document.querySelectorAll('#namespaces tbody tr')].map((row) => row.cells[%d].textContent)"
        self.assertEqual(until(cells % 0), ["large", "small"])
        self.assertEqual(browser.ask("[...document.querySelector('#curve-of').options].map((one) => one.value)"),
                         ["", "large", "small"])
        browser.ask("document.querySelector('#curve-of').value = 'small'")
        small = until(line, lambda found: found not in (None, whole))
        self.assertNotIn(small, (None, whole))
        self.assertEqual(browser.ask("document.querySelector('#curve-of').value"), "small")
        until("document.querySelectorAll('#sizes tbody tr').length", lambda count: count == 5)
        self.assertLessEqual(browser.ask("document.documentElement.scrollWidth"), 1400)
        self.assertEqual(browser.complaints, [])

    def look_at_the_page(self, address):
        """The page draws the curve and the history without a complaint."""
        browser = Browser(os.path.join(self.folder(), "profile"))
        self.addCleanup(browser.close)
        browser.open(types.SimpleNamespace(as_uri=lambda: address), 1400)
        drawn = "document.querySelectorAll('%s path[d^=M]').length"
        rows = "document.querySelectorAll('%s tbody tr').length"
        for script, least in ((drawn % "#charts", 6), (drawn % "#curve", 1), (rows % "#sizes", 5),
                              (rows % "#leaving", 5)):
            support.until(lambda: browser.ask(script) >= least, script)
        self.assertEqual((browser.ask(drawn % "#curve"), browser.ask(rows % "#sizes")), (1, 5))
        self.assertLessEqual(browser.ask("document.documentElement.scrollWidth"), 1400)
        self.assertEqual(browser.complaints, [])

    @larder_only
    def test_metrics_curve_and_history_over_http(self):
        port = support.free_port()
        _, wire = self.loaded("--admin", "127.0.0.1:%d" % port, reads=60000)
        self.addCleanup(wire.close)

        def fetch(path):
            page = "http://127.0.0.1:%d%s" % (port, path)
            with urllib.request.urlopen(page, timeout=support.WAIT_SECONDS_MAX) as answer:
                return answer.read().decode()
        found = dict(re.findall(r'^larder_expected_miss_ratio\{memory="([^"]+)"\} (\S+)$', fetch("/metrics"), re.M))
        self.assertEqual(sorted(found), ["0.5x", "1.5x", "1x", "2x", "4x"])
        self.assertLessEqual(float(found["4x"]), float(found["0.5x"]))
        curve = json.loads(fetch("/api/curve.json"))
        self.assertEqual((curve["limit_bytes"], curve["young"]), (16 << 20, False))
        self.assertGreater(len(curve["points"]), 10)

        def history():
            read_through(wire, 2000)
            found = json.loads(fetch("/history"))
            return found["rows"] and found
        history = support.until(history, "a row of the history")
        rows = history["rows"]
        if CHROMIUM:
            self.look_at_the_page("http://127.0.0.1:%d/" % port)
        newest = dict(zip(history["columns"], rows[-1]))
        self.assertGreater(newest["requests_per_s"], 0)
        self.assertTrue(0 < newest["hit_ratio"] <= 1, newest)
        self.assertGreater(newest["items"], 100)


if __name__ == "__main__":
    unittest.main()
