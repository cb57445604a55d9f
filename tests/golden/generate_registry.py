"""Golden Zarr v3 stores of the registry's newer codecs and data types: ``python generate_registry.py OUTPUT_DIR``.

The documents are written by hand, since zarr-python 3.1 knows none of these names. The chunks are the work of zarrs (its Python package takes
any document), of TensorStore's N5 driver and of zfpy.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tensorstore
import zfpy
from _generate import CASES, LITTLE, Case, codec, run, transpose
from generate_hand import put, with3, zarr_json

sys.path.append(str(Path(__file__).parents[1]))
from interop.zarrs_codecs import zarrs_encodes  # noqa: E402

TURN = transpose(1, 0)


def by_zarrs(data_type: str, *codecs: Any, fill_value: Any) -> Any:
    about = {"data_type": data_type, "codecs": codecs, "fill_value": fill_value}
    return with3(**about, attributes={}, encode=lambda array: zarrs_encodes(array, **about))


def zarrs_jobs() -> dict[str, Any]:
    jobs = {
        "codec-packbits-bool": by_zarrs("bool", codec("packbits", padding_encoding="first_byte"), fill_value=True),
        "codec-packbits-some": by_zarrs("uint16", codec("packbits", first_bit=1, last_bit=5, padding_encoding="last_byte"), fill_value=0),
        "codec-reshape": by_zarrs("int32", codec("reshape", shape=[[0, 1], 1]), TURN, LITTLE, fill_value=-1),
        "codec-squeeze": by_zarrs("int32", codec("zarrs.squeeze"), TURN, LITTLE, fill_value=-1),
    }  # fmt: skip
    for name in (name for name in CASES if name.startswith("type-")):
        data_type, _, serializer = name.removeprefix("type-").replace("-", "_").rpartition("_")
        fill = [1, 1] if data_type.startswith("complex") else 1
        last = LITTLE if serializer == "bytes" else codec("packbits", padding_encoding="none")
        jobs[name] = by_zarrs(data_type, last, fill_value=fill)
    return jobs


def n5_default(target: Path, case: Case) -> None:
    """A dataset of TensorStore's, in its own order of axes, and the document that makes it an array of Zarr too."""
    values = case.expected()
    metadata = {"dimensions": list(values.shape), "blockSize": list(case.chunks), "dataType": "int16",
        "compression": {"type": "gzip", "level": 6, "useZlib": False}}  # fmt: skip
    kvstore = {"driver": "file", "path": f"{target}/"}
    array = tensorstore.open({"driver": "n5", "kvstore": kvstore, "metadata": metadata, "create": True}).result()
    array.write(values).result()
    codecs = [codec("n5_default", codecs=[TURN, codec("bytes", endian="big"), codec("gzip", level=6)])]
    keys = codec("v2", separator="/")
    put(target, "zarr.json", zarr_json(case, codecs=codecs, chunk_key_encoding=keys, attributes={}))


def zfp(array: Any) -> bytes:
    return zfpy.compress_numpy(array, write_header=False)


run(f"zarr_v3/zarrs-{version('zarrs')}", zarrs_jobs())
run(f"zarr_v3/tensorstore-{version('tensorstore')}", {"codec-n5-default": n5_default})
reversible = with3(codecs=[codec("zfp", mode="reversible")], attributes={}, encode=zfp)
run(f"zarr_v3/zfpy-{version('zfpy')}", {"codec-zfp": reversible})
