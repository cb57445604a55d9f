"""Write the N5 golden stores of z5py. Environment and command: n5/PROVENANCE.md."""

import shutil
import sys
from pathlib import Path

import n5_cases
import z5py

GOLDEN = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent


def write(file, case):
    if case.kind == "group":
        node = file.require_group(case.path) if case.path else file
    else:
        data = case.expected()
        node = file.create_dataset(
            case.path, shape=data.shape, dtype=data.dtype, chunks=case.chunks, compression=case.compression
        )
        for coords in n5_cases.chunk_coords(case):
            if coords not in case.absent:
                part = n5_cases.region(case, coords)
                node[part] = data[part]
    for key, value in case.attributes.items():
        node.attrs[key] = value


def check(file, case):
    node = file[case.path] if case.path else file
    attributes = {k: v for k, v in dict(node.attrs.items()).items() if k != "n5"}
    if case.kind == "array":
        assert node[...].tobytes() == case.expected().tobytes(), case.name
        assert node.chunks == case.chunks, (case.name, node.chunks)
    for key, value in case.attributes.items():
        assert attributes[key] == value, (case.name, key, attributes[key])


def main():
    directory = GOLDEN / "n5" / n5_cases.N5_WRITERS["z5py"]
    assert directory.name == "z5py-" + z5py.__version__
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for case in n5_cases.written_by("n5", "z5py"):
        store = str(directory / case.store)
        file = z5py.N5File(store, "w")
        for node in n5_cases.nodes(case):
            write(file, node)
        file = z5py.N5File(store, "r")
        for node in n5_cases.nodes(case):
            check(file, node)


main()
