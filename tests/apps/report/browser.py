"""A headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver) with the standard library alone."""

import base64
import json
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that the standard gives to a reference to an element
START_SECONDS = 60
REQUEST_SECONDS = 120


def find_programs():
    """Paths of chromedriver and of the browser, or None for what is missing."""
    browsers = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return shutil.which("chromedriver"), next(filter(None, map(shutil.which, browsers)), None)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    """One session. `folder` takes the browser's profile and its log."""

    def __init__(self, folder):
        driver, browser = find_programs()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        folder = pathlib.Path(folder)
        self.log = open(folder / "chromedriver.log", "w")
        self.process = subprocess.Popen([driver, f"--port={port}"], stdout=self.log, stderr=self.log)
        try:
            self._wait_for_driver()
            options = {
                "binary": browser,
                # Containers run as root and have a small /dev/shm.
                "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
                         "--hide-scrollbars",
                         # A click would otherwise meet a page that still scrolls.
                         "--force-prefers-reduced-motion",
                         "--window-size=1280,1000", f"--user-data-dir={folder / 'profile'}"],
            }
            capabilities = {"browserName": "chrome", "goog:chromeOptions": options,
                            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            session = self._request("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
            self.url += f"/session/{session['sessionId']}"
        except BaseException:
            self.process.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._request("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait(timeout=START_SECONDS)
            self.log.close()

    def _request(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {json.load(error)['value']['message']}") from None

    def _wait_for_driver(self):
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                if self._request("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("chromedriver did not start")
            time.sleep(0.1)

    def _devtools(self, command, **parameters):
        return self._request("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, path):
        self._request("POST", "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """The value that a function body in JavaScript returns."""
        return self._request("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, condition, *arguments):
        end = time.monotonic() + START_SECONDS
        while not self.run(f"return {condition};", *arguments):
            if time.monotonic() > end:
                raise AssertionError(f"did not happen in {START_SECONDS} s: {condition}")
            time.sleep(0.05)

    def _find(self, selector):
        return self._request("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        """As a mouse does: fails where something lies over the element."""
        self._request("POST", f"/element/{self._find(selector)}/click", {})

    def press(self, selector, key):
        self._request("POST", f"/element/{self._find(selector)}/value", {"text": key})

    def choose(self, selector, value):
        self.click(f'{selector} option[value="{value}"]')

    def prefer_colours(self, scheme):
        """As a reader whose system is set to 'light' or 'dark'."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", features=features)

    def narrow(self, width, height):
        """As a telephone: smaller than a window may be made."""
        self._devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                       mobile=True)

    def console(self):
        """What was written to the console since the last call."""
        entries = self._request("POST", "/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in entries]

    def requested_urls(self):
        """Everything that was loaded since the last call."""
        entries = self._request("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        """The whole page, from top to bottom."""
        picture = self._devtools("Page.captureScreenshot", captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))


def take_screenshots(page, report, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("narrow", "light", 390)):
        page.prefer_colours(scheme)
        page.narrow(width, 900)
        page.open(report)
        page.wait_for("document.documentElement.dataset.ready === 'yes'")
        page.screenshot(folder / f"{name}.png")
