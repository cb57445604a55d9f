"""Golden Zarr v2 and v3 stores by tensorstore: ``python generate_tensorstore.py OUTPUT_DIR``."""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
from _generate import BIG, CRC, LITTLE, Case, codec, run, versions
from _generate import sharding as shard


def transpose(*order: int) -> dict[str, Any]:
    return codec("transpose", order=order)


def key(name: str, separator: str) -> dict[str, Any]:
    return {"chunk_key_encoding": codec(name, separator=separator)}


GZIP = codec("gzip", level=6)
ZSTD = codec("zstd", level=3)


def blosc(cname: str, shuffle: str, typesize: int = 4, clevel: int = 5, blocksize: int = 0) -> dict[str, Any]:
    return codec("blosc", cname=cname, clevel=clevel, shuffle=shuffle, typesize=typesize, blocksize=blocksize)


def codecs(*chain: Any) -> dict[str, Any]:
    return {"codecs": chain}


NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "complex64", "complex128"]  # fmt: skip
COMMON = [*NUMBERS, "layout", "rank-5", "chunk-larger", "scalar", "scalar-missing", "empty-axis", "all-missing", "fill-nan", "fill-neg-inf", "fill-neg-zero",
          "fill-float-exact", "fill-complex", "fill-uint64-odd", "fill-int64-odd", "fill-nan-payload-f4"]  # fmt: skip

V3: dict[str, dict[str, Any]] = {
    **dict.fromkeys(COMMON, {}),
    **dict.fromkeys(("int16-big", "uint64-big", "float16-big", "float64-big", "complex64-big"), codecs(BIG)),
    "fill-nan-payload-f8": {},
    "dimension-names": {},
    "dimension-names-null": {},
    "key-default-dot": key("default", "."),
    "key-v2-dot": key("v2", "."),
    "key-v2-slash": key("v2", "/"),
    "transpose-10": codecs(transpose(1, 0), LITTLE),
    "transpose-201": codecs(transpose(2, 0, 1), LITTLE),
    "transpose-120": codecs(transpose(1, 2, 0), LITTLE),
    "transpose-chain": codecs(transpose(2, 0, 1), transpose(1, 0, 2), LITTLE, GZIP),
    "codec-gzip": codecs(LITTLE, GZIP),
    "codec-zstd": codecs(LITTLE, ZSTD),
    "codec-blosc-lz4-shuffle": codecs(LITTLE, blosc("lz4", "shuffle")),
    "codec-blosc-lz4-noshuffle": codecs(LITTLE, blosc("lz4", "noshuffle")),
    "codec-blosc-lz4hc-shuffle": codecs(LITTLE, blosc("lz4hc", "shuffle", clevel=9)),
    "codec-blosc-zstd-bitshuffle": codecs(LITTLE, blosc("zstd", "bitshuffle")),
    "codec-blosc-zlib-shuffle": codecs(LITTLE, blosc("zlib", "shuffle")),
    "codec-blosc-f8": codecs(LITTLE, blosc("blosclz", "shuffle", typesize=8)),
    "codec-crc32c": codecs(LITTLE, CRC),
    "codec-gzip-crc32c": codecs(LITTLE, GZIP, CRC),
    "codec-crc32c-gzip": codecs(LITTLE, CRC, GZIP),
    "shard-end": codecs(shard((3, 2))),
    "shard-start": codecs(shard((3, 2), location="start")),
    "shard-missing-inner": codecs(shard((3, 2))),
    "shard-missing": codecs(shard((3, 2), LITTLE, ZSTD)),
    "shard-missing-start": codecs(shard((3, 2), location="start")),
    "shard-single": codecs(shard((4, 4))),
    "shard-one-inner": codecs(shard((3, 2))),
    "shard-3d": codecs(shard((2, 2, 1), LITTLE, GZIP)),
    "shard-scalar": codecs(shard(())),
    "shard-float-nan": codecs(shard((3, 2))),
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
    **dict.fromkeys([name for name in COMMON if name != "fill-nan-payload-f4"], {}),
    **dict.fromkeys(("int16-big", "uint64-big", "float16-big", "float64-big", "complex64-big"), {}),
    "fill-null": {},
    "order-f": {"order": "F"},
    "order-f-3d": {"order": "F"},
    "separator-slash": {"dimension_separator": "/"},
    "separator-dot": {"dimension_separator": "."},
    "codec-default": zblosc("lz4", -1),
    "codec-blosc-lz4-noshuffle": zblosc("lz4", 0),
    "codec-blosc-lz4-shuffle": zblosc("lz4", 1),
    "codec-blosc-lz4hc-shuffle": zblosc("lz4hc", 1, 9),
    "codec-blosc-zstd-bitshuffle": zblosc("zstd", 2),
    "codec-blosc-zlib-shuffle": zblosc("zlib", 1),
    "codec-blosc-u1-auto": zblosc("lz4", -1),
    "codec-zlib": {"compressor": {"id": "zlib", "level": 6}},
    "codec-gzip": {"compressor": {"id": "gzip", "level": 6}},
    "codec-bz2": {"compressor": {"id": "bz2", "level": 1}},
    "codec-zstd": {"compressor": {"id": "zstd", "level": 3}},
    "struct-numbers": {},
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


def spec(target: Path, case: Case, zarr_format: int, field: str | None = None) -> dict[str, Any]:
    values, fill = case.expected(), number(case.fill_scalar())
    metadata: dict[str, Any]
    if zarr_format == 2:
        dtype = np.dtype(case.dtype)
        fill = None if case.fill_value is None or dtype.fields else fill
        metadata = {"shape": values.shape, "chunks": case.chunks, "compressor": None, "filters": None, "order": "C",
                    "dtype": dtype.descr if dtype.fields else dtype.str, "fill_value": fill, **V2[case.name]}  # fmt: skip
    else:
        names = {} if case.dimension_names is None else {"dimension_names": case.dimension_names}
        metadata = {
            "shape": values.shape, "data_type": case.native_dtype.name, "chunk_grid": codec("regular", chunk_shape=case.shards or case.chunks),
            "chunk_key_encoding": codec("default", separator="/"), "codecs": (LITTLE,), "fill_value": fill, "attributes": dict(case.attributes), **names, **V3[case.name],
        }  # fmt: skip
    driver, kvstore = "zarr" if zarr_format == 2 else "zarr3", {"driver": "file", "path": f"{target}/"}
    found = {"driver": driver, "kvstore": kvstore, "metadata": metadata, **({"field": field} if field else {})}
    return json.loads(json.dumps(found))


def write(target: Path, case: Case, *, zarr_format: int) -> None:
    values = case.expected()
    for field in values.dtype.names or (None,):
        array = ts.open(
            {**spec(target, case, zarr_format, field), "store_data_equal_to_fill_value": True}, open=True, create=True
        ).result()
        part = values if field is None else values[field]
        part = (
            part.view(array.dtype.numpy_dtype)
            if case.name in ("bfloat16", "float8-e4m3fn")
            else part.astype(array.dtype.numpy_dtype)
        )
        for region in case.regions():
            array[region].write(part[region]).result()


def main(output: Path) -> int:
    """Write everything below ``output``."""
    versions()
    print("tensorstore", version("tensorstore"))
    failures = 0
    for zarr_format, names in ((3, V3), (2, V2)):
        this = {"zarr_format": zarr_format}
        folder = output / f"zarr_v{zarr_format}" / f"tensorstore-{version('tensorstore')}"
        failures += run(folder, dict.fromkeys(names, partial(write, **this)))
    return failures


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
