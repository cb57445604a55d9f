"""Write a reference set over an array or a group: `to_references`, its report, the documents and chunks of the set.

No data moves: the target is a set of byte ranges of the source, described as Zarr arrays of the same chunks, without
shards or block headers around them. Not here: locating the ranges (`chunkmill.references.locate`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
from dask.utils import format_time
from fsspec import available_protocols
from numpy.typing import NDArray

from chunkmill.array.layout import build_layouts
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.actions import choose_action
from chunkmill.conversion.target_metadata import fitted_to
from chunkmill.display.report import ReportMixin, format_bytes
from chunkmill.errors import MetadataError, StoreError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.cf_fill_value import decode_fill_value
from chunkmill.formats.references.chunk_numbers import ArrayKeys
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, NamedConfig, inner_layout
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import ReferenceSet
from chunkmill.nodes import opening
from chunkmill.nodes.api import NodeLocation, open_source
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.references.files import Repository, SetFile, set_target
from chunkmill.references.locate import ChunkTable, Container, ReferencedArray, key_of, locate_references
from chunkmill.stores.base import Store

_ROWS = 1 << 20  # references added at a time


@dataclass(frozen=True, repr=False)
class ReferencesReport(ReportMixin):
    """Report of `chunkmill.to_references`.

    Attributes
    ----------
    source, target
        Urls of the source, with its path, and of the set.
    kind
        Of the set: ``"json"`` or ``"parquet"``.
    node_format
        Format that describes the arrays in the set.
    n_arrays
        Arrays in the set.
    n_references, n_inline, n_absent
        Chunks that are byte ranges, that are stored in the set itself, and that are absent: they read as fill value.
    bytes_referenced, bytes_inline
        Encoded bytes of the first two.
    n_tasks, n_requests, bytes_read
        Tasks that looked the ranges up, their requests, and the bytes that those returned.
    seconds
        Duration.
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
    source: NodeLocation,
    target: str | os.PathLike[str] | tuple[str | os.PathLike[str], str],
    *,
    format: Literal["json", "parquet"] | None = None,  # noqa: A002 - the word of the public face
    record_size: int = 10_000,
    zarr_format: Literal[2, 3] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> ReferencesReport:
    """Write a reference set over an array, or over a group with everything below it; no data is copied.

    Readers of kerchunk's reference sets read it as Zarr. Each chunk is a byte range of a store key, of a shard, of an
    N5 block after its header, or of a local zip file whose members are not compressed. The ranges are looked up in
    parallel on the current dask scheduler or Client. Absent chunks stay absent. Blocks that N5 truncates at the ends of
    axes, and Zarr does not, are padded and stored in the set. The set is valid until somebody writes to the source.

    Parameters
    ----------
    source : str, path, store, tuple, Array or Group
        The array or group: a url, ``(url, path)``, an Array or a Group; also a reference set (to turn JSON into
        parquet).
    target : str, path or tuple
        Url of the set, or ``(url, path)`` to put the node at a path in it. xarray, and fsspec in parquet sets, only
        find arrays that are in groups: give an array a path. A repository of Icechunk (``"repo|icechunk:"``, or an
        object of it) gets arrays of Zarr v3 with virtual chunks, in one commit.
    format : str, optional
        Kind of set: ``"json"``, one file, compressed if its name ends with ``.gz`` or ``.zst``; ``"parquet"``, a
        folder. ``None``: JSON if the name contains ``.json``, else parquet.
    record_size : int
        References in one parquet file.
    zarr_format : int, optional
        Format that describes the arrays: 2 or 3. ``None``: Zarr v2, the only one that kerchunk's xarray engine opens,
        if it can describe all arrays so that xarray reads the same values, else v3. (In v2 xarray reads elements equal
        to the fill value as missing; in v3 and N5 those equal to the attribute ``_FillValue``. The set's fill value is
        chosen accordingly, and is undefined where nothing stands for missing elements. Absent chunks read the same.)
    overwrite : bool
        Replace the reference set that is at the target. A file, and a folder of a local disk or in memory, is the old
        set until the new one is whole; in other stores a folder's old set is deleted when the ranges are known.
    storage_options, target_storage_options : dict, optional
        Options for the filesystems of source and target, as in fsspec; the target uses the source's by default.
    progress : bool or str, optional
        Show a bar, as in `Plan.run`.

    Returns
    -------
    ReferencesReport
        Numbers and bytes of the references, and the cost of looking them up.

    Raises
    ------
    UnsupportedFeature
        Zarr has no such codecs, or the store has no urls that others can open.
    ChunkError
        A shard or a block is damaged.
    StoreError
        The target exists, or others have written there since; a member of a zip file is compressed.
    JobError
        Another writer is at work in the target's folder.

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
    node = open_source(source, storage_options)
    options = storage_options if target_storage_options is None else target_storage_options
    file, path = set_target(target, options, kind=format, record_size=record_size, overwrite=overwrite)
    replaces = file.check_free(overwrite=overwrite, source=node.url)
    return write_set(node, path, file, replaces, zarr_format, progress=progress)


def write_set(
    node: StoredNode,
    path: str,
    file: SetFile | Repository,
    replaces: str | None,
    zarr_format: Literal[2, 3] | None = None,
    *,
    progress: bool | str | None = None,
) -> ReferencesReport:
    """Write the set of a node at `path` in `file`; see `to_references`."""
    start = time.perf_counter()
    if isinstance(file, Repository):
        zarr_format = 3
    groups, arrays = nodes_in_set(node, path)
    referenced = strip_containers(arrays)
    # an array that cannot be described fails before anything is looked up
    v2_alone = file.kind == "parquet"
    describe_referenced(referenced, zarr_format, referenced, v2_alone=v2_alone)
    found, result = locate_references(list(referenced.values()), progress=progress)
    located = dict(zip(referenced, found, strict=True))
    if get_format(_FORMATS[zarr_format or min(_FORMATS)]).masks_fill_value:
        located = {at: _with_absent(referenced[at], table, at) for at, table in located.items()}
    n_absent = {at: each.metadata.chunk_grid.n_chunks - located[at].n_chunks for at, each in referenced.items()}
    complete = {at for at, n in n_absent.items() if n == 0}
    documents_format, described = describe_referenced(referenced, zarr_format, complete, v2_alone=v2_alone)
    builder, urls = ReferenceBuilder(file.url), list[str]()
    documents: dict[str, bytes] = {}
    for at, group in groups.items():
        documents |= documents_format.emit_group(at, group)
    for at, metadata in described.items():
        documents |= documents_format.emit_array(at, metadata)
    builder.add_many_data(list(documents), list(documents.values()))
    for at, metadata in described.items():
        url_ids, located[at] = _with_urls(urls, referenced[at].array, located[at])
        _add_chunks(builder, metadata, at, url_ids, located[at])
    built = builder.build()
    file.write(ReferenceSet(urls, built.tables, built.named, built.blob), replaces=replaces)
    tables = located.values()
    return ReferencesReport(
        source=join_path(node.url, node.path),
        target=file.url,
        kind=file.kind,
        node_format=documents_format.name,
        n_arrays=len(referenced),
        n_references=sum(map(len, tables)),
        n_inline=sum(len(table.inline) for table in tables),
        n_absent=sum(n_absent.values()),
        bytes_referenced=sum(int(table.lengths.sum(dtype=np.int64)) for table in tables),
        bytes_inline=sum(len(data) for table in tables for _, data in table.inline),
        n_tasks=result.n_tasks,
        n_requests=result.counts.get("n_requests", 0),
        bytes_read=result.counts.get("bytes_read", 0),
        seconds=time.perf_counter() - start,
    )


# --------------------------------------------------------------------------------------------------------------------
# The chunks of the set


def _add_chunks(
    builder: ReferenceBuilder,
    metadata: ArrayMetadata,
    path: str,
    url_ids: NDArray[np.int64],
    table: ChunkTable,
) -> None:
    array = ArrayKeys(path, metadata.chunk_grid.grid_shape, metadata.chunk_keys)
    builder.add_many_data([array.key(number) for number, _ in table.inline], [data for _, data in table.inline])
    for first in range(0, len(table), _ROWS):
        rows = slice(first, first + _ROWS)
        coords = array.coords_of(table.chunks[rows])
        array.add_to(builder, coords, url_ids[rows], table.offsets[rows], table.lengths[rows])


def _with_urls(urls: list[str], array: StoredArray, table: ChunkTable) -> tuple[NDArray[np.int64], ChunkTable]:
    """Add the urls of an array's store keys; return the url of every row, and the table of ranges in those urls."""
    store = array.store.innermost
    if store.locates_values:
        return _in_files(urls, array, store, table)
    used, of_row = table.by_key()
    urls += [_url_of_key(store.url, key_of(array, number)) for number in used.tolist()]
    return len(urls) - len(used) + of_row, table


