"""A headless Chromium for the tests of the site, driven over its debugging protocol."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request

from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium():
    """Return the path of a Chromium, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One tab of the browser, of a given width."""

    def __init__(self, url, loop):
        self._loop = loop
        self._socket = loop.run_until_complete(_connected(url))
        self._n_sent = 0
        self.call("Page.enable")

    def call(self, method, **parameters):
        """Call a method of the protocol, and return its result."""
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, parameters), timeout=60))

    async def _call(self, method, parameters):
        self._n_sent += 1
        await self._socket.write_message(json.dumps({"id": self._n_sent, "method": method, "params": parameters}))
        while True:
            answer = json.loads(await self._socket.read_message())
            if answer.get("id") == self._n_sent:
                assert "error" not in answer, answer
                return answer["result"]

    def set_width(self, width, height=900):
        """Show pages as a screen of this size does."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def evaluate(self, expression):
        """Return the value of an expression of JavaScript; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, expression, seconds=20):
        """Evaluate an expression until its value is true, and return that."""
        until = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < until, f"not within {seconds} s: {expression}"
            time.sleep(0.05)
        return value

    def open(self, url):
        """Open a page, and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait_for(f"document.readyState == 'complete' && location.href.startsWith({json.dumps(url)})")

    def screenshot(self, path, *, whole=True):
        """Write a picture of the page."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))


async def _closed(socket):
    socket.close()  # inside the loop: it makes futures of the current one


async def _connected(url):
    return await websocket_connect(url, max_message_size=2**28)


@contextlib.contextmanager
def open_tab(folder):
    """Start Chromium with a profile below ``folder``, and yield a tab of it."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    command = [find_chromium(), *flags, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    loop = asyncio.new_event_loop()
    try:
        port = _port(folder / "DevToolsActivePort", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            (page,) = [each for each in json.load(answer) if each["type"] == "page"]
        tab = Tab(page["webSocketDebuggerUrl"], loop)
        yield tab
        loop.run_until_complete(_closed(tab._socket))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        loop.run_until_complete(asyncio.sleep(0.1))  # the socket learns that it is closed
        loop.close()


def _port(file, process):
    until = time.monotonic() + 30
    while not (file.exists() and file.read_text().strip()):
        assert process.poll() is None, f"Chromium ended with code {process.returncode}"
        assert time.monotonic() < until, "Chromium did not start within 30 s"
        time.sleep(0.05)
    return file.read_text().split()[0]
