"""Memory that is kept in a file (`--keep`): nothing lost, nothing stale, nothing torn when the server is started again.

LARDER_KEEP_CRASHES sets how often each load is killed, 5 by default.
"""

import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import support
from flash_support import noise
from process_support import Case, larder_only, run_program, run_to_end
from support import until

CRASHES = int(os.environ.get("LARDER_KEEP_CRASHES", "5"))
SHARED_MEMORY = "/dev/shm"
SLAB = 2 << 20


def is_memory(folder):
    """Whether a folder is on a tmpfs."""
    with open("/proc/mounts") as mounts:
        return any(line.split()[1:3] == [folder, "tmpfs"] for line in mounts)


@larder_only
@unittest.skipUnless(is_memory(SHARED_MEMORY), "there is no tmpfs at /dev/shm")
class KeepCase(Case):
    """A test case with a file on a tmpfs."""

    def setUp(self):
        made = tempfile.TemporaryDirectory(dir=SHARED_MEMORY, prefix="larder-keep-")
        self.addCleanup(made.cleanup)
        self.path = os.path.join(made.name, "items")

    def kept(self, *flags, memory=64):
        """A server whose items are in this test's file."""
        return self.server("-m", str(memory), "-t", "2", "--admin", "off", "--keep", self.path, "-v", *flags)

    def again(self, server, signal_number=signal.SIGTERM, *flags, **options):
        """The server after a stop by this signal, and a connection to it."""
        status = server.stop(signal_number)
        if signal_number != signal.SIGKILL:
            self.assertEqual(status, 0, server.error_text())
        server = self.kept(*flags, **options)
        return server, self.connection(server)

    def values(self, connection, keys):
        """Values of many keys, of those that are there."""
        found = {}
        for start in range(0, len(keys), 50):
            connection.send(b"get " + b" ".join(keys[start:start + 50]) + b"\r\n")
            while True:
                line = connection.line()
                if line == b"END":
                    break
                words = line.split()
                self.assertEqual(words[0], b"VALUE", line)
                found[words[1]] = connection.exactly(int(words[3]))
                self.assertEqual(connection.exactly(2), b"\r\n")
        return found

    def told(self, server):
        """The lines of the log that tell of the file."""
        return [line for line in server.error_text().splitlines()
                if self.path in line and ("again from" in line or "is new" in line)]

    def refused(self, *flags):
        """The one line of a start that is refused."""
        status, _, errors = run_to_end("-p", str(support.free_port()), "--admin", "off", *flags)
        self.assertNotEqual(status, 0)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        return errors


BOTH = (signal.SIGTERM, signal.SIGKILL)


