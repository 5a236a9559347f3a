"""Namespaces over real sockets: shares under a flood, counters, lifetimes, and changes while the server runs."""

import urllib.request

import support
from process_support import Case, larder_only, run_to_end
from resp_support import ask

VALUE = b"v" * 400
QUIET = 20_000


@larder_only
class Tenants(Case):
    """Two tenants of one server."""

    def fill(self, connection, name, count):
        """Stores so many items of a tenant."""
        for start in range(0, count, 200):
            connection.send(b"".join(b"set %b:%d 0 0 %d noreply\r\n%b\r\n" % (name, number, len(VALUE), VALUE)
                                     for number in range(start, start + 200)))
            self.assertEqual(connection.ask(b"mn"), b"MN")

    def found(self, connection, name, count):
        """How many of them are there."""
        found = 0
        for start in range(0, count, 100):
            connection.send(b"get " + b" ".join(b"%b:%d" % (name, number) for number in range(start, start + 100))
                            + b"\r\n")
            while connection.line() != b"END":
                connection.exactly(len(VALUE) + 2)
                found += 1
        return found

    def flooded(self, *flags):
        """What is left of a quiet tenant after a flood by another one, and a connection to the server."""
        connection = self.connection(self.server("-m", "64", "-t", "2", *flags))
        self.fill(connection, b"quiet", QUIET)
        self.fill(connection, b"loud", 400_000)
        return self.found(connection, b"quiet", QUIET), connection

    def test_a_flood_and_a_share(self):
        left, _ = self.flooded()
        self.assertLess(left, QUIET // 2)
        left, connection = self.flooded("--namespaces", "quiet=40-100")
        self.assertGreaterEqual(left, QUIET * 97 // 100)
        stats = connection.stats(b"namespaces")
        self.assertEqual(stats[b"namespaces"], b"1")
        self.assertEqual((stats[b"quiet:gets"], stats[b"quiet:sets"]), (b"%d" % QUIET, b"%d" % QUIET))
        self.assertEqual(int(stats[b"quiet:hits"]), left)
        self.assertEqual(stats[b"quiet:hit_percent"], b"%.2f" % (left * 100 / QUIET))
        self.assertLess(abs(int(stats[b"quiet:items"]) - left), QUIET // 10)
        self.assertLess(int(stats[b"quiet:evictions"]), QUIET // 30)

    def test_changes_while_it_runs(self):
        server = self.server("--namespaces", "a=10-50/100")
        connection, resp = self.connection(server), self.connection(server)
        connection.set(b"a:1", b"v")
        connection.set(b"b:1", b"v", exptime=5000)
        self.assertIn(connection.ask(b"mg a:1 t"), (b"HD t100", b"HD t99"))
        self.assertEqual(connection.ask(b"mg a:2 v"), b"EN")
        self.assertEqual(connection.ask(b"touch a:1 1000"), b"TOUCHED")
        self.assertIn(connection.ask(b"mg a:1 t"), (b"HD t100", b"HD t99"))
        self.assertEqual(ask(resp, b"CONFIG", b"SET", b"namespaces", b"a=0-100,b=0-30/200"), b"OK")
        self.assertEqual(ask(resp, b"CONFIG", b"GET", b"namespaces"),
                         [b"namespaces", b"a=0-100,b=0-30/200"])
        connection.set(b"a:1", b"v")
        connection.set(b"b:1", b"v")
        self.assertEqual(connection.ask(b"mg a:1 t"), b"HD t-1")
        self.assertIn(connection.ask(b"mg b:1 t"), (b"HD t200", b"HD t199"))
        self.assertEqual(ask(resp, b"GET", b"b:1"), b"v")
        stats = connection.stats(b"namespaces")
        self.assertEqual((stats[b"a:gets"], stats[b"a:hits"], stats[b"b:gets"]), (b"4", b"3", b"2"))
        for wrong in (b"a=50-40", b"a=90-100", b"a", b"=1-2", b"a=1-2,a=1-2"):
            self.assertTrue(ask(resp, b"CONFIG", b"SET", b"namespaces", wrong).startswith(b"-ERR"), wrong)
        self.assertEqual(ask(resp, b"CONFIG", b"SET", b"namespaces", b""), b"OK")
        self.assertEqual(connection.stats(b"namespaces"), {b"namespaces": b"0"})

    def test_metrics(self):
        port = support.free_port()
        server = self.server("--namespaces", "a=10-50", "--admin", "127.0.0.1:%d" % port)
        connection = self.connection(server)
        connection.set(b"a:1", b"v")
        self.assertEqual(connection.get(b"a:1"), b"v")
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=support.WAIT_SECONDS_MAX) as reply:
            text = reply.read().decode()
        self.assertIn('larder_namespace_hits_total{namespace="a"} 1\n', text)
        self.assertIn("# HELP larder_namespace_memory_bytes ", text)

    def test_a_wrong_list(self):
        status, _, error = run_to_end("--namespaces", "a=60-70,b=30-40")
        self.assertNotEqual(status, 0)
        self.assertIn("90 percent", error)
