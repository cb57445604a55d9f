"""What the generators share: where stores go, and documents of codecs."""

from __future__ import annotations

import gzip
import shutil
import sys
import types
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from cases import CASES, Case  # noqa: E402

# gzip headers hold the time of day: give them none, so that a second run writes the same bytes
gzip.time = types.SimpleNamespace(time=lambda: 0.0)  # type: ignore[attr-defined]

Job = Callable[[Path, Case], None]


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    """Return a codec, a grid or an encoding of keys as documents of Zarr v3 have it."""
    return {"name": name, "configuration": configuration}


def transpose(*order: int) -> dict[str, Any]:
    """Return the codec that changes the order of axes."""
    return codec("transpose", order=order)


NUMBERS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
BIG_ENDIAN = (
    *(f"{name}-big" for name in NUMBERS if name not in ("bool", "int8", "uint8")),
    "datetime-ns-big",
    "timedelta-s-big",
    "unicode-4-big",
)
PLAIN = (
    *NUMBERS,
    "datetime-Y", "datetime-D", "datetime-h", "datetime-s", "datetime-25us", "datetime-ns", "timedelta-10ms",
    "timedelta-ns", "timedelta-W", "unicode-4", "bytes-6", "void-3", "struct", "struct-nested", "layout", "rank-1",
    "rank-3", "rank-5", "many-chunks", "chunk-larger", "chunk-exact", "scalar", "scalar-missing", "empty-axis",
    "empty-1d", "empty-middle", "all-missing", "fill-nan", "fill-nan-f2", "fill-inf", "fill-neg-inf",
    "fill-float-exact", "fill-complex", "fill-nat", "fill-date", "fill-uint64-odd", "fill-int64-odd", "attributes",
    "codec-none",
)  # fmt: skip
"""What zarr-python writes by default, whichever version."""
BLOSC = {
    "codec-blosc-lz4-noshuffle": ("lz4", "noshuffle"), "codec-blosc-lz4-shuffle": ("lz4", "shuffle"),
    "codec-blosc-lz4hc-shuffle": ("lz4hc", "shuffle"), "codec-blosc-zstd-bitshuffle": ("zstd", "bitshuffle"),
    "codec-blosc-zlib-shuffle": ("zlib", "shuffle"),
}  # fmt: skip
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
LEVELS = {"lz4": 5, "lz4hc": 9, "zstd": 3, "zlib": 1}

LITTLE, BIG, CRC = codec("bytes", endian="little"), codec("bytes", endian="big"), {"name": "crc32c"}


def sharding(inner: Any, *codecs: Any, index: Any = (LITTLE, CRC), location: str | None = "end") -> dict[str, Any]:
    """Return the codec of shards; ``None`` leaves a member out."""
    about = {"chunk_shape": inner, "codecs": codecs or (LITTLE,), "index_codecs": index, "index_location": location}
    return codec("sharding_indexed", **{name: value for name, value in about.items() if value is not None})


def run(folder: str, jobs: dict[str, Job], *, suffix: str = ".zarr") -> None:
    """Write each case afresh into a folder of OUTPUT_DIR, the argument of the command."""
    for name, job in jobs.items():
        target = Path(sys.argv[1], folder, f"{name}{suffix}")
        print(target)
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        job(target, CASES[name])


def create_by_zarr_2(store: Any, case: Case, path: str, **options: Any) -> None:
    """Write one array with zarr-python 2, chunk by chunk, leaving out what is missing."""
    import zarr

    values = case.expected()
    array = zarr.create(shape=values.shape, chunks=case.chunks, store=store, path=path,
        **{"dtype": case.dtype, "compressor": None, "fill_value": case.fill_value, **options})  # fmt: skip
    attributes = dict(case.attributes)
    if case.dimension_names:
        attributes["_ARRAY_DIMENSIONS"] = list(case.dimension_names)
    if attributes:
        array.attrs.put(attributes)
    for region in case.regions():
        array[region] = values[region]


def dataset_by_xarray(target: Path, case: Case) -> None:
    """Write a small data set with xarray and the zarr-python that is there."""
    import xarray as xr
    import zarr

    variables = {
        path: (each.dimension_names or (), each.expected(), dict(each.attributes)) for path, each in case.arrays.items()
    }
    raw = xr.Dataset(variables, attrs=dict(case.groups[""]))
    for variable in raw.variables.values():
        variable.attrs.pop("_FillValue", None)
    raw["packed"].attrs["_FillValue"] = -999
    made = xr.decode_cf(raw).load()
    for variable in made.variables.values():
        variable.encoding = {}
    version, none = (2, "compressor") if zarr.__version__.startswith("2") else (3, "compressors")
    encoding: dict[str, dict[str, Any]] = {path: {none: None} for path in case.children}
    encoding["temperature"]["chunks"] = case.arrays["temperature"].chunks
    encoding["packed"] |= {"dtype": "i2", "scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -999}
    encoding["time"] |= {"dtype": "i8", "units": case.arrays["time"].attributes["units"]}
    made.to_zarr(target, mode="w", consolidated=True, zarr_format=version, encoding=encoding)
