"""What the golden N5 and Zarr v3 draft stores must give when they are read.

Numpy and the standard library only, so that every generator can import it in the environment of its writer (Python 3.8
and later). A store is the directory ``<format>/<writer>-<version>/<case name>.<n5|zarr3>``; several writers may have
written the same case. Everything is in numpy's order (N5 is reversed), byte order is native. ``attributes`` are the user's:
without N5's four dataset attributes and ``n5``, without ``_ARRAY_DIMENSIONS``.
"""

import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Tuple

import numpy as np

if __package__:  # tests
    from golden.cases import Case
else:
    from cases import Case

SUFFIX = {"n5": ".n5", "zarr_v3_draft": ".zarr3"}

# writer -> directory below the format's directory
N5_WRITERS = {"z5py": "z5py-3.0.2", "tensorstore": "tensorstore-0.1.86", "zarr_python": "zarr-python-2.18.7",
    "zarr_python_fs": "zarr-python-n5fsstore-2.18.7", "pyn5": "pyn5-1.1.1", "lz4_java": "lz4-java-1.8.0",
    "hand": "hand-1"}  # fmt: skip
DRAFT_WRITERS = {"zarr_python": "zarr-python-2.18.7", "hand": "hand-1"}
WRITERS = {"n5": N5_WRITERS, "zarr_v3_draft": DRAFT_WRITERS}


# --------------------------------------------------------------------------------------------------------------
# values


