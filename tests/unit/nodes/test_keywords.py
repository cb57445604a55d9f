"""Traps for users of other libraries: keywords of theirs, modes given as paths, texts given as lists."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.nodes.api import _kinds

DS = xr.Dataset({"t": ("x", np.arange(4.0))})
VALUES = np.arange(4.0)
PAGE = (Path(__file__).parents[3] / "docs" / "how_to" / "from_other_libraries.md").read_text("utf-8")


@cases(
    ("function", "options", "said"),
    [
        (cm.write_dataset, {"store": "k.zarr"}, "did you mean url='k.zarr'"),
        (cm.write_dataset, {"group": "a"}, "did you mean path='a'"),
        (cm.write_dataset, {"zarr_format": 2}, "did you mean format='zarr2'"),
        (cm.write_dataset, {"safe_chunks": False}, "not needed, blocks"),
        (cm.to_store, {"component": "a"}, "did you mean path='a'"),
        (cm.to_store, {"overwrite": True}, "did you mean mode='w'"),
        (cm.to_store, {"overwrite": False}, "did you mean mode='w-'"),
        (cm.create_array, {"compressors": "zstd"}, "did you mean codecs='zstd'"),
        (cm.create_array, {"mode": "w"}, "did you mean overwrite=True"),
        (cm.create_array, {"shap": (4,)}, r"did you mean shape=\(4,\)"),
        (cm.rechunk, {"target_chunks": (2,)}, r"did you mean chunks=\(2,\)"),
        (cm.rechunk, {"executor": "dask"}, "not needed, jobs run on"),
        (cm.transform, {"target": "c", "depth": 2}, "did you mean halo=2"),
        (cm.plan_transform, {"target": "c", "kwargs": {"sigma": 1}}, "did you mean params={'sigma': 1}"),
        (cm.transform, {"target": "c", "drop_axis": 0}, "did you mean dimension_names="),
        (cm.open, {"use_consolidated": True}, "did you mean consolidated=True"),
        (cm.open, {"colour": 1}, "it has url, path, format"),
    ],
)
def test_a_keyword_of_another_library_is_explained(function, options, said):
    with pytest.raises(TypeError, match=said):
        function("a", "b", **options)


def test_every_keyword_of_the_page_is_explained_where_it_is_not_ours():
    """Of each table of docs/how_to/from_other_libraries.md."""
    n_asked = 0
    for body in re.findall(r"^## .*?: `.*?`\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL):
        for theirs, ours in re.findall(r"^\| (`\w+=`.*?) \|(.*?)\|.*\|$", body, flags=re.MULTILINE):
            called = re.findall(r"`(\w+)\((\w+)=\)`", ours)
            for keyword in re.findall(r"`(\w+)=`", theirs) if called else ():
                function = getattr(cm, called[0][0])
                if keyword not in inspect.signature(function).parameters:
                    with pytest.raises(TypeError) as raised:
                        function(**{keyword: "a"})
                    n_asked += 1
                    named = {argument for _, argument in called}
                    assert any(f"{name}=" in str(raised.value) for name in named), raised.value
    assert n_asked > 12


@cases("mode", ["w", "w-", "a-", "r+"])
def test_a_writer_refuses_a_mode_as_its_path(mode, tmp_path):
    url = tmp_path / "k.zarr"
    with pytest.raises(ValueError, match=f"did you mean mode='{re.escape(mode)}'"):
        cm.write_dataset(DS, url, mode)
    with pytest.raises(ValueError, match="did you mean mode="):
        cm.to_store(VALUES, url, mode)
    with pytest.raises(ValueError, match="did you mean overwrite=True"):
        cm.create_array(url, mode, shape=(4,), dtype="f8")
    assert not url.exists()


def test_a_node_may_have_such_a_name(tmp_path):
    cm.write_dataset(DS, tmp_path / "k.zarr", path="w")
    cm.to_store(VALUES, tmp_path / "k.zarr", "a")  # a name of a variable, as often as not
    assert sorted(cm.open(tmp_path / "k.zarr")) == ["a", "w"]
    assert cm.open(tmp_path / "k.zarr", "a").shape == (4,)
    assert list(cm.open_group(tmp_path / "k.zarr", "w")) == ["t"]


PUBLIC = [f for f in (getattr(cm, name) for name in cm.__all__) if callable(f) and not isinstance(f, type)]
CHECKED = [
    (function, each.name)
    for function in PUBLIC
    for each in inspect.signature(function).parameters.values()
    if _kinds(str(each.annotation))
]


@cases(("function", "name"), CHECKED)
def test_a_value_of_another_type_is_an_error_of_ours(function, name):
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\): {name}= is object, where .* is expected"):
        function(**{name: object()})


@cases(
    ("options", "error"),
    [
        ({"dtype": "nope"}, r"dtype='nope': data type 'nope' not understood"),
        ({"fill_value": "nope"}, r"fill value 'nope' is none of dtype int32"),
        ({"fill_value": 2**70}, r"fill value 11805\d+ is none of dtype int32|fill value 11805"),
        ({"chunks": 3.5}, r"chunks=3.5 is float"),
        ({"shape": 3.5}, r"shape=3.5 is float"),
        ({"attributes": "nope"}, r"attributes='nope' is str"),
        ({"like": "nope"}, r"like= is str"),
    ],
)
def test_values_that_describe_no_array(store, options, error):
    with pytest.raises((TypeError, ValueError), match=error):
        cm.create_array(store, **{"shape": (2,), "dtype": "i4"} | options)
    assert list(store.list_prefix("")) == []


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """An array and a group with an image."""
    root = tmp_path_factory.mktemp("places")
    cm.to_store(np.ones((4, 4)), root / "a")
    cm.create_group(root / "g")
    return str(root)


OBJECT = object()
WRONG = [
    ("from_store", lambda at, v: cm.from_store(f"{at}/a", chunks=v), [0, 1.5, OBJECT]),
    ("format", lambda at, v: cm.open(f"{at}/a", format=v), [0, -1, [], "zarr4"]),
    ("include", lambda at, v: cm.convert(f"{at}/a", f"{at}/x", include=v), [[None], b"x", (1, 2)]),
    ("urls", lambda at, v: cm.scan(v, f"{at}/r.json"), [[None], b"x", [b"x"], (1, 2), [[None]], [["x", 1]]]),
    ("target of scan", lambda at, v: cm.scan([f"{at}/a.nc"], v), [None, 1.5, [], (1, 2, 3), OBJECT]),
    ("target", lambda at, v: cm.to_references(f"{at}/a", v), [None, 1.5, [], (1, 2, 3), OBJECT]),
    ("scale", lambda at, v: cm.pyramid(f"{at}/a", f"{at}/x", scale=v), ["x", OBJECT, b"xy", [None, "1"], {"y": "1"}]),
    ("translation", lambda at, v: cm.pyramid(f"{at}/a", f"{at}/x", translation=v), ["x", float("nan"), OBJECT]),
    ("units", lambda at, v: cm.pyramid(f"{at}/a", f"{at}/x", units=v), [0, 1.5, OBJECT, b"xy", [1, 2]]),
    ("shape", lambda at, v: cm.transform(np.abs, f"{at}/a", f"{at}/x", shape=v), [1.5, "x", (1, 2, 3), [None], OBJECT]),
    ("dtype", lambda at, v: cm.transform(np.abs, f"{at}/a", f"{at}/x", dtype=v), [0, "x", OBJECT, (1, 2, 3)]),
    ("names", lambda at, v: cm.transform(np.abs, f"{at}/a", f"{at}/x", dimension_names=v), [True, "yx", 1.5, [1, 2]]),
    ("attributes", lambda at, v: cm.transform(np.abs, f"{at}/a", f"{at}/x", attributes=v), [1, "x", [], OBJECT]),
    ("halo", lambda at, v: cm.transform(np.abs, f"{at}/a", f"{at}/x", halo=v), [None, -1, "x", OBJECT]),
    ("path of delete", lambda at, v: cm.delete(f"{at}/g", v), [None, 1, b"x", OBJECT]),
    ("path of consolidate", lambda at, v: cm.consolidate(f"{at}/g", v), [None, 1, b"x", OBJECT]),
    ("resize", lambda at, v: cm.open(f"{at}/a", mode="r+").resize(v), [None, 1.5, "xy", [None, 1], OBJECT, b"xy"]),
    ("member", lambda at, v: cm.open(f"{at}/g")[v], [None, 0, b"x", OBJECT]),
    ("attributes", lambda at, v: cm.open(f"{at}/a", mode="r+").update_attributes(v), [None, 1, "x"]),
    ("names of new", lambda at, v: cm.create_array(f"{at}/n", shape=2, dtype="f4", dimension_names=v), ["x", 1, [1]]),
]


@cases(("call", "value"), [(call, value) for _, call, values in WRONG for value in values])
def test_a_wrong_value_is_an_error_that_we_raise(places, call, value):
    """No AttributeError, no IndexError of a library, and nothing from inside one of them."""
    with pytest.raises((ValueError, TypeError, cm.ChunkmillError)) as raised:
        call(places, value)
    last = raised.traceback[-1]
    assert "chunkmill" in str(last.path)
    assert "raise " in str(last.statement)
