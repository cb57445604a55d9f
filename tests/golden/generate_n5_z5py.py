"""Write the N5 golden stores of z5py. Environment and command: n5/PROVENANCE.md."""

import n5_cases
import z5py


for case, store in n5_cases.fresh("n5", "z5py", z5py.__version__):
    file = z5py.N5File(str(store), "w")
    for path, attributes in case.groups.items():
        node = file.require_group(path) if path else file
        for key, value in attributes.items():
            node.attrs[key] = value
    for path, array in case.arrays.items():
        data = array.expected()
        node = file.create_dataset(
            path, shape=data.shape, dtype=data.dtype, chunks=array.chunks, compression=array.compression
        )
        for part in array.regions():
            node[part] = data[part]
        for key, value in array.attributes.items():
            node.attrs[key] = value