def values(dtype: Any, shape: Tuple[int, ...]) -> np.ndarray:
    """Distinct neighbours, every byte in use, extremes first and last, and NaN, infinities, -0.0 for floats."""
    dtype = np.dtype(dtype)
    n = int(np.prod(shape, dtype=np.int64))
    index = np.arange(n, dtype=np.int64)
    steps = (index * 37 + 11) % 101  # 0..100, no period below 101
    if dtype.kind == "b":
        return (index % 3 == 0).reshape(shape)
    if dtype.kind in "iu":
        factor = {1: 1, 2: 300, 4: 20_000_019, 8: 90_000_000_000_000_019}[dtype.itemsize]
        data = (steps - 50 if dtype.kind == "i" else steps).astype(dtype) * dtype.type(factor)
        if n > 1:
            data[0], data[-1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "f":
        data = ((steps - 50) / 3).astype(dtype)
        if n > 9:
            data[:5] = [np.finfo(dtype).max, np.nan, np.inf, -np.inf, -0.0]
            data[-1] = np.finfo(dtype).tiny
    elif dtype.kind == "c":
        part = "f4" if dtype.itemsize == 8 else "f8"
        data = np.empty(n, dtype)
        data.real, data.imag = values(part, (n,)), values(part, (n,))[::-1]
    else:
        raise TypeError(dtype)
    assert data.dtype == dtype and data.dtype.isnative, data.dtype
    return data.reshape(shape)


def noise(n: int) -> np.ndarray:
    """Bytes that no compressor shortens: the high bytes of a linear congruential sequence."""
    out = np.empty(n, np.uint8)
    state = 12345
    for i in range(n):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out[i] = state >> 16 & 0xFF
    return out


# --------------------------------------------------------------------------------------------------------------
# N5

N5_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
PEERS = ("z5py", "tensorstore", "zarr_python", "pyn5")

NESTED_ATTRIBUTES = {
    "name": "cell 7",
    "text": "\u00b5m \u2192 \u2713",
    "count": 9007199254740993,  # 2**53 + 1: lost when read as a double
    "flag": True,
    "nothing": None,
    "empty": {},
    "nested": {"a": {"b": [1, 2.5, {"c": None}]}, "list": [[1], []]},
}


def _case(name: str, make: Callable[[], np.ndarray], **more: Any) -> Case:
    """An array; what its missing chunks read as is 0, if no fill value is given."""
    about = {"fill_value": 0, "dtype": make().dtype, "format": "n5", "path": "data", "compression": "raw", **more}
    return Case(name, make, **about)


def _array(name: str, dtype: Any, shape: Tuple[int, ...], chunks: Tuple[int, ...], **more: Any) -> Case:
    return _case(name, lambda: values(dtype, shape), chunks=chunks, **more)


def _child(path: str, dtype: Any, shape: Tuple[int, ...], chunks: Tuple[int, ...], **more: Any) -> Case:
    return _array(path, dtype, shape, chunks, path=path, **more)


def _sub(path: str, **attributes: Any) -> Case:
    return Case(path, path=path, groups={"": attributes})


def _group(name: str, *nodes: Case, attributes: Any = {}, **more: Any) -> Case:  # noqa: B006 - never changed
    """A group and all its descendants, groups included."""
    groups = {"": attributes, **{node.path: node.groups[""] for node in nodes if node.is_group}}
    children = {node.path: node for node in nodes if not node.is_group}
    return Case(name, children=children, groups=groups, **{"format": "n5", **more})


def _n5_peer_cases() -> Iterator[Case]:
    # blocks: one full, one at the end
    yield _group("dtypes", *[_child(d, d, (3, 5), (2, 5), compression="gzip") for d in N5_DTYPES], writers=PEERS)
    compressions = {
        **dict.fromkeys(("raw", "gzip", "bzip2"), (*PEERS, "hand")),
        **dict.fromkeys(("xz", "blosc", "zstd"), ("z5py", "tensorstore", "zarr_python", "hand")),
        "lz4": ("z5py", "zarr_python", "lz4_java"),  # three framings under one name
    }
    volume: Dict[str, Any] = {"path": "volume/data"}
    for each, writers in compressions.items():
        about = {**volume, "compression": each, "writers": writers}
        yield _array("compression_" + each, "uint16", (3, 5, 7), (3, 3, 4), **about)
    # N5 dimensions [5, 7, 4], blockSize [2, 4, 3]; padded or truncated, by writer
    writers = (*PEERS, "zarr_python_fs")
    yield _array("end_blocks", "int32", (4, 7, 5), (3, 4, 2), **volume, compression="gzip", writers=writers)
    missing = ((0, 1), (1, 0), (2, 2))
    yield _array("missing_blocks", "int16", (5, 7), (2, 3), missing=missing, writers=(*PEERS, "hand"))
    yield _array("one_d", "float32", (11,), (4,), writers=PEERS)
    yield _array("five_d", "uint8", (2, 3, 1, 5, 4), (1, 2, 1, 3, 4), writers=PEERS)
    about = {"path": "group/data", "attributes": NESTED_ATTRIBUTES, "writers": (*PEERS, "hand")}
    yield _array("attributes", "uint8", (2, 3), (2, 3), **about)
    about = {"path": "", "attributes": {"name": "root"}, "writers": ("tensorstore", "zarr_python", "hand")}
    yield _array("root_dataset", "float64", (3, 5), (2, 5), compression="gzip", **about)  # tensorstore writes no `n5`
    about = {"attributes": {"downsamplingFactors": [1, 1, 1]}, "compression": "gzip"}
    half = {"attributes": {"downsamplingFactors": [2, 2, 1]}, "compression": "gzip"}
    resolution = {"dimensions": [4.0, 4.0, 40.0], "unit": "nm"}
    yield _group(
        "multiscale",
        _sub("volume", scales=[[1, 1, 1], [2, 2, 1]], pixelResolution=resolution),
        _child("volume/s0", "uint8", (3, 6, 8), (2, 4, 3), **about),
        _case("volume/s1", lambda: values("uint8", (3, 6, 8))[:, ::2, ::2], path="volume/s1", chunks=(2, 3, 3), **half),
        _sub("volume/masks"),
        _sub("volume/masks/empty", note="a group without members"),
        attributes={"title": "golden"},
        writers=("z5py", "zarr_python", "zarr_python_fs", "pyn5"),
    )
    writers = ("tensorstore", "zarr_python", "pyn5", "hand")
    yield _array("block_larger_than_array", "int16", (2, 3), (5, 4), writers=writers)
    # what one writer alone does
    axes = {"axes": ["x", "y", "z"], "units": ["nm", "nm", "s"], "resolution": [4.0, 5.5, 30.0]}  # in N5's order
    about = {"attributes": axes, "dimension_names": ("z", "y", "x"), "writers": ("tensorstore",)}
    yield _array("axes_tensorstore", "uint8", (2, 3, 5), (2, 2, 5), compression="gzip", **about)
    zarr: Dict[str, Any] = {"writers": ("zarr_python",)}
    # numcodecs.Zlib: gzip with useZlib true, a zlib container
    yield _array("gzip_zlib_zarr_python", "uint16", (3, 5, 7), (3, 3, 4), **volume, **zarr)
    zarr["may_refuse"] = True
    # `type` lzma: a private compression of zarr-python, here format 2 (LZMA alone)
    yield _array("compression_lzma_alone", "uint16", (3, 5, 7), (3, 3, 4), **volume, **zarr)
    # dataType bool is in no specification; zarr-python writes it all the same
    yield _array("dtype_bool", "bool", (3, 5), (2, 5), fill_value=False, **zarr)
    # dimensions []; block header of 4 bytes under the key `0`
    yield _case("zero_d", lambda: np.array(-7, "int32"), chunks=(), **zarr)
    java: Dict[str, Any] = {"writers": ("lz4_java",)}
    # blockSize 1024: several LZ4Blocks in each of 2 blocks
    yield _array("lz4_small_blocks", "uint16", (3, 40, 70), (3, 40, 40), **java)
    # raw tokens (0x10)
    yield _case("lz4_incompressible", lambda: noise(3 * 1000).reshape(3, 1000), chunks=(2, 1000), **java)
    # int16: 140000 raw bytes a block are 3 LZ4Blocks of 65536, truncated end block
    yield _case("lz4_large", _large, chunks=(70, 1000), **java)
    # compressed and raw LZ4Blocks in one block, blockSize 1024
    yield _case("lz4_mixed_tokens", _half_noise, chunks=(1, 4096), **java)
    # flushed after every 100 bytes: LZ4Blocks shorter than blockSize
    yield _array("lz4_flushed", "int32", (2, 50), (2, 50), **java)
    # Java's stream cut before the empty LZ4Block that closes it; all values are there
    yield _array("lz4_no_end_mark", "int32", (2, 50), (2, 50), may_refuse=True, **java)
    for name in ("bad_checksum", "bad_payload", "truncated", "short", "long", "huge_length", "bad_magic"):
        yield _array("lz4_" + name, "int32", (2, 50), (2, 50), error=True, **java)


def _large() -> np.ndarray:
    rows = np.arange(100, dtype="int16")[:, None] * 7
    return np.ascontiguousarray(rows + np.arange(1000, dtype="int16")[None, :] // 50)


def _half_noise() -> np.ndarray:
    data = np.zeros((2, 4096), np.uint8)
    data[:, :2048] = noise(4096).reshape(2, 2048)
    data[:, 2048:] = np.arange(2048) // 100
    return data


def _specification() -> np.ndarray:
    """Values 1..6 of the specification's example: N5 dimensions [1, 2, 3]."""
    return np.arange(1, 7, dtype="uint16").reshape(3, 2, 1)


def _short_inner() -> np.ndarray:
    data = values("int16", (4, 6))
    data[0:2, 2:3] = 0
    return data


def _n5_hand_cases() -> Iterator[Case]:
    """What they are for is said in `generate_n5_hand`."""
    hand: Dict[str, Any] = {"writers": ("hand",)}

    def plain(name: str, **more: Any) -> Case:
        return _array(name, "int16", (4, 6), (4, 3), **hand, **more)

    for compression in ("raw", "bzip2", "gzip", "xz"):
        yield _case("spec_" + compression, _specification, chunks=(3, 2, 1), **hand)
    for name in (
        "mode1", "mode1_gzip", "gzip_use_zlib", "gzip_use_zlib_false", "gzip_no_level", "gzip_level_minus_1",
        "gzip_members", "old_compression_type_gzip", "old_compression_type_raw", "unknown_parameters", "blosc_java",
        "zstd_no_content_size", "version_absent", "version_absent_attributes", "version_snapshot", "version_minor",
        "beyond_dataset",
    ):  # fmt: skip
        yield plain(name)
    for name in (
        "mode1_wrong_count", "mode2", "mode2_with_dimensions", "mode3", "header_ndim", "header_ndim_huge",
        "header_block_too_large", "header_dimension_huge", "header_truncated", "header_only", "empty_file",
        "payload_short", "payload_long", "gzip_payload_short", "gzip_payload_long", "gzip_corrupt", "gzip_truncated",
        "gzip_bomb", "compression_jpeg", "compression_unknown", "compression_absent", "dtype_string", "dtype_object",
        "dtype_unknown", "metadata_rank_mismatch", "metadata_block_size_zero", "metadata_negative_dimension",
        "metadata_fraction", "metadata_not_json", "metadata_not_object", "metadata_deep", "version_5",
    ):  # fmt: skip
        yield plain(name, error=True)
    for name, attributes in {
        "axes_wrong_length": {"axes": ["x", "y", "z"], "units": ["nm"]},
        "attributes_infinity": {"high": float("inf"), "low": float("-inf")},
        "foreign_members": {"zarr_format": 2, "shape": [1], "fill_value": 5, "chunks": None},
    }.items():
        yield plain(name, attributes=attributes)
    yield plain("axes", attributes={"axes": ["x", "y"], "units": "nm"}, dimension_names=("y", "x"))
    yield _array("padded_and_truncated", "int32", (4, 7, 5), (3, 4, 2), **hand)
    yield _array("padded_in_part", "int16", (5, 7), (3, 4), **hand)
    yield _case("short_inner_block", _short_inner, chunks=(2, 3), may_refuse=True, **hand)
    children = [_child(c, "int16", (4, 6), (4, 3)) for c in ("gzip", "bzip2", "xz", "blosc", "zstd")]
    yield _group("absent_parameters", *children, **hand)
    yield _array("all_missing", "float32", (4, 6), (2, 3), missing=tuple(np.ndindex(2, 2)), **hand)
    yield _case("zero_length_axis", lambda: np.zeros((3, 0), "int16"), chunks=(2, 3), **hand)
    # directories without attributes.json are groups, numbers are legal names
    children = [_child(path, "int16", (4, 6), (4, 3)) for path in ("0/1", "a/b/data")]
    yield _group("groups", _sub("a"), _sub("a/b"), _sub("a/b/c", deep=1), _sub("0"), *children, **hand)


# --------------------------------------------------------------------------------------------------------------
# Zarr v3 draft

DRAFT_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "complex64", "complex128")  # fmt: skip
NUMPY_SPELLINGS = {"f8_little": "<f8", "f4_big": ">f4", "u1": "|u1", "u1_bare": "u1", "i1": "|i1", "i2_little": "<i2",
    "i8_big": ">i8", "u4_big": ">u4", "b1": "|b1", "f2_big": ">f2", "c8_big": ">c8"}  # fmt: skip
FILLS: Dict[str, Tuple[str, Any, Any]] = {  # name: (dtype, JSON, value)
    "nan": ("float64", "NaN", np.float64("nan")),
    "plus_infinity": ("float64", "+Infinity", np.float64("inf")),
    "minus_infinity": ("float32", "-Infinity", np.float32("-inf")),
    "infinity": ("float32", "Infinity", np.float32("inf")),
    "hex_pi": ("float64", "0x400921fb54442d18", np.float64(np.pi)),
    "hex_nan_payload": ("float64", "0x7FF80000DEADBEEF", np.array(0x7FF80000DEADBEEF, "u8").view("f8")[()]),
    "hex_half": ("float16", "0x3c00", np.float16(1)),
    "binary_two": ("float32", "0b01000000000000000000000000000000", np.float32(2)),
    "minus_zero": ("float64", "0x8000000000000000", np.float64(-0.0)),
    "integer": ("float64", 3, np.float64(3)),
    "uint64_max": ("uint64", 18446744073709551615, np.uint64(18446744073709551615)),
    "int64_min": ("int64", -9223372036854775808, np.int64(-9223372036854775808)),
    "bool": ("bool", True, np.bool_(True)),
}
GZIP_URIS = {
    "codecs": "https://purl.org/zarr/spec/codecs/gzip/1.0",
    "codec": "https://purl.org/zarr/spec/codec/gzip/1.0",
    "http": "http://purl.org/zarr/spec/codecs/gzip/1.0",
    "unversioned": "https://purl.org/zarr/spec/codecs/gzip",
    "minor": "https://purl.org/zarr/spec/codecs/gzip/1.1",
}


CODEC_NODES = ("absent", "empty", "gzip", "gzip_no_configuration", "blosc", "blosc_noshuffle", "blosc_bitshuffle",
    "endian_big", "endian_little", "endian_big_gzip", "endian_big_blosc", "gzip_gzip", "gzip_members")  # fmt: skip


def _raw(itemsize: int) -> np.ndarray:
    return (np.arange(15 * itemsize, dtype="u1") + 1).view("V%d" % itemsize).reshape(3, 5)


def _draft_hand_cases() -> Iterator[Case]:
    """What most are for is said in `generate_draft_hand`."""
    draft: Dict[str, Any] = {"format": "zarr_v3_draft", "writers": ("hand",)}
    root = {"path": "", **draft}

    def plain(name: str, **more: Any) -> Case:
        return _array(name, "int16", (7, 5), (4, 3), path="foo/baz", **draft, **more)

    def node(path: str, chunks: Tuple[int, ...] = (4, 3)) -> Case:
        return _child(path, "int16", (4, 5), chunks)

    for name in (
        "suffix_meta", "suffix_empty", "extension_entry_ignored", "extension_array_ignored",
        "storage_transformers_empty", "version_3_1",
    ):  # fmt: skip
        yield plain(name)
    for name in (
        "extension_no_fallback", "extension_unknown_fallback", "dtype_unknown", "dtype_r12", "codec_unknown",
        "codec_not_purl", "fill_null", "fill_absent", "fill_short_hex", "fill_fraction", "fill_range",
        "fill_null_datetime", "separator_dash", "metadata_encoding_extension", "metadata_encoding_type",
        "extension_entry_required", "extension_entry_unsaid", "extension_array_required", "extension_array_unsaid",
        "unknown_array_member", "unknown_array_member_lenient", "storage_transformers", "chunk_grid_extension",
        "memory_layout_extension", "rank_mismatch", "chunk_zero", "version_4", "version_foreign", "chunk_short",
        "chunk_long", "chunk_empty", "chunk_gzip_corrupt", "array_not_json", "array_not_object", "entry_not_json",
    ):  # fmt: skip
        yield plain(name, error=True)
    yield _group("unknown_group_member", error=True, **draft)
    # 3.1 entry point with an unknown member: the draft says both ignore and fail
    yield plain("version_3_1_member", may_refuse=True)
    # padding holds 99: no values of the array
    yield plain("basic", attributes={"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]})
    yield plain("attributes", attributes=NESTED_ATTRIBUTES)
    yield plain("missing_chunks", fill_value=-9, missing=((0, 0), (1, 1)))
    # no data/ at all
    yield plain("all_missing", fill_value=-9, missing=tuple(np.ndindex(2, 2)))
    yield _group("dtypes", *[_child(d, d, (3, 5), (2, 5)) for d in DRAFT_DTYPES], **draft)
    # as in the draft's examples; > stores big-endian without an endian codec
    children = [_child(n, np.dtype(s).newbyteorder("="), (3, 5), (2, 5)) for n, s in NUMPY_SPELLINGS.items()]
    yield _group("dtypes_numpy", *children, **draft)
    for size in (2, 3):
        about = {"path": "r", "fill_value": np.zeros((), "V%d" % size)[()], **draft}
        yield _case("raw_r%d" % (8 * size), lambda n=size: _raw(n), chunks=(2, 5), **about)
    # a reader that knows the extension of the second gives M8[ns], same bits
    for name, dtype in {"": "int64", "_numpy": "int64", "_list": "float32"}.items():
        yield _array("extension_fallback" + name, dtype, (3, 5), (2, 5), path="time", **draft)
    yield _array("layout_f", "int32", (4, 7, 5), (3, 3, 2), path="f", **draft)
    yield _array("layout_f_endian_gzip", "int32", (4, 7, 5), (3, 3, 2), path="f", **draft)
    # spellings of one codec
    yield _group("gzip_uris", *[node(n) for n in GZIP_URIS], **draft)
    endian = [_child("endian_complex", "complex64", (3, 5), (2, 5)), _child("endian_int8", "int8", (3, 5), (2, 5))]
    yield _group("codecs", *[node(n) for n in CODEC_NODES], *endian, **draft)
    fills = [_child(n, d, (3, 5), (3, 3), fill_value=v, missing=((0, 1),)) for n, (d, _, v) in FILLS.items()]
    yield _group("fills", *fills, **draft)
    yield _group("separators", node("slash", (3, 3)), node("dot", (3, 3)), **draft)
    explicit = _sub("explicit", spam="ham", eggs=42), _sub("explicit/empty"), node("explicit/data")
    implicit = _sub("implicit"), _sub("implicit/deep"), node("implicit/deep/data")
    yield _group("groups", *explicit, *implicit, node("top"), attributes={"title": "golden"}, **draft)
    # no group document at all
    yield _group("implicit_root", _sub("a"), _sub("a/b"), node("a/b/data"), **draft)
    # the draft's listing example, with the keys as the storage keys section has them
    yield _group("specification_listing", _sub("foo"), _sub("foo/bar"), _sub("foo/baz"), node("foo/baz/qux"), **draft)
    # legal names that look like something else
    arrays = [node(n) for n in ("x.array", "v1.2_a-B", "c", "array", "foo.group.json", "data/c0", "meta/root")]
    yield _group("node_names", *arrays, _sub("data"), _sub("meta"), _sub("y.group"), **draft)
    # meta/foo.array.json beside meta/foo/bar.array.json: foo is the array
    yield _group("array_and_prefix", node("foo"), **draft)
    yield _array("root_array", "int16", (7, 5), (3, 2), attributes={"name": "root"}, **root)
    # data/scalar/c
    scalar = {"path": "scalar", "chunks": (), **draft}
    yield _case("zero_d", lambda: np.array(2.5, "float64"), **scalar)
    yield _case("zero_d_missing", lambda: np.array(9, "int32"), fill_value=9, missing=((),), **scalar)
    # data/c
    yield _case("zero_d_root", lambda: np.array(-3, "int8"), chunks=(), **root)
    # chunk length 0 on the empty axis; a reader may report another length
    for name, chunks in {"zero_length_axis": (3, 2), "zero_length_chunk": (0, 2)}.items():
        yield _case(name, lambda: np.zeros((0, 5), "int16"), path="foo/baz", chunks=chunks, **draft)


def hidden() -> Case:
    """The array that no reader of ``array_and_prefix`` finds."""
    return _case("bar", lambda: np.arange(6, dtype="int16"), path="foo/bar", chunks=(6,))


def _times() -> np.ndarray:
    data = (np.arange(15, dtype="int64").reshape(3, 5) * 86_400_000_000_123 - 10**15).view("M8[ns]")
    data[1, 1] = np.datetime64("NaT", "ns")
    return data


def _spans() -> np.ndarray:
    return (np.arange(15, dtype="int64").reshape(3, 5) - 7).view("m8[s]")


def _bytes() -> np.ndarray:
    return np.array([b"%d" % (7**i % 99999) for i in range(15)], "S5").reshape(3, 5)


def _text() -> np.ndarray:
    return np.array(["\u00b5%d\u2713" % i for i in range(15)], "U4").reshape(3, 5)


def _records() -> np.ndarray:
    data = np.zeros((3, 5), [("a", "i2"), ("b", "f8"), ("c", "S3")])
    data["a"], data["b"], data["c"] = values("i2", (3, 5)), values("f8", (3, 5)), b"xyz"
    return data


def _objects() -> np.ndarray:
    data = np.empty((3, 5), object)
    data[...] = [["", "a", "\u00b5m", "x" * 20, str(i)] for i in range(3)]
    return data


def _filtered() -> np.ndarray:
    return (np.arange(35, dtype="int32").reshape(7, 5) ** 2) * 3


EXTENSION_DTYPES: Dict[str, Callable[[], np.ndarray]] = {"complex64": lambda: values("complex64", (3, 5)),
    "complex128": lambda: values("complex128", (3, 5)), "datetime64": _times, "timedelta64": _spans, "bytes": _bytes,
    "text": _text}  # fmt: skip
NATIVE_SPELLINGS = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", ">i2", ">i4",
    ">u8", ">f4", ">f8")  # fmt: skip
EXPERIMENTAL_COMPRESSORS = ("none", "gzip", "zlib", "blosc", "bz2", "lz4", "lzma", "zstd")
EXPERIMENTAL_FILLS: Dict[str, Tuple[str, Any]] = {"nan": ("float64", np.nan), "infinity": ("float64", np.inf),
    "minus_infinity": ("float32", -np.inf), "number": ("int32", -5), "true": ("bool", True)}  # fmt: skip


def experimental_name(spelling: str) -> str:
    """Node name of a numpy type string."""
    return {"|": "", "<": "little_", ">": "big_"}[spelling[0]] + spelling[1:]


def _experimental_cases() -> Iterator[Case]:
    draft: Dict[str, Any] = {"format": "zarr_v3_draft", "writers": ("zarr_python",)}

    def node(path: str, **more: Any) -> Case:
        return _child(path, "int16", (4, 5), (3, 3), **more)

    def group(name: str, *nodes: Case, **more: Any) -> Case:
        return _group("experimental_" + name, *nodes, **draft, **more)

    names = {experimental_name(s): np.dtype(s).newbyteorder("=") for s in NATIVE_SPELLINGS}
    yield group("dtypes", *[_child(name, dtype, (3, 5), (2, 5)) for name, dtype in names.items()])
    # data_type {extension, type, fallback: null}: the type is numpy's
    zeros = {name: np.zeros((), make().dtype)[()] for name, make in EXTENSION_DTYPES.items()}
    extensions = EXTENSION_DTYPES.items()
    children = [_case(n, make, path=n, chunks=(2, 5), fill_value=zeros[n]) for n, make in extensions]
    yield group("extension_dtypes", *children)
    refused: Dict[str, Any] = {"may_refuse": True, **draft}
    fill = np.zeros((), _records().dtype)[()]
    yield _case("experimental_structured", _records, chunks=(2, 5), fill_value=fill, **refused)
    # vlen-utf8 in attributes.filters
    yield _case("experimental_object", _objects, chunks=(2, 5), fill_value="", **refused)
    yield group("compressors", *[node(n) for n in EXPERIMENTAL_COMPRESSORS])
    # delta in attributes.filters, v2 style, then zlib
    yield _case("experimental_filters", _filtered, chunks=(3, 2), **draft)
    yield group("separators", node("slash"), node("dot"))
    yield _array("experimental_order_f", "int32", (4, 7, 5), (3, 3, 2), path="f", **draft)
    # bare "Infinity" strings, no plus sign
    missing, fills = ((0, 1), (1, 2)), EXPERIMENTAL_FILLS.items()
    yield group("fills", *[_child(n, d, (3, 5), (2, 2), fill_value=v, missing=missing) for n, (d, v) in fills])
    # fill_value null: illegal in the draft, zeros in zarr-python
    about = {"missing": ((0, 1),), "fill_value": None, **refused}
    yield _array("experimental_fill_null", "int16", (4, 5), (3, 3), **about)
    # data/root/scalar/c0
    yield _case("experimental_zero_d", lambda: np.array(2.5, "float64"), path="scalar", chunks=(), **draft)
    # meta/root.array.json
    about = {"path": "", "attributes": {"name": "root"}, **draft}
    yield _array("experimental_root_array", "int16", (7, 5), (3, 2), **about)
    explicit = node("explicit/data", attributes=NESTED_ATTRIBUTES)
    implicit = _sub("implicit"), _sub("implicit/deep"), node("implicit/deep/data")
    subs = _sub("explicit", spam="ham", eggs=42), _sub("explicit/empty")
    yield group("groups", *subs, explicit, *implicit, attributes={"title": "golden"})
    # meta/root/consolidated/.zmetadata; zarr-python leaves an explicit group `consolidated` behind
    subs, data = (_sub("g", unit="m"), _sub("consolidated")), node("g/data", attributes={"a": 1})
    yield group("consolidated", *subs, data, node("top"))
    # _ARRAY_DIMENSIONS, as xarray writes
    about = {"path": "temperature", "dimension_names": ("y", "x"), "attributes": {"units": "K"}, **draft}
    yield _array("experimental_dimensions", "float32", (4, 5), (3, 3), **about)
    # storage transformer `indexed` of zarr-python, 2x2 chunks a shard
    yield _array("experimental_sharding", "int16", (7, 5), (3, 2), shards=(6, 4), **draft)


CASES: Dict[str, Case] = {}  # key: "<format>/<case name>"
for _each in (*_n5_peer_cases(), *_n5_hand_cases(), *_draft_hand_cases(), *_experimental_cases()):
    _key = _each.format + "/" + _each.name
    assert _key not in CASES, _key
    CASES[_key] = _each


def fresh(format: str, writer: str, version: str) -> Iterator[Tuple[Case, Path]]:
    """Cases that one writer's generator must write, and where: into an emptied directory, of this version of the writer.

    Below the folder of the first argument of the command, by default this one.
    """
    golden = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    directory = golden / format / WRITERS[format][writer]
    assert directory.name.endswith("-" + version), (directory.name, version)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for case in CASES.values():
        if case.format == format and writer in case.writers:
            yield case, directory / (case.name + SUFFIX[format])


def stores(golden: Path) -> Iterator[Tuple[Path, Case]]:
    """Every store that must exist. A test checks that each is there."""
    for case in CASES.values():
        for writer in case.writers:
            yield Path(golden, case.format, WRITERS[case.format][writer], case.name + SUFFIX[case.format]), case
