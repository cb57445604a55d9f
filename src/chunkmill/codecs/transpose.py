"""The `transpose` filter: another order of axes.

Spec: Zarr v3 codecs/transpose. Axis ``i`` of the encoded chunk is axis ``order[i]`` of the decoded one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["Transpose"]


@dataclass(frozen=True, slots=True)
class Transpose:
    """Permute the axes. Copies nothing: what comes next reads through the strides."""

    order: tuple[int, ...]
    name: str = "transpose"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Transpose:
        """Build the codec from ``{"order": [1, 0]}``, or from ``"C"`` and ``"F"`` as the drafts had them."""
        if set(configuration) != {"order"}:
            raise ValueError(f"got the members {sorted(configuration)}, expected 'order'")
        order = configuration["order"]
        axes = range(len(spec.shape))
        if order in ("C", "F"):
            return cls(tuple(axes if order == "C" else reversed(axes)))
        if not isinstance(order, list | tuple) or not all(type(axis) is int for axis in order):
            raise ValueError(f"order is {order!r}, expected a list of axes")
        codec = cls(tuple(order))
        codec.spec_after(spec)
        return codec

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, {"order": list(self.order)})

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Permute the shape."""
        if sorted(self.order) != list(range(len(spec.shape))):
            raise ValueError(f"order {list(self.order)} is not a permutation of the {len(spec.shape)} axes")
        return ChunkSpec(tuple(spec.shape[axis] for axis in self.order), spec.dtype, spec.fill_value)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:  # noqa: ARG002
        """Return `chunk` with its axes in ``order``."""
        return chunk.transpose(self.order)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:  # noqa: ARG002
        """Return `chunk` with its axes in their first order."""
        order = self.order
        # the inverse permutation: `order` itself would do for involutions only
        return chunk.transpose(sorted(range(len(order)), key=order.__getitem__))
