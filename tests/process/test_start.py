"""The command line, how the server starts, and how it stops."""

import os
import re
import signal
import socket
import stat
import subprocess
import unittest

import process_support
import support
from process_support import Case, larder_only, run_to_end


class Refusals(Case):
    """What cannot be obeyed ends at once, with one line on stderr that says what to do."""

    def refused(self, *arguments, says=()):
        """Fails unless the server refuses the arguments; `says` are words of which one must be in the line."""
        port = [] if "-p" in arguments else ["-p", str(support.free_port())]
        status, _, errors = run_to_end(*port, *arguments)
        lines = [line for line in errors.splitlines() if line.strip()]
        self.assertNotEqual(status, 0, errors)
        self.assertLess(status, 128, "ended by a signal or a panic: " + errors)
        self.assertTrue(lines, "nothing on stderr")
        if process_support.is_larder():
            self.assertEqual(len(lines), 1, errors)
            self.assertGreater(len(lines[0]), 20, "too short to help: " + errors)
            self.assertNotIn("panicked", errors)
            if says:
                self.assertTrue(any(word in lines[0] for word in says), errors)

    def test_an_unknown_flag(self):
        self.refused("--nonsense", says=["--nonsense", "nonsense"])

    def test_no_connections(self):
        self.refused("-c", "0", says=["-c"])

    def test_no_threads(self):
        self.refused("-t", "0", says=["-t"])

    def test_items_of_less_than_a_kilobyte(self):
        self.refused("-I", "1000", says=["-I"])

    def test_items_of_more_than_a_gigabyte(self):
        self.refused("-m", "8192", "-I", "2g", says=["-I"])

    def test_items_of_more_than_half_the_memory(self):
        self.refused("-m", "64", "-I", "64m", says=["-I"])

    def test_a_protocol_that_does_not_exist(self):
        self.refused("-B", "http", says=["-B"])

    def test_an_address_that_is_none(self):
        self.refused("-l", "not an address", says=["-l", "not an address"])

    def test_an_address_of_another_machine(self):
        self.refused("-l", "192.0.2.1", says=["192.0.2.1"])

    def test_a_port_beyond_the_last(self):
        self.refused("-p", "99999", says=["-p"])

    @larder_only
    def test_a_port_that_is_no_number(self):
        self.refused("-p", "abc", says=["-p"])

    def test_an_extended_option_that_does_not_exist(self):
        self.refused("-o", "nonsense", says=["nonsense"])

    def test_an_auth_file_that_is_absent(self):
        self.refused("-Y", os.path.join(self.folder(), "absent"), says=["absent"])

    @larder_only
    def test_an_admin_address_that_is_none(self):
        self.refused("--admin", "nowhere", says=["admin"])

    @larder_only
    def test_a_settings_file_that_is_absent(self):
        self.refused("--config", os.path.join(self.folder(), "absent.toml"), says=["absent.toml"])

    @larder_only
    def test_a_settings_file_that_is_no_toml(self):
        path = os.path.join(self.folder(), "bad.toml")
        with open(path, "w") as file:
            file.write("threads = 2\nport 1\n")
        self.refused("--config", path, says=["line 2"])

    @larder_only
    def test_a_setting_that_does_not_exist(self):
        path = os.path.join(self.folder(), "bad.toml")
        with open(path, "w") as file:
            file.write("thread = 2\n")
        self.refused("--config", path, says=["threads"])

    @larder_only
    def test_huge_pages_that_are_not_reserved(self):
        with open("/proc/sys/vm/nr_hugepages") as file:
            if int(file.read()) > 0:
                self.skipTest("this machine has reserved huge pages")
        self.refused("-m", "64", "--pages", "huge", says=["vm.nr_hugepages"])

    @larder_only
    def test_more_memory_at_once_than_the_machine_has(self):
        with open("/proc/meminfo") as file:
            total_kib = int(re.search(r"MemTotal: +(\d+)", file.read()).group(1))
        self.refused("-m", f"{total_kib}k", "--prefault", says=["available"])

    @larder_only
    def test_more_workers_than_memory_for_them(self):
        for mebibytes, threads in (("64", "1024"), ("64", "200"), ("8", "64")):
            status, _, errors = run_to_end("-m", mebibytes, "-t", threads)
            self.assertNotEqual(status, 0)
            self.assertIn("worker threads (-t)", errors.strip().splitlines()[-1])

    def test_a_busy_port(self):
        first = self.server()
        status, _, errors = run_to_end("-p", str(first.port), *(
            ["-u", "root"] if not process_support.is_larder() else []))
        self.assertNotEqual(status, 0)
        self.assertTrue(errors.strip())
        if process_support.is_larder():
            self.assertEqual(len(errors.strip().splitlines()), 1, errors)
            self.assertIn(str(first.port), errors)
        self.assertTrue(self.connection(first).ask(b"version").startswith(b"VERSION"))


    @larder_only
    def test_a_port_of_resp_that_is_not_its_own(self):
        port = str(support.free_port())
        for flags in (("-p", port), ("-l", "127.0.0.1:" + port)):
            status, _, errors = run_to_end("--resp-port", port, *flags)
            self.assertNotEqual(status, 0)
            self.assertIn("port %s is that of --resp-port and that of -p (or -l)" % port, errors)


