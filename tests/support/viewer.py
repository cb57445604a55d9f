"""Neuroglancer in a headless Chromium, and a web server for the images that it shows.

Needs the packages neuroglancer, selenium and pillow, and Debian's chromium and chromium-driver; WebGL is drawn in
software.
"""

import io
import re
import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import neuroglancer
from PIL import Image
from selenium import webdriver

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") if DRIVER else None
FLAGS = (
    "--headless=new", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


class Files(SimpleHTTPRequestHandler):
    """Files of a folder for pages of any origin, in ranges, as shards are read."""

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content, wanted = path.read_bytes(), re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        size = len(content)
        if wanted:
            first, last = wanted.groups()
            start = int(first) if first else size - int(last)
            content = content[start : int(last) + 1 if first and last else size]
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{start + len(content) - 1}/{size}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_HEAD(self):
        path = Path(self.translate_path(self.path))
        self.send_response(200 if path.is_file() else 404)
        self.send_header("Content-Length", str(path.stat().st_size if path.is_file() else 0))
        self.end_headers()

    def do_OPTIONS(self):
        self.send_response(200)
        self.end_headers()

    def end_headers(self):
        for name in ("Origin", "Headers"):
            self.send_header(f"Access-Control-Allow-{name}", "*")
        self.send_header("Access-Control-Expose-Headers", "Content-Range, Content-Length")
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def serving(folder):
    """Serve a folder; yield its url."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def showing(width, height):
    """Yield the state of a viewer, and the browser that shows it."""
    neuroglancer.set_server_bind_address("127.0.0.1")
    viewer = neuroglancer.Viewer()
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.get(viewer.get_viewer_url())
    yield viewer, driver
    driver.quit()
    neuroglancer.stop()


def screenshot(driver):
    """Return what the browser shows."""
    return Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
