"""Read many arrays with zarr-python 2, in its own environment: ``python read_with_zarr_2.py JOBS OUT``.

The kind of a job is ``zarr2`` (a directory or zip file), ``consolidated`` (the same, opened by its ``.zmetadata``), ``n5`` or
``n5fs``. Needs zarr 2.18.7, numcodecs 0.15.2, msgpack, crc32c and fsspec.
"""

import numpy as np
import zarr
from answers import answer
from zarr.n5 import N5FSStore, N5Store


def open_store(job):
    if job["kind"] == "n5":
        return N5Store(job["store"])
    if job["kind"] == "n5fs":
        return N5FSStore(job["store"])
    if job["store"].endswith(".zip"):
        return zarr.ZipStore(job["store"], mode="r")
    return zarr.DirectoryStore(job["store"])


def read(job):
    store = open_store(job)
    try:
        if job["kind"] == "consolidated":
            array = zarr.open_consolidated(store, mode="r")[job["path"]]
        else:
            array = zarr.open_array(store, mode="r", path=job["path"])
        attributes = dict(array.attrs)
        names = attributes.pop("_ARRAY_DIMENSIONS", None)
        return np.asarray(array[...]), {"attributes": attributes, "names": names}
    finally:
        store.close()


if __name__ == "__main__":
    answer(read)
