"""Words of other libraries for arguments of public functions.

Not here: the functions that take them (`chunkmill.nodes.api`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_WORDS = {
    "path": "component group name",
    "url": "filename_or_obj",
    "chunks": "target_chunks",
    "target": "target_store",
    "temp": "temp_store",
    "max_mem": "max_memory allowed_mem",
    "consolidated": "use_consolidated",
    "x": "arr data array",
    "ds": "dataset",
    "attributes": "attrs",
    "dimension_names": "dims",
    "fill_value": "fillvalue",
    "chunk_key_encoding": "dimension_separator",
    "region": "region_slices",
    "dim": "concat_dims concat_dim",
    "write_empty_chunks": "write_empty",
    "halo": "depth",
    "params": "kwargs",
    "function": "func",
}

THEIRS: Mapping[str, tuple[tuple[str, Callable[[Any], Any] | None], ...]] = {
    **{word: ((ours, None),) for ours, words in _WORDS.items() for word in words.split()},
    "store": (("url", None), ("source", None)),
    **dict.fromkeys(
        ("zarr_" + word for word in ("format", "version")),
        (("format", lambda n: f"zarr{n}" if str(n) in {"2", "3"} else n),),
    ),
    "overwrite": (("mode", lambda overwrite: {"True": "w", "False": "w-"}.get(str(overwrite), ...)),),
    "mode": (("overwrite", lambda mode: {"w": True, "w-": False, "x": False}.get(str(mode), ...)),),
    "meta": (("dtype", lambda meta: getattr(meta, "dtype", meta)),),
    "backend_kwargs": (("storage_options", lambda _: ...),),
    **dict.fromkeys(("compression_options", "target_options"), (("codecs", lambda _: ...),)),
    **dict.fromkeys(("drop_axis", "new_axis"), (("dimension_names", lambda _: ...),)),
}
"""Keyword of zarr-python, dask, xarray, rechunker, z5py or kerchunk -> ours, the first that the function has, and the
function from a value of theirs to ours: ``None``: the same; ``...`` of it: none is certain, and it is not taken."""

OF_CODECS = dict.fromkeys(("compressor", "compression"), "compressors")
"""Keyword -> the argument of `chunkmill.codecs.registry.chain_of_stages` that it says."""

NOT_NEEDED = {
    **dict.fromkeys(("safe_chunks", "align_chunks"), "blocks that do not fit the chunks are regrouped"),
    "executor": "jobs run on Dask's current scheduler or Client",
    "n_threads": "threads are Dask's: dask.config.set(num_workers=4)",
    "synchronizer": "parts of chunks are guarded by the store, or by locks (see lock=)",
    "chunkmanager_store_kwargs": "its entry lock= is an argument here",
    "zarr_array_kwargs": "its entries are arguments here: chunks=, shards=, codecs=, fill_value=",
    "allow_rechunk": "a halo may be longer than a block",
    "align_arrays": "a block is the same region of all sources",
    "data": "to_store(data, ...) creates an array and writes it",
    "engine": "the format is detected, or given as format=",
}

ELSEWHERE = {
    **dict.fromkeys(("resume", "progress"), "plan_{}(...).run({}=...) has it"),
    "target_storage_options": "storage_options= are for both; else give an opened node, or a store object",
}
"""What has a keyword that jobs might have."""
