"""Neuroglancer in a headless Chromium.

Needs the packages neuroglancer, selenium and pillow, and Debian's chromium and chromium-driver; WebGL is drawn in
software.
"""

import io
import shutil
from contextlib import contextmanager

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


PAGES_OF_ANY_ORIGIN = {
    "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*",
    "Access-Control-Expose-Headers": "Content-Range, Content-Length", "Accept-Ranges": "bytes",
}  # fmt: skip
"""Headers of a server of the images that it shows."""


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
