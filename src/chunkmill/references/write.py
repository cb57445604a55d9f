"""Writing reference sets: over any array or group, and of several sets one after the other.

A conversion in which no data moves: the target is a set of byte ranges of the source, described as Zarr.
Not here: where the ranges come from (`chunkmill.references.locate`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from dask.utils import format_bytes, format_time
from numpy.typing import NDArray

from chunkmill.array.stored_array import StoredArray
from chunkmill.display.report import ReportMixin
from chunkmill.errors import StoreError
from chunkmill.formats.references import combine
from chunkmill.model.grid import Shape
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.reference_urls import KeyUrls, UrlTable
from chunkmill.model.references import ReferenceSet
from chunkmill.nodes import api
from chunkmill.nodes.arguments import open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.open_store import open_reference_store
from chunkmill.references.describe import describe_virtual, nodes_in_set, take_apart
from chunkmill.references.files import SetFile, in_memory
from chunkmill.references.locate import Located, locate_references, store_below
from chunkmill.stores.reference import ReferenceStore
from chunkmill.stores.zip import ZipStore

__all__ = ["ReferencesReport", "concat_references", "to_references"]

_ROWS = 1 << 20  # references added at a time


@dataclass(frozen=True, repr=False)
class ReferencesReport(ReportMixin):
    """What `chunkmill.to_references` wrote.

    Attributes
    ----------
    kind, node_format
        Of the set: ``"json"`` or ``"parquet"``, and the format that the arrays in it are described in.
    n_references, n_inline, n_absent
        Chunks that are byte ranges, that the set itself holds, and that are neither: they read as fill value.
    bytes_referenced, bytes_inline
        Encoded bytes of the first two.
    n_requests, bytes_read
        Of the tasks: what it took to find the ranges.
    """

    source: str
    target: str
    kind: str
    node_format: str
    n_arrays: int
    n_references: int
    n_inline: int
    n_absent: int
    bytes_referenced: int
    bytes_inline: int
    n_tasks: int
    n_requests: int
    bytes_read: int
    seconds: float

    def _title(self) -> str:
        return "to_references: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("from", self.source),
            ("to", f"{self.target} ({self.kind}, {self.node_format})"),
            ("arrays", f"{self.n_arrays:,}"),
            ("referenced", f"{self.n_references:,} chunks, {format_bytes(self.bytes_referenced)}"),
            ("inline", f"{self.n_inline:,} chunks, {format_bytes(self.bytes_inline)}"),
            ("absent", f"{self.n_absent:,} chunks"),
            ("seconds", format_time(self.seconds).strip()),
            ("tasks", f"{self.n_tasks:,}"),
            ("requests", f"{self.n_requests:,}, {format_bytes(self.bytes_read)} read"),
        ]


def to_references(
    source: Any,
    target: Any,
    *,
    version: Literal[0, 1] = 1,
    format: Literal["json", "parquet"] | None = None,  # noqa: A002 - the word of the public face
    record_size: int = 10_000,
    zarr_format: Literal[2, 3] | None = None,
    end_blocks: Literal["inline", "refuse"] = "inline",
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> ReferencesReport:
    """Write a reference set over an array, or a group with everything below it: no data is copied.

    Readers of kerchunk's sets read it as Zarr: each chunk is a byte range of a store key, of a shard, of an N5 block
    behind its header, or of a local zip file whose members are not compressed. The ranges are looked up in parallel on
    the current dask scheduler or Client. Chunks that are absent stay absent. The set is right as long as nobody
    writes to the source.

    Parameters
    ----------
    source
        A url, ``(url, path)``, an Array or a Group; a reference set too (JSON becomes parquet so).
    target
        Url of the set, or ``(url, path)`` to put the node at a path in it. xarray, and fsspec in parquet sets, find
        arrays in groups only: give one a path.
    version
        Of a set in JSON: 1, or 0 for the flat dict.
    format
        ``"json"``: one file, compressed if its name ends with ``.gz`` or ``.zst``; ``"parquet"``: a folder. ``None``:
        JSON where the name has ``.json`` in it, else parquet.
    record_size
        References in one parquet file.
    zarr_format
        What the arrays are described as. ``None``: Zarr v2, which is all that kerchunk's xarray engine opens, where
        it can hold all of them so that xarray reads the same values, else v3. (In v2 elements equal to the fill value
        are missing ones for xarray; in v3 and N5 those equal to the attribute ``_FillValue`` are. The fill value in
        the set is chosen accordingly: undefined, where nothing marks missing elements. Absent chunks read the same.)
    end_blocks
        N5 truncates blocks at the ends of axes and Zarr does not. ``"inline"``: they are decoded, made whole, encoded
        again and held in the set. ``"refuse"``: they are an error.
    overwrite
        Replace the reference set that is at the target.
    storage_options, target_storage_options
        For the filesystems of source and target, as in fsspec; the target's are the source's where they are not given.
    progress
        As in `Plan.run`.

    Returns
    -------
    ReferencesReport
        How many references there are, of how many bytes, and what it took.

    Raises
    ------
    UnsupportedFeature
        Zarr has no such codecs, or the store has no urls that others can open.
    ChunkError
        A shard or a block is damaged.
    StoreError
        There is something at the target, or a member of a zip file is compressed.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-references", "a", shape=(8,), dtype="i4", chunks=(2,), shards=(4,))
    >>> a[:6] = 7
    >>> report = to_references("memory://doc-references", "memory://doc-references-set/refs.json")
    >>> report.n_references, report.n_absent, report.node_format
    (3, 1, 'zarr2')
    >>> cm.open_array("memory://doc-references-set/refs.json", "a")[4:]
    array([7, 7, 0, 0], dtype=int32)
    """
    start = time.perf_counter()
    if end_blocks not in ("inline", "refuse"):
        msg = f"end_blocks={end_blocks!r}: expected 'inline' or 'refuse'"
        raise ValueError(msg)
    node = open_source(source, storage_options)
    url, path = target if isinstance(target, tuple) else (target, "")
    options = storage_options if target_storage_options is None else target_storage_options
    file = SetFile.at(url, options, kind=format, version=version, record_size=record_size)
    file.check_free(overwrite=overwrite, source=node.url)
    groups, arrays = nodes_in_set(node, path)
    virtuals = take_apart(arrays, inline_ends=end_blocks == "inline")
    describe_virtual(virtuals, zarr_format, virtuals)  # what cannot be described fails before anything is looked up
    located, result = locate_references(list(virtuals.values()), progress=progress)
    n_absent = {
        at: virtual.metadata.chunk_grid.n_chunks - len(found.chunks) - len(found.inline)
        for (at, virtual), found in zip(virtuals.items(), located, strict=True)
    }
    complete = {at for at, n in n_absent.items() if n == 0}
    documents_format, described = describe_virtual(virtuals, zarr_format, complete)
    builder, urls = ReferenceBuilder(file.url), UrlTable()
    for at, group in groups.items():
        _add_documents(builder, documents_format.emit_group(at, group))
    for (at, metadata), virtual, found in zip(described.items(), virtuals.values(), located, strict=True):
        _add_documents(builder, documents_format.emit_array(at, metadata))
        _add_chunks(builder, urls, virtual.array, metadata, found, documents_format.chunk_prefix(at))
    built = builder.build()
    file.write(ReferenceSet(urls, built.tables, built.named, built.blob), overwrite=overwrite)
    n_inline = sum(len(found.inline) for found in located)
    n_references = sum(len(found.chunks) for found in located)
    return ReferencesReport(
        source=f"{node.url}/{node.path}" if node.path else node.url,
        target=file.url,
        kind=file.kind,
        node_format=documents_format.name,
        n_arrays=len(virtuals),
        n_references=n_references,
        n_inline=n_inline,
        n_absent=sum(n_absent.values()),
        bytes_referenced=sum(int(found.lengths.sum(dtype=np.int64)) for found in located),
        bytes_inline=sum(len(data) for found in located for _, data in found.inline),
        n_tasks=result.n_tasks,
        n_requests=result.counts.get("n_requests", 0),
        bytes_read=result.counts.get("bytes_read", 0),
        seconds=time.perf_counter() - start,
    )


def concat_references(
    sets: Sequence[Any],
    *,
    dim: str,
    target: Any = None,
    version: Literal[0, 1] = 1,
    format: Literal["json", "parquet"] | None = None,  # noqa: A002
    record_size: int = 10_000,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Node:
    """Join reference sets along a dimension, in the order given: no data is read.

    The sets must agree in all but the length of that dimension: arrays, chunks, codecs, dtype, the attributes that
    scale values. Arrays without the dimension, and attributes, are those of the first set.

    Parameters
    ----------
    sets
        Urls, or nodes opened from reference sets.
    dim
        Name of the dimension.
    target
        Url of the set to write; ``None``: nothing is written.
    version, format, record_size, overwrite
        As in `to_references`.
    storage_options, target_storage_options
        For the sets and for the target, as in `open`; the target's are those of the sets where they are not given.

    Returns
    -------
    Array or Group
        The joined set, opened.

    Raises
    ------
    MetadataError
        Something does not fit; lists every array that does not, of which set and why. Nothing was written.

    Examples
    --------
    >>> import chunkmill as cm
    >>> for day in ("monday", "tuesday"):
    ...     url = f"memory://doc-concat/{day}"
    ...     a = cm.create_array(url, "t", shape=(4,), dtype="i4", chunks=(2,), dimension_names=["time"])
    ...     a[...] = len(day)
    ...     report = to_references(url, f"memory://doc-concat-sets/{day}.json")
    >>> week = concat_references([f"memory://doc-concat-sets/{day}.json" for day in ("monday", "tuesday")], dim="time")
    >>> week["t"][2:6]
    array([6, 6, 7, 7], dtype=int32)
    """
    stores = [_reference_store(each, storage_options) for each in sets]
    options = storage_options if target_storage_options is None else target_storage_options
    file = None
    if target is not None:
        file = SetFile.at(target, options, kind=format, version=version, record_size=record_size)
        file.check_free(overwrite=overwrite)
    names = [repr(store.url) for store in stores]
    joined = combine.concat_references([_absolute(store) for store in stores], dim, names=names)
    if file is None:
        store = ReferenceStore(joined, stores[0].targets, url=f"{stores[0].url}+{len(stores) - 1}")
        return api.open(store)
    file.write(joined, overwrite=overwrite)
    return api.open(target, storage_options=options)


# --------------------------------------------------------------------------------------------------------------------
# The set


def _add_documents(builder: ReferenceBuilder, documents: Mapping[str, bytes]) -> None:
    for key, value in documents.items():
        builder.add_data(key, value)


def _add_chunks(  # noqa: PLR0917
    builder: ReferenceBuilder, urls: UrlTable, array: StoredArray, metadata: ArrayMetadata, found: Located, prefix: str
) -> None:
    store = store_below(array.store)
    if isinstance(store, ReferenceStore):
        _look_through(urls, array, store, found)
    elif isinstance(store, ZipStore):
        _look_into(urls, array, store, found)
    else:
        encoding, grid = array.metadata.chunk_keys, array.write_layout.grid
        found.rows = found.rows + urls.extend(KeyUrls(store.url, array.prefix, encoding, grid, _narrow(found.keys)))
    grid_shape, encoding = metadata.chunk_grid.grid_shape, metadata.chunk_keys
    if found.inline:
        numbers = np.array([number for number, _ in found.inline])
        coords = _coords(numbers, grid_shape).tolist()
        keys = [prefix + encoding.encode(tuple(each)) for each in coords]
        builder.add_many_data(keys, [data for _, data in found.inline])
    for part in _pieces(len(found.chunks)):
        columns = found.rows[part], found.offsets[part], found.lengths[part]
        if grid_shape:
            coords = _coords(found.chunks[part], grid_shape)
            builder.add_table(prefix + encoding.prefix, encoding.separator, coords, *columns)
        else:
            builder.add_many([prefix + encoding.encode(())], *columns)


def _look_through(urls: UrlTable, array: StoredArray, store: ReferenceStore, found: Located) -> None:
    """Replace ranges of the keys of a reference set by ranges of what those keys refer to."""
    used, rows = np.unique(found.rows, return_inverse=True)
    ids, starts = np.full(len(used), -1), np.zeros(len(used), np.int64)
    names: dict[str, int] = {}
    data: dict[int, bytes] = {}
    for i, row in enumerate(used.tolist()):
        key = array.write_layout.locator.key(array.write_layout.grid.coords_of(int(found.keys[row])))
        reference = store.references.locate(key)
        if reference is None:
            raise StoreError(url=store.url, key=key, reason="the set has lost it meanwhile")
        if reference.data is not None:
            data[i] = reference.data
        else:
            ids[i] = names.setdefault(store.targets.resolve(reference.url), len(names))
            starts[i] = reference.offset
    held = ids[rows] < 0
    for at in np.flatnonzero(held).tolist():
        start = int(found.offsets[at])
        found.inline.append((int(found.chunks[at]), data[int(rows[at])][start : start + int(found.lengths[at])]))
    found.rows = (ids[rows] + urls.extend(list(names)))[~held]
    found.offsets = (found.offsets + starts[rows])[~held]
    found.chunks, found.lengths = found.chunks[~held], found.lengths[~held]


def _look_into(urls: UrlTable, array: StoredArray, store: ZipStore, found: Located) -> None:
    """Replace ranges of members of a zip file by ranges of the file."""
    used, rows = np.unique(found.rows, return_inverse=True)
    starts = np.zeros(len(used), np.int64)
    for i, row in enumerate(used.tolist()):
        key = array.write_layout.locator.key(array.write_layout.grid.coords_of(int(found.keys[row])))
        if (inside := store.file_range(key)) is None:
            raise StoreError(url=store.url, key=key, reason="it was deleted meanwhile")
        starts[i] = inside.start
    found.rows = np.full(len(rows), urls.extend([store.file_url]))
    found.offsets = found.offsets + starts[rows]


def _narrow(numbers: NDArray[np.int64]) -> NDArray[np.integer]:
    return numbers.astype(np.int32) if len(numbers) and int(numbers[-1]) < 2**31 else numbers


def _coords(numbers: NDArray[np.integer], grid_shape: Shape) -> NDArray[np.int64]:
    return np.stack(np.unravel_index(numbers, grid_shape), axis=-1) if grid_shape else np.zeros((len(numbers), 0), int)


def _pieces(n_rows: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS) for start in range(0, n_rows, _ROWS))


# --------------------------------------------------------------------------------------------------------------------
# Sets to be joined


def _reference_store(each: Any, storage_options: Mapping[str, Any] | None) -> ReferenceStore:
    if isinstance(each, (str, os.PathLike)):
        return open_reference_store(each, storage_options)
    store = store_below(each.store) if isinstance(each, (Array, Group)) else each
    if not isinstance(store, ReferenceStore):
        msg = f"a reference set is given by its url or a node opened from it, not by {each!r:.100}"
        raise TypeError(msg)
    return store


def _absolute(store: ReferenceStore) -> ReferenceSet:
    """Return the set in memory, its urls such that they mean the same in another set."""
    references = in_memory(store.references)
    urls: list[str | None] = []
    for url in references.urls:
        try:
            urls.append(store.targets.resolve(url))
        except StoreError:  # relative, and no base was given: the joined set wants one too
            urls.append(url)
    return replace(references, urls=urls)
