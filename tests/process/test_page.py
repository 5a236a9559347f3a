"""The admin page in a real browser: what it says of a server that is used, on a desk and on a telephone."""

import os
import re
import shutil
import tempfile
import time
import unittest

import process_support  # noqa: F401 (finds the modules below)
import support
from process_support import Case, larder_only
from test_compress import Readers, document
from test_report import CHROMIUM, Browser

AXE = os.path.join(support.tools_folder(), "node", "node_modules", "axe-core", "axe.min.js")
TABS = "overview requests namespaces worth flash numbers help".split()
# What a script writes where it does not look at what it writes.
NO_NUMBER = re.compile(r"NaN|undefined|null|Infinity|\d[eE][-+]?\d|\d{9}|\d\.\d{4}")


@unittest.skipUnless(CHROMIUM, "skipped: chromium is not installed (tests/install.sh installs it)")
class Page(Case):
    """`--admin` in Chromium."""

    @classmethod
    def setUpClass(cls):
        """Starts the browser once."""
        folder = tempfile.mkdtemp(prefix="larder-page-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.browser = Browser(os.path.join(folder, "profile"))
        cls.addClassCleanup(cls.browser.close)
        # The page lets no script in but its own. The checker of accessibility is one.
        cls.browser.call("Page.setBypassCSP", enabled=True)

    def visit(self, *flags, tab="", width=1280):
        """Starts a server and opens its page; returns a connection to the server."""
        self.admin = support.free_port()
        self.running = self.server("-m", "64", "--admin", "127.0.0.1:%d" % self.admin, *flags)
        self.turn(tab, width)
        return self.connection(self.running)

    def turn(self, tab, width=1280):
        """Opens the page at the address of a tab, and waits until it has read the server twice."""
        browser = self.browser
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.call("Page.navigate", url="about:blank")
        browser.complaints.clear()
        browser.call("Page.navigate", url="http://127.0.0.1:%d/#%s" % (self.admin, tab))
        self.wait_for("document.getElementById('state')?.textContent", "^ready$")
        self.wait_for("String(answers.length > 1)", "true")

    def choose(self, tab):
        """Goes to a tab of the page that is open, and waits until it is drawn."""
        self.browser.ask("window.done = false; location.hash = '#%s'; "
                         "turn().then(() => { window.done = true; }); 0" % tab)
        self.wait_for("String(window.done)", "true")

    def wait_for(self, script, pattern):
        """Waits until an expression of the page gives a text of this pattern; returns the text."""
        deadline = time.monotonic() + support.WAIT_SECONDS_MAX
        while True:
            found = str(self.browser.ask(script))
            if re.search(pattern, found):
                return found
            if time.monotonic() > deadline:
                self.fail("%s is %r, not %r" % (script, found[:2000], pattern))
            time.sleep(0.05)

    def text(self, name, pattern):
        """Waits until the element of this name shows a text of this pattern; returns the text."""
        return self.wait_for("document.getElementById(%r).innerText" % name, pattern)

    @larder_only
    def test_what_a_server_was_asked(self):
        connection = self.visit("--namespaces", "user=0-50")
        self.assertRegex(self.browser.ask("document.title"), r":%d .*– Larder$" % self.running.port)
        self.text("who", r":%d" % self.running.port)
        self.text("about", r"^64 MiB of memory, \d+ connections?, up for \d+ s, version \d")
        self.text("summary", r"Nothing is asked at present\.\s+Nothing has to leave: 6\d\.\d MiB of memory are free")
        for nth in range(75):
            connection.set(b"user:%d:caf\xc3\xa9" % nth, b"x" * 1000)
        for nth in range(100):
            connection.get(b"user:%d:caf\xc3\xa9" % nth)
        self.text("summary", r"75\.0 % of the reads hit; 99 % take up to [\d.]+ [nµm]s within the server")
        self.text("asked", r"(?s)get\s+[\d.]+/s.*set\s+[\d.]+/s")
        self.text("memory-key", r"items: 7\d(\.\d)? KiB")
        self.text("charts", r"Items: 75 now, 0 to 75")
        self.text("charts", r"Reads that hit: (75\.0 %|–) now|nothing yet")
        self.choose("requests")
        self.text("latency", r"(?s)get.*\s100\s.*set.*\s75\s")
        self.text("large-keys", r"user:\d+:café\s+1000 B")
        self.choose("namespaces")
        self.text("tenants", r"user\s+7\d\s.*\s75\.0 %\s")
        self.assertEqual(self.browser.complaints, [])

    @larder_only
    def test_what_is_compressed(self):
        connection = self.visit("-m", "16", "--compress", "auto")

        def compressed():
            return int(connection.stats(b"compression")[b"compressed_items"])

        self.text("memory-key", "index")
        self.assertEqual(self.text("compressed", ""), "")
        readers = Readers(self.connection(self.running), {b"user": document})
        readers.read_until(compressed, "items are compressed")
        self.text("compressed", r"^\d+(\.\d+)? % of the items are compressed, their values \d\.\d to 1\.$")

    @larder_only
    def test_each_tab_has_an_address_and_the_numbers_a_filter(self):
        self.visit(tab="numbers/evicted%20main")
        self.assertEqual(self.browser.ask("document.getElementById('filter').value"), "evicted main")
        self.text("all", r"evicted_main\s+0\s")
        self.text("numbers-sum", r"^1 of \d{3}$")
        self.browser.ask("(() => { const f = document.getElementById('filter'); f.value = 'no such number'; "
                         "f.dispatchEvent(new Event('input')); })()")
        self.text("numbers-sum", r"^0 of \d{3}$")
        self.assertEqual(self.browser.ask("location.hash"), "#numbers/no%20such%20number")
        shown = "[...document.querySelectorAll('.tab')].filter((tab) => !tab.hidden).map((tab) => tab.id).join()"
        self.assertEqual(self.browser.ask(shown), "numbers")
        self.browser.ask("document.querySelector('#tabs a[href=\"#help\"]').click()")
        self.wait_for(shown, "^help$")
        self.assertEqual(self.browser.ask("document.querySelector('[aria-current=page]').textContent"), "Help")
        offered = "[...document.querySelectorAll('#tabs a')].filter((a) => !a.hidden).map((a) => a.hash).join()"
        self.assertEqual(self.browser.ask(offered), "#overview,#requests,#numbers,#help")

    @larder_only
    def test_a_chart_tells_the_value_of_a_time(self):
        connection = self.visit()
        connection.set(b"a", b"x")
        self.text("charts", r"Items: 1 now")
        chart = "document.querySelectorAll('#charts figure')[4]"
        caption = chart + ".querySelector('figcaption').textContent"
        self.assertRegex(self.browser.ask(caption), r"^Items: 1 now")
        self.browser.ask(chart + ".querySelector('svg').focus()")
        for key in ("ArrowLeft", "ArrowLeft"):
            for kind in ("keyDown", "keyUp"):
                self.browser.call("Input.dispatchKeyEvent", type=kind, key=key)
        self.wait_for(caption, r"^Items: [01], \d+ s ago$")
        left, top = self.browser.ask("(() => { const b = %s.querySelector('svg').getBoundingClientRect(); "
                                     "return [b.right - 9, b.top + 40]; })()" % chart)
        self.browser.ask("document.activeElement.blur()")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=top)
        self.wait_for(caption, r"^Items: 1, now$")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        self.wait_for(caption, r"^Items: 1 now")

    @larder_only
    def test_it_fits_a_desk_and_a_telephone_and_says_nothing_senseless(self):
        connection = self.visit("--flash", "sim:ftl:64m", "--namespaces", "a=0-50")
        for width in (1280, 390):
            self.turn("", width)
            for tab in TABS:
                with self.subTest(tab=tab, width=width):
                    self.choose(tab)
                    body = self.browser.ask("[...document.querySelectorAll('header, #tabs, main')].map("
                                            "(part) => part.innerText).join('\\n')")
                    self.assertEqual(NO_NUMBER.findall(body), [], body)
                    wide, high = self.browser.ask("[document.documentElement.scrollWidth - innerWidth, "
                                                  "document.documentElement.scrollHeight]")
                    self.assertLessEqual(wide, 0)
                    if tab == "overview" and width == 1280:
                        self.assertLess(high, 2 * 900)
                    self.assertEqual(self.browser.complaints, [])
            connection.set(b"a%25", b"x" * 2000)

    @larder_only
    @unittest.skipUnless(os.path.exists(AXE), "skipped: axe-core is not there (make clients installs it)")
    def test_it_can_be_used_by_keyboard_and_screen_reader(self):
        connection = self.visit("--flash", "sim:ftl:64m", "--namespaces", "a=0-50")
        connection.set(b"a", b"x" * 1000)
        with open(AXE, encoding="utf-8") as file:
            checker = file.read()
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia",
                              features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.turn("")
            self.browser.ask(checker + "; 0")
            for tab in TABS:
                with self.subTest(tab=tab, scheme=scheme):
                    self.choose(tab)
                    self.browser.ask("window.found = undefined; "
                                     "axe.run().then((found) => { window.found = found; }); 0")
                    self.wait_for("String(window.found !== undefined)", "true")
                    wrong = self.browser.ask("found.violations.map((each) => each.id + ': ' + each.nodes[0].html)")
                    self.assertEqual(wrong, [])
                    self.assertGreater(self.browser.ask("found.passes.length"), 20)


if __name__ == "__main__":
    unittest.main()
