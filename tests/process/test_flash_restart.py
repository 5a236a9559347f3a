"""Flash across restarts, crashes and trouble with the device: nothing stale, nothing torn, and always an answer."""

import os
import random
import shlex
import signal
import subprocess
import threading
import unittest
import urllib.error
import urllib.request

import support
from flash_support import FLASH_MIB, MEBIBYTE, FlashCase, noise
from process_support import larder_only, run_program, run_to_end, server_command

CRASHES = int(os.environ.get("LARDER_CRASHES", "50"))


@larder_only
class Restart(FlashCase):
    """After an ordinary stop everything is there again, what was in memory as well."""

    def test_everything_is_kept(self):
        server = self.flash_server("-I", "8m", memory=32)
        client = self.connection(server)
        cold = {b"cold%d" % number: noise(number, 10 + number * 40) for number in range(300)}
        for key, value in cold.items():
            client.set(key, value, flags=len(value), exptime=5000)
        client.set(b"huge", noise(5, 3_000_000))
        self.push_out(client, mebibytes=96)
        hot = {b"hot%d" % number: noise(number, 500) for number in range(1000)}
        for key, value in hot.items():
            client.set(key, value)
        client.send(b"gets hot999\r\n")
        cas = client.line().split()[-1]
        self.assertEqual(client.exactly(507), hot[b"hot999"] + b"\r\nEND\r\n")
        client.ask(b"delete cold0")
        # Flash may have shed some; what is there now has to be there after the restart.
        there = [key for key in cold if self.values(client, [key])]
        self.assertGreater(len(there), 150)
        hot = {key: value for key, value in hot.items() if client.get(key) is not None}
        self.assertGreater(len(hot), 800)
        has_huge = client.get(b"huge") is not None
        self.assertEqual(server.stop(), 0)
        again = self.flash_server("-I", "8m", memory=32)
        client = self.started_again(again)
        for key, value in hot.items():
            self.assertEqual(client.get(key), value, key)
        client.send(b"gets hot999\r\n")
        self.assertEqual(client.line(), b"VALUE hot999 0 500 " + cas)
        self.assertEqual(client.exactly(507), hot[b"hot999"] + b"\r\nEND\r\n")
        self.assertIsNone(client.get(b"cold0"))
        for key in there:
            self.same(self.values(client, [key]), [(key, len(cold[key]), cold[key])])
        if has_huge:
            self.same(self.values(client, [b"huge"]), [(b"huge", 0, noise(5, 3_000_000))])
        left_s = int(client.ask(b"mg %b t" % there[7]).split(b" t")[1])
        self.assertTrue(4000 < left_s <= 5000, left_s)
        # Numbers go on above those that were given out.
        client.set(b"hot999", b"x")
        client.send(b"gets hot999\r\n")
        self.assertGreater(int(client.line().split()[-1]), int(cas))

    def test_without_saving_only_flash_is_kept(self):
        server = self.flash_server(tuning={"save": "off"})
        client = self.connection(server)
        self.cold(client, {b"cold": b"c", b"replaced": b"old"})
        client.set(b"hot", b"h")
        client.set(b"replaced", b"new")
        self.assertEqual(server.stop(), 0)
        client = self.started_again(self.flash_server(tuning={"save": "off"}))
        self.assertEqual((client.get(b"cold"), client.get(b"hot")), (b"c", None))
        self.assertIsNone(client.get(b"replaced"))

    def test_a_start_that_fails_loses_nothing(self):
        server = self.flash_server()
        self.connection(server).set(b"kept", b"value")
        self.assertEqual(server.stop(), 0)
        with support.Server(os.environ["LARDER_SERVER"]) as other:
            status, _, errors = run_to_end("-p", str(other.port), "-m", "16", "-U", "0", "--admin", "off",
                                           "--flash", "%s:%dm" % (self.path, FLASH_MIB))
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.assertNotEqual(status, 0)
        self.assertEqual(self.started_again(self.flash_server()).get(b"kept"), b"value")

    def test_a_crash_in_mode_clean_keeps_nothing(self):
        server = self.flash_server()
        client = self.connection(server)
        self.cold(client, {b"k": b"v"})
        server.stop(signal.SIGKILL)
        client = self.started_again(self.flash_server())
        self.assertIsNone(client.get(b"k"))
        self.cold(client, {b"k": b"new"})

    def test_a_flushed_item_does_not_come_back(self):
        server = self.flash_server("--flash-recover", "journal")
        client = self.connection(server)
        self.cold(client, {b"k": b"v"})
        self.assertEqual(client.ask(b"flush_all"), b"OK")
        server.stop(signal.SIGKILL)
        client = self.started_again(self.flash_server("--flash-recover", "journal"))
        self.assertIsNone(client.get(b"k"))

    def test_a_flush_that_is_to_come_is_not_forgotten(self):
        server = self.flash_server()
        client = self.connection(server)
        self.cold(client, {b"cold": b"c"})
        client.set(b"hot", b"h")
        self.assertEqual(client.ask(b"flush_all 600"), b"OK")
        self.assertEqual(client.get(b"hot"), b"h")
        self.assertEqual(server.stop(), 0)
        client = self.started_again(self.flash_server())
        self.assertEqual((client.get(b"cold"), client.get(b"hot")), (None, None))

    def test_a_second_server_on_the_same_file_is_refused(self):
        self.flash_server()
        status, _, errors = run_to_end("-p", str(support.free_port()), "-m", "16", "--admin", "off",
                                       "--flash", "%s:%dm" % (self.path, FLASH_MIB))
        self.assertNotEqual(status, 0)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.assertIn(self.path, errors)


