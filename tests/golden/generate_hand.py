"""Golden stores made by hand: ``python generate_hand.py OUTPUT_DIR``.

What the specifications allow and no implementation at hand writes, and what they forbid. Bytes are laid out here one by one with numpy and
the standard library; numcodecs is used for blosc, zstd and delta only.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import warnings
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from _generate import BIG, CASES, CRC, LITTLE, Case, codec, run, sharding, transpose
from cases import NESTED
from numcodecs import Blosc, Zstd

MISSING = 2**64 - 1
STAMP = (2026, 11, 21, 0, 0, 0)
Document = dict[str, Any]

# --------------------------------------------------------------------------------------------------------------------
# Bytes


def crc32c(data: bytes) -> bytes:
    """Castagnoli checksum, 4 bytes little-endian."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


assert crc32c(b"123456789") == struct.pack("<I", 0xE3069283)


def block(case: Case, index: tuple[int, ...]) -> np.ndarray:
    """One chunk at its full shape; fill value beyond the array."""
    region = case.region(index)
    part = case.expected()[region]
    result = np.full([s.stop - s.start for s in region], case.fill_scalar(), part.dtype)
    result[tuple(slice(0, n) for n in part.shape)] = part
    return result


def vlen(values: Any, encoding: str = "utf-8") -> bytes:
    """Count, then length and bytes of each element."""
    items = [v if isinstance(v, bytes) else v.encode(encoding) for v in values]
    return struct.pack("<I", len(items)) + b"".join(struct.pack("<I", len(i)) + i for i in items)


def corrupt(data: bytes) -> bytes:
    """A gzip stream whose last byte but five, inside the checksum, is another."""
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def little(array: np.ndarray) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def big(array: np.ndarray) -> bytes:
    return array.astype(array.dtype.newbyteorder(">")).tobytes()


def put(target: Path, key: str, value: bytes | Document | list[Any]) -> None:
    """Store bytes or a JSON document under a key."""
    file = target / key
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(value if isinstance(value, bytes) else json.dumps(value, indent=1).encode())


def blosc_memcpy(data: bytes) -> bytes:
    """Blosc frame with the 'stored as is' flag, of items of 4 bytes, that claims a size of 1 GiB."""
    return struct.pack("<BBBBIII", 2, 1, 0x02, 4, 2**30, 2**30, len(data) + 16) + data


# --------------------------------------------------------------------------------------------------------------------
# Zarr v2


def zarray(case: Case, **changes: Any) -> Document:
    """The ``.zarray`` of a case; a change to ``...`` removes the member."""
    values = case.expected()
    dtype = np.dtype(case.dtype)
    document: Document = {
        "zarr_format": 2, "shape": list(values.shape), "chunks": list(case.chunks or ()), "dtype": dtype.str if dtype.fields is None else None,
        "compressor": None, "fill_value": None if dtype.kind in "SVOMm" else np.asarray(case.fill_scalar()).item(), "order": "C", "filters": None,
    }  # fmt: skip
    document.update(changes)
    return {k: v for k, v in document.items() if v is not ...}


def write2(target: Path, case: Case, *, encode=bytes, separator=".", path="", zattrs=None, **changes: Any) -> None:
    """Write one array."""
    put(target / path, ".zarray", zarray(case, **changes))
    attributes = zattrs if zattrs is not None else dict(case.attributes)
    if attributes:
        put(target / path, ".zattrs", attributes)
    for index in case.indices():
        data = block(case, index).astype(case.dtype).tobytes()
        put(target / path, separator.join(map(str, index)) or "0", encode(data))


