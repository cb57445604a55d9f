"""Write the N5 golden stores of zarr-python 2 (N5Store, N5FSStore). Environment and command: n5/PROVENANCE.md."""

import warnings

import n5_cases
import numcodecs
import zarr
from _generate import create_by_zarr_2

warnings.simplefilter("ignore", FutureWarning)
COMPRESSORS = {"raw": None, "gzip": numcodecs.GZip(5), "bzip2": numcodecs.BZ2(9), "xz": numcodecs.LZMA(preset=6),
    "blosc": numcodecs.Blosc("lz4", 5, 1), "zstd": numcodecs.Zstd(3), "lz4": numcodecs.LZ4(),
    "gzip_zlib_zarr_python": numcodecs.Zlib(5), "compression_lzma_alone": numcodecs.LZMA(format=2,
    preset=6)}  # fmt: skip
STORES = {"zarr_python": zarr.N5Store, "zarr_python_fs": lambda path: zarr.N5FSStore(path, auto_mkdir=True)}


for writer, make in STORES.items():
    for case, path in n5_cases.fresh("n5", writer, zarr.__version__):
        store = make(str(path))
        for path, attributes in (case.groups or ({"": {}} if case.path else {})).items():
            group = zarr.open_group(store, path=path, mode="a")
            if attributes:
                group.attrs.put(dict(attributes))
        for path, array in case.arrays.items():
            compressor = COMPRESSORS.get(array.name, COMPRESSORS[array.compression])
            create_by_zarr_2(store, array, path, compressor=compressor, write_empty_chunks=True)
