"""Read many arrays with the newest zarr-python, in its own environment: ``python read_with_zarr_3.py JOBS OUT``.

The kind of a job is ``zarr2`` or ``zarr3``. Needs Python 3.12, zarr 3.4, cast-value-rs, msgpack, pcodec, zfpy and crc32c.
"""

import numpy as np
import zarr
from answers import answer


def read(job):
    kind = zarr.storage.ZipStore if job["store"].endswith(".zip") else zarr.storage.LocalStore
    opened = kind(job["store"], read_only=True)
    try:
        version = int(job["kind"][-1])
        array = zarr.open_array(opened, mode="r", path=job["path"], zarr_format=version)
        attributes = dict(array.attrs)
        names = attributes.pop("_ARRAY_DIMENSIONS", None)
        if version == 3 and (names is None or len(set(names)) == len(names)):  # names that repeat are there as well
            names = array.metadata.dimension_names
        values = np.asarray(array[...])
        if values.dtype.kind == "T":
            values = values.astype(object)
        return values, {"attributes": attributes, "names": names}
    finally:
        opened.close()


if __name__ == "__main__":
    zarr.config.set({"array.rectilinear_chunks": True})
    answer(read)
