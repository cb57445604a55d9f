"""Describe the targets of arrays that are alike once: those of 10^5 stations differ in paths and attributes alone.

Not here: how a target is described (`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from chunkmill.conversion.target_metadata import check_losses, marked
from chunkmill.errors import MetadataError
from chunkmill.formats.base import Format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array

__all__ = ["alike_described_once"]

Describe = Callable[[Array, Format, str], ArrayMetadata]

_MAX_KNOWN = 256


def alike_described_once(describe: Describe, *options: Any) -> Describe:
    """Return `describe`, or a function that calls it once for arrays which differ in path and attributes alone.

    Each target's attributes are still compared with what its format would make of them.

    Parameters
    ----------
    options
        Options that `describe` uses: where one is a function of the array, or says something for each path, all arrays
        are described.
    """
    if any(callable(option) or isinstance(option, Mapping) for option in options):
        return describe
    known: dict[tuple[Any, ...], tuple[ArrayMetadata, ArrayMetadata]] = {}

    def described(array: Array, documents_format: Format, path: str) -> ArrayMetadata:
        source, wanted = array.metadata, marked(array, documents_format)
        # parsers return the same objects for equal documents; those in `known` keep theirs, so that ids stay unique
        same = source.codecs, source.chunk_grid, source.fill_value, source.dtype
        key = (*map(id, same), source.chunk_keys, source.edge_chunks, source.dimension_names, array.format)
        if key in known:
            candidate = replace(known[key][1], attributes=wanted.attributes)
            try:
                check_losses(candidate, candidate, documents_format, path)
            except MetadataError:  # whether that may be lost, or how the target is changed, is found out for it alone
                return describe(array, documents_format, path)
            return candidate
        target = describe(array, documents_format, path)
        if target.attributes == wanted.attributes:
            if len(known) >= _MAX_KNOWN:
                known.clear()
            known[key] = source, target
        return target

    return described