class Restart(KeepCase):
    """After a stop, and after a kill of a server that is at rest, everything is there."""

    def test_everything_is_kept(self):
        server = self.kept("-I", "8m")
        client = self.connection(server)
        items = {b"k%d" % number: noise(number, number % 2500) for number in range(5000)}
        items[b"large"] = noise(1, 3_000_000)
        items[b"empty"] = b""
        for key, value in items.items():
            client.send(b"set %b %d 0 %d noreply\r\n%b\r\n" % (key, len(value) & 0xffff, len(value), value))
        client.set(b"gone", b"x")
        self.assertEqual(client.ask(b"delete gone"), b"DELETED")
        client.set(b"changed", b"old")
        client.set(b"changed", b"new value")
        client.set(b"number", b"41")
        self.assertEqual(client.ask(b"incr number 1"), b"42")
        for signal_number in BOTH + BOTH:
            cas = int(client.ask(b"mg changed c").split(b"c")[1])
            server, client = self.again(server, signal_number, "-I", "8m")
            self.assertEqual(int(client.stats()[b"curr_items"]), len(items) + 2)
            found = self.values(client, list(items))
            self.assertEqual([key for key in items if found.get(key) != items[key]], [])
            self.assertEqual(client.ask(b"mg large f"), b"HD f%d" % (3_000_000 & 0xffff))
            self.assertEqual((client.get(b"gone"), client.get(b"changed")), (None, b"new value"))
            self.assertEqual(client.get(b"number"), b"42")
            self.assertEqual(int(client.ask(b"mg changed c").split(b"c")[1]), cas)
            client.set(b"changed", b"new value")
            self.assertGreater(int(client.ask(b"mg changed c").split(b"c")[1]), cas, "numbers go on")
            self.assertEqual(len(self.told(server)), 1, server.error_text())

    def test_a_delete_and_a_flush_stay(self):
        for signal_number in BOTH:
            with self.subTest(signal_number=signal_number):
                server = self.kept()
                client = self.connection(server)
                keys = [b"k%d" % number for number in range(2000)]
                for key in keys:
                    client.set(key, b"old")
                self.assertEqual(client.ask(b"flush_all"), b"OK")
                client.set(b"later", b"new")
                server, client = self.again(server, signal_number)
                self.assertEqual(self.values(client, keys), {})
                self.assertEqual(client.get(b"later"), b"new")
                # A flush right after the start covers what was there before it.
                self.assertEqual(client.ask(b"flush_all"), b"OK")
                server, client = self.again(server, signal_number)
                self.assertIsNone(client.get(b"later"))
                client.set(b"last", b"1")
                self.assertEqual(client.get(b"last"), b"1")
                server.stop()

    def test_a_flush_that_is_to_come_comes(self):
        for signal_number in BOTH:
            server = self.kept()
            client = self.connection(server)
            client.set(b"k", b"v")
            flushed = time.monotonic()
            self.assertEqual(client.ask(b"flush_all 3"), b"OK")
            server, client = self.again(server, signal_number)
            found = client.get(b"k")
            if time.monotonic() - flushed < 2:
                self.assertEqual(found, b"v")
            until(lambda: client.get(b"k") is None, "the flush has come")
            client.set(b"k", b"w")
            server, client = self.again(server, signal_number)
            self.assertEqual(client.get(b"k"), b"w", "it comes once")
            server.stop()

    def test_a_delete_by_prefix_stays(self):
        for signal_number in BOTH:
            for waits in (False, True):
                server = self.kept()
                client = self.connection(server)
                for number in range(5000):
                    client.send(b"set %b%d 0 0 1 noreply\r\nv\r\n" % (b"other:" if number % 2 else b"gone:", number))
                self.assertEqual(client.ask(b"flush_prefix gone:"), b"OK")
                client.set(b"gone:new", b"n")
                until(lambda: not waits or client.stats()[b"deleted_prefixes"] == b"0", "the prefix is forgotten")
                server, client = self.again(server, signal_number)
                names = [b"gone:%d" % number for number in range(0, 5000, 2)]
                self.assertEqual(self.values(client, names), {})
                self.assertEqual(client.get(b"gone:new"), b"n")
                others = self.values(client, [b"other:%d" % number for number in range(1, 5000, 2)])
                if waits:
                    self.assertEqual(len(others), 2500)
                server.stop()

    def test_lifetimes_go_on(self):
        server = self.kept()
        client = self.connection(server)
        before = time.monotonic()
        client.set(b"short", b"s", exptime=2)
        client.set(b"long", b"l", exptime=1000)
        client.set(b"touched", b"t")
        self.assertEqual(client.ask(b"touch touched 500"), b"TOUCHED")
        client.set(b"lasting", b"f", exptime=1)
        self.assertEqual(client.ask(b"touch lasting 0"), b"TOUCHED")
        client.set(b"absolute", b"a", exptime=int(time.time()) + 300)
        resp = self.connection(server)
        resp.send(b"*5\r\n$3\r\nSET\r\n$2\r\nms\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n90500\r\n")
        self.assertEqual(resp.line(), b"+OK")
        after = time.monotonic()
        for signal_number in BOTH:
            started = time.monotonic()
            server, client = self.again(server, signal_number)
            for key, seconds in ((b"long", 1000), (b"touched", 500), (b"absolute", 300), (b"ms", 91)):
                gone_least = time.monotonic() - after
                left = int(client.ask(b"mg %b t" % key).split(b"t")[1])
                gone_most = time.monotonic() - before
                self.assertTrue(seconds - gone_most - 2 <= left <= seconds - gone_least + 2.1, (key, left))
            self.assertEqual(client.ask(b"mg lasting t"), b"HD t-1")
            uptime = int(client.stats()[b"uptime"])
            self.assertLessEqual(uptime, time.monotonic() - started + 1)
        until(lambda: client.get(b"short") is None, "the item has expired")
        server, client = self.again(server)
        self.assertIsNone(client.get(b"short"))
        self.assertEqual(client.get(b"lasting"), b"f")

    def test_another_limit(self):
        server = self.kept(memory=64)
        client = self.connection(server)
        items = {b"k%d" % number: noise(number, 1000) for number in range(30_000)}
        for key, value in items.items():
            client.send(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value))
        self.assertEqual(client.ask(b"mn"), b"MN")
        for memory, at_least in ((128, 30_000), (200, 30_000), (24, 10_000)):
            server, client = self.again(server, signal.SIGTERM, memory=memory)
            self.assertIn("again", self.told(server)[0])
            if memory == 24:
                until(lambda: int(client.stats()[b"bytes"]) <= memory << 20, "what does not fit is gone")
            found = self.values(client, list(items))
            self.assertGreaterEqual(len(found), at_least, memory)
            self.assertEqual([key for key in found if found[key] != items[key]], [])
            self.assertEqual(client.set(b"more%d" % memory, b"x"), b"STORED")
        # More than the file was made for, and columns of another size: a cold start that says so.
        for memory, flags, word in ((2000, (), "room for"), (64, ("--column-bytes", "32k"), "column")):
            server, client = self.again(server, signal.SIGTERM, *flags, memory=memory)
            self.assertEqual(int(client.stats()[b"curr_items"]), 0)
            told = [line for line in server.error_text().splitlines() if "cache is empty" in line]
            self.assertEqual(len(told), 1, server.error_text())
            self.assertIn(word, told[0])
            client.set(b"k", b"v")

    def test_items_that_were_moved_and_evicted(self):
        server = self.kept(memory=8)
        client = self.connection(server)
        chance = random.Random(3)
        versions = {}
        for round_number, signal_number in enumerate(BOTH * 3):
            for step in range(20_000):
                key = b"k%d" % chance.randrange(6000)
                versions[key] = versions.get(key, 0) + 1
                value = noise(versions[key], chance.choice((10, 300, 2000)))
                client.send(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value))
            self.assertEqual(client.ask(b"mn"), b"MN")
            before = self.values(client, list(versions))
            server, client = self.again(server, signal_number, memory=8)
            found = self.values(client, list(versions))
            for key, value in found.items():
                self.assertEqual(value[:20].split(b":")[0], b"%d" % versions[key], key)
            # The keeper of the first server may have evicted some more, and that of the second.
            self.assertGreater(len(found), len(before) * 3 // 4, round_number)
        self.assertGreater(int(client.stats()[b"curr_items"]), 1000)


class Log:
    """What one writer has been told of its keys."""

    def __init__(self, name, keys, seed):
        self.keys = [b"%b-%d" % (name, number) for number in range(keys)]
        self.sent = dict.fromkeys(self.keys, 0)
        # The version that a read shows at least; a delete is a version that shows nothing.
        self.answered = dict.fromkeys(self.keys, 0)
        self.is_delete = {}
        self.chance = random.Random(seed)
        self.answers = 0
        self.wrong = []


SIZES = (5, 200, 1500, 5000, 60_000)


class Crashes(KeepCase):
    """kill -9 under load, again and again.

    A writer numbers its changes of each key and keeps a log of those that were answered. Afterwards a key shows a
    version that is at least the last one answered, and at most the last one sent. Where there is room for everything, a
    key whose last change was no delete has to be there. Other clients overwrite and append to keys that all share:
    their values are whole.
    """

    def write(self, port, log, stop):
        try:
            with support.Connection("127.0.0.1", port) as connection:
                while not stop.is_set():
                    sent, request = [], bytearray()
                    for key in log.chance.sample(log.keys, 8):
                        log.sent[key] += 1
                        number = log.sent[key]
                        log.is_delete[key, number] = log.chance.random() < 0.2
                        sent.append((key, number))
                        if log.is_delete[key, number]:
                            request += b"delete %b\r\n" % key
                        else:
                            value = b"%b=%d;" % (key, number)
                            value = value.ljust(log.chance.choice(SIZES), b"x") + b";%d" % number
                            exptime = log.chance.choice((0, 0, 1000))
                            request += b"set %b 0 %d %d\r\n%b\r\n" % (key, exptime, len(value), value)
                            if log.chance.random() < 0.2:
                                request += b"touch %b 2000\r\n" % key
                                sent.append((key, None))
                    connection.send(bytes(request))
                    for key, number in sent:
                        answer = connection.line()
                        if number is None:
                            log.wrong += [answer] * (answer not in (b"TOUCHED", b"NOT_FOUND"))
                        elif answer in (b"STORED", b"DELETED", b"NOT_FOUND"):
                            log.answered[key] = number
                            log.answers += 1
        except (OSError, support.Closed):
            pass

    def share(self, port, seed, stop):
        """Overwrites, appends to, adds and deletes keys that others write too."""
        chance = random.Random(seed)
        try:
            with support.Connection("127.0.0.1", port) as connection:
                while not stop.is_set():
                    key = b"shared-%d" % chance.randrange(20)
                    verb = chance.choice((b"set", b"append", b"prepend", b"add", b"delete", b"incr"))
                    if verb == b"delete":
                        connection.ask(b"delete " + key)
                    elif verb == b"incr":
                        connection.ask(b"incr counter 1")
                    else:
                        value = b"<%b>" % (key + b"y" * chance.choice((1, 500, 4000)))
                        connection.send(b"%b %b 0 0 %d\r\n%b\r\n" % (verb, key, len(value), value))
                        connection.line()
        except (OSError, support.Closed):
            pass

    def check(self, connection, log, round_number, has_room):
        found = self.values(connection, log.keys)
        for key in log.keys:
            answered, sent = log.answered[key], log.sent[key]
            about = "round %d: %r, %d answered, %d sent" % (round_number, key, answered, sent)
            if key not in found:
                may_be_gone = not has_room or answered == 0 or any(
                    log.is_delete[key, number] for number in range(answered, sent + 1))
                self.assertTrue(may_be_gone, about + ", and it is gone")
                continue
            name, _, rest = found[key].partition(b"=")
            self.assertEqual(name, key, "another key's value")
            number = int(rest.split(b";")[0])
            self.assertTrue(found[key].endswith(b";%d" % number), about + ", and it is torn")
            self.assertTrue(answered <= number <= sent, about + ", and %d is shown" % number)
            self.assertFalse(log.is_delete[key, number], about)
        return len(found)

    def crash(self, memory, keys, has_room, rounds):
        logs = [Log(b"w%d" % number, keys, number) for number in range(3)]
        chance = random.Random(memory)
        hits, counter = 0, 0
        flags = ("-I", "1m") if memory > 8 else ("-I", "512k")
        for round_number in range(rounds):
            server = self.kept(*flags, memory=memory)
            self.assertNotIn("damaged", server.error_text())
            self.assertNotIn("cache is empty", server.error_text())
            with server.connect() as connection:
                hits += sum(self.check(connection, log, round_number, has_room) for log in logs)
                shared = self.values(connection, [b"shared-%d" % number for number in range(20)])
                for key, value in shared.items():
                    self.assertTrue(value.startswith(b"<" + key) and value.endswith(b">"), key)
                    for part in value[1:-1].split(b"><"):
                        self.assertEqual(part.rstrip(b"y"), key)
                now = connection.get(b"counter")
                if has_room and now is not None:
                    self.assertGreaterEqual(int(now), counter)
                    counter = int(now)
                connection.set(b"counter", b"%d" % counter)
            stop = threading.Event()
            threads = [threading.Thread(target=self.write, args=(server.port, log, stop)) for log in logs]
            threads += [threading.Thread(target=self.share, args=(server.port, round_number * 9 + number, stop))
                        for number in range(2)]
            for thread in threads:
                thread.start()
            enough = sum(log.answers for log in logs) + chance.randrange(100, 1500)
            until(lambda: sum(log.answers for log in logs) >= enough, "the writers are answered")
            server.process.kill()
            server.process.wait()
            stop.set()
            for thread in threads:
                thread.join()
            server.__exit__()
        self.assertEqual([log.wrong for log in logs], [[], [], []])
        self.assertGreater(hits, 50)

    def test_with_room_for_everything(self):
        self.crash(128, 300, True, CRASHES)

    def test_where_items_are_evicted(self):
        self.crash(8, 500, False, CRASHES)


class Trouble(KeepCase):
    """Files that are damaged, foreign, used by others, or on a disk."""

    def filled(self, *flags, **options):
        """A server with items, and what they are."""
        server = self.kept(*flags, **options)
        client = self.connection(server)
        values = {b"t%d" % number: noise(number, 700) for number in range(20_000)}
        values.update((b"l%d" % number, noise(number, 200_000)) for number in range(20))
        for key, value in values.items():
            client.send(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value))
        self.assertEqual(client.ask(b"mn"), b"MN")
        return server, values

    def begins_cold(self, why):
        """A start that keeps nothing says why, and serves."""
        server = self.kept()
        client = self.connection(server)
        self.assertEqual(int(client.stats()[b"curr_items"]), 0)
        told = [line for line in server.error_text().splitlines() if "cache is empty" in line]
        self.assertEqual(len(told), 1, server.error_text())
        self.assertIn(why, told[0])
        client.set(b"k", b"v")
        server, client = self.again(server, signal.SIGKILL)
        self.assertEqual(client.get(b"k"), b"v")
        server.stop()

    def test_a_damaged_head(self):
        for at, why in ((0, "head is damaged"), (8, "format"), (30, "head is damaged")):
            server, _ = self.filled()
            server.stop()
            with open(self.path, "r+b") as file:
                file.seek(at)
                file.write(b"\x7f")
            self.begins_cold(why)

    def test_a_file_of_another_start_of_the_machine(self):
        server, _ = self.filled()
        server.stop()
        # Words 8 and 9 name the start, and word 11 is the checksum: no later version has the right one by chance.
        with open(self.path, "r+b") as file:
            file.seek(64)
            file.write(b"\0" * 16)
        self.begins_cold("head is damaged")

    def test_a_file_that_was_cut(self):
        for length in (100, 5000, 3 * SLAB):
            server, _ = self.filled()
            server.stop()
            os.truncate(self.path, length)
            self.begins_cold("cut off")

    def test_a_file_that_is_torn_in_the_middle(self):
        for signal_number in BOTH:
            for tear in (lambda size: b"\0" * size, os.urandom):
                server, values = self.filled()
                server.stop(signal_number)
                with open(self.path, "r+b") as file:
                    for at in (6, 9, 13):
                        file.seek(at * SLAB + 12_345)
                        file.write(tear(300_000))
                server = self.kept()
                client = self.connection(server)
                found = self.values(client, list(values))
                self.assertEqual([key for key in found if found[key] != values[key]], [])
                self.assertTrue(len(values) // 2 < len(found) < len(values), len(found))
                self.assertIn("damaged", server.error_text())
                for number in range(1000):
                    client.set(b"after%d" % number, b"a" * 500)
                server, client = self.again(server, signal_number)
                self.assertNotIn("damaged", server.error_text())
                again = self.values(client, list(found))
                self.assertEqual([key for key in found if again.get(key) != values[key]], [])
                server.stop()
                os.remove(self.path)

    def test_single_bytes_that_are_wrong(self):
        server, values = self.filled()
        server.stop()
        chance = random.Random(5)
        with open(self.path, "r+b") as file:
            for _ in range(200):
                file.seek(chance.randrange(4 * SLAB, 14 * SLAB))
                file.write(bytes([chance.randrange(256)]))
        server = self.kept()
        found = self.values(self.connection(server), list(values))
        self.assertEqual([key for key in found if found[key] != values[key]], [])
        self.assertLess(len(found), len(values))

    def test_a_file_of_somebody_else(self):
        for diary in (b"my diary " * 1_000_000, b"short"):
            with open(self.path, "wb") as file:
                file.write(diary)
            self.assertIn(self.path, self.refused("--keep", self.path))
            with open(self.path, "rb") as file:
                self.assertEqual(file.read(), diary)

    def test_a_second_server_on_the_same_file(self):
        server, values = self.filled()
        errors = self.refused("--keep", self.path)
        self.assertIn("another process uses the file", errors)
        found = self.values(self.connection(server), list(values))
        self.assertEqual(len(found), len(values))

    def test_what_cannot_be_kept(self):
        for flags, word in ((("--flash", self.path + ".flash:256m"), "--flash"), (("--pages", "huge"), "--pages"),
                            (("--pages", "coloured"), "--pages")):
            self.assertIn(word, self.refused("--keep", self.path, *flags))
            self.assertFalse(os.path.exists(self.path))
        for path, word in (("/no/such/folder/file", "folder"), (os.path.dirname(self.path), "file"),
                           ("/proc/self/items", "tmpfs")):
            self.assertIn(word, self.refused("--keep", path))
            status, printed, _ = run_program("check-config", "--keep", path, "--admin", "off")
            self.assertTrue(status == 1 or os.path.isdir(path), printed)

    def test_the_file_is_removed_while_it_is_used(self):
        server, values = self.filled()
        os.remove(self.path)
        self.assertEqual(len(self.values(self.connection(server), list(values))), len(values))
        self.assertEqual(server.stop(), 0)
        server = self.kept()
        self.assertEqual(int(self.connection(server).stats()[b"curr_items"]), 0)

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_file_system_that_is_too_small_or_fills_up(self):
        folder = os.path.dirname(self.path)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder]).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", folder])
        self.assertIn("room for 32 MiB", self.refused("--keep", self.path, "-m", "64"))
        self.assertFalse(os.path.exists(self.path))
        server = self.kept(memory=24)
        client = self.connection(server)
        with open(os.path.join(folder, "other"), "wb") as other:
            other.write(b"\1" * (24 << 20))
        for number in range(30_000):
            client.send(b"set k%d 0 0 1000 noreply\r\n%b\r\n" % (number, noise(number, 1000)))
        self.assertEqual(client.ask(b"mn"), b"MN")
        items = int(client.stats()[b"curr_items"])
        self.assertGreater(items, 5000)
        self.assertEqual(client.get(b"k29999"), noise(29_999, 1000))
        server, client = self.again(server, signal.SIGKILL, memory=24)
        self.assertEqual(client.get(b"k29999"), noise(29_999, 1000))

    def test_the_statistics_name_the_file(self):
        server = self.kept()
        client = self.connection(server)
        self.assertEqual(client.stats(b"settings")[b"memory_file"], self.path.encode())