class Messages(Case):
    """What a server says when it starts: where it listens, and what its user may not want."""

    def said(self, *flags):
        """What a server says that starts with these flags."""
        server = self.server(*flags)
        self.assertEqual(self.connection(server).ask(b"mn"), b"MN")
        return server, server.error_text()

    @larder_only
    def test_where_it_listens(self):
        path = os.path.join(self.folder(), "socket")
        server, said = self.said("-l", "127.0.0.1", "--admin", "127.0.0.1:0")
        at = r"listening on 127\.0\.0\.1:%d: 64 MiB, 2 workers.*http://127\.0\.0\.1:\d+" % server.port
        self.assertRegex(said, at)
        self.assertNotIn("every machine", said)
        other = self.server("-s", path, wait=False)
        self.until_said(other, "listening on " + path)

    @larder_only
    def test_that_it_listens_everywhere(self):
        users = os.path.join(self.folder(), "users")
        with open(users, "w") as file:
            file.write("ada:lovelace\n")
        _, said = self.said()
        self.assertIn("only clients of this machine are served: for others name addresses with -l", said)
        for flags in (("--open",), ("-l", "0.0.0.0")):
            self.assertIn("every machine that reaches this one may read and change all items", self.said(*flags)[1])
        asks = self.server("-Y", users)
        self.assertNotIn("every machine", asks.error_text())

    @larder_only
    def test_flags_of_tls_without_tls(self):
        for flags in (("--tls-verify", "request"), ("--tls-min-version", "1.3"), ("-o", "ssl_ca_cert=/no/such.pem")):
            self.assertIn("nothing is encrypted, though a flag of TLS", self.said(*flags)[1])
        self.assertNotIn("encrypted", self.said()[1])

    @larder_only
    def test_slots_of_a_fleet_that_nobody_has(self):
        path = os.path.join(self.folder(), "larder.toml")
        server, said = None, ""
        for slots, expected in (("0-8191,8193-16000", "gives 384 of 16384 slots to no server (8192,16001-16383)"),
                                ("0-9", "gives 16374 of 16384 slots to no server (10-16383)"),
                                ("0-16383", "was read again: 1 servers")):
            with open(path, "w") as file:
                file.write('[fleet]\nself = "a"\n[[fleet.node]]\nname = "a"\nhost = "127.0.0.1"\n')
                file.write('slots = "%s"\n' % slots)
            if server is None:
                server, said = self.said("--config", path)
            else:
                server.process.send_signal(signal.SIGHUP)
                said = self.until_said(server, expected)
            self.assertIn(expected, said)
        self.assertEqual(said.count("to no server"), 2)

    @larder_only
    def test_a_password_that_is_nearly_a_digest(self):
        path = os.path.join(self.folder(), "users")
        with open(path, "w") as file:
            file.write("ada:#%s\nalan:#%s\n" % ("0a" * 32, "0a" * 31 + "0g"))
        server = self.server("-Y", path)
        self.assertEqual(server.error_text().count("the password begins with # and is no digest"), 1)
        self.assertIn("users:2: ", server.error_text())

    @larder_only
    def test_what_is_read_again(self):
        path = os.path.join(self.folder(), "users")
        with open(path, "w") as file:
            file.write("ada:lovelace\n")
        for flags, expected in (((), "SIGHUP: there is nothing to read again"),
                                (("-Y", path), "SIGHUP: the users of %s were read again" % path)):
            server = self.server(*flags)
            server.process.send_signal(signal.SIGHUP)
            self.until_said(server, expected)

    def until_said(self, server, words):
        """Waits until a server says something; returns all that it said."""
        support.until(lambda: words in server.error_text(), lambda: "%r in %s" % (words, server.error_text()))
        return server.error_text()

    @larder_only
    def test_that_it_stays_root(self):
        if os.geteuid() != 0:
            self.skipTest("only root stays root")
        self.assertIn("running as root", self.said()[1])
        self.assertNotIn("running as root", self.said("-u", "root")[1])

    @larder_only
    def test_a_limit_above_what_the_machine_has(self):
        self.assertRegex(self.said("-m", "10t")[1], r"-m allows 10 TiB, and there are [0-9.]+ GiB")
        self.assertNotIn("-m allows", self.said("-m", "64")[1])

    @larder_only
    def test_a_limit_below_the_least(self):
        for limit in ("0", "1", "2", "7"):
            server, said = self.said("-m", limit)
            self.assertIn("8 MiB is the least", said)
            connection = self.connection(server)
            self.assertEqual(connection.stats(b"settings")[b"maxbytes"], b"8388608")
            self.assertEqual(connection.set(b"large", b"l" * 900_000), b"STORED")
            self.assertEqual(connection.get(b"large"), b"l" * 900_000)
        self.assertNotIn("least", self.said("-m", "8")[1])

    def test_memory_limits_that_memcached_takes(self):
        for limit in ("2", "3", "7"):
            server, _ = self.said("-m", limit)
            self.assertEqual(self.connection(server).set(b"a", b"x" * 10000), b"STORED")

    def test_a_server_without_any_port(self):
        path = os.path.join(self.folder(), "ports")
        server = self.server("-p", "0", "-U", "0", environment={"MEMCACHED_PORT_FILENAME": path}, wait=False)
        if process_support.is_larder():
            self.until_said(server, "nothing listens")
            self.assertIn("listening on no port (-p 0): ", server.error_text())
        server.wait_until_idle()
        self.assertIsNone(server.process.poll())

    def test_a_server_for_packets_starts(self):
        self.server("-B", "binary")

    def test_limits_of_read_buffers(self):
        for option in ("1", "20"):
            server, _ = self.said("-o", "read_buf_mem_limit=" + option)
            limit = int(self.connection(server).stats(b"settings")[b"read_buf_mem_limit"])
            most = (16 << 20) if process_support.is_larder() else 20 << 20
            self.assertEqual(limit, {"1": 1 << 20, "20": most}[option])
            value = b"v" * 200_000
            connection = self.connection(server)
            self.assertEqual(connection.set(b"a", value), b"STORED")
            self.assertEqual(connection.get(b"a"), value)


