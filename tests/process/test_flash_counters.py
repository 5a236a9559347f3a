"""Every figure of flash that a server shows is explained in `docs/flash-counters.md`, and no other is."""

import os
import re
import unittest
import urllib.request

import support
from flash_support import FlashCase
from process_support import TESTS, larder_only

DOCUMENT = os.path.join(os.path.dirname(TESTS), "docs", "flash-counters.md")
# A row of a table: the name, the unit, what it counts, what it tells.
ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
CELLS = 3


def explained():
    """The names of all rows, and the other cells of each."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    return text, {name: cells.split(" | ") for name, cells in ROW.findall(text)}


@larder_only
class Explained(FlashCase):
    """Servers with a file, and with two simulated drives, which tell of devices, channels and wear."""

    def shown(self, *flags):
        """The names in `stats flash`, those of further devices and channels left out; and the metrics of flash."""
        admin = "127.0.0.1:%d" % support.free_port()
        running = self.server("-m", "16", "--admin", admin, *flags)
        rows = {name.decode() for name in self.connection(running).stats(b"flash")}
        with urllib.request.urlopen("http://%s/metrics" % admin, timeout=60) as answer:
            samples = re.findall(r"^(larder_flash_\w+)([{ ])", answer.read().decode(), re.MULTILINE)
        metrics = {re.sub(r"_(sum|count|bucket)$", "", name) for name, _ in samples}
        return {name for name in rows if not re.match(r"(device|channel)_([2-9]|1\d)", name)}, metrics

    def test_each_figure_has_a_row_with_every_cell(self):
        text, rows = explained()
        shown, metrics = self.shown("--flash", self.path + ":64m")
        more, more_metrics = self.shown("--flash", "sim:open-channel:64m", "--flash", "sim:open-channel:64m")
        shown, metrics = shown | more, metrics | more_metrics
        self.assertGreater(len(shown), 90)
        self.assertEqual(sorted(shown - set(rows)), [], "not explained")
        others = {name for name in rows if not name.startswith("larder_")}
        self.assertEqual(sorted(others - shown), [], "explained, and not shown")
        self.assertEqual([name for name, cells in rows.items()
                          if len(cells) != CELLS or not all(map(str.strip, cells))], [], "without a cell")
        names = {re.sub(r"^larder_flash_|_total$", "", name): name for name in metrics}
        self.assertGreater(len(names), 60)
        self.assertEqual(sorted(full for name, full in names.items() if name not in rows and full not in text), [],
                         "metrics that are not explained")
        grows = {name for name, cells in rows.items() if cells[0].strip() in ("events", "bytes")}
        self.assertEqual(sorted(name for name, full in names.items()
                                if name in rows and (name in grows) != full.endswith("_total")), [], "another unit")
        named = set(re.findall(r"\blarder_flash_\w+\b", text)) - {"larder_flash_NAME"}
        self.assertEqual(sorted(named - metrics), [], "metrics that are named, and not shown")


if __name__ == "__main__":
    unittest.main()
