"""Arrays and groups as text and as HTML: every fact is shown, shortened where it is long; trees unfold."""

from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.cases import cases
from support.markup import sample_group, text_of

import chunkmill as cm
from chunkmill.display.nodes import (
    _drawn_lengths,
    array_html,
    array_info,
    attributes_html,
    codecs_text,
    grid_svg,
    group_html,
    node_text,
)
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import NamedConfig


@pytest.fixture
def group(tmp_path):
    return sample_group(tmp_path / "g.zarr")


def test_html_of_an_array(group):
    html = array_html(group["a/cube"].stored)
    assert " ".join(text_of(html).split()) == (
        "Array Chunk Shard Bytes 1.88 kiB 80 B 320 B Shape (6, 8, 10) (2, 2, 5) (2, 4, 10) "
        "Count 480 elements 24 chunks 6 shards Data type float32 Fill value 0.0 "
        f"Codecs sharding_indexed (bytes → zstd) Dimensions t, ?, x Format zarr3 Store {group.url} Path a/cube 10 8 6"
    )
    assert html.count("<svg") == 1


@pytest.mark.parametrize("shape", [(), (0, 3)], ids=["0-d", "empty"])
def test_html_without_a_drawing(shape):
    array = cm.create_array("memory://repr-small", shape=shape, dtype="U3", chunks=(1,) * len(shape), overwrite=True)
    html = array_html(array.stored)
    assert "<svg" not in html
    text_of(html)
    assert grid_svg(ChunkGrid.regular(shape, (1,) * len(shape))) == ""


def test_text_of_an_array(group):
    assert node_text(group["a/cube"].stored) == (
        f"<chunkmill.Array zarr3 {group.url}/a/cube shape=(6, 8, 10) float32 chunks=(2, 2, 5) shards=(2, 4, 10)>"
    )
    assert " ".join(repr(array_info(group["a/cube"].stored)).split()) == (
        "array Shape (6, 8, 10) Chunk shape (2, 2, 5) Shard shape (2, 4, 10) Bytes 1.88 kiB Data type float32 "
        f"Fill value 0.0 Codecs sharding_indexed (bytes → zstd) Dimensions t, ?, x Format zarr3 Store {group.url} Path a/cube"
    )
    assert node_text(group["flat"].stored).endswith("/flat shape=(10, 10) int32 chunks=(3, 5)>")


def test_attributes_are_a_table_that_unfolds():
    assert not attributes_html({})
    html = attributes_html({"units": "K", "valid_range": [0, "µ"], "<b>": "x" * 201, "y": "y" * 200})
    assert text_of(html) == f'Attributes (4) units K valid_range [0, "µ"] <b> {"x" * 200}… y {"y" * 200}'
    assert html.startswith("<details><summary>")
    assert html.count("<tr>") == 4


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


def test_a_huge_grid_draws_few_lines():
    svg = grid_svg(ChunkGrid.regular((10**12, 10**9, 10**6), (1, 1, 1)))
    assert len(list(ET.fromstring(svg).iter("line"))) < 250
    grid = ChunkGrid.regular((32, 65), (1, 1))
    assert [_drawn_lengths(grid, axis) for axis in (0, 1)] == [(1,) * 32, (3,) * 21 + (2,)]


def test_a_rectilinear_grid_is_drawn_to_scale():
    grid = ChunkGrid((RunsAxis(10, ((1, 2), (8, 1))), RegularAxis(10, 10)))
    found = ET.fromstring(grid_svg(grid)).iter("line")
    ys = sorted({float(each.get("y1")) for each in found if each.get("y1") == each.get("y2")})
    assert np.allclose(np.diff(ys), [15, 15, 120], rtol=0.01)


def test_html_of_a_group_folds_and_escapes(group):
    html = group_html(group.stored)
    text = " ".join(text_of(html).split())
    assert text.startswith(
        f"<chunkmill.Group zarr3 {group.url}> Attributes (1) title <script>x</script> a/ "
        "cube (t, ?, x) shape=(6, 8, 10) float32 chunks=(2, 2, 5) shards=(2, 4, 10), 1.88 kiB Array Chunk Shard Bytes"
    )
    assert " flat shape=(10, 10) int32 chunks=(3, 5), 400 B Array Chunk Bytes 400 B 60 B" in text
    assert "<script>" not in html
    assert (html.count("<details open>"), html.count("<details>")) == (1, 4)  # of the group in it


def test_html_of_a_large_group_is_bounded(store):
    """Of 220 arrays 200 are named, of which some are drawn."""
    cm.create_arrays(store, {f"a{i:03}": {"shape": (4,), "dtype": "u1", "chunks": (2,)} for i in range(220)})
    html = group_html(cm.open_group(store).stored)
    text = text_of(html)
    assert "… and 20 more" in text
    assert "a199" in text
    assert "a200" not in text
    assert html.count("<svg") == 20


def test_a_broken_group_says_so(tmp_path, group, monkeypatch):
    (tmp_path / "g.zarr" / "flat" / "zarr.json").write_text("{")
    assert "MetadataError" in text_of(group_html(group.stored))
    assert "── flat (bad metadata in " in group.tree()
    monkeypatch.setattr("chunkmill.display.nodes._members", lambda _: Path("none").iterdir().__next__())
    assert "FileNotFoundError" in text_of(group_html(group.stored))


def test_html_of_an_image_lists_its_levels(tmp_path):
    cm.pyramid(
        np.ones((8, 16), "u1"), tmp_path / "cells.ome.zarr", levels=2, scale=(4, 0.5), units="um", name="<cells>"
    )
    (image,) = cm.open_group(tmp_path / "cells.ome.zarr").multiscales
    html = image._repr_html_()
    text = " ".join(text_of(html).split())
    assert "image <cells> described by 0.5 16 8 levels (2)" in text  # the finest is drawn
    assert "level shape chunks y (micrometer) x (micrometer) 0 (8, 16) (8, 16) 4 0.5 1 (4, 8) (8, 16) 8 1" in text
    assert html.count("<svg") == 1
