"""Write the N5 golden stores of pyn5 (rust-n5). Environment and command: n5/PROVENANCE.md.

The h5py-like classes of pyn5 know raw, gzip and bzip2 only, so datasets are made with the function of the compiled module.
"""

import importlib.metadata
import json

import n5_cases
import numpy as np
import pyn5
from pyn5.pyn5 import create_dataset

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
        for part in n5_cases.present(case):
            array.write_ndarray([s.start for s in part][::-1], data[part].T, 0)
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


for case, store in n5_cases.fresh("n5", "pyn5", importlib.metadata.version("pyn5")):
    file = pyn5.File(store)
    for node in n5_cases.nodes(case):
        write(store, file, node)
    for node in n5_cases.nodes(case):
        check(store, node)
