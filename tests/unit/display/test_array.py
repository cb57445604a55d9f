"""What people look at: drawings, tables, trees; well-formed and bounded."""

from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.display.array import array_html
from chunkmill.display.grid_svg import grid_svg
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.nodes.group_display import group_html

VOID = {"br", "hr", "img"}


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text_of(html):
    parser = Balanced()
    parser.feed(html)
    assert not parser.open
    return " ".join(parser.text)


def lines(svg, stroke):
    return [e for e in ET.fromstring(svg).iter("line") if e.get("stroke-width") == stroke]


@pytest.fixture
def group(tmp_path):
    url = str(tmp_path / "g.zarr")
    cm.create_group(url, attributes={"title": "<script>x</script>"})
    cm.create_array(
        url,
        "a/cube",
        shape=(6, 8, 10),
        dtype="f4",
        chunks=(2, 2, 5),
        shards=(2, 4, 10),
        dimension_names=("t", None, "x"),
    )
    cm.create_array(url, "flat", shape=(10, 10), dtype="i4", chunks=(3, 5), attributes={"units": "K"})
    return cm.open_group(url)


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


def test_html_of_an_array(group):
    html = array_html(group["a/cube"])
    text = text_of(html)
    for fact in (
        "1.88 kiB",
        "(6, 8, 10)",
        "(2, 4, 10)",
        "24 chunks",
        "6 shards",
        "float32",
        "t, ?, x",
        "sharding_indexed",
    ):
        assert fact in text
    assert html.count("<svg") == 1


@pytest.mark.parametrize("shape", [(), (0, 3)], ids=["0-d", "empty"])
def test_html_without_a_drawing(shape):
    array = cm.create_array("memory://repr-small", shape=shape, dtype="U3", chunks=(1,) * len(shape), overwrite=True)
    html = array_html(array)
    assert "<svg" not in html
    text_of(html)


def test_html_of_a_rectilinear_array_does_not_list_every_edge(tmp_path):
    from dask.array import ones

    cm.to_store(ones((300,), chunks=((1, 2) * 100,)), tmp_path / "r", chunks=((1, 2) * 100,))
    assert "200 of 1 to 2" in text_of(array_html(cm.open_array(tmp_path / "r")))


EVIL = "<script>alert(1)<|script>\"'&<img src=x onerror=y>"


def test_names_and_attributes_give_no_orders(tmp_path):
    """Neither to a browser nor to a terminal."""
    red = "\x1b[31m\nred\u202e"
    cm.create_group(tmp_path, attributes={EVIL: EVIL, red: red})
    cm.create_group(tmp_path, f"{EVIL}{red}")
    array = cm.create_array(
        tmp_path,
        f"{EVIL}{red}/a",
        shape=(4, 4),
        dtype="U200",
        chunks=(2, 2),
        fill_value=EVIL,
        dimension_names=[EVIL, red],
    )
    whole = cm.open_group(tmp_path)
    for node in (array, whole, whole[f"{EVIL}{red}"], cm.verify(tmp_path, array), cm.check(tmp_path)):
        html = node._repr_html_()
        assert "<script" not in html
        assert "<img" not in html
        text_of(html)
        assert not set("\x1b\u202e") & set(f"{node!r}{node}")
    assert whole.tree().splitlines() == ["/", rf"└── {EVIL}\x1b[31m\nred\u202e", f"    └── a (4, 4) {array.dtype}"]
    assert "\n" not in repr(array)


def test_much_of_anything_is_bounded(tmp_path):
    cm.create_group(tmp_path, attributes={f"{i}": "x" * 10_000 for i in range(5000)})
    members = [(f"member_{i}", "i4") for i in range(500)]
    arrays = [
        cm.create_array(tmp_path, "edges", shape=(9000, 4), dtype="i4", chunks=([1] * 4000 + [5000], 2)),
        cm.create_array(tmp_path, "structure", shape=(4,), dtype=members, chunks=(2,)),
        cm.create_array(tmp_path, "axes", shape=(2,) * 64, dtype="i4", chunks=(1,) * 64),
        cm.create_array(tmp_path, "text", shape=(4,), dtype=str, chunks=(2,), fill_value="x" * 100_000),
    ]
    assert all(len(repr(array)) < 1000 for array in arrays)
    assert all(len(array_html(array)) < 60_000 for array in arrays)
    html = group_html(cm.open_group(tmp_path))
    assert len(html) < 200_000
    assert "Attributes (5000)" in html
    assert "… and 4,800 more" in text_of(html)


def test_html_of_a_group_folds_and_escapes(group):
    html = group_html(group)
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
    text = text_of(group_html(cm.open_group(url)))
    assert "… and 20 more" in text
    assert "g199" in text
    assert "g200" not in text


def test_html_of_a_broken_group_says_so(tmp_path, group):
    (tmp_path / "g.zarr" / "flat" / "zarr.json").write_text("{")
    assert "MetadataError" in text_of(group_html(group))


def test_plans_and_reports(tmp_path, group):
    target = str(tmp_path / "t.zarr")
    plan = cm.plan_convert(group, target, format="zarr3", shards=None)
    html = plan._repr_html_()
    assert html.count("<svg") == 2
    assert "a/cube" in text_of(html)
    report = plan.run()
    assert "convert: done" in text_of(report._repr_html_())
    verified = cm.verify(group, target)
    assert "verify: equal" in text_of(verified._repr_html_())
    cm.open_array(target, "flat", mode="r+")[0, 0] = 1
    assert "1 of 100" in text_of(cm.verify(group, target)._repr_html_())


def test_reports_of_writes(tmp_path):
    report = cm.to_store(np.ones((4, 4)), tmp_path / "a", chunks=(2, 2))
    assert "4: of these 0 changed in part, 0 empty" in text_of(report._repr_html_())
    ds = xr.Dataset({"t<b>": ("x", [1.0, 2.0])})
    report = cm.write_dataset(ds, tmp_path / "ds")
    html = report._repr_html_()
    assert "t<b>" in text_of(html)
    assert "<b>t" not in html.replace("<b>write", "")
