"""A real headless Chromium, spoken to through the DevTools protocol over a pipe: no driver, no port, no library.

    with Browser(tmp_path) as browser:
        page = browser.open(path)
        page.js("document.title")

Whatever a page does that it should not is kept: `page.requests`, `page.complaints`. Every answer is waited for with a
deadline.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 120.0  # Only what hangs meets it.


def program():
    """The browser of this machine, or None."""
    return next((found for found in map(shutil.which, PROGRAMS) if found), None)


class Browser:
    """One browser process with a profile of its own, and no way to any host; with `loopback`, to 127.0.0.1 alone."""

    def __init__(self, directory, loopback=False):
        self.reach = "MAP * ~NOTFOUND" + (", EXCLUDE 127.0.0.1" if loopback else "")
        self.log_path = Path(directory) / "browser.log"
        self.profile = Path(directory) / "profile"
        self.number = 0
        self.heard = b""
        self.pages = {}

    def __enter__(self):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [program(), "--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
                   "--no-first-run", "--hide-scrollbars", "--disable-gpu", "--disable-dev-shm-usage",
                   "--disable-background-networking", f"--host-resolver-rules={self.reach}", "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium's sandbox refuses root.

        def place():  # The browser reads from 3 and writes to 4. Ours may be 3 and 4 already, and the wrong way round.
            high_in, high_out = os.dup(theirs_in), os.dup(theirs_out)
            spare_in, spare_out = os.dup(high_in), os.dup(high_out)
            os.dup2(spare_in, 3)
            os.dup2(spare_out, 4)

        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            close_fds=False, preexec_fn=place)
        os.close(theirs_in)
        os.close(theirs_out)
        self.fd_in, self.fd_out = ours_in, ours_out
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(DEADLINE_S)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.fd_in)
        os.close(self.fd_out)

    def _hear(self, end, what):
        """The next message."""
        while b"\0" not in self.heard:
            ready, _, _ = select.select([self.fd_in], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self.fd_in, 1 << 20) if ready else None
            assert more is not None, f"{what}: no answer within {DEADLINE_S:g} s"
            assert more, f"{what}: the browser is gone\n{self.log_path.read_text(errors='replace')[-2000:]}"
            self.heard += more
        message, self.heard = self.heard.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        page = self.pages.get(message.get("sessionId"))
        if page is not None and "method" in message:
            page.note(message["method"], message["params"])

    def call(self, method, session=None, **params):
        self.number += 1
        order = {"id": self.number, "method": method, "params": params}
        if session:
            order["sessionId"] = session
        data = json.dumps(order).encode() + b"\0"
        while data:
            data = data[os.write(self.fd_out, data):]
        end = time.monotonic() + DEADLINE_S
        while True:
            message = self._hear(end, method)
            if message.get("id") != self.number:
                self._note(message)
                continue
            assert "error" not in message, f"{method}: {message['error']}"
            return message["result"]

    def open(self, path, width=1440, height=900, dark=False):
        """A page of a file or an address, loaded and laid out, in a window of this size."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height, dark)
        url = path if str(path).startswith(("http://", "about:")) else Path(path).resolve().as_uri()
        page.call("Page.navigate", url=url)
        end = time.monotonic() + DEADLINE_S
        while not page.loaded:
            self._note(self._hear(end, f"loading {path}"))
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.loaded = False
        self.requests = []    # Addresses, the page's own first.
        self.complaints = []  # What the console, the policy or a script said.

    def note(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(f"{details['text']} {details.get('exception', {}).get('description', '')}")
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append("dialog: " + params["message"])
            self.browser.call("Page.handleJavaScriptDialog", self.session, accept=False)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def js(self, expression):
        """The value of an expression; what it throws fails the test."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression[:200]}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def resize(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key):
        text = {"text": "\r"} if key == "Enter" else {}  # Without it a button is not pressed.
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key,
                  windowsVirtualKeyCode=KEYS.get(key, 0), **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def screenshot(self, path, whole=True):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)


KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
        "ArrowDown": 40}
