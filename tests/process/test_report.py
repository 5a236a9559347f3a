"""The HTML report in a real browser: Chromium without a window, spoken to over its DevTools pipe."""

import json
import os
import pathlib
import select
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIMULATE = "simulate --workload zipfian:keys=10k,requests=60k,theta=0.8 --sizes 1%,3%,10% --quiet --html".split()
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --remote-debugging-pipe about:blank").split()
ANSWER_SECONDS = 120
# The names of the curves that are seen in the picture of the first chart that is seen.
NAMES = """[...document.querySelectorAll("section.chart .plot")].find((plot) => plot.getBoundingClientRect().width)
    .querySelectorAll(".end text")"""
NAMES_SEEN = "[...%s].filter((name) => name.getBoundingClientRect().width)" % NAMES
# Pairs of names of which one covers a part of the other, and names that leave the picture.
MISPLACED = NAMES_SEEN + """.flatMap((name, at, all) => {
    const [a, plot] = [name, name.closest("svg")].map((element) => element.getBoundingClientRect());
    const over = all.slice(at + 1).filter((other) => {
        const b = other.getBoundingClientRect();
        // Boxes have the height of a line, of which letters fill less.
        return Math.abs(a.top - b.top) < 0.8 * a.height && a.left < b.right && b.left < a.right;
    });
    if (a.right > plot.right + 1 || a.top < plot.top || a.bottom > plot.bottom) over.push(name);
    return over.map((other) => name.textContent + " " + other.textContent);
})"""


