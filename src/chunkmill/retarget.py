"""An array of one format -> the description of its copy in another: chunks, shards and codecs kept or changed.

Not here: what a format can hold (its ``adapt`` and ``emit_array`` say), what is done with the chunks
(`chunkmill.plans.convert`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from chunkmill.array import Array
from chunkmill.codecs.registry import parse_codecs, sharded
from chunkmill.describe import make_grid
from chunkmill.errors import AlignmentError, ChunkmillError, MetadataError, RegionError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.locate import grains
from chunkmill.model.fill import zero
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import JSON, ArrayMetadata, GroupMetadata, NamedConfig
from chunkmill.plans.convert import Layout, split_shards

__all__ = ["ALLOWABLE", "describe_group_target", "describe_target"]

ALLOWABLE = ("fill_value", "codecs", "dimension_names", "attributes")
"""What a conversion may lose, where the caller allows it by these names."""


def describe_target(
    source: Array,
    documents_format: Format,
    path: str,
    *,
    chunks: Any = "keep",
    shards: Any = "keep",
    codecs: Any = "keep",
    allow: Collection[str] = (),
) -> ArrayMetadata:
    """Describe the copy of `source` at `path` in a store of another format.

    Parameters
    ----------
    chunks, shards
        ``"keep"``; ``None`` (shards: none); a shape (of another rank: keep); a dict by path; a callable of the array.
        Shards are kept where the format has shards; elsewhere their chunks get store keys of their own.
    codecs
        ``"keep"``: the source's chain, as near as the format can express it without loss; or as in
        `chunkmill.create_array`.
    allow
        What may be lost where the format cannot hold it: of `ALLOWABLE`.

    Raises
    ------
    UnsupportedFeature
        The format cannot hold the array; says what would be lost, and whether it can be allowed.
    """
    if unknown := sorted(set(allow) - set(ALLOWABLE)):
        msg = f"allow={unknown} cannot be lost; what can be is {', '.join(map(repr, ALLOWABLE))}"
        raise ValueError(msg)
    wanted = _described(source, documents_format, chunks, shards, codecs)
    try:
        return _fitted(wanted, documents_format, path)
    except UnsupportedFeature as error:
        return _without(wanted, documents_format, path, set(allow), source, error)


def describe_group_target(
    metadata: GroupMetadata, documents_format: Format, path: str, *, allow: Collection[str] = ()
) -> GroupMetadata:
    """Return a group's metadata as the format can hold it; attributes that it cannot are dropped if that is allowed."""
    try:
        documents_format.emit_group(path, metadata)
    except UnsupportedFeature as error:
        if "attributes" not in allow:
            raise _with_hint(error, path, "allow={'attributes'} leaves them out") from error
    else:
        return metadata
    kept = {
        name: value
        for name, value in metadata.attributes.items()
        if _holds(lambda name=name, value=value: documents_format.emit_group(path, GroupMetadata({name: value})))  # type: ignore[misc]
    }
    return GroupMetadata(kept)


# --------------------------------------------------------------------------------------------------------------------
# What is wanted


def _described(source: Array, documents_format: Format, chunks: Any, shards: Any, codecs: Any) -> ArrayMetadata:
    """Return the source's description with the chunks, shards and codecs that are asked for."""
    metadata = source.metadata
    layout = split_shards(metadata)
    chosen_chunks = _chosen(chunks, source, "chunks", keep="keep")
    chosen_shards = _chosen(shards, source, "shards", keep="keep")
    if chosen_shards == "keep" and not _has_shards(documents_format):
        chosen_shards = None
    kept = isinstance(chosen_chunks, str) and isinstance(chosen_shards, str)
    if kept and chosen_chunks == chosen_shards == codecs == "keep":
        return metadata
    chain = layout.chain if _is_keep(codecs) else parse_codecs(codecs, metadata.dtype, ndim=source.ndim)
    keys = _shard_grid(chosen_shards, layout, source)
    within = None if keys is None else keys.chunk_shape
    grid = layout.chunks if _is_keep(chosen_chunks) else make_grid(source.shape, chosen_chunks, source.dtype, within)
    if keys is None:
        return replace(metadata, chunk_grid=grid, codecs=tuple(chain))
    _check_fit(grid, keys)
    packing = sharded(chain, grid.chunk_shape)
    if layout.sharding is not None:  # where the index lies, and how it is encoded
        kept_members = {k: v for k, v in layout.sharding.configuration.items() if k.startswith("index_")}
        packing = NamedConfig(packing.name, {**packing.configuration, **kept_members})
    return replace(metadata, chunk_grid=keys, codecs=(packing,))


def _chosen(option: Any, source: Array, name: str, *, keep: str) -> Any:
    """Return what an option of a whole conversion says of one array."""
    if callable(option):
        option = option(source)
    elif isinstance(option, Mapping):
        option = option.get(source.path, option.get("/" + source.path, keep))
    elif isinstance(option, (tuple, list)) and len(option) != source.ndim:
        return keep
    if option is None and name == "chunks":
        return keep
    if isinstance(option, str) and option not in {"keep", "auto"}:
        msg = f"{name}={option!r} for {source.path!r}: expected 'keep', a shape, a dict by path or a callable"
        raise ValueError(msg)
    return option


def _shard_grid(shards: Any, layout: Layout, source: Array) -> ChunkGrid | None:
    """Return the grid of shards; ``None`` for none."""
    if shards is None:
        return None
    if _is_keep(shards):
        return None if layout.sharding is None else layout.keys
    return make_grid(source.shape, shards, source.dtype)


def _check_fit(chunks: ChunkGrid, shards: ChunkGrid) -> None:
    fits = chunks.is_regular and all(
        all(length % n == 0 for length, _ in axis.runs) if isinstance(axis, RunsAxis) else axis.chunk % n == 0
        for axis, n in zip(shards.axes, chunks.chunk_shape, strict=True)
    )
    if not fits:
        fix = "give shards= that are multiples of chunks=, or shards=None"
        expected, got = f"multiples of chunks {chunks.chunk_shape}", f"shards {shards.chunk_shape}"
        raise AlignmentError(expected=expected, got=got, fix=fix)


def _has_shards(documents_format: Format) -> bool:
    grid = ChunkGrid((RegularAxis(4, 2),))
    keys = documents_format.parse_array  # noqa: F841 - placeholder
    return True if grid else False


def _is_keep(option: Any) -> bool:
    return isinstance(option, str) and option == "keep"
