"""The `conditional` codec: compressors that each chunk passes through or not, as its first bytes say.

Spec: zarr-extensions, codecs/conditional. Which chunks are compressed is the writer's to decide: here those that get
smaller by all of the compressors, and the others by none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from chunkmill.codecs.base import Buffer, BytesBytesCodec, ChunkSpec
from chunkmill.codecs.bytes import buffer_size, byte_view, integer
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["Conditional"]

BuildCompressors: TypeAlias = Callable[[Sequence[Any], ChunkSpec], Sequence[BytesBytesCodec]]

_MAX_HEADER_BITS = 1 << 16


@dataclass(frozen=True, slots=True)
class Conditional:
    """A header of one bit for each of `compressors`, then what those whose bits are set have made of the chunk."""

    compressors: tuple[BytesBytesCodec, ...]
    header_bits: int
    name: str = "conditional"
    # what `config` gives back: the chain as it was named
    configuration: Mapping[str, JSON] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_config(
        cls, build_compressors: BuildCompressors, configuration: Mapping[str, Any], spec: ChunkSpec
    ) -> Conditional:
        """Build the codec, its ``codecs`` by `build_compressors` (the registry's)."""
        if unknown := set(configuration) - {"codecs", "header_bits"}:
            raise ValueError(f"unknown members {sorted(unknown)}")
        codecs = configuration.get("codecs")
        if not isinstance(codecs, list | tuple):
            raise ValueError(f"codecs is {codecs!r:.80}, expected a list of codecs")  # noqa: TRY004 - CodecFactory
        needed = -(-len(codecs) // 8) * 8
        bits = integer(configuration, "header_bits", needed, needed, _MAX_HEADER_BITS)
        if bits % 8:
            raise ValueError(f"header_bits is {bits}, expected a multiple of 8")
        built = tuple(build_compressors(codecs, spec))
        named = [codec.config() if hasattr(codec, "config") else None for codec in built]
        documents = [
            {"name": config.name, "configuration": dict(config.configuration)} if config is not None else unnamed
            for config, unnamed in zip(named, codecs, strict=True)
        ]
        return cls(built, bits, configuration={"codecs": documents, "header_bits": bits})

    def config(self) -> NamedConfig:
        """Name the codec as data."""
        return NamedConfig(self.name, dict(self.configuration))

    def encoded_size(self, n_bytes: int) -> int | None:
        """Return ``None``, unless there is nothing to decide."""
        return None if self.compressors else n_bytes + self.header_bits // 8

    def encode(self, data: Buffer) -> Buffer:
        """Compress `data` where that makes them smaller."""
        compressed = data
        for codec in self.compressors:
            compressed = codec.encode(compressed)
        use = buffer_size(compressed) < buffer_size(data)
        mask = (1 << len(self.compressors)) - 1 if use else 0
        return b"".join([mask.to_bytes(self.header_bits // 8, "little"), byte_view(compressed if use else data)])

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Undo the compressors whose bits are set, last first."""
        view, n_header = byte_view(data), self.header_bits // 8
        if len(view) < n_header:
            raise ValueError(f"{len(view)} bytes cannot hold a header of {n_header}")
        mask = int.from_bytes(view[:n_header], "little")
        if mask >> len(self.compressors):
            raise ValueError(f"the header {mask:#x} has bits for more than {len(self.compressors)} codecs")
        steps: list[tuple[BytesBytesCodec, int]] = []
        limit = max_bytes
        for i, codec in enumerate(self.compressors):
            if mask >> i & 1:
                steps.append((codec, limit))
                size = codec.encoded_size(limit)
                # what no compressor exceeds on incompressible data
                limit = limit + limit // 8 + 4096 if size is None else size
        out: Buffer = view[n_header:]
        for codec, most in reversed(steps):
            out = codec.decode(out, most)
        return out
