"""Options for each array: chunks and shards by name or dimension, chosen nodes, names of axes, chunk keys."""

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.options import by_array, chosen, chosen_paths, grids_of
from chunkmill.errors import RegionError, UnsupportedFeature
from chunkmill.model.metadata import inner_layout
from chunkmill.nodes.opening import walk
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


def array_of(**options):
    return cm.create_array(MemoryStore(), "a", **{"shape": (8, 6), "chunks": (4, 3), "dtype": "i4"} | options)


def group_of(**names):
    store = MemoryStore()
    cm.create_group(store, "g")
    for path, dimensions in names.items():
        shape = (8, 6)[: len(dimensions)]
        cm.create_array(store, f"g/{path}", shape=shape, chunks=shape, dtype="u1", dimension_names=dimensions)
    return cm.open(store, "g")


def grid(option, array):
    layout = inner_layout(array.metadata)
    return grids_of(array.stored, chosen(option, array.stored, "chunks"), None, layout)[0].dask_chunks


def test_integers_are_lengths_of_dimensions_also_where_arrays_have_their_names():
    group = group_of(t=("t",), x=("x",), v=("t", "x"))
    option = by_array({"t": 2, "x": -1}, group.stored, "chunks")
    found = {name: grid(option, array) for name, array in group.arrays().items()}
    assert found == {"t": ((8,),), "x": ((8,),), "v": ((2,) * 4, (6,))}  # t is a coordinate
    shapes = by_array({"t": (2,), "v": {"x": 3}}, group.stored, "chunks")
    assert [grid(shapes, group[name]) for name in "txv"] == [((2,) * 4,), ((8,),), ((8,), (3, 3))]


@cases(
    ("lengths", "expected"),
    [
        ({"t": 3}, ((3, 3, 2), (3, 3))),
        ({"t": -1, "x": None}, ((8,), (3, 3))),
        ({"x": "auto"}, ((4, 4), (6,))),
        ({0: 2}, ((2,) * 4, (3, 3))),
        ({"t": None}, ((4, 4), (3, 3))),
    ],
)
def test_one_array_by_dimension(lengths, expected):
    array = array_of(dimension_names=("t", "x"))
    assert grid(by_array(lengths, array.stored, "chunks"), array) == expected


@cases(
    ("lengths", "message"),
    [
        ({"tme": 2}, r"names dimensions \['tme'\], where those of the arrays are \['t', 'x'\]"),
        ({"y": (2,)}, "names"),
        ({"t": 2, "v": (2, 2)}, "mixes integers"),
        ({"t": 2, "x": "all"}, "mixes integers"),
        ({0: 2}, r"names dimensions \[0\]"),
    ],
)
def test_names_that_are_unknown(lengths, message):
    with pytest.raises(ValueError, match=message):
        by_array(lengths, group_of(t=("t",), v=("t", "x")).stored, "chunks")


def test_arrays_without_names():
    for lengths in ({"t": 2}, {2: 2}):
        with pytest.raises(ValueError, match="have no names: give a shape"):
            by_array(lengths, array_of().stored, "chunks")
    with pytest.raises(ValueError, match="expected a length"):
        chosen(lambda _: {0: 2.5}, array_of().stored, "chunks")


def test_none_is_no_shards_by_path_and_as_it_is_by_dimension():
    group = group_of(t=("t",), v=("t", "x"))
    assert grid(lambda _: None, group["v"]) == ((8,), (6,))
    assert by_array({"t": None}, group.stored, "shards")(group["t"]) is None
    assert grid(by_array({"t": None}, group.stored, "chunks"), group["v"]) == ((8,), (6,))


def test_names_and_losses_that_there_are_not():
    with pytest.raises(RegionError, match=r"1 names, where the arrays have \[2\] axes"):
        cm.plan_convert(array_of(), MemoryStore(), format="zarr3", dimension_names=("t",))
    with pytest.raises(ValueError, match=r"allow=\['values'\]: what may be lost is of 'fill_value', 'codecs'"):
        cm.plan_convert(array_of(), MemoryStore(), format="zarr3", allow=["values"])


