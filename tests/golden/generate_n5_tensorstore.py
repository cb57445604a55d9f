"""Write the N5 golden stores of tensorstore. Environment and command: n5/PROVENANCE.md.

Tensorstore's N5 driver works in N5's axis order; it has no groups, so only the datasets of a group are written.
"""

import importlib.metadata

import n5_cases
import tensorstore as ts

PARAMETERS = {"raw": {}, "gzip": {"level": 5}, "bzip2": {"blockSize": 9}, "xz": {"preset": 6},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1}, "zstd": {"level": 3}}  # fmt: skip


def spec(store, case, **more):
    return {"driver": "n5", "kvstore": {"driver": "file", "path": str(store)}, "path": case.path, **more}


def write(store, case):
    data = case.expected()
    metadata = {"dimensions": data.shape[::-1], "blockSize": case.chunks[::-1], "dataType": data.dtype.name,
        "compression": {"type": case.compression, **PARAMETERS[case.compression]}, **case.attributes}  # fmt: skip
    array = ts.open(spec(store, case, metadata=metadata), create=True).result()
    for part in n5_cases.present(case):
        array[part[::-1]].write(data[part].T).result()


for case, store in n5_cases.fresh("n5", "tensorstore", importlib.metadata.version("tensorstore")):
    for node in n5_cases.nodes(case):
        if node.kind == "array":
            write(store, node)
