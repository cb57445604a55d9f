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


def write(store, path, case):
    data = case.expected()
    compressor = COMPRESSORS.get(case.name, COMPRESSORS.get(case.compression))
    array = zarr.create(data.shape, chunks=case.chunks, dtype=data.dtype, compressor=compressor,
        fill_value=case.fill_value, store=store, path=path, write_empty_chunks=True)  # fmt: skip
    for part in case.regions():
        array[part] = data[part]
    if case.attributes:
        array.attrs.put(dict(case.attributes))


for writer, make in STORES.items():
    for case, path in n5_cases.fresh("n5", writer, zarr.__version__):
        store = make(str(path))
        for path, attributes in (case.groups or ({"": {}} if case.path else {})).items():
            group = zarr.open_group(store, path=path, mode="a")
            if attributes:
                group.attrs.put(dict(attributes))
        for path, array in case.arrays.items():
            write(store, path, array)
