"""Read many arrays with the newest zarr-python, in its own environment: ``python read_with_zarr_3.py JOBS OUT``.

JOBS is a JSON list of ``{"store", "path", "kind"}``; kind is ``zarr2`` or ``zarr3``. OUT is a new folder, as that of
``read_with_zarr_2.py``. Needs Python 3.12, zarr 3.4, cast-value-rs, msgpack, pcodec, zfpy and crc32c.
"""

import json
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import zarr


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


def main(jobs, out):
    warnings.simplefilter("ignore")
    zarr.config.set({"array.rectilinear_chunks": True})
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
