"""One node that cannot be parsed leaves the others of its group usable: listed, drawn, copied where it is excluded."""

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from support.cases import cases

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import MetadataError

DOCUMENT = {"zarr2": ".zarray", "zarr3": "zarr.json", "n5": "attributes.json"}
BROKEN = {
    "no JSON": ("zarr2", lambda text: text[: len(text) // 2]),
    "a list": ("zarr3", lambda text: "[]"),
    "an empty document": ("zarr3", lambda text: ""),
    "a shape of text": ("n5", lambda text: text.replace("[\n    4\n  ]", '["x"]', 1)),
    "an unknown data type": ("zarr3", lambda text: text.replace("int64", "int65")),
}


def broken(root, how="an unknown data type"):
    """Make a group of three arrays, the second of which does not open."""
    fmt, change = BROKEN[how]
    cm.create_group(root, format=fmt)
    for name in ("a", "broken", "z"):
        cm.to_store(np.arange(4, dtype="i8"), root / name, format=fmt, chunks=2)
    document = root / "broken" / DOCUMENT[fmt]
    text = change(document.read_text())
    assert text != document.read_text()
    document.write_text(text)
    return root


@cases("how", BROKEN)
def test_listed_drawn_and_left_out_with_a_warning(tmp_path, how):
    group = cm.open_group(broken(tmp_path / "source", how))
    assert list(group) == list(group.keys()) == ["a", "broken", "z"]
    assert len(group) == 3
    np.testing.assert_array_equal(group["z"][...], np.arange(4))
    lines = group.tree().splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["a", "broken", "z"]
    assert "(" in lines[2]
    html = group._repr_html_()
    assert html.count("int64") >= 2
    assert "broken" in html
    with pytest.raises(MetadataError):
        group["broken"]
    for found in (lambda: dict(group.items()), group.arrays, lambda: [node.path for node in group.values()]):
        with pytest.warns(UserWarning, match=r"'broken' cannot be opened, and is left out: .*"):
            assert list(found()) == ["a", "z"]
    assert "broken" in group


def test_converted_without_it(tmp_path):
    store = broken(tmp_path / "source")
    with pytest.raises(MetadataError) as raised:
        cm.convert(store, tmp_path / "whole", format="zarr3", chunks={"a": (4,)})
    assert "include= of the others leaves 'broken' out" in "".join(raised.value.__notes__)
    cm.convert(store, tmp_path / "rest", format="zarr3", include=["a", "z"], chunks={"a": (4,)})
    rest = cm.open_group(tmp_path / "rest")
    assert (list(rest), rest["a"].chunks) == (["a", "z"], (4,))
    np.testing.assert_array_equal(rest["a"][...], np.arange(4))


def test_datasets_without_it(tmp_path):
    store = broken(tmp_path / "source")
    with pytest.raises(MetadataError) as raised:
        xr.open_dataset(store, engine="chunkmill")
    assert "drop_variables" in "".join(raised.value.__notes__)
    assert set(xr.open_dataset(store, engine="chunkmill", drop_variables=["broken"])) == {"a", "z"}


@cases("options", ["ls -l", "info", "info -r", "info --json", "info -r --json", "info --missing"])
def test_the_command_line_shows_the_others(tmp_path, options):
    done = CliRunner().invoke(main, [*options.split(), str(broken(tmp_path / "source"))])
    assert done.exit_code == 0, done.output
    assert "broken" in done.output
    assert "z" in done.output
    if options == "ls -l":
        assert "cannot be opened" in done.output
        assert {line.split()[0] for line in done.output.splitlines() if "int64" in line} >= {"a", "z"}
