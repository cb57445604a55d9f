"""Expected contents of every golden store.

A directory ``<name>.zarr`` (or ``<name>.zip``) anywhere below ``tests/golden`` holds what ``CASES[<name>]`` says, whichever
implementation and format wrote it. This module needs numpy only and runs on Python 3.8, because generators import it inside the environments
of other implementations. The values are written here by hand; nothing of chunkmill is used.

Conventions
-----------
* Arrays are C-contiguous and in native byte order; variable-length strings and bytes are object arrays of ``str`` and ``bytes``.
* ``attributes`` never holds ``_ARRAY_DIMENSIONS``: that is ``dimension_names``. All other attributes are listed, ``_nczarr_*`` too.
* ``fill_value`` is ``None`` only where the metadata says ``null`` (zarr v2); missing chunks then read as zeros.
* Values encode their index wherever the type allows (``100 * i + j + 1``), so that a swapped axis or a wrong chunk is seen.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Iterator, Mapping, Optional, Tuple

import numpy as np

Array = Any  # np.ndarray[Any, Any]; kept loose, for the old interpreters of the generators
Index = Tuple[int, ...]
Region = Tuple[slice, ...]


@dataclass(frozen=True)
class Case:
    """What one golden store holds.

    Attributes
    ----------
    name
        Stem of the store's directory or zip file.
    values
        Makes the array before the missing chunks are filled in; ``None`` for a group. Use `expected`.
    chunks
        Chunk shape as stored; the inner chunks when sharded; ``None`` for a rectilinear grid (see ``edges``).
    shards
        Shard shape, or ``None``.
    edges
        Declared edge lengths per axis of a rectilinear grid.
    fill_value
        Expected fill value in a form numpy can assign to the dtype; ``None`` for JSON ``null``.
    missing
        Chunks (indices in the grid of ``chunks``) that the store does not hold.
    dtype
        Numpy dtype with the byte order in which zarr v2 stores it.
    path
        Where in the store the array lies.
    children
        For groups: path of each array in the store and its case, or the name of that.
    groups
        For groups: path of each group and its attributes (``""`` is the root).
    error
        Whether the store must be refused.
    options
        Arguments that the reader needs, such as ``{"dimension_separator": "/"}``.
    may_refuse
        A reader gives these values or raises its own error; never other values.
    format, writers, compression
        Of `n5_cases` alone: directory of the format, who writes the store, the ``type`` of N5's compression.
    """

    name: str
    values: Optional[Callable[[], Array]] = None
    chunks: Optional[Index] = None
    shards: Optional[Index] = None
    edges: Optional[tuple[Index, ...]] = None
    fill_value: Any = None
    missing: tuple[Index, ...] = ()
    dtype: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dimension_names: Optional[tuple[Optional[str], ...]] = None
    path: str = ""
    children: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    error: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    may_refuse: bool = False
    format: str = ""
    writers: tuple[str, ...] = ()
    compression: Optional[str] = None

    @property
    def arrays(self) -> dict[str, Case]:
        """Each array by its path: the case itself, or those of a group."""
        if not self.is_group:
            return {self.path: self}
        cases = {path: CASES[each] if isinstance(each, str) else each for path, each in self.children.items()}
        return {path: replace(case, path=path) for path, case in cases.items()}

    @property
    def is_group(self) -> bool:
        """Whether the store's root is a group."""
        return bool(self.groups)

    @property
    def native_dtype(self) -> np.dtype[Any]:
        """The dtype in native byte order."""
        return np.dtype(self.dtype).newbyteorder("=")

    def expected(self) -> Array:
        """Return the array that a reader must give back."""
        if self.values is None:
            message = f"{self.name} is a group"
            raise TypeError(message)
        result = np.array(self.values(), dtype=self.native_dtype, order="C")
        for index in self.missing:
            result[self.region(index)] = self.fill_scalar()
        return result

    def fill_scalar(self) -> Any:
        """Return what missing chunks read as."""
        if self.native_dtype.kind == "O":
            return self.fill_value
        filled = np.zeros((), dtype=self.native_dtype)
        if self.fill_value is not None:
            filled[()] = self.fill_value
        return filled[()]

    def axis_edges(self) -> tuple[Index, ...]:
        """Return the chunk lengths of every axis, not cropped."""
        if self.edges is not None:
            return self.edges
        shape = np.shape(self.values())  # type: ignore[misc]
        chunks = self.chunks or ()
        return tuple((c,) * (-(-n // c) if c else 0) for n, c in zip(shape, chunks))

    def region(self, index: Index) -> Region:
        """Return the part of the array that one chunk covers, not cropped at the array's edge."""
        edges = self.axis_edges()
        starts = [sum(axis[:i]) for axis, i in zip(edges, index)]
        return tuple(slice(s, s + axis[i]) for s, axis, i in zip(starts, edges, index))

    def indices(self) -> Iterator[Index]:
        """Iterate over the chunks that the store holds."""
        for index in itertools.product(*(range(len(axis)) for axis in self.axis_edges())):
            if index not in self.missing:
                yield index

    def regions(self) -> Iterator[Region]:
        """Iterate over the regions that a generator writes, cropped to the shape."""
        shape = np.shape(self.values())  # type: ignore[misc]
        for index in self.indices():
            region = self.region(index)
            if all(s.start < n for s, n in zip(region, shape)):  # a grid may reach beyond the array
                yield tuple(slice(s.start, min(s.stop, n)) for s, n in zip(region, shape))


def plain(values: Any) -> Array:
    """Return the bits of ml_dtypes' floats, and int8 or uint8 for its integers: the cases need numpy only."""
    values = np.asarray(values)
    if values.dtype.type.__module__ != "ml_dtypes":
        return values
    if "int" in values.dtype.name:
        return values.astype("u1" if values.dtype.name[0] == "u" else "i1")
    return values.view(f"u{values.dtype.itemsize}")


def same(actual: Any, expected: Array) -> bool:
    """Whether two arrays agree in shape, dtype (but for byte order) and every bit; objects are compared by type and value."""
    actual = plain(actual)
    if actual.shape != expected.shape:
        return False
    if expected.dtype.kind == "O":
        return all(_same_object(a, e) for a, e in zip(actual.astype(object).flat, expected.flat))
    if actual.dtype.newbyteorder("=") != expected.dtype:
        return False
    return bool(np.ascontiguousarray(actual).astype(expected.dtype).tobytes() == expected.tobytes())


def _same_object(actual: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return isinstance(actual, np.ndarray) and same(actual, expected)
    return type(actual) is type(expected) and bool(actual == expected)


def same_json(actual: Any, expected: Any) -> bool:
    """Whether two JSON values agree; NaN equals NaN, ``1`` differs from ``1.0`` and from ``true``."""
    first, second = (json.dumps(value, sort_keys=True, default=dict) for value in (actual, expected))
    return first == second


CASES: dict[str, Case] = {}


def _add(name: str, values: Optional[Callable[[], Array]] = None, **fields: Any) -> None:
    if name in CASES:
        message = f"two cases are called {name}"
        raise ValueError(message)
    if values is not None and fields.get("dtype") is None:
        fields["dtype"] = np.asarray(values()).dtype
    CASES[name] = Case(name, values, **fields)


# --------------------------------------------------------------------------------------------------------------------
# Values


def index_code(shape: Index) -> Array:
    """``100**(rank-1) * i + ... + k + 1``: every element tells where it belongs."""
    result = np.ones(shape, dtype="i8")
    for axis, length in enumerate(shape):
        steps = np.arange(length, dtype="i8") * 100 ** (len(shape) - 1 - axis)
        result += steps.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return result


def _ints(dtype: str) -> Array:
    info = np.iinfo(dtype)
    flat = [info.min, info.max, info.max - 1, info.min + 1, 0, 1, 2, 3, 5, 7, 11, 13, 64, 100, 127]
    return np.array(flat, dtype=dtype).reshape(5, 3)


def _floats(dtype: str) -> Array:
    info = np.finfo(dtype)
    flat = [0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, info.max, info.tiny, info.eps, -2.25, 0.1, 1e-3, 3.0, -7.0,
        1000.5]  # fmt: skip
    return np.array(flat, dtype=dtype).reshape(5, 3)


def _complexes(dtype: str) -> Array:
    part = _floats("f4" if dtype == "c8" else "f8")
    result = np.empty((5, 3), dtype=dtype)
    result.real = part
    result.imag = part.ravel()[::-1].reshape(5, 3)
    return result


def _bools() -> Array:
    return np.array([1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1], dtype=bool).reshape(5, 3)


def _ticks(dtype: str) -> Array:
    """Counts of a datetime or timedelta, NaT among them."""
    flat = [0, 1, -1, -(2**63), 1000, 86400, 123456789, -(2**40), 2**40, 7, 11, 13, 17, 19, 23]
    return np.array(flat, dtype="i8").view(dtype).reshape(5, 3)


WORDS = ("", "a", "Zürich", "日本語", "🙂", "tab\tnewline\n", "naïve", "x" * 12, "é", "e\u0301", 'quote"', "back\\slash",
    "0", " ", "end")  # fmt: skip


def _words() -> Array:
    return np.array(WORDS, dtype=object).reshape(5, 3)


def _unicode4() -> Array:
    return np.array([w[:4] for w in WORDS], dtype="U4").reshape(5, 3)


def _bytes6() -> Array:
    flat = [b"", b"a", b"ab\x00cd", b"\xff\xfe", b"123456", b" ", b"x", b"yz", b"\x01", b"q", b"\x80\x00\x80", b"w",
        b"er", b"ty", b"end"]  # fmt: skip
    return np.array(flat, dtype="S6").reshape(5, 3)


def _void3() -> Array:
    return np.frombuffer(bytes(range(200, 245)), dtype="V3").reshape(5, 3)


def _blobs() -> Array:
    flat = [b"", b"\x00", b"a", b"\x00\x00", b"\xff\xfe\xfd", b"123456789", b" ", b"x", b"yz", b"\x01", b"q",
        b"\x80\x00\x80", b"w", b"er", b"end"]  # fmt: skip
    return np.array(flat, dtype=object).reshape(5, 3)


FLAT = np.dtype([("id", "<i2"), ("x", "<f4"), ("tag", "S3")])
MIXED = np.dtype([("id", ">i2"), ("x", "<f4"), ("when", ">M8[s]"), ("flag", "?"), ("u", ">U2")])
NESTED = np.dtype([("id", "<u4"), ("pos", [("lat", "<f4"), ("lon", "<f8")])])
SUBARRAY = np.dtype([("id", "<i2"), ("m", "<f4", (2, 3)), ("in", [("k", "|u1"), ("v", ">i4", (2,))])])


def _fields(dtype: Any, **columns: Any) -> Array:
    result = np.empty((5, 3), dtype=dtype.newbyteorder("="))
    for name, values in columns.items():
        result[name] = values
    return result


def _flat() -> Array:
    tags = np.array([b"a", b"bc", b"def", b"", b"\xff"] * 3).reshape(5, 3)
    return _fields(FLAT, id=index_code((5, 3)), x=index_code((5, 3)) / 4, tag=tags)


def _mixed() -> Array:
    code, words = index_code((5, 3)), np.array(["é", "ab", "日本"] * 5).reshape(5, 3)
    return _fields(MIXED, id=code, x=-code / 8, when=code.view("M8[s]"), flag=_bools(), u=words)


def _nested() -> Array:
    result = _fields(NESTED, id=index_code((5, 3)))
    result["pos"]["lat"] = index_code((5, 3)) / 2
    result["pos"]["lon"] = -index_code((5, 3)) / 3
    return result


def _subarray() -> Array:
    result = _fields(SUBARRAY, id=index_code((5, 3)), m=np.arange(90, dtype="f4").reshape(5, 3, 2, 3))
    result["in"]["k"] = index_code((5, 3)) % 251
    result["in"]["v"] = np.arange(30, dtype="i4").reshape(5, 3, 2) * 1000
    return result


def codes(shape: Index, dtype: str = "i4") -> Callable[[], Array]:
    """Return a maker of `index_code` in a dtype."""
    return lambda: index_code(shape).astype(dtype)


# --------------------------------------------------------------------------------------------------------------------
# Data types: shape (5, 3), chunks (3, 2), of which (0, 1) and (1, 0) are missing; each also in big-endian order where that means something

_SMALL: dict[str, Any] = {"chunks": (3, 2), "missing": ((0, 1), (1, 0))}

_add("bool", _bools, fill_value=True, **_SMALL)
for _name, _fill in {
    "int8": -128, "int16": -2, "int32": 2**31 - 1, "int64": -(2**63), "uint8": 255, "uint16": 65535, "uint32": 2**32 - 1, "uint64": 2**64 - 1,
}.items():  # fmt: skip
    _add(_name, partial(_ints, _name), fill_value=_fill, **_SMALL)
    if _name[-1] != "8":
        _add(f"{_name}-big", partial(_ints, _name), dtype=np.dtype(_name).newbyteorder(">"), fill_value=_fill, **_SMALL)
for _name, _fill in {"float16": -0.5, "float32": 9.96921e36, "float64": 0.1}.items():
    _fill = np.dtype(_name).type(_fill)
    _add(_name, partial(_floats, _name), fill_value=_fill, **_SMALL)
    _add(f"{_name}-big", partial(_floats, _name), dtype=np.dtype(_name).newbyteorder(">"), fill_value=_fill, **_SMALL)
for _name, _type in {"complex64": "c8", "complex128": "c16"}.items():
    _add(_name, partial(_complexes, _type), fill_value=1.5 - 2.5j, **_SMALL)
    _add(f"{_name}-big", partial(_complexes, _type), dtype=f">{_type}", fill_value=1.5 - 2.5j, **_SMALL)
for _name, _type in {
    "datetime-Y": "<M8[Y]", "datetime-D": "<M8[D]", "datetime-h": "<M8[h]", "datetime-s": "<M8[s]", "datetime-25us": "<M8[25us]",
    "datetime-ns": "<M8[ns]", "timedelta-10ms": "<m8[10ms]", "timedelta-ns": "<m8[ns]", "timedelta-W": "<m8[W]",
    "timedelta-generic": "<m8",
}.items():  # fmt: skip
    _add(_name, partial(_ticks, _type), dtype=_type, fill_value=np.array(-(2**63), "i8").view(_type)[()], **_SMALL)
for _name, _type, _count in (("datetime-ns", "M8[ns]", 12345), ("timedelta-s", "m8[s]", -3)):
    _fill = np.array(_count, "i8").view(_type)[()]
    _add(f"{_name}-big", partial(_ticks, f"<{_type}"), dtype=f">{_type}", fill_value=_fill, **_SMALL)
_add("unicode-4", _unicode4, dtype="<U4", fill_value="né", **_SMALL)
_add("unicode-4-big", _unicode4, dtype=">U4", fill_value="né", **_SMALL)
_add("bytes-6", _bytes6, dtype="|S6", fill_value=b"q\xff", **_SMALL)
_add("void-3", _void3, dtype="|V3", fill_value=np.void(b"\x01\x02\xff"), **_SMALL)
_add("struct", _flat, dtype=FLAT, fill_value=np.array((-7, 2.5, b"no"), FLAT)[()], **_SMALL)
_add("struct-mixed-endian", _mixed, dtype=MIXED, fill_value=(7, -0.5, 99, True, "zz"), **_SMALL)
_add("struct-nested", _nested, dtype=NESTED, fill_value=(9, (1.5, -2.5)), **_SMALL)
_add("struct-subarray", _subarray, dtype=SUBARRAY, fill_value=(3, [[1, 2, 3], [4, 5, 6]], (8, [-1, 1])), **_SMALL)
_add("struct-zero-fill", _flat, dtype=FLAT, fill_value=np.zeros((), FLAT)[()], **_SMALL)

NUMBERS = np.dtype([("id", "<i2"), ("x", ">f4"), ("n", "|u1")])


def _numbers() -> Array:
    return _fields(NUMBERS, id=index_code((5, 3)), x=-index_code((5, 3)) / 8, n=index_code((5, 3)) % 251)


_add("struct-numbers", _numbers, dtype=NUMBERS, fill_value=None, **_SMALL)

# --------------------------------------------------------------------------------------------------------------------
# Objects


def _objects(*values: Any) -> Array:
    result = np.empty(15, dtype=object)
    for position, value in enumerate(values):
        result[position] = value
    return result.reshape(5, 3)


def _ragged() -> Array:
    return _objects(*(np.arange(position % 4, dtype="<i4") * 10 + position for position in range(15)))


def _documents() -> Array:
    return _objects(1, "two", [3, 4.5], {"k": [1, {"z": None}]}, None, True, "", "日本", -2.5, [], {}, 2**40, False,
        "x", [["deep"]])  # fmt: skip


def _labels() -> Array:
    return np.array(
        ["", "red", "green", "blue", "red", "", "blüe", "green", "red", "blue", "", "red", "green", "green", "blue"],
        dtype=object,
    ).reshape(5, 3)


_add("vlen-utf8", _words, fill_value="", **_SMALL)
_add("vlen-utf8-fill", _words, fill_value="né", **_SMALL)
_add("vlen-bytes", _blobs, fill_value=b"", **_SMALL)
# the second has the registered name bytes and its fill value as a list of integers, the third name bytes and base64
for _name in ("vlen-bytes-fill", "bytes-type", "bytes-type-base64"):
    _add(_name, _blobs, fill_value=b"\x00\xff", **_SMALL)
# elements lie in F order before the object codec
_add("vlen-utf8-order-f", _words, fill_value="", chunks=(3, 2))
_add("vlen-utf8-compressed", lambda: np.array([f"word {i}" * (i % 7) for i in range(120)], dtype=object), fill_value="",
    chunks=(50,))  # fmt: skip
_add("vlen-array", _ragged, chunks=(3, 2))
_add("json2", _documents, chunks=(3, 2))
_add("msgpack2", _documents, chunks=(3, 2))
_add("categorize", _labels, fill_value="", chunks=(3, 2))
_add("categorize-unicode", lambda: _labels().astype("U5"), fill_value="", chunks=(3, 2))
# pickle runs code: refused by default
_add("pickle", _words, chunks=(3, 2), error=True)

# --------------------------------------------------------------------------------------------------------------------
# Layout: shapes, orders, separators, keys

_LAYOUT: dict[str, Any] = {"chunks": (3, 2), "fill_value": -1, "missing": ((1, 2),)}
# the plain case: every option at its default
_add("layout", codes((7, 5)), **_LAYOUT)
_KEYS = (f"key-{_encoding}-{_separator}" for _encoding in ("default", "v2") for _separator in ("dot", "slash"))
for _name in ("order-f", "separator-dot", "separator-slash", "nested-store", *_KEYS):
    _add(_name, codes((5, 3)), fill_value=-1, **_SMALL)
_add("order-f-3d", codes((4, 3, 5)), chunks=(3, 2, 2), fill_value=0, missing=((1, 0, 2),))
_add("order-f-struct", _flat, dtype=FLAT, chunks=(3, 2), fill_value=np.zeros((), FLAT)[()])
_add("rank-1", codes((10,), "i2"), chunks=(4,), fill_value=0)
_add("rank-1-slash", codes((10,), "i2"), chunks=(4,), fill_value=0)
_add("rank-3", codes((4, 3, 5)), chunks=(3, 2, 2), fill_value=0, missing=((1, 0, 2),))
_add("rank-5", codes((2, 3, 1, 2, 4), "i8"), chunks=(2, 2, 1, 2, 3), fill_value=-9)
# chunk 10 sorts before chunk 2 as text
_add("many-chunks", codes((23,)), chunks=(2,), fill_value=0)
# one chunk, larger than the array
_add("chunk-larger", codes((5, 3)), chunks=(8, 7), fill_value=-1)
_add("chunk-exact", codes((6, 4)), chunks=(3, 2), fill_value=-1)
_add("scalar", lambda: np.array(42, "i4"), chunks=(), fill_value=-1)
_add("scalar-missing", lambda: np.array(-1, "i4"), chunks=(), fill_value=-1, missing=((),))
_add("scalar-string", lambda: np.array("né", dtype=object), chunks=(), fill_value="")
_add("empty-axis", lambda: np.zeros((0, 5), "i4"), chunks=(3, 2), fill_value=-1)
_add("empty-1d", lambda: np.zeros((0,), "f8"), chunks=(4,), fill_value=0.0)
_add("empty-middle", lambda: np.zeros((3, 0, 2), "u1"), chunks=(2, 1, 2), fill_value=0)
_add("all-missing", codes((7, 5)), chunks=(3, 2), fill_value=7, missing=tuple(np.ndindex(3, 3)))

# --------------------------------------------------------------------------------------------------------------------
# Fill values, each seen through a missing chunk

_FILL: dict[str, Any] = {"chunks": (4,), "missing": ((1,),)}


def _bits(dtype: str, *bits: int) -> Any:
    """Return a number by its bits."""
    part = np.dtype(dtype).itemsize // len(bits)
    return np.array(bits, f"u{part}").view(dtype)[0]


for _type, _fills in {
    "f2": {"nan-f2": np.float16(np.nan), "nan-payload-f2": _bits("f2", 0x7E01)},
    "f4": {"nan": np.float32(np.nan), "nan-payload-f4": _bits("f4", 0x7FC12345)},
    "f8": {"inf": np.inf, "neg-inf": -np.inf, "neg-zero": -0.0, "float-exact": 0.1 + 0.2, "float-as-integer": 3.0,
        "nan-payload-f8": _bits("f8", 0xFFF8000000000ABC)},
    "c8": {"complex-hex": _bits("c8", 0x7FC12345, 0x80000000)},
    "c16": {"complex": complex(np.nan, -np.inf)},
    "i4": {"null": None, "int-as-float": 2},
    "i8": {"int64-odd": -(2**53) - 1},  # no float64
    "u8": {"uint64-odd": 2**63 + 1},  # no float64
}.items():  # fmt: skip
    for _name, _fill in _fills.items():
        _add(f"fill-{_name}", codes((10,), _type), fill_value=_fill, **_FILL)
_add("fill-nan-f8-big", codes((10,), "f8"), dtype=">f8", fill_value=np.nan, **_FILL)
_add("fill-nat", lambda: index_code((10,)).view("M8[ns]"), fill_value=np.datetime64("NaT", "ns"), **_FILL)
_add("fill-date", lambda: index_code((10,)).view("M8[D]"), fill_value=np.datetime64("2026-11-21"), **_FILL)
_add("fill-null-string", lambda: np.array(["a", "b", "c"], "U2"), fill_value=None, chunks=(2,), missing=((1,),))
_add("fill-null-struct", lambda: _flat().ravel(), fill_value=None, **_FILL)
_add("fill-zero-one-bool", lambda: index_code((10,)) % 2 == 1, fill_value=False, **_FILL)
_add("fill-bool-as-integer", lambda: index_code((10,)) % 2 == 1, fill_value=True, **_FILL)
_add("fill-short-base64", lambda: _bytes6().ravel()[:10], dtype="|S6", fill_value=b" ", **_FILL)
_add("fill-nat-string", lambda: index_code((10,)).view("M8[s]"), fill_value=np.datetime64("NaT", "s"), **_FILL)

# --------------------------------------------------------------------------------------------------------------------
# Compression and filters: chunks of some kilobytes, else blosc and others store them as they are. Two chunks, and the
# array ends inside each of them

_CODEC: dict[str, Any] = {"chunks": (40, 60), "fill_value": 0}
for _name in (
    "none", "blosc-lz4-noshuffle", "blosc-lz4-shuffle", "blosc-lz4hc-shuffle", "blosc-zstd-bitshuffle",
    "blosc-zlib-shuffle", "blosc-blosclz-auto", "blosc-blocksize", "zstd", "zstd-checksum", "zlib", "gzip", "bz2",
    "lzma", "lzma-raw", "lzma-alone", "lz4", "crc32", "crc32-end", "crc32c", "adler32", "fletcher32", "jenkins-lookup3",
    "shuffle", "delta", "delta-chain", "gzip-crc32c", "crc32c-gzip", "default", "blosc-empty-config", "pcodec",
):  # fmt: skip
    _add(f"codec-{_name}", codes((70, 50)), **_CODEC)
for _name in ("zlib-in-filters", "gzip-members", "zstd-no-size", "zstd-frames"):
    _add(_name, codes((70, 50)), **_CODEC)
_add("codec-blosc-f8", codes((70, 50), "f8"), **_CODEC)
# shuffle -1 becomes bit shuffle only for one-byte items
_add("codec-blosc-i2-auto", codes((70, 50), "i2"), **_CODEC)
_add("codec-blosc-u1-auto", lambda: (index_code((70, 50)) % 251).astype("u1"), **_CODEC)
# differences stored as int16
_add("codec-delta-astype", lambda: (index_code((70, 50)) % 100).astype("i4"), **_CODEC)
_add("codec-delta-float", codes((70, 50), "f4"), **_CODEC)
_add("codec-delta-big", codes((70, 50)), dtype=">i4", **_CODEC)
_add("codec-fixedscaleoffset", lambda: 1000 + (index_code((70, 50)) % 200) / 4, **_CODEC)
_add("codec-fixedscaleoffset-big", lambda: 1000 + (index_code((70, 50)) % 200) / 4, dtype=">f8", **_CODEC)
# multiples of 1/16 survive one digit
_add("codec-quantize", lambda: index_code((70, 50)) / 16, **_CODEC)
_add("codec-quantize-astype", lambda: index_code((70, 50)) / 16, **_CODEC)
# at most 7 significant bits
_add("codec-bitround", lambda: (index_code((70, 50)) % 64).astype("f4") / 2, **_CODEC)
# stored as int16
_add("codec-astype", lambda: (index_code((70, 50)) % 30000).astype("f8"), **_CODEC)
# 2501 bits: not a multiple of 8
_add("codec-packbits", lambda: index_code((70, 50)) % 3 == 0, chunks=(41, 61), fill_value=False)
_add("codec-zfpy", codes((70, 50), "f8"), **_CODEC)
_add("codec-scale-offset", lambda: 1000 + (index_code((70, 50)) % 200) / 4, **_CODEC)
_add("codec-cast-value", lambda: (index_code((70, 50)) % 30000).astype("f8"), **_CODEC)

# --------------------------------------------------------------------------------------------------------------------
# Attributes, dimension names

ATTRIBUTES: dict[str, Any] = {
    "text": "Zürich 日本 🙂", "empty": "", "null": None, "yes": True, "int": 7, "float": 1.0, "tiny": 5e-324, "big": 2**60 + 1, "huge": 2**70, "neg": -(2**63),
    "list": [1, [2, {"three": 3.5}], []], "nested": {"a": {"b": {}}}, "": "empty key", "with space/and slash": 1,
}  # fmt: skip
_PLAIN: dict[str, Any] = {"chunks": (3, 2), "fill_value": 0}
_add("attributes", codes((5, 3), "i2"), **_PLAIN, attributes=ATTRIBUTES)
_NO_NUMBERS = {"_FillValue": np.nan, "range": [-np.inf, np.inf], "n": 1}
_add("attributes-nan", codes((5, 3), "i2"), **_PLAIN, attributes=_NO_NUMBERS)
_add("dimension-names", codes((5, 3), "i2"), **_PLAIN, dimension_names=("y", "x"), attributes={"units": "m"})
_add("dimension-names-null", codes((5, 3), "i2"), **_PLAIN, dimension_names=("y", None))
_add("dimension-names-empty", codes((5, 3), "i2"), **_PLAIN, dimension_names=("", "x"))
# legal; tensorstore refuses it
_add("dimension-names-same", codes((5, 3), "i2"), **_PLAIN, dimension_names=("x", "x"))
_add("dimension-names-scalar", lambda: np.array(42, "i4"), chunks=(), fill_value=0, dimension_names=())
# _ARRAY_DIMENSIONS in v3 attributes
_add("dimension-names-legacy", codes((5, 3), "i2"), **_PLAIN, dimension_names=("y", "x"))
# netCDF-C 4.9.3 and later keep their data in .zattrs
_add("nczarr", codes((5, 3), "i2"), **_PLAIN, dimension_names=("lat", "lon"), path="v",
     attributes={"units": "K", "_nczarr_array": {"dimensions": ["/lat", "/lon"], "dimension_references": ["/lat", "/lon"], "storage": "chunked"},
                 "_nczarr_attr": {"types": {"units": ">S1", "_nczarr_array": "|J0", "_nczarr_attr": "|J0"}}})  # fmt: skip
# netCDF-C before 4.9.3: _NCZARR_ARRAY inside .zarray
_add("nczarr-old", codes((5, 3), "i2"), **_PLAIN, dimension_names=("lat", "lon"), path="v", attributes={"units": "K"})

# --------------------------------------------------------------------------------------------------------------------
# Groups

_GROUPS: dict[str, Any] = {
    "children": {"a": "int16", "sub/b": "float64", "sub/deeper/c": "unicode-4", "zero": "scalar"},
    "groups": {"": {"title": "root", "n": 1}, "sub": {"level": [1]}, "sub/deeper": {}, "none": {}},
}
# the last has .zmetadata but no .zarray, .zgroup, .zattrs
for _name in ("group", "group-consolidated", "group-zip", "consolidated-only"):
    _add(_name, **_GROUPS)
_add("array-zip", codes((7, 5)), **_LAYOUT)
# consolidated_metadata: null, as zarr-python 3.0 wrote it
_add("group-consolidated-null", children={"a": "layout"}, groups={"": {"title": "root"}})
_add("group-empty", groups={"": {}})
# no document for g and g/h
_add("group-implicit", children={"g/h/a": "layout"}, groups={"": {}})
_add("group-unicode", children={"Größe/日本": "layout"}, groups={"": {}, "Größe": {}})

_add("xr-time", lambda: np.array([0, 24, 48], "i8"), chunks=(3,), dimension_names=("time",),
     attributes={"units": "hours since 2026-11-21", "calendar": "proleptic_gregorian"})  # fmt: skip
_add("xr-x", lambda: np.array([0.5, 1.5, 2.5, 3.5]), chunks=(4,), dimension_names=("x",), fill_value=np.nan,
    attributes={"units": "m"})  # fmt: skip
_add("xr-temperature", lambda: index_code((3, 4)).astype("f4") / 2, chunks=(2, 3), dimension_names=("time", "x"), fill_value=np.float32(np.nan),
     attributes={"units": "K", "long_name": "Temperature", "valid": np.nan, "coordinates": "height"})  # fmt: skip
_add("xr-packed", lambda: index_code((3, 4)).astype("i2"), chunks=(3, 4), dimension_names=("time", "x"), fill_value=-999,
     attributes={"scale_factor": 0.5, "add_offset": 10.0, "coordinates": "height"})  # fmt: skip
_add("xr-label", lambda: np.array(["a", "né", "日本", ""], dtype=object), chunks=(4,), dimension_names=("x",),
    attributes={"coordinates": "height"})  # fmt: skip
_add("xr-height", lambda: np.array(2.0), chunks=(), dimension_names=(), fill_value=np.nan, attributes={"units": "m"})
_XARRAY = {_name: f"xr-{_name}" for _name in ("time", "x", "temperature", "packed", "label", "height")}
# raw values, before CF decoding
_add("xarray", children=_XARRAY, groups={"": {"title": "made by xarray", "history": "golden"}})

_NAN_BASE64 = {"_FillValue": "AAAAAAAA+H8="}  # float64, also for float32 arrays
_changes: dict[str, Any]
for _name, _changes in {
    "time": {"fill_value": 0},
    "x": {"attributes": {"units": "m", **_NAN_BASE64}},
    "temperature": {"attributes": {**CASES["xr-temperature"].attributes, **_NAN_BASE64}},
    "packed": {"fill_value": 0, "attributes": {**CASES["xr-packed"].attributes, "_FillValue": -999}},
    "label": {"fill_value": ""},
    "height": {"dimension_names": None, "attributes": {"units": "m", **_NAN_BASE64}},
}.items():
    CASES[f"xr3-{_name}"] = replace(CASES[f"xr-{_name}"], name=f"xr3-{_name}", **_changes)
# raw values; _FillValue is an attribute of its own in v3
_add("xarray-v3", children={name: f"xr3-{name}" for name in _XARRAY}, groups=CASES["xarray"].groups)

# --------------------------------------------------------------------------------------------------------------------
# Zarr v3: transpose, sharding, rectilinear grids

# of order-f-filters, delta runs over the F-ordered buffer
for _name in ("transpose-10", "transpose-c", "transpose-f", "transpose-delta", "order-f-filters"):
    _add(_name, codes((5, 3)), chunks=(3, 2), fill_value=0)
for _name in ("transpose-201", "transpose-120", "transpose-chain", "transpose-f-3d"):
    _add(_name, codes((4, 3, 5)), chunks=(3, 2, 4), fill_value=0, missing=((1, 0, 1),))
_add("transpose-vlen-utf8", _words, chunks=(3, 2), fill_value="")

_SHARD: dict[str, Any] = {"shards": (6, 4), "chunks": (3, 2), "fill_value": -1}
for _name in ("end", "start", "index-no-crc", "index-big", "index-start-no-crc", "inner-gzip", "inner-zstd-crc32c", "inner-transpose", "inner-big",
              "inner-blosc", "outer-crc32c", "outer-gzip", "key-v2", "subchunk-order"):  # fmt: skip
    _add(f"shard-{_name}", codes((10, 7)), **_SHARD)
_add("shard-missing-inner", codes((10, 7)), missing=((0, 1), (1, 0), (3, 3)), **_SHARD)
# shard (0, 1) and a chunk of (1, 0)
_add("shard-missing", codes((10, 7)), missing=((0, 2), (0, 3), (1, 2), (1, 3), (2, 0)), **_SHARD)
# index at the start
_add("shard-missing-start", codes((10, 7)), missing=((0, 2), (0, 3), (1, 2), (1, 3), (2, 0)), **_SHARD)
# one shard larger than the array
_add("shard-single", codes((5, 3)), shards=(8, 4), chunks=(4, 4), fill_value=0)
# shard and inner chunk of one shape
_add("shard-one-inner", codes((5, 3)), shards=(3, 2), chunks=(3, 2), fill_value=0)
_add("shard-3d", codes((4, 3, 5), "i2"), shards=(4, 2, 4), chunks=(2, 2, 1), fill_value=0, missing=((1, 0, 2),))
_add("shard-scalar", lambda: np.array(42, "i4"), shards=(), chunks=(), fill_value=-1)
_add("shard-vlen-utf8", _words, shards=(4, 4), chunks=(2, 2), fill_value="", missing=((1, 0),))
_add("shard-string-fill", _words, shards=(4, 4), chunks=(2, 2), fill_value="né", missing=((1, 0),))
_add("shard-float-nan", codes((10, 7), "f4"), missing=((0, 1), (2, 2)), **{**_SHARD, "fill_value": np.float32(np.nan)})
# chunks is the inner shape in array axes; the codec's own chunk_shape is (2, 3)
_add("shard-outer-transpose", codes((10, 7)), missing=((1, 1),), **_SHARD)
# order (2, 0, 1), inner chunk_shape (1, 2, 3): the shard (4, 3, 2) divides only in transposed axes
_TURNED: dict[str, Any] = {"shards": (4, 3, 2), "chunks": (2, 3, 1), "fill_value": -1}
_add("shard-outer-transpose-3d", codes((4, 3, 5)), missing=((1, 0, 1),), **_TURNED)
# shards (12, 8) of shards (6, 4) of chunks (3, 2)
_add("shard-nested", codes((13, 9)), shards=(12, 8), chunks=(3, 2), fill_value=-1, missing=((0, 1), (4, 4)))
_add("shard-nested-start", codes((13, 9)), shards=(12, 8), chunks=(3, 2), fill_value=-1, missing=((0, 1), (4, 4)))
# chunks 0 and 2 share one byte range, so do 1 and 3
_add("shard-shared-bytes", lambda: np.array([0, 1, 2, 7, 7, 7] * 2, "i4"), shards=(12,), chunks=(3,), fill_value=0)
# chunks in reverse order with garbage between them
_add("shard-gaps", codes((10, 7)), missing=((0, 1),), **_SHARD)

_add("rectilinear", codes((7, 5)), edges=((3, 4), (2, 2, 1)), fill_value=-1, missing=((1, 1),))
# [[2, 3], 1, 3] and a bare 3: the last column chunk reaches beyond the array
_add("rectilinear-runs", codes((10, 7)), edges=((2, 2, 2, 1, 3), (3, 3, 3)), fill_value=-1, missing=((1, 1),))
# edges sum to more than the shape; the last chunk lies outside
_add("rectilinear-extra", codes((5,)), edges=((2, 2, 3, 4),), fill_value=-1)
# the declared edges are [2, [1, 10**12]]
_add("rectilinear-huge-run", codes((5,)), edges=((2, 1, 1, 1),), fill_value=-1)
# shards of unequal length; inner chunks (3, 2)
_add("rectilinear-sharded", codes((12, 4)), edges=((3, 6, 3), (2, 2)), fill_value=-1)
_add("bfloat16", lambda: (index_code((5, 3)).astype("f4").view("u4") >> 16).astype("u2"), chunks=(3, 2), fill_value=0)
_add("int4", lambda: (index_code((5, 3)) % 8).astype("i1"), chunks=(3, 2), fill_value=0)
_add("float8-e4m3fn", lambda: np.arange(0x30, 0x3F, dtype="u1").reshape(5, 3), chunks=(3, 2), fill_value=0)
# what the registry has besides: bits of the first values and of the fill value, 1, which stands in the chunk that is missing
_ONES = {
    "bfloat16": ("u2", 0x3F80), "float4_e2m1fn": ("u1", 2), "float6_e2m3fn": ("u1", 8), "float6_e3m2fn": ("u1", 12), "float8_e3m4": ("u1", 0x30),
    "float8_e4m3": ("u1", 0x38), "float8_e4m3b11fnuz": ("u1", 0x58), "float8_e4m3fnuz": ("u1", 0x40), "float8_e5m2": ("u1", 0x3C), "float8_e5m2fnuz": ("u1", 0x40),
    "float8_e8m0fnu": ("u1", 0x7F), "int2": ("i1", 1), "int4": ("i1", 1), "uint2": ("u1", 1), "uint4": ("u1", 1), "complex_float16": ("u4", 0x3C003C00),
    "complex_bfloat16": ("u4", 0x3F803F80),
}  # fmt: skip


def _small_values(name: str) -> Callable[[], Array]:
    dtype, one = _ONES[name]
    if "int" in name:
        bits = int(name[-1])
        low = 0 if name[0] == "u" else -(1 << (bits - 1))
        return lambda: (low + index_code((5, 3)) // 3 % (1 << bits)).astype(dtype)
    if name.startswith("complex"):
        return lambda: (one + 0x00100008 * (index_code((5, 3)) % 9)).astype(dtype)
    bits = 16 if name == "bfloat16" else int(name[5])
    return lambda: (index_code((5, 3)) * (0x110 if bits == 16 else 1) % (1 << (bits - 1))).astype(dtype)


for _name, (_dtype, _one) in _ONES.items():
    for _codec in ("bytes", "packbits"):
        _add(f"type-{_name.replace('_', '-')}-{_codec}", _small_values(_name), chunks=(3, 2), fill_value=_one, missing=((1, 1),))  # fmt: skip
_add("codec-packbits-bool", lambda: index_code((5, 3)) % 2 == 0, chunks=(3, 2), fill_value=True)
# bits 1 to 5, the padding last
_add("codec-packbits-some", lambda: (2 * index_code((5, 3)) % 64).astype("u2"), chunks=(3, 2), fill_value=0)
# axes joined, another added, then turned
_add("codec-reshape", codes((6, 4)), chunks=(3, 2), fill_value=-1)
# zarrs.squeeze, then turned
_add("codec-squeeze", codes((4, 1, 6)), chunks=(2, 1, 3), fill_value=-1)
# blocks of tensorstore's N5; the dataset is in the same folder
_add("codec-n5-default", codes((5, 3), "i2"), chunks=(3, 2), fill_value=0)
# zfp, lossless, without a header
_add("codec-zfp", codes((5, 7)), chunks=(4, 6), fill_value=-1)
_add("r24", _void3, dtype="|V3", fill_value=np.void(b"\x01\x02\xff"), **_SMALL)

# --------------------------------------------------------------------------------------------------------------------
# Hand-made, valid: odd but allowed, as `generate_hand` says

for _name in (
    "shorthand-names", "data-type-object", "unknown-ignorable", "unknown-member-v2", "endian-codec-name",
    "no-storage-transformers", "key-default-no-config", "key-v2-no-config", "filters-absent", "both-formats",
    "extra-files", "zip-duplicate", "zip-deflated",
):  # fmt: skip
    _add(_name, codes((5, 3)), chunks=(3, 2), fill_value=-1)
for _name in ("one-byte-big", "one-byte-order"):
    _add(_name, lambda: (index_code((5, 3)) % 120).astype("i1"), chunks=(3, 2), fill_value=-1)
_add("json-bom-free-unicode", codes((5, 3)), chunks=(3, 2), fill_value=-1, attributes={"who": "Grüße 日本"})
_add("no-groups", codes((5, 3)), chunks=(3, 2), fill_value=-1, path="a/b")
_add("slash-no-field", codes((5, 3)), chunks=(3, 2), fill_value=-1, options={"dimension_separator": "/"})
# structured, as zarr-python 3.0 and 3.1 write it; bytes codec without endian
_add("struct-legacy", _flat, dtype=FLAT, fill_value=np.array((-7, 2.5, b"no"), FLAT)[()], **_SMALL)
# structured with endian big, which no writer makes: the byte order of the fill value is unsettled, so it is zero here
_add("struct-legacy-big", _nested, dtype=NESTED, fill_value=(0, (0.0, 0.0)), **_SMALL)
# old zarr-python stored chunk length 0 on an empty axis
_add("zero-chunk-length", lambda: np.zeros((0, 5), "i4"), chunks=(0, 2), fill_value=-1)
# bare NaN token in .zarray and .zattrs
_add("fill-bare-nan", codes((10,), "f4"), fill_value=np.float32(np.nan), **_FILL, attributes={"missing_value": np.nan})

# --------------------------------------------------------------------------------------------------------------------
# Hand-made, invalid, as `generate_hand` says: must be refused

for _name in (
    "truncated-chunk", "long-chunk", "empty-chunk", "blosc-size", "zlib-bomb", "gzip-tail", "crc32c", "crc32c-short",
    "unknown-codec", "unknown-dtype", "object-no-codec", "separator", "rank", "zero-chunk", "negative-shape",
    "json-array", "json-deep", "json-latin1", "fill-fraction", "fill-range", "fill-null", "fill-missing",
    "fill-string-int", "no-endian", "codec-order", "two-array-bytes", "no-array-bytes", "unknown-member",
    "unknown-member-scalar", "storage-transformer", "transpose-order", "dimension-names", "zarr-format", "key-encoding",
    "grid", "rectilinear-sum", "consolidated-dotdot",
):  # fmt: skip
    _add(f"bad-{_name}", codes((6,)), chunks=(6,), fill_value=0, error=True)
for _name in (
    "divide", "half-missing", "beyond", "overflow", "index-crc", "short", "empty", "index-compressed", "no-index-codecs",
):  # fmt: skip
    _add(f"bad-shard-{_name}", codes((12,)), chunks=(6,), fill_value=0, error=True)
for _name in ("count", "length", "utf8"):
    _add(f"bad-vlen-{_name}", _words, chunks=(3, 2), fill_value="", error=True)
