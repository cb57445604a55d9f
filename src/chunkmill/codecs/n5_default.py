"""The `n5_default` serializer: blocks of N5 as chunks of a Zarr v3 array, in N5's order of axes.

Spec: zarr-extensions, codecs/n5_default. Datasets of N5 itself are turned round instead (`chunkmill.codecs.n5_block`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

from numpy.typing import NDArray

from chunkmill.codecs.base import Buffer, ChunkSpec, fill_array
from chunkmill.codecs.bytes import byte_view
from chunkmill.codecs.n5_block import parse_header, write_header
from chunkmill.codecs.pipeline import BuildPipeline, CodecPipeline
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["N5Default"]

_MAX_AXES = 4  # a transpose, bytes and one compressor, and no more
_DTYPES = "iuf"
_MAX_LONGER_BYTES = 1 << 24  # of a block that is longer than its chunk, as those padded at the end of an axis are


@dataclass(frozen=True, slots=True)
class N5Default:
    """Header and payload of an N5 block of the default mode."""

    payload: CodecPipeline
    name: ClassVar[str] = "n5_default"
    # what `config` gives back: the chain as it was named
    configuration: Mapping[str, JSON] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_config(cls, build_pipeline: BuildPipeline, configuration: Mapping[str, Any], spec: ChunkSpec) -> N5Default:
        """Build the codec, its ``codecs`` by `build_pipeline` (the registry's)."""
        codecs = configuration.get("codecs")
        if set(configuration) != {"codecs"} or not isinstance(codecs, Sequence) or len(codecs) >= _MAX_AXES:
            raise ValueError("expected 'codecs': a transpose, bytes and at most one compressor")
        chain = [_named(codec) for codec in codecs]
        payload = build_pipeline(chain, spec)
        order = list(range(len(spec.shape)))[::-1]
        names = [codec.name for codec in payload.filters]
        if names != ["transpose"] or list(getattr(payload.filters[0], "order", ())) != order:
            raise ValueError(f"the first of the codecs must be a transpose of order {order}")
        if payload.serializer.name != "bytes" or getattr(payload.serializer, "endian", None) not in {"big", None}:
            raise ValueError("the second of the codecs must be bytes, big endian")
        documents = [_document(c) for c in (*payload.filters, payload.serializer, *payload.compressors)]
        return cls(payload, {"codecs": documents})

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, dict(self.configuration))

    def encoded_size(self, spec: ChunkSpec) -> int | None:
        """Return the size of header and payload, or ``None`` when the payload is compressed."""
        if spec.dtype.kind not in _DTYPES or spec.dtype.name == "float16" or not spec.shape:
            raise ValueError(f"N5 has no arrays of {len(spec.shape)} axes of {spec.dtype}")
        size = self.payload.encoded_size(spec)
        return None if size is None else size + len(write_header(spec.shape))

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Return header and payload."""
        parts: list[Any] = [write_header(spec.shape[::-1]), self.payload.encode(chunk, spec)]
        return b"".join(parts)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the chunk: a block that is shorter is followed by fill values, one that is longer is cropped."""
        view = byte_view(data)
        if bytes(view[:2]) not in {b"", b"\0\0"}:
            raise ValueError(f"block mode {int.from_bytes(view[:2], 'big')}, expected 0 (default)")
        longest = tuple(max(length, _MAX_LONGER_BYTES) for length in spec.shape)
        turned, offset = parse_header(view, longest[::-1])
        shape = turned[::-1]
        n_bytes = prod(shape) * spec.dtype.itemsize
        if n_bytes > max(prod(spec.shape) * spec.dtype.itemsize, _MAX_LONGER_BYTES):
            raise ValueError(f"a block of shape {shape} for a chunk of {spec.shape}")
        if shape == spec.shape:
            return self.payload.decode(view[offset:], spec)
        block = self.payload.decode(view[offset:], ChunkSpec(shape, spec.dtype, spec.fill_value))
        chunk = fill_array(spec)
        common = tuple(slice(min(one, other)) for one, other in zip(shape, spec.shape, strict=True))
        chunk[common] = block[common]
        return chunk


def _named(codec: Any) -> NamedConfig:
    if isinstance(codec, str):
        return NamedConfig(codec)
    if not isinstance(codec, Mapping) or not isinstance(codec.get("name"), str):
        raise ValueError(f"{codec!r:.80} is not a codec")  # noqa: TRY004 - CodecFactory
    return NamedConfig(codec["name"], codec.get("configuration") or {})


def _document(codec: Any) -> dict[str, JSON]:
    config: NamedConfig = codec.config()
    return {"name": config.name, "configuration": dict(config.configuration)}
