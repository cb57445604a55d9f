"""Arrays that become longer and shorter: metadata, chunks at the ends, what interrupted writers left."""

import dask.array as da
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import Meanwhile

import chunkmill as cm
from chunkmill.errors import AlignmentError, ChunkError, JobError, NodeNotFound, RegionError, StoreError
from chunkmill.journal.lease import leased
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")

TRANSPOSED = [{"name": "transpose", "configuration": {"order": [1, 0]}}, "bytes"]
LAYOUTS = {
    "zarr2": {"format": "zarr2"}, "zarr3": {"format": "zarr3"}, "sharded": {"format": "zarr3", "shards": (4, 6)},
    "rectilinear": {"format": "zarr3", "chunks": ((2, 3), (3, 3, 1))}, "zarr3-draft": {"format": "zarr3-draft"},
    "n5": {"format": "n5"}, "zarr2, raw": {"format": "zarr2", "codecs": "raw"},
    "zarr3, raw": {"format": "zarr3", "codecs": "raw"},
    "sharded, raw": {"format": "zarr3", "shards": (4, 6), "codecs": "raw"},
    "n5, raw": {"format": "n5", "codecs": "raw"}, "transposed": {"format": "zarr3", "codecs": TRANSPOSED},
}  # fmt: skip
GRIDS = ["zarr2", "zarr3", "sharded", "rectilinear", "zarr3-draft", "n5"]


def make(store, layout="zarr3", **options):
    values = np.arange(1, 36, dtype="i4").reshape(5, 7)
    return filled(values, store, "g/a", **{"chunks": (2, 3)} | LAYOUTS[layout] | options), values


def reference(values, shape, fill=0):
    after = np.full(shape, fill, values.dtype)
    kept = tuple(slice(0, min(a, b)) for a, b in zip(values.shape, shape, strict=True))
    after[kept] = values[kept]
    return after


# N5 has no other fill value than 0; where other codecs divide the same grid, 9 shows what 0 would
FILLS = [*((each, 0) for each in GRIDS), ("n5, raw", 0), *((each, 9) for each in LAYOUTS if each[:2] != "n5")]


@cases(("layout", "fill"), FILLS)
@cases("shapes", [[(3, 2), (8, 9), (0, 7), (5, 7)], [(4, 9), (6, 3), (5, 7), (5, 7)]])
def test_new_elements_hold_the_fill_value(store, layout, shapes, fill):
    array, values = make(store, layout, fill_value=fill)
    for shape in shapes:
        assert array.resize(shape) is array
        values = reference(values, shape, fill)
        np.testing.assert_array_equal(array[...], values)
        again = cm.open_array(store, "g/a")
        assert again.shape == array.shape == shape
        np.testing.assert_array_equal(again[...], values)
    assert not cm.check(store).problems


@cases("layout", ["zarr3", "sharded", "n5", "zarr2"])
def test_a_chunk_that_cannot_be_cut_leaves_the_old_shape(layout):
    array, values = make(store := MemoryStore(), layout)
    key = {"zarr3": "g/a/c/1/1", "sharded": "g/a/c/0/0", "n5": "g/a/1/1", "zarr2": "g/a/1.1"}[layout]
    whole = store.get(key)
    store.set(key, b"damaged")
    with pytest.raises(ChunkError):
        array.resize((3, 7))
    store.set(key, whole)
    again = cm.open_array(store, "g/a", mode="r+")
    np.testing.assert_array_equal(again[...], values)
    np.testing.assert_array_equal(again.resize((3, 7)).resize((5, 7))[...], reference(values[:3], (5, 7)))


def changes_a_chunk(method, key):
    return method in {"delete", "set_if"} and key.startswith("g/a/") and key.rpartition("/")[2].isdigit()


def refuse(_):
    raise StoreError(url="memory:", key="g/a/c", reason="refused")


