"""Stores that lie, by name: what is in each, and what is done with it. Every one must cost a single `ChunkmillError`.

``python hostile.py`` runs them all and prints, for each, the seconds of the processor, the calls of Python, and by how much the address
space grew: what native libraries allocate is not seen from inside Python.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import resource
import struct
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numcodecs

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

Files = dict[str, bytes]
Action = Callable[[MemoryStore], Any]

DEPTH = 100_000
GIB = 1 << 30
ZEROS = bytes(8 << 20)


def js(document: Any) -> bytes:
    return json.dumps(document).encode()


def v2(chunk: bytes | None = None, **members: Any) -> Files:
    document = {"zarr_format": 2, "shape": [64], "chunks": [64], "dtype": "<i4", "fill_value": 0, "order": "C",
        "filters": None, "compressor": None}  # fmt: skip
    files = {".zarray": js(document | members)}
    return files if chunk is None else {**files, "0": chunk}


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CRC = {"name": "crc32c"}


def regular(*lengths: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(lengths)}}


def v3(chunk: bytes | None = None, **members: Any) -> Files:
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [64], "data_type": "int32", "chunk_grid": regular(64), "fill_value": 0, "codecs": [BYTES],
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    }  # fmt: skip
    files = {"zarr.json": js(document | members)}
    return files if chunk is None else {**files, "c/0": chunk}


def sharding(chunks: list[int], codecs: Any = (BYTES,), **more: Any) -> dict[str, Any]:
    configuration = {"chunk_shape": chunks, "codecs": list(codecs), "index_codecs": [BYTES], "index_location": "end"}
    return {"name": "sharding_indexed", "configuration": configuration | more}


def n5(block: bytes | None = None, **members: Any) -> Files:
    document = {
        "n5": "4.0.0",
        "dimensions": [64],
        "blockSize": [64],
        "dataType": "int32",
        "compression": {"type": "raw"},
    }
    files = {"attributes.json": js(document | members)}
    return files if block is None else {**files, "0": block}


def block(payload: bytes, *dims: int, mode: int = 0, ndim: int | None = None, count: int | None = None) -> bytes:
    header = struct.pack(">HH", mode, len(dims) if ndim is None else ndim) + struct.pack(f">{len(dims)}I", *dims)
    return header + (b"" if count is None else struct.pack(">I", count)) + payload


ENTRY = {
    "zarr_format": "https://purl.org/zarr/spec/core/3.0",
    "metadata_encoding": {"type": "json", "metadata_key_suffix": ".json"},
    "extensions": [],
}


def draft(chunk: bytes | None = None, **members: Any) -> Files:
    document = {
        "shape": [64], "data_type": "<i4", "chunk_grid": {"type": "regular", "chunk_shape": [64], "separator": "/"}, "chunk_memory_layout": "C",
        "fill_value": 0, "extensions": [], "attributes": {},
    }  # fmt: skip
    files = {"zarr.json": js(ENTRY), "meta/array.json": js(document | members)}
    return files if chunk is None else {**files, "data/c0": chunk}


def whole(store: MemoryStore) -> Any:
    return cm.open_array(store)[...]


def first(store: MemoryStore) -> Any:
    array = cm.open_array(store)
    return array[(0,) * array.ndim]


def lazily(store: MemoryStore) -> Any:
    return cm.open_array(store).to_dask()


def write(store: MemoryStore) -> Any:
    array = cm.open_array(store, mode="r+")
    array[(0,) * array.ndim] = 1


def listed(store: MemoryStore) -> Any:
    return cm.open_array(store).chunks


def converted(store: MemoryStore) -> Any:
    return cm.convert(store, MemoryStore(), format="zarr2")


def rechunked(store: MemoryStore) -> Any:
    array = cm.open_array(store)
    return cm.rechunk(array, MemoryStore(), chunks=(8,) * array.ndim, shards=None)


def verified(store: MemoryStore) -> Any:
    return cm.verify(store, store)


def opened(path: str) -> Action:
    return lambda store: cm.open(store, path)


def walked(store: MemoryStore) -> Any:
    return cm.open_group(store).tree()


def deep(opening: str, closing: str = "", depth: int = DEPTH) -> bytes:
    return (opening * depth + closing * depth).encode()


def nested_sharding(depth: int) -> Any:
    codec: Any = BYTES
    for _ in range(depth):
        codec = sharding([64], [codec])
    return codec


def nested_fields(depth: int) -> Any:
    field: Any = "<i4"
    for _ in range(depth):
        field = [["f", field]]
    return field


def nested_struct(depth: int) -> Any:
    kind: Any = "int32"
    for _ in range(depth):
        kind = {"name": "struct", "configuration": {"fields": [{"name": "f", "data_type": kind}]}}
    return kind


def nested_groups(depth: int) -> Files:
    return {"/".join(["g"] * i + ["zarr.json"]): js({"zarr_format": 3, "node_type": "group"}) for i in range(depth)}


RUNS_OF_10_12 = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[2, [1, 10**12]]]}}
BLOSC_1_GIB = b"\x02\x01\x21\x01" + struct.pack("<III", GIB, GIB, 20) + bytes(4)
ZSTD_1_GIB = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", GIB) + b"\x01\x00\x00"
ZSTD_2_63 = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 63) + b"\x01\x00\x00"
ZSTD_BOMB_NO_SIZE = b"\x28\xb5\x2f\xfd\x00\x70" + b"\x02\x00\x10\x00" * 4000 + b"\x03\x00\x10\x00"
LZ4_1_GIB = struct.pack("<I", GIB) + bytes(20)
JAVA_LZ4 = b"LZ4Block" + bytes([0x26]) + struct.pack("<III", 20, GIB, 0) + bytes(20)
VLEN = {"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": ""}
MISSING = 2**64 - 1

CASES: dict[str, tuple[Files, Action]] = {
    # documents that are deep
    "depth: zarr.json": ({"zarr.json": deep('{"a":', "1")}, whole),
    "depth: .zattrs": ({**v2(), ".zattrs": deep('{"a":')}, whole),
    "depth: .zgroup": ({".zgroup": deep("[")}, walked),
    "depth: .zmetadata": ({".zgroup": js({"zarr_format": 2}), ".zmetadata": deep('{"metadata":')}, walked),
    "depth: attributes.json": ({"attributes.json": deep('{"a":')}, walked),
    "depth: sharding in sharding, 900 times": (v3(bytes(256), codecs=[nested_sharding(200)]), whole),
    "depth: fields in fields, v2": (v2(bytes(256), dtype=nested_fields(300), fill_value=None), whole),
    "depth: fields in fields, v3": (v3(bytes(256), data_type=nested_struct(150), fill_value={}), whole),
    "depth: json2 chunk": (v2(deep("["), dtype="|O", filters=[{"id": "json2"}], fill_value=None), whole),
    "depth: msgpack2 chunk": (v2(b"\x91" * DEPTH, dtype="|O", filters=[{"id": "msgpack2"}], fill_value=None), whole),
    # shapes, chunks and items that are huge
    "size: shape 10^18, read whole": (v3(shape=[10**18], chunk_grid=regular(10)), whole),
    "size: shape 10^18 by 10^18": (v3(shape=[10**18] * 2, chunk_grid=regular(10, 10)), whole),
    "size: shape of 63 axes of 10^18": (v2(shape=[10**18] * 63, chunks=[10**6] * 63), whole),
    "size: shape 10^18, every chunk a block": (v2(shape=[10**18], chunks=[1]), lazily),
    "size: shape 10^30": (v3(shape=[10**30]), whole),
    "size: shape of 400 digits": (v3(shape=[10**400]), whole),
    "size: shape of 5000 digits": ({"zarr.json": v3()["zarr.json"].replace(b"[64]", b"[1" + b"0" * 5000 + b"]", 1)}, whole),
    "size: 100 axes": (v3(shape=[1] * 100, chunk_grid=regular(*[1] * 100)), whole),
    "size: chunk of 10^18": (v3(bytes(256), shape=[10**18], chunk_grid=regular(10**18)), first),
    "size: chunk of 10^9 by 10^9": ({**v2(shape=[10**9] * 2, chunks=[10**9] * 2), "0.0": bytes(256)}, first),
    "size: chunk of 10^18, gzip": (v3(gzip.compress(ZEROS), shape=[10**18], chunk_grid=regular(10**18), codecs=[BYTES, {"name": "gzip", "configuration": {"level": 1}}]), first),
    "size: chunk of 10^18, written": (v3(shape=[10**18], chunk_grid=regular(10**18)), write),
    "size: N5 block of 2^40": (n5(block(bytes(256), 64), dimensions=[2**40], blockSize=[2**40]), first),
    "size: item of 10^12 bytes, V": (v2(bytes(256), dtype=f"|V{10**12}", fill_value=None), first),
    "size: item of 10^12 bytes, U": (v2(bytes(256), dtype=f"<U{10**12}", fill_value=""), first),
    "size: item of 10^9 bytes, S": (v2(bytes(256), dtype=f"|S{10**9}", fill_value=""), first),
    "size: item of 10^12 bytes, r*": (v3(bytes(256), data_type=f"r{8 * 10**12}", fill_value=[0]), first),
    "size: subarray of 10^18": (v2(bytes(256), dtype=[["a", "<i4", [10**9, 10**9]]], fill_value=None), first),
    "size: subarrays in subarrays": (v2(bytes(256), dtype=[["a", [["b", "<i4", [10**6]]], [10**6]]], fill_value=None), first),
    "size: shard index of 16 GB": (v3(bytes(256), shape=[10**9], chunk_grid=regular(10**9), codecs=[sharding([1])]), first),
    "size: chunk of 10^18 around 5 elements, written": (v3(shape=[5], chunk_grid=regular(10**18)), write),
    "size: shard index of 16 EB": (v3(bytes(256), shape=[10**18], chunk_grid=regular(10**18), codecs=[sharding([1])]), first),
    "size: absent chunk of 2^63-1 by 3": (v3(shape=[5, 3], chunk_grid=regular(3, 2**63 - 1)), first),
    "size: 40 million blocks": (v3(shape=[2**31], chunk_grid=regular(50)), lazily),
    # grids
    "grid: edges that end early": (v3(chunk_grid={"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[1, 10]]]}}), whole),
    "grid: negative run": (v3(chunk_grid={"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[64, -1]]]}}), whole),
    "grid: run of 10^30": (v3(chunk_grid={"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[1, 10**30]]]}}), whole),
    "grid: edge of 0": (v3(chunk_grid={"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[0, 64]]}}), whole),
    **{
        f"grid: run of 10^12, {action.__name__}": (v3(shape=[10**12], chunk_grid=RUNS_OF_10_12), action)
        for action in (lazily, listed, converted, rechunked)
    },
    # paths that lead out
    **{
        f"path: {path!r} in {name}": (files, opened(path))
        for name, files in {"v2": {"a/.zarray": v2()[".zarray"]}, "v3": {"a/zarr.json": v3()["zarr.json"]}, "n5": {"a/attributes.json": n5()["attributes.json"]}, "draft": draft()}.items()
        for path in ("..", "../x", "a/../../x", "a/./b/..", "\0", "a/\0")
    },
    "path: group['..']": ({"g/zarr.json": js({"zarr_format": 3, "node_type": "group"})}, lambda store: cm.open_group(store, "g")["../../x"]),
    "path: ..\\x in v2": ({".zgroup": js({"zarr_format": 2})}, lambda store: cm.open_group(store, format="zarr2")["a\\..\\..\\x"]),
    "path: .. in .zmetadata": (
        {".zgroup": js({"zarr_format": 2}), ".zmetadata": js({"zarr_consolidated_format": 1, "metadata": {"../x/.zarray": json.loads(v2()[".zarray"])}})}, walked,
    ),
    "path: .. in consolidated_metadata": (
        {"zarr.json": js({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {"a/../../x": json.loads(v3()["zarr.json"])}}})},
        walked,
    ),
    "path: metadata_key_suffix /../x": ({"zarr.json": js({**ENTRY, "metadata_encoding": {"type": "json", "metadata_key_suffix": "/../x"}})}, opened("a")),
    # frames that lie about their size, and bombs
    "frame: blosc, v2": (v2(BLOSC_1_GIB, compressor={"id": "blosc"}), whole),
    "frame: lz4, v2": (v2(LZ4_1_GIB, compressor={"id": "lz4"}), whole),
    "frame: lz4 of -1, v2": (v2(b"\xff" * 24, compressor={"id": "lz4"}), whole),
    "frame: lz4 of Java, n5": (n5(block(JAVA_LZ4, 64), compression={"type": "lz4", "blockSize": 65536}), whole),
    "frame: zstd of 1 GiB": (v2(ZSTD_1_GIB, compressor={"id": "zstd"}), whole),
    "frame: zstd of 2^63": (v3(ZSTD_2_63, codecs=[BYTES, {"name": "zstd", "configuration": {"level": 0, "checksum": False}}]), whole),
    "frame: zstd without a size": (v2(ZSTD_BOMB_NO_SIZE, compressor={"id": "zstd"}), whole),
    "bomb: zstd": (v2(bytes(numcodecs.Zstd(1).encode(ZEROS)), compressor={"id": "zstd"}), whole),
    "bomb: gzip": (v2(gzip.compress(ZEROS, 1), compressor={"id": "gzip"}), whole),
    "bomb: gzip members": (v2(gzip.compress(bytes(256), 1) * 10_000, compressor={"id": "gzip"}), whole),
    "bomb: zlib": (v2(zlib.compress(ZEROS, 1), compressor={"id": "zlib"}), whole),
    "bomb: bz2": (v2(bz2.compress(ZEROS, 1), compressor={"id": "bz2"}), whole),
    "bomb: lzma": (v2(lzma.compress(ZEROS, preset=0), compressor={"id": "lzma"}), whole),
    "bomb: gzip in gzip": (v2(gzip.compress(gzip.compress(ZEROS, 1), 1), compressor={"id": "gzip"}, filters=[{"id": "gzip"}]), whole),
    "bomb: blosc": (v2(bytes(numcodecs.Blosc("zstd", 1, 0).encode(ZEROS)), compressor={"id": "blosc"}), whole),
    "bomb: strings": (v2(gzip.compress(ZEROS, 1), compressor={"id": "gzip"}, **VLEN), whole),
    # elements of variable length
    "vlen: 2^32-1 strings": (v2(b"\xff\xff\xff\xff" + bytes(60), **VLEN), whole),
    "vlen: string of 2^32-1": (v2(struct.pack("<II", 64, 2**32 - 1) + bytes(300), **VLEN), whole),
    "vlen: string of -1": (v2(struct.pack("<I", 64) + b"\xff\xff\xff\xff" * 64, **VLEN), whole),
    "vlen: array of 2^32-1 items": (v2(struct.pack("<II", 64, 2**32 - 1) + bytes(300), dtype="|O", filters=[{"id": "vlen-array", "dtype": "<i4"}], fill_value=None), whole),
    "vlen: chunk of 10^12 strings": (v2(struct.pack("<I", 64), shape=[10**12], chunks=[10**12], **VLEN), first),
    "vlen: msgpack of 2^32-1": (v2(b"\xdd\xff\xff\xff\xff", dtype="|O", filters=[{"id": "msgpack2"}], fill_value=None), whole),
    "text: beyond Unicode": (v2(b"\xff" * 256, dtype="<U1", fill_value=""), whole),
    "pickle": (v2(b"cos\nsystem\n(S'echo no'\ntR.", dtype="|O", filters=[{"id": "pickle"}], fill_value=None), whole),
    # shards
    "shard: too short for its index": (v3(bytes(8), codecs=[sharding([16])]), first),
    "shard: beyond the end": (v3(bytes(64) + struct.pack("<8Q", 2**40, 64, *[MISSING] * 6), codecs=[sharding([16])]), first),
    "shard: wraps round": (v3(bytes(64) + struct.pack("<8Q", 2**64 - 32, 64, *[MISSING] * 6), codecs=[sharding([16])]), first),
    "shard: 2^63 bytes": (v3(bytes(64) + struct.pack("<8Q", 0, 2**63, *[MISSING] * 6), codecs=[sharding([16])]), first),
    "shard: bad index checksum": (v3(bytes(64 + 64 + 4), codecs=[sharding([16], index_codecs=[BYTES, CRC])]), first),
    # N5 headers
    "n5: 65535 dimensions": (n5(block(bytes(256), 64, ndim=65535)), whole),
    "n5: 2^32-1 elements": (n5(block(bytes(256), 2**32 - 1)), whole),
    "n5: mode 1, count 2^32-1": (n5(block(bytes(256), 64, mode=1, count=2**32 - 1)), whole),
    "n5: mode 2": (n5(struct.pack(">HI", 2, 2**32 - 1)), whole),
    "n5: mode 9": (n5(block(bytes(256), 64, mode=9)), whole),
    "n5: dimensions of 2^63": (n5(dimensions=[2**63]), whole),
    "n5: version 10^9": (n5(n5="999999999.0.0"), whole),
    # codecs that are asked for nonsense
    "codec: level 10^9": (v2(gzip.compress(bytes(256)), compressor={"id": "gzip", "level": 10**9}), whole),
    "codec: delta of objects": (v2(bytes(256), filters=[{"id": "delta", "dtype": "|O"}]), whole),
    "codec: astype to V0": (v2(bytes(256), filters=[{"id": "astype", "encode_dtype": "|V0", "decode_dtype": "<i4"}]), whole),
    "codec: lzma filters": (v2(b"x", compressor={"id": "lzma", "format": 3, "filters": [{"id": 10**9}]}), whole),
    "codec: 500 compressors, one bad": (v2(gzip.compress(bytes(256)), filters=[{"id": "gzip"}] * 500), whole),
    "codec: level of a million letters": (v3(codecs=[BYTES, {"name": "gzip", "configuration": {"level": "x" * 10**6}}]), whole),
    "codec: unknown": (v2(bytes(256), compressor={"id": "x" * 10**6}), whole),
}  # fmt: skip

FINE: dict[str, tuple[Files, Action]] = {
    "shape 10^18, one element": (v3(shape=[10**18], chunk_grid=regular(10)), first),
    "shape 10^18 by 10^18, last element": (v2(shape=[10**18] * 2, chunks=[10] * 2), lambda store: cm.open_array(store)[-1, -1]),
    "shape 10^18, in blocks of 2^50": (v2(shape=[10**18], chunks=[2**50]), lazily),
    "absent chunk of 10^9, one element": (v3(shape=[10**9], chunk_grid=regular(10**9)), first),
    "run of 10^12, one element": (
        v3(shape=[10**12], chunk_grid=RUNS_OF_10_12),
        lambda store: cm.open_array(store)[10**12 - 1],
    ),
    "absent shard of 10^9 chunks": (v3(shape=[10**9], chunk_grid=regular(10**9), codecs=[sharding([1])]), first),
    "N5 of 2^60": (n5(dimensions=[2**60]), first),
    **{
        f"10^17 chunks, {name}": (v3(shape=[10**18], chunk_grid=regular(10)), action)
        for name, action in {"checked": cm.check, "converted": converted, "verified": verified}.items()
    },
    "scale of 0": (v2(bytes(256), filters=[{"id": "fixedscaleoffset", "scale": 0, "offset": 0, "dtype": "<f4", "astype": "<f4"}], dtype="<f4"), whole),
    "delta that overflows": (v2(b"\xff\x7f\xff\x7f" * 64, filters=[{"id": "delta", "dtype": "<i4"}]), whole),
    "floats that are no integers": (v2(b"\x00\x00\xc0\x7f" * 64, filters=[{"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<i4"}]), whole),
    "doubles that are no floats": (v2(b"\xff\xff\xff\xff\xff\xff\xef\x7f" * 64, dtype="<f4", filters=[{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f4"}]), whole),
}  # fmt: skip
"""These hold what they say, or nonsense that is values all the same: they must work, as cheaply and without a warning."""

DEEP: dict[str, Action] = {
    "tree": walked, "converted": converted, "verified": verified, "checked": cm.check, "consolidated": cm.consolidate,
}  # fmt: skip
"""What does not call itself for each level of `nested_groups`."""


def run(files: Files, action: Action) -> Any:
    """Do it."""
    store = MemoryStore()
    for key, value in files.items():
        store.set(key, value)
    return action(store)


def _address_space() -> int:
    (line,) = (text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("VmPeak"))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count calls and returns, of C functions too, in this thread and those it starts: as many on a machine that is busy."""
    counted = [0]

    def count(*_: Any) -> None:
        counted[0] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    import dask.array  # noqa: F401 - an import is not measured

    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))  # a failure here shall not end others
    results = {}
    for name, (files, action) in {**CASES, **FINE}.items():
        before, started, calls = _address_space(), time.process_time(), [0]
        with warnings.catch_warnings(record=True) as leaked:
            warnings.simplefilter("always")
            # counting makes calls five times as slow, and those of `FINE` are many
            counting = counted_calls() if name in CASES else contextlib.nullcontext(calls)
            with contextlib.suppress(Exception), counting as calls:
                run(files, action)
        seconds = time.process_time() - started
        results[name] = {
            "seconds": seconds, "calls": calls[0], "bytes": _address_space() - before,
            "warnings": [str(each.message) for each in leaked],
        }  # fmt: skip
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
