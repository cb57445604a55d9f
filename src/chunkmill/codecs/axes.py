"""The filters that change axes: `transpose` their order, `reshape` their lengths; `zarrs.squeeze` leaves out length 1.

Spec: Zarr v3 codecs/transpose: axis ``i`` of the encoded chunk is axis ``order[i]`` of the decoded one.
zarr-extensions, codecs/reshape: the same elements in C order. zarrs 0.23, ``zarrs.squeeze``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import ChunkSpec, Configured
from chunkmill.codecs.bytes import check_members
from chunkmill.model.metadata import JSON


@dataclass(frozen=True, slots=True)
class Transpose(Configured):
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
        return cls(tuple(order))

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


@dataclass(frozen=True, slots=True)
class Reshape(Configured):
    """Give the chunk another shape.

    Attributes
    ----------
    shape
        For each axis of the encoded chunk its length, ``-1`` for the one length that is left (at most once), or the
        axes of the decoded chunk whose lengths it multiplies.
    """

    shape: tuple[int | tuple[int, ...], ...]
    name: str = "reshape"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Reshape:  # noqa: ARG003
        """Build the codec from ``{"shape": [[0, 1], 10, -1]}``."""
        shape = configuration.get("shape")
        if set(configuration) != {"shape"} or not isinstance(shape, list | tuple):
            raise ValueError(f"got {dict(configuration)!r:.200}, expected 'shape', a list")
        codec = cls(tuple(_item(each) for each in shape))
        listed = [axis for each in codec.shape if isinstance(each, tuple) for axis in each]
        if listed != sorted(set(listed)):
            raise ValueError(f"the axes {listed} are not in increasing order")
        if codec.shape.count(-1) > 1:
            raise ValueError("-1 stands for more than one length")
        return codec

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec` with the encoded shape; raises where that would have another number of elements."""
        decoded = spec.shape
        lengths: list[int] = []
        for each in self.shape:
            if isinstance(each, tuple) and not all(axis < len(decoded) for axis in each):
                raise ValueError(f"axes {list(each)} of a chunk that has {len(decoded)}")
            lengths.append(prod(decoded[axis] for axis in each) if isinstance(each, tuple) else each)
        if -1 in lengths:
            others = prod(length for length in lengths if length != -1)
            lengths[lengths.index(-1)] = prod(decoded) // max(others, 1)
        if prod(lengths) != prod(decoded):
            raise ValueError(f"shape {lengths} has not as many elements as {list(decoded)}")
        self._check_axes(lengths, decoded)
        return ChunkSpec(tuple(lengths), spec.dtype, spec.fill_value)

    def _check_axes(self, lengths: list[int], decoded: tuple[int, ...]) -> None:
        """Raise where an axis that names axes of the decoded chunk does not run along them."""
        for i, each in enumerate(self.shape):
            if isinstance(each, tuple) and each:
                first, last = each[0], each[-1]
                before, after = prod(lengths[:i]) == prod(decoded[:first]), prod(lengths[i + 1 :])
                if not before or after != prod(decoded[last + 1 :]):
                    raise ValueError(f"axis {i} of shape {lengths} does not run along {list(each)} of {list(decoded)}")

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Return `chunk` in its encoded shape; a view where the elements are in C order."""
        return chunk.reshape(self.spec_after(spec).shape)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Return `chunk` in its own shape."""
        return np.ascontiguousarray(chunk).reshape(spec.shape)


@dataclass(frozen=True, slots=True)
class Squeeze(Configured):
    """Leave out the axes of length 1."""

    name: str = "zarrs.squeeze"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Squeeze:  # noqa: ARG003
        """Build the codec; it has nothing to configure."""
        check_members(configuration, set())
        return cls()

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return `spec` without axes of length 1; a chunk of one element keeps one axis, as in zarrs."""
        shape = tuple(length for length in spec.shape if length != 1)
        return ChunkSpec(shape or (1,) * min(len(spec.shape), 1), spec.dtype, spec.fill_value)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Return `chunk` in its encoded shape."""
        return chunk.reshape(self.spec_after(spec).shape)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Return `chunk` in its own shape."""
        return np.ascontiguousarray(chunk).reshape(spec.shape)


def _item(value: JSON) -> int | tuple[int, ...]:
    if type(value) is int and (value > 0 or value == -1):
        return value
    if isinstance(value, list | tuple) and all(type(axis) is int and axis >= 0 for axis in value):
        return tuple(value)
    raise ValueError(f"{value!r:.80} in shape, expected a length, -1 or a list of axes")