class Browser:
    """A page in Chromium. `complaints`: errors on its console; `asked`: addresses it asked for."""

    def __init__(self, folder):
        self.number, self.rest, self.session = 0, b"", None
        self.complaints, self.asked, self.loaded = [], [], False
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Chromium reads descriptor 3 and writes descriptor 4.
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec "$0" "$@" 3<&%d 4>&%d' % (theirs_in, theirs_out),
             CHROMIUM, "--user-data-dir=" + folder, *FLAGS],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read_from, self.write_to = ours_in, ours_out
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        """Ends the browser."""
        self.process.terminate()
        self.process.wait(ANSWER_SECONDS)
        os.close(self.read_from)
        os.close(self.write_to)

    def call(self, method, **parameters):
        """Calls a method of the DevTools protocol and returns its result."""
        self.number += 1
        words = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            words["sessionId"] = self.session
        os.write(self.write_to, json.dumps(words).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]

    def message(self):
        """The next message; what it says of the page is kept."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\0" not in self.rest:
            if not select.select([self.read_from], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            some = os.read(self.read_from, 1 << 20)
            if not some:
                raise RuntimeError("Chromium has ended")
            self.rest += some
        one, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(one)
        method, about = message.get("method"), message.get("params", {})
        if method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(about["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(about["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True
        return message

    def open(self, path, width):
        """Opens a file in a window of this width."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.complaints, self.asked, self.loaded = [], [], False
        self.call("Page.navigate", url=path.as_uri())
        while not self.loaded:
            self.message()

    def ask(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")


@unittest.skipUnless(CHROMIUM, "skipped: chromium is not installed (tests/install.sh installs it)")
class Report(unittest.TestCase):
    """The report of a simulation."""

    @classmethod
    def setUpClass(cls):
        """Writes the report once, and starts the browser once."""
        command = shlex.split(os.environ["LARDER_SERVER"])
        if "larder" not in os.path.basename(command[0]):
            raise unittest.SkipTest("skipped: only larder writes reports")
        folder = tempfile.mkdtemp(prefix="larder-report-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.page = pathlib.Path(folder, "out.html")
        subprocess.run([command[0], *SIMULATE, str(cls.page)], check=True, timeout=ANSWER_SECONDS)
        cls.browser = Browser(os.path.join(folder, "profile"))
        cls.addClassCleanup(cls.browser.close)

    def test_opens_without_errors_and_asks_for_nothing(self):
        """The page is all there is."""
        self.browser.open(self.page, 1400)
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual(self.browser.asked, [self.page.as_uri()])

    def test_the_title_says_what_was_simulated_and_defaults_are_folded(self):
        """A person would write it so."""
        self.browser.open(self.page, 1400)
        title = self.browser.ask("document.querySelector('h1').innerText")
        self.assertRegex(title, r"^\d+ eviction policies on a zipfian workload of 10,000 keys \(theta=0.8\): "
                                r"60,000 requests, caches of [\d,]+ to [\d,]+ objects$")
        self.assertNotIn("seed=1", self.browser.ask("document.body.innerText"))
        self.browser.ask("document.querySelector('summary').click()")
        self.assertIn("seed=1", self.browser.ask("document.body.innerText"))

    def test_fits_wide_and_narrow_windows(self):
        """Nothing overflows the window; every chart is seen, and so are its curves."""
        for width in (400, 1400):
            with self.subTest(width=width):
                self.browser.open(self.page, width)
                self.assertEqual(self.browser.ask("innerWidth"), width)
                self.assertLessEqual(self.browser.ask("document.documentElement.scrollWidth"), width)
                hidden = self.browser.ask("""[...document.querySelectorAll("section.chart")].filter((chart) => {
                    const seen = [...chart.querySelectorAll(".plot")].filter((p) => p.getBoundingClientRect().width);
                    const marks = seen.flatMap((p) => [...p.querySelectorAll(".series :is(path, circle)")]);
                    const drawn = (m) => { const b = m.getBoundingClientRect(); return b.width + b.height > 0; };
                    return seen.length !== 1 || !marks.some(drawn);
                }).map((chart) => chart.id)""")
                self.assertEqual(hidden, [])
                self.assertGreater(self.browser.ask("document.querySelectorAll('section.chart').length"), 0)

    def test_a_click_on_a_column_sorts_by_it(self):
        """Numbers by size: the greatest first, then the smallest."""
        self.browser.open(self.page, 1400)
        values = """[...document.querySelector("th.number").closest("table").tBodies[0].rows].map((row) => Number(
            row.cells[document.querySelector("th.number").cellIndex].dataset.value ?? NaN))
            .filter((value) => !Number.isNaN(value))"""
        click = "document.querySelector('th.number button').click()"
        before = self.browser.ask(values)
        self.assertGreater(len(before), 1)
        self.browser.ask(click)
        self.assertEqual(self.browser.ask(values), sorted(before, reverse=True))
        self.browser.ask(click)
        self.assertEqual(self.browser.ask(values), sorted(before))

    def test_eight_curves_with_their_names_are_shown_at_first_also_without_scripts(self):
        """The references are among them, and no name covers another."""
        for scripts in (True, False):
            self.browser.call("Emulation.setScriptExecutionDisabled", value=not scripts)
            for width in (400, 1400):
                with self.subTest(width=width, scripts=scripts):
                    self.browser.open(self.page, width)
                    names = self.browser.ask(NAMES_SEEN + ".map((name) => name.textContent)")
                    self.assertEqual(len(names), 8, names)
                    self.assertLessEqual({"lru", "larder", "belady"}, set(names))
                    self.assertEqual(self.browser.ask(MISPLACED), [])
        self.browser.call("Emulation.setScriptExecutionDisabled", value=False)

    def test_the_keyboard_shows_all_other_curves_and_no_two_look_alike(self):
        """The legend has a button for each; names make room for those that come."""
        for width in (400, 1400):
            with self.subTest(width=width):
                self.browser.open(self.page, width)
                off = "document.querySelector('section.chart .legend button[aria-pressed=false]')"
                hidden = self.browser.ask(
                    "document.querySelector('section.chart .legend').querySelectorAll('[aria-pressed=false]').length")
                self.assertGreater(hidden, 4)
                for _ in range(hidden):
                    self.browser.ask(off + ".focus()")
                    for kind in ("keyDown", "keyUp"):
                        self.browser.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ",
                                          windowsVirtualKeyCode=32)
                seen = self.browser.ask(NAMES_SEEN + ".length")
                self.assertEqual(seen, 8 + hidden)
                self.assertEqual(self.browser.ask(MISPLACED), [])
                looks = self.browser.ask("""[...document.querySelector("section.chart .plot").querySelectorAll(
                    ".series")].map((series) => series.querySelector(".line")).map((line) =>
                    getComputedStyle(line).stroke + getComputedStyle(line).strokeDasharray)""")
                self.assertEqual(len(set(looks)), 8 + hidden, looks)

    def test_a_click_on_the_legend_hides_a_curve_and_shows_it_again(self):
        """The entry's curve alone."""
        self.browser.open(self.page, 1400)
        shown = """[...document.querySelectorAll("section.chart .plot.wide")][0].querySelectorAll(
            ".series:not(.off)").length"""
        click = "document.querySelector('.legend button').click()"
        before = self.browser.ask(shown)
        self.browser.ask(click)
        self.assertEqual(self.browser.ask(shown), before - 1)
        self.browser.ask(click)
        self.assertEqual(self.browser.ask(shown), before)

    def test_hovering_tells_the_nearest_point(self):
        """A box with numbers appears over the chart and leaves with the pointer."""
        self.browser.open(self.page, 1400)
        self.browser.ask("document.querySelector('.plot.wide').scrollIntoView({block: 'center'})")
        x, y = self.browser.ask("""(() => { const b = document.querySelector(".plot.wide").getBoundingClientRect();
            return [b.left + b.width / 2, b.top + b.height / 2]; })()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.assertRegex(self.browser.ask("document.querySelector('.tip:not([hidden])')?.innerText ?? ''"), r"\d")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        self.assertTrue(self.browser.ask("document.querySelector('.tip').hidden"))
