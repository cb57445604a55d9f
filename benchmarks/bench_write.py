"""Writing whole arrays from memory, to directories without chunks; nothing is synced to the disk.

(Where chunks are replaced, ext4 begins to write the new ones out before the old ones are deleted, for every writer.)
The bare loop encodes with numcodecs in two plain threads and writes each file in place: three system calls, and a
reader may see half a chunk; so does zarrs. We, zarr-python and tensorstore write to another file and rename it, as
the second bare loop does; tensorstore locks that file, too.
**new** is the whole of `to_store` where there is nothing, as users call it: documents, reservation, publication.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import dask.array as da
import numpy as np
import pytest

import chunkmill as cm
from benchmarks import harness, stores
from benchmarks.bench_read import PEERS, TENSORSTORE, TENSORSTORE_DIRECT, ZARR, ZARRS, fill
from benchmarks.harness import BARE, Row
from benchmarks.stores import KIB, Layout
from chunkmill.dask_arrays.write_task import WriteCounts, WriteTask

OURS, DIRECT, EMPTY = "chunkmill", "chunkmill a[...] = x", "empty tasks"
NEW = "chunkmill, new"
RENAMED = "bare loop, renamed"


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    results = []
    for layout in stores.layouts(quick=quick):
        with tempfile.TemporaryDirectory() as folder, harness.threads():
            path = Path(folder) / "a"
            fill(layout, path)
            results += bench_write(layout, path, quick=quick)
    return results


def bench_write(layout: Layout, path: Path, *, quick: bool) -> list[Row]:
    values = harness.volume(layout.shape, seed=1)
    x = da.from_array(values, chunks=layout.keys, name=False)
    a = cm.open_array(str(path), mode="r+")
    contenders: dict[str, Callable[[], Any]] = {OURS: lambda: cm.store(x, a)}
    bare = bare_write if layout.shards is None else bare_write_shards
    renamed = {RENAMED: lambda: bare(layout, path, values, write_and_rename)}
    contenders = {BARE: lambda: bare(layout, path, values)} | renamed | contenders
    contenders[DIRECT] = lambda: a.__setitem__(..., values)
    contenders[EMPTY] = lambda: write_nothing(x, a)
    new = NewArrays(layout, path.with_name("new"))
    contenders[NEW] = lambda: new.write(x)
    if layout.format != "n5":
        import zarr

        z = zarr.open_array(str(path), mode="r+")
        contenders[ZARR] = lambda: da.store(x, z, lock=False)
        zarrs = stores.open_zarrs(path)
        contenders[ZARRS] = lambda: da.store(x, zarrs, lock=False)
    t = stores.open_tensorstore(layout, path)
    contenders[TENSORSTORE] = lambda: write_tensorstore(x, t).compute()
    contenders[TENSORSTORE_DIRECT] = lambda: t.write(values).result()

    def before() -> None:
        clear(layout, path)
        new.clear()

    times = harness.alternate(contenders, harness.rounds(quick), before=before)
    later = cm.store(x, a, compute=False)
    (report,) = cm.store(x, a)
    counts = {
        OURS: {"tasks": harness.n_tasks(later), "bytes written": report.bytes_written, "keys": report.n_keys},
        DIRECT: {"peak": harness.peak_bytes(contenders[DIRECT])},
    }
    targets = dict.fromkeys((OURS, NEW), (f"{BARE} + {EMPTY}", 1.15))
    return harness.rows("write", layout.name, times, peers=PEERS, targets=targets, counts=counts)


def write_nothing(x: da.Array, array: cm.Array) -> None:
    """Run the same graph with tasks that write nothing, which shows dask's own cost."""
    with mock.patch.object(WriteTask, "__call__", lambda _, block, _within: WriteCounts().as_block(block.ndim)):
        cm.store(x, array)


class NewArrays:
    """Writes to a place where nothing is; what it wrote before is emptied, not deleted, as `clear` does."""

    def __init__(self, layout: Layout, folder: Path) -> None:
        self.layout, self.folder, self.n, self.written = layout, folder, 0, ""

    def clear(self) -> None:
        """Empty what was written last."""
        if self.written:
            harness.empty(Path(self.written))
        self.written = ""

    def write(self, x: da.Array) -> None:
        self.n += 1
        own = self.layout
        place = self.written = str(self.folder / str(self.n))
        cm.to_store(x, place, chunks=own.chunks, shards=own.shards, format=own.format, codecs=own.codecs)


