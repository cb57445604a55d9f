"""Photograph an image in Neuroglancer: ``python docs/viewer_picture.py`` writes ``docs/images/neuroglancer.png``.

The image is made here, cells with membranes and nuclei; `chunkmill.pyramid` writes it as sharded OME-Zarr, and the
browser shows the file that results. Needs what tests/support/viewer.py names.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import chunkmill as cm
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import viewer as viewer_of
from support.servers import serve_files

PICTURE = Path(__file__).parent / "images" / "neuroglancer.png"
SHAPE, VOXEL = (48, 256, 256), (2.0, 0.5, 0.5)
COLOURS = {
    "membranes": "vec3(0.4, 1.0, 0.6)",
    "nuclei": "vec3(1.0, 0.45, 1.0)",
}


def cells() -> list[np.ndarray]:
    """Return membranes and nuclei of cells that fill a ball."""
    rng = np.random.default_rng(4)
    extent = np.multiply(SHAPE, VOXEL)
    grid = np.stack(
        np.meshgrid(
            *(np.arange(n) * v for n, v in zip(SHAPE, VOXEL, strict=True)),
            indexing="ij",
        ),
        -1,
    )
    centres = rng.random((90, 3)) * extent
    first = np.full(SHAPE, np.inf, "f4")
    second = first.copy()
    for centre in centres:
        distance = np.sqrt(((grid - centre) ** 2).sum(-1)).astype("f4")
        second = np.minimum(second, np.maximum(first, distance))
        first = np.minimum(first, distance)
    inside = (((grid - extent / 2) / (extent * 0.48)) ** 2).sum(-1) < 1
    membranes = np.exp(-(((second - first) / 2.2) ** 2)) * inside
    nuclei = 1 / (1 + np.exp((first - 6.5) * 2)) * inside
    return [(each * 4000).astype("u2") for each in (membranes, nuclei)]


def photograph(path: Path) -> None:
    """Write the image, show it, and write the picture."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_files(
            folder, listing=False, headers=viewer_of.PAGES_OF_ANY_ORIGIN
        ) as server,
    ):
        cm.pyramid(
            cells(), f"{folder}/cells.ome.zarr", chunks=(1, 16, 64, 64), shards=(1, 48, 256, 256),
            scale=(1, *VOXEL), units="um", channels=list(COLOURS),
        )  # fmt: skip
        with viewer_of.showing(900, 600) as (viewer, driver):
            show(viewer, f"zarr3://{server.url}/cells.ome.zarr/")
            time.sleep(3)
            while not viewer.state.dimensions.names:
                time.sleep(0.2)
            with viewer.txn() as state:
                where = {"x": 128, "y": 128, "z": 24}
                state.position = [
                    where.get(name.rstrip("^'"), 0)
                    for name in state.dimensions.names
                ]
                state.display_dimensions = ["x", "y", "z"]
                state.cross_section_scale = 0.6
            previous = None
            while previous != (
                now := viewer_of.screenshot(driver)
            ):  # chunks arrive one after the other
                previous = now
                time.sleep(3)
    now.quantize(96).save(path, optimize=True)


def show(viewer: object, source: str) -> None:
    """Show each channel of an image in its colour, in two planes."""
    with viewer.txn() as state:
        for number, (name, colour) in enumerate(COLOURS.items()):
            state.layers[name] = viewer_of.neuroglancer.ImageLayer(
                source=source,
                local_position=[number],
                blend="additive",
                opacity=1,
                shader=f"#uicontrol invlerp normalized(range=[0, 3600])\n"
                f"void main() {{ emitRGB({colour} * normalized()); }}",
            )
        planes = [
            viewer_of.neuroglancer.LayerGroupViewer(
                layers=list(COLOURS), layout=each
            )
            for each in ("xy", "xz")
        ]
        state.layout = viewer_of.neuroglancer.row_layout(planes)
        state.show_axis_lines, state.show_scale_bar = False, True
        state.cross_section_background_color = "#000000"
    with viewer.config_state.txn() as settings:
        settings.show_ui_controls = settings.show_panel_borders = (
            settings.show_layer_panel
        ) = False


if __name__ == "__main__":
    photograph(PICTURE)
    sys.stdout.write(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes\n")
