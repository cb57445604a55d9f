"""Write the N5 golden stores of pyn5 (rust-n5). Environment and command: n5/PROVENANCE.md.

The h5py-like classes of pyn5 know raw, gzip and bzip2 only, so datasets are made with the function of the compiled module.
"""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import n5_cases
import numpy as np
import pyn5
from pyn5.pyn5 import create_dataset

GOLDEN = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
PARAMETERS = {"raw": {}, "gzip": {"level": 5}, "bzip2": {"blockSize": 9}}


def dataset(store, case):
    kind = getattr(pyn5.pyn5, "Dataset" + case.expected().dtype.name.upper())
    return kind(str(store), case.path, False)


def write(store, file, case):
    if case.kind == "group":
        if case.path:
            (store / case.path).mkdir(parents=True, exist_ok=True)
        target = file[case.path] if case.path else file
    else:
        data = case.expected()
        compression = json.dumps({"type": case.compression, **PARAMETERS[case.compression]})
        create_dataset(
            str(store), case.path, list(data.shape[::-1]), list(case.chunks[::-1]), data.dtype.name.upper(), compression
        )
        array = dataset(store, case)
        for coords in n5_cases.chunk_coords(case):
            if coords not in case.absent:
                part = n5_cases.region(case, coords)
                offset = [s.start for s in part][::-1]
                array.write_ndarray(offset, data[part].T, 0)
        target = file[case.path] if case.path else file
    for key, value in case.attributes.items():
        target.attrs[key] = value


def check(store, case):
    if case.kind == "array":
        data = case.expected()
        read = dataset(store, case).read_ndarray([0] * data.ndim, list(data.shape[::-1])).T
        assert np.ascontiguousarray(read).tobytes() == data.tobytes(), case.name
    document = store / case.path / "attributes.json"
    attributes = json.loads(document.read_text("utf-8")) if document.exists() else {}
    for key, value in case.attributes.items():
        assert attributes[key] == value, (case.name, key)


def main():
    directory = GOLDEN / "n5" / n5_cases.N5_WRITERS["pyn5"]
    assert directory.name == "pyn5-" + importlib.metadata.version("pyn5")
    shutil.rmtree(directory, ignore_errors=True)
    for case in n5_cases.written_by("n5", "pyn5"):
        store = directory / case.store
        file = pyn5.File(store)
        for node in n5_cases.nodes(case):
            write(store, file, node)
        for node in n5_cases.nodes(case):
            check(store, node)


main()