def members(data: bytes) -> bytes:
    """Three gzip members, the middle one empty."""
    half = len(data) // 2
    return gzip.compress(data[:half], mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(data[half:], mtime=0)


def zstd_without_size(data: bytes) -> bytes:
    """Raw-block zstd frame, made by hand: no content size, window of 16 KiB."""
    frame = b"\x28\xb5\x2f\xfd" + bytes([0x00, 0x20])  # no size, no checksum; window descriptor 2**14
    parts = [data[i : i + 4096] for i in range(0, len(data), 4096)] or [b""]
    for position, part in enumerate(parts):
        frame += ((len(part) << 3) | (position == len(parts) - 1)).to_bytes(3, "little") + part
    return frame


def zstd_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return Zstd(1).encode(data[:half]) + Zstd(1).encode(data[half:])


def shuffle4(data: bytes) -> bytes:
    return np.frombuffer(data, "u1").reshape(-1, 4).T.tobytes()


GZIP2: Document = {"id": "gzip", "level": 1}


def v2_consolidated_only(target: Path, case: Case) -> None:
    documents: dict[str, Document] = {}
    for path, attributes in case.groups.items():
        documents[str(PurePosixPath(path, ".zgroup"))] = {"zarr_format": 2}
        if attributes:
            documents[str(PurePosixPath(path, ".zattrs"))] = dict(attributes)
    for path, child in case.children.items():
        write2(target, CASES[child], path=path)
        (target / path / ".zarray").unlink()
        documents[f"{path}/.zarray"] = zarray(CASES[child])
    put(target, ".zmetadata", {"zarr_consolidated_format": 1, "metadata": documents})


def v2_bad_dotdot(target: Path, case: Case) -> None:
    write2(target, case, path="a")
    documents = {".zgroup": {"zarr_format": 2}, "a/.zarray": zarray(case), "../outside/.zarray": zarray(case)}
    put(target, ".zgroup", {"zarr_format": 2})
    put(target, ".zmetadata", {"zarr_consolidated_format": 1, "metadata": documents})


def v2_nczarr(target: Path, case: Case) -> None:
    put(target, ".zgroup", {"zarr_format": 2})
    dimensions = [{"name": "lat", "size": 5, "unlimited": 0}, {"name": "lon", "size": 3, "unlimited": 0}]
    group = {"dimensions": dimensions, "arrays": ["v"], "groups": []}
    put(target, ".zattrs", {"_nczarr_superblock": {"version": "2.0.0"}, "_nczarr_group": group})
    write2(target, case, path="v")


def v2_nczarr_old(target: Path, case: Case) -> None:
    group = {"dims": {"lat": 5, "lon": 3}, "vars": ["v"], "groups": []}
    put(target, ".zgroup", {"zarr_format": 2, "_NCZARR_SUPERBLOCK": {"version": "2.0.0"}, "_NCZARR_GROUP": group})
    write2(target, case, path="v", _NCZARR_ARRAY={"dimrefs": ["/lat", "/lon"], "storage": "chunked"})


def base64_fill(case: Case, encode: Any, dtype: Any) -> str:
    fill = np.zeros((), dtype)
    fill[()] = case.fill_scalar()
    return base64.standard_b64encode(encode(fill)).decode()


def v2_mixed(target: Path, case: Case) -> None:
    """A fill value in the array's own byte order, big-endian and mixed fields."""
    fill = base64_fill(case, np.ndarray.tobytes, case.dtype)
    write2(target, case, dtype=_descr(np.dtype(case.dtype)), fill_value=fill)


def _descr(dtype: np.dtype) -> Any:
    """Field list as JSON; a subarray's shape is the third element."""
    if dtype.fields is None:
        return dtype.str
    kinds = {name: dtype[name] for name in dtype.names}
    return [[name, _descr(kind.base), *([list(kind.shape)] if kind.shape else [])] for name, kind in kinds.items()]


def v2_zip(target: Path, case: Case) -> None:
    """A zip store; 'duplicate' holds every member twice, wrong values first."""
    method = zipfile.ZIP_DEFLATED if case.name == "zip-deflated" else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)  # of duplicates
        entries = [(".zarray", json.dumps(zarray(case)).encode())]
        entries += [(".".join(map(str, i)), block(case, i).tobytes()) for i in case.indices()]
        if case.name == "zip-duplicate":
            entries = [(name, bytes(len(data)) if name != ".zarray" else b"{}") for name, data in entries] + entries
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name, STAMP), data, method)


def also(job: Any, files: dict[str, Any]) -> Any:
    """Do a job, then put files; a document may be made of the case."""

    def both(target: Path, case: Case) -> None:
        job(target, case)
        for key, value in files.items():
            put(target, key, value(case) if callable(value) else value)

    return both


def raw(document: Any) -> bytes:
    """JSON with its characters as they are."""
    return json.dumps(document, ensure_ascii=False).encode()


EXTRA = ("notes.txt", "README.md", "1.1.half", ".nczvars", "0.0.0", "9.9", "x/y")
EXTRA_3 = ("notes.txt", "README.md", "c/1/1.half", "c/9/9", "0/0", "x/y/z")


def with2(**options: Any) -> Any:
    return lambda target, case: write2(target, case, **options)


