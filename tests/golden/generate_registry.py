"""Golden Zarr v3 stores of the registry's newer codecs and data types: ``python generate_registry.py OUTPUT_DIR``.

The documents are written by hand, since zarr-python 3.1 knows none of these names. The chunks are the work of zarrs (its Python package takes
any document), of TensorStore's N5 driver and of zfpy.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
from _generate import CASES, LITTLE, Case, codec, run, versions
from generate_hand import block, little, put

sys.path.append(str(Path(__file__).parents[1]))
from interop.zarrs_codecs import zarrs_encodes  # noqa: E402

TURN = codec("transpose", order=[1, 0])


def document(case: Case, data_type: str, codecs: list[Any], fill_value: Any, **members: Any) -> dict[str, Any]:
    """The ``zarr.json`` of a case."""
    return {
        "zarr_format": 3, "node_type": "array", "shape": list(case.expected().shape), "data_type": data_type, "chunk_grid": codec("regular", chunk_shape=list(case.chunks)),
        "chunk_key_encoding": codec("default", separator="/"), "fill_value": fill_value, "codecs": codecs, "attributes": {}, **members,
    }  # fmt: skip


def zarrs_job(target: Path, case: Case, *, data_type: str, codecs: list[Any], fill_value: Any) -> None:
    metadata = document(case, data_type, codecs, fill_value)
    put(target, "zarr.json", metadata)
    for index in case.indices():
        put(target, "c/" + "/".join(map(str, index)), zarrs_encodes(block(case, index), data_type, codecs, fill_value))


def zarrs_jobs() -> dict[str, Any]:
    jobs = {}
    for name in CASES:
        if name.startswith("type-"):
            data_type, _, serializer = name.removeprefix("type-").replace("-", "_").rpartition("_")
            fill = [1, 1] if data_type.startswith("complex") else 1
            codecs = [LITTLE if serializer == "bytes" else codec("packbits", padding_encoding="none")]
            jobs[name] = partial(zarrs_job, data_type=data_type, codecs=codecs, fill_value=fill)
    jobs["codec-packbits-bool"] = partial(
        zarrs_job, data_type="bool", codecs=[codec("packbits", padding_encoding="first_byte")], fill_value=True
    )
    some = codec("packbits", first_bit=1, last_bit=5, padding_encoding="last_byte")
    jobs["codec-packbits-some"] = partial(zarrs_job, data_type="uint16", codecs=[some], fill_value=0)
    turned = [codec("reshape", shape=[[0, 1], 1]), TURN, LITTLE]
    jobs["codec-reshape"] = partial(zarrs_job, data_type="int32", codecs=turned, fill_value=-1)
    jobs["codec-squeeze"] = partial(
        zarrs_job, data_type="int32", codecs=[codec("zarrs.squeeze"), TURN, LITTLE], fill_value=-1
    )
    return jobs


def n5_default(target: Path, case: Case) -> None:
    """A dataset of TensorStore's, in its own order of axes, and the document that makes it an array of Zarr too."""
    import tensorstore

    values = case.expected()
    metadata = {"dimensions": list(values.shape), "blockSize": list(case.chunks), "dataType": "int16",
        "compression": {"type": "gzip", "level": 6, "useZlib": False}}  # fmt: skip
    kvstore = {"driver": "file", "path": f"{target}/"}
    tensorstore.open({"driver": "n5", "kvstore": kvstore, "metadata": metadata, "create": True}).result().write(
        values
    ).result()
    codecs = [TURN, codec("bytes", endian="big"), codec("gzip", level=6)]
    keys = codec("v2", separator="/")
    put(target, "zarr.json", document(case, "int16", [codec("n5_default", codecs=codecs)], 0, chunk_key_encoding=keys))


def zfp(target: Path, case: Case) -> None:
    import zfpy

    put(target, "zarr.json", document(case, "int32", [codec("zfp", mode="reversible")], -1))
    for index in case.indices():
        put(target, "c/" + "/".join(map(str, index)), zfpy.compress_numpy(block(case, index), write_header=False))


def main(output: Path) -> int:
    """Write everything below ``output``."""
    versions(numcodecs)
    folder = output / "zarr_v3"
    return (
        run(folder / f"zarrs-{version('zarrs')}", zarrs_jobs())
        + run(folder / f"tensorstore-{version('tensorstore')}", {"codec-n5-default": n5_default})
        + run(folder / f"zfpy-{version('zfpy')}", {"codec-zfp": zfp})
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
