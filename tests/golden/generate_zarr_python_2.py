"""Golden Zarr v2 stores by zarr-python 2 and by xarray on top of it: ``python generate_zarr_python_2.py OUTPUT_DIR``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xarray as xr
import zarr
from _generate import BIG_ENDIAN, BLOSC, LEVELS, PLAIN, SHUFFLES, Case, create_by_zarr_2, dataset_by_xarray, run
from numcodecs import (
    BZ2, CRC32, LZ4, LZMA, Adler32, AsType, BitRound, Blosc, Categorize, Delta, FixedScaleOffset, Fletcher32, GZip, JenkinsLookup3, JSON, MsgPack, PackBits, Pickle,
    Quantize, Shuffle, VLenArray, VLenBytes, VLenUTF8, Zlib, Zstd,
)  # fmt: skip
from numcodecs.checksum32 import CRC32C

LZMA_RAW = [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]  # delta, then LZMA2
LABELS = ["red", "green", "blue", "blüe"]

BASIC = [
    *PLAIN, *BIG_ENDIAN,
    "struct-mixed-endian", "struct-subarray", "struct-zero-fill", "fill-nan-f8-big", "fill-null", "fill-null-string",
    "fill-null-struct", "fill-zero-one-bool",
]  # fmt: skip

OPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("vlen-utf8", "vlen-utf8-fill", "scalar-string"), {"object_codec": VLenUTF8()}),
    "vlen-utf8-order-f": {"object_codec": VLenUTF8(), "order": "F"},
    "vlen-utf8-compressed": {"object_codec": VLenUTF8(), "compressor": Zstd(3)},
    "vlen-bytes": {"object_codec": VLenBytes(), "fill_value": 0},  # bytes as fill value cannot be written
    "vlen-array": {"object_codec": VLenArray("<i4")},
    "json2": {"object_codec": JSON()},
    "msgpack2": {"object_codec": MsgPack()},
    "categorize": {"object_codec": Categorize(LABELS, dtype=object)},
    "categorize-unicode": {"filters": [Categorize(LABELS, dtype="<U5")]},
    "pickle": {"object_codec": Pickle()},
    **dict.fromkeys(("order-f", "order-f-3d"), {"order": "F"}),
    "order-f-filters": {"order": "F", "filters": [Delta("<i4")], "compressor": Zlib(1)},
    "order-f-struct": {"order": "F", "compressor": Zlib(1)},
    "separator-dot": {"dimension_separator": "."},
    **dict.fromkeys(("separator-slash", "rank-1-slash"), {"dimension_separator": "/"}),
    "codec-default": {"compressor": "default"},
    **{name: {"compressor": Blosc(each, LEVELS[each], SHUFFLES.index(shuffle))} for name, (each, shuffle) in BLOSC.items()},
    "codec-blosc-blosclz-auto": {"compressor": Blosc("blosclz", 5, Blosc.AUTOSHUFFLE)},
    "codec-blosc-blocksize": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE, blocksize=512)},
    "codec-blosc-f8": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)},
    **dict.fromkeys(("codec-blosc-i2-auto", "codec-blosc-u1-auto"), {"compressor": Blosc("lz4", 5, Blosc.AUTOSHUFFLE)}),
    "codec-zstd": {"compressor": Zstd(3)},
    "codec-zstd-checksum": {"compressor": Zstd(3, checksum=True)},
    "codec-zlib": {"compressor": Zlib(6)},
    "codec-gzip": {"compressor": GZip(6)},
    "codec-bz2": {"compressor": BZ2(1)},
    "codec-lzma": {"compressor": LZMA(preset=1)},
    "codec-lzma-raw": {"compressor": LZMA(format=3, filters=LZMA_RAW)},
    "codec-lzma-alone": {"compressor": LZMA(format=2, preset=1)},
    "codec-lz4": {"compressor": LZ4()},
    "codec-crc32": {"filters": [CRC32()], "compressor": Zlib(1)},
    "codec-crc32-end": {"filters": [CRC32(location="end")], "compressor": Zlib(1)},
    "codec-crc32c": {"filters": [CRC32C()], "compressor": Zlib(1)},
    "codec-adler32": {"filters": [Adler32()], "compressor": Zlib(1)},
    "codec-fletcher32": {"filters": [Fletcher32()], "compressor": Zlib(1)},
    "codec-jenkins-lookup3": {"filters": [JenkinsLookup3(initval=7)], "compressor": Zlib(1)},
    "codec-shuffle": {"filters": [Shuffle(4)], "compressor": Zlib(1)},
    "codec-delta": {"filters": [Delta("<i4")], "compressor": Zlib(1)},
    "codec-delta-big": {"filters": [Delta(">i4")], "compressor": Zlib(1)},
    "codec-delta-astype": {"filters": [Delta("<i4", astype="<i2")], "compressor": Zlib(1)},
    "codec-delta-float": {"filters": [Delta("<f4")], "compressor": Zlib(1)},
    "codec-delta-chain": {"filters": [Delta("<i4"), Delta("<i4"), Shuffle(4)], "compressor": Blosc("lz4", 5, Blosc.NOSHUFFLE)},
    "codec-fixedscaleoffset": {"filters": [FixedScaleOffset(offset=1000, scale=4, dtype="<f8", astype="|u1")], "compressor": Zlib(1)},
    "codec-fixedscaleoffset-big": {"filters": [FixedScaleOffset(offset=1000, scale=4, dtype=">f8", astype=">u2")], "compressor": Zlib(1)},
    "codec-quantize": {"filters": [Quantize(digits=1, dtype="<f8")], "compressor": Zlib(1)},
    "codec-quantize-astype": {"filters": [Quantize(digits=1, dtype="<f8", astype="<f4")], "compressor": Zlib(1)},
    "codec-bitround": {"filters": [BitRound(keepbits=8)], "compressor": Zlib(1)},
    "codec-astype": {"filters": [AsType(encode_dtype="<i2", decode_dtype="<f8")], "compressor": Zlib(1)},
    "codec-packbits": {"filters": [PackBits()], "compressor": Zlib(1)},
}  # fmt: skip


def opened(target: Path, name: str) -> Any:
    if target.suffix == ".zip":
        return zarr.ZipStore(str(target), mode="w")
    if name in ("separator-slash", "rank-1-slash"):
        return zarr.storage.FSStore(str(target), dimension_separator="/")
    return (zarr.NestedDirectoryStore if name == "nested-store" else zarr.DirectoryStore)(str(target))


def write(target: Path, case: Case) -> None:
    store = opened(target, case.name)
    for path, attributes in case.groups.items():
        zarr.open_group(store, mode="a", path=path).attrs.put(dict(attributes))
    for path, array in case.arrays.items():
        create_by_zarr_2(store, array, path, **({} if case.is_group else OPTIONS.get(case.name, {})))
    if case.name == "group-consolidated":
        zarr.consolidate_metadata(store)
    if target.suffix == ".zip":
        store.close()


folder = f"zarr_v2/zarr-python-{zarr.__version__}"
run(folder, dict.fromkeys((*BASIC, *OPTIONS, "nested-store", "group", "group-empty", "group-consolidated"), write))
run(folder, dict.fromkeys(("array-zip", "group-zip"), write), suffix=".zip")
run(f"zarr_v2/xarray-{xr.__version__}", {"xarray": dataset_by_xarray})
