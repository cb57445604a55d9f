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
    return Case(name, make, **{"fill_value": 0, "dtype": make().dtype, "format": "n5", **more})


def _array(name: str, dtype: Any, shape: Tuple[int, ...], chunks: Tuple[int, ...], **more: Any) -> Case:
    return _case(name, lambda: values(dtype, shape), chunks=chunks, **more)


def _child(path: str, dtype: Any, shape: Tuple[int, ...], chunks: Tuple[int, ...], **more: Any) -> Case:
    return _array(path, dtype, shape, chunks, path=path, **more)


def _sub(path: str, **attributes: Any) -> Case:
    return Case(path, path=path, groups={"": attributes})


def _group(name: str, *nodes: Case, attributes: Any = {}, **more: Any) -> Case:  # noqa: B006 - never changed
    """A group and all its descendants, groups included."""
    groups = {"": attributes, **{node.path: node.groups[""] for node in nodes if node.is_group}}
    return Case(
        name,
        children={node.path: node for node in nodes if not node.is_group},
        groups=groups,
        **{"format": "n5", **more},
    )


def _scale(level: int) -> np.ndarray:
    full = values("uint8", (3, 6, 8))
    return full if level == 0 else np.ascontiguousarray(full[:, ::2, ::2])


def _n5_peer_cases() -> Iterator[Case]:
    yield _group("dtypes", *[_child(d, d, (3, 5), (2, 5), compression="gzip") for d in N5_DTYPES],
        writers=PEERS, note="blocks: one full, one at the end")  # fmt: skip
    compressions = {
        **dict.fromkeys(("raw", "gzip", "bzip2"), (*PEERS, "hand")),
        **dict.fromkeys(("xz", "blosc", "zstd"), ("z5py", "tensorstore", "zarr_python", "hand")),
        "lz4": ("z5py", "zarr_python", "lz4_java"),
    }
    for compression, writers in compressions.items():
        yield _array(
            "compression_" + compression,
            "uint16",
            (3, 5, 7),
            (3, 3, 4),
            path="volume/data",
            compression=compression,
            writers=writers,
            note="three framings under one name: z5py, zarr-python and Java" if compression == "lz4" else "",
        )
    yield _array("end_blocks", "int32", (4, 7, 5), (3, 4, 2), path="volume/data", compression="gzip",
        writers=(*PEERS, "zarr_python_fs"),
        note="N5 dimensions [5, 7, 4], blockSize [2, 4, 3]; padded or truncated, by writer")  # fmt: skip
    yield _array("missing_blocks", "int16", (5, 7), (2, 3), path="data", compression="raw",
        missing=((0, 1), (1, 0), (2, 2)), writers=(*PEERS, "hand"))  # fmt: skip
    yield _array("one_d", "float32", (11,), (4,), path="data", compression="raw", writers=PEERS)
    yield _array("five_d", "uint8", (2, 3, 1, 5, 4), (1, 2, 1, 3, 4), path="data", compression="raw", writers=PEERS)
    yield _array("attributes", "uint8", (2, 3), (2, 3), path="group/data", compression="raw",
        attributes=NESTED_ATTRIBUTES, writers=(*PEERS, "hand"))  # fmt: skip
    yield _array("root_dataset", "float64", (3, 5), (2, 5), compression="gzip", attributes={"name": "root"},
        writers=("tensorstore", "zarr_python", "hand"), note="tensorstore writes no `n5`")  # fmt: skip
    yield _group(
        "multiscale",
        _sub(
            "volume",
            scales=[[1, 1, 1], [2, 2, 1]],
            pixelResolution={"dimensions": [4.0, 4.0, 40.0], "unit": "nm"},
        ),
        _child(
            "volume/s0",
            "uint8",
            (3, 6, 8),
            (2, 4, 3),
            compression="gzip",
            attributes={"downsamplingFactors": [1, 1, 1]},
        ),
        _case(
            "volume/s1",
            lambda: _scale(1),
            path="volume/s1",
            chunks=(2, 3, 3),
            compression="gzip",
            attributes={"downsamplingFactors": [2, 2, 1]},
        ),
        _sub("volume/masks"),
        _sub("volume/masks/empty", note="a group without members"),
        attributes={"title": "golden"},
        writers=("z5py", "zarr_python", "zarr_python_fs", "pyn5"),
    )
    yield _array("block_larger_than_array", "int16", (2, 3), (5, 4), path="data", compression="raw",
        writers=("tensorstore", "zarr_python", "pyn5", "hand"))  # fmt: skip
    # what one writer alone does
    yield _array("axes_tensorstore", "uint8", (2, 3, 5), (2, 2, 5), path="data", compression="gzip",
        attributes={"axes": ["x", "y", "z"], "units": ["nm", "nm", "s"], "resolution": [4.0, 5.5, 30.0]},
        dimension_names=("z", "y", "x"), writers=("tensorstore",), note="axes are in N5's order")  # fmt: skip
    yield _array("gzip_zlib_zarr_python", "uint16", (3, 5, 7), (3, 3, 4), path="volume/data", writers=("zarr_python",),
        note="numcodecs.Zlib: gzip with useZlib true, a zlib container")  # fmt: skip
    yield _array("compression_lzma_alone", "uint16", (3, 5, 7), (3, 3, 4), path="volume/data", may_refuse=True,
        writers=("zarr_python",),
        note="`type` lzma: a private compression of zarr-python, here format 2 (LZMA alone)")  # fmt: skip
    yield _case("dtype_bool", lambda: values("bool", (3, 5)), path="data", chunks=(2, 5), fill_value=False,
        may_refuse=True, writers=("zarr_python",),
        note="dataType bool is in no specification; zarr-python writes it all the same")  # fmt: skip
    yield _case("zero_d", lambda: np.array(-7, "int32"), path="data", chunks=(), may_refuse=True,
        writers=("zarr_python",), note="dimensions []; block header of 4 bytes under the key `0`")  # fmt: skip
    # Java's lz4
    yield _array("lz4_small_blocks", "uint16", (3, 40, 70), (3, 40, 40), path="data", writers=("lz4_java",),
        note="blockSize 1024: several LZ4Blocks in each of 2 blocks")  # fmt: skip
    yield _case("lz4_incompressible", lambda: noise(3 * 1000).reshape(3, 1000), path="data", chunks=(2, 1000),
        writers=("lz4_java",), note="raw tokens (0x10)")  # fmt: skip
    yield _case("lz4_large", _large, path="data", chunks=(70, 1000), writers=("lz4_java",),
        note="int16: 140000 raw bytes a block are 3 LZ4Blocks of 65536, truncated end block")  # fmt: skip
    yield _case("lz4_mixed_tokens", _half_noise, path="data", chunks=(1, 4096), writers=("lz4_java",),
        note="compressed and raw LZ4Blocks in one block, blockSize 1024")  # fmt: skip
    yield _array("lz4_flushed", "int32", (2, 50), (2, 50), path="data", writers=("lz4_java",),
        note="flushed after every 100 bytes: LZ4Blocks shorter than blockSize")  # fmt: skip
    yield _array("lz4_no_end_mark", "int32", (2, 50), (2, 50), path="data", writers=("lz4_java",), may_refuse=True,
        note="Java's stream cut before the empty LZ4Block that closes it; all values are there")  # fmt: skip
    for name, why in {
        "lz4_bad_checksum": "one bit of the checksum changed",
        "lz4_bad_payload": "one bit of a raw LZ4Block changed: only the checksum tells",
        "lz4_truncated": "the stream ends inside an LZ4Block",
        "lz4_short": "fewer values than the header says",
        "lz4_long": "more values than the header says",
        "lz4_huge_length": "an LZ4Block states a raw length of 2**31 - 1",
        "lz4_bad_magic": "the magic of the second LZ4Block is wrong",
    }.items():
        yield _array(name, "int32", (2, 50), (2, 50), path="data", writers=("lz4_java",), error=why)


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
    hand: Dict[str, Any] = {"writers": ("hand",), "path": "data"}

    def plain(name: str, **more: Any) -> Case:
        return _array(name, "int16", (4, 6), (4, 3), **{**hand, **more})

    for compression in ("raw", "bzip2", "gzip", "xz"):
        yield _case("spec_" + compression, _specification, chunks=(3, 2, 1), **hand,
            note="the bytes printed in the specification")  # fmt: skip
    # header
    yield plain("mode1", note="varlength with the right number of elements")
    yield plain("mode1_gzip", note="varlength with the right number of elements, gzip after the count")
    yield plain("mode1_wrong_count", error="varlength: element count is not the product of the block's dimensions")
    yield plain("mode2", error="mode 2 (object): mode and element count, no dimensions")
    yield plain("mode2_with_dimensions", error="mode 2 (object) in the specification's spelling, with dimensions")
    yield plain("mode3", error="unknown mode 3")
    yield plain("header_ndim", error="header says 3 dimensions, the dataset has 2")
    yield plain("header_ndim_huge", error="header says 65535 dimensions")
    yield plain("header_block_too_large", error="block dimensions exceed blockSize")
    yield plain("header_dimension_huge", error="block dimension 2**32 - 1")
    yield plain("header_truncated", error="3 bytes: not even a header")
    yield plain("header_only", error="header without payload")
    yield plain("empty_file", error="0 bytes: present, so not a missing block")
    yield plain("payload_short", error="raw payload one value short")
    yield plain("payload_long", error="raw payload one value long")
    yield plain("gzip_payload_short", error="decompressed payload one value short")
    yield plain("gzip_payload_long", error="decompressed payload one value long")
    yield plain("gzip_corrupt", error="gzip stream with a wrong checksum")
    yield plain("gzip_truncated", error="gzip stream cut off")
    yield plain("gzip_bomb", error="decompressed payload of 16 MB for a block of 24 bytes")
    yield _array("padded_and_truncated", "int32", (4, 7, 5), (3, 4, 2), **hand,
        note="end blocks padded to blockSize (with 77) and truncated ones in one dataset")  # fmt: skip
    yield _array("padded_in_part", "int16", (5, 7), (3, 4), **hand,
        note="end blocks longer than the dataset but shorter than blockSize")  # fmt: skip
    yield _case("short_inner_block", _short_inner, chunks=(2, 3), may_refuse=True, **hand,
        note="an inner block truncated as only end blocks may be: the rest is 0, or refused")  # fmt: skip
    # compression metadata
    yield plain("gzip_use_zlib", note="useZlib true: zlib container")
    yield plain("gzip_use_zlib_false")
    yield plain("gzip_no_level")
    yield plain("gzip_level_minus_1")
    yield plain("gzip_members", note="two gzip members in a row")
    yield plain("old_compression_type_gzip", note="compressionType of N5 before 2.0")
    yield plain("old_compression_type_raw", note="compressionType of N5 before 2.0")
    yield plain("unknown_parameters", note="unknown member of compression")
    yield _group("absent_parameters",
        *[_child(c, "int16", (4, 6), (4, 3)) for c in ("gzip", "bzip2", "xz", "blosc", "zstd")],
        writers=("hand",), note="compression is only {type}, and cname for blosc")  # fmt: skip
    yield plain("blosc_java", note="as n5-blosc writes: typesize 1, shuffle as an integer, nthreads")
    yield plain("zstd_no_content_size", note="as zstd-jni's stream writes: frame without content size")
    yield plain("compression_jpeg", error="jpeg")
    yield plain("compression_unknown", error="unknown compression type")
    yield plain("compression_absent", error="neither compression nor compressionType")
    # dataset metadata
    yield plain("dtype_string", error="dataType string")
    yield plain("dtype_object", error="dataType object")
    yield plain("dtype_unknown", error="dataType float16")
    yield plain("metadata_rank_mismatch", error="blockSize and dimensions differ in length")
    yield plain("metadata_block_size_zero", error="blockSize 0")
    yield plain("metadata_negative_dimension", error="negative dimension")
    yield plain("metadata_fraction", error="dimension 6.5")
    yield plain("metadata_not_json", error="attributes.json of the dataset is not JSON")
    yield plain("metadata_not_object", error="attributes.json of the dataset is a JSON list")
    yield plain("metadata_deep", error="100,000 nested brackets in attributes.json")
    yield plain("axes", attributes={"axes": ["x", "y"], "units": "nm"}, dimension_names=("y", "x"))
    yield plain("axes_wrong_length", attributes={"axes": ["x", "y", "z"], "units": ["nm"]})
    yield plain(
        "attributes_infinity", attributes={"high": float("inf"), "low": float("-inf")}, note="bare Infinity tokens"
    )
    yield plain("foreign_members", attributes={"zarr_format": 2, "shape": [1], "fill_value": 5, "chunks": None},
        note="user attributes named like Zarr's")  # fmt: skip
    # container
    yield plain("version_absent", note="no attributes.json at the root")
    yield plain("version_absent_attributes", note="root attributes without n5")
    yield plain("version_snapshot", note="2.1.0-SNAPSHOT")
    yield plain("version_minor", note="4.9.1")
    yield plain("version_5", error="n5 5.0.0")
    # blocks
    yield _array("all_missing", "float32", (4, 6), (2, 3), missing=((0, 0), (0, 1), (1, 0), (1, 1)), **hand)
    yield plain("beyond_dataset", note="blocks at 2/0, 0/2 and 7/7, outside the grid: ignored")
    yield _case("zero_length_axis", lambda: np.zeros((3, 0), "int16"), chunks=(2, 3), **hand)
    yield _group("groups", _sub("a"), _sub("a/b"), _sub("a/b/c", deep=1), _sub("0"),
        _child("0/1", "int16", (4, 6), (4, 3)), _child("a/b/data", "int16", (4, 6), (4, 3)), writers=("hand",),
        note="directories without attributes.json are groups, numbers are legal names")  # fmt: skip


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


