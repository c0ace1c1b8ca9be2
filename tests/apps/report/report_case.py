"""What the tests of HTML reports share: a page in a browser, what holds for every page, and the command line."""

import argparse
import pathlib
import subprocess
import tempfile
import unittest

import browser as chromium

SKIPPED = 77


class ReportCase(unittest.TestCase):
    """`browser` and `folder`, that of the experiment, are set by main()."""

    def setUp(self):
        self.page = self.browser
        self.page.requested_urls()  # forget those of earlier pages
        self.open("report.html")

    def tearDown(self):
        self.assertEqual(self.page.console(), [])

    def open(self, name):
        self.page.open(self.folder / name)
        self.page.wait_for("document.documentElement.dataset.ready === 'yes'")

    def need_charts(self):
        if not self.page.run("return typeof Chart !== 'undefined';"):
            self.skipTest("topomask was built without Chart.js")

    def test_fetches_nothing(self):
        urls = self.page.requested_urls()
        self.assertIn((self.folder / "report.html").as_uri(), urls)
        for url in urls:
            self.assertRegex(url, "^(file|data):")

    def test_light_dark_and_narrow(self):
        background = "return getComputedStyle(document.body).backgroundColor;"
        self.page.prefer_colours("light")
        light = self.page.run(background)
        self.page.prefer_colours("dark")
        self.assertNotEqual(self.page.run(background), light)
        self.page.click("#theme")  # the reader's word is the last
        self.assertEqual(self.page.run(background), light)
        self.page.narrow(360, 800)
        self.open("report.html")
        self.assertLessEqual(self.page.run("return document.documentElement.scrollWidth;"), 360)
        self.page.narrow(0, 0)  # as the window is

    def test_can_be_read_without_seeing_it(self):
        count = lambda selector: self.page.run(f"return document.querySelectorAll({selector!r}).length;")
        self.assertGreater(count("table th[scope]"), 0)
        for unnamed in ("table th:not([scope])", "table:not(:has(caption))", "img:not([alt])",
                        "canvas:not([aria-label])", "[role=img]:not([aria-label])"):
            self.assertEqual(count(unnamed), 0, unnamed)
        self.assertEqual(count("label select"), count("select"))


def main(description, report, make_report, *others):
    """Runs the cases `report` and `others`. make_report(program, folder) makes an experiment where none is given."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", help="the built topomask")
    parser.add_argument("--screenshots", type=pathlib.Path, help="write light.png, dark.png and narrow.png here")
    parser.add_argument("--folder", type=pathlib.Path, help="with --screenshots: an experiment that is there already")
    arguments = parser.parse_args()
    missing = [name for name, path in zip(("chromedriver", "Chromium"), chromium.find_programs()) if path is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed (Debian packages chromium and chromium-driver)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as scratch:
        report.folder = arguments.folder or pathlib.Path(scratch) / "table"
        if arguments.folder:
            subprocess.run([arguments.program, "report", report.folder, "--quiet"], check=True)
        else:
            make_report(arguments.program, report.folder)
        with chromium.Browser(scratch) as report.browser:
            if arguments.screenshots:
                chromium.take_screenshots(report.browser, report.folder / "report.html", arguments.screenshots)
                return 0
            suite = unittest.TestSuite()
            for case in (report, *others):
                case.program = arguments.program
                suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
            return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1
