"""The table of ``docs/formats.md``: what of the registry of Zarr v3 is read and written, found by doing it.

``python docs/registry_table.py`` writes it again.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import chunkmill as cm
import numpy as np
from chunkmill.errors import ChunkmillError
from chunkmill.formats.zarr_v3 import ZarrV3
from chunkmill.model.dtypes import SMALL
from chunkmill.stores.memory import MemoryStore

DOCUMENT = Path(__file__).parent / "formats.md"
BEGIN, END = "<!-- registry: begin -->", "<!-- registry: end -->"

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
DEFAULT = {"name": "default", "configuration": {"separator": "/"}}
REGULAR = {"name": "regular", "configuration": {"chunk_shape": [2, 4]}}

# --------------------------------------------------------------------------------------------------------------------
# Codecs: the part of a document that uses each

_Members = Mapping[str, Any]


def _alone(
    name: str, data_type: Any = "float32", **configuration: Any
) -> _Members:
    return {
        "data_type": data_type,
        "codecs": [{"name": name, "configuration": configuration}],
    }


def _before(name: str, **configuration: Any) -> _Members:
    return {"codecs": [{"name": name, "configuration": configuration}, LITTLE]}


def _after(name: str, **configuration: Any) -> _Members:
    return {"codecs": [LITTLE, {"name": name, "configuration": configuration}]}


_BLOSC = {
    "cname": "lz4",
    "clevel": 5,
    "shuffle": "shuffle",
    "typesize": 4,
    "blocksize": 0,
}
_SHARD = {
    "chunk_shape": [1, 2],
    "codecs": [LITTLE],
    "index_codecs": [LITTLE, {"name": "crc32c"}],
}
_N5 = [
    {"name": "transpose", "configuration": {"order": [1, 0]}},
    {"name": "bytes", "configuration": {"endian": "big"}},
]

CODECS: Mapping[str, _Members] = {
    "bitround": _before("bitround", keepbits=8),
    "blosc": _after("blosc", **_BLOSC),
    "bytes": _alone("bytes", endian="big"),
    "cast_value": _before("cast_value", data_type="uint8"),
    "conditional": _after("conditional", codecs=["zstd"]),
    "crc32c": _after("crc32c"),
    "gzip": _after("gzip", level=1),
    "n5_default": _alone("n5_default", codecs=_N5),
    "packbits": _alone("packbits"),
    "reshape": _before("reshape", shape=[[0, 1]]),
    "scale_offset": _before("scale_offset", offset=1, scale=2),
    "sharding_indexed": _alone("sharding_indexed", **_SHARD),
    "transpose": _before("transpose", order=[1, 0]),
    "vlen-bytes": _alone("vlen-bytes", "bytes"),
    "vlen-utf8": _alone("vlen-utf8", "string"),
    "zfp": _alone("zfp", mode="reversible"),
    "zstd": _after("zstd", level=1, checksum=False),
}
"""Every codec of the registry, with a data type and a chain that it stands in."""

_NUMCODECS = [
    "adler32",
    "bz2",
    "crc32",
    "crc32c",
    "fletcher32",
    "gzip",
    "jenkins_lookup3",
    "lz4",
    "lzma",
    "zlib",
    "zstd",
]
OTHER_CODECS: Mapping[str, _Members] = {
    "endian": _alone("endian", endian="big"),
    **{f"numcodecs.{name}": _after(f"numcodecs.{name}") for name in _NUMCODECS},
    "numcodecs.astype": _before(
        "numcodecs.astype", encode_dtype="<f8", decode_dtype="<f4"
    ),
    "numcodecs.bitround": _before("numcodecs.bitround", keepbits=8),
    "numcodecs.blosc": _after(
        "numcodecs.blosc", cname="lz4", clevel=5, shuffle=1
    ),
    "numcodecs.delta": _before("numcodecs.delta", dtype="<f4"),
    "numcodecs.fixedscaleoffset": _before(
        "numcodecs.fixedscaleoffset",
        offset=0,
        scale=1,
        dtype="<f4",
        astype="<i2",
    ),
    "numcodecs.packbits": {
        "data_type": "bool",
        "codecs": [{"name": "numcodecs.packbits"}, {"name": "bytes"}],
    },
    "numcodecs.pcodec": _alone("numcodecs.pcodec", level=8),
    "numcodecs.quantize": _before("numcodecs.quantize", digits=2, dtype="<f4"),
    "numcodecs.shuffle": _after("numcodecs.shuffle", elementsize=4),
    "numcodecs.zfpy": _alone("numcodecs.zfpy", mode=4, tolerance=0.001),
    "https://codec.zarrs.dev/array_to_bytes/zfp": _alone(
        "https://codec.zarrs.dev/array_to_bytes/zfp", mode="reversible"
    ),
    "zarrs.gdeflate": _after("zarrs.gdeflate", compression_level=5),
    "zarrs.optional": _alone("zarrs.optional", mask_codecs=[], data_codecs=[]),
    "zarrs.squeeze": _before("zarrs.squeeze"),
    "zarrs.vlen": _alone("zarrs.vlen", "string"),
    "zarrs.vlen_v2": _alone("zarrs.vlen_v2", "string"),
    "zarrs.zfp": _alone("zarrs.zfp", mode="reversible"),
}
"""Names outside the registry: numcodecs', zarr-python's and zarrs'."""

