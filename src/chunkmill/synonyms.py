"""Words of other libraries for arguments of public functions.

Not here: the functions that take them (`chunkmill.nodes.api`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Translated: TypeAlias = Callable[[Any], Any]

_WORDS = {
    "path": "component group name",
    "url": "filename_or_obj",
    "codecs": "compressors compressor compression compression_options filters serializer target_options",
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
    "storage_options": "backend_kwargs",
    "region": "region_slices",
    "dim": "concat_dims concat_dim",
    "write_empty_chunks": "write_empty",
    "halo": "depth",
    "params": "kwargs",
    "function": "func",
}

THEIRS: Mapping[str, tuple[tuple[str, Translated | None], ...]] = {
    **{word: ((ours, None),) for ours, words in _WORDS.items() for word in words.split()},
    "store": (("url", None), ("source", None)),
    **dict.fromkeys(
        ("zarr_" + word for word in ("format", "version")),
        (("format", lambda n: f"zarr{n}" if n in {2, 3, "2", "3"} else n),),
    ),
    "overwrite": (("mode", lambda overwrite: "w" if overwrite else "w-"),),
    "mode": (("overwrite", lambda mode: mode == "w"),),
    "meta": (("dtype", lambda meta: str(getattr(meta, "dtype", meta))),),
    **dict.fromkeys(("drop_axis", "new_axis"), (("dimension_names", lambda _: ...),)),
}
"""Keyword of zarr-python, dask, xarray, rechunker, z5py or kerchunk -> ours, the first that the function has, and how a
value of theirs is written here (``None``: the same, or no value of theirs fits)."""

NOT_NEEDED = {
    **dict.fromkeys(("safe_chunks", "align_chunks"), "blocks that do not fit the chunks are regrouped"),
    "inline_array": "the graph is one symbolic layer",
    "executor": "jobs run on Dask's current scheduler or Client",
    "n_threads": "threads are Dask's: dask.config.set(num_workers=4)",
    "synchronizer": "parts of chunks are guarded by the store, or by locks (see lock=)",
    "chunkmanager_store_kwargs": "its entry lock= is an argument here",
    "zarr_array_kwargs": "its entries are arguments here: chunks=, shards=, codecs=, fill_value=",
    "allow_rechunk": "a halo may be longer than a block",
    "align_arrays": "a block is the same region of all sources",
    "engine": "the format is detected, or given as format=",
}

ELSEWHERE = {
    **dict.fromkeys(("resume", "progress"), "plan_{}(...).run({}=...) has it"),
    "target_storage_options": "storage_options= are for both; else give an opened node, or a store object",
}
"""What has a keyword that jobs might have."""
