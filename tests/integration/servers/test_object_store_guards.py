"""Two processes write parts of one chunk in object stores: versions are all that keeps them apart."""

import multiprocessing

import pytest
from support.azure_server import azure_server  # noqa: F401
from support.gcs_server import gcs_server  # noqa: F401
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.stores.obstore import ObstoreStore
from chunkmill.stores.open import open_store

pytestmark = [*WARNINGS, pytest.mark.slow]

N_WRITES = 12


@pytest.fixture(params=["s3", "azure", "gcs"])
def place(request):
    if request.param == "s3":
        server = request.getfixturevalue("s3_server")
        return server.new_bucket() + "/x.zarr", server.storage_options
    if request.param == "gcs":
        return request.getfixturevalue("gcs_server").new_store("x.zarr"), None
    server = request.getfixturevalue("azure_server")
    return server.new_container() + "/x.zarr", server.storage_options


def write_row(url, options, row, barrier):
    """Write numbers and zeros in turn: wherever both rows are zero, the chunk is all fill value."""
    array = cm.open_array(url, mode="r+", storage_options=options)
    barrier.wait()
    for n in range(N_WRITES):
        array[row] = value = n % 2 * (n + 1)
        assert array[row].tolist() == [value] * 3


def test_no_write_is_lost(place):
    """Neither to a write of the other process, nor to its deleting an empty chunk (which one run in six showed)."""
    url, options = place
    assert isinstance(open_store(url, options), ObstoreStore)
    cm.create_array(url, shape=(2, 3), chunks=(2, 3), dtype="i4", storage_options=options)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [context.Process(target=write_row, args=(url, options, row, barrier)) for row in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert cm.open_array(url, storage_options=options)[...].tolist() == [[N_WRITES] * 3] * 2


def test_a_chunk_that_becomes_empty_is_written(place):
    """Deleting has no condition on any of the three: what another writes at the same time would be lost."""
    url, options = place
    store = open_store(url, options)
    array = cm.create_array(store, shape=(4,), dtype="i4", chunks=(4,))
    array[:] = 1
    array[:2] = 0
    array[2:] = 0
    assert store.get("c/0") is not None
    assert list(array[...]) == [0] * 4
