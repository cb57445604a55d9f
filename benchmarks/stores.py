"""Arrays on which reading and writing are timed, and how each library and the bare loop opens them.

A `Layout` is a format, codecs and sizes. Every value is a plain file below a temporary folder, and in the page cache.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np

import chunkmill as cm
from benchmarks import harness

KIB, MIB = 2**10, 2**20
CHUNKS = {64 * KIB: (32, 32, 32), MIB: (64, 64, 128), 16 * MIB: (128, 256, 256)}  # of u2
SHAPES = {64 * KIB: (256, 256, 256), MIB: (256, 512, 512), 16 * MIB: (512, 512, 512)}

Region = tuple[slice, ...]


@dataclass(frozen=True)
class Layout:
    """Format, codecs and sizes of a stored array, and how the bare loop decodes a chunk of it."""

    name: str
    format: str
    codecs: Any
    decode: Callable[[bytes], Any]  # one chunk's bytes -> a buffer of elements
    encode: Callable[[Any], Any]
    driver: str  # tensorstore's
    chunks: tuple[int, ...]
    shape: tuple[int, ...]
    shards: tuple[int, ...] | None = None
    header: int = 0  # bytes before what `decode` takes
    stored: str = "<u2"

    @property
    def keys(self) -> tuple[int, ...]:
        """Shape of the value under one store key."""
        return self.shards or self.chunks

    def create(self, folder: Path) -> cm.Array:
        return cm.create_array(
            str(folder), shape=self.shape, dtype="u2", chunks=self.chunks, shards=self.shards, format=self.format,
            codecs=self.codecs,
        )  # fmt: skip

    def key(self, coords: tuple[int, ...]) -> str:
        match self.format:
            case "zarr3":
                return "c/" + "/".join(map(str, coords))
            case "n5":
                return "/".join(map(str, reversed(coords)))
            case _:
                return ".".join(map(str, coords))

    def store_keys(self, folder: Path) -> list[tuple[str, Region]]:
        """Return the path and the region of every store key, for the bare loop."""
        counts = [n // k for n, k in zip(self.shape, self.keys, strict=True)]
        found = []
        for coords in itertools.product(*map(range, counts)):
            region = tuple(slice(c * k, (c + 1) * k) for c, k in zip(coords, self.keys, strict=True))
            found.append((str(folder / self.key(coords)), region))
        return found

    def blocks(self, path: str) -> Iterator[tuple[Region, np.ndarray]]:
        """Read one store key the bare way: each chunk in it, and its region in it."""
        data = harness.read_file(path)
        if self.shards is None:
            block = np.frombuffer(self.decode(memoryview(data)[self.header :]), self.stored).reshape(self.chunks)
            yield tuple(slice(0, n) for n in self.chunks), block
            return
        counts = [s // c for s, c in zip(self.shards, self.chunks, strict=True)]
        index = np.frombuffer(data, "<u8", prod(counts) * 2, len(data) - prod(counts) * 16 - 4).reshape(-1, 2).tolist()
        view = memoryview(data)
        for coords, (offset, size) in zip(itertools.product(*map(range, counts)), index, strict=True):
            block = np.frombuffer(self.decode(view[offset : offset + size]), self.stored).reshape(self.chunks)
            yield tuple(slice(c * n, (c + 1) * n) for c, n in zip(coords, self.chunks, strict=True)), block


def _zstd() -> dict[str, Any]:
    codec = numcodecs.Zstd(level=1)
    chain = [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]
    return {"format": "zarr3", "codecs": chain, "decode": codec.decode, "encode": codec.encode, "driver": "zarr3"}


def _blosc() -> dict[str, Any]:
    codec = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
    return {"format": "zarr2", "codecs": [codec], "decode": codec.decode, "encode": codec.encode, "driver": "zarr"}


def _raw() -> dict[str, Any]:
    return {"format": "zarr3", "codecs": "raw", "decode": _same, "encode": _contiguous, "driver": "zarr3"}


def _n5_gzip() -> dict[str, Any]:
    codec = numcodecs.GZip(level=1)
    chain = [{"name": "gzip", "configuration": {"level": 1}}]
    return _N5 | {"codecs": chain, "decode": codec.decode, "encode": codec.encode}


def _n5_raw() -> dict[str, Any]:
    return _N5 | {"codecs": "raw", "decode": _same, "encode": _contiguous}


_N5 = {"format": "n5", "driver": "n5", "header": 16, "stored": ">u2"}


def _same(data: Any) -> Any:
    return data


def _contiguous(block: np.ndarray) -> Any:
    return memoryview(np.ascontiguousarray(block)).cast("B")


def layouts(*, quick: bool = False) -> list[Layout]:
    """Return every layout that ``--only`` names; with `quick`, of few chunks."""
    return [layout for layout in all_layouts(quick=quick) if re.search(harness.ONLY, layout.name)]


def all_layouts(*, quick: bool = False) -> list[Layout]:
    found = []
    chains = {
        "v3 zstd": (_zstd(), CHUNKS),
        "v2 blosc": (_blosc(), CHUNKS),
        "v3 raw": (_raw(), (64 * KIB, MIB)),
        "N5 gzip": (_n5_gzip(), (64 * KIB, MIB)),
        "N5 raw": (_n5_raw(), (64 * KIB, MIB)),
    }
    for name, (parts, sizes) in chains.items():
        found += [
            Layout(f"{name}, {size_name(n)}", chunks=CHUNKS[n], shape=_shape(n, quick), **parts)
            for n in sizes
            if n <= (MIB if quick else 16 * MIB)
        ]
    for inner, shard in ((64 * KIB, (64, 128, 128)), (MIB, (128, 256, 256))):
        shape = _shape(inner if quick else 16 * MIB, quick)
        shape = tuple(max(n, s) for n, s in zip(shape, shard, strict=True))
        name = f"v3 sharded zstd, {size_name(inner)} in {size_name(prod(shard) * 2)}"
        found.append(Layout(name, chunks=CHUNKS[inner], shape=shape, shards=shard, **_zstd()))
    return found


def size_name(n_bytes: int) -> str:
    return f"{n_bytes // MIB} MiB" if n_bytes >= MIB else f"{n_bytes // KIB} KiB"


def _shape(size: int, quick: bool) -> tuple[int, ...]:
    return tuple(2 * n for n in CHUNKS[size]) if quick else SHAPES[size]


def open_tensorstore(layout: Layout, folder: Path) -> Any:
    """Open with tensorstore, in numpy's axis order; without syncing files to the disk, which no other library does."""
    import tensorstore as ts

    context = {"file_io_sync": False}
    spec = {"driver": layout.driver, "kvstore": {"driver": "file", "path": str(folder)}, "context": context}
    array = ts.open(spec, open=True).result()
    return array.T if layout.format == "n5" else array


def open_zarrs(folder: Path) -> Any:
    """Open with zarr-python, whose chunks zarrs decodes and encodes."""
    import zarr

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return zarr.open_array(str(folder), mode="r+")
