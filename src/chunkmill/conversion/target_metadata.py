"""Describe the copy of an array or a group in another format: chunks, shards and codecs kept or changed.

What a format cannot hold is refused (P1). Arrays that are alike are described once: those of 10^5 stations differ in
paths and attributes alone. Not here: the arguments by path or dimension (`chunkmill.conversion.options`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from chunkmill.array.layout import build_layouts
from chunkmill.array.stored_array import StoredArray
from chunkmill.codecs.registry import default_serializer, parse_codecs, sharded
from chunkmill.conversion.actions import choose_action, same_fill
from chunkmill.conversion.options import ByDimension, chosen, grids_of, is_keep, path_below, refuse_chosen
from chunkmill.errors import ChunkmillError, MetadataError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.cf_fill_value import decode_fill_value, encode_fill_value
from chunkmill.formats.peers import is_specified, portable_chain
from chunkmill.formats.registry import get_format
from chunkmill.hints import Hint
from chunkmill.jobs.sources import check_groups
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, InnerLayout, NamedConfig, inner_layout, same_json
from chunkmill.model.user_values import zero
from chunkmill.nodes import opening
from chunkmill.nodes.new_array import check_shards
from chunkmill.nodes.stored_group import StoredGroup, StoredNode

ALLOWABLE = ("fill_value", "codecs", "dimension_names", "attributes", "coordinate_systems")
"""Losses that the caller of a conversion can allow. Values are never lost: they are kept or refused."""

# Codecs used where the source's may be lost: the first that the format has.
_FALLBACKS = ("default", "gzip", "raw")


def describe_target(
    source: StoredArray,
    documents_format: Format,
    path: str,
    *,
    chunks: Any = "keep",
    shards: Any = "keep",
    codecs: Any = "keep",
    allow: Collection[str] = (),
    names: Callable[[StoredArray], tuple[str | None, ...] | None] | None = None,
) -> ArrayMetadata:
    """Describe the copy of `source` at `path` in a store of another format.

    Parameters
    ----------
    chunks, shards
        ``"keep"``; ``None`` (shards: none); a shape (of another rank: keep); lengths by dimension; a callable of the
        array. Shards are kept where the format has them; elsewhere their chunks get store keys of their own.
    codecs
        ``"keep"``: the source's chain, as near as the format can express it without loss, and ``"portable"`` where
        chunks are encoded again by codecs that the format does not specify; ``"portable"``: the same where all readers
        know it, else one that they know; or as in `chunkmill.create_array`.
    allow
        Losses that are allowed where the format cannot hold something: of `ALLOWABLE`.
    names
        Array -> names of the copy's axes; as stored when ``None``.

    Raises
    ------
    UnsupportedFeature
        The format cannot hold the array; says what would be lost, and whether it can be allowed.
    """
    if unknown := sorted(set(allow) - set(ALLOWABLE)):
        msg = f"allow={unknown}: what may be lost is of {', '.join(map(repr, ALLOWABLE))}"
        raise ValueError(msg)
    chunks, shards = chosen(chunks, source, "chunks"), chosen(shards, source, "shards")
    if isinstance(chunks, ByDimension) and chunks.is_whole(source) and is_keep(shards):
        shards = None
    metadata = marked(source, documents_format)
    metadata = metadata if names is None else replace(metadata, dimension_names=names(source))
    describe = partial(_described, source, metadata, documents_format, path, chunks=chunks, shards=shards, allow=allow)
    described = describe(codecs=codecs)
    if not is_keep(codecs) or is_specified(described, documents_format.name):
        return described
    if choose_action(source.metadata, described, max_bytes=1, max_keys=1).moves:
        return described
    return describe(codecs="portable")


def _described(
    source: StoredArray,
    metadata: ArrayMetadata,
    documents_format: Format,
    path: str,
    *,
    chunks: Any,
    shards: Any,
    codecs: Any,
    allow: Collection[str],
) -> ArrayMetadata:
    kept = is_keep(shards)
    layout = inner_layout(metadata)
    if isinstance(codecs, str) and codecs == "portable":
        chain = portable_chain(layout.codecs, documents_format.name)
        codecs = "keep" if chain == layout.codecs else list(chain)
    if kept and layout.sharding is not None and is_keep(chunks) and is_keep(codecs):
        with suppress(MetadataError):
            return fitted_to(metadata, documents_format, path, near=True)
    # a chunk inside a shard is described as any other first
    grid, keys = grids_of(source, chunks, shards, layout)
    chain = layout.codecs if is_keep(codecs) else parse_codecs(codecs, metadata.dtype, ndim=len(metadata.shape))
    plain = replace(metadata, chunk_grid=grid, codecs=tuple(chain))
    try:
        fitted = fitted_to(plain, documents_format, path, near=is_keep(codecs))
    except MetadataError as error:
        fitted = _losing(plain, documents_format, path, set(allow), error)
    can_shard = keys is not None and _can_shard(fitted, documents_format, path)
    if keys is None or (kept and not can_shard):
        return fitted
    if not can_shard:
        hint = Hint("give {}, or {}", ("shards", None), ("format", "zarr3"))
        raise UnsupportedFeature(format=documents_format.name, feature=f"shards for {source.path!r}", hint=hint)
    whose = f" that {source.path!r} keeps" if source.path else " that are kept"
    check_shards(plain.chunk_grid, keys, whose if kept else "")
    packed = replace(fitted, chunk_grid=keys, codecs=(_packing(fitted, layout),))
    return fitted_to(packed, documents_format, path, near=False)


def describe_group_target(
    metadata: GroupMetadata, documents_format: Format, path: str, *, allow: Collection[str] = ()
) -> GroupMetadata:
    """Return a group's metadata as the format can hold it; attributes that it cannot are dropped if that is allowed."""
    try:
        documents_format.emit_group(path, metadata)
    except MetadataError as error:
        if "attributes" not in allow:
            raise _refused(documents_format, path, error, ["attributes"]) from error
    else:
        return metadata
    kept = {}
    for name, value in metadata.attributes.items():
        try:
            documents_format.emit_group(path, GroupMetadata({name: value}))
        except MetadataError:
            continue
        kept[name] = value
    return GroupMetadata(kept)


