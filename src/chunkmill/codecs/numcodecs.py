"""Codecs that run in numcodecs: filters, checksums, serializers of numbers, and any that is registered there.

Names are ``numcodecs.<id>``, configurations numcodecs' own without the id. Specs: numcodecs 0.16; Zarr v2, "Filters".
Third parties' come by numcodecs' registry and its entry points.
Not here: compressors, which need bounds of their own (`chunkmill.codecs.compressors`), and the codecs of objects
(`chunkmill.codecs.vlen`).

numcodecs sees buffers, and views them as the dtype of its configuration: a delta of ``i8`` over ``M8`` is common.
Chunks are in native byte order here, so the codecs are built with native dtypes; the byte order of storage belongs to
the serializer.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.base import PREFIX, Buffer, ChunkSpec, Configured, Memo, refuse_pickle
from chunkmill.codecs.bytes import buffer_size, byte_view
from chunkmill.codecs.zfp import ZFP_HEADER, longest_stream
from chunkmill.errors import UnknownCodec
from chunkmill.model.metadata import JSON

# where a filter's configuration says what goes in and what comes out
_TYPED = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
}
_CHECKSUMS = {"crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"}
_CHECKSUM_SIZE = 4
_EXTRAS = {"pcodec", "zfpy", "msgpack2"}
_IMAGECODECS = "imagecodecs_"


def _codec_id(name: str) -> str:
    return name.removeprefix(PREFIX)


def build_numcodecs(name: str, configuration: Mapping[str, JSON]) -> Any:
    """Return the codec object of numcodecs."""
    import numcodecs.registry  # noqa: PLC0415 - slow to import
    from numcodecs.abc import Codec  # noqa: PLC0415
    from numcodecs.pickles import Pickle  # noqa: PLC0415

    refuse_pickle(name)
    codec_id = _codec_id(name)
    try:
        codec = numcodecs.registry.get_codec({**configuration, "id": codec_id})
    except numcodecs.errors.UnknownCodecError:
        ids = {*numcodecs.registry.codec_registry, *numcodecs.registry.entries} - {"pickle"}
        known = tuple(PREFIX + each for each in sorted(ids) if not each.startswith(_IMAGECODECS))  # of which are 60
        reason = "pip install 'chunkmill[codecs]'" if codec_id in _EXTRAS else "numcodecs has none of that id"
        if codec_id.startswith(_IMAGECODECS):  # tifffile's and VirtualiZarr's reference sets name them
            reason = "imagecodecs has it (pip install imagecodecs): call imagecodecs.numcodecs.register_codecs() first"
        raise UnknownCodec(name=name, known=known, reason=reason) from None
    except TypeError as error:  # a member that the codec's __init__ does not take
        raise ValueError(str(error)) from error
    if isinstance(codec, Pickle) or not isinstance(codec, Codec):
        refuse_pickle("pickle")
    return codec


def native_dtype(value: JSON, fallback: np.dtype[Any]) -> np.dtype[Any]:
    """Return the native dtype that a configuration names."""
    if value is None:
        return fallback
    try:
        dtype = np.dtype(value)
    except TypeError as error:
        raise ValueError(f"{value!r} is not a dtype") from error
    if dtype.hasobject:
        raise ValueError(f"{value!r} is not a dtype of numbers")
    return dtype.newbyteorder("=")


@dataclass(frozen=True, slots=True)
class InNumcodecs(Memo, Configured):
    """A codec that runs in numcodecs, whose configuration it has."""

    name: str
    configuration: Mapping[str, JSON] = field(hash=False)

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Self:  # noqa: ARG003
        """Build the codec; fails where the configuration is wrong, or the package is missing."""
        found = cls(name, dict(configuration))
        found.codec()
        return found

    def codec(self) -> Any:
        """Return the object of numcodecs."""
        if (codec := self.recall()) is None:
            self.remember(codec := build_numcodecs(self.name, self._native()))
        return codec

    def _native(self) -> Mapping[str, JSON]:
        return self.configuration


@dataclass(frozen=True, slots=True)
class NumcodecsFilter(InNumcodecs):
    """`delta`, `fixedscaleoffset`, `quantize`, `astype`, `packbits`, and filters of third parties."""

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> NumcodecsFilter:
        """Build the codec; dtypes that the configuration lacks are the spec's."""
        if keys := _TYPED.get(_codec_id(name)):
            before, after = keys
            decoded = configuration.get(before) or spec.dtype.str
            configuration = {**configuration, before: decoded, after: configuration.get(after) or decoded}
        return super(NumcodecsFilter, cls).from_named(name, configuration, spec)

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec with the encoded dtype; bits are packed into a flat chunk."""
        codec_id = _codec_id(self.name)
        if codec_id == "packbits":
            if spec.dtype != np.bool:
                raise ValueError(f"packbits needs booleans, not {spec.dtype}")
            return ChunkSpec((1 + -(-prod(spec.shape) // 8),), np.dtype(np.uint8), None)
        if keys := _TYPED.get(codec_id):
            decoded, encoded = (native_dtype(self.configuration.get(key), spec.dtype) for key in keys)
            n_parts, rest = divmod(spec.dtype.itemsize, decoded.itemsize)
            if spec.dtype.hasobject or spec.dtype.kind == "T" or rest or not n_parts:
                raise ValueError(f"{codec_id} of {decoded} cannot apply to {spec.dtype}")
            shape = spec.shape if n_parts == 1 else (*spec.shape, n_parts)  # numcodecs views the buffer
            return ChunkSpec(shape, encoded, spec.fill_value if encoded == spec.dtype else None)
        return spec

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Run numcodecs' encode over the flat chunk."""
        return self._run(self.codec().encode, chunk, self.spec_after(spec))

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Run numcodecs' decode over the flat chunk."""
        return self._run(self.codec().decode, chunk, spec)

    def _run(self, function: Any, chunk: NDArray[Any], result: ChunkSpec) -> NDArray[Any]:
        flat = np.ascontiguousarray(chunk).reshape(-1)
        with np.errstate(all="ignore"):  # NaN into integers, overflow: the filter's bargain, not news
            out = np.asarray(function(flat)).reshape(-1)
        if out.dtype != result.dtype:
            out = out.view(result.dtype)
        if out.size != prod(result.shape):
            raise ValueError(f"{out.size} elements, expected {prod(result.shape)}")
        return out.reshape(result.shape)

    def _native(self) -> Mapping[str, JSON]:
        typed = _TYPED.get(_codec_id(self.name), ())
        own = {key: native_dtype(self.configuration[key], np.dtype(np.uint8)).str for key in typed}
        return {**self.configuration, **own}