def _url_of_key(store_url: str, key: str) -> str:
    """Return the url of the object under a store key.

    Examples
    --------
    >>> _url_of_key("file:///data/x.zarr", "a/0.0"), _url_of_key("https://host/x", "a b/0")
    ('file:///data/x.zarr/a/0.0', 'https://host/x/a%20b/0')
    """
    key = quote(key) if store_url.startswith(("http://", "https://")) else key
    return f"{store_url.rstrip('/')}/{key}"


def _in_files(
    urls: list[str], array: StoredArray, store: Store, table: ChunkTable
) -> tuple[NDArray[np.int64], ChunkTable]:
    """Replace ranges of values by ranges of the files that those values are stored in: targets, a zip file."""
    used, of_row = table.by_key()
    ids, starts = np.full(len(used), -1), np.zeros(len(used), np.int64)
    names: dict[str, int] = {}
    data: dict[int, bytes] = {}
    for i, number in enumerate(used.tolist()):
        key = key_of(array, number)
        reference = store.locate(key)
        if reference is None:
            raise StoreError(url=array.store.url, key=key, reason="it was deleted while it was read")
        if reference.data is not None:
            data[i] = reference.data
        else:
            ids[i] = names.setdefault(str(reference.url), len(urls) + len(names))
            starts[i] = reference.offset
    held = ids[of_row] < 0
    inline = list(table.inline)
    for row in np.flatnonzero(held).tolist():
        start = int(table.offsets[row])
        inline.append((int(table.chunks[row]), data[int(of_row[row])][start : start + int(table.lengths[row])]))
    urls += names
    return ids[of_row][~held], replace(table, offsets=table.offsets + starts[of_row], inline=inline).where(~held)


