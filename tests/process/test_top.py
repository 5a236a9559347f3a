"""`larder top`: in a real pseudo terminal, as one frame of text, and with a server that goes away."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import process_support  # noqa: F401 (finds the modules below)
import support
from process_support import Case, larder_only, program, run_program

WAIT_SECONDS = 60


class Terminal:
    """A program in a pseudo terminal, and the screen that it draws."""

    def __init__(self, *arguments, lines=40, columns=140):
        self.master, slave = pty.openpty()
        self.resize(lines, columns)
        variables = dict(os.environ, TERM="xterm-256color")
        self.process = subprocess.Popen([program(), *arguments], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, env=variables)
        os.close(slave)
        self.sent = b""

    def resize(self, lines, columns):
        """Gives the terminal another size."""
        self.lines, self.columns = lines, columns
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, pattern):
        """Reads until the screen shows the pattern; returns whether it came."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if re.search(pattern, self.screen()):
                return True
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.sent += os.read(self.master, 65536)
                except OSError:
                    break
        return re.search(pattern, self.screen()) is not None

    def screen(self):
        """The screen as lines of text: what was printed at which place."""
        cells = [[" "] * self.columns for _ in range(self.lines)]
        line, column = 0, 0
        text = self.sent.decode("utf-8", "replace")
        for found in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.|([^\x1b])", text):
            numbers, letter, plain = found.groups()
            if letter == "H":
                line, column = ([int(word) - 1 for word in numbers.split(";")] + [0, 0])[:2] if numbers else (0, 0)
            elif letter == "J":
                cells = [[" "] * self.columns for _ in range(self.lines)]
            elif plain == "\r":
                column = 0
            elif plain == "\n":
                line += 1
            elif plain and line < self.lines and column < self.columns:
                cells[line][column] = plain
                column += 1
        return "\n".join("".join(row) for row in cells)

    def press(self, keys):
        """Types."""
        os.write(self.master, keys)

    def end(self):
        """Waits for the end; returns the status."""
        deadline = time.monotonic() + WAIT_SECONDS
        # When the last descriptor of the other side is closed, and all was read, reading is an error.
        while time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.sent += os.read(self.master, 65536)
                except OSError:
                    break
        return self.process.wait(WAIT_SECONDS)

    def close(self):
        """Ends the program whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)


class Top(Case):
    """`larder top`."""

    def terminal(self, *arguments, **options):
        """A program in a terminal, ended at the end of the test."""
        made = Terminal(*arguments, **options)
        self.addCleanup(made.close)
        return made

    @larder_only
    def test_one_frame_as_text(self):
        server = self.server("-m", "64", "--namespaces", "session=0-100")
        connection = self.connection(server)
        connection.set(b"a", b"x")
        connection.get(b"a")
        connection.get(b"absent")
        status, text, errors = run_program("top", "127.0.0.1:%d" % server.port, "--once", "--interval", "0.3")
        self.assertEqual((status, errors), (0, ""))
        self.assertRegex(text, r"hit ratio since start +50\.0 %")
        for words in ("requests/s", "p99 ", "limit +64 MiB", "who leaves memory", "too few reads", r"session +0/s"):
            self.assertRegex(text, words)
        self.assertNotIn("\x1b", text)

    @larder_only
    def test_where_it_cannot_be_drawn(self):
        status, text, errors = run_program("top", "127.0.0.1:%d" % self.server().port)
        self.assertEqual((status, text), (64, ""))
        self.assertIn("--once", errors)
        nobody = "127.0.0.1:%d" % support.free_port()
        status, text, errors = run_program("top", nobody, "--once")
        self.assertEqual((status, text), (2, ""))
        self.assertIn("no server at " + nobody, errors)

    @larder_only
    def test_a_terminal_that_changes_its_size(self):
        server = self.server("-m", "64")
        terminal = self.terminal("top", "127.0.0.1:%d" % server.port, "--interval", "0.2")
        self.assertTrue(terminal.wait_for(r"requests/s, most"), terminal.screen())
        self.assertTrue(terminal.wait_for(r"hit ratio since start"), terminal.screen())
        self.assertTrue(terminal.wait_for(r"limit +64 MiB"), terminal.screen())
        self.assertTrue(terminal.wait_for(r"hit ratio, to 100 %"), terminal.screen())
        # What matters most of each panel is there, and no line is empty.
        terminal.resize(24, 80)
        os.killpg(terminal.process.pid, signal.SIGWINCH)
        for words in (r"requests/s +\d", r"p99 +\d", "limit +64 MiB", r"evicted +\d", "too few reads"):
            self.assertTrue(terminal.wait_for(words), terminal.screen())
        terminal.resize(8, 40)
        os.killpg(terminal.process.pid, signal.SIGWINCH)
        self.assertTrue(terminal.wait_for(r"a larger terminal shows \d more"), terminal.screen())
        self.assertRegex(terminal.screen(), r"requests/s +\d")
        terminal.press(b"q")
        self.assertEqual(terminal.end(), 0)
        self.assertIn(b"\x1b[?1049l", terminal.sent, "the screen of before comes back")

    @larder_only
    def test_a_server_that_goes_away_and_comes_back(self):
        server = self.server()
        terminal = self.terminal("top", "127.0.0.1:%d" % server.port, "--interval", "0.2")
        self.assertTrue(terminal.wait_for(r"q ends"), terminal.screen())
        again = server.port
        server.stop()
        self.assertTrue(terminal.wait_for(r"no answer for \d+ s"), terminal.screen())
        self.assertIsNone(terminal.process.poll())
        self.server(port=again)
        self.assertTrue(terminal.wait_for(r"(?s)^(?!.*no answer for).*q ends"), terminal.screen())
        terminal.press(b"\x03")
        self.assertEqual(terminal.end(), 0)


if __name__ == "__main__":
    unittest.main()
