"""Write the N5 golden stores of zarr-python 2 (N5Store, N5FSStore). Environment and command: n5/PROVENANCE.md."""

import gzip
import types
import warnings

import n5_cases
import numcodecs
import zarr

gzip.time = types.SimpleNamespace(time=lambda: 0)  # the header's time of writing: same bytes every time
warnings.simplefilter("ignore", FutureWarning)
COMPRESSORS = {"raw": None, "gzip": numcodecs.GZip(5), "bzip2": numcodecs.BZ2(9), "xz": numcodecs.LZMA(preset=6),
    "blosc": numcodecs.Blosc("lz4", 5, 1), "zstd": numcodecs.Zstd(3), "lz4": numcodecs.LZ4(),
    "gzip_zlib_zarr_python": numcodecs.Zlib(5), "compression_lzma_alone": numcodecs.LZMA(format=2,
    preset=6)}  # fmt: skip
STORES = {"zarr_python": zarr.N5Store, "zarr_python_fs": lambda path: zarr.N5FSStore(path, auto_mkdir=True)}


def write(store, case):
    if case.kind == "group":
        node = zarr.open_group(store, path=case.path, mode="a")
    else:
        data = case.expected()
        compressor = COMPRESSORS.get(case.name, COMPRESSORS.get(case.compression))
        node = zarr.create(data.shape, chunks=case.chunks, dtype=data.dtype, compressor=compressor,
            fill_value=case.fill_value, store=store, path=case.path, write_empty_chunks=True)  # fmt: skip
        if case.chunks == ():
            node[()] = data
        else:
            for part in n5_cases.present(case):
                node[part] = data[part]
    if case.attributes:
        node.attrs.put(dict(case.attributes))


for writer, make in STORES.items():
    for case, path in n5_cases.fresh("n5", writer, zarr.__version__):
        store = make(str(path))
        zarr.open_group(store, mode="a") if case.path else None
        for node in n5_cases.nodes(case):
            write(store, node)
