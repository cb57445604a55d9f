"""Golden Zarr v3 and v2 stores whose chunks the Rust crate zarrs encodes: ``python generate_zarrs.py OUTPUT_DIR``.

The package ``zarrs`` plugs into zarr-python 3, which still writes the metadata. What the plug-in cannot do it hands to zarr-python's own
pipeline, unless ``strict`` is set as here, so every chunk is zarrs's work. It does strings, bytes, structured types and datetimes that way.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numcodecs
import zarr
from _generate import run, versions
from generate_zarr_python_3 import single

V3_NAMES = [
    "layout", "bool", "int8", "uint64", "float16-big", "float64", "complex64-big", "scalar", "rank-5", "key-v2-slash",
    "transpose-10", "transpose-201", "transpose-chain", "fill-nan",
    "codec-gzip", "codec-zstd", "codec-zstd-checksum", "codec-blosc-lz4-shuffle", "codec-blosc-zstd-bitshuffle", "codec-blosc-lz4-noshuffle", "codec-crc32c",
    "codec-gzip-crc32c", "codec-zlib", "codec-bz2", "codec-shuffle", "codec-pcodec",
    "shard-end", "shard-start", "shard-missing", "shard-missing-inner", "shard-single", "shard-3d", "shard-inner-gzip", "shard-inner-zstd-crc32c",
    "shard-inner-transpose", "shard-inner-blosc", "shard-inner-big", "shard-index-no-crc", "shard-index-big", "shard-outer-crc32c", "shard-outer-gzip", "shard-nested",
    "shard-nested-start", "shard-float-nan",
]  # fmt: skip
V2_NAMES = ["layout", "float64-big", "separator-slash", "codec-default", "codec-blosc-zstd-bitshuffle", "codec-gzip",
    "codec-shuffle", "order-f-3d"]  # fmt: skip


def main(output: Path) -> int:
    """Write everything below ``output``."""
    versions(zarr, numcodecs)
    print("zarrs", version("zarrs"))
    failures = 0
    zarr.config.set({"array.write_empty_chunks": True})
    for zarr_format, names in ((3, V3_NAMES), (2, V2_NAMES)):
        this: Any = {"zarr_format": zarr_format}
        failures += run(
            output / f"zarr_v{zarr_format}" / f"zarrs-{version('zarrs')}",
            dict.fromkeys(names, partial(strict, **this)),
        )
    return failures


def strict(target: Path, case: Any, *, zarr_format: int) -> None:
    """Write with the plug-in only."""
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}):
        single(target, case, zarr_format=zarr_format)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