@larder_only
class Readiness(FlashCase):
    """Who sends clients to a server is told when it has everything that flash kept."""

    def first_answer(self, page):
        """(status, text) of a page, as soon as somebody listens."""
        def answer():
            try:
                with urllib.request.urlopen(page, timeout=support.WAIT_SECONDS_MAX) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
        return support.until_no_error(answer)

    def test_the_server_is_ready_once_flash_is_read(self):
        server = self.flash_server()
        self.push_out(self.connection(server), mebibytes=200)
        self.assertEqual(server.stop(), 0)
        admin = "127.0.0.1:%d" % support.free_port()

        def caught():
            """A start that is asked while it reads flash, which takes a tenth of a second or more."""
            manager, environment = self.service_manager()
            again = self.flash_server("--admin", admin, environment=environment, wait=False)
            first = self.first_answer("http://%s/healthz" % admin)
            if first[0] == 503:
                return again, manager, first[1]
            self.assertEqual(again.stop(), 0)
            return None
        again, manager, text = support.until(caught, "a server answers that it reads flash")
        self.assertEqual(text, "flash is being read: not all of its items can be found yet\n")
        self.assertEqual(self.first_answer("http://%s/livez" % admin), (200, "ok\n"))
        heard = self.told_until(manager, "READY=1")
        self.assertIn("EXTEND_TIMEOUT_USEC=30000000", heard[0].splitlines())
        self.assertEqual(self.number(self.connection(again), b"recovering", b"flash"), 0)
        self.assertEqual(run_program("health", admin), (0, "ok\n", ""))


class Log:
    """What one writer has been told, key by key: the oldest version that a later read may show."""

    def __init__(self, name, keys, seed):
        self.keys = [b"%b-%d" % (name, number) for number in range(keys)]
        self.sent = dict.fromkeys(self.keys, 0)
        self.answered = dict.fromkeys(self.keys, 0)
        self.deleted = dict.fromkeys(self.keys, 0)
        self.chance = random.Random(seed)
        self.answers = 0


@larder_only
class Crashes(FlashCase):
    """kill -9 under load, again and again: what was answered is never taken back.

    A writer numbers its changes of each key and keeps a log of the changes that were answered. After the restart a hit
    has to show a version that is at least the last one answered and at most the last one sent. A deleted key shows no
    version from before its delete.
    """

    def write(self, port, log, stop):
        try:
            with support.Connection("127.0.0.1", port) as connection:
                while not stop.is_set():
                    sent = []
                    request = bytearray()
                    for key in log.chance.sample(log.keys, 8):
                        log.sent[key] += 1
                        number = log.sent[key]
                        if log.chance.random() < 0.2:
                            request += b"delete %b\r\n" % key
                            sent.append((key, number, True))
                        else:
                            value = b"%b=%d;" % (key, number) + b"x" * log.chance.choice((5, 200, 1500, 5000))
                            request += b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value)
                            sent.append((key, number, False))
                    connection.send(bytes(request))
                    for key, number, deletes in sent:
                        answer = connection.line()
                        if answer in (b"STORED", b"DELETED", b"NOT_FOUND"):
                            log.answered[key] = number
                            log.answers += 1
                        if deletes:
                            log.deleted[key] = number
        except (OSError, support.Closed):
            pass

    def check(self, connection, log, round_number):
        hits = 0
        for start in range(0, len(log.keys), 50):
            for key, _, value in self.values(connection, log.keys[start:start + 50]):
                hits += 1
                name, _, rest = value.partition(b"=")
                self.assertEqual(name, key, "another key's value")
                number = int(rest.split(b";")[0])
                self.assertTrue(log.answered[key] <= number <= log.sent[key],
                                "round %d: %r shows %d, where %d was answered and %d sent" % (
                                    round_number, key, number, log.answered[key], log.sent[key]))
                self.assertNotEqual(number, log.deleted[key], "a delete shows a value")
        return hits

    def crash(self, mode, crashes):
        logs = [Log(b"w%d" % number, 1000, number) for number in range(3)]
        total_hits = 0
        chance = random.Random(mode)
        for round_number in range(crashes):
            server = self.flash_server("--flash-recover", mode, memory=8, flash=128, tuning={"segment": "1m"})
            with server.connect() as connection:
                total_hits += sum(self.check(connection, log, round_number) for log in logs)
            stop = threading.Event()
            threads = [threading.Thread(target=self.write, args=(server.port, log, stop)) for log in logs]
            for thread in threads:
                thread.start()
            enough = sum(log.answers for log in logs) + chance.randrange(1000, 8000)
            support.until(lambda: sum(log.answers for log in logs) >= enough, "the writers are answered")
            server.process.kill()
            server.process.wait()
            stop.set()
            for thread in threads:
                thread.join()
            server.__exit__()
        return total_hits

    def test_mode_journal(self):
        self.assertGreater(self.crash("journal", CRASHES), 0, "a journal that keeps nothing proves nothing")

    def test_mode_clean(self):
        self.crash("clean", CRASHES)


