"""Read many arrays with zarr-python 2, in its own environment: ``python read_with_zarr_2.py JOBS OUT``.

JOBS is a JSON list of ``{"store", "path", "kind"}``; kind is ``zarr`` (a directory or zip file), ``consolidated`` (the same,
opened by its ``.zmetadata``), ``n5`` or ``n5fs``. OUT is a new folder: ``<n>.npy`` for each job that succeeded, and ``answers.json``
with a list of ``{"error"}`` or ``{"attributes", "names"}``. Needs zarr 2.18.7, numcodecs 0.15.2, msgpack, crc32c and fsspec.
"""

import json
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import zarr
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


def main(jobs, out):
    warnings.simplefilter("ignore")
    out.mkdir()
    answers = []
    for n, job in enumerate(json.loads(jobs.read_text())):
        try:
            values, answer = read(job)
            np.save(out / f"{n}.npy", values, allow_pickle=True)
        except Exception as error:  # noqa: BLE001
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=-2)}
        answers.append(answer)
    (out / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
