"""Publish the documents of a dataset: arrays first, then groups, consolidated metadata last (P5).

Each document is written only while it is what this write has seen. Nodes are listed only where consolidated metadata
are created for a store that had none.

No store changes several documents at once: a client that dies between them leaves arrays of different lengths. So an
append is recorded in an attribute of its group, written before the first of them and removed after the last: by it,
readers take all arrays to be as long as before the append, and so does the next append. Other libraries ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import BackgroundCalls
from chunkmill.errors import DatasetError, UnsupportedFeature
from chunkmill.formats.base import Format, emit_json, parse_json
from chunkmill.journal.lease import leased
from chunkmill.model.grid import ChunkCoords
from chunkmill.model.metadata import HIDDEN_ATTRIBUTE, JSON, ArrayMetadata, GroupMetadata
from chunkmill.nodes import documents, opening
from chunkmill.nodes.documents import refresh_consolidated
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.nodes.target import Target
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store

Attributes = Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class Growth:
    """An array that an append makes longer.

    Attributes
    ----------
    path
        In the store.
    seen
        Metadata as they were read; longer than `before` where the same append was interrupted.
    before, after
        Its shape.
    """

    path: str
    seen: ArrayMetadata
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """Documents of one write: those of a new group, of additions to a group, or of an append.

    Attributes
    ----------
    path
        Of the group that is written, in the store.
    consolidated
        As in `write_dataset`.
    """

    store: Store
    documents_format: Format
    path: str
    consolidated: bool | None

    def __post_init__(self) -> None:
        if self.consolidated and self.documents_format.consolidated_key("") is None:
            raise UnsupportedFeature(format=self.documents_format.name, feature="consolidated metadata")

    def publish(self, target: Target | None, attributes: Mapping[str, Attributes]) -> None:
        """Make new nodes visible, those of a new group with it, and add attributes to groups.

        Parameters
        ----------
        target
            The new nodes; ``None`` where there are none.
        attributes
            Path of an existing group -> attributes that the write adds.
        """
        written: list[str] = []
        if target is not None:
            written = target.publish(consolidates=not self.path and self.consolidated is not False)
        for path, added in attributes.items():
            self._change_attributes(path, partial(merged_attributes, added=added))
        refresh_consolidated(self.store, self.documents_format, attributes)
        # every commit of others would conflict with it in a store of transactions
        has_consolidated = self.consolidated is not False and not self.store.has_transactions
        is_new_root = bool(self.path) and self.documents_format.group_keys("")[0] in written
        self._consolidate(is_needed=is_new_root and has_consolidated)
        self.store.flush()

    def append(self, dim: str, growth: Sequence[Growth], seen: Mapping[str, UnfinishedAppend]) -> None:
        """Make appended elements visible: all arrays at once to readers that know of unfinished appends."""
        if not growth:
            return
        self.check_unchanged(growth, seen)
        pending = self._pending(dim, growth)
        for path, append in pending.items():  # the group of the write first: its attribute counts for all below it
            self._change_attributes(path, partial(_marked, append=append))
        with BackgroundCalls(REQUESTS_AT_ONCE if self.store.is_remote else 0) as calls:
            for each in growth:
                calls.call(self._grow, each)
        paths = [*(each.path for each in growth), *pending]
        for path in reversed(pending):
            if path != self.path:
                self._change_attributes(path, _unmarked)
        refresh_consolidated(self.store, self.documents_format, paths, edit=without_attribute)
        self._change_attributes(self.path, _unmarked)
        self._consolidate(is_needed=False)
        self.store.flush()

    def _pending(self, dim: str, growth: Sequence[Growth]) -> dict[str, UnfinishedAppend]:
        """Return the attribute of each group: of the written one for all arrays, of others for their own."""
        before, after = ({each.path: getattr(each, end) for each in growth} for end in ("before", "after"))
        whole, groups = UnfinishedAppend(dim, before, after), (each.path.rpartition("/")[0] for each in growth)
        return {path: whole.below(path) for path in dict.fromkeys([self.path, *groups])}

    def check_unchanged(self, growth: Sequence[Growth], seen: Mapping[str, UnfinishedAppend]) -> None:
        """Raise `DatasetError` where another append was published since this one was planned.

        Parameters
        ----------
        growth
            Arrays that are made longer.
        seen
            Path of a group -> the unfinished append that was marked there.
        """
        documents_format = self.documents_format
        keys = [key for each in growth for key in documents_format.array_keys(each.path)]
        keys += [key for path in seen for key in documents_format.group_keys(path)]
        found = documents.present(documents.fetch(self.store, keys))
        for each in growth:
            stored = documents_format.parse_array(each.path, found)
            if stored is None or stored.identity != each.seen.identity:
                raise self._changed(each)
        for path, append_state in seen.items():
            group = documents_format.parse_group(path, found) or GroupMetadata()
            if UnfinishedAppend.of(group.attributes) != append_state:
                raise self._changed(growth[0])

    def _changed(self, growth: Growth) -> DatasetError:
        reason = "was changed or replaced by others while elements were appended, which are not visible"
        return DatasetError(variable=growth.path, url=self.store.url, reason=reason, hint="append them again")

    def _grow(self, growth: Growth) -> None:
        documents_format, path = self.documents_format, growth.path
        keys = documents_format.array_keys(path)
        known = {growth.seen.identity, resized(growth.seen, growth.after).identity}

        def grown(seen: documents.Documents) -> Mapping[str, bytes | None]:
            stored = documents_format.parse_array(path, documents.present(seen))
            if stored is None or stored.identity not in known:
                raise self._changed(growth)
            return documents_format.emit_array(path, resized(stored, growth.after))

        documents.change(self.store, documents_format, keys, grown)

    def _change_attributes(self, path: str, change: Callable[[Attributes], Attributes]) -> None:
        """Change the attributes of a group, also while others change them; consolidated metadata stay the same."""

        def changed(seen: documents.Documents) -> Mapping[str, bytes | None]:
            group = self.documents_format.parse_group(path, documents.present(seen)) or GroupMetadata()
            attributes = change(group.attributes)
            is_same = attributes == group.attributes
            return {} if is_same else self.documents_format.emit_group(path, GroupMetadata(attributes))

        documents.change(self.store, self.documents_format, self.documents_format.group_keys(path), changed)

    def _consolidate(self, *, is_needed: bool) -> None:
        """Create consolidated metadata at the root where they are missing, if `is_needed` or asked for."""
        key = self.documents_format.consolidated_key("")
        if key is None or not (is_needed or self.consolidated):
            return
        value = self.store.get(key)
        if value is not None and self.documents_format.parse_consolidated("", value) is not None:
            return
        root = open_stored(self.store, "", consolidated=False)
        if isinstance(root, StoredGroup):
            opening.consolidate(self.store, root)


def end_dead_append(store: Store, path: str, past_end: Iterable[tuple[str, ChunkCoords, str]]) -> bool:
    """End an append to the group at `path` whose client has died (P8), and return whether it has ended.

    Where it was being published, it is rolled forward, as far as its record says how. Otherwise what it has written
    past the end of arrays is deleted.

    Parameters
    ----------
    past_end
        Path of the array, chunk and store key of what may be stored past an end.

    Raises
    ------
    JobError, DatasetError
        Another client appends there, or has changed an array since.
    """
    with leased(store, path, f"repair an append to {path!r} in {store.url}", scope="append"):
        group = open_stored(store, path, consolidated=False)
        append = UnfinishedAppend.of(group.metadata.attributes)
        if append.dim and isinstance(group, StoredGroup):
            if append.after.keys() != append.shapes.keys():
                return False
            growth = [
                Growth(array.path, array.metadata, before, append.after[name])
                for name, before in append.shapes.items()
                if isinstance(array := group[name], StoredArray)
            ]
            Publication(store, group.documents, path, None).append(append.dim, growth, {path: append})
        for array_path, chunks in groupby(past_end, lambda each: each[0]):
            array = open_stored(store, array_path, consolidated=False)
            shape = array.metadata.chunk_grid.grid_shape if isinstance(array, StoredArray) else ()
            for _, coords, key in chunks:
                if any(i >= n for i, n in zip(coords, shape, strict=False)):
                    store.delete(key)
    return True


def merged_attributes(stored: Attributes, added: Attributes) -> dict[str, JSON]:
    """Return attributes of a group with those of a dataset added; ``coordinates`` is the union of names.

    Examples
    --------
    >>> merged_attributes({"a": 1, "coordinates": "x y"}, {"a": 2, "coordinates": "z x"})
    {'a': 2, 'coordinates': 'x y z'}
    """
    merged = {**stored, **added}
    both = {str(attributes.get("coordinates", "")) for attributes in (stored, added)}
    if coordinates := sorted({name for names in both for name in names.split()}):
        merged["coordinates"] = " ".join(coordinates)
    return merged


def _marked(stored: Attributes, append: UnfinishedAppend) -> Attributes:
    return {**stored, ATTRIBUTE: append.to_json()}


def _unmarked(stored: Attributes) -> Attributes:
    return {name: value for name, value in stored.items() if name != ATTRIBUTE}


# --------------------------------------------------------------------------------------------------------------------
# Record of an unfinished append

ATTRIBUTE = HIDDEN_ATTRIBUTE
"""Name of the attribute of a group that records an unfinished append to arrays in it and below it."""


@dataclass(frozen=True, slots=True)
class UnfinishedAppend:
    """An append whose documents may have been published in part.

    Attributes
    ----------
    dim
        Name of the dimension.
    shapes
        Path of each array, relative to the group with the attribute -> its shape before the append.
    after
        Likewise, its shape after it; empty where the attribute does not say it.

    Examples
    --------
    >>> append = UnfinishedAppend("t", {"v": (5, 4), "below/w": (5,)})
    >>> UnfinishedAppend.of({ATTRIBUTE: append.to_json()}) == append, append.below("below").shapes
    (True, {'w': (5,)})
    """

    dim: str
    shapes: Mapping[str, tuple[int, ...]]
    after: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, attributes: Mapping[str, JSON]) -> UnfinishedAppend:
        """Return the append that attributes of a group record; one without arrays where there is none."""
        match attributes.get(ATTRIBUTE):
            case {"dim": str(dim), "shapes": dict(shapes), **more}:
                return cls(dim, _shapes(shapes), _shapes(more.get("after")))
        return cls("", {})

    def to_json(self) -> JSON:
        """Return the value of the attribute."""
        shapes, after = ({name: list(shape) for name, shape in each.items()} for each in (self.shapes, self.after))
        return {"dim": self.dim, "shapes": shapes, **({"after": after} if after else {})}

    def below(self, name: str) -> UnfinishedAppend:
        """Return the append as the group `name` below sees it."""
        prefix = f"{name}/" if name else ""
        ends = self.shapes.items(), self.after.items()
        own = ({p.removeprefix(prefix): shape for p, shape in each if p.startswith(prefix)} for each in ends)
        return UnfinishedAppend(self.dim, *own)

    def joined(self, inner: UnfinishedAppend) -> UnfinishedAppend:
        """Return this append, which a group above records, with that of the group itself."""
        return UnfinishedAppend(self.dim or inner.dim, {**inner.shapes, **self.shapes})

    def arrays_before(self, arrays: Mapping[str, StoredArray]) -> dict[str, StoredArray]:
        """Return arrays of one group as they were before the append."""
        return {name: self._before(name, array) if name in self.shapes else array for name, array in arrays.items()}

    def _before(self, name: str, array: StoredArray) -> StoredArray:
        shape = self.shapes[name]
        # another shape than an append makes is a newer array's
        if len(shape) != array.ndim or not all(a <= b for a, b in zip(shape, array.shape, strict=True)):
            return array
        return array if shape == array.shape else replace(array, metadata=resized(array.metadata, shape))

    def check_repeated(self, dim: str, paths: Iterable[str], url: str) -> None:
        """Raise `DatasetError` unless an append along `dim` to arrays at `paths` covers all arrays of this one."""
        if not self.shapes or (dim == self.dim and self.shapes.keys() <= set(paths)):
            return
        reason = f"an append along {self.dim!r} to {', '.join(map(repr, sorted(self.shapes)))} was interrupted"
        raise DatasetError(variable="", url=url, reason=reason, hint="repeat it before you append anything else")


def _shapes(stored: Any) -> dict[str, tuple[int, ...]]:
    lists = {name: s for name, s in stored.items() if isinstance(s, list)} if isinstance(stored, dict) else {}
    return {name: tuple(s) for name, s in lists.items() if all(type(n) is int and n >= 0 for n in s)}


def resized(metadata: ArrayMetadata, shape: Iterable[int]) -> ArrayMetadata:
    """Return the metadata of an array with another shape and the same chunks.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-resized", shape=(5,), dtype="i4", chunks=((2, 3),))
    >>> resized(a.metadata, (9,)).chunk_grid.dask_chunks
    ((2, 3, 3, 1),)
    """
    return replace(metadata, chunk_grid=metadata.chunk_grid.resized(tuple(shape)))


def without_attribute(key: str, document: bytes) -> bytes:
    """Return the document of a group without the attribute."""
    if ATTRIBUTE.encode() not in document:
        return document
    members = parse_json(key, document)
    for holder in (members, members.get("attributes")):
        if isinstance(holder, dict):
            holder.pop(ATTRIBUTE, None)
    return emit_json(key, members)