@larder_only
class Trouble(FlashCase):
    """Files that are damaged, full, gone or too small; memory that is too small."""

    def filled(self, *flags, **options):
        """A server with items on flash, and what they are."""
        server = self.flash_server(*flags, **options)
        client = self.connection(server)
        values = {b"t%d" % number: noise(number, 700) for number in range(3000)}
        for key, value in values.items():
            client.send(b"set %b 0 0 700 noreply\r\n%b\r\n" % (key, value))
        self.push_out(client)
        return server, client, values

    def all_right(self, client, values):
        """Every hit is right; returns how many there are."""
        keys, hits = list(values), 0
        for start in range(0, len(keys), 100):
            for key, _, value in self.values(client, keys[start:start + 100]):
                self.same([(key, 0, value)], [(key, 0, values[key])])
                hits += 1
        return hits

    def test_a_damaged_file(self):
        server, _, values = self.filled("-v")
        self.assertEqual(server.stop(), 0)
        chance = random.Random(5)
        with open(self.path, "r+b") as file:
            for _ in range(4000):
                file.seek(chance.randrange(4 * MEBIBYTE, FLASH_MIB * MEBIBYTE))
                file.write(bytes([chance.randrange(256)]))
        server = self.flash_server()
        client = self.started_again(server)
        hits = self.all_right(client, values)
        self.assertLess(hits, len(values))
        self.assertIsNone(server.process.poll(), server.error_text())
        self.assertEqual(client.set(b"after", b"a"), b"STORED")
        self.assertEqual(client.get(b"after"), b"a")

    def test_a_file_with_damaged_beginnings(self):
        server, _, values = self.filled()
        self.assertEqual(server.stop(), 0)
        with open(self.path, "r+b") as file:
            file.write(os.urandom(2 * MEBIBYTE))
        # Nobody can say whose it is any more: refused, or begun anew, but never wrong.
        try:
            server = self.flash_server()
        except support.DidNotStart as error:
            self.assertIn("larder format-flash", str(error))
            self.assertEqual(self.format(), 0)
            server = self.flash_server()
        self.all_right(self.started_again(server), values)

    def format(self, *flags):
        """Erases this test's file by the command for that; returns its status."""
        words = [support.Server._executable(shlex.split(server_command())[0])]
        place = "%s:%dm" % (self.path, FLASH_MIB)
        done = subprocess.run(words + ["format-flash", "--flash", place, *flags], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(len((done.stdout + done.stderr).strip().splitlines()), 1, done)
        return done.returncode

    def test_a_file_is_formatted_by_a_command(self):
        with open(self.path, "wb") as file:
            file.write(b"somebody's diary " * 500_000)
            file.truncate(FLASH_MIB * MEBIBYTE)
        flags = self.tuning_flags({"zone": "4m"})
        self.assertEqual(self.format(*flags), 0)
        server = self.flash_server(*flags)
        self.connection(server).set(b"k", b"v")
        # In use, and with zones of another size: neither is formatted or taken.
        self.assertNotEqual(self.format(*flags), 0)
        self.assertEqual(server.stop(), 0)
        with self.assertRaises(support.DidNotStart):
            self.flash_server(tuning={"zone": "8m"})
        connection = self.started_again(self.flash_server(*flags))
        self.assertEqual(connection.get(b"k"), b"v")

    def test_a_file_that_is_not_ours(self):
        with open(self.path, "wb") as file:
            file.write(b"somebody's diary " * 2_000_000)
        with open(self.path, "rb") as file:
            before = file.read(1000)
        status, _, errors = run_to_end("-p", str(support.free_port()), "-m", "16", "--admin", "off",
                                       "--flash", self.path)
        self.assertNotEqual(status, 0)
        self.assertIn("larder format-flash", errors)
        self.assertIn(self.path, errors)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(1000), before)

    def test_the_file_is_removed_while_it_is_used(self):
        server, client, values = self.filled()
        os.remove(self.path)
        self.assertGreater(self.all_right(client, values), 2000)
        self.assertEqual(server.stop(), 0)

    def test_the_file_is_cut_while_it_is_used(self):
        server, client, values = self.filled()
        os.truncate(self.path, MEBIBYTE)
        self.all_right(client, values)
        self.push_out(client, b"more")
        self.all_right(client, values)
        self.assertEqual(client.set(b"after", b"a"), b"STORED")
        self.assertEqual(client.get(b"after"), b"a")
        self.assertIsNone(server.process.poll(), server.error_text())

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_full_disk(self):
        folder = os.path.join(self.folder(), "small")
        os.mkdir(folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder]).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", folder])
        self.path = os.path.join(folder, "flash")
        status, _, errors = run_to_end("-p", str(support.free_port()), "-m", "16", "--admin", "off",
                                       "--flash", self.path + ":256m")
        if status == 0:
            self.fail("a file of 256 MiB on a disk of 40")
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        # A sparse file, whose blocks are missing when they are written.
        with open(self.path, "wb") as file:
            file.truncate(256 * MEBIBYTE)
        try:
            _, client, values = self.filled()
        except support.DidNotStart as error:
            self.assertIn(self.path, str(error))
            return
        self.push_out(client, b"more", mebibytes=100)
        self.all_right(client, values)
        self.assertEqual(client.set(b"after", b"a"), b"STORED")
        self.assertEqual(client.get(b"after"), b"a")

    def test_far_too_little_memory(self):
        server, client, values = self.filled("--flash-memory", "4m")
        self.all_right(client, values)
        self.push_out(client, b"more")
        self.all_right(client, values)
        self.assertEqual(client.set(b"after", b"a"), b"STORED")
        self.assertEqual(client.get(b"after"), b"a")
        self.assertEqual(server.stop(), 0)

    def test_what_cannot_be_used_is_refused_in_one_line(self):
        folder = self.folder()
        for place, says in [(folder, "directory"), ("/no/such/folder/f:64m", "/no/such/folder/f"),
                            (os.path.join(folder, "new"), "size"), (os.path.join(folder, "f:1m"), "small"),
                            ("/dev/null", "/dev/null")]:
            status, _, errors = run_to_end("-p", str(support.free_port()), "-m", "16", "--admin", "off",
                                           "--flash", place)
            self.assertNotEqual(status, 0, place)
            self.assertEqual(len(errors.strip().splitlines()), 1, errors)
            self.assertIn(says, errors)
            self.assertNotIn("panicked", errors)


