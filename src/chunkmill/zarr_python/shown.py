"""Arrays of any format as Zarr v3 describes them: metadata, and the bytes of their chunks.

Bytes of chunks are passed on where Zarr v3 has their codecs; others are decoded, and sent as plain bytes. Nothing here
needs zarr-python. Not here: the store that zarr-python asks (`chunkmill.zarr_python.view`), what Zarr v3 can hold
(`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from chunkmill.array.chunk_io import encode_chunk
from chunkmill.array.stored_array import StoredArray, chunk_step
from chunkmill.conversion.actions import ChosenAction, choose_action
from chunkmill.conversion.convert_tasks import reframed
from chunkmill.conversion.target_metadata import describe_target
from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array
from chunkmill.stores.base import ByteRange
from chunkmill.stores.memory import MemoryStore

__all__ = ["ShownArray"]


@dataclass(frozen=True)
class ShownArray:
    """An array, and the metadata by which it is shown."""

    array: StoredArray
    path: str

    @cached_property
    def _shown(self) -> tuple[ArrayMetadata, ChosenAction | None]:
        """Metadata, and how stored bytes become those of the chunks that it describes; ``None``: by decoding.

        Chunks are shown by the default keys, ``c/0/0``, whichever the array has.
        """
        zarr3 = get_format("zarr3")
        try:
            kept = describe_target(self.array, zarr3, self.path)
            action = choose_action(self.array.metadata, kept, max_bytes=1, max_keys=1)
            if action.name in {"copy", "reframe"} and not action.materialize:
                return replace(kept, chunk_keys=zarr3.default_chunk_keys), action
        except UnsupportedFeature:  # a codec that Zarr v3 has not
            pass
        decoded = describe_target(self.array, zarr3, self.path, shards=None, codecs="raw")
        return replace(decoded, chunk_keys=zarr3.default_chunk_keys), None

    @property
    def is_passed_on(self) -> bool:
        """True where ranges of stored values are ranges of what is shown."""
        action = self._shown[1]
        return action is not None and action.name == "copy"

    @cached_property
    def _encoder(self) -> StoredArray:
        """The array as it is shown, in a store that is never written to."""
        return StoredArray(MemoryStore(), "", self._shown[0], "zarr3", "")

    def document(self) -> bytes:
        """Return ``zarr.json``, in which structured types have the name that every zarr-python 3 reads."""
        metadata = replace(self._shown[0], struct_name="structured")
        (value,) = get_format("zarr3").emit_array(self.path, metadata).values()
        return value

    @cached_property
    def _has_own_keys(self) -> bool:
        """True where each chunk that is shown has a store key: not where shards are decoded."""
        metadata, action = self._shown
        return action is not None or metadata.chunk_grid == self.array.write_layout.grid

    def _is_inside(self, coords: tuple[int, ...]) -> bool:
        shape = self._shown[0].chunk_grid.grid_shape
        return len(coords) == len(shape) and all(i < n for i, n in zip(coords, shape, strict=True))

    def size(self, coords: tuple[int, ...]) -> int | None:
        """Return the bytes of a chunk that is passed on, of another one as stored; ``None`` where it is absent."""
        if not self._is_inside(coords):
            return None
        if not self._has_own_keys:
            value = self.value(coords, None)
            return None if value is None else len(value)
        return self.array.store.size(self.array.write_layout.locator.key(coords))

    def value(self, coords: tuple[int, ...], part: ByteRange | None) -> bytes | None:
        """Return the bytes of a chunk or shard; ``None`` where it is absent or outside the array."""
        if not self._is_inside(coords):
            return None
        metadata, action = self._shown
        layout = self.array.write_layout
        if action is not None:
            stored = self.array.store.get(layout.locator.key(coords), part if self.is_passed_on else None)
            if stored is None or self.is_passed_on:
                return stored
            with chunk_step(self.array, layout, coords, "decode"):
                payload = reframed(action, layout, coords, stored)
            if payload is not None:
                return bytes(payload)
        elif self._has_own_keys and self.size(coords) is None:
            return None
        encoder = self._encoder
        block = Array(self.array)[metadata.chunk_grid.region(coords)]
        encoded = encode_chunk(encoder, encoder.write_layout, coords, block, write_empty=self._has_own_keys)
        return None if encoded is None else bytes(encoded)

    def chunk_keys(self) -> Iterator[str]:
        """Yield the keys, below the array, of the chunks that are stored."""
        array = self.array
        if self._has_own_keys:
            found = (array.coords_of_key(key) for key in array.stored_keys())
            stored: Iterator[tuple[int, ...]] = (each for each in found if each is not None and self._is_inside(each))
        else:
            every = self._shown[0].chunk_grid.all_coords()
            stored = (coords for coords in every if self.size(coords) is not None)
        return ("/".join(["c", *map(str, coords)]) for coords in stored)
