"""Golden Zarr v2 and v3 stores by tensorstore: ``python generate_tensorstore.py OUTPUT_DIR``."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from _generate import BIG, BLOSC, CRC, LITTLE, NUMBERS, SHUFFLES, Case, codec, run, transpose
from _generate import sharding as shard


def key(name: str, separator: str) -> dict[str, Any]:
    return {"chunk_key_encoding": codec(name, separator=separator)}


GZIP = codec("gzip", level=6)
ZSTD = codec("zstd", level=3)


def blosc(cname: str, shuffle: str, typesize: int = 4, clevel: int = 5, blocksize: int = 0) -> dict[str, Any]:
    return codec("blosc", cname=cname, clevel=clevel, shuffle=shuffle, typesize=typesize, blocksize=blocksize)


def codecs(*chain: Any) -> dict[str, Any]:
    return {"codecs": chain}


COMMON = [
    *NUMBERS, "layout", "rank-5", "chunk-larger", "scalar", "scalar-missing", "empty-axis", "all-missing", "fill-nan",
    "fill-neg-inf", "fill-neg-zero", "fill-float-exact", "fill-complex", "fill-uint64-odd", "fill-int64-odd",
]  # fmt: skip
BIGS = "int16-big", "uint64-big", "float16-big", "float64-big", "complex64-big"
NAN_PAYLOADS = "fill-nan-payload-f4", "fill-nan-payload-f8"

V3: dict[str, dict[str, Any]] = {
    **dict.fromkeys((*COMMON, *NAN_PAYLOADS, "dimension-names", "dimension-names-null"), {}),
    **dict.fromkeys(BIGS, codecs(BIG)),
    "key-default-dot": key("default", "."),
    "key-v2-dot": key("v2", "."),
    "key-v2-slash": key("v2", "/"),
    "transpose-10": codecs(transpose(1, 0), LITTLE),
    "transpose-201": codecs(transpose(2, 0, 1), LITTLE),
    "transpose-120": codecs(transpose(1, 2, 0), LITTLE),
    "transpose-chain": codecs(transpose(2, 0, 1), transpose(1, 0, 2), LITTLE, GZIP),
    "codec-gzip": codecs(LITTLE, GZIP),
    "codec-zstd": codecs(LITTLE, ZSTD),
    **{name: codecs(LITTLE, blosc(each, shuffle, clevel=9 if each == "lz4hc" else 5)) for name, (each, shuffle) in BLOSC.items()},
    "codec-blosc-f8": codecs(LITTLE, blosc("blosclz", "shuffle", typesize=8)),
    "codec-crc32c": codecs(LITTLE, CRC),
    "codec-gzip-crc32c": codecs(LITTLE, GZIP, CRC),
    "codec-crc32c-gzip": codecs(LITTLE, CRC, GZIP),
    **dict.fromkeys(("shard-end", "shard-missing-inner", "shard-one-inner", "shard-float-nan"), codecs(shard((3, 2)))),
    **dict.fromkeys(("shard-start", "shard-missing-start"), codecs(shard((3, 2), location="start"))),
    "shard-missing": codecs(shard((3, 2), LITTLE, ZSTD)),
    "shard-single": codecs(shard((4, 4))),
    "shard-3d": codecs(shard((2, 2, 1), LITTLE, GZIP)),
    "shard-scalar": codecs(shard(())),
    "shard-inner-gzip": codecs(shard((3, 2), LITTLE, GZIP)),
    "shard-inner-blosc": codecs(shard((3, 2), LITTLE, blosc("zstd", "shuffle"))),
    "shard-inner-zstd-crc32c": codecs(shard((3, 2), LITTLE, ZSTD, CRC)),
    "shard-inner-transpose": codecs(shard((3, 2), transpose(1, 0), LITTLE)),
    "shard-inner-big": codecs(shard((3, 2), BIG)),
    "shard-index-no-crc": codecs(shard((3, 2), index=(LITTLE,))),
    "shard-index-start-no-crc": codecs(shard((3, 2), index=(LITTLE,), location="start")),
    "shard-index-big": codecs(shard((3, 2), index=(BIG, CRC))),
    "shard-outer-transpose": codecs(transpose(1, 0), shard((2, 3))),
    "shard-outer-transpose-3d": codecs(transpose(2, 0, 1), shard((1, 2, 3))),
    "shard-nested": codecs(shard((6, 4), shard((3, 2)))),
    "shard-nested-start": codecs(shard((6, 4), shard((3, 2), location="start"), location="start")),
    "bfloat16": {"data_type": "bfloat16", "fill_value": 0.0},
    "int4": {"data_type": "int4", "codecs": ({"name": "bytes"},)},
    "float8-e4m3fn": {"data_type": "float8_e4m3fn", "codecs": ({"name": "bytes"},)},
}  # fmt: skip


def zblosc(cname: str, shuffle: int, clevel: int = 5, blocksize: int = 0) -> dict[str, Any]:
    return {"compressor": {"id": "blosc", "cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": blocksize}}


V2: dict[str, dict[str, Any]] = {
    **dict.fromkeys((*COMMON, *BIGS, "fill-null", "struct-numbers"), {}),
    **dict.fromkeys(("order-f", "order-f-3d"), {"order": "F"}),
    "separator-slash": {"dimension_separator": "/"},
    "separator-dot": {"dimension_separator": "."},
    **dict.fromkeys(("codec-default", "codec-blosc-u1-auto"), zblosc("lz4", -1)),
    **{name: zblosc(each, SHUFFLES.index(shuffle), clevel=9 if each == "lz4hc" else 5) for name, (each, shuffle) in BLOSC.items()},
    "codec-zlib": {"compressor": {"id": "zlib", "level": 6}},
    "codec-gzip": {"compressor": {"id": "gzip", "level": 6}},
    "codec-bz2": {"compressor": {"id": "bz2", "level": 1}},
    "codec-zstd": {"compressor": {"id": "zstd", "level": 3}},
    "bfloat16": {"dtype": "bfloat16"},
}  # fmt: skip


def number(value: Any) -> Any:
    """Return a fill value as the metadata wants it."""
    value = np.asarray(value)
    if value.dtype.kind == "c":
        return [number(value.real), number(value.imag)]
    if value.dtype.kind == "f":
        if np.isnan(value) and value.dtype.itemsize >= 4 and value.tobytes() != np.array(np.nan, value.dtype).tobytes():
            return f"0x{int(value.view(f'u{value.dtype.itemsize}')):x}"
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(float(value)), float(value))
    return value.item()


def spec(target: Path, case: Case, zarr_format: int, field: str | None) -> dict[str, Any]:
    fill = number(case.fill_scalar())
    metadata: dict[str, Any] = {"shape": case.expected().shape, "fill_value": fill}
    if zarr_format == 2:
        dtype = np.dtype(case.dtype)
        if case.fill_value is None or dtype.fields:
            metadata["fill_value"] = None
        metadata |= {
            "chunks": case.chunks,
            "compressor": None,
            "filters": None,
            "order": "C",
            "dtype": dtype.descr if dtype.fields else dtype.str,
            **V2[case.name],
        }
    else:
        if case.dimension_names is not None:
            metadata["dimension_names"] = case.dimension_names
        metadata |= {
            "data_type": case.native_dtype.name, "chunk_grid": codec("regular", chunk_shape=case.shards or case.chunks), "chunk_key_encoding": codec("default", separator="/"),
            "codecs": (LITTLE,), "attributes": dict(case.attributes), **V3[case.name],
        }  # fmt: skip
    driver, kvstore = "zarr" if zarr_format == 2 else "zarr3", {"driver": "file", "path": f"{target}/"}
    found = {"driver": driver, "kvstore": kvstore, "metadata": metadata, **({"field": field} if field else {})}
    return json.loads(json.dumps(found))


def write(target: Path, case: Case, *, zarr_format: int) -> None:
    values = case.expected()
    for field in values.dtype.names or (None,):
        about = {**spec(target, case, zarr_format, field), "store_data_equal_to_fill_value": True}
        array = ts.open(about, open=True, create=True).result()
        part = values if field is None else values[field]
        cast = part.view if case.name in ("bfloat16", "float8-e4m3fn") else part.astype
        part = cast(array.dtype.numpy_dtype)
        for region in case.regions():
            array[region].write(part[region]).result()


for zarr_format, names in ((3, V3), (2, V2)):
    folder = f"zarr_v{zarr_format}/tensorstore-{version('tensorstore')}"
    run(folder, dict.fromkeys(names, partial(write, zarr_format=zarr_format)))