# --------------------------------------------------------------------------------------------------------------------
# Data types

_FIELDS = [
    {"name": "a", "data_type": "int16"},
    {"name": "b", "data_type": "float32"},
]
_TIME = {"unit": "s", "scale_factor": 1}

DATA_TYPES: Mapping[str, Any] = {
    **{name: name for name in (
        "bfloat16", "bool", "bytes", "complex128", "complex64", "complex_bfloat16", "complex_float16", "complex_float32", "complex_float4_e2m1fn", "complex_float64",
        "complex_float6_e2m3fn", "complex_float6_e3m2fn", "complex_float8_e3m4", "complex_float8_e4m3", "complex_float8_e4m3b11fnuz", "complex_float8_e4m3fnuz",
        "complex_float8_e5m2", "complex_float8_e5m2fnuz", "complex_float8_e8m0fnu", "float16", "float32", "float4_e2m1fn", "float64", "float6_e2m3fn", "float6_e3m2fn",
        "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int16", "int2", "int32", "int4",
        "int64", "int8", "string", "uint16", "uint2", "uint32", "uint4", "uint64", "uint8",
    )},
    "fixed_length_utf32": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}},
    "numpy.datetime64": {"name": "numpy.datetime64", "configuration": _TIME},
    "numpy.timedelta64": {"name": "numpy.timedelta64", "configuration": _TIME},
    "r*": "r24",
    "struct": {"name": "struct", "configuration": {"fields": _FIELDS}},
    "structured": {"name": "structured", "configuration": {"fields": [["a", "int16"], ["b", "float32"]]}},
}  # fmt: skip
"""Every data type of the registry."""

OTHER_DATA_TYPES: Mapping[str, Any] = {
    "binary": "binary",
    "float8_e4m3fn": "float8_e4m3fn",
    "null_terminated_bytes": {
        "name": "null_terminated_bytes",
        "configuration": {"length_bytes": 3},
    },
    "raw_bytes": {"name": "raw_bytes", "configuration": {"length_bytes": 3}},
    "variable_length_bytes": "variable_length_bytes",
    "zarrs.optional": {
        "name": "zarrs.optional",
        "configuration": {"name": "int8", "configuration": {}},
    },
}
"""Names outside the registry: zarr-python's, TensorStore's and zarrs'."""

# --------------------------------------------------------------------------------------------------------------------
# Grids and keys

GRIDS = {
    "rectilinear": {
        "name": "rectilinear",
        "configuration": {
            "kind": "inline",
            "chunk_shapes": [[1, 2], [[2, 2], 1]],
        },
    },
    "regular": REGULAR,
    "zarrs.regular_bounded": {
        "name": "zarrs.regular_bounded",
        "configuration": {"chunk_shape": [2, 4]},
    },
}
KEYS = {
    "default": DEFAULT,
    "v2": {"name": "v2", "configuration": {"separator": "."}},
    "zarrs.default_suffix": {
        "name": "zarrs.default_suffix",
        "configuration": {"separator": "/", "suffix": ".b"},
    },
}