_FORMATS = {2: "zarr2", 3: "zarr3"}


def nodes_in_set(source: StoredNode, root: str) -> tuple[dict[str, GroupMetadata], dict[str, StoredArray]]:
    """Return the groups, those above `root` first, and the arrays by their path in the set."""
    root = root.strip("/")
    names = root.split("/") if root else []
    groups = {"/".join(names[:n]): GroupMetadata() for n in range(len(names))}
    arrays: dict[str, StoredArray] = {}
    for node in opening.walk(source):
        at = join_path(root, node.path[len(source.path) :].strip("/"))
        if isinstance(node, StoredGroup):
            groups[at] = node.metadata
        else:
            arrays[at] = node
    return groups, arrays


def strip_containers(arrays: Mapping[str, StoredArray]) -> dict[str, ReferencedArray]:
    """Describe arrays without shards or block headers around their chunks.

    Raises
    ------
    UnsupportedFeature
        No reference set can describe the array.
    """
    for array in arrays.values():
        _check_url(array)
    return {at: ReferencedArray(array, *_stripped(array)) for at, array in arrays.items()}


def describe_referenced(
    referenced: Mapping[str, ReferencedArray],
    zarr_format: int | None,
    complete: Collection[str],
    *,
    v2_alone: bool = False,
) -> tuple[Format, dict[str, ArrayMetadata]]:
    """Describe the arrays in the first format that can hold all of them.

    Parameters
    ----------
    complete
        Paths of the arrays without absent chunks.
    v2_alone
        Whether Zarr v3 is only taken where `zarr_format` says so: in parquet fsspec finds no chunk of it, and reads
        fill values.
    """
    if zarr_format is not None and zarr_format not in _FORMATS:
        raise ValueError(f"zarr_format={zarr_format!r}: expected 2, 3 or None")
    last: MetadataError | None = None
    names = list(_FORMATS.values()) if zarr_format is None else [_FORMATS[zarr_format]]
    for name in names[:1] if v2_alone else names:
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
    if isinstance(last, UnsupportedFeature) and v2_alone and zarr_format is None:
        describe_referenced(referenced, 3, complete)  # else that is the error
        hint = "write JSON, which holds Zarr v3"
        raise UnsupportedFeature(format=last.format, feature=last.feature, key=last.key, hint=hint) from last
    raise last  # type: ignore[misc]


