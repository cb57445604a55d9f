"""Arrays of any format as Zarr v3 describes them: metadata, and the bytes of their chunks.

Bytes of chunks are passed on where Zarr v3 has their codecs; others are decoded, and sent as plain bytes. Nothing here
needs zarr-python. Not here: the store that zarr-python asks (`chunkmill.zarr_python.view`), what Zarr v3 can hold
(`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
        """Metadata, and how stored bytes become those of the chunks that it describes; ``None``: by decoding."""
        zarr3 = get_format("zarr3")
        try:
            kept = describe_target(self.array, zarr3, self.path)
            action = choose_action(self.array.metadata, kept, max_bytes=1, max_keys=1)
            if action.name in {"copy", "reframe"} and not action.materialize:
                return kept, action
        except UnsupportedFeature:  # a codec that Zarr v3 has not
            pass
        return describe_target(self.array, zarr3, self.path, shards=None, codecs="raw"), None

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
        """Return ``zarr.json``."""
        (value,) = get_format("zarr3").emit_array(self.path, self._shown[0]).values()
        return value

    def value(self, coords: tuple[int, ...], part: ByteRange | None) -> bytes | None:
        """Return the bytes of a chunk or shard; ``None`` where it is absent or outside the array."""
        metadata, action = self._shown
        grid = metadata.chunk_grid
        if len(coords) != grid.ndim or any(i >= n for i, n in zip(coords, grid.grid_shape, strict=True)):
            return None
        layout = self.array.write_layout
        if action is not None:
            stored = self.array.store.get(layout.locator.key(coords), part if self.is_passed_on else None)
            if stored is None or self.is_passed_on:
                return stored
            with chunk_step(self.array, layout, coords, "decode"):
                payload = reframed(action, layout, coords, stored)
            if payload is not None:
                return bytes(payload)
        encoder = self._encoder
        block = Array(self.array)[grid.region(coords)]
        encoded = encode_chunk(encoder, encoder.write_layout, coords, block, write_empty=False)
        return None if encoded is None else bytes(encoded)

    def chunk_keys(self) -> Iterator[str]:
        """Yield the keys, below the array, of the chunks that are stored; of all where one stored key holds several."""
        metadata, action = self._shown
        array = self.array
        stored = (array.coords_of_key(key) for key in array.stored_keys())
        for coords in metadata.chunk_grid.all_coords() if action is None else stored:
            if coords is not None:
                yield "/".join(["c", *map(str, coords)])

    def names_below(self, parts: Sequence[str]) -> Sequence[str]:
        """Return the names directly below the folder of a chunk's first coords, given as texts."""
        shape = self._shown[0].chunk_grid.grid_shape
        depth = len(parts)
        fits = depth < len(shape) and all(
            part.isdecimal() and int(part) < n for part, n in zip(parts, shape, strict=False)
        )
        return [str(i) for i in range(shape[depth])] if fits else []