# --------------------------------------------------------------------------------------------------------------------
# Options


def marked(source: StoredArray, documents_format: Format) -> ArrayMetadata:
    """Return the source's metadata such that xarray reads the same elements as missing.

    In Zarr v2 these are equal to the fill value, whatever the attribute ``_FillValue`` says; elsewhere that attribute
    stands for them. Where the fill value changes, absent chunks are written out.
    """
    metadata = source.metadata
    fill, dtype = metadata.fill_value, metadata.dtype
    masks = get_format(source.format).masks_fill_value
    kinds = "biufc" if masks else "biufcST"  # xarray opens no Zarr v3 in which bytes have a ``_FillValue``
    if metadata.dimension_names is None or masks == documents_format.masks_fill_value or dtype.kind not in kinds:
        return metadata
    if not masks:
        marker = None if fill is None or fill == fill else fill  # noqa: PLR0124 - NaN is missing anywhere
        said = metadata.attributes.get("_FillValue")
        if said is not None and (decoded := decode_fill_value(said, dtype, key=source.path)) is not None:
            found = np.array(decoded, dtype)[()]
            # no float32 is equal to 1e20, so that none is missing
            if not isinstance(said, (int, float)) or found.item() == said or said != said:  # noqa: PLR0124
                marker = found
        return replace(metadata, fill_value=marker)  # null where none is missing
    if "_FillValue" in metadata.attributes or fill is None:
        return metadata
    return replace(metadata, attributes={**metadata.attributes, "_FillValue": encode_fill_value(fill, dtype)})


