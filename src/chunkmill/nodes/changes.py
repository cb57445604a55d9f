"""Change nodes in their store: attributes, the shape of an array, values appended to it.

The document is changed while it is what was read, as every document is; then what is stored outside the new bounds, or
was stored outside the old ones, is removed, so that new elements hold the fill value. While this runs, other writers of
the array are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar, cast

import numpy as np

from chunkmill.array.chunk_io import decode_chunk, encode_chunk, write_region
from chunkmill.array.selection import region_shape
from chunkmill.array.staleness import check_unchanged
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import BackgroundCalls, automatic_lock, own_threads
from chunkmill.codecs.elements import is_fill
from chunkmill.errors import AlignmentError, NodeNotFound, RegionError, StoreError
from chunkmill.formats.base import Format, check_attributes
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.model.metadata import JSON, ArrayMetadata, GroupMetadata
from chunkmill.model.user_values import plain, spread
from chunkmill.nodes import documents
from chunkmill.nodes.documents import refresh_consolidated
from chunkmill.nodes.stored_group import StoredNode, is_folder
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store
from chunkmill.stores.conflicts import swap, update


def resize(array: StoredArray, shape: int | Sequence[int]) -> StoredArray:
    """Change the shape of an array in its store, and return the array of that shape (see `chunkmill.Array.resize`)."""
    new = _checked(shape, array)
    with _at_work(array, "resize"):
        stored = _stored(array)
        kept = tuple(map(min, stored.shape, new))
        if kept != stored.shape or kept == new:
            _shrink(array, kept)
        return replace(array, metadata=_grow(array, new) if kept != new else _stored(array))


def append(array: StoredArray, values: Any, axis: int) -> StoredArray:
    """Write values after the last ones along an axis, and return the longer array (see `chunkmill.Array.append`)."""
    if not -array.ndim <= axis < array.ndim:
        reason = f"axis {axis} of an array with {array.ndim} axes"
        raise RegionError(index=f"axis={axis}", shape=array.shape, reason=reason)
    axis %= array.ndim
    is_lazy = _is_lazy(values)
    if is_lazy:
        from chunkmill.dask_arrays.as_dask import as_dask  # noqa: PLC0415
        from chunkmill.dask_arrays.write import write_appended  # noqa: PLC0415

        values = as_dask(values)
    else:
        values = plain(values)
    with _at_work(array, "append"):
        stored = _stored(array)
        region = _appended(stored.shape, values.shape, axis)
        longer = _resized(stored, [cut.stop for cut in region])
        before, target = replace(array, metadata=stored), replace(array, metadata=longer)
        if is_lazy:
            write_appended(values, target, region, stored=before)
        else:
            documents.declare_arrays([target])
            block = spread(values, array.dtype, region_shape(region))
            write_region(target, region, block, lock=automatic_lock, n_threads=own_threads())
        array.store.sync()  # the document is synced, and must not outlive the chunks (P11)
        return replace(array, metadata=_publish_shape(array, stored, longer.shape))


# --------------------------------------------------------------------------------------------------------------------
# Arguments


def _checked(shape: int | Sequence[int], array: StoredArray) -> tuple[int, ...]:
    from chunkmill.nodes.new_array import checked_lengths  # noqa: PLC0415 - opening a node creates none

    lengths = checked_lengths(shape, "shape")
    if len(lengths) != array.ndim:
        reason = f"{len(lengths)} lengths for {array.ndim} axes"
        raise RegionError(index=Hint("{}", ("shape", shape)), shape=array.shape, reason=reason)
    return lengths


def _is_lazy(values: Any) -> bool:
    """Return whether values are of a library whose arrays are read block by block."""
    return (
        hasattr(values, "__dask_graph__")
        or hasattr(values, "dims")
        or (hasattr(values, "shape") and not isinstance(values, (np.ndarray, np.generic)))
    )


def _appended(shape: tuple[int, ...], more: tuple[int, ...], axis: int) -> Region:
    """Return the region of the longer array that values of shape `more` become."""
    if len(more) != len(shape) or any(a != b for n, (a, b) in enumerate(zip(more, shape, strict=True)) if n != axis):
        expected = (*shape[:axis], "any", *shape[axis + 1 :])
        fix = f"append values that are as long as the array along all axes but {axis}"
        raise AlignmentError(expected=f"shape ({', '.join(map(str, expected))})", got=f"shape {more}", fix=fix)
    region = [slice(0, n) for n in shape]
    region[axis] = slice(shape[axis], shape[axis] + more[axis])
    return tuple(region)


# --------------------------------------------------------------------------------------------------------------------
# Documents


@contextmanager
def _at_work(array: StoredArray, what: str) -> Iterator[None]:
    """Refuse other writers of the array inside, which must be as it was opened, or longer (P4, P14)."""
    from chunkmill.journal.lease import check_no_job, leased  # noqa: PLC0415 - opening an array needs no lease

    job = f"{what} {array.path!r} in {array.url}"
    with array.store.transaction(f"{what} {array.path!r}"), leased(array.store, array.path, job) as own:
        check_no_job(array.store, array.path, own_run=own.run, waits=True)
        check_unchanged(array, may_grow=True)
        yield


def _stored(array: StoredArray) -> ArrayMetadata:
    """Return the metadata of the array in the store."""
    documents_format = _format(array)
    return _parsed(array, documents_format, documents.fetch(array.store, documents_format.array_keys(array.path)))


def _parsed(array: StoredArray, documents_format: Format, seen: documents.Documents) -> ArrayMetadata:
    stored = documents_format.parse_array(array.path, documents.present(seen))
    if stored is None:
        hint = "it was deleted or replaced after it was opened"
        raise NodeNotFound(url=array.url, path=array.path, hint=hint)
    return stored


def _format(array: StoredArray) -> Format:
    return documents.format_of_store(array.store, array.format)


def _resized(metadata: ArrayMetadata, shape: Sequence[int]) -> ArrayMetadata:
    return replace(metadata, chunk_grid=metadata.chunk_grid.resized(shape))


def _publish_shape(array: StoredArray, expected: ArrayMetadata, shape: tuple[int, ...]) -> ArrayMetadata:
    """Write the document with another shape, also while others change attributes (P3); consolidated metadata follow.

    Raises
    ------
    StoreError
        The array is not as `expected` any more.
    """
    documents_format = _format(array)

    def emitted(seen: documents.Documents) -> Mapping[str, bytes | None]:
        stored = _parsed(array, documents_format, seen)
        if stored.identity != expected.identity:
            refresh_consolidated(array.store, documents_format, [array.path])
            reason = f"array {array.path!r} was changed by others: its shape is {stored.shape}"
            raise StoreError(url=array.url, key=array.path, reason=f"{reason}; open it again, and do this again")
        new = documents_format.emit_array(array.path, _resized(stored, shape))
        if any(a < b for a, b in zip(shape, stored.shape, strict=True)):
            # first, so that nobody reads by them what is removed next, even if this is interrupted
            refresh_consolidated(array.store, documents_format, [array.path], edit=new.get)
        return new

    seen = documents.change(array.store, documents_format, documents_format.array_keys(array.path), emitted)
    refresh_consolidated(array.store, documents_format, [array.path])
    array.store.flush()
    return _resized(_parsed(array, documents_format, seen), shape)


# --------------------------------------------------------------------------------------------------------------------
# Chunks


def _shrink(array: StoredArray, shape: tuple[int, ...]) -> None:
    """Publish a shape that is shorter, or the same, and remove what is stored outside it.

    A chunk that cannot be cut is an error before that, and the array stays as it is (P1). The document is first: a
    client that dies leaves the old array or the new one, of which what is outside is removed when it grows.
    """
    stored = _stored(array)
    after = replace(array, metadata=_resized(stored, shape))
    grid = after.write_layout.grid
    chunks = list(_stored_chunks(array))
    with _calls(array) as calls:
        for key, coords in chunks if shape != stored.shape else ():
            if not _is_outside(grid, coords) and _overhangs(grid, coords):
                calls.call(_check_can_be_cut, after, key, coords, grid)
    _publish_shape(array, stored, shape)
    with _calls(array) as calls:
        for key, coords in chunks:
            if _is_outside(grid, coords):
                calls.call(array.store.delete, key)
            elif _overhangs(grid, coords):
                calls.call(_reset, after, key, coords, grid)


def _check_can_be_cut(array: StoredArray, key: str, coords: ChunkCoords, bounds: ChunkGrid) -> None:
    value = array.store.get(key)
    if value is not None:
        _cropped(array, coords, value, bounds)


def _grow(array: StoredArray, shape: tuple[int, ...]) -> ArrayMetadata:
    """Publish a longer shape, and remove what interrupted writers left outside the old one.

    Values are removed that were there before the new shape was published: others may write to the longer array at once.
    """
    stored = _stored(array)
    before = replace(array, metadata=stored)
    grid = before.write_layout.grid
    grown = [axis for axis, (a, b) in enumerate(zip(stored.shape, shape, strict=True)) if a != b]
    left = []
    for key, coords in _stored_chunks(before):
        if _is_outside(grid, coords) or _overhangs(grid, coords, grown):
            value, version = array.store.get_versioned(key)
            # truncated ones are longer in a longer array
            changes = _is_outside(grid, coords) or stored.edge_chunks == "truncated"
            if value is not None and (changes or _holds_more(before, coords, value, grid)):
                left.append((key, coords, version))
    changed = _publish_shape(array, stored, shape)
    after = replace(array, metadata=changed)
    with _calls(array) as calls:
        for key, coords, version in left:
            calls.call(_reset, after, key, coords, grid, version)
    return changed


def _calls(array: StoredArray) -> BackgroundCalls:
    return BackgroundCalls(REQUESTS_AT_ONCE if array.store.is_remote else 0)


def _stored_chunks(array: StoredArray) -> Iterator[tuple[str, ChunkCoords]]:
    return ((key, cast("ChunkCoords", array.coords_of_key(key))) for key in list(array.stored_keys()))


def _is_outside(grid: ChunkGrid, coords: ChunkCoords) -> bool:
    return any(i >= n for i, n in zip(coords, grid.grid_shape, strict=True))


def _overhangs(grid: ChunkGrid, coords: ChunkCoords, axes: Sequence[int] | None = None) -> bool:
    """Return whether a chunk of the grid reaches past the end of one of the axes."""
    among = range(grid.ndim) if axes is None else axes
    return any(grid.axes[n].start(coords[n]) + grid.axes[n].length(coords[n]) > grid.axes[n].size for n in among)


def _holds_more(array: StoredArray, coords: ChunkCoords, value: bytes, bounds: ChunkGrid) -> bool:
    """Return whether a chunk holds other elements than the fill value outside `bounds`."""
    chunk = decode_chunk(array, array.write_layout, coords, value)
    fill = array.write_layout.spec(coords).fill_value
    extent = bounds.extent(coords)
    return any(
        not is_fill(chunk[(*(slice(None) for _ in range(axis)), slice(cut.stop, None))], fill)
        for axis, cut in enumerate(extent)
    )


_ANY: Any = object()


def _reset(array: StoredArray, key: str, coords: ChunkCoords, bounds: ChunkGrid, version: Any = _ANY) -> None:
    """Set the elements of a chunk outside `bounds` to the fill value; delete it where it is all outside.

    With a `version` only while the chunk has that: a client that wrote it since knew the new shape.
    """

    def cropped(value: bytes | None) -> bytes | None:
        return None if value is None or _is_outside(bounds, coords) else _cropped(array, coords, value, bounds)

    if version is _ANY:
        update(array.store, key, cropped)
        return
    value, found = array.store.get_versioned(key)
    if found == version and (data := cropped(value)) != value:
        swap(array.store, key, data, found)


def _cropped(array: StoredArray, coords: ChunkCoords, value: bytes, bounds: ChunkGrid) -> bytes | None:
    """Return a chunk with the fill value outside `bounds`; `value` itself where it has that already."""
    layout = array.write_layout
    if array.metadata.edge_chunks != "truncated" and not _holds_more(array, coords, value, bounds):
        return value
    chunk = np.array(decode_chunk(array, layout, coords, None))
    extent: tuple[Any, ...] = (*bounds.extent(coords), ...)
    chunk[extent] = decode_chunk(array, layout, coords, value)[extent]
    keep = not array.store.deletes_conditionally
    data = encode_chunk(array, layout, coords, chunk[layout.grid.extent(coords)], write_empty=keep)
    return None if data is None else memoryview(data).tobytes()  # of no codec it is an array


# --------------------------------------------------------------------------------------------------------------------
# Attributes


Change = Callable[[Mapping[str, JSON]], Mapping[str, JSON]]
"""Attributes as they are stored -> as they are to be."""

_Node = TypeVar("_Node", bound=StoredNode)


def merged(attributes: Mapping[str, JSON]) -> Change:
    """Return the change that sets `attributes` and keeps the others.

    Examples
    --------
    >>> merged({"b": 2})({"a": 1, "b": 1})
    {'a': 1, 'b': 2}
    """
    if attributes is None:
        raise TypeError("attributes are a dict, not None")
    check_attributes("", attributes)
    return lambda stored: {**stored, **attributes}


def without(*names: str) -> Change:
    """Return the change that deletes attributes; ``KeyError`` for one that is not stored."""

    def change(stored: Mapping[str, JSON]) -> Mapping[str, JSON]:
        if missing := sorted(set(names) - stored.keys()):
            raise KeyError(f"no attributes {missing}; there are {sorted(stored)[:20]}")
        return {name: value for name, value in stored.items() if name not in names}

    return change


def with_changed(node: _Node, change: Change) -> _Node:
    """Change the attributes of a node in its store, and return the node with those.

    Where others change them too, theirs are read and `change` is called again. Consolidated metadata follow.
    A group that is only a folder gets a document, and its place is reserved for that: others may be deleting it.

    Raises
    ------
    NodeNotFound
        The node is gone, or another one is there.
    JobError
        The group is only a folder, and a job writes it or a group above it.
    """
    store, path, is_array = node.store.uncached, node.path, isinstance(node, StoredArray)
    f = documents.format_of_store(store, node.format)
    keys = f.array_keys(path) if is_array else f.group_keys(path)
    parse, emit = cast("Any", (f.parse_array, f.emit_array) if is_array else (f.parse_group, f.emit_group))

    def changed(seen: documents.Documents, parse: Callable[..., Any]) -> Any:
        metadata = parse(path, documents.present(seen))
        if metadata is None:
            hint = "it was deleted or replaced after it was opened"
            raise NodeNotFound(url=store.url, path=path, hint=hint)
        return replace(metadata, attributes=dict(change(metadata.attributes)))

    def write(parse: Callable[..., Any]) -> _Node:
        def emitted(seen: documents.Documents) -> Mapping[str, bytes | None]:
            new = emit(path, changed(seen, parse))
            return {key: new.get(key) for key in keys}

        with store.transaction(f"change attributes of {path!r}"):
            seen = documents.change(store, f, keys, emitted)
            refresh_consolidated(store, f, [path])
        store.flush()
        return replace(node, metadata=changed(seen, parse))

    def parse_folder(path: str, found: Mapping[str, bytes]) -> GroupMetadata | None:
        return GroupMetadata() if not found and is_folder(store, f, path) else f.parse_group(path, found)

    try:
        return write(parse)
    except NodeNotFound:
        if is_array or not f.implicit_groups:
            raise
    from chunkmill.journal.lease import check_no_job, leased  # noqa: PLC0415

    # named after all others, it gives way to those that it meets, and waits for others that do the same
    with leased(store, path, f"change the attributes of {path!r} in {store.url}", run="~attributes") as own:
        check_no_job(store, path, own_run=own.run, waits=True)
        return write(parse_folder)


class PublicNode:
    """The place of a public array or group, and its attributes, which change in the store."""

    stored: StoredNode

    @property
    def store(self) -> Store:
        """The store that the node is in."""
        return self.stored.store

    @property
    def url(self) -> str:
        """Canonical url of the store."""
        return self.stored.url

    @property
    def path(self) -> str:
        """Path of the node below the root of the store, without leading slash."""
        return self.stored.path

    @property
    def format(self) -> str:
        """Name of the format, such as ``"zarr3"``."""
        return self.stored.format

    @property
    def attributes(self) -> Mapping[str, JSON]:
        """User attributes, read-only: `update_attributes` changes them."""
        return self.stored.attributes

    def update_attributes(self, attributes: Mapping[str, JSON]) -> Self:
        """Set user attributes in the store and here; others are kept, also those that others set at the same time.

        Parameters
        ----------
        attributes
            Names and values; JSON-serialisable.

        Returns
        -------
        Self
            The node itself.

        Raises
        ------
        StoreError
            The node was opened with ``mode="r"``, or the store cannot be written.
        NodeNotFound
            The node was deleted or replaced after it was opened.

        Examples
        --------
        >>> import chunkmill as cm
        >>> node = cm.create_array("memory://doc-attributes-array", shape=(4,), dtype="i4", chunks=(2,))
        >>> node.update_attributes({"units": "K"}).attributes, cm.open("memory://doc-attributes-array").attributes
        ({'units': 'K'}, {'units': 'K'})
        """
        return self._change_attributes(merged(attributes))

    def del_attributes(self, *names: str) -> Self:
        """Delete user attributes in the store and here; ``KeyError`` for one that is not there."""
        return self._change_attributes(without(*names))

    @property
    def attrs(self) -> Mapping[str, JSON]:
        """Alias of `attributes`, read-only as they are."""
        return self.attributes

    def __repr__(self) -> str:
        from chunkmill.display.nodes import node_text  # noqa: PLC0415

        return node_text(self.stored)

    def _repr_html_(self) -> str:
        from chunkmill.display.nodes import node_html  # noqa: PLC0415

        return node_html(self.stored)

    def _change_attributes(self, change: Change) -> Self:
        self.stored.check_writable()
        self.stored = with_changed(self.stored, change)
        return self
