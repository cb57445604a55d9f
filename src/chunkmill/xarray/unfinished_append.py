"""Record an unfinished append in the attributes of its group while the documents of its arrays are changed.

No store changes several documents at once: a client that dies between them leaves arrays of different lengths. By the
attribute, written before the first of them and removed after the last, readers take all arrays to be as long as
before the append, and so does the next append: the same call again succeeds. Other libraries ignore it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import DatasetError
from chunkmill.formats.base import emit_json, parse_json
from chunkmill.model.metadata import HIDDEN_ATTRIBUTE, JSON, ArrayMetadata

__all__ = ["ATTRIBUTE", "UnfinishedAppend", "resized", "without_attribute"]

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
        """Return the append as the child group `name` sees it."""
        prefix = f"{name}/" if name else ""
        shapes = {path.removeprefix(prefix): shape for path, shape in self.shapes.items() if path.startswith(prefix)}
        return UnfinishedAppend(self.dim, shapes)

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