@cases("shape", [(3, 7), (2, 7)])
@cases("layout", ["zarr3", "zarr3, raw", "sharded", "n5"])
def test_what_a_resize_that_failed_has_left_does_not_come_back(layout, shape):
    _, values = make(store := MemoryStore(), layout)
    with pytest.raises(StoreError, match="refused"):
        cm.open_array(Meanwhile(store, changes_a_chunk, refuse), "g/a", mode="r+").resize(shape)
    again = cm.open_array(store, "g/a", mode="r+")
    np.testing.assert_array_equal(again.resize((5, 7))[...], reference(values[: shape[0]], (5, 7)))


@cases("dtype", ["M8[s]", "m8[ms]", "c8", "?", "S3", "f2", np.dtypes.StringDType()])
def test_any_type_without_compression(dtype):
    options = {"format": "zarr2", "codecs": "raw"} if isinstance(dtype, str) else {}
    array = cm.create_array(MemoryStore(), shape=(5,), dtype=dtype, chunks=(4,), **options)
    array[...] = values = np.ones(5, "i8").astype(dtype)
    assert array.resize(3).resize(5)[...].tolist() == [*values[:3].tolist(), *[array.fill_value] * 2]


@cases(("layout", "lazy"), [*((each, False) for each in LAYOUTS), *((each, True) for each in GRIDS)])
def test_append(store, layout, lazy):
    array, values = make(store, layout, attributes={"units": "K"})
    if array.format in {"zarr2", "zarr3"}:
        cm.consolidate(store)  # which the check compares
    for axis, n in [(0, 1), (0, 4), (-1, 3), (1, 0)]:
        shape = list(values.shape)
        shape[axis] = n
        more = np.arange(100, 100 + np.prod(shape), dtype="i4").reshape(shape)
        values = np.concatenate([values, more], axis)
        assert array.append(da.from_array(more, chunks=2) if lazy else more, axis) == values.shape
        np.testing.assert_array_equal(array[...], values)
        np.testing.assert_array_equal(cm.open_array(store, "g/a")[...], values)
    assert cm.open_array(store, "g/a").attributes["units"] == "K"
    assert not cm.check(store).problems


def test_append_of_lists_and_of_arrays_of_others():
    array = cm.create_array(MemoryStore(), shape=(0,), dtype="f4", chunks=(4,))
    assert (array.append([1, 2]), array.append(array)) == ((2,), (4,))
    assert array.append(cm.create_array(MemoryStore(), shape=(1,), dtype="i2")) == (5,)
    assert array[...].tolist() == [1, 2, 1, 2, 0]


@cases("layout", LAYOUTS)
def test_what_an_interrupted_writer_left_outside_is_not_shown(store, layout):
    array, values = make(store, layout)
    longer = make(other := MemoryStore(), layout)[0].resize((9, 9))
    longer[...] = 5
    for key in longer.stored.stored_keys():  # of an append that was killed before it published the shape
        if not any(key == known for known in array.stored.stored_keys()) or layout == "rectilinear":
            store.set(key, other.get(key))
    array[...] = values
    np.testing.assert_array_equal(array.resize((9, 9))[...], reference(values, (9, 9)))


def set_last_chunk(store, number):
    """Store a chunk of the number, past the end as well: other writers pad with what they have."""
    whole, _ = make(other := MemoryStore())
    whole.resize((6, 9))[...] = number
    store.set("g/a/c/2/0", other.get("g/a/c/2/0"))


def test_elements_past_the_end_in_a_foreign_chunk_are_not_shown():
    array, values = make(store := MemoryStore())
    set_last_chunk(store, 5)
    expected = values.copy()
    expected[4, :3] = 5
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(array.resize((6, 9))[...], reference(expected, (6, 9)))


def test_what_others_write_to_the_longer_array_at_once_stays():
    make(store := MemoryStore())
    set_last_chunk(store, 5)
    read_again = ("get_versioned", "g/a/c/2/0")  # when the longer shape is published
    raced = Meanwhile(store, read_again, lambda below: set_last_chunk(below, 8), 2)
    cm.open_array(raced, "g/a", mode="r+").resize((6, 9))
    assert (cm.open_array(store, "g/a")[4:, :3] == 8).all()