class Nodes(Case):
    """NUMA nodes (`--numa`). The machine that runs this has one or several."""

    @larder_only
    def test_a_server_with_nodes_serves(self):
        for flags in ((), ("--pin-cpus", "auto")):
            server = self.server("--numa", "on", "-m", "64", "-t", "2", *flags)
            clients = [self.connection(server) for _ in range(4)]
            for number, client in enumerate(clients):
                client.set(b"k%d" % number, b"v" * 1000)
            for client in clients:
                self.assertEqual([client.get(b"k%d" % number) for number in range(4)], [b"v" * 1000] * 4)
            nodes = int(clients[0].stats(b"settings")[b"numa_nodes"])
            stats = clients[0].stats()
            self.assertGreaterEqual(nodes, 1)
            self.assertEqual(nodes > 1, b"numa_local_columns" in stats)
            if nodes == 1:
                self.assertIn("--numa on changes nothing", server.error_text())
            self.assertEqual(server.stop(), 0)

    @larder_only
    def test_what_nodes_do_not_go_together_with(self):
        for flags in (("--keep", "/dev/shm/larder-nodes"), ("--pages", "coloured")):
            status, _, errors = run_to_end("-p", str(support.free_port()), "--numa", "on", *flags)
            self.assertNotEqual(status, 0, errors)
            self.assertIn("--numa", errors)


