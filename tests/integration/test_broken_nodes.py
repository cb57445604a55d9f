"""One node that cannot be parsed leaves the others of its group usable: listed, drawn, copied where it is excluded."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import MetadataError

DOCUMENT = {"zarr2": ".zarray", "zarr3": "zarr.json", "n5": "attributes.json"}


def changed(**members):
    return lambda text: json.dumps({**json.loads(text), **members})


BROKEN = {
    "no JSON": lambda text: text[: len(text) // 2],
    "a list": lambda text: "[]",
    "an empty document": lambda text: "",
    "a shape of text": lambda text: text.replace("[\n    4\n  ]", '["x"]', 1),
    "an unknown data type": lambda text: text.replace("int64", "int65").replace('"<i8"', '"<i7"'),
}


@pytest.fixture(params=DOCUMENT)
def fmt(request):
    return request.param


@pytest.fixture(params=BROKEN)
def store(request, fmt, tmp_path):
    root = tmp_path / "source"
    cm.create_group(root, format=fmt)
    for name in ("a", "broken", "z"):
        cm.to_store(np.arange(4, dtype="i8"), root / name, format=fmt, chunks=2)
    document = Path(root) / "broken" / DOCUMENT[fmt]
    text = BROKEN[request.param](document.read_text())
    assert text != document.read_text()
    document.write_text(text)
    return root


def test_listed_and_drawn(store):
    group = cm.open_group(store)
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


def test_ls(store):
    done = CliRunner().invoke(main, ["ls", "-l", str(store)])
    assert done.exit_code == 0
    assert "cannot be opened" in done.output
    assert {line.split()[0] for line in done.output.splitlines() if "int64" in line} >= {"a", "z"}


def test_converted_without_it(store, tmp_path):
    with pytest.raises(MetadataError) as raised:
        cm.convert(store, tmp_path / "whole", format="zarr3", chunks={"a": (4,)})
    assert "include= of the others leaves 'broken' out" in "".join(raised.value.__notes__)
    cm.convert(store, tmp_path / "rest", format="zarr3", include=["a", "z"], chunks={"a": (4,)})
    rest = cm.open_group(tmp_path / "rest")
    assert list(rest) == ["a", "z"]
    assert rest["a"].chunks == (4,)
    np.testing.assert_array_equal(rest["a"][...], np.arange(4))


def test_the_others_are_returned_with_a_warning(store):
    group = cm.open_group(store)
    for found in (group.items, lambda: group.arrays().items()):
        with pytest.warns(UserWarning, match=r"'broken' cannot be opened, and is left out: .*"):
            assert [name for name, _ in found()] == ["a", "z"]
    with pytest.warns(UserWarning, match="'broken' cannot be opened"):
        assert [node.path for node in group.values()] == ["a", "z"]
    assert "broken" in group


@pytest.mark.parametrize("options", [(), ("-r",), ("--json",), ("-r", "--json"), ("--missing",)], ids="".join)
def test_info(store, options):
    done = CliRunner().invoke(main, ["info", *options, str(store)])
    assert done.exit_code == 0, done.output
    assert "broken" in done.output
    assert "z" in done.output


def test_datasets_without_it(store):
    with pytest.raises(MetadataError) as raised:
        xr.open_dataset(store, engine="chunkmill")
    assert "drop_variables" in "".join(raised.value.__notes__)
    assert set(xr.open_dataset(store, engine="chunkmill", drop_variables=["broken"])) == {"a", "z"}


def test_the_command_line_names_the_way_out(store, tmp_path):
    done = CliRunner().invoke(main, ["convert", str(store), str(tmp_path / "whole"), "--format", "zarr3"])
    assert done.exit_code == 3
    assert "include= of the others leaves 'broken' out" in done.output
