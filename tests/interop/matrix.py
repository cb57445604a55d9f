"""Arrays made through the public functions: what users write, in every format that holds it.

Data types, named codecs, and what `create_array` alone decides; codecs, fill values, shapes and layouts of every kind are in the
golden stores, which are copied. Of each array the first rows are written, so that chunks stay absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
from golden.cases import Case

import chunkmill as cm


@dataclass(frozen=True)
class Made:
    """One array to be made by `chunkmill.create_array`."""

    id: str
    format: str
    dtype: Any
    values: np.ndarray
    """what the whole array holds once it is written; the rest is the fill value"""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.format}:{self.id}"

    @property
    def part(self) -> Any:
        """What is written: the first rows, which cut through chunks."""
        return slice(2) if self.values.ndim else ...

    def expected(self) -> Case:
        whole = np.zeros_like(self.values)
        if "fill_value" in self.more or whole.dtype.kind == "O":
            whole[...] = self.more.get("fill_value", "")
        whole[self.part] = self.values[self.part]
        names, attributes = self.more.get("dimension_names"), dict(self.more.get("attributes") or {})
        if self.format == "n5" and names is not None:
            attributes["axes"] = list(names)[::-1]
        return Case("a", lambda: whole, path="a", dtype=whole.dtype, attributes=attributes, dimension_names=names)


def code(dtype: Any, shape: tuple[int, ...] = (7, 5)) -> np.ndarray:
    """Distinct numbers that tell where they belong, or their digits."""
    values = np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape)
    return (values % 2 if dtype == "bool" else values * 3).astype(dtype)


EVERY = ("zarr2", "zarr3", "n5")
DTYPES = {
    **dict.fromkeys(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"), EVERY),
    **dict.fromkeys(("bool", "f2", ">i2", ">f8", "c8", "c16", "M8[s]", "M8[ns]", "m8[ms]", "S5", "U3"), EVERY[:2]),
}
CODECS: dict[str, Any] = {
    **{name: name for name in ("default", "raw", "gzip", "zstd", "blosc")},
    "codec-bz2": numcodecs.BZ2(level=5),
    "codec-zlib": numcodecs.Zlib(level=5),
}
FIELDS = np.dtype([("a", "i4"), ("b", "f8")])
INNER = {
    "chunk_shape": [3, 2], "codecs": ["bytes", "zstd"], "index_codecs": ["bytes", "crc32c"],
    "index_location": "start",
}  # fmt: skip


def _arrays() -> Iterator[Made]:
    for dtype, formats in DTYPES.items():
        for fmt in formats:
            yield Made(dtype, fmt, dtype, code(dtype.strip(">")), {"chunks": (3, 2)})
    for name, codecs in CODECS.items():
        for fmt in EVERY:
            yield Made(name, fmt, "i4", code("i4"), {"chunks": (3, 2), "codecs": codecs})
    for fmt in EVERY:
        about = {
            "dimension_names": ("lat", "lon"),
            "attributes": {"unit": "K", "n": 2**60 + 1, "deep": {"a": [1, None]}},
        }
        yield Made("named", fmt, "i4", code("i4"), {"chunks": (9, 2), **about})
        yield Made("zero-length", fmt, "i4", code("i4", (0, 5)), {"chunks": (3, 2)})
    for fmt in EVERY[:2]:
        yield Made("str-vlen", fmt, str, code("U3").astype(object), {"chunks": (3, 2), "fill_value": "né"})
        yield Made("str-no-axes", fmt, str, np.array("né", object), {"chunks": ()})
        yield Made(
            "struct", fmt, FIELDS, np.repeat(code("i4"), 2).reshape(7, 10)[:, ::2].astype(FIELDS), {"chunks": (3, 2)}
        )
        yield Made("filled-nan", fmt, "f8", code("f8"), {"chunks": (3, 2), "fill_value": np.nan})
        delta = [numcodecs.Delta(dtype="<i4"), numcodecs.Zstd(level=2)]
        yield Made("codec-delta", fmt, "i4", code("i4"), {"chunks": (3, 2), "codecs": delta})
    for name, dtype, more in (
        ("shards", "i4", {"chunks": (3, 2), "shards": (6, 4)}),
        ("str-vlen-sharded", str, {"chunks": (3, 2), "shards": (6, 4)}),
        ("shards-start", "i4", {"chunks": (6, 4), "codecs": [{"name": "sharding_indexed", "configuration": INNER}]}),
        ("rectilinear-ours", "i4", {"chunks": ((3, 1, 3), (2, 3))}),
    ):
        yield Made(name, "zarr3", dtype, code("U3").astype(object) if dtype is str else code(dtype), more)


ARRAYS = list(_arrays())


def write(made: Made, store: Path) -> None:
    """Write the array to ``a`` in `store`."""
    array = cm.create_array(store, "a", shape=made.values.shape, dtype=made.dtype, format=made.format, **made.more)
    array[made.part] = made.values[made.part]