@dataclass(frozen=True, slots=True)
class Categorize(Configured):
    """`categorize`: strings as numbers of labels, from 1 on; 0 is the empty string and every unknown one."""

    labels: tuple[str, ...]
    dtype: str
    astype: str
    name: str = "numcodecs.categorize"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Categorize:
        """Build the codec from ``labels``, ``dtype`` and ``astype``."""
        labels = configuration.get("labels")
        if not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"labels are {labels!r}, expected strings")
        dtype = configuration.get("dtype") or ("|O" if spec.dtype.kind == "T" else spec.dtype.str)
        return cls(tuple(labels), str(dtype), str(configuration.get("astype") or "|u1"))

    def spec_after(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec with the labels' dtype."""
        encoded = native_dtype(self.astype, np.dtype(np.uint8))
        if spec.dtype.kind not in "OTU" or encoded.kind not in "iu":
            raise ValueError(f"categorize makes integers of strings, not {encoded} of {spec.dtype}")
        return ChunkSpec(spec.shape, encoded, None)

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Return the numbers of the labels."""
        after = self.spec_after(spec)
        if len(self.labels) > np.iinfo(after.dtype).max:
            raise ValueError(f"{len(self.labels)} labels do not fit {after.dtype}")
        # numcodecs lets the last of equal labels win
        numbers = {label: number for number, label in enumerate(self.labels, 1)}
        values = (numbers.get(value, 0) for value in np.ascontiguousarray(chunk).reshape(-1).tolist())
        return np.fromiter(values, after.dtype, chunk.size).reshape(chunk.shape)

    def decode(self, chunk: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Return the labels."""
        table = np.array(["", *self.labels], dtype=object).astype(spec.dtype)
        known = (chunk >= 0) & (chunk < len(table))
        return table[np.where(known, chunk, 0).astype(np.intp)].reshape(spec.shape)


@dataclass(frozen=True, slots=True)
class NumcodecsBytes(InNumcodecs):
    """Checksums, `shuffle`, `base64`, and bytes -> bytes codecs of third parties."""

    @classmethod
    def from_named(cls, name: str, configuration: Mapping[str, JSON], spec: ChunkSpec) -> NumcodecsBytes:
        """Build the codec; a shuffle that does not say its element size has the dtype's."""
        if _codec_id(name) == "shuffle" and configuration.get("elementsize") is None:
            configuration = {**configuration, "elementsize": max(spec.dtype.itemsize, 1)}
        return super(NumcodecsBytes, cls).from_named(name, configuration, spec)

    def encoded_size(self, n_bytes: int) -> int | None:
        """Return the size where the id tells it."""
        codec_id = _codec_id(self.name)
        if codec_id in _CHECKSUMS:
            return n_bytes + _CHECKSUM_SIZE
        if codec_id == "base64":
            return 4 * -(-n_bytes // 3)
        return n_bytes if codec_id == "shuffle" else None

    def encode(self, data: Buffer) -> Buffer:
        """Run numcodecs' encode over flat bytes."""
        return self.codec().encode(_flat(data))  # type: ignore[no-any-return]

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Run numcodecs' decode; what the codecs of third parties allocate is up to them."""
        size = buffer_size(data)
        if _codec_id(self.name) in _CHECKSUMS and size < _CHECKSUM_SIZE + (self.name == "numcodecs.fletcher32"):
            raise ValueError(f"{size} bytes cannot hold data and a checksum of {_CHECKSUM_SIZE}")
        if self.name == "numcodecs.base64":  # numcodecs would pass over whatever is none
            out: Buffer = base64.b64decode(byte_view(data), validate=True)
        else:
            out = self.codec().decode(_flat(data))
        if isinstance(out, np.ndarray) and out.dtype.hasobject:
            # kerchunk's fill_hdf_strings; zarr-python 3 turns the objects into text, None into "None"
            raise ValueError(f"{self.name} returned Python objects ({out.dtype}), expected bytes")
        if (size := buffer_size(out)) > max_bytes:
            raise ValueError(f"{size} bytes, expected at most {max_bytes}")
        return out


def _flat(data: Buffer) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


@dataclass(frozen=True, slots=True)
class NumcodecsNumbers(InNumcodecs):
    """`pcodec` and `zfpy`: serializers of numbers that compress."""

    def encoded_size(self, spec: ChunkSpec) -> None:
        """Return ``None``; raises where the dtype holds no numbers."""
        if spec.dtype.kind not in "iuf":
            raise ValueError(f"{self.name} needs numbers, not {spec.dtype}")

    def encode(self, chunk: NDArray[Any], spec: ChunkSpec) -> Buffer:  # noqa: ARG002
        """Run numcodecs' encode."""
        return self.codec().encode(np.ascontiguousarray(chunk))  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode into an array of the expected size; a stream of more or fewer numbers raises."""
        return (_unpco if self.name == "numcodecs.pcodec" else _unzfp)(data, spec)


def _unpco(data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
    standalone = importlib.import_module("pcodec.standalone")
    out = np.empty(prod(spec.shape), spec.dtype)
    progress = standalone.simple_decompress_into(bytes(data), out)
    if progress.n_processed != out.size or not progress.finished:
        raise ValueError(f"the stream does not hold {out.size} numbers")
    return out.reshape(spec.shape)


def _unzfp(data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
    zfpy = importlib.import_module("zfpy")
    stream = bytes(data).ljust(ZFP_HEADER, b"\0")
    header = zfpy.header(stream)  # states the size: compared before it is allocated
    shape = tuple(int(header[axis]) for axis in ("nw", "nz", "ny", "nx") if header[axis])
    if prod(shape) != prod(spec.shape):
        raise ValueError(f"the stream states {prod(shape)} numbers, expected {prod(spec.shape)}")
    longest = longest_stream(shape, np.dtype(header["type"]), int(header["config"]["expert"]["minbits"]))
    # zfp reads as far as its blocks go, whatever the stream holds
    out: NDArray[Any] = zfpy.decompress_numpy(stream.ljust(longest + ZFP_HEADER, b"\0"))
    return out.reshape(spec.shape)
