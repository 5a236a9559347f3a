"""What the tests of flash share: a server with a file behind its memory, and ways to get items out of memory."""

import os
import zlib

from process_support import Case
from support import until

MEBIBYTE = 1 << 20
MEMORY_MIB = 16
FLASH_MIB = 256
# More at once, and writers evict what flash has no buffer for.
PUSHED_TOGETHER = 12
# About 2 MB later: an item is still in memory then, and not so new that a read says nothing.
READ_AGAIN_AFTER = 20 * PUSHED_TOGETHER


def noise(number, size):
    """A value that tells its number and length, and does not compress."""
    head = b"%d:%d:" % (number, size)
    return (head + bytes((number * 31 + at * 7 + at // 251) & 127 | 64 for at in range(min(size, 512))) * (
        size // 512 + 1))[:size]


def brief(value):
    """A value as a failure shows it: its beginning, length and checksum."""
    return value if value is None or len(value) < 100 else b"%b... %d bytes, %x" % (
        value[:40], len(value), zlib.crc32(value))


class FlashCase(Case):
    """A test case whose servers have flash."""

    def setUp(self):
        self.path = os.path.join(self.folder(), "flash")

    def flash_server(self, *flags, memory=MEMORY_MIB, flash=FLASH_MIB, tuning=None, **options):
        """A server with this test's file. `tuning` are keys of the table of that name in the settings file."""
        place = "%s:%dm" % (self.path, flash)
        flags += self.tuning_flags(tuning or {})
        return self.server("-m", str(memory), "--flash", place, "--admin", "off", *flags, **options)

    def tuning_flags(self, tuning):
        """The flags that name a settings file with these keys."""
        if not tuning:
            return ()
        path = os.path.join(self.folder(), "settings.toml")
        with open(path, "w") as file:
            file.write("[flash.tuning]\n" + "".join('%s = "%s"\n' % row for row in sorted(tuning.items())))
        return "--config", path

    def push_out(self, connection, name=b"filler", mebibytes=4 * MEMORY_MIB, exptime=0, again=0):
        """Stores so much else that memory holds nothing of what was there before, no faster than flash takes it.

        Items stand with others of about the same time to live, so those push out an item that expires. With `again`
        each of them is read twice when that number of others has come: an item that memory keeps because it was used
        more than once gives way only to others that were.
        """
        value = os.urandom(8000)
        count = mebibytes * MEBIBYTE // 8100
        for start in range(0, count, PUSHED_TOGETHER):
            connection.send(b"".join(b"set %b%d 0 %d 8000 noreply\r\n%b\r\n" % (name, number, exptime, value)
                                     for number in range(start, start + PUSHED_TOGETHER)))
            self.assertEqual(connection.ask(b"mn"), b"MN")
            if again and start >= again:
                names = [b"%b%d" % (name, number - again) for number in range(start, start + PUSHED_TOGETHER)]
                for _ in range(2):
                    self.values(connection, names)
            self.wait_for_flash(connection)

    def wait_for_flash(self, connection):
        """Waits until flash has written every full buffer, so that it has room for what leaves memory next."""
        until(lambda: self.number(connection, b"segments_waiting", b"flash") == 0, "flash has written its buffers")

    def wait_for_recovery(self, connection):
        """Waits until a server that was started again knows everything on its flash."""
        until(lambda: self.number(connection, b"recovering", b"flash") == 0, "recovery ends")

    def started_again(self, server):
        """A connection to a server that was started again, once it knows everything on its flash."""
        connection = self.connection(server)
        self.wait_for_recovery(connection)
        return connection

    def cold(self, connection, items, mebibytes=4 * MEMORY_MIB, flags=0, exptime=0):
        """Stores the items and pushes nearly all of them out of memory, so that only flash has them.

        Flash may refuse an item when the device is behind, so this is tried a few times, with items without a read.
        """
        for attempt in range(6):
            stored = 0
            for key, value in items.items():
                if attempt:
                    connection.ask(b"delete " + key)
                self.assertEqual(connection.set(key, value, flags=flags, exptime=exptime), b"STORED")
                stored += len(value)
                if stored > MEBIBYTE:
                    self.wait_for_flash(connection)
                    stored = 0
            self.push_out(connection, b"cold%d-" % attempt, mebibytes, exptime, READ_AGAIN_AFTER)
            before = self.number(connection, b"get_extstore")
            keys = list(items)
            found = [answer for start in range(0, len(keys), 100)
                     for answer in self.values(connection, keys[start:start + 100])]
            fetched = self.number(connection, b"get_extstore") - before
            if len(found) == len(items) and fetched >= len(items) - len(items) // 20:
                return
        self.fail("%d of %d items are there, %d of them on flash" % (len(found), len(items), fetched))

    def values(self, connection, keys):
        """The answer to one multiget: keys in their order, with flags and value."""
        connection.send(b"get " + b" ".join(keys) + b"\r\n")
        found = []
        while True:
            line = connection.line()
            if line == b"END":
                return found
            words = line.split()
            self.assertEqual(words[0], b"VALUE", line)
            found.append((words[1], int(words[2]), connection.exactly(int(words[3]))))
            self.assertEqual(connection.exactly(2), b"\r\n")

    def same(self, found, expected):
        """Fails unless the answers are the same, without showing whole values."""
        if found != expected:
            shown = [[(key, flags, brief(value)) for key, flags, value in answers] for answers in (found, expected)]
            self.assertEqual(*shown)
            self.fail("values differ")

    @staticmethod
    def number(connection, name, which=b""):
        """One number of the statistics."""
        return int(connection.stats(which)[name])