def row(name: str, extension: str, **members: Any) -> tuple[str, str, str, str]:
    """Return name, whether it is read, whether it is written, and what there is to say, found by doing both."""
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [3, 5], "data_type": "float32", "chunk_grid": REGULAR, "chunk_key_encoding": DEFAULT,
        "fill_value": 1, "codecs": [LITTLE], **members,
    }  # fmt: skip
    if "fill_value" not in members:
        document["fill_value"] = _fill_value(document["data_type"])
    store = MemoryStore()
    store.set("zarr.json", json.dumps(document).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = cm.open_array(store, mode="r+")
            values = _sample(array.dtype)
            array[...] = values
            found = array[...]
        except ChunkmillError as error:
            return f"`{name}`", "no", "no", _why(error)
    same = repr(found.astype(object).tolist()) == repr(
        values.astype(object).tolist()
    )
    if found.dtype != array.dtype or not same:
        raise ValueError(f"{name} reads other values than it stored")
    written = json.loads(ZarrV3().emit_array("", array.metadata)["zarr.json"])[
        extension
    ]
    names = _names_in(written)
    return (
        f"`{name}`",
        "yes",
        "yes" if name in names or name == "r*" else f"as `{names[0]}`",
        _needs(name),
    )


def _names_in(written: Any) -> list[str]:
    items = written if isinstance(written, list) else [written]
    names = [item if isinstance(item, str) else item["name"] for item in items]
    return [
        name for name in names if name != "bytes" or len(names) == 1
    ] or names


_NO_NUMBERS = "neither numpy nor ml_dtypes has such numbers"


def _why(error: ChunkmillError) -> str:
    hint = str(getattr(error, "hint", "") or "")
    is_complex = "'complex_float" in str(error)
    known = {
        "UnknownCodec": "no library that chunkmill uses decodes it",
        "UnsupportedFeature": hint
        or (_NO_NUMBERS if is_complex else "not the registry's"),
    }
    return f"`{type(error).__name__}`: {known[type(error).__name__]}"


def _needs(name: str) -> str:
    if name in SMALL:
        return "needs `chunkmill[dtypes]`"
    if name in {
        "zfp",
        "zarrs.zfp",
        "numcodecs.zfpy",
        "numcodecs.pcodec",
    } or name.endswith("/zfp"):
        return "needs `chunkmill[codecs]`"
    return ""


def _fill_value(data_type: Any) -> Any:
    name = data_type if isinstance(data_type, str) else data_type["name"]
    if name.startswith("complex"):
        return [1, 1]
    values = {"bool": True, "bytes": "", "binary": "", "variable_length_bytes": "", "string": "", "fixed_length_utf32": "", "r24": [0, 0, 0], "raw_bytes": "AAAA",
              "null_terminated_bytes": "", "struct": {"a": 0, "b": 0}, "structured": "AAAAAAAA"}  # fmt: skip
    return values.get(name, 1)


def _sample(dtype: np.dtype[Any]) -> Any:
    numbers = 1 + np.arange(15).reshape(3, 5) % 2 * (
        dtype.name not in {"int2", "bool"}
    )
    if dtype.kind == "O":
        return numbers.astype("S3").astype(object)
    return (
        numbers.astype("S3").view(dtype)
        if dtype.type is np.void and dtype.names is None
        else numbers.astype(dtype)
    )


def sections() -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """Yield each part of the table with its rows."""

    def types(values: Mapping[str, Any]) -> Mapping[str, _Members]:
        return {
            name: {"data_type": value, "codecs": [_serializer(value)]}
            for name, value in values.items()
        }

    for title, extension, documents in (
        ("Codecs of the registry", "codecs", CODECS),
        ("Codecs under other names", "codecs", OTHER_CODECS),
        ("Data types of the registry", "data_type", types(DATA_TYPES)),
        ("Data types under other names", "data_type", types(OTHER_DATA_TYPES)),
        (
            "Chunk grids",
            "chunk_grid",
            {name: {"chunk_grid": value} for name, value in GRIDS.items()},
        ),
        (
            "Chunk key encodings",
            "chunk_key_encoding",
            {name: {"chunk_key_encoding": each} for name, each in KEYS.items()},
        ),
    ):
        yield (
            title,
            [
                row(name, extension, **members)
                for name, members in sorted(documents.items())
            ],
        )


def _serializer(data_type: Any) -> Any:
    if data_type == "string":
        return {"name": "vlen-utf8"}
    return (
        {"name": "vlen-bytes"}
        if data_type in ("bytes", "binary", "variable_length_bytes")
        else LITTLE
    )


def table() -> str:
    """Return the table as Markdown: names that fare alike are one row."""
    lines = []
    for title, rows in sections():
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, *cells in rows:
            alike.setdefault(tuple(cells), []).append(name)
        lines += [
            f"### {title}",
            "",
            "| name | read | written | what to know |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| {' | '.join([', '.join(names), *cells])} |".replace(
                "|  |", "| |"
            )
            for cells, names in alike.items()
        ]
        lines.append("")
    return "\n".join(lines).strip()


def main() -> int:
    """Write the table into its page."""
    text = DOCUMENT.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    DOCUMENT.write_text(f"{head}\n{table()}\n{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
