"""Options for each array, and the metadata that come of them: chunks, shards, names, keys, regions; what is lost."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.conversions import KINDS, make

import chunkmill as cm
from chunkmill.array.chunk_io import read_chunk
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.options import by_array, chosen, chosen_paths, grids_of
from chunkmill.conversion.region_option import cropping
from chunkmill.conversion.target_metadata import check_losses, describe_target
from chunkmill.errors import AlignmentError, RegionError, StoreError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import inner_grid, inner_layout
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
    assert {name: grid(option, array) for name, array in group.arrays().items()} == {
        "t": ((8,),),  # a coordinate
        "x": ((8,),),
        "v": ((2,) * 4, (6,)),
    }
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
    with pytest.raises(ValueError, match="have no names: give a shape"):
        by_array({"t": 2}, array_of().stored, "chunks")
    with pytest.raises(ValueError, match="have no names: give a shape"):
        by_array({2: 2}, array_of().stored, "chunks")
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


def test_shards_that_are_kept_are_named():
    array, documents_format = array_of(chunks=(2, 3), shards=(4, 6)), get_format("zarr3")
    with pytest.raises(AlignmentError, match="'a' keeps"):
        describe_target(array.stored, documents_format, "b", chunks=(3, 3))
    with pytest.raises(AlignmentError, match="or shards=None") as caught:
        describe_target(array.stored, documents_format, "b", chunks=(3, 3), shards=(4, 6))
    assert "keeps" not in str(caught.value)


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
    def chunks_of(chunks, group, **options):
        store = MemoryStore()
        options |= {"format": "zarr3"}
        getattr(cm, job)(group, store, chunks=chunks, **options)
        return {array.path: array.chunks for array in cm.open_group(store).arrays().values()}

    group = dataset_of()
    found = chunks_of({"time": 1}, group)
    assert found == {
        "time": (8,), "time_bnds": (8, 2), "lat": (3,), "crs": (), "v": (1, 3), "series": (1,)
    }  # fmt: skip
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


FORMATS = ["zarr2", "zarr3", "n5"]


def tree(kind="zarr3"):
    top = cm.create_group(MemoryStore(), format=kind, attributes={"title": "x"})
    for path, shape in {"a": (4,), "level1/v": (4, 3), "level1/mask": (4, 3), "level2/v": (4, 3)}.items():
        array = top.create_array(path, shape=shape, chunks=(2,) * len(shape), dtype="f4", attributes={"n": 1})
        array[:2] = 7
    return top


def paths(store):
    return [node.path for node in cm.nodes.opening.walk(cm.open(store).stored) if isinstance(node, StoredArray)]


@cases("kind", FORMATS)
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
    assert [(found[p].dimension_names, found[p].chunks) for p in ("a", "level1/v")] == [
        (None, (2,)),
        (("y", "x"), (4, 2)),
    ]
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


@cases("kind", ["zarr2", "zarr3", "sharded", "n5"])
def test_another_fill_value_for_reading(kind):
    options = {"format": "zarr3", "shards": (4, 2)} if kind == "sharded" else {"format": kind}
    stored = cm.create_array(store := MemoryStore(), "a", shape=(4, 4), chunks=(2, 2), dtype="f4", **options)
    stored[:2, :2] = 7
    array = cm.open_array(store, "a").with_fill_value(-1)
    expected = np.full((4, 4), -1, "f4")
    expected[:2, :2] = 7
    for found in (array, pickle.loads(pickle.dumps(array)), array.to_dask().compute(scheduler="sync"), array[...]):
        np.testing.assert_array_equal(found, expected)
    assert cm.open_array(store, "a").to_dask().name != array.to_dask().name
    cm.convert(array, target := MemoryStore(), format="zarr3")
    assert cm.open_array(target).fill_value == -1
    np.testing.assert_array_equal(cm.open_array(target)[...], expected)
    with pytest.raises(StoreError, match="reading only"):
        array[0] = 1
    cm.delete(store, "a")
    with pytest.raises(StoreError, match="deleted"):
        array.to_dask().compute(scheduler="sync")


def described(source, name, **options):
    return describe_target(source.stored, get_format(name), "a", **options)


@cases(
    ("options", "keys", "chunks"),
    [
        ({}, (4, 6), (2, 3)),
        ({"chunks": (4, 3)}, (4, 6), (4, 3)),
        ({"shards": None}, (2, 3), (2, 3)),
        ({"shards": (8, 6)}, (8, 6), (2, 3)),
        ({"shards": lambda _: {0: 8}}, (8, 6), (2, 3)),
        ({"chunks": lambda a: a.shape, "shards": None}, (8, 6), (8, 6)),
        ({"chunks": (1, 2, 3)}, (4, 6), (2, 3)),
    ],
)
def test_chunks_and_shards(options, keys, chunks):
    source = array_of(chunks=(2, 3), shards=(4, 6))
    found = described(source, "zarr3", **options)
    assert (found.chunk_grid.chunk_shape, inner_grid(found).chunk_shape) == (keys, chunks)


def test_missing_elements_stay_marked_for_xarray():
    source = array_of(format="zarr2", dimension_names=("y", "x"), fill_value=-1)
    assert described(source, "zarr3").attributes["_FillValue"] is not None
    assert "_FillValue" not in described(source, "zarr2").attributes
    assert np.int32(-1) == described(source, "zarr3").fill_value


SHUFFLED = ["numcodecs.shuffle", "numcodecs.zlib"]


def names_of(metadata):
    return [codec.name for codec in metadata.codecs]


def test_codecs_that_zarr_3_does_not_specify_are_kept_where_bytes_move_and_replaced_where_chunks_are_encoded():
    source = array_of(codecs=SHUFFLED)
    assert names_of(described(source, "zarr3"))[-1] == "numcodecs.zlib"
    assert names_of(described(source, "zarr3", chunks=(2, 6))) == ["bytes", "zstd"]
    assert names_of(described(source, "zarr2", chunks=(2, 6)))[-1] == "numcodecs.zlib"
    asked = described(source, "zarr3", chunks=(2, 6), codecs=["numcodecs.lz4"])
    assert names_of(asked)[-1] == "numcodecs.lz4"
    (packing,) = described(source, "zarr3", chunks=(2, 3), shards=(4, 6)).codecs
    assert "numcodecs" not in repr(packing)


def test_a_plan_says_which_codecs_are_replaced():
    source = array_of(codecs=SHUFFLED)
    plan = cm.plan_convert(source, MemoryStore(), format="zarr3", chunks=(2, 6))
    assert "bytes → numcodecs.shuffle → numcodecs.zlib becomes bytes → zstd" in plan.reason
    assert not plan.not_read_by
    group = cm.open_group(source.store)
    assert "becomes bytes → zstd" in cm.plan_rechunk(group, MemoryStore(), chunks=(2, 6)).reason


@cases("options", [{}, {"chunks": (5, 3)}])
@cases("shards", [None, (8, 6)])
def test_no_chunk_is_absent_where_the_fill_value_becomes_undefined(options, shards):
    source = array_of(dimension_names=("t", "v"), fill_value=0, shards=shards)
    source[:4, :3] = 5
    store = MemoryStore()
    plan = cm.plan_convert(source, store, format="zarr2", shards=None, **options)
    plan.run()
    copy = cm.open_array(store)
    keys = [key for key in store.list_prefix("") if not key.startswith(".z")]
    assert copy.fill_value is None
    assert len(keys) == copy.nchunks
    assert "absent chunks are written out" in plan.reason
    np.testing.assert_array_equal(copy[...], source[...])


def test_levels_keep_their_fill_value_where_chunks_stay_absent():
    source = array_of(dimension_names=("y", "x"), fill_value=0)
    cm.pyramid(source, store := MemoryStore(), format="zarr2", levels=2)
    assert [cm.open_array(store, name).fill_value for name in "01"] == [0, 0]


ABOUT = {"shape": (4,), "dtype": "f4", "chunks": (2,), "dimension_names": ("x",)}


def many(n, **about):
    store = MemoryStore()
    wanted = {f"a{i:02}": {**ABOUT, "attributes": {"i": i}, **about} for i in range(n)}
    cm.create_arrays(store, wanted, format="zarr2")
    return store


@pytest.mark.parametrize("fmt", ["zarr3", "n5", "zarr3-draft"])
def test_many_are_described_as_if_alone(fmt):
    source, target, alone = many(20, fill_value=0), MemoryStore(), MemoryStore()
    cm.create_array(source, "b", **{**ABOUT, "dimension_names": ("y",)})
    options = {"format": fmt, "codecs": "gzip", "chunks": (4,), "allow": ["dimension_names"]}
    cm.convert(source, target, **options)
    for name in cm.open_group(source):
        cm.convert((source, name), (alone, name), **options)
    documents = {key: target.get(key) for key in target.list_prefix("") if "/" in key}
    assert documents == {key: alone.get(key) for key in documents}
    assert cm.open_array(target, "a07").attributes["i"] == 7


def test_attributes_that_the_format_cannot_hold_are_refused_or_lost_in_theirs_alone():
    source = many(3)
    cm.create_group(source, "g", format="zarr2", attributes={"title": "x", "n5": "4.0.0"})
    with pytest.raises(UnsupportedFeature, match="named 'n5'"):
        cm.plan_convert((source, "g"), MemoryStore(), format="n5")
    cm.create_array(source, "b", **ABOUT, attributes={"i": 3, "blockSize": [7]})
    with pytest.raises(UnsupportedFeature, match="blockSize"):
        cm.plan_convert(source, MemoryStore(), format="n5", allow=["fill_value"])
    cm.convert(source, target := MemoryStore(), format="n5", allow=["attributes", "fill_value"])
    attributes = {name: dict(array.attributes) for name, array in cm.open_group(target).arrays().items()}
    assert {name: each.get("i") for name, each in attributes.items()} == {"a00": 0, "a01": 1, "a02": 2, "b": 3}
    assert "blockSize" not in attributes["b"]
    assert dict(cm.open_group(target, "g").attributes) == {"title": "x"}


def test_zeros_of_both_signs_and_nan():
    store = MemoryStore()
    fills = [0.0, -0.0, np.nan]
    cm.create_arrays(store, {f"a{i}": {**ABOUT, "fill_value": fill} for i, fill in enumerate(fills)})
    plan = cm.plan_convert(store, MemoryStore(), format="zarr2")
    # xarray would take zeros of both signs for missing in Zarr v2
    assert [str(array.fill_value) for array in plan.job.target.arrays] == ["None", "None", "nan"]


@pytest.fixture
def group():
    group = cm.create_group("memory://region-option", overwrite=True)
    group.create_array("t2m", shape=(8, 6), dtype="f4", dimension_names=("time", "lat"))
    group.create_array("lat", shape=(6,), dtype="f4", dimension_names=("lat",))
    group.create_array("level/lat", shape=(3,), dtype="f4", dimension_names=("lat",))
    return group


def _shapes(group, region, paths=("t2m", "lat")):
    arrays = [each for each in walk(group.stored) if isinstance(each, StoredArray) and each.path in paths]
    crop = cropping(region, group.stored, arrays)
    return {array.path: crop(array).shape for array in arrays}


@cases(
    ("region", "error", "text"),
    [
        ({"lon": (0, 1)}, ValueError, "names dimensions ['lon'], where those of the arrays are ['lat', 'time']"),
        ({"time": slice(0, 4, 2)}, ValueError, "a step of 2"),
        ({"time": 3}, ValueError, "an integer would drop the axis: give (3, 4)"),
        ({"time": (0, 9)}, RegionError, "'t2m': region=[0:9, :]"),
        ({"time": (4, 4)}, RegionError, "axis 0 of length 8 has no elements 4:4"),
        ((slice(0, 2),), TypeError, "give ranges by dimension"),
    ],
)
def test_what_cannot_be_cropped_is_refused(group, region, error, text):
    with pytest.raises(error) as raised:
        _shapes(group, region)
    assert text in str(raised.value)


def test_a_dimension_of_two_lengths_is_refused(group):
    with pytest.raises(ValueError, match="6 in 'lat', 3 in 'level/lat'"):
        _shapes(group, {"lat": (0, 2)}, ("lat", "level/lat"))


def test_a_number_means_an_axis_where_all_arrays_have_as_many(group):
    group.create_array("t2m_max", shape=(8, 6), dtype="f4")
    assert _shapes(group, {0: (1, 4)}, ("t2m", "t2m_max")) == {"t2m": (3, 6), "t2m_max": (3, 6)}
    with pytest.raises(ValueError, match=r"names dimensions \[0\]"):
        _shapes(group, {0: (1, 4)}, ("t2m", "lat"))


WHOLE = {  # of 24 x 20 elements in chunks of 5 x 4, shards of 10 x 8
    "at chunks": ((slice(10, 20), slice(8, 16)), {"zarr2": {"copy": 4}, "zarr3 sharded": {"copy": 1}}),
    "to the end": ((slice(10, 24), slice(8, 20)), {"zarr2": {"copy": 9}, "zarr3 sharded": {"copy": 4}}),
    "ends inside": (
        (slice(10, 23), slice(8, 19)),
        {"zarr2": {"copy": 4, "recode": 5}, "zarr3 sharded": {"repack": 4, "recode": 5}},
    ),
    "begins inside a shard": ((slice(5, 20), slice(8, 16)), {"zarr2": {"copy": 6}, "zarr3 sharded": {"repack": 6}}),
    "begins inside a chunk": ((slice(3, 20), slice(8, 16)), {"zarr2": {"rechunk": 8}, "zarr3 sharded": {"rechunk": 2}}),
}


@cases("case", WHOLE)
@cases("kind", ["zarr2", "zarr3 sharded"])
def test_chunks_are_copied_where_the_region_begins_at_one(case, kind):
    region, actions = WHOLE[case]
    values = np.arange(1, 24 * 20 + 1, dtype="i4").reshape(24, 20)
    shards = {"shards": (10, 8)} if kind == "zarr3 sharded" else {}
    source = filled(values, path="a", chunks=(5, 4), codecs="gzip", **KINDS[kind] | shards)
    plan = cm.plan_convert(source, MemoryStore(), format="zarr3", region=region)
    report = plan.run()
    target = cm.open_array(plan.job.target.store)
    np.testing.assert_array_equal(target[...], values[region])
    assert dict(report.actions) == dict(plan.actions) == actions[kind]
    assert (target.chunks, target.shards) == (source.chunks, source.shards)
    _check_nothing_outside(target)


def _check_nothing_outside(array):
    layout = array.read_layout
    for coords in layout.grid.all_coords():
        shape = layout.spec(coords).shape
        outside = np.ones(shape, bool)
        outside[layout.grid.extent(coords)] = False
        chunk = read_chunk(array.stored, layout, coords, tuple(slice(0, n) for n in shape))
        assert not chunk[outside].any()


@cases(("old", "new"), [*pairwise([*KINDS, "zarr2"])])
def test_each_format_to_the_next(old, new):
    source, values = make(old)
    region = (slice(1, values.shape[0] - 1), slice(0, values.shape[1] - 2))
    options = {"shards": None} | KINDS[new]
    report = cm.convert((source, "g/a"), target := MemoryStore(), region=region, **options)
    array = cm.open_array(target)
    np.testing.assert_array_equal(array[...], values[region])
    assert dict(array.attributes) == {"units": "K"}
    assert report.n_keys == array.write_layout.grid.n_chunks
    assert cm.verify((source, "g/a"), target, region=region).equal
    assert not cm.verify((source, "g/a"), target, region=(slice(0, values.shape[0] - 2), region[1])).equal


def test_only_what_the_region_touches_is_read_of_a_sparse_array():
    store = MemoryStore()
    source = cm.create_array(store, shape=(10**9, 4), dtype="u1", chunks=(10, 4))
    source[123_456_789], source[5] = 7, 1
    report = cm.convert(source, target := MemoryStore(), format="n5", region=(slice(100_000_000, 900_000_000),))
    array = cm.open_array(target)
    assert array[23_456_789].tolist() == [7] * 4
    assert len(list(array.stored.stored_keys())) == 1
    assert report.actions["absent"] == 8 * 10**7 - 1
    assert report.n_requests < 100


def test_groups_are_cropped_by_dimension_and_rechunked():
    group = cm.create_group(source := MemoryStore())
    for name, shape, names in (
        ("t2m", (12, 6, 8), ("time", "lat", "lon")),
        ("time", (12,), ("time",)),
        ("k", (), None),
    ):
        values = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
        filled(values, source, name, chunks=tuple(min(n, 4) for n in shape), dimension_names=names)
    region = {"time": slice(-9, -1), "lat": (2, None)}
    report = cm.rechunk(source, target := MemoryStore(), chunks={"time": -1}, region=region, include=["t2m", "time"])
    result = cm.open_group(target)
    np.testing.assert_array_equal(result["t2m"][...], group["t2m"][3:11, 2:])
    np.testing.assert_array_equal(result["time"][...], range(3, 11))
    assert (sorted(result), result["t2m"].chunks) == (["t2m", "time"], (8, 4, 4))
    assert "region time=-9:-1, lat=2:" in report.source
    existing = cm.create_array(place := MemoryStore(), shape=(8, 4, 8), dtype="i4", chunks=(8, 2, 2))
    cm.rechunk((source, "t2m"), existing, chunks=None, region=region)
    np.testing.assert_array_equal(cm.open_array(place)[...], group["t2m"][3:11, 2:])


@cases(
    ("change", "lost"),
    [
        ({"dtype": np.dtype("i2")}, r"dtype int32 and shape \(8, 6\)"), ({"fill_value": np.int32(7)}, r"fill value .*0"),
        ({"dimension_names": ("y", None)}, r"dimension names \('y', 'x'\)"), ({"attributes": {"b": 2}}, r"attributes \['a'\]"),
    ],
)  # fmt: skip
def test_what_documents_do_not_say_is_lost(change, lost):
    wanted = array_of(dimension_names=("y", "x"), attributes={"a": 1}).metadata
    check_losses(wanted, wanted, get_format("zarr3"), "a")
    with pytest.raises(UnsupportedFeature, match=lost):
        check_losses(wanted, replace(wanted, **change), get_format("zarr3"), "a")


def test_a_node_that_has_the_name_of_a_document_is_refused():
    store = MemoryStore()
    cm.create_group(store, format="zarr2")
    cm.create_array(store, "zarr.json", shape=(2,), dtype="i4", format="zarr2")
    with pytest.raises(UnsupportedFeature, match=r"zarr3 does not support a node at 'zarr\.json'"):
        cm.convert(store, MemoryStore(), format="zarr3")
