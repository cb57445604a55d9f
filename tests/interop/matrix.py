"""Arrays made through the public functions: what users write, in every format that holds it.

Formats by data types, codecs, fill values, layouts and shapes; the values are written here, and each array is written in two steps,
a block of whole chunks and then a corner that cuts through chunks, so that one chunk at least stays absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
from interop.corpus import Expected

import chunkmill as cm

__all__ = ["ARRAYS", "Made", "write"]

ZARR2, ZARR3, N5 = "zarr2", "zarr3", "n5"


@dataclass(frozen=True)
class Made:
    """One array to be made by `chunkmill.create_array`."""

    id: str
    format: str
    values: Callable[[], np.ndarray]
    """what the whole array holds once it is written; the rest is `fill`"""
    chunks: tuple[Any, ...]
    dtype: Any = None
    fill: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.format}:{self.id}"

    def expected(self) -> Expected:
        values = self.values()
        whole = np.zeros(values.shape, values.dtype)
        if self.fill is not None or values.dtype.kind == "O":
            whole[...] = "" if self.fill is None else self.fill
        for part in self.parts():
            whole[part] = values[part]
        names = self.more.get("dimension_names")
        attributes = dict(self.more.get("attributes") or {})
        if self.format == N5 and names is not None:
            attributes["axes"] = list(names)[::-1]
        return Expected("a", whole, attributes, names)

    def parts(self) -> list[Any]:
        """What is written: the first chunk of each axis, then the last element of each."""
        shape = self.values().shape
        if not shape or 0 in shape:
            return [...]
        lengths = [c[0] if isinstance(c, tuple) else c for c in self.more.get("shards") or self.chunks]
        return [tuple(slice(0, n) for n in lengths), tuple(slice(n - 1, n) for n in shape)]


def code(dtype: Any, shape: tuple[int, ...] = (7, 5)) -> Callable[[], np.ndarray]:
    """Distinct numbers that tell where they belong."""
    return lambda: (np.arange(1, np.prod(shape, dtype=int) + 1) * 3).astype(dtype).reshape(shape)


def _words() -> np.ndarray:
    words = ["", "a", "Zürich", "日本", "🙂", "x" * 300, "e\u0301"]
    return np.array([words[i % 7] + str(i // 7) * (i // 7) for i in range(35)], object).reshape(7, 5)


def _text(dtype: str) -> Callable[[], np.ndarray]:
    return lambda: np.array([f"{i:x}é"[:3] for i in range(35)]).astype("U3").astype(dtype).reshape(7, 5)


def _raw(size: int) -> Callable[[], np.ndarray]:
    return lambda: np.frombuffer(bytes(range(1, 1 + 35 * size)), f"V{size}").reshape(7, 5)


PLAIN = {dtype: code(dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")}
MORE = {
    **{dtype: code(dtype) for dtype in ("f2", "c8", "c16")},
    **{f">{dtype}": code(dtype) for dtype in ("i2", "u4", "f8")},
    "bool": lambda: code("i4")() % 2 == 1,
    "M8[s]": lambda: code("i8")().view("M8[s]"),
    "M8[25us]": lambda: code("i8")().view("M8[25us]"),
    "m8[ns]": lambda: code("i8")().view("m8[ns]"),
    "S5": lambda: np.array([b"%d" % i for i in range(1, 36)], "S5").reshape(7, 5),
    "U3": _text("U3"),
    "V4": _raw(4),
}

CODECS: dict[str, Any] = {
    "default": "default", "raw": "raw", "gzip": "gzip", "zstd": "zstd", "blosc": "blosc",
    "gzip-9": [{"name": "gzip", "configuration": {"level": 9}}],
    "zstd-3": [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}],
    "blosc-zlib-bits": [{"name": "blosc", "configuration": {"cname": "zlib", "clevel": 9, "shuffle": "bitshuffle"}}],
    "codec-bz2": numcodecs.BZ2(level=5),
    "codec-zlib": numcodecs.Zlib(level=5),
}  # fmt: skip
ZARR_CODECS: dict[str, Any] = {
    "codec-crc32c-last": [{"name": "zstd", "configuration": {"level": 1}}, {"name": "crc32c"}],
    "order-f": [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
    ],
    "codec-delta": [numcodecs.Delta(dtype="<i4"), numcodecs.Zstd(level=2)],
    "codec-shuffle": [numcodecs.Shuffle(elementsize=4), numcodecs.Zlib(level=1)],
}

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_INDEX = [_BYTES, {"name": "crc32c"}]


def _sharding(chunks: list[int], codecs: list[Any], location: str) -> dict[str, Any]:
    configuration = {"chunk_shape": chunks, "codecs": codecs, "index_codecs": _INDEX, "index_location": location}
    return {"name": "sharding_indexed", "configuration": configuration}


def _arrays() -> list[Made]:
    made: list[Made] = []

    def add(name: str, formats: str, values: Callable[[], np.ndarray], chunks: Any = (3, 2), **more: Any) -> None:
        dtype, fill = more.pop("dtype", None), more.pop("fill_value", None)
        made.extend(Made(name, fmt, values, chunks, dtype, fill, more) for fmt in formats.split())

    for dtype, values in PLAIN.items():
        add(dtype, "zarr2 zarr3 n5", values, dtype=dtype)
    for dtype, values in MORE.items():
        add(dtype, "zarr2 zarr3", values, dtype=dtype)
    add("str-vlen", "zarr2 zarr3", _words, dtype=str)
    add("str-vlen-sharded", "zarr3", _words, dtype=str, shards=(6, 4))
    add("struct", "zarr2 zarr3", lambda: np.rec.fromarrays([code("i4")(), code("f8")()], dtype=[("a", "i4"), ("b", "f8")]).view("V12").view([("a", "i4"), ("b", "f8")]),
        dtype=[("a", "i4"), ("b", "f8")])  # fmt: skip

    for name, codecs in CODECS.items():
        add(name, "zarr2 zarr3 n5", code("i4"), dtype="i4", codecs=codecs)
    for name, codecs in ZARR_CODECS.items():
        add(name, "zarr2 zarr3", code("i4"), dtype="i4", codecs=codecs)
    order = {"name": "transpose", "configuration": {"order": [2, 0, 1]}}
    add(
        "transpose-201",
        "zarr3",
        code("i2", (4, 3, 5)),
        (3, 2, 4),
        dtype="i2",
        codecs=[order, _BYTES, {"name": "gzip", "configuration": {"level": 1}}],
    )

    for name, fill in {"nan": np.nan, "inf": np.inf, "minus-inf": -np.inf, "minus-zero": -0.0, "tenth": 0.1}.items():
        add(f"filled-{name}", "zarr2 zarr3", code("f8"), dtype="f8", fill_value=fill)
    add("filled-most", "zarr2 zarr3", code("u8"), dtype="u8", fill_value=2**64 - 1)
    add("filled-true", "zarr2 zarr3", lambda: np.zeros((7, 5), bool), dtype=bool, fill_value=True)
    add("filled-complex", "zarr2 zarr3", code("c16"), dtype="c16", fill_value=complex(np.nan, -1.5))
    add("fill-nat-ours", "zarr2 zarr3", MORE["M8[s]"], dtype="M8[s]", fill_value=np.datetime64("NaT", "s"))
    add("str-filled", "zarr2 zarr3", _words, dtype=str, fill_value="né")

    every = "zarr2 zarr3 n5"
    add("one-axis", every, code("i4", (23,)), (2,), dtype="i4")
    add("five-axes", every, code("i2", (2, 3, 1, 2, 4)), (2, 2, 1, 2, 3), dtype="i2")
    add("chunk-larger", every, code("i4"), (9, 9), dtype="i4")
    add("chunk-exact", every, code("i4", (6, 4)), (3, 2), dtype="i4")
    add("zero-length", every, lambda: np.zeros((0, 5), "i4"), dtype="i4")
    add("zero-middle", every, lambda: np.zeros((3, 0, 2), "i4"), (2, 1, 2), dtype="i4")
    add("no-axes", "zarr2 zarr3", lambda: np.array(42, "i4"), (), dtype="i4")
    add("str-no-axes", "zarr2 zarr3", lambda: np.array("né", object), (), dtype=str)
    add(
        "named",
        every,
        code("i4"),
        dtype="i4",
        dimension_names=("lat", "lon"),
        attributes={"unit": "K", "n": 2**60 + 1, "deep": {"a": [1, None, {"b": 0.5}]}},
    )
    add("unit-chunks", every, code("u1", (3, 4)), (1, 1), dtype="u1")

    add("shards", "zarr3", code("i4", (10, 7)), (3, 2), dtype="i4", shards=(6, 4))
    add("shards-1d", "zarr3", code("f8", (50,)), (4,), dtype="f8", shards=(16,), codecs="gzip", fill_value=np.nan)
    add("shards-raw", "zarr3", code("i4", (10, 7)), (3, 2), dtype="i4", shards=(6, 4), codecs="raw")
    add("shards-no-axes", "zarr3", lambda: np.array(42, "i4"), (), dtype="i4", shards=())
    add("shards-start", "zarr3", code("i4", (10, 7)), (6, 4), dtype="i4", codecs=[_sharding([3, 2], [_BYTES], "start")])
    nested = _sharding(
        [6, 4], [_sharding([3, 2], [_BYTES, {"name": "gzip", "configuration": {"level": 5}}], "start")], "end"
    )
    add("shards-nested", "zarr3", code("i4", (13, 9)), (12, 8), dtype="i4", codecs=[nested])
    add("rectilinear-ours", "zarr3", code("i4"), ((3, 1, 3), (2, 3)), dtype="i4")
    return made


ARRAYS = _arrays()


def write(made: Made, store: Path) -> None:
    """Write the array to ``a`` in `store`."""
    values = made.values()
    dtype = values.dtype if made.dtype is None else made.dtype
    array = cm.create_array(
        store,
        "a",
        shape=values.shape,
        dtype=dtype,
        chunks=made.chunks,
        format=made.format,
        fill_value=made.fill,
        **made.more,
    )
    for part in made.parts():
        array[part] = values[part]
