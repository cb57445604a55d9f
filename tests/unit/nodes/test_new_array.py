"""Lengths by dimension of arrays that are created."""

import dask.array as da
import pytest

import chunkmill as cm
from chunkmill.errors import AlignmentError
from chunkmill.stores.memory import MemoryStore

NAMES = ("time", "lat", "lon")


def _created(**options):
    return cm.create_array(MemoryStore(), shape=(100, 64, 48), dtype="f4", dimension_names=NAMES, **options)


def test_lengths_by_dimension_leave_the_other_axes_automatic():
    assert _created(chunks={"time": 10, "lat": -1}).chunks == (10, 64, 48)
    sharded = _created(chunks={"time": 10, "lat": 32, "lon": 16}, shards={"time": 50, "lat": -1})
    assert (sharded.chunks, sharded.shards) == ((10, 32, 16), (50, 64, 16))


def test_a_dask_array_keeps_its_blocks_along_the_other_axes():
    cm.to_store(
        da.zeros((100, 64), chunks=(20, 16)), store := MemoryStore(), chunks={"time": 5}, dimension_names=NAMES[:2]
    )
    assert cm.open_array(store).chunks == (5, 16)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"chunks": {"tme": 3}},
            ValueError,
            "names dimensions ['tme'], where those of the array are ['time', 'lat', 'lon']",
        ),
        ({"chunks": {"lat": 3}, "dimension_names": None}, ValueError, "have no names: give dimension_names="),
        ({"chunks": {"lat": 10}, "shards": {"lat": 25}}, AlignmentError, "multiples of chunks"),
    ],
)
def test_unknown_names_and_shards_that_do_not_fit_are_refused(options, error, text):
    with pytest.raises(error) as raised:
        cm.create_array(MemoryStore(), **({"shape": (100, 64, 48), "dtype": "f4", "dimension_names": NAMES} | options))
    assert text in str(raised.value)