def dataset_of(**sizes):
    """A group with the coordinates time and lat, bounds of time, a grid mapping and a variable."""
    store = MemoryStore()
    group = cm.create_group(store, "g")
    n = sizes.get("time", 8)
    for path, shape, names, attributes in (
        ("time", (n,), ("time",), {"bounds": "time_bnds"}),
        ("time_bnds", (n, 2), ("time", "b"), {}),
        ("lat", (6,), ("lat",), {}),
        ("crs", (), (), {}),
        ("v", (n, 6), ("time", "lat"), {}),
        ("series", (n,), ("time",), {}),
    ):
        chunks = tuple(min(3, k) for k in shape)
        group.create_array(path, shape=shape, chunks=chunks, dtype="f8", dimension_names=names, attributes=attributes)
    return cm.open_group(store, "g")


@pytest.mark.parametrize("job", ["convert", "rechunk"])
def test_coordinates_and_their_bounds_stay_whole_unless_they_are_named(job):
    def chunks_of(chunks, group):
        getattr(cm, job)(group, store := MemoryStore(), chunks=chunks, format="zarr3")
        return {array.path: array.chunks for array in cm.open_group(store).arrays().values()}

    group = dataset_of()
    whole = {"time": (8,), "time_bnds": (8, 2), "lat": (3,), "crs": ()}
    assert chunks_of({"time": 1}, group) == whole | {"v": (1, 3), "series": (1,)}
    assert chunks_of({"time": {"time": 2}, "v": {"time": 1}}, group)["time"] == (2,)
    assert chunks_of(lambda array: (2,) if array.path == "g/time" else "keep", group)["time"] == (2,)
    large = dataset_of(time=1 << 22)
    assert chunks_of({"time": 1 << 21}, large)["time"] == (1 << 21,)


def test_axes_without_names_have_those_of_the_image():
    store = MemoryStore()
    attributes = {"resolution": [1.0, 2.0, 3.0], "units": ["nm"] * 3, "axes": ["x", "y", "z"]}
    source = filled(np.ones((8, 8, 8), "u1"), store, "s0", chunks=(4, 4, 4), format="n5", attributes=attributes)
    for job in (cm.convert, cm.rechunk):
        target = MemoryStore()
        job(source, target, format="zarr3", region={"y": slice(0, 4)}, chunks={"z": 2})
        copy = cm.open_array(target)
        assert (copy.shape, copy.chunks) == ((8, 4, 8), (2, 4, 4))


def tree(kind="zarr3"):
    top = cm.create_group(MemoryStore(), format=kind, attributes={"title": "x"})
    for path, shape in {"a": (4,), "level1/v": (4, 3), "level1/mask": (4, 3), "level2/v": (4, 3)}.items():
        array = top.create_array(path, shape=shape, chunks=(2,) * len(shape), dtype="f4", attributes={"n": 1})
        array[:2] = 7
    return top


def paths(store):
    return [node.path for node in walk(cm.open(store).stored) if isinstance(node, StoredArray)]


@cases("kind", ["zarr2", "zarr3", "n5"])
@cases(
    ("choice", "expected"),
    [
        ({"include": "a"}, ["a"]),
        ({"include": ["level1", "a"]}, ["a", "level1/mask", "level1/v"]),
        ({"include": "*/v"}, ["level1/v", "level2/v"]),
        ({"include": "/level1*/"}, ["level1/mask", "level1/v"]),
        ({}, ["a", "level1/mask", "level1/v", "level2/v"]),
    ],
)
def test_nodes_are_chosen_with_groups_and_attributes(kind, choice, expected):
    source, target = tree(kind), MemoryStore()
    cm.convert(source, target, format=kind, **choice)
    assert paths(target) == expected
    group = cm.open_group(target)
    assert dict(group.attributes) == {"title": "x"}
    for path in expected:
        assert dict(group[path].attributes) == {"n": 1}
        np.testing.assert_array_equal(group[path][...], source[path][...])
    if expected == ["a"]:
        assert list(group) == ["a"]