class Starting(Case):
    """Flags that wrappers and service managers use."""

    def test_the_short_help(self):
        status, output, _ = run_to_end("-h")
        self.assertEqual(status, 0)
        self.assertRegex(output.splitlines()[0], r"^memcached 1\.6\.\d+$")
        self.assertIn("unix-socket", output)

    def test_the_version(self):
        status, output, _ = run_to_end("-V")
        self.assertEqual(status, 0)
        self.assertRegex(output, r"\d+\.\d+")

    def test_a_random_port_is_told_in_a_file(self):
        path = os.path.join(self.folder(), "ports")
        server = self.server(port=-1, environment={"MEMCACHED_PORT_FILENAME": path}, wait=False)
        support.until(lambda: os.path.exists(path) or server.process.poll() is not None, "the file is there")
        with open(path) as file:
            lines = file.read().splitlines()
        ports = [int(line.split(": ")[1]) for line in lines if line.startswith("TCP INET: ")]
        self.assertTrue(ports, lines)
        with support.Connection("127.0.0.1", ports[0]) as connection:
            self.assertTrue(connection.ask(b"version").startswith(b"VERSION"))

    def test_a_unix_socket(self):
        path = os.path.join(self.folder(), "socket")
        self.server("-s", path, "-a", "770", wait=False)
        connection = self.unix_connection(path)
        self.assertEqual(connection.set(b"a", b"x"), b"STORED")
        self.assertEqual(connection.get(b"a"), b"x")
        self.assertTrue(stat.S_ISSOCK(os.stat(path).st_mode))
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o770)

    def test_a_unix_socket_left_by_another_server_is_taken_over(self):
        path = os.path.join(self.folder(), "socket")
        left = socket.socket(socket.AF_UNIX)
        left.bind(path)
        left.close()
        self.server("-s", path, wait=False)
        self.assertEqual(self.unix_connection(path).ask(b"mn"), b"MN")

    def unix_connection(self, path):
        """Connects, once something listens."""
        connection = support.path_connection(path)
        self.addCleanup(connection.close)
        return connection

    def test_a_daemon_with_a_pidfile(self):
        pidfile = os.path.join(self.folder(), "pid")
        server = self.server("-d", "-P", pidfile, wait=False)
        self.assertEqual(server.wait(), 0)
        support.until(lambda: os.path.exists(pidfile) and os.path.getsize(pidfile), "the pidfile is there")
        with open(pidfile) as file:
            pid = int(file.read())
        try:
            with support.until_no_error(server.connect) as connection:
                self.assertEqual(int(connection.stats()[b"pid"]), pid)
        finally:
            os.kill(pid, signal.SIGTERM)
        support.until(lambda: not os.path.exists(pidfile), "the pidfile goes with the server")

    @larder_only
    def test_a_settings_file(self):
        path = os.path.join(self.folder(), "larder.toml")
        with open(path, "w") as file:
            file.write('conn-limit = 55\nmax-item-size = "2m"\ndisable-flush-all = true\n')
        settings = self.connection(self.server("--config", path)).stats(b"settings")
        self.assertEqual(settings[b"maxconns"], b"55")
        self.assertEqual(settings[b"item_size_max"], b"2097152")
        self.assertEqual(settings[b"flush_enabled"], b"no")

    @larder_only
    def test_the_name_of_memcached(self):
        path = os.path.join(self.folder(), "memcached")
        os.symlink(support.Server._executable(process_support.server_command().split()[0]), path)
        done = subprocess.run([path, "-h"], stdout=subprocess.PIPE, text=True, timeout=support.WAIT_SECONDS_MAX)
        self.assertRegex(done.stdout.splitlines()[0], r"^memcached 1\.6\.\d+$")
        with support.Server(path, ["-u", "root"] if os.geteuid() == 0 else []) as server:
            self.assertEqual(self.connection(server).ask(b"mn"), b"MN")


    @larder_only
    def test_what_is_asked_is_logged_and_no_value(self):
        server = self.server("-vv")
        connection = self.connection(server)
        self.assertEqual(connection.set(b"key", b"secret"), b"STORED")
        self.assertEqual(connection.get(b"key"), b"secret")
        self.assertEqual(connection.ask(b"mg key t v").split()[0], b"VA")
        self.assertEqual(server.stop(), 0)
        text = server.error_text()
        for line in ("set key 0 0 6 -> STORED", "key -> VALUE key 0 6", "mg key t v -> VA 6 t-1"):
            self.assertIn(line, text)
        self.assertNotIn("secret", text)