def _stripped(array: StoredArray) -> tuple[ArrayMetadata, Container]:
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


def _with_absent(referenced: ReferencedArray, table: ChunkTable, path: str) -> ChunkTable:
    """Return a table with the few absent chunks of an array whose fill value would stand for missing elements in v2.

    So are variables without values in netCDF, grid mappings for one: their chunks of fill values are stored in the set.
    """
    metadata, grid = referenced.metadata, referenced.metadata.chunk_grid
    n_absent = grid.n_chunks - table.n_chunks
    n_bytes = n_absent * math.prod(grid.chunk_shape) * metadata.dtype.itemsize
    if not n_absent or n_bytes > _MAX_ABSENT_BYTES or get_format(referenced.array.format).masks_fill_value:
        return table
    try:
        _unmasked(metadata, "zarr2", path, complete=False, strict=True)
    except UnsupportedFeature:
        layout, absent = build_layouts(metadata, "")[1], np.ones(grid.n_chunks, bool)
        absent[table.chunks] = False
        absent[[number for number, _ in table.inline]] = False
        added = []
        for number in np.flatnonzero(absent).tolist():
            spec = layout.spec(grid.coords_of(number))
            chunk = np.full(spec.shape, metadata.fill_value, metadata.dtype)
            added.append((number, bytes(layout.codecs.encode(chunk, spec))))
        return replace(table, inline=sorted([*table.inline, *added]))
    return table


_MAX_ABSENT_BYTES = 1 << 20


def _unmasked(metadata: ArrayMetadata, name: str, path: str, *, complete: bool, strict: bool) -> ArrayMetadata:
    """Return the metadata for a format whose fill value stands for missing elements, from one where it does not.

    There the attribute ``_FillValue`` stands for them. If no chunk is absent, the fill value can become that of the
    attribute; else it stays, and an array that xarray would then read differently is refused when `strict`.
    """
    dtype, fill = metadata.dtype, metadata.fill_value
    if fill is None or dtype.kind not in "biufcmMST":
        return metadata
    marker = None
    if "_FillValue" in metadata.attributes:
        marker = decode_fill_value(metadata.attributes["_FillValue"], dtype, key=path)
    bits = _bits(fill, dtype)
    # an undefined fill value stands for nothing, and reads as zeros
    if complete or (marker is None and not any(bits)):
        return replace(metadata, fill_value=marker)
    is_nan = bool(fill != fill)  # noqa: PLR0124 - missing for every reader
    is_missing = marker is None if is_nan else marker is not None and _bits(marker, dtype) == bits
    if strict and not (is_missing or (is_nan and marker is not None and marker != marker)):  # noqa: PLR0124
        marked = "nothing" if marker is None else repr(marker)
        feature = f"absent chunks of {fill!r} where {marked} stands for missing values"
        raise UnsupportedFeature(format=name, feature=feature, key=path)
    return metadata


def _bits(value: Any, dtype: np.dtype[Any]) -> bytes:
    return str(value).encode() if dtype.kind == "T" else np.array(value, dtype).tobytes()


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


def _check_url(array: StoredArray) -> None:
    """Raise unless the array's store has a url that others can open by fsspec."""
    store = array.store.innermost
    protocol = store.url.partition("://")[0]
    is_remote_member = "::" in store.url and not store.locates_values
    if "|" in store.url or is_remote_member or protocol not in {*available_protocols(), "reference", "zip"}:
        hint = "others open no urls into remote archives, adapters or this process's memory: write it to a folder"
        raise UnsupportedFeature(format="a reference set", feature=f"references into {store.url}", hint=hint)
