"""Drawings of chunk grids: one line for each border, bounded, and escaped."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from chunkmill.display.grid_svg import grid_svg
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis


def lines(svg, stroke):
    return [e for e in ET.fromstring(svg).iter("line") if e.get("stroke-width") == stroke]


@pytest.mark.parametrize(
    ("shape", "chunks", "n_faces", "n_lines"),
    [
        ((9,), (3,), 1, 2 + 4),  # an edge: above and below, and 4 borders
        ((4, 6), (2, 3), 1, 3 + 3),
        ((4, 6, 6), (2, 3, 2), 3, (3 + 3) + (3 + 4) + (3 + 4)),  # each face shows two axes
        ((2, 4, 6, 6), (1, 2, 3, 2), 4, (2 + 3) + 20),  # an edge, and a cube
        ((2, 2, 4, 6, 6), (1, 1, 2, 3, 2), 4, (3 + 3) + 20),
    ],
)
def test_a_drawing_has_a_line_for_each_border(shape, chunks, n_faces, n_lines):
    svg = grid_svg(ChunkGrid.regular(shape, chunks))
    assert len(list(ET.fromstring(svg).iter("polygon"))) == n_faces
    assert len(lines(svg, "0.7")) == n_lines


def test_shards_are_drawn_with_thick_lines():
    svg = grid_svg(ChunkGrid.regular((8, 8), (2, 2)), ChunkGrid.regular((8, 8), (4, 8)))
    assert len(lines(svg, "0.7")) == 5 + 5
    assert len(lines(svg, "2.2")) == 3 + 2


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_nothing_to_draw(shape):
    assert not grid_svg(ChunkGrid.regular(shape, (1,) * len(shape)))


def test_a_huge_grid_draws_few_lines():
    svg = grid_svg(ChunkGrid.regular((10**12, 10**9, 10**6), (1, 1, 1)))
    assert len(lines(svg, "0.7")) < 250


def test_a_rectilinear_grid_is_drawn_to_scale():
    grid = ChunkGrid((RunsAxis(10, ((1, 2), (8, 1))), RegularAxis(10, 10)))
    ys = sorted(float(e.get("y1")) for e in lines(grid_svg(grid), "0.7") if e.get("y1") == e.get("y2"))
    assert np.allclose(np.diff(ys), [15, 15, 120], atol=0.11)


def test_labels_are_escaped():
    assert "a&lt;b 4" in grid_svg(ChunkGrid.regular((4,), (2,)), None, ("a<b",))