def _can_shard(fitted: ArrayMetadata, documents_format: Format, path: str) -> bool:
    """Return whether the format has shards: tried with shards of one chunk."""
    packing = sharded(fitted.codecs, fitted.chunk_grid.chunk_shape)
    try:
        fitted_to(replace(fitted, codecs=(packing,)), documents_format, path, near=False)
    except UnsupportedFeature:
        return False
    return True


def _packing(fitted: ArrayMetadata, layout: InnerLayout) -> NamedConfig:
    """Return the codec that packs the chunks into shards; its index is as in the source's shards, where it has any."""
    packing = sharded(fitted.codecs, fitted.chunk_grid.chunk_shape)
    if layout.sharding is None:
        return packing
    index = {k: v for k, v in layout.sharding.configuration.items() if k.startswith("index_")}
    return NamedConfig(packing.name, {**packing.configuration, **index})


# --------------------------------------------------------------------------------------------------------------------
# Fitting metadata to the format


def fitted_to(metadata: ArrayMetadata, documents_format: Format, path: str, *, near: bool) -> ArrayMetadata:
    """Return the metadata as the format holds it; `UnsupportedFeature` when anything would be lost."""
    last: MetadataError | None = None
    for chain in _near_chains(metadata) if near else [metadata.codecs]:
        try:
            adapted = documents_format.adapt(replace(metadata, codecs=chain), path)
            check_losses(metadata, adapted, documents_format, path)
            build_layouts(adapted, "")  # a chain that cannot be built fails now, not at the first chunk
        except MetadataError as error:
            last = error
        else:
            return adapted
    raise last  # type: ignore[misc]


def _near_chains(metadata: ArrayMetadata) -> Iterator[tuple[NamedConfig, ...]]:
    """Yield the chain, and others that hold the same values in another layout."""
    chain = metadata.codecs
    plain = tuple(codec for codec in chain if codec.name != "transpose")
    yield chain
    for candidate in (chain, plain):
        if any(codec.name == "bytes" for codec in candidate):
            own = default_serializer(metadata.dtype)
            yield tuple(own if codec.name == "bytes" else codec for codec in candidate)
    if not any(codec.name == "sharding_indexed" for codec in chain):  # whose chunk shape is that of transposed axes
        yield plain


def check_losses(wanted: ArrayMetadata, adapted: ArrayMetadata, documents_format: Format, path: str) -> None:
    """Parse the documents that the format would write, and raise for anything that they have lost."""
    documents = documents_format.emit_array(path, adapted)
    found = documents_format.parse_array(path, documents)
    lost = None
    if found is None or found.dtype != wanted.dtype or found.shape != wanted.shape:
        lost = f"dtype {wanted.dtype} and shape {wanted.shape}"
    elif not same_fill(wanted, found):
        lost = f"fill value {wanted.fill_value!r}"
    elif wanted.dimension_names is not None and found.dimension_names != wanted.dimension_names:
        lost = f"dimension names {wanted.dimension_names}"
    elif missing := [
        name for name, value in wanted.attributes.items() if not same_json(value, found.attributes.get(name))
    ]:
        lost = f"attributes {missing}"
    if lost is not None:
        raise UnsupportedFeature(format=documents_format.name, feature=lost, key=path)


# --------------------------------------------------------------------------------------------------------------------
# Losses that are allowed


def _losing(
    metadata: ArrayMetadata, documents_format: Format, path: str, allow: set[str], error: MetadataError
) -> ArrayMetadata:
    """Return the metadata without what may be lost; raise with the losses that would have to be allowed."""
    needed = list(ALLOWABLE)
    if (relaxed := _relaxed(metadata, documents_format, path, needed)) is None:
        raise error
    for name in ALLOWABLE:
        fewer = [other for other in needed if other != name]
        if (found := _relaxed(metadata, documents_format, path, fewer)) is not None:
            needed, relaxed = fewer, found
    if not allow.issuperset(needed):
        raise _refused(documents_format, path, error, needed) from error
    return relaxed


