"""Keywords of other libraries, and traps for their users: modes given as paths, texts given as lists."""

import inspect
import re
import traceback
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.nodes.api import _in_our_words, _kinds
from chunkmill.stores.memory import MemoryStore

DS = xr.Dataset({"t": ("x", np.arange(4.0))})
VALUES = np.arange(4.0)
PAGE = (Path(__file__).parents[3] / "docs" / "how_to" / "from_other_libraries.md").read_text("utf-8")


@cases(
    ("function", "options", "said"),
    [
        (cm.write_dataset, {"safe_chunks": False}, "not needed, blocks"),
        (cm.write_dataset, {"backend_kwargs": {"anon": True}}, "did you mean storage_options="),
        (cm.to_store, {"overwrite": "a"}, "did you mean mode="),
        (cm.create_array, {"mode": "a"}, "did you mean overwrite="),
        (cm.create_array, {"shap": (4,)}, r"did you mean shape=\(4,\)"),
        (cm.create_array, {"data": VALUES}, r"not needed, to_store\(data"),
        (cm.rechunk, {"executor": "dask"}, "not needed, jobs run on"),
        (cm.rechunk, {"resume": True}, r"plan_rechunk\(...\).run\(resume=...\) has it"),
        (cm.create_array, {"resume": True}, "it has url, path, shape"),
        (cm.transform, {"target": "c", "drop_axis": 0}, "did you mean dimension_names="),
        (cm.open, {"inline_array": True}, "it has url, path, format"),
    ],
)
def test_a_keyword_that_says_nothing_certain_is_explained(function, options, said):
    with pytest.raises(TypeError, match=said):
        function("a", "b", **options)


def _taken(function, options, given=()):
    return _in_our_words(function.__name__, tuple(inspect.signature(function).parameters), given, options)


def test_calls_as_of_dask_and_zarr_python():
    x, store = da.arange(8, chunks=4), MemoryStore()
    cm.to_store(arr=x, url=store, component="a", zarr_format=2, compressors=None, fill_value=1)
    cm.to_store(x + 1, store, component="a", overwrite=True, zarr_version=2, compressor="gzip")
    made = cm.open_array(store, "a")
    assert (made.format, [codec.name for codec in made.metadata.codecs][1:]) == ("zarr2", ["gzip"])
    read = cm.from_store(store, component="a", chunks=4, name="b", inline_array=True)
    np.testing.assert_array_equal(read, np.arange(1, 9))
    about = {"shape": (8,), "dtype": "i4", "dimension_names": ["x"], "chunks": (4,), "zarr_format": 3}
    codecs = {
        "filters": [{"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}],
        "serializer": {"name": "bytes", "configuration": {"endian": "big"}},
        "compressors": [{"name": "gzip", "configuration": {"level": 1}}, "crc32c"],
    }
    made = cm.create_array(store=store, name="b", **about, **codecs, attributes={"a": 1})
    names = ["numcodecs.delta", "bytes", "gzip", "crc32c"]
    assert [codec.name for codec in made.metadata.codecs] == names
    replaced = cm.create_array(store, "b", **about, mode="w", filters=names[:1])
    assert [codec.name for codec in replaced.metadata.codecs] == ["numcodecs.delta", "bytes", "zstd"]
    with pytest.raises(cm.errors.NodeExists):
        cm.to_store(x, store, component="a", overwrite=False)


@cases(
    ("function", "options", "given"),
    [
        (cm.to_store, {"component": "a", "path": "a"}, ()),
        (cm.to_store, {"overwrite": True, "mode": "w"}, ()),
        (cm.to_store, {"data": 1}, ("x",)),
        (cm.create_array, {"zarr_format": 2, "zarr_version": 2}, ()),
        (cm.create_array, {"compressors": "gzip", "compression": "gzip"}, ()),
    ],
)
def test_what_is_said_twice_is_refused(function, options, given):
    with pytest.raises(TypeError, match="says what another argument says: leave one of them out"):
        _taken(function, options, given)


def test_every_keyword_of_the_page_is_taken_or_explained():
    """Of each table of docs/how_to/from_other_libraries.md."""
    n_asked = 0
    for body in re.findall(r"^## .*?: `.*?`\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL):
        for theirs, ours in re.findall(r"^\| (`\w+=`.*?) \|(.*?)\|.*\|$", body, flags=re.MULTILINE):
            called = re.findall(r"`(\w+)\((\w+)=\)`", ours)
            for keyword in re.findall(r"`(\w+)=`", theirs) if called else ():
                function, named = getattr(cm, called[0][0]), {argument for _, argument in called}
                n_asked += keyword not in inspect.signature(function).parameters
                try:
                    found = set(_taken(function, {keyword: "auto"}))
                except TypeError as error:
                    found = {name for name in named if f"{name}=" in str(error)}
                assert found, keyword
                assert found <= named, keyword
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
    last = traceback.extract_tb(raised.tb)[-1]
    assert "chunkmill" in last.filename
    assert "raise " in last.line