class Stopping(Case):
    """Signals, `shutdown`, `quit`."""

    def test_sigterm_and_sigint_stop(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.server()
            connection = self.connection(server)
            self.assertEqual(connection.set(b"a", b"x"), b"STORED")
            self.assertEqual(server.stop(number), 0)
            self.assertTrue(connection.is_closed())

    def test_sigusr1_stops_gracefully(self):
        server = self.server()
        connection = self.connection(server)
        self.assertEqual(connection.ask(b"mn"), b"MN")
        self.assertEqual(server.stop(signal.SIGUSR1), 0)

    @larder_only
    def test_a_graceful_stop_answers_what_was_received(self):
        server = self.server()
        connection = self.connection(server)
        connection.set(b"a", b"x" * 1000)
        connection.send(b"get a\r\n" * 200)
        server.process.send_signal(signal.SIGUSR1)
        for _ in range(200):
            self.assertEqual(connection.line(), b"VALUE a 0 1000")
            self.assertEqual(connection.exactly(1002), b"x" * 1000 + b"\r\n")
            self.assertEqual(connection.line(), b"END")
        self.assertTrue(connection.is_closed())
        self.assertEqual(server.wait(), 0)

    def test_shutdown_stops_where_it_is_allowed(self):
        server = self.server("-A")
        connection = self.connection(server)
        connection.send(b"shutdown\r\n")
        self.assertTrue(connection.is_closed())
        self.assertEqual(server.wait(), 0)

    def test_shutdown_graceful(self):
        server = self.server("-A")
        connection = self.connection(server)
        connection.send(b"shutdown graceful\r\n")
        self.assertTrue(connection.is_closed())
        self.assertEqual(server.wait(), 0)

    def test_a_stop_does_not_wait_for_connections(self):
        server = self.server("-I", "8m", "-m", "64")
        for _ in range(200):
            self.connection(server)
        # A wait for this one would not end: it never takes its reply, which is longer than the buffers of a socket.
        stuck = self.connection(server)
        self.assertEqual(stuck.set(b"large", b"l" * (7 << 20)), b"STORED")
        stuck.send(b"get large\r\n" * 4)
        stuck.line()
        self.assertEqual(server.stop(), 0)

    def test_quit_closes(self):
        server = self.server()
        connection = self.connection(server)
        self.assertEqual(connection.set(b"a", b"x"), b"STORED")
        connection.send(b"get a\r\nquit\r\nget a\r\n")
        self.assertEqual(connection.line(), b"VALUE a 0 1")
        self.assertEqual(connection.line(), b"x")
        self.assertEqual(connection.line(), b"END")
        self.assertTrue(connection.is_closed())
        self.assertEqual(self.connection(server).get(b"a"), b"x")


if __name__ == "__main__":
    unittest.main()
