"""Write the N5 golden stores of pyn5 (rust-n5). Environment and command: n5/PROVENANCE.md.

The h5py-like classes of pyn5 know raw, gzip and bzip2 only, so datasets are made with the function of the compiled module.
"""

import importlib.metadata
import json

import n5_cases
import pyn5
from pyn5.pyn5 import create_dataset

PARAMETERS = {"raw": {}, "gzip": {"level": 5}, "bzip2": {"blockSize": 9}}


def write(store, file, case):
    if case.kind == "group":
        if case.path:
            (store / case.path).mkdir(parents=True, exist_ok=True)
    else:
        data = case.expected()
        compression = json.dumps({"type": case.compression, **PARAMETERS[case.compression]})
        create_dataset(
            str(store), case.path, list(data.shape[::-1]), list(case.chunks[::-1]), data.dtype.name.upper(), compression
        )
        kind = getattr(pyn5.pyn5, "Dataset" + data.dtype.name.upper())
        array = kind(str(store), case.path, False)
        for part in n5_cases.present(case):
            array.write_ndarray([s.start for s in part][::-1], data[part].T, 0)
    target = file[case.path] if case.path else file
    for key, value in case.attributes.items():
        target.attrs[key] = value


for case, store in n5_cases.fresh("n5", "pyn5", importlib.metadata.version("pyn5")):
    file = pyn5.File(store)
    for node in n5_cases.nodes(case):
        write(store, file, node)
