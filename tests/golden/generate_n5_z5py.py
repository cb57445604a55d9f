"""Write the N5 golden stores of z5py. Environment and command: n5/PROVENANCE.md."""

import n5_cases
import z5py


def write(file, case):
    if case.kind == "group":
        node = file.require_group(case.path) if case.path else file
    else:
        data = case.expected()
        node = file.create_dataset(
            case.path, shape=data.shape, dtype=data.dtype, chunks=case.chunks, compression=case.compression
        )
        for part in n5_cases.present(case):
            node[part] = data[part]
    for key, value in case.attributes.items():
        node.attrs[key] = value


for case, store in n5_cases.fresh("n5", "z5py", z5py.__version__):
    file = z5py.N5File(str(store), "w")
    for node in n5_cases.nodes(case):
        write(file, node)
