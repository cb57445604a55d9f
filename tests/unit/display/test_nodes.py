"""Arrays as text and as HTML: every fact is shown, shortened where it is long."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.cases import cases
from support.markup import sample_group, text_of

import chunkmill as cm
from chunkmill.display.nodes import array_html, array_info, attributes_html, codecs_text, grid_svg, node_text
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import NamedConfig


@pytest.fixture
def group(tmp_path):
    return sample_group(tmp_path / "g.zarr")


def test_html_of_an_array(group):
    html = array_html(group["a/cube"].stored)
    text = text_of(html)
    sizes = "Bytes 1.88 kiB 80 B 320 B Shape (6, 8, 10) (2, 2, 5) (2, 4, 10)"
    for facts in (sizes, "24 chunks", "6 shards", "float32", "t, ?, x", "sharding_indexed"):
        assert facts in text
    assert html.count("<svg") == 1


@pytest.mark.parametrize("shape", [(), (0, 3)], ids=["0-d", "empty"])
def test_html_without_a_drawing(shape):
    array = cm.create_array("memory://repr-small", shape=shape, dtype="U3", chunks=(1,) * len(shape), overwrite=True)
    html = array_html(array.stored)
    assert "<svg" not in html
    text_of(html)


def test_html_of_a_rectilinear_array_does_not_list_every_edge(tmp_path):
    from dask.array import ones

    cm.to_store(ones((300,), chunks=((1, 2) * 100,)), tmp_path / "r", chunks=((1, 2) * 100,))
    assert "200 of 1 to 2" in text_of(array_html(cm.open_array(tmp_path / "r").stored))


def test_text_of_an_array(group):
    assert node_text(group["a/cube"].stored) == (
        f"<chunkmill.Array zarr3 {group.url}/a/cube shape=(6, 8, 10) float32 chunks=(2, 2, 5) shards=(2, 4, 10)>"
    )
    facts = " ".join(str(array_info(group["a/cube"].stored)).split())
    assert "Shape (6, 8, 10) Chunk shape (2, 2, 5) Shard shape (2, 4, 10) Bytes 1.88 kiB" in facts
    assert node_text(group["flat"].stored).endswith("/flat shape=(10, 10) int32 chunks=(3, 5)>")


def test_attributes_are_a_table_that_unfolds():
    assert not attributes_html({})
    html = attributes_html({"units": "K", "valid_range": [0, 1.5], "<b>": "x" * 201})
    assert text_of(html).startswith("Attributes (3) units K valid_range [0, 1.5] <b> x")
    assert html.count("<tr>") == 3
    assert f"{'x' * 200}…<" in html


def test_codecs_that_are_nested_twice():
    chain = [{"name": "bytes"}]
    for size in (2, 4):
        chain = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [size], "codecs": chain}}]
    codec = NamedConfig(chain[0]["name"], chain[0]["configuration"])
    assert codecs_text([codec]) == "sharding_indexed (sharding_indexed (bytes))"
    assert codecs_text([]) == "none"


@cases("shape", [(9,), (4, 6), (4, 6, 6), (2, 4, 6, 6)])
def test_a_grid_is_drawn(shape):
    svg = grid_svg(ChunkGrid.regular(shape, (2,) * len(shape)))
    texts = {each.text.strip() for each in ET.fromstring(svg).iter("text")}
    assert set(map(str, shape)) <= texts


@cases("shape", [(), (0,), (3, 0)])
def test_nothing_to_draw(shape):
    assert not grid_svg(ChunkGrid.regular(shape, (1,) * len(shape)))


def test_a_huge_grid_draws_few_lines():
    svg = grid_svg(ChunkGrid.regular((10**12, 10**9, 10**6), (1, 1, 1)))
    assert len(list(ET.fromstring(svg).iter("line"))) < 250


def test_a_rectilinear_grid_is_drawn_to_scale():
    grid = ChunkGrid((RunsAxis(10, ((1, 2), (8, 1))), RegularAxis(10, 10)))
    found = ET.fromstring(grid_svg(grid)).iter("line")
    ys = sorted({float(each.get("y1")) for each in found if each.get("y1") == each.get("y2")})
    assert np.allclose(np.diff(ys), [15, 15, 120], rtol=0.01)
