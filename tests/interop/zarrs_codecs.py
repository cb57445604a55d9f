"""zarrs' codecs by their JSON alone: zarr-python, which its package plugs into, need not know them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def zarrs_encodes(values: Any, data_type: Any, codecs: list[Any], fill_value: Any = 0) -> bytes:
    """Return what zarrs makes of one chunk; `values` are the bits of the elements, in whatever dtype."""
    from zarrs._internal import ChunkItem

    with tempfile.TemporaryDirectory() as folder:
        whole = [slice(0, n) for n in values.shape]
        item = ChunkItem("c/0", whole, values.shape, whole, values.shape)
        _pipeline(folder, values.shape, data_type, codecs, fill_value).store_chunks_with_indices(
            [item], np.ascontiguousarray(values), write_empty_chunks=True
        )
        return (Path(folder) / "c" / "0").read_bytes()


def zarrs_fills(data_type: Any, fill_value: Any) -> int:
    """Return the bits of an element of one byte that zarrs finds in a chunk which is not there."""
    from zarrs._internal import ChunkItem

    with tempfile.TemporaryDirectory() as folder:
        found, whole = np.empty(2, "u1"), [slice(0, 2)]
        pipeline = _pipeline(folder, (2,), data_type, [{"name": "bytes"}], fill_value)
        pipeline.retrieve_chunks_and_apply_index([ChunkItem("c/0", whole, (2,), whole, (2,))], found)
        return int(found[1])


def _pipeline(folder: str, shape: tuple[int, ...], data_type: Any, codecs: list[Any], fill_value: Any) -> Any:
    from zarr.storage import LocalStore
    from zarrs._internal import CodecPipelineImpl

    document = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": fill_value,
        "codecs": codecs, "attributes": {}}  # fmt: skip
    return CodecPipelineImpl(json.dumps(document), LocalStore(folder))
