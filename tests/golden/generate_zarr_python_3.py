"""Golden Zarr v3 and v2 stores by zarr-python 3 and zarrs: ``python generate_zarr_python_3.py OUTPUT_DIR``.

Zarr-python 3.1 writes every case it can, and one data set through xarray; 3.2 and later only those cases that they write differently or that
are worth having twice.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from _generate import BIG_ENDIAN, BLOSC, LEVELS, PLAIN, Case, dataset_by_xarray, run
from zarr.codecs import (
    BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec,
)  # fmt: skip
from zarr.codecs import numcodecs as nc
from zarr.dtype import VariableLengthBytes, VariableLengthUTF8

NEW = tuple(int(part) for part in zarr.__version__.split(".")[:2]) >= (3, 2)
LITTLE, BIG = BytesCodec(endian="little"), BytesCodec(endian="big")

BASIC = [
    *PLAIN,
    "timedelta-generic", "vlen-utf8", "vlen-utf8-fill", "vlen-bytes", "vlen-bytes-fill", "scalar-string",
    "fill-neg-zero", "dimension-names", "dimension-names-null", "dimension-names-empty", "dimension-names-same",
]  # fmt: skip


def key(name: str, separator: str) -> dict[str, Any]:
    return {"chunk_key_encoding": {"name": name, "separator": separator}}


def shard(
    *codecs: Any, inner: tuple[int, ...] = (3, 2), index: Any = (LITTLE, Crc32cCodec()), location: str = "end"
) -> ShardingCodec:
    return ShardingCodec(chunk_shape=inner, codecs=codecs or (LITTLE,), index_codecs=index, index_location=location)


def sharded(
    *codecs: Any, after: Any = (), before: Any = (), shards: tuple[int, ...] = (6, 4), **rest: Any
) -> dict[str, Any]:
    return {"chunks": shards, "serializer": shard(*codecs, **rest), "filters": before, "compressors": after}


def created(location: str = "end", **rest: Any) -> dict[str, Any]:
    """Sharding the way users ask for it: ``create_array(chunks=..., shards=...)``."""
    return {"shards": location, **rest}


V3: dict[str, dict[str, Any]] = {
    **dict.fromkeys(BASIC, {}),
    **dict.fromkeys(BIG_ENDIAN, {"serializer": BIG}),
    **{f"key-{name}-{text}": key(name, each) for name in ("default", "v2") for text, each in (("dot", "."), ("slash", "/"))},
    "transpose-10": {"filters": TransposeCodec(order=(1, 0))},
    "transpose-201": {"filters": TransposeCodec(order=(2, 0, 1))},
    "transpose-120": {"filters": TransposeCodec(order=(1, 2, 0))},
    "transpose-chain": {"filters": [TransposeCodec(order=(2, 0, 1)), TransposeCodec(order=(1, 0, 2))], "compressors": GzipCodec(level=1)},
    "vlen-utf8-compressed": {"compressors": ZstdCodec(level=3)},
    "codec-default": {"compressors": "auto"},
    "codec-gzip": {"compressors": GzipCodec(level=6)},
    "codec-zstd": {"compressors": ZstdCodec(level=3)},
    "codec-zstd-checksum": {"compressors": ZstdCodec(level=3, checksum=True)},
    **{name: {"compressors": BloscCodec(typesize=4, cname=each, clevel=LEVELS[each], shuffle=shuffle)} for name, (each, shuffle) in BLOSC.items()},
    "codec-blosc-blosclz-auto": {"compressors": BloscCodec(cname="blosclz")},
    "codec-blosc-blocksize": {"compressors": BloscCodec(typesize=4, cname="lz4", shuffle="shuffle", blocksize=512)},
    **dict.fromkeys(("codec-blosc-f8", "codec-blosc-i2-auto", "codec-blosc-u1-auto"), {"compressors": BloscCodec()}),
    "codec-crc32c": {"compressors": Crc32cCodec()},
    "codec-gzip-crc32c": {"compressors": [GzipCodec(level=1), Crc32cCodec()]},
    "codec-crc32c-gzip": {"compressors": [Crc32cCodec(), GzipCodec(level=1)]},
    "codec-zlib": {"compressors": nc.Zlib(level=6)},
    "codec-bz2": {"compressors": nc.BZ2(level=1)},
    "codec-lzma": {"compressors": nc.LZMA(preset=1)},
    "codec-lzma-raw": {"compressors": nc.LZMA(format=3, filters=[{"id": 3, "dist": 4}, {"id": 33, "preset": 1}])},
    "codec-lz4": {"compressors": nc.LZ4(acceleration=1)},
    "codec-crc32": {"compressors": [nc.CRC32(), nc.Zlib(level=1)]},
    "codec-adler32": {"compressors": [nc.Zlib(level=1), nc.Adler32()]},
    "codec-fletcher32": {"compressors": [nc.Fletcher32(), nc.Zlib(level=1)]},
    "codec-jenkins-lookup3": {"compressors": [nc.JenkinsLookup3(initval=7), nc.Zlib(level=1)]},
    "codec-shuffle": {"compressors": [nc.Shuffle(elementsize=4), nc.Zlib(level=1)]},
    "codec-delta": {"filters": nc.Delta(dtype="<i4"), "compressors": GzipCodec(level=1)},
    "codec-delta-astype": {"filters": nc.Delta(dtype="<i4", astype="<i2"), "compressors": GzipCodec(level=1)},
    "codec-delta-chain": {"filters": [nc.Delta(dtype="<i4"), nc.Delta(dtype="<i4")], "compressors": nc.GZip(level=1)},
    "codec-fixedscaleoffset": {"filters": nc.FixedScaleOffset(offset=1000, scale=4, dtype="<f8", astype="|u1"), "compressors": nc.Zstd(level=1)},
    "codec-quantize": {"filters": nc.Quantize(digits=1, dtype="<f8"), "compressors": nc.Blosc(cname="lz4", clevel=5, shuffle=1)},
    "codec-bitround": {"filters": nc.BitRound(keepbits=8), "compressors": GzipCodec(level=1)},
    "codec-astype": {"filters": nc.AsType(encode_dtype="<i2", decode_dtype="<f8"), "compressors": GzipCodec(level=1)},
    "codec-packbits": {"filters": nc.PackBits(), "compressors": GzipCodec(level=1)},
    "codec-pcodec": {"serializer": nc.PCodec(level=4, mode_spec="auto")},
    **dict.fromkeys(("shard-end", "shard-missing-inner", "shard-single", "shard-one-inner", "shard-string-fill", "shard-float-nan"), created()),
    **dict.fromkeys(("shard-start", "shard-missing-start"), created("start")),
    "shard-missing": created(compressors=ZstdCodec(level=1)),
    "shard-3d": created(compressors=GzipCodec(level=1)),
    "shard-vlen-utf8": created(compressors=ZstdCodec(level=1)),
    "shard-key-v2": created(**key("v2", ".")),
    "shard-inner-gzip": created(compressors=GzipCodec(level=6)),
    "shard-inner-blosc": created(compressors=BloscCodec(cname="zstd", clevel=1)),
    "shard-inner-zstd-crc32c": created(compressors=[ZstdCodec(level=1), Crc32cCodec()]),
    "shard-inner-transpose": created(filters=TransposeCodec(order=(1, 0))),
    "shard-inner-big": created(serializer=BIG),
    "shard-index-no-crc": sharded(index=[LITTLE]),
    "shard-index-start-no-crc": sharded(index=[LITTLE], location="start"),
    "shard-index-big": sharded(index=[BIG, Crc32cCodec()]),
    "shard-outer-crc32c": sharded(after=[Crc32cCodec()]),
    "shard-outer-gzip": sharded(after=[GzipCodec(level=1)]),
    "shard-nested": sharded(shard(inner=(3, 2)), inner=(6, 4), shards=(12, 8)),
    "shard-nested-start": sharded(shard(inner=(3, 2), location="start"), inner=(6, 4), shards=(12, 8), location="start"),
}  # fmt: skip

V3_NEW: dict[str, dict[str, Any]] = {
    name: V3[name]
    for name in (
        "layout", "bool", "float32", "complex64", "datetime-25us", "unicode-4", "bytes-6", "void-3", "struct", "struct-nested", "vlen-utf8", "vlen-bytes-fill", "fill-nan",
        "dimension-names", "codec-default", "codec-blosc-i2-auto", "codec-blosc-u1-auto", "codec-lz4", "codec-delta-astype", "codec-packbits", "codec-pcodec",
        "shard-end", "shard-start", "shard-missing", "shard-nested", "shard-outer-crc32c", "shard-outer-gzip", "shard-vlen-utf8", "transpose-201",
    )
}  # fmt: skip
if NEW:
    from zarr.codecs import CastValue, ScaleOffset

    V3_NEW.update({
        # 3.1 stores both in memory order and loses the transposition for good
        "transpose-vlen-utf8": {"filters": TransposeCodec(order=(1, 0))},
        "transpose-delta": {"filters": [TransposeCodec(order=(1, 0)), nc.Delta(dtype="<i4")]},
        "codec-zfpy": {"serializer": nc.ZFPY(mode=4, tolerance=-1)},
        "struct-zero-fill": {"serializer": BIG, "filters": ()},
        "rectilinear": {},
        "rectilinear-sharded": {"chunks": (3, 2), "shards": [[3, 6, 3], [2, 2]]},
        "codec-scale-offset": {"filters": ScaleOffset(offset=1000, scale=4)},
        "codec-cast-value": {"filters": CastValue(data_type="int16")},
        "shard-subchunk-order": {
            "chunks": (6, 4), "compressors": (),
            "serializer": ShardingCodec(chunk_shape=(3, 2), codecs=(LITTLE,), index_codecs=(LITTLE, Crc32cCodec()), subchunk_write_order="colexicographic"),
        },
    })  # fmt: skip

V2: dict[str, dict[str, Any]] = {
    **dict.fromkeys((
        "bool", "int16", "float32", "float64-big", "complex64", "datetime-25us", "timedelta-10ms", "unicode-4", "unicode-4-big", "bytes-6", "void-3", "struct", "layout",
        "scalar", "empty-axis", "fill-nan", "fill-nat", "fill-null", "fill-complex", "fill-uint64-odd", "attributes",
    ), {}),
    "vlen-utf8": {"filters": numcodecs.VLenUTF8()},
    "vlen-bytes-fill": {"filters": numcodecs.VLenBytes()},
    "separator-slash": key("v2", "/"),
    "order-f-3d": {"order": "F"},
    "order-f-filters": {"order": "F", "filters": numcodecs.Delta("<i4"), "compressors": numcodecs.Zlib(1)},
    "codec-default": {"compressors": "auto"},
    "codec-blosc-zstd-bitshuffle": {"compressors": numcodecs.Blosc("zstd", 3, 2)},
    "codec-gzip": {"compressors": numcodecs.GZip(6)},
    "codec-shuffle": {"filters": numcodecs.Shuffle(4), "compressors": numcodecs.Zlib(1)},
    "codec-fletcher32": {"filters": numcodecs.Fletcher32(), "compressors": numcodecs.Zlib(1)},
    "codec-delta-astype": {"filters": numcodecs.Delta("<i4", astype="<i2"), "compressors": numcodecs.Zlib(1)},
}  # fmt: skip
V2_NEW = ("layout", "struct", "bytes-6", "vlen-utf8", "vlen-bytes-fill", "codec-default", "codec-delta-astype",
    "order-f-3d", "attributes")  # fmt: skip


# chunks are the work of the Rust crate zarrs, which plugs into zarr-python; what it cannot do is refused, not handed to zarr-python
ZARRS_V3 = [
    "layout", "bool", "int8", "uint64", "float16-big", "float64", "complex64-big", "scalar", "rank-5", "key-v2-slash",
    "transpose-10", "transpose-201", "transpose-chain", "fill-nan",
    "codec-gzip", "codec-zstd", "codec-zstd-checksum", "codec-blosc-lz4-shuffle", "codec-blosc-zstd-bitshuffle", "codec-blosc-lz4-noshuffle", "codec-crc32c",
    "codec-gzip-crc32c", "codec-zlib", "codec-bz2", "codec-shuffle", "codec-pcodec",
    "shard-end", "shard-start", "shard-missing", "shard-missing-inner", "shard-single", "shard-3d", "shard-inner-gzip", "shard-inner-zstd-crc32c",
    "shard-inner-transpose", "shard-inner-blosc", "shard-inner-big", "shard-index-no-crc", "shard-index-big", "shard-outer-crc32c", "shard-outer-gzip", "shard-nested",
    "shard-nested-start", "shard-float-nan",
]  # fmt: skip
ZARRS_V2 = ["layout", "float64-big", "separator-slash", "codec-default", "codec-blosc-zstd-bitshuffle", "codec-gzip",
    "codec-shuffle", "order-f-3d"]  # fmt: skip


def data_type(case: Case, zarr_format: int) -> Any:
    if case.native_dtype.kind == "O":
        return VariableLengthBytes() if isinstance(case.expected().flat[0], bytes) else VariableLengthUTF8()
    return case.dtype if zarr_format == 2 else case.native_dtype


def create(store: Any, case: Case, options: dict[str, Any], zarr_format: int) -> None:
    """Write one array, chunk by chunk, leaving out what is missing."""
    values = case.expected()
    chunks = case.chunks if case.edges is None else [list(e) for e in case.edges]
    options = {"compressors": None, "chunks": chunks, **options}
    none = () if zarr_format == 3 and case.native_dtype.kind == "O" else None
    options["filters"] = options.get("filters") or none
    if options.get("shards") == "end":
        options["shards"] = case.shards
    elif options.get("shards") == "start":
        options["shards"] = {"shape": case.shards, "index_location": "start"}
    if zarr_format == 3:
        options["dimension_names"] = case.dimension_names
    array = zarr.create_array(store, name=case.path or None, shape=values.shape, dtype=data_type(case, zarr_format),
        fill_value=case.fill_value, attributes=dict(case.attributes), zarr_format=zarr_format,
        config={"write_empty_chunks": True}, **options)  # fmt: skip
    for region in case.regions():
        array[region] = np.array(values[region], order="C")


def write(target: Path, case: Case, *, zarr_format: int = 3) -> None:
    table: Any = V2 if zarr_format == 2 else V3_NEW if NEW else V3
    store = zarr.storage.ZipStore(target, mode="w") if target.suffix == ".zip" else zarr.storage.LocalStore(target)
    for path, attributes in case.groups.items():
        zarr.create_group(store, path=path, attributes=dict(attributes), zarr_format=zarr_format)
    for array in case.arrays.values():
        create(store, array, {} if case.is_group else table.get(case.name, {}), zarr_format)
    if case.name == "group-consolidated":
        zarr.consolidate_metadata(store, zarr_format=zarr_format)
    store.close()


def strict(target: Path, case: Case, *, zarr_format: int) -> None:
    """Write with zarrs only."""
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}):
        write(target, case, zarr_format=zarr_format)


zarr.config.set({"array.write_empty_chunks": True, **({"array.rectilinear_chunks": True} if NEW else {})})
for zarr_format, names in ((3, V3_NEW if NEW else V3), (2, V2_NEW if NEW else V2)):
    groups = ["group-consolidated"] if NEW else ["group-consolidated", "group", "group-empty", "group-unicode"]
    jobs = dict.fromkeys((*names, *groups), partial(write, zarr_format=zarr_format))
    run(f"zarr_v{zarr_format}/zarr-python-{zarr.__version__}", jobs)
if not NEW:
    import xarray as xr

    run(f"zarr_v3/zarr-python-{zarr.__version__}", dict.fromkeys(("array-zip", "group-zip"), write), suffix=".zip")
    run(f"zarr_v3/xarray-{xr.__version__}", {"xarray-v3": dataset_by_xarray})
    for zarr_format, names in ((3, ZARRS_V3), (2, ZARRS_V2)):
        folder = f"zarr_v{zarr_format}/zarrs-{version('zarrs')}"
        run(folder, dict.fromkeys(names, partial(strict, zarr_format=zarr_format)))
