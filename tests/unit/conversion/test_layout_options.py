"""Chunks and shards by path and by dimension, resolved for each array."""

import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.conversion.options import by_array, chosen, grids_of
from chunkmill.conversion.target_metadata import describe_target
from chunkmill.errors import AlignmentError
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import inner_layout
from chunkmill.stores.memory import MemoryStore


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


def test_paths_that_are_none():
    group = group_of(x=("t",))
    with pytest.raises(ValueError, match="names"):
        by_array({"y": (4,)}, group.stored, "chunks")
    with pytest.raises(TypeError, match="a mapping to shapes is for the arrays of a group"):
        by_array({"x": (4,)}, group["x"].stored, "chunks")


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
        ({"t": 2, "v": (2, 2)}, "mixes integers"),
        ({"t": 2, "x": "all"}, "mixes integers"),
    ],
)
def test_names_that_are_unknown(lengths, message):
    with pytest.raises(ValueError, match=message):
        by_array(lengths, group_of(t=("t",), v=("t", "x")).stored, "chunks")


def test_arrays_without_names():
    with pytest.raises(ValueError, match="have no names: give a shape"):
        by_array({"t": 2}, array_of().stored, "chunks")
    with pytest.raises(ValueError, match="expected a length"):
        chosen(lambda _: {0: 2.5}, array_of().stored, "chunks")


def test_none_is_no_shards_by_path_and_as_it_is_by_dimension():
    group = group_of(t=("t",), v=("t", "x"))
    assert by_array({"t": None}, group.stored, "shards")(group["t"]) is None
    assert grid(by_array({"t": None}, group.stored, "chunks"), group["v"]) == ((8,), (6,))


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
    source = cm.create_array(
        store, "s0", shape=(8, 8, 8), chunks=(4, 4, 4), dtype="u1", format="n5", attributes=attributes
    )
    source[...] = 1
    for job in (cm.convert, cm.rechunk):
        target = MemoryStore()
        job(source, target, format="zarr3", region={"y": slice(0, 4)}, chunks={"z": 2})
        copy = cm.open_array(target)
        assert (copy.shape, copy.chunks) == ((8, 4, 8), (2, 4, 4))
