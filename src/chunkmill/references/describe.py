"""Describe arrays as Zarr arrays of a reference set: the same chunks, without shards or block headers around them.

Not here: the byte ranges of the chunks (`chunkmill.references.locate`), the set (`chunkmill.references.write`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from chunkmill.conversion.actions import choose_action
from chunkmill.conversion.target_metadata import fitted_to
from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.cf_fill_value import decode_fill_value
from chunkmill.formats.registry import get_format
from chunkmill.model.inner_layout import inner_layout
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, NamedConfig
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.folders import join_path
from chunkmill.nodes.group import Group, Node
from chunkmill.references.locate import Container, ReferencedArray
from chunkmill.stores.capabilities import LocatesValues, innermost

__all__ = ["describe_referenced", "nodes_in_set", "strip_containers"]

_FORMATS = {2: "zarr2", 3: "zarr3"}


def nodes_in_set(source: Node, root: str) -> tuple[dict[str, GroupMetadata], dict[str, Array]]:
    """Return the groups, those above `root` first, and the arrays by their path in the set."""
    root = root.strip("/")
    names = root.split("/") if root else []
    groups = {"/".join(names[:n]): GroupMetadata() for n in range(len(names))}
    arrays: dict[str, Array] = {}
    for node in hierarchy.walk(source):
        at = join_path(root, node.path[len(source.path) :].strip("/"))
        if isinstance(node, Group):
            groups[at] = node.metadata
        else:
            arrays[at] = node
    return groups, arrays


def strip_containers(arrays: Mapping[str, Array], *, inline_ends: bool) -> dict[str, ReferencedArray]:
    """Describe arrays without shards or block headers around their chunks.

    Raises
    ------
    UnsupportedFeature
        No reference set can describe the array.
    """
    for array in arrays.values():
        _check_url(array)
    return {at: ReferencedArray(array, *_stripped(array), inline_ends) for at, array in arrays.items()}


def describe_referenced(
    referenced: Mapping[str, ReferencedArray], zarr_format: int | None, complete: Collection[str]
) -> tuple[Format, dict[str, ArrayMetadata]]:
    """Describe the arrays in the first format that can hold all of them.

    Parameters
    ----------
    complete
        Paths of the arrays without absent chunks.
    """
    if zarr_format is not None and zarr_format not in _FORMATS:
        msg = f"zarr_format={zarr_format!r}: expected 2, 3 or None"
        raise ValueError(msg)
    last: MetadataError | None = None
    for name in _FORMATS.values() if zarr_format is None else [_FORMATS[zarr_format]]:
        documents_format = get_format(name)
        described = {}
        try:
            for at, each in referenced.items():
                metadata = each.metadata
                if get_format(name).masks_fill_value and not get_format(each.array.format).masks_fill_value:
                    metadata = _unmasked(metadata, name, at, complete=at in complete, strict=zarr_format is None)
                described[at] = _adapted(metadata, documents_format, at)
        except MetadataError as error:
            last = error
        else:
            return documents_format, described
    raise last  # type: ignore[misc]


def _stripped(array: Array) -> tuple[ArrayMetadata, Container]:
    """Return the metadata without the container around the chunks, and which container that is."""
    metadata = array.metadata
    if array.read_layout is not array.write_layout:
        layout = inner_layout(metadata)
        return replace(metadata, chunk_grid=layout.chunks, codecs=layout.codecs), "shard"
    if [codec.name for codec in metadata.codecs] == ["n5_block"]:
        inner = metadata.codecs[0].configuration["codecs"]
        chain = tuple(NamedConfig(codec["name"], codec.get("configuration", {})) for codec in inner)
        if any(codec.name == "n5_lz4" for codec in chain):
            hint = "its framing is specific to N5: convert the array, or write it with another compression"
            raise UnsupportedFeature(format="Zarr", feature=f"the lz4 compression of {array.path!r}", hint=hint)
        return replace(metadata, codecs=chain, edge_chunks="padded"), "n5_block"
    return metadata, "object"


def _unmasked(
    metadata: ArrayMetadata,
    format: str,  # noqa: A002
    path: str,
    *,
    complete: bool,
    strict: bool,
) -> ArrayMetadata:
    """Return the metadata for a format whose fill value marks missing elements, from one where it does not.

    There the attribute ``_FillValue`` marks them. If no chunk is absent, the fill value can become that of the
    attribute; else it stays, and an array that xarray would then read differently is refused when `strict`.
    """
    dtype, fill = metadata.dtype, metadata.fill_value
    if fill is None or dtype.kind not in "biufcmM":
        return metadata
    marker = None
    if "_FillValue" in metadata.attributes:
        marker = decode_fill_value(metadata.attributes["_FillValue"], dtype, key=path)
    bits = np.array(fill, dtype).tobytes()
    # an undefined fill value marks nothing, and reads as zeros
    if complete or (marker is None and not any(bits)):
        return replace(metadata, fill_value=marker)
    is_nan = bool(fill != fill)  # noqa: PLR0124 - missing, whoever reads it
    marks = marker is None if is_nan else marker is not None and np.array(marker, dtype).tobytes() == bits
    if strict and not (marks or (is_nan and marker is not None and marker != marker)):  # noqa: PLR0124
        feature = (
            f"absent chunks of {fill!r} where {'nothing' if marker is None else repr(marker)} marks missing values"
        )
        raise UnsupportedFeature(format=format, feature=feature, key=path)
    return metadata


def _adapted(metadata: ArrayMetadata, documents_format: Format, path: str) -> ArrayMetadata:
    """Return the metadata in the terms of the format; `UnsupportedFeature` unless they mean the same bytes."""
    # chunk keys can be chosen: fsspec finds parquet references of the default ones only
    metadata = replace(metadata, chunk_keys=documents_format.default_chunk_keys)
    adapted = fitted_to(metadata, documents_format, path, near=False)
    action = choose_action(metadata, adapted, max_bytes=1, max_keys=1).name
    if action != "copy":
        chain = ", ".join(codec.name for codec in metadata.codecs)
        hint = "its chunks would have to be encoded again: convert the array"
        raise UnsupportedFeature(format=documents_format.name, feature=f"the codecs {chain}", key=path, hint=hint)
    return adapted


def _check_url(array: Array) -> None:
    """Raise unless the array's store has a url that others can open."""
    store = innermost(array.store)
    hint = ""
    if store.url.startswith("memory-store:"):
        hint = "the store is in this process's memory: write it to a url first"
    elif "::" in store.url and not isinstance(store, LocatesValues):
        hint = "members of a remote archive have no urls that all readers open: download it, or unpack it"
    if hint:
        raise UnsupportedFeature(format="a reference set", feature=f"references into {store.url}", hint=hint)
