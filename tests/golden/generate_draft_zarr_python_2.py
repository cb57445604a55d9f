"""Write the golden stores of zarr-python 2's experimental v3, an early layout of the draft. Command: zarr_v3_draft/PROVENANCE.md."""

import json
import os
import warnings

os.environ["ZARR_V3_EXPERIMENTAL_API"] = os.environ["ZARR_V3_SHARDING"] = "1"

import n5_cases
import numcodecs
import zarr
from _generate import create_by_zarr_2
from zarr._storage.v3_storage_transformers import ShardingStorageTransformer

warnings.simplefilter("ignore")
COMPRESSORS = {"none": None, "gzip": numcodecs.GZip(5), "zlib": numcodecs.Zlib(5),
    "blosc": numcodecs.Blosc("lz4", 5, 1), "bz2": numcodecs.BZ2(5), "lz4": numcodecs.LZ4(),
    "lzma": numcodecs.LZMA(preset=6), "zstd": numcodecs.Zstd(3)}  # fmt: skip
SPELLINGS = {n5_cases.experimental_name(spelling): spelling for spelling in n5_cases.NATIVE_SPELLINGS}
OPTIONS = {  # by case
    "experimental_order_f": {"order": "F"},
    "experimental_filters": {"filters": [numcodecs.Delta("i4")], "compressor": numcodecs.Zlib(5)},
    "experimental_fill_null": {"fill_value": None},
    "experimental_object": {"object_codec": numcodecs.VLenUTF8(), "compressor": numcodecs.GZip(5)},
}


def options(case, node):
    out = dict(OPTIONS.get(case.name, {}))
    if case.name == "experimental_compressors":
        out["compressor"] = COMPRESSORS[node.path]
    if case.name == "experimental_dtypes":
        out["dtype"] = SPELLINGS[node.path]
    if case.name == "experimental_sharding":
        out["storage_transformers"] = [ShardingStorageTransformer("indexed", chunks_per_shard=(2, 2))]
    if node.path == "dot":
        out["dimension_separator"] = "."
    return out


for case, folder in n5_cases.fresh("zarr_v3_draft", "zarr_python", zarr.__version__):
    store = zarr.DirectoryStoreV3(str(folder))
    for path, attributes in case.groups.items():
        if not path.startswith("implicit"):
            zarr.open_group(store, path=path, mode="a", zarr_version=3).attrs.put(dict(attributes))
    for node in case.arrays.values():
        create_by_zarr_2(store, node, node.path, zarr_version=3, write_empty_chunks=True, **options(case, node))
    if case.name == "experimental_consolidated":
        zarr.consolidate_metadata(store, path="")
    entry = json.loads((folder / "zarr.json").read_text())
    assert entry["zarr_format"].endswith("protocol/core/3.0")