def test_patterns_that_match_nothing():
    with pytest.raises(ValueError, match=r"'b' matches none of the nodes \['a', 'level1'"):
        cm.plan_convert(tree(), MemoryStore(), format="zarr3", include="b")
    with pytest.raises(TypeError, match="include= chooses nodes of a group, and the source is the array 'a'"):
        cm.plan_convert(tree()["a"], MemoryStore(), format="zarr3", include="a")
    assert chosen_paths(tree().stored, None) is None


def test_names_of_axes():
    source, target = tree(), MemoryStore()
    cm.convert(source, target, format="zarr2", dimension_names=("y", "x"), chunks={"y": -1})
    found = cm.open_group(target)
    two = [(found[path].dimension_names, found[path].chunks) for path in ("a", "level1/v")]
    assert two == [(None, (2,)), (("y", "x"), (4, 2))]
    cm.convert(source, target := MemoryStore(), format="zarr3", dimension_names={"a": ["t"]})
    assert cm.open_array(target, "a").dimension_names == ("t",)
    assert cm.open_array(target, "level2/v").dimension_names is None
    with pytest.raises(RegionError, match="'a': dimension_names="):
        cm.plan_convert(source, MemoryStore(), format="zarr3", dimension_names={"a": ["t", "u"]})


KEYS = [("zarr2", "/", "0/1"), ("zarr2", ".", "0.1"), ("zarr2", {"name": "v2", "separator": "/"}, "0/1"),
    ("zarr3", "/", "c/0/1"), ("zarr3", ".", "c.0.1"), ("zarr3", {"name": "v2"}, "0.1"),
    ("zarr3", {"name": "v2", "configuration": {"separator": "/"}}, "0/1"),
    ("zarr3", {"name": "default", "configuration": {"separator": "."}}, "c.0.1"), ("zarr3-draft", ".", "c0.1"),
    ("n5", "/", "1/0")]  # fmt: skip


@cases(
    ("kind", "encoding", "key", "way"),
    [*((*each, "create") for each in KEYS), *((*KEYS[i], way) for i in (0, 4, 8) for way in ("to_store", "convert"))],
)
def test_chunk_keys(kind, encoding, key, way):
    store, options = MemoryStore(), {"format": kind, "chunk_key_encoding": encoding}
    values = np.arange(1, 13, dtype="i4").reshape(4, 3)
    if way == "create":
        filled(values, store, "a", chunks=(2, 2), **options)
    elif way == "to_store":
        cm.to_store(values, store, "a", chunks=(2, 2), **options)
    else:
        cm.convert(filled(values, chunks=(2, 2), format="zarr2"), (store, "a"), codecs="gzip", **options)
    array = cm.open_array(store, "a")
    assert f"{array.stored.prefix}{key}" in set(store.list_prefix(""))
    np.testing.assert_array_equal(array[...], values)


@cases(
    ("kind", "encoding", "message"),
    [("n5", ".", "leave out chunk_key_encoding="), ("zarr2", {"name": "default"}, "'c/0/0'")],
)
def test_chunk_keys_that_there_are_not(kind, encoding, message):
    with pytest.raises(UnsupportedFeature, match=message):
        cm.create_array(MemoryStore(), shape=(4, 3), dtype="i4", format=kind, chunk_key_encoding=encoding)


def test_nested_keys_are_kept():
    cm.create_array(source := MemoryStore(), "a", shape=(4, 3), dtype="i4", format="zarr2", chunk_key_encoding="/")
    cm.convert(source, target := MemoryStore(), format="zarr2")
    assert cm.open_array(target, "a").metadata.chunk_keys.separator == "/"
