"""Write the N5 golden stores of tensorstore. Environment and command: n5/PROVENANCE.md.

Tensorstore's N5 driver works in N5's axis order; it has no groups, so only the datasets of a group are written.
"""

import importlib.metadata

import n5_cases
import tensorstore as ts

PARAMETERS = {"raw": {}, "gzip": {"level": 5}, "bzip2": {"blockSize": 9}, "xz": {"preset": 6},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1}, "zstd": {"level": 3}}  # fmt: skip


for case, store in n5_cases.fresh("n5", "tensorstore", importlib.metadata.version("tensorstore")):
    for path, array in case.arrays.items():
        data = array.expected()
        metadata = {"dimensions": data.shape[::-1], "blockSize": array.chunks[::-1], "dataType": data.dtype.name,
            "compression": {"type": array.compression, **PARAMETERS[array.compression]}, **array.attributes}  # fmt: skip
        kvstore = {"driver": "file", "path": str(store)}
        written = ts.open(
            {"driver": "n5", "kvstore": kvstore, "path": path, "metadata": metadata}, create=True
        ).result()
        for part in array.regions():
            written[part[::-1]].write(data[part].T).result()