@larder_only
class Memory(FlashCase):
    """The promise: `-m` and the memory of flash, and 5 % and 16 MiB for everything else."""

    def test_the_process_stays_within_its_memory(self):
        server = self.flash_server("--flash-memory", "24m", memory=64, flash=512)
        bound = int((64 + 24) * MEBIBYTE * 1.05) + 16 * MEBIBYTE
        client = self.connection(server)
        for name, size in ((b"a", 100), (b"b", 1000), (b"c", 30_000)):
            value = os.urandom(size)
            for start in range(0, 96 * MEBIBYTE // (size + 60), 200):
                client.send(b"".join(b"set %b%d 0 0 %d noreply\r\n%b\r\n" % (name, number, size, value)
                                     for number in range(start, start + 200)))
            self.assertEqual(client.ask(b"mn"), b"MN")
        readers = [self.connection(server, receive_buffer=4096) for _ in range(100)]
        for number, reader in enumerate(readers):
            reader.send(b"".join(b"get %b\r\n" % b" ".join(b"c%d" % (number * 20 + at) for at in range(50))
                                 for _ in range(3)))
        for number in range(200):
            self.values(client, [b"a%d" % (number * 500 + at) for at in range(100)])
        peak = server.resident_bytes_peak()
        self.assertIsNone(server.process.poll(), server.error_text())
        self.assertLessEqual(peak, bound, "peak of %.1f MiB, promised %.1f" % (peak / MEBIBYTE, bound / MEBIBYTE))


if __name__ == "__main__":
    unittest.main()
