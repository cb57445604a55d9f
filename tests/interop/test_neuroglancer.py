"""Neuroglancer shows the images that are written: pixels, orientation and length of voxels, in headless Chromium.

Needs the packages neuroglancer and selenium, and Debian's chromium and chromium-driver; WebGL is drawn in software.
"""

import runpy
import time
from pathlib import Path

import numpy as np
import pytest
from support.servers import serve_files

import chunkmill as cm

viewer_of = pytest.importorskip(
    "support.viewer", reason="the viewer is not asked: pip install neuroglancer selenium pillow"
)
UPPER, LEFT, RIGHT = 40, 120, 230
PATIENCE = 30  # seconds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not viewer_of.BROWSER, reason="no browser: apt-get install chromium chromium-driver"),
    pytest.mark.filterwarnings("ignore"),  # of other packages, on sockets that they leave open
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with serve_files(folder, listing=False, headers=viewer_of.PAGES_OF_ANY_ORIGIN) as server:
        yield folder, server.url


@pytest.fixture(scope="module")
def page():
    """The viewer's state and a browser that shows it."""
    with viewer_of.showing(600, 600) as (viewer, driver):
        yield viewer, driver


@pytest.fixture(scope="module")
def source(served):
    values = np.zeros((16, 64, 64), "u1")
    values[:, :32], values[:, 32:, :32], values[:, 32:, 32:] = UPPER, LEFT, RIGHT
    cm.to_store(values, served[0] / "source.zarr", "a", chunks=(8, 16, 16), dimension_names=("z", "y", "x"))
    return served[0] / "source.zarr", "a"


def show(viewer, source):
    """Show an image alone; wait until its dimensions are known."""
    shader = "void main() { emitGrayscale(toNormalized(getDataValue())); }"
    with viewer.txn() as state:
        state.layers.clear()
        state.dimensions = viewer_of.neuroglancer.CoordinateSpace()
        state.layers["image"] = viewer_of.neuroglancer.ImageLayer(source=source, shader=shader)
        state.layout, state.show_axis_lines = "xy", False
    end = time.monotonic() + PATIENCE
    while not viewer.state.dimensions.names and time.monotonic() < end:
        time.sleep(0.2)


def quadrants(driver):
    """Return the grey level of the picture in its upper left, upper right, lower left and lower right."""
    picture = np.asarray(viewer_of.screenshot(driver).convert("L"))
    y, x = (n // 2 for n in picture.shape)
    return [int(picture[y + dy, x + dx]) for dy, dx in ((-60, -60), (-60, 60), (60, -60), (60, 60))]


@pytest.mark.parametrize(("name", "source_url", "options"), [
    ("image.n5", "n5://{}/", {"format": "n5", "codecs": "gzip"}),
    ("image-0.4.zarr", "zarr2://{}/", {"format": "zarr2"}),
    ("image-0.5.zarr", "zarr3://{}/", {"format": "zarr3"}),
    ("sharded.zarr", "zarr3://{}/", {"format": "zarr3", "shards": (16, 32, 32)}),
    ("image.ozx", "{}|zip:|zarr3:", {"format": "zarr3"}),
])  # fmt: skip
@pytest.mark.parametrize("unit", ["um", "micrometer"])
def test_pixels_are_shown_where_they_belong(served, page, source, name, source_url, options, unit):  # noqa: PLR0917
    (folder, url), (viewer, driver) = served, page
    where = f"{unit}-{name}"
    cm.pyramid(source, folder / where, scale=(40, 4, 4), units=unit, levels=2, **options)
    show(viewer, source_url.format(f"{url}/{where}"))
    wanted = [UPPER, UPPER, LEFT, RIGHT]
    end = time.monotonic() + PATIENCE
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


@pytest.mark.parametrize(("name", "options"), [
    ("n5", {"format": "n5", "codecs": "gzip"}), ("zarr2", {"format": "zarr2"}), ("zarr3", {"format": "zarr3"}),
])  # fmt: skip
def test_channels_have_no_unit(served, page, name, options):
    (folder, url), (viewer, _) = served, page
    values = np.ones((2, 16, 64, 64), "u1")
    cm.to_store(values, folder / "source.zarr", name, dimension_names=("c", "z", "y", "x"))
    about = {"scale": (1, 40, 4, 4), "units": "um", "levels": 2, **options}
    cm.pyramid((folder / "source.zarr", name), folder / f"channels.{name}", **about)
    show(viewer, f"{name}://{url}/channels.{name}/")
    shown = (viewer.state.dimensions, viewer.state.layers["image"].local_dimensions)
    space = {n: (s, u) for each in shown for n, s, u in zip(each.names, each.scales, each.units, strict=True)}
    lengths = {"x": (pytest.approx(4e-6), "m"), "y": (pytest.approx(4e-6), "m"), "z": (pytest.approx(40e-6), "m")}
    assert space == {**lengths, "c" if name == "n5" else "c'": (1, "")}


def test_the_picture_of_the_documentation_shows_what_is_written(tmp_path, page):
    docs = Path(__file__).parents[2] / "docs"
    made = runpy.run_path(str(docs / "viewer_picture.py"))
    made["photograph"](tmp_path / "made.png")
    stored, now = (
        np.asarray(viewer_of.Image.open(path).convert("RGB"), int) for path in (made["PICTURE"], tmp_path / "made.png")
    )
    assert made["PICTURE"].stat().st_size < 150_000
    assert abs(stored - now).mean() < 5
