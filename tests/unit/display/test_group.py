"""Groups as HTML: trees that unfold, bounded, and escaped."""

import numpy as np
import pytest
from support.markup import sample_group, text_of

import chunkmill as cm
from chunkmill.display.nodes import group_html


@pytest.fixture
def group(tmp_path):
    return sample_group(tmp_path / "g.zarr")


def test_html_of_a_group_folds_and_escapes(group):
    html = group_html(group.stored)
    text = text_of(html)
    assert "a/" in text
    assert "cube" in text
    assert "(t, ?, x) shape=(6, 8, 10) float32 chunks=(2, 2, 5) shards=(2, 4, 10), 1.88 kiB" in text
    assert "<script>" not in html
    assert html.count("<details") > 3


def test_html_of_a_large_group_is_bounded(store):
    """Of 220 arrays 200 are named, of which some are drawn."""
    cm.create_arrays(store, {f"a{i:03}": {"shape": (4,), "dtype": "u1", "chunks": (2,)} for i in range(220)})
    html = group_html(cm.open_group(store).stored)
    text = text_of(html)
    assert "… and 20 more" in text
    assert "a199" in text
    assert "a200" not in text
    assert html.count("<svg") == 20


def test_html_of_a_broken_group_says_so(tmp_path, group):
    (tmp_path / "g.zarr" / "flat" / "zarr.json").write_text("{")
    assert "MetadataError" in text_of(group_html(group.stored))


def test_html_of_an_image_lists_its_levels(tmp_path):
    cm.pyramid(
        np.ones((8, 16), "u1"), tmp_path / "cells.ome.zarr", levels=2, scale=(4, 0.5), units="um", name="<cells>"
    )
    (image,) = cm.open_group(tmp_path / "cells.ome.zarr").multiscales
    html = image._repr_html_()
    text = text_of(html)
    assert "image <cells> described by 0.5" in text
    assert "level shape chunks y (micrometer) x (micrometer) 0 (8, 16) (8, 16) 4 0.5 1 (4, 8) (8, 16) 8 1" in text
    assert html.count("<svg") == 1
