"""Read many arrays with the newest zarr-python, in its own environment: ``python read_with_zarr_3.py JOBS OUT``.

The kind of a job is ``zarr2`` or ``zarr3``. Needs Python 3.12, zarr 3.4, cast-value-rs, msgpack, pcodec, zfpy and crc32c.
"""

import numpy as np
import zarr


def read(store, path, version):
    """Return values, attributes and the names of dimensions."""
    kind = zarr.storage.ZipStore if str(store).endswith(".zip") else zarr.storage.LocalStore
    opened = kind(store, read_only=True)
    try:
        array = zarr.open_array(opened, mode="r", path=path, zarr_format=version)
        attributes = dict(array.attrs)
        names = attributes.pop("_ARRAY_DIMENSIONS", None)
        if version == 3 and (names is None or len(set(names)) == len(names)):  # names that repeat are there as well
            names = array.metadata.dimension_names
        values = np.asarray(array[...])
        return values.astype(object) if values.dtype.kind == "T" else values, attributes, names
    finally:
        opened.close()


def job(job):
    values, attributes, names = read(job["store"], job["path"], int(job["kind"][-1]))
    return values, {"attributes": attributes, "names": names}


if __name__ == "__main__":
    from answers import answer

    zarr.config.set({"array.rectilinear_chunks": True})
    answer(job)