def bad_vlen2(data: bytes) -> Any:
    return with2(filters=[{"id": "vlen-utf8"}], fill_value="", encode=lambda _: data)


BAD = CASES["bad-truncated-chunk"]
FIRST = block(BAD, (0,)).tobytes()

V2: dict[str, Any] = {
    "filters-absent": with2(filters=...),  # .zarray without filters
    "unknown-member-v2": with2(_extra={"must_understand": True}, comment="free text", chunk_grid=3),  # unknown members in .zarray are ignored
    "no-groups": with2(path="a/b"),  # array at a/b without any .zgroup
    "one-byte-order": with2(dtype="<i1"),  # |i1 written as <i1
    "slash-no-field": with2(separator="/"),  # keys with slash, no dimension_separator in .zarray
    "separator-slash": with2(separator="/", dimension_separator="/"),
    "rank-1-slash": with2(separator="/", dimension_separator="/"),
    "extra-files": also(with2(), dict.fromkeys(EXTRA, b"not a chunk")),  # files that are no part of the store
    "json-bom-free-unicode": also(with2(), {".zattrs": lambda case: raw(dict(case.attributes))}),  # UTF-8 JSON with raw non-ASCII member values
    "fill-int-as-float": with2(fill_value=2.0),
    "fill-bool-as-integer": with2(fill_value=1),
    "fill-float-as-integer": with2(fill_value=3),
    "fill-short-base64": with2(fill_value="IA=="),
    "fill-nat-string": with2(fill_value="NaT"),
    "fill-nat": with2(fill_value=-(2**63)),
    **dict.fromkeys(("fill-neg-zero", "attributes-nan"), with2()),
    "fill-bare-nan": with2(fill_value=np.nan),
    "fill-complex": with2(fill_value=["NaN", "-Infinity"]),
    "fill-null": with2(fill_value=None),
    "dimension-names-scalar": with2(zattrs={"_ARRAY_DIMENSIONS": []}),
    "dimension-names": with2(zattrs={"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"}),
    "dimension-names-same": with2(zattrs={"_ARRAY_DIMENSIONS": ["x", "x"]}),
    "zlib-in-filters": with2(filters=[{"id": "shuffle", "elementsize": 4}, {"id": "zlib", "level": 4}], encode=lambda d: zlib.compress(shuffle4(d), 4)),
    "gzip-members": with2(compressor=GZIP2, encode=members),
    "zstd-no-size": with2(compressor={"id": "zstd", "level": 1}, encode=zstd_without_size),
    "zstd-frames": with2(compressor={"id": "zstd", "level": 1}, encode=zstd_frames),
    "codec-blosc-empty-config": with2(compressor={"id": "blosc"}, encode=Blosc("lz4", 5, 1).encode),
    "codec-delta-big": with2(
        filters=[{"id": "delta", "dtype": ">i4"}],
        encode=lambda d: np.diff(np.frombuffer(d, ">i4"), prepend=np.int32(0)).astype(">i4").tobytes(),
    ),
    "zero-chunk-length": with2(chunks=[0, 2]),
    **dict.fromkeys(("struct-mixed-endian", "struct-subarray"), v2_mixed),
    "consolidated-only": v2_consolidated_only,
    "nczarr": v2_nczarr,
    "nczarr-old": v2_nczarr_old,
    "group-implicit": lambda target, case: (put(target, ".zgroup", {"zarr_format": 2}), write2(target, CASES["layout"], path="g/h/a")),
    "bad-truncated-chunk": also(with2(), {"0": FIRST[:-1]}),  # an uncompressed chunk is one byte short
    "bad-long-chunk": also(with2(), {"0": FIRST + bytes(4)}),  # an uncompressed chunk is one element too long
    "bad-empty-chunk": also(with2(), {"0": b""}),  # a chunk object of 0 bytes is not a missing chunk
    "bad-blosc-size": with2(compressor={"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}, encode=blosc_memcpy),  # the blosc header claims 1 GiB
    "bad-zlib-bomb": with2(compressor={"id": "zlib", "level": 9}, encode=lambda _: zlib.compress(bytes(2**24), 9)),  # a chunk inflates to 16 MiB instead of 24 bytes
    "bad-gzip-tail": with2(compressor=GZIP2, encode=lambda d: gzip.compress(d, mtime=0)[:-9]),  # the gzip stream is cut short
    "bad-unknown-codec": with2(compressor={"id": "no-such-codec"}),
    "bad-unknown-dtype": with2(dtype="<q4"),
    "bad-object-no-codec": with2(dtype="|O", fill_value=None),  # |O without an object codec
    "bad-separator": with2(dimension_separator="-"),
    "bad-rank": with2(chunks=[6, 1]),  # chunks and shape differ in rank
    "bad-zero-chunk": with2(chunks=[0]),
    "bad-negative-shape": with2(shape=[-6]),
    "bad-json-array": also(with2(), {".zarray": b"[1, 2]"}),  # the metadata document is not an object
    "bad-json-deep": also(with2(), {".zarray": b"[" * 100_000}),
    "bad-json-latin1": also(with2(), {".zarray": json.dumps({**zarray(BAD), "comment": "é"}, ensure_ascii=False).encode("latin-1")}),  # the metadata document is not UTF-8
    "bad-fill-fraction": with2(fill_value=2.5),
    "bad-fill-range": with2(dtype="|u1", fill_value=300),  # fill value 300 for an unsigned byte
    "bad-zarr-format": with2(zarr_format=4),
    "bad-consolidated-dotdot": v2_bad_dotdot,  # consolidated key ../outside
    "bad-vlen-count": bad_vlen2(vlen(["a", "b"])),  # vlen chunk with too few elements
    "bad-vlen-length": bad_vlen2(vlen("abcdef")[:-5] + struct.pack("<I", 100) + b"f"),  # vlen element reaches beyond the chunk
    "bad-vlen-utf8": bad_vlen2(vlen([b"\xff\xfe"] * 6)),  # vlen element is not UTF-8
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------
# Zarr v3

GZIP: Document = {"name": "gzip", "configuration": {"level": 5}}
GROUP: Document = {"zarr_format": 3, "node_type": "group"}


def zarr_json(case: Case, **changes: Any) -> Document:
    """The ``zarr.json`` of an array case; a change to ``...`` removes the member."""
    values = case.expected()
    fill = np.asarray(case.fill_scalar())
    document: Document = {
        "zarr_format": 3, "node_type": "array", "shape": list(values.shape), "data_type": values.dtype.name if values.dtype.kind in "biufc" else None,
        "chunk_grid": codec("regular", chunk_shape=list(case.shards or case.chunks or ())), "chunk_key_encoding": codec("default", separator="/"),
        "fill_value": fill.item() if fill.dtype.kind in "biuf" else None, "codecs": [LITTLE],
    }  # fmt: skip
    if case.attributes:
        document["attributes"] = dict(case.attributes)
    if case.dimension_names is not None:
        document["dimension_names"] = list(case.dimension_names)
    document.update(changes)
    return {k: v for k, v in document.items() if v is not ...}


def write3(target: Path, case: Case, *, encode: Any = little, key: Any = None, path: str = "", **changes: Any) -> None:
    """Write one array that is not sharded."""
    put(target / path, "zarr.json", zarr_json(case, **changes))
    for index in case.indices():
        put(target / path, key(index) if key else "/".join(["c", *map(str, index)]), encode(block(case, index)))


def with3(**options: Any) -> Any:
    return lambda target, case: write3(target, case, **options)


def index_table(entries: np.ndarray, *, order: str = "<", crc: bool = True) -> bytes:
    data = entries.astype(f"{order}u8").tobytes()
    return data + crc32c(data) if crc else data


def shard_bytes(chunks, counts, *, start=False, order="<", crc=True, gap=b"", share=False) -> bytes:
    """Chunks in C order, packed, with the index before or after.

    With a gap, chunks lie in reverse order and garbage before, between and after them; equal chunks may share bytes.
    """
    entries = np.full((*counts, 2), MISSING, "u8")
    head = int(np.prod(counts)) * 16 + 4 * crc if start else 0
    body = 5 * gap
    for index, data in sorted(chunks.items(), reverse=bool(gap)):
        place = body.find(data) if share else -1
        entries[index] = (head + (len(body) if place < 0 else place), len(data))
        if place < 0:
            body += data + 3 * gap
    table = index_table(entries, order=order, crc=crc)
    return table + body if start else body + table


def write_sharded(
    target, case, chain, *, encode=little, after=bytes, axes=None, data_type="int32", fill_value=-1, **made
) -> None:
    """Write a sharded array; ``axes`` is the order of a transpose before sharding."""
    put(target, "zarr.json", zarr_json(case, codecs=chain, data_type=data_type, fill_value=fill_value))
    counts = tuple(s // i for s, i in zip(case.shards, case.chunks, strict=True))
    order = axes or tuple(range(len(counts)))
    found: dict[tuple[int, ...], dict[tuple[int, ...], bytes]] = {}
    for index in case.indices():
        shard = tuple(i // n for i, n in zip(index, counts, strict=True))
        place = tuple(index[a] % counts[a] for a in order)
        found.setdefault(shard, {})[place] = encode(np.transpose(block(case, index), order))
    for shard, chunks in found.items():
        put(target, "/".join(["c", *map(str, shard)]), after(shard_bytes(chunks, [counts[a] for a in order], **made)))


def sharded(*before, inner=None, codecs=(LITTLE,), index=(LITTLE, CRC), location="end", tail=(), **options) -> Any:
    def job(target: Path, case: Case) -> None:
        chain = [*before, sharding(inner or case.chunks, *codecs, index=index, location=location), *tail]
        write_sharded(target, case, chain, **options)

    return job


def nested(location: str) -> Any:
    """Shards (12, 8) of shards (6, 4) of chunks (3, 2)."""

    def job(target: Path, case: Case) -> None:
        start = location == "start"
        inner = sharding((6, 4), sharding((3, 2), location=location), location=location)
        put(target, "zarr.json", zarr_json(case, codecs=[inner]))
        found: dict[Any, dict[Any, dict[Any, bytes]]] = {}
        for i, j in case.indices():
            middle = found.setdefault((i // 4, j // 4), {}).setdefault((i // 2 % 2, j // 2 % 2), {})
            middle[i % 2, j % 2] = little(block(case, (i, j)))
        for (i, j), shards in found.items():
            inners = {k: shard_bytes(v, (2, 2), start=start) for k, v in shards.items()}
            put(target, f"c/{i}/{j}", shard_bytes(inners, (2, 2), start=start))

    return job


def rectilinear(*axes: Any, **options: Any) -> Any:
    grid = codec("rectilinear", kind="inline", chunk_shapes=list(axes))
    return lambda target, case: write3(target, case, chunk_grid=grid, **options)


def struct_type(dtype: np.dtype, *, legacy: bool) -> Document:
    fields: list[Any] = []
    for name, (kind, *_) in dtype.fields.items():
        inner: Any = struct_type(kind, legacy=legacy) if kind.fields else kind.name
        if kind.kind == "S":
            inner = codec("null_terminated_bytes", length_bytes=kind.itemsize)
        fields.append([name, inner] if legacy else {"name": name, "data_type": inner})
    return codec("structured" if legacy else "struct", fields=fields)


def v3_struct(encode: Any, serializer: Document) -> Any:
    """The legacy name; fill value is the base64 of one element in the order of the bytes codec."""

    def job(target: Path, case: Case) -> None:
        fill, data_type = base64_fill(case, encode, case.native_dtype), struct_type(case.native_dtype, legacy=True)
        write3(target, case, encode=encode, data_type=data_type, codecs=[serializer], fill_value=fill)

    return job


# the registered name, big-endian, fill value as an object, -2.5 by its bits
STRUCT = {"data_type": struct_type(NESTED, legacy=False), "codecs": [BIG],
    "fill_value": {"id": 9, "pos": {"lat": 1.5, "lon": "0xc004000000000000"}}}  # fmt: skip


def v3_group(target: Path, case: Case, **members: Any) -> None:
    for path, attributes in case.groups.items():
        given = {"attributes": dict(attributes)} if attributes else {}
        put(target / path, "zarr.json", {**GROUP, **given, **members})
    for path, child in case.children.items():
        write3(target, CASES[child], path=path)


def v3_consolidated_dotdot(target: Path, case: Case) -> None:
    write3(target, case, path="a")
    metadata = {"a": zarr_json(case), "../outside": zarr_json(case)}
    inline = {"kind": "inline", "must_understand": False, "metadata": metadata}
    put(target, "zarr.json", {**GROUP, "consolidated_metadata": inline})


def with_hex(target: Path, case: Case) -> None:
    fill = np.asarray(case.fill_scalar()).reshape(1)
    size = fill.dtype.itemsize // (2 if fill.dtype.kind == "c" else 1)
    parts = [f"0x{int(part):0{2 * size}x}" for part in fill.view(f"u{size}")]
    write3(target, case, fill_value=parts if fill.dtype.kind == "c" else parts[0])


def transposed(*orders: Any, **options: Any) -> Any:
    def encode(array: np.ndarray) -> bytes:
        for order in orders:
            array = np.transpose(array, order)
        return little(array)

    return with3(codecs=[*(transpose(*order) for order in orders), LITTLE], encode=encode, **options)


def bad_shard(data: Any, inner: int = 6, **options: Any) -> Any:
    """One shard of two chunks of 6 elements; ``data`` makes its bytes."""

    def job(target: Path, case: Case) -> None:
        chain = [sharding((inner,), **options)]
        put(target, "zarr.json", zarr_json(case, chunk_grid=codec("regular", chunk_shape=[12]), codecs=chain))
        body = block(case, (0,)).tobytes() + block(case, (1,)).tobytes()
        put(target, "c/0", data(body))

    return job


def entries(*rows: tuple[int, int], tail: bytes = b"", **options: Any) -> Any:
    return lambda body: body + index_table(np.array(rows, "u8"), **options) + tail


def bad_vlen3(data: bytes) -> Any:
    return with3(data_type="string", fill_value="", codecs=[{"name": "vlen-utf8"}], encode=lambda _: data)


VLEN: dict[str, Any] = {"codecs": [{"name": "vlen-bytes"}], "encode": lambda a: vlen(a.ravel())}
FOREIGN: Document = {"must_understand": False, "name": "foreign", "anything": [1, {"x": None}]}

V3: dict[str, Any] = {
    **dict.fromkeys(("layout", "no-storage-transformers", "dimension-names-scalar", "dimension-names-same", "attributes-nan", "fill-neg-zero"), with3()),
    "shorthand-names": with3(codecs=[LITTLE, "crc32c"], chunk_key_encoding="default", encode=lambda a: little(a) + crc32c(little(a))),  # bare names for grid-independent extension points and codecs
    "data-type-object": with3(data_type={"name": "int32"}),  # data_type written as {"name": "int32"}
    "unknown-ignorable": with3(foreign=FOREIGN, another={"must_understand": False}),  # unknown member with must_understand false
    "endian-codec-name": with3(codecs=[codec("endian", endian="big")], encode=big),  # codec called endian, as before mid-2023
    "one-byte-big": with3(codecs=[BIG]),  # bytes codec with endian big on int8
    "one-byte-order": with3(codecs=["bytes"]),
    "key-default-no-config": with3(chunk_key_encoding={"name": "default"}),  # default key encoding, separator not given
    "key-v2-no-config": with3(chunk_key_encoding={"name": "v2"}, key=lambda i: ".".join(map(str, i))),  # v2 key encoding, separator not given
    "both-formats": also(with3(), {".zarray": lambda c: {**zarray(c), "shape": [2, 2], "dtype": "<f8"}, ".zattrs": {"wrong": True}}),  # zarr.json beside a .zarray that says otherwise
    "no-groups": with3(path="a/b"),
    "extra-files": also(with3(), dict.fromkeys(EXTRA_3, b"not a chunk")),
    "json-bom-free-unicode": also(with3(), {"zarr.json": lambda case: raw(zarr_json(case))}),
    "dimension-names-legacy": with3(dimension_names=..., attributes={"_ARRAY_DIMENSIONS": ["y", "x"]}),
    "group-consolidated-null": lambda t, c: v3_group(t, c, consolidated_metadata=None),
    "group-unicode": v3_group,
    "group-implicit": lambda t, c: (put(t, "zarr.json", GROUP), write3(t, CASES["layout"], path="g/h/a")),
    "group-empty": lambda t, _: put(t, "zarr.json", {**GROUP, "consolidated_metadata": {"kind": "elsewhere", "must_understand": False}, "foreign": FOREIGN}),
    "r24": with3(data_type="r24", fill_value=[1, 2, 255], codecs=[{"name": "bytes"}], encode=lambda a: a.tobytes()),
    "bytes-type": with3(data_type="bytes", fill_value=[0, 255], **VLEN),
    "bytes-type-base64": with3(data_type="bytes", fill_value="AP8=", **VLEN),
    "struct-legacy": v3_struct(little, {"name": "bytes"}),
    "struct-legacy-big": v3_struct(big, BIG),
    "struct-nested": with3(encode=big, **STRUCT),
    **dict.fromkeys(("fill-nan-payload-f2", "fill-nan-payload-f4", "fill-nan-payload-f8", "fill-float-exact", "fill-complex-hex"), with_hex),
    "fill-nan": with3(fill_value="NaN"),
    "fill-float-as-integer": with3(fill_value=3),
    "fill-nat-string": with3(data_type=codec("numpy.datetime64", unit="s", scale_factor=1), fill_value="NaT"),
    "datetime-25us": with3(data_type=codec("numpy.datetime64", unit="\u03bcs", scale_factor=25), fill_value="NaT"),
    "transpose-10": transposed((1, 0)),
    "transpose-f": with3(codecs=[codec("transpose", order="F"), LITTLE], encode=lambda a: little(a.T)),
    "transpose-c": with3(codecs=[codec("transpose", order="C"), LITTLE]),
    "transpose-f-3d": with3(codecs=[codec("transpose", order="F"), LITTLE], encode=lambda a: little(a.T)),
    "transpose-201": transposed((2, 0, 1)),
    "transpose-chain": transposed((2, 0, 1), (1, 0, 2)),
    "transpose-vlen-utf8": with3(data_type="string", fill_value="", codecs=[transpose(1, 0), codec("vlen-utf8")],
                                 encode=lambda a: vlen(a.T.ravel())),
    "vlen-utf8-fill": with3(data_type="string", fill_value="né", codecs=[{"name": "vlen-utf8"}], encode=lambda a: vlen(a.ravel())),
    "gzip-members": with3(codecs=[LITTLE, GZIP], encode=lambda a: members(little(a))),
    "zstd-no-size": with3(codecs=[LITTLE, codec("zstd", level=1)], encode=lambda a: zstd_without_size(little(a))),
    "zstd-frames": with3(codecs=[LITTLE, codec("zstd", level=1, checksum=False)], encode=lambda a: zstd_frames(little(a))),
    "codec-blosc-empty-config": with3(codecs=[LITTLE, {"name": "blosc"}], encode=lambda a: Blosc("lz4", 5, 1).encode(little(a))),
    "codec-crc32c": with3(codecs=[LITTLE, CRC, GZIP], encode=lambda a: gzip.compress(little(a) + crc32c(little(a)), mtime=0)),
    "shard-end": sharded(location=None),
    "shard-start": sharded(location="start", start=True),
    "shard-index-no-crc": sharded(index=(LITTLE,), crc=False),
    "shard-index-big": sharded(index=(BIG,), order=">", crc=False),
    "shard-index-start-no-crc": sharded(index=(BIG,), location="start", order=">", crc=False, start=True),
    "shard-missing": sharded(),
    "shard-gaps": sharded(gap=b"\xaa"),
    "shard-shared-bytes": sharded(share=True, fill_value=0),
    "shard-outer-gzip": sharded(tail=(GZIP,), after=lambda d: gzip.compress(d, mtime=0)),
    "shard-outer-crc32c": sharded(tail=(CRC,), after=lambda d: d + crc32c(d)),
    "shard-outer-transpose": sharded(transpose(1, 0), inner=(2, 3), axes=(1, 0)),
    "shard-outer-transpose-3d": sharded(transpose(2, 0, 1), inner=(1, 2, 3), axes=(2, 0, 1)),
    "shard-scalar": sharded(),
    "shard-vlen-utf8": sharded(codecs=({"name": "vlen-utf8"},), encode=lambda a: vlen(a.ravel()), data_type="string", fill_value=""),
    "shard-nested": nested("end"),
    "shard-nested-start": nested("start"),
    "rectilinear": rectilinear([3, 4], [2, 2, 1]),
    "rectilinear-runs": rectilinear([[2, 3], 1, 3], 3),
    "rectilinear-huge-run": rectilinear([2, [1, 10**12]]),
    "rectilinear-extra": rectilinear([[2, 2], 3, [4, 1]]),
    "bad-truncated-chunk": also(with3(), {"c/0": FIRST[:-1]}),
    "bad-long-chunk": also(with3(), {"c/0": FIRST + bytes(4)}),
    "bad-empty-chunk": also(with3(), {"c/0": b""}),
    "bad-blosc-size": with3(codecs=[LITTLE, codec("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0)],
                            encode=lambda a: blosc_memcpy(little(a))),
    "bad-gzip-tail": with3(codecs=[LITTLE, GZIP], encode=lambda a: gzip.compress(little(a), mtime=0)[:-9]),
    "bad-crc32c": with3(codecs=[LITTLE, CRC], encode=lambda a: little(a) + b"\0\1\2\3"),  # checksum does not match
    "bad-crc32c-short": with3(codecs=[LITTLE, CRC], encode=lambda _: b"abc"),  # less than the 4 bytes of a checksum
    "bad-unknown-codec": with3(codecs=[LITTLE, {"name": "no-such-codec"}]),
    "bad-unknown-dtype": with3(data_type="int31"),
    "bad-separator": with3(chunk_key_encoding=codec("default", separator="-")),
    "bad-rank": with3(chunk_grid=codec("regular", chunk_shape=[6, 1])),
    "bad-zero-chunk": with3(chunk_grid=codec("regular", chunk_shape=[0])),
    "bad-negative-shape": with3(shape=[-6]),
    "bad-json-array": also(with3(), {"zarr.json": b"[1, 2]"}),
    "bad-json-deep": also(with3(), {"zarr.json": b"[" * 100_000}),
    "bad-json-latin1": also(with3(), {"zarr.json": json.dumps(zarr_json(BAD, attributes={"x": "é"}), ensure_ascii=False).encode("latin-1")}),
    "bad-fill-fraction": with3(fill_value=2.5),
    "bad-fill-range": with3(data_type="uint8", fill_value=300, codecs=[{"name": "bytes"}]),
    "bad-fill-null": with3(fill_value=None),
    "bad-fill-missing": with3(fill_value=...),
    "bad-fill-string-int": with3(fill_value="3"),  # fill value "3" for an integer
    "bad-no-endian": with3(codecs=[{"name": "bytes"}]),  # bytes codec without endian for int32
    "bad-codec-order": with3(codecs=[GZIP, LITTLE]),
    "bad-two-array-bytes": with3(codecs=[LITTLE, LITTLE]),
    "bad-no-array-bytes": with3(codecs=[GZIP]),
    "bad-unknown-member": with3(foreign={"name": "foreign"}),  # unknown member that must be understood
    "bad-unknown-member-scalar": with3(foreign=False),
    "bad-storage-transformer": with3(storage_transformers=[{"name": "foreign"}]),
    "bad-transpose-order": with3(codecs=[transpose(1), LITTLE]),  # transpose order is no permutation
    "bad-dimension-names": with3(dimension_names=["x", "y"]),  # two names for a rank of one
    "bad-zarr-format": with3(zarr_format=4),
    "bad-key-encoding": with3(chunk_key_encoding={"name": "foreign"}),
    "bad-grid": with3(chunk_grid={"name": "foreign", "must_understand": False}),
    "bad-shard-divide": bad_shard(entries((0, 24), (24, 24)), inner=5),  # inner chunks do not divide the shard
    "bad-shard-half-missing": bad_shard(entries((0, 24), (MISSING, 24))),  # index entry with one of two values missing
    "bad-shard-beyond": bad_shard(entries((0, 24), (24, 2**40))),  # index entry reaches beyond the object
    "bad-shard-overflow": bad_shard(entries((0, 24), (MISSING - 7, 24))),  # offset + nbytes overflows 64 bits
    "bad-shard-index-crc": bad_shard(entries((0, 24), (24, 24), crc=False, tail=b"\0\0\0\0")),  # index checksum does not match
    "bad-shard-short": bad_shard(lambda _: b"x" * 20),  # object shorter than its index
    "bad-shard-empty": bad_shard(lambda _: b""),  # shard object of 0 bytes
    "bad-shard-index-compressed": bad_shard(lambda body: body + gzip.compress(bytes(32), mtime=0), index=(LITTLE, GZIP)),  # index codecs of no fixed size
    "bad-shard-no-index-codecs": bad_shard(entries((0, 24), (24, 24)), index=None),  # index_codecs absent
    "bad-vlen-count": bad_vlen3(vlen(["a", "b"])),
    "bad-vlen-length": bad_vlen3(vlen("abcdef")[:-5] + struct.pack("<I", 100) + b"f"),
    "bad-vlen-utf8": bad_vlen3(vlen([b"\xff\xfe"] * 6)),
    "bad-rectilinear-sum": rectilinear([3, 2]),  # edges do not cover the axis
    "bad-consolidated-dotdot": v3_consolidated_dotdot,
}  # fmt: skip


if __name__ == "__main__":
    run("zarr_v2/hand", V2)
    run("zarr_v2/hand", dict.fromkeys(("zip-duplicate", "zip-deflated"), v2_zip), suffix=".zip")
    run("zarr_v3/hand", V3)
