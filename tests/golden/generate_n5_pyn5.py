"""Write the N5 golden stores of pyn5 (rust-n5). Environment and command: n5/PROVENANCE.md.

The h5py-like classes of pyn5 know raw, gzip and bzip2 only, so datasets are made with the function of the compiled module.
"""

import importlib.metadata
import json

import n5_cases
import pyn5
from pyn5.pyn5 import create_dataset

PARAMETERS = {"raw": {}, "gzip": {"level": 5}, "bzip2": {"blockSize": 9}}


for case, store in n5_cases.fresh("n5", "pyn5", importlib.metadata.version("pyn5")):
    file = pyn5.File(store)
    for path in filter(None, case.groups):
        (store / path).mkdir(parents=True, exist_ok=True)
    for path, array in case.arrays.items():
        data = array.expected()
        name, compression = data.dtype.name.upper(), {"type": array.compression, **PARAMETERS[array.compression]}
        create_dataset(
            str(store), path, list(data.shape[::-1]), list(array.chunks[::-1]), name, json.dumps(compression)
        )
        written = getattr(pyn5.pyn5, "Dataset" + name)(str(store), path, False)
        for part in array.regions():
            written.write_ndarray([s.start for s in part][::-1], data[part].T, 0)
    for path, attributes in [*case.groups.items(), *((p, each.attributes) for p, each in case.arrays.items())]:
        for key, value in attributes.items():
            (file[path] if path else file).attrs[key] = value