def _relaxed(
    metadata: ArrayMetadata, documents_format: Format, path: str, names: Collection[str]
) -> ArrayMetadata | None:
    """Return the metadata as the format holds it with the losses `names`; ``None`` where those are not enough."""
    if "fill_value" in names:
        serializers = {codec.name for codec in metadata.codecs}
        fill = zero(metadata.dtype, "vlen-bytes" if "vlen-bytes" in serializers else "")
        metadata = replace(metadata, fill_value=fill)
    if "dimension_names" in names:
        metadata = replace(metadata, dimension_names=None)
    chains = [metadata.codecs]
    if "codecs" in names:
        chains = [parse_codecs(codecs, metadata.dtype) for codecs in _FALLBACKS]
    for chain in chains:
        candidate = replace(metadata, codecs=chain)
        if "attributes" in names:
            kept = {
                name: value
                for name, value in metadata.attributes.items()
                if _fits(replace(candidate, attributes={name: value}), documents_format, path) is not None
            }
            candidate = replace(candidate, attributes=kept)
        if (fitted := _fits(candidate, documents_format, path)) is not None:
            return fitted
    return None


def _fits(metadata: ArrayMetadata, documents_format: Format, path: str) -> ArrayMetadata | None:
    try:
        return fitted_to(metadata, documents_format, path, near=True)
    except ChunkmillError:
        return None


def _refused(documents_format: Format, path: str, error: MetadataError, needed: Sequence[str]) -> UnsupportedFeature:
    hint = Hint("{} converts without what cannot be kept", ("allow", set(needed)))
    feature = error.feature if isinstance(error, UnsupportedFeature) else str(error)
    return UnsupportedFeature(format=documents_format.name, feature=feature, key=path, hint=hint)


Describe = Callable[[StoredArray, Format, str], ArrayMetadata]


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

    def described(array: StoredArray, documents_format: Format, path: str) -> ArrayMetadata:
        source, wanted = array.metadata, marked(array, documents_format)
        # parsers return the same objects for equal documents; those in `known` keep theirs, so that ids stay unique
        same = source.codecs, source.chunk_grid, source.fill_value, source.dtype
        key = (*map(id, same), source.chunk_keys, source.edge_chunks, source.dimension_names, array.format)
        key += tuple(option.is_whole(array) for option in options if isinstance(option, ByDimension))
        if key in known:
            candidate = replace(known[key][1], attributes=wanted.attributes)
            try:
                check_losses(candidate, candidate, documents_format, path)
            except MetadataError:  # whether that may be lost, or how the target is changed, is found out for it alone
                return describe(array, documents_format, path)
            return candidate
        target = describe(array, documents_format, path)
        if target.attributes == wanted.attributes:
            known[key] = source, target
        return target

    return described


def nodes_below(
    source: StoredNode, chosen: Collection[str] | None, documents_format: Format, root: str
) -> Iterator[tuple[StoredNode, str]]:
    """Yield the nodes to convert, at and below `source`, each with its path below `root` in the target.

    Raises
    ------
    JobError
        A group in which nothing was found has been deleted.
    """
    empty: dict[str, StoredGroup] = {}
    for node in opening.walk(source, on_error=partial(refuse_chosen, source, chosen)):
        empty.pop(node.path.rpartition("/")[0], None)
        if isinstance(node, StoredGroup):
            empty[node.path] = node
        below = path_below(source, node)
        if chosen is None or below in chosen:
            yield node, _normalized("/".join(name for name in (root, below) if name), documents_format)
    check_groups([*empty.values()])


def _normalized(path: str, documents_format: Format) -> str:
    try:
        return documents_format.normalize_path(path)
    except MetadataError as error:
        feature = f"a node at {path!r}"
        raise UnsupportedFeature(format=documents_format.name, feature=feature, hint=str(error)) from error
