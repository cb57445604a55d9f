"""Groups as HTML: trees that unfold, bounded, and escaped."""

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
    assert "(t, ?, x) (6, 8, 10) float32, chunks (2, 2, 5), shards (2, 4, 10), 1.88 kiB" in text
    assert "<script>" not in html
    assert html.count("<details") > 3


def test_html_of_a_large_group_is_bounded(tmp_path):
    url = str(tmp_path / "many.zarr")
    for i in range(220):
        cm.create_group(url, f"g{i:03}")
    text = text_of(group_html(cm.open_group(url).stored))
    assert "… and 20 more" in text
    assert "g199" in text
    assert "g200" not in text


def test_html_of_a_broken_group_says_so(tmp_path, group):
    (tmp_path / "g.zarr" / "flat" / "zarr.json").write_text("{")
    assert "MetadataError" in text_of(group_html(group.stored))


def test_attributes_are_indented_below_their_group(tmp_path):
    url = str(tmp_path / "g.zarr")
    cm.create_group(url, attributes={"title": "all"})
    cm.create_group(url, "sub", attributes={"units": "K"})
    html = group_html(cm.open_group(url).stored)
    indented = "<div style='padding-left:1.2em'><details><summary>Attributes (1)</summary>"
    assert html.count(indented) == html.count("Attributes (1)") == 2
    assert html.index("g.zarr") < html.index(indented) < html.index("sub/") < html.rindex(indented)
