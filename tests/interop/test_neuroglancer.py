"""Neuroglancer shows the images that are written: pixels, orientation and length of voxels, in headless Chromium.

Needs the packages neuroglancer and selenium, and Debian's chromium and chromium-driver; WebGL is drawn in software.
"""

import io
import re
import shutil
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import chunkmill as cm

neuroglancer = pytest.importorskip("neuroglancer", reason="the viewer is not asked: pip install neuroglancer")
selenium = pytest.importorskip("selenium.webdriver", reason="no browser is driven: pip install selenium")
pil = pytest.importorskip("PIL.Image", reason="screenshots are not read: pip install pillow")

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--window-size=600,600", "--hide-scrollbars",
)  # fmt: skip
UPPER, LEFT, RIGHT = 40, 120, 230
PATIENCE = 30  # seconds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="no browser: apt-get install chromium chromium-driver"),
    pytest.mark.filterwarnings("ignore"),  # of other packages, on sockets that they leave open
]


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


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def page():
    """The viewer's state and a browser that shows it."""
    neuroglancer.set_server_bind_address("127.0.0.1")
    viewer = neuroglancer.Viewer()
    options = selenium.ChromeOptions()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    driver.get(viewer.get_viewer_url())
    yield viewer, driver
    driver.quit()
    neuroglancer.stop()


@pytest.fixture(scope="module")
def source(served):
    values = np.zeros((16, 64, 64), "u1")
    values[:, :32], values[:, 32:, :32], values[:, 32:, 32:] = UPPER, LEFT, RIGHT
    cm.to_store(values, served[0] / "source.zarr", "a", chunks=(8, 16, 16), dimension_names=("z", "y", "x"))
    return served[0] / "source.zarr", "a"


def quadrants(driver):
    """Return the grey level of the picture in its upper left, upper right, lower left and lower right."""
    picture = np.asarray(pil.open(io.BytesIO(driver.get_screenshot_as_png())).convert("L"))
    y, x = (n // 2 for n in picture.shape)
    return [int(picture[y + dy, x + dx]) for dy, dx in ((-60, -60), (-60, 60), (60, -60), (60, 60))]


@pytest.mark.parametrize(("name", "scheme", "options"), [
    ("image.n5", "n5", {"format": "n5", "codecs": "gzip"}),
    ("image-0.4.zarr", "zarr2", {"format": "zarr2"}),
    ("image-0.5.zarr", "zarr3", {"format": "zarr3"}),
    ("sharded.zarr", "zarr3", {"format": "zarr3", "shards": (16, 32, 32)}),
])  # fmt: skip
@pytest.mark.parametrize("unit", ["um", "micrometer"])
def test_pixels_are_shown_where_they_belong(served, page, source, name, scheme, options, unit):  # noqa: PLR0917
    (folder, url), (viewer, driver) = served, page
    where = f"{unit}-{name}"
    cm.pyramid(source, folder / where, scale=(40, 4, 4), units=unit, levels=2, **options)
    with viewer.txn() as state:
        state.layers.clear()
        state.dimensions = neuroglancer.CoordinateSpace()
        state.layers["image"] = neuroglancer.ImageLayer(
            source=f"{scheme}://{url}/{where}/",
            shader="void main() { emitGrayscale(toNormalized(getDataValue())); }",
        )
        state.layout, state.show_axis_lines = "xy", False
    wanted = [UPPER, UPPER, LEFT, RIGHT]
    end = time.monotonic() + PATIENCE
    while not viewer.state.dimensions.names and time.monotonic() < end:
        time.sleep(0.2)
    space = dict(zip(viewer.state.dimensions.names, viewer.state.dimensions.scales, strict=True))
    assert space == {"x": pytest.approx(4e-6), "y": pytest.approx(4e-6), "z": pytest.approx(40e-6)}
    with viewer.txn() as state:
        state.position = [{"x": 32, "y": 32, "z": 8}[axis] for axis in state.dimensions.names]
        state.display_dimensions, state.cross_section_scale = ["x", "y", "z"], 0.15
    found = quadrants(driver)
    while found != wanted and time.monotonic() < end:
        time.sleep(0.5)
        found = quadrants(driver)
    assert found == wanted