def _raw(itemsize: int) -> np.ndarray:
    return (np.arange(15 * itemsize, dtype="u1") + 1).view("V%d" % itemsize).reshape(3, 5)


def _draft_hand_cases() -> Iterator[Case]:
    draft: Dict[str, Any] = {"format": "zarr_v3_draft", "writers": ("hand",)}

    def plain(name: str, **more: Any) -> Case:
        return _array(name, "int16", (7, 5), (4, 3), **{"path": "foo/baz", **draft, **more})

    def node(path: str, chunks: Tuple[int, ...] = (4, 3), **more: Any) -> Case:
        return _child(path, "int16", (4, 5), chunks, **more)

    yield plain("basic", attributes={"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]},
        note="padding holds 99: no values of the array")  # fmt: skip
    yield _group("dtypes", *[_child(d, d, (3, 5), (2, 5), fill_value=0) for d in DRAFT_DTYPES], **draft)
    yield _group("dtypes_numpy",
        *[_child(n, np.dtype(s).newbyteorder("="), (3, 5), (2, 5)) for n, s in NUMPY_SPELLINGS.items()],
        note="as in the draft's examples; > stores big-endian without an endian codec", **draft)  # fmt: skip
    for bits in (16, 24):
        yield _case("raw_r%d" % bits, lambda n=bits // 8: _raw(n), path="r", chunks=(2, 5),
            fill_value=np.zeros((), "V%d" % (bits // 8))[()], **draft)  # fmt: skip
    yield _array(
        "extension_fallback", "int64", (3, 5), (2, 5), path="time", note="unknown extension, fallback int64", **draft
    )
    yield _array(
        "extension_fallback_numpy",
        "int64",
        (3, 5),
        (2, 5),
        path="time",
        **draft,
        note="the draft's datetime example with a legal fill value, fallback <i8; a reader that knows the extension gives M8[ns], same bits",
    )
    yield _array(
        "extension_fallback_list", "float32", (3, 5), (2, 5), path="time", note="first known of a list", **draft
    )
    yield plain("extension_no_fallback", error="unknown data type extension without fallback")
    yield plain("extension_unknown_fallback", error="unknown data type extension, unknown fallback")
    yield plain("dtype_unknown", error="data type float128")
    yield plain("dtype_r12", error="r12 is no multiple of 8")
    yield _array("layout_f", "int32", (4, 7, 5), (3, 3, 2), path="f", note="raw", **draft)
    yield _array("layout_f_endian_gzip", "int32", (4, 7, 5), (3, 3, 2), path="f", **draft)
    yield _group("gzip_uris", *[node(n) for n in GZIP_URIS], note="spellings of one codec", **draft)
    yield _group(
        "codecs",
        *[
            node(n)
            for n in (
                "absent",
                "empty",
                "gzip",
                "gzip_no_configuration",
                "blosc",
                "blosc_noshuffle",
                "blosc_bitshuffle",
                "endian_big",
                "endian_little",
                "endian_big_gzip",
                "endian_big_blosc",
                "gzip_gzip",
                "gzip_members",
            )
        ],
        _child("endian_complex", "complex64", (3, 5), (2, 5)),
        _child("endian_int8", "int8", (3, 5), (2, 5)),
        **draft,
    )
    yield plain("codec_unknown", error="unknown codec")
    yield plain("codec_not_purl", error="a gzip of somebody else: the URI, not its last word, names a codec")
    yield _group(
        "fills",
        *[_child(n, d, (3, 5), (3, 3), fill_value=v, missing=((0, 1),)) for n, (d, _, v) in FILLS.items()],
        **draft,
    )
    for name, why in {
        "fill_null": "fill_value null",
        "fill_absent": "no fill_value",
        "fill_short_hex": "0x1 is not padded to the type's size",
        "fill_fraction": "1.5 for an integer",
        "fill_range": "40000 for int16",
        "fill_null_datetime": "the draft's datetime example as printed",
    }.items():
        yield plain(name, error=why)
    yield _group("separators", node("slash", (3, 3)), node("dot", (3, 3)), **draft)
    yield plain("separator_dash", error="separator -")
    yield plain("suffix_meta", note="metadata_key_suffix .meta")
    yield plain("suffix_empty", note="metadata_key_suffix is empty: meta/foo/baz.array")
    yield plain("metadata_encoding_extension", error="unknown metadata encoding extension")
    yield plain("metadata_encoding_type", error="metadata_encoding type cbor")
    yield _group("groups", _sub("explicit", spam="ham", eggs=42), _sub("explicit/empty"),
        node("explicit/data"), _sub("implicit"), _sub("implicit/deep"), node("implicit/deep/data"), node("top"),
        attributes={"title": "golden"}, **draft)  # fmt: skip
    yield _group("implicit_root", _sub("a"), _sub("a/b"), node("a/b/data"), note="no group document at all", **draft)
    yield _group("specification_listing", _sub("foo"), _sub("foo/bar"), _sub("foo/baz"), node("foo/baz/qux"),
        note="the draft's listing example, with the keys as the storage keys section has them", **draft)  # fmt: skip
    yield _group("node_names", *[node(n) for n in ("x.array", "v1.2_a-B", "c", "array", "foo.group.json")],
        _sub("data"), node("data/c0"), _sub("meta"), node("meta/root"), _sub("y.group"),
        note="legal names that look like something else", **draft)  # fmt: skip
    yield _group("array_and_prefix", node("foo"),
        note="meta/foo.array.json beside meta/foo/bar.array.json: foo is the array", **draft)  # fmt: skip
    yield _array("root_array", "int16", (7, 5), (3, 2), attributes={"name": "root"}, **draft)
    yield _case("zero_d", lambda: np.array(2.5, "float64"), path="scalar", chunks=(), **draft, note="data/scalar/c")
    yield _case("zero_d_missing", lambda: np.array(9, "int32"), path="scalar", chunks=(), fill_value=9,
        missing=((),), **draft)  # fmt: skip
    yield _case("zero_d_root", lambda: np.array(-3, "int8"), chunks=(), **draft, note="data/c")
    yield plain("missing_chunks", fill_value=-9, missing=((0, 0), (1, 1)))
    yield plain("all_missing", fill_value=-9, missing=tuple(np.ndindex(2, 2)), note="no data/ at all")
    yield _case("zero_length_axis", lambda: np.zeros((0, 5), "int16"), path="foo/baz", chunks=(3, 2), **draft)
    yield _case("zero_length_chunk", lambda: np.zeros((0, 5), "int16"), path="foo/baz", chunks=(0, 2), **draft,
        note="chunk length 0 on the empty axis; a reader may report another length")  # fmt: skip
    yield plain("attributes", attributes=NESTED_ATTRIBUTES)
    yield plain("extension_entry_ignored", note="must_understand false at the entry point")
    yield plain("extension_array_ignored", note="must_understand false at the array")
    yield plain("extension_entry_required", error="must_understand true at the entry point")
    yield plain("extension_entry_unsaid", error="must_understand absent at the entry point")
    yield plain("extension_array_required", error="must_understand true at the array")
    yield plain("extension_array_unsaid", error="must_understand absent at the array")
    yield plain("unknown_array_member", error="unknown member of the array document")
    yield plain(
        "unknown_array_member_lenient",
        error="unknown member with must_understand false: the draft knows no such way out",
    )
    yield _group("unknown_group_member", error="unknown member of the group document", **draft)
    yield plain("storage_transformers_empty")
    yield plain("storage_transformers", error="unknown storage transformer")
    yield plain("chunk_grid_extension", error="unknown chunk grid")
    yield plain("memory_layout_extension", error="unknown chunk memory layout")
    yield plain("rank_mismatch", error="chunk_shape and shape differ in length")
    yield plain("chunk_zero", error="chunk length 0 on an axis that is not empty")
    yield plain("version_3_1")
    yield plain("version_3_1_member", may_refuse=True,
        note="3.1 entry point with an unknown member: the draft says both ignore and fail")  # fmt: skip
    yield plain("version_4", error="core/4.0")
    yield plain("version_foreign", error="zarr_format is another URI")
    yield plain("chunk_short", error="chunk one value short")
    yield plain("chunk_long", error="chunk one value long")
    yield plain("chunk_empty", error="chunk of 0 bytes: present, so not missing")
    yield plain("chunk_gzip_corrupt", error="gzip chunk with a wrong checksum")
    yield plain("array_not_json", error="array document is not JSON")
    yield plain("array_not_object", error="array document is a JSON list")
    yield plain("entry_not_json", error="zarr.json is not JSON")


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

    yield _group(
        "experimental_dtypes",
        *[_child(experimental_name(s), np.dtype(s).newbyteorder("="), (3, 5), (2, 5)) for s in NATIVE_SPELLINGS],
        **draft,
    )
    yield _group(
        "experimental_extension_dtypes",
        *[
            _case(n, make, path=n, chunks=(2, 5), fill_value=np.zeros((), make().dtype)[()])
            for n, make in EXTENSION_DTYPES.items()
        ],
        note="data_type {extension, type, fallback: null}: the type is numpy's",
        **draft,
    )
    yield _case("experimental_structured", _records, path="data", chunks=(2, 5),
        fill_value=np.zeros((), _records().dtype)[()], may_refuse=True, **draft)  # fmt: skip
    yield _case("experimental_object", _objects, path="data", chunks=(2, 5), fill_value="", may_refuse=True,
        **draft, note="vlen-utf8 in attributes.filters")  # fmt: skip
    yield _group("experimental_compressors", *[node(n) for n in EXPERIMENTAL_COMPRESSORS], **draft)
    yield _case("experimental_filters", _filtered, path="data", chunks=(3, 2), **draft,
        note="delta in attributes.filters, v2 style, then zlib")  # fmt: skip
    yield _group("experimental_separators", node("slash"), node("dot"), **draft)
    yield _array("experimental_order_f", "int32", (4, 7, 5), (3, 3, 2), path="f", **draft)
    yield _group(
        "experimental_fills",
        *[
            _child(n, d, (3, 5), (2, 2), fill_value=v, missing=((0, 1), (1, 2)))
            for n, (d, v) in EXPERIMENTAL_FILLS.items()
        ],
        note='bare "Infinity" strings, no plus sign',
        **draft,
    )
    yield _array("experimental_fill_null", "int16", (4, 5), (3, 3), path="data", missing=((0, 1),), fill_value=None, may_refuse=True,
        **draft, note="fill_value null: illegal in the draft, zeros in zarr-python")  # fmt: skip
    yield _case("experimental_zero_d", lambda: np.array(2.5, "float64"), path="scalar", chunks=(), **draft,
        note="data/root/scalar/c0")  # fmt: skip
    yield _array("experimental_root_array", "int16", (7, 5), (3, 2), attributes={"name": "root"}, **draft,
        note="meta/root.array.json")  # fmt: skip
    yield _group("experimental_groups", _sub("explicit", spam="ham", eggs=42),
        _sub("explicit/empty"), node("explicit/data", attributes=NESTED_ATTRIBUTES), _sub("implicit"),
        _sub("implicit/deep"), node("implicit/deep/data"), attributes={"title": "golden"}, **draft)  # fmt: skip
    yield _group("experimental_consolidated", _sub("g", unit="m"),
        node("g/data", attributes={"a": 1}), node("top"), _sub("consolidated"),
        note="meta/root/consolidated/.zmetadata; zarr-python leaves an explicit group `consolidated` behind",
        **draft)  # fmt: skip
    yield _array("experimental_dimensions", "float32", (4, 5), (3, 3), path="temperature", dimension_names=("y", "x"),
        attributes={"units": "K"}, **draft, note="_ARRAY_DIMENSIONS, as xarray writes")  # fmt: skip
    yield _array("experimental_sharding", "int16", (7, 5), (3, 2), shards=(6, 4), path="data", **draft,
        note="storage transformer `indexed` of zarr-python, 2x2 chunks a shard")  # fmt: skip


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


def stores(golden: Path) -> Iterator[Tuple[str, Path, Case]]:
    """Every store that must exist: (writer, directory, case). A test checks that each is there."""
    for case in CASES.values():
        for writer in case.writers:
            yield writer, Path(golden, case.format, WRITERS[case.format][writer], case.name + SUFFIX[case.format]), case
