"""Everything that shows itself: arrays, groups, plans and reports are well-formed, bounded and harmless."""

import xarray as xr
from support.markup import text_of

import chunkmill as cm
from chunkmill.display.nodes import array_html, group_html

EVIL = "<script>alert(1)<|script>\"'&<img src=x onerror=y>"


def test_names_and_attributes_give_no_orders(tmp_path):
    """Neither to a browser nor to a terminal."""
    red = "\x1b[31m\nred\u202e"
    cm.create_group(tmp_path, attributes={EVIL: EVIL, red: red})
    cm.create_group(tmp_path, f"{EVIL}{red}")
    about = {"dtype": "U200", "chunks": (2, 2), "fill_value": EVIL, "dimension_names": [EVIL, red]}
    array = cm.create_array(tmp_path, f"{EVIL}{red}/a", shape=(4, 4), **about)
    whole = cm.open_group(tmp_path)
    reports = cm.verify(tmp_path, array), cm.check(tmp_path), cm.write_dataset(xr.Dataset({EVIL: ("x", [1.0])}), {})
    for node in (array, whole, whole[f"{EVIL}{red}"], *reports):
        html = node._repr_html_()
        assert "<script" not in html
        assert "<img" not in html
        text_of(html)
        assert not set("\x1b\u202e") & set(f"{node!r}{node}")
    assert whole.tree().splitlines() == ["/", rf"└── {EVIL}\x1b[31m\nred\u202e", f"    └── a (4, 4) {array.dtype}"]
    assert "\n" not in repr(array)


def test_much_of_anything_is_bounded(store):
    members = [(f"member_{i}", "i4") for i in range(500)]
    arrays = [
        cm.create_array(store, "edges", shape=(9000, 4), dtype="i4", chunks=([1] * 4000 + [5000], 2)),
        cm.create_array(store, "structure", shape=(4,), dtype=members, chunks=(2,)),
        cm.create_array(store, "axes", shape=(2,) * 64, dtype="i4", chunks=(1,) * 64),
        cm.create_array(store, "text", shape=(4,), dtype=str, chunks=(2,), fill_value="x" * 100_000),
    ]
    assert all(len(repr(array)) < 1000 for array in arrays)
    assert all(len(array_html(array.stored)) < 60_000 for array in arrays)
    assert "Shape (9000, 4) (4,001 of 1 to 5000, 2 of 2 to 2)" in text_of(array_html(arrays[0].stored))
    cm.open_group(store, mode="r+").update_attributes({f"{i}": "x" * 1000 for i in range(5000)})
    html = group_html(cm.open_group(store).stored)
    assert len(html) < 200_000
    assert "Attributes (5000)" in html
    assert "… and 4,800 more" in text_of(html)