def clear(layout: Layout, path: Path) -> None:
    """Move the chunks out of the way, emptied: for each new file, ext4 looks at all files that were just deleted."""
    aside = path.with_name("aside")
    aside.mkdir(exist_ok=True)
    for name, _ in layout.store_keys(path):
        with suppress(FileNotFoundError):
            os.truncate(name, 0)
            Path(name).replace(aside / uuid4().hex)


WriteFile = Callable[[str, Any], None]


def write_and_rename(path: str, data: Any) -> None:
    """Write a file that readers see whole or not at all."""
    folder, name = os.path.split(path)
    hidden = f"{folder}/.{name}-{threading.get_ident()}"
    harness.write_file(hidden, data)
    os.replace(hidden, path)  # noqa: PTH105 - a system call more is what is measured


def bare_write(layout: Layout, path: Path, values: np.ndarray, write: WriteFile = harness.write_file) -> None:
    header = a_header(layout)

    def one(stored: tuple[str, Any]) -> None:
        block = np.ascontiguousarray(values[stored[1]], layout.stored)
        data = layout.encode(block)
        write(stored[0], b"".join((header, data)) if header else data)

    harness.in_threads(one, layout.store_keys(path))


def a_header(layout: Layout) -> bytes:
    if not layout.header:
        return b""
    return np.array([0, len(layout.chunks)], ">u2").tobytes() + np.array(layout.chunks[::-1], ">u4").tobytes()


def bare_write_shards(layout: Layout, path: Path, values: np.ndarray, write: WriteFile = harness.write_file) -> None:
    """Write the shards the bare way; the index has no checksum, which would cost microseconds."""
    from google_crc32c import value as crc32c

    def one(stored: tuple[str, Any]) -> None:
        shard = values[stored[1]]
        parts, index, offset = [], [], 0
        for coords in np.ndindex(*(s // c for s, c in zip(layout.shards, layout.chunks, strict=True))):
            cut = tuple(slice(c * n, (c + 1) * n) for c, n in zip(coords, layout.chunks, strict=True))
            parts.append(layout.encode(np.ascontiguousarray(shard[cut])))
            index.append((offset, len(parts[-1])))
            offset += len(parts[-1])
        tail = np.array(index, "<u8").tobytes()
        write(stored[0], b"".join([*parts, tail, crc32c(tail).to_bytes(4, "little")]))

    harness.in_threads(one, layout.store_keys(path))


def write_tensorstore(x: da.Array, array: Any) -> da.Array:
    """Return a function that writes a block through tensorstore and returns a number."""

    def write(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        region = tuple(slice(*cut) for cut in block_info[0]["array-location"])
        array[region].write(block).result()
        return np.ones((1,) * block.ndim, "i8")

    counts = x.map_blocks(write, dtype="i8", chunks=(1,) * x.ndim, meta=np.empty((0,) * x.ndim, "i8"))
    return counts.sum()


# --- as tests


@pytest.fixture(
    params=[layout for layout in stores.layouts(quick=True) if layout.chunks == stores.CHUNKS[64 * KIB]],
    ids=lambda x: x.name,
)
def layout(request):
    return request.param


def test_the_bare_loop_writes_what_we_read(layout, tmp_path):
    values = harness.volume(layout.shape, seed=1)
    fill(layout, tmp_path / "a")
    bare = bare_write if layout.shards is None else bare_write_shards
    bare(layout, tmp_path / "a", values, write_and_rename)
    np.testing.assert_array_equal(cm.open_array(str(tmp_path / "a"))[...], values)


def test_a_store_key_is_a_task(layout, tmp_path):
    x = da.from_array(harness.volume(layout.shape), chunks=layout.keys, name=False)
    a = layout.create(tmp_path / "a")
    n_keys = int(np.prod(x.numblocks))
    assert harness.n_tasks(cm.store(x, a, compute=False)) <= 3 * n_keys + 4
    (report,) = cm.store(x, a)
    assert (report.n_keys, report.n_partial, report.n_regrouped) == (n_keys, 0, 0)


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