def test_a_shape_that_others_publish_first_is_that_of_consolidated_metadata():
    make(store := MemoryStore())
    cm.consolidate(store)
    make(other := MemoryStore())[0].resize((3, 7))
    document = ("set_if", "g/a/zarr.json")
    raced = Meanwhile(store, document, lambda below: below.set(document[1], other.get(document[1])))
    with pytest.raises(StoreError, match="was changed by others"):
        cm.open_array(raced, "g/a", mode="r+").resize((2, 7))
    assert cm.open_group(store, consolidated=True)["g/a"].shape == (3, 7)
    cm.open_array(other, "g/a", mode="r+").resize((2, 7))
    raced = Meanwhile(store, document, raced.act)  # the same as this one
    assert cm.open_array(raced, "g/a", mode="r+").resize((2, 7)).shape == (2, 7)
    raced = Meanwhile(store, document, lambda below: below.delete(document[1]))
    with pytest.raises(NodeNotFound, match="it was deleted or replaced after it was opened"):
        cm.open_array(raced, "g/a", mode="r+").resize((1, 7))


def test_other_handles_notice():
    array, _ = make(store := MemoryStore())
    other = cm.open_array(store, "g/a", mode="r+")
    lazy = other.to_dask()
    array.resize((3, 7))
    with pytest.raises(StoreError, match=r"shape \(5, 7\), now \(3, 7\)"):
        lazy.compute(scheduler="sync")
    with pytest.raises(StoreError, match="open it again"):
        other.append(np.ones((1, 7)))
    assert cm.open_array(store, "g/a").shape == (3, 7)


@cases(
    ("change", "error", "message"),
    [
        (lambda a: a.resize((5,)), RegionError, "1 lengths for 2 axes"),
        (lambda a: a.resize((5, -1)), RegionError, "not negative"),
        (lambda a: a.resize((5, 2.5)), RegionError, "expected integers"),
        (lambda a: a.append(np.ones((2, 6))), AlignmentError, r"shape \(2, 6\), expected shape \(any, 7\)"),
        (lambda a: a.append(np.ones(7)), AlignmentError, r"got shape \(7,\)"),
        (lambda a: a.append(np.ones((5, 7)), axis=2), RegionError, "axis 2 of an array with 2 axes"),
        (lambda a: a.append(np.ma.masked_array(np.ones((1, 7)), True)), cm.errors.UnsupportedFeature, "masked"),
    ],
)
def test_what_is_refused_changes_nothing(change, error, message):
    array, values = make(store := MemoryStore())
    before = dict(store._values)
    with pytest.raises(error, match=message):
        change(array)
    assert store._values == before
    np.testing.assert_array_equal(array[...], values)


@pytest.mark.parametrize("change", [lambda a: a.resize((1, 1)), lambda a: a.append(np.ones((1, 7)))])
def test_read_only_and_busy_arrays(change, monkeypatch):
    monkeypatch.setattr("chunkmill.stores.conflicts.PAUSES", ())
    make(store := MemoryStore())
    with pytest.raises(StoreError, match=r"mode='r\+'"):
        change(cm.open_array(store, "g/a"))
    for path in ("g/a", "g"):
        with leased(store, path, "write there"), pytest.raises(JobError, match="is running"):
            change(cm.open_array(store, "g/a", mode="r+"))
    cm.open_array(store, "g/a", mode="r+").resize((1, 1))
    assert not [key for key in store.list_prefix("") if key.startswith(".chunkmill-")]


def test_an_array_without_axes():
    array = cm.create_array(MemoryStore(), shape=(), dtype="i4")
    assert array.resize(()).shape == ()
    with pytest.raises(RegionError, match="with 0 axes"):
        array.append(1)


def test_a_change_is_seen_in_the_array_itself_and_its_token():
    from dask.base import tokenize

    array = cm.create_array(MemoryStore(), shape=(4,), dtype="i4", chunks=(2,))
    before, key = tokenize(array), hash(array)
    assert array.resize((6,)) is array
    assert array.shape == (6,)
    assert array.update_attributes({"units": "K"}) is array
    assert tokenize(array) != before
    assert hash(array) == key
    assert array == array  # noqa: PLR0124
    assert array != cm.open_array(array.store)
