"""What `read_region` hands out: writable, in C order, and nothing kept alive beside it."""

import sys

import dask
import numpy as np
from support.cases import cases
from support.memory import peak_below
from support.systems import NEEDS_READS_INTO_ARRAYS

import chunkmill as cm
from chunkmill.array.chunk_io import read_region
from chunkmill.stores.memory import MemoryStore

CODECS = ["raw", "zstd", "blosc", "gzip"]
ZARR_ONLY = [["numcodecs.lz4"], ["numcodecs.zlib"]]
CASES = [(f, c) for f in ("zarr2", "zarr3", "n5") for c in CODECS + ZARR_ONLY * (f != "n5")]


@cases(("form", "codecs"), CASES)
@cases("region", [(slice(0, 4), slice(0, 5)), (slice(1, 3), slice(5, 9)), (slice(0, 8), slice(0, 10))])
def test_a_block_owns_all_it_keeps(form, codecs, region):
    values = np.arange(80, dtype="i4").reshape(8, 10)
    a = cm.create_array(MemoryStore(), shape=values.shape, dtype="i4", chunks=(4, 5), format=form, codecs=codecs)
    a[...] = values
    block = read_region(a.stored, region)
    np.testing.assert_array_equal(block, values[region])
    assert block.flags.writeable
    assert block.flags.c_contiguous
    owner = block
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    assert owner.base is None
    assert owner.nbytes == block.nbytes
    block += 1
    np.testing.assert_array_equal(read_region(a.stored, region), values[region])


def test_a_compressed_chunk_is_decoded_where_it_stays(tmp_path):
    """One block and its compressed bytes, not two blocks."""
    a = cm.create_array(str(tmp_path), shape=(1 << 20,), dtype="u1", chunks=(1 << 20,), codecs="zstd")
    a[...] = np.random.default_rng(0).integers(0, 16, 1 << 20, "u1")
    a[...]
    with peak_below(1.7 * (1 << 20)):
        a[...]


@NEEDS_READS_INTO_ARRAYS
def test_a_chunk_without_codecs_is_read_where_it_stays(tmp_path):
    cm.to_store(np.arange(1 << 19), tmp_path, "a", chunks=(1 << 18,), codecs="raw")
    a = cm.open_array(tmp_path, "a")
    a[:2]
    with peak_below(1.25 * 8 * (1 << 18)):
        block = read_region(a.stored, (slice(1 << 18, 1 << 19),))
    assert block.flags.writeable
    np.testing.assert_array_equal(block, np.arange(1 << 18, 1 << 19))


def test_a_streamed_sum_holds_few_blocks(tmp_path):
    a = cm.create_array(str(tmp_path), shape=(64 << 18,), dtype="u1", chunks=(1 << 18,), codecs="zstd")
    a[...] = np.random.default_rng(0).integers(0, 16, a.shape, "u1")
    with dask.config.set(scheduler="threads", num_workers=2):
        a.to_dask().sum().compute()
        with peak_below(4 * 2 * (1 << 18) + 500_000):  # four blocks a thread, and dask's graph
            a.to_dask().sum().compute()


@cases(("codecs", "most"), [("raw", 37), ("blosc", 53), ("zstd", 42)])
def test_a_chunk_takes_few_function_calls(tmp_path, codecs, most):
    """Of a small chunk they take as long as the system calls."""
    values = np.arange(64**3, dtype="i4").reshape(64, 64, 64)
    a = cm.create_array(tmp_path / "a", shape=values.shape, dtype="i4", chunks=(32, 32, 32), codecs=codecs)
    a[...] = values
    region = (slice(32, 64), slice(0, 32), slice(0, 32))
    read_region(a.stored, region)
    called = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        read_region(a.stored, region)
    finally:
        sys.setprofile(None)
    assert len(called) <= most, called
