"""What every codec must do, seen through a pipeline. A subclass per codec gives `chain` and `arrays`."""

from __future__ import annotations

import pickle
import tracemalloc
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import pytest

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.registry import build_pipeline, parse_named_config
from chunkmill.errors import CodecError


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


LITTLE, BIG = codec("bytes", endian="little"), codec("bytes", endian="big")


def spec_of(array, fill_value=None):
    return ChunkSpec(array.shape, array.dtype, fill_value)


def pipeline_of(chain, spec):
    return build_pipeline([parse_named_config(codec) for codec in chain], spec)


def same(a, b):
    """Equal in shape, dtype and, where there are bits, bit for bit."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.hasobject or a.dtype.kind == "T":
        return all(np.array_equal(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
    return a.tobytes() == b.tobytes()


NUMBERS = [
    np.arange(24, dtype="i4").reshape(2, 3, 4), np.array([[0.0, -0.0, np.nan, np.inf]], "f8"), np.zeros((0, 3), "u2"),
    np.array(7, "i8"),
    np.arange(50, dtype="u1").reshape(5, 10)[:, ::3],  # neither in C nor in F order
    np.asfortranarray(np.arange(12, dtype="f4").reshape(3, 4)),
]  # fmt: skip


class CodecContract:
    chain: ClassVar[list[Any]]
    arrays: ClassVar[list[np.ndarray[Any, Any]]] = NUMBERS
    frozen: ClassVar[list[tuple[Any, str]]] = []  # array, its bytes in hex, written by hand or by another library
    reproduces: ClassVar[bool] = True  # whether the frozen bytes are what we write, too
    fixed_size: ClassVar[bool] = False
    exact: ClassVar[bool] = True
    detects: ClassVar[bool] = True  # whether every truncated or extended encoding is refused

    def cases(self):
        assert self.arrays
        for array in self.arrays:
            spec = spec_of(array)
            yield array, spec, pipeline_of(self.chain, spec)

    def test_round_trip(self):
        for array, spec, pipeline in self.cases():
            decoded = pipeline.decode(bytes(pipeline.encode(array, spec)), spec)
            assert decoded.shape == array.shape
            assert decoded.dtype == array.dtype
            if self.exact:
                assert same(decoded, array)

    def test_encoding_is_deterministic_and_leaves_the_chunk_alone(self):
        for array, spec, pipeline in self.cases():
            before = array.copy()
            first = bytes(pipeline.encode(array, spec))
            assert bytes(pipeline_of(self.chain, spec).encode(array, spec)) == first
            assert same(array, before)

    def test_any_buffer_is_decoded(self):
        for array, spec, pipeline in self.cases():
            encoded = bytes(pipeline.encode(array, spec))
            decoded = pipeline.decode(encoded, spec)
            for buffer in (bytearray(encoded), memoryview(encoded), np.frombuffer(encoded, "u1")):
                assert same(pipeline.decode(buffer, spec), decoded)

    def test_where_a_chunk_is_put_changes_nothing(self):
        for array, spec, pipeline in self.cases():
            if array.dtype.hasobject or array.dtype.kind == "T":
                continue
            encoded = bytes(pipeline.encode(array, spec))
            decoded = pipeline.decode(encoded, spec)
            contiguous = np.empty(spec.shape, spec.dtype)
            strided = np.empty((*spec.shape, 2), spec.dtype)[..., 0]
            for out in (contiguous, strided):
                assert same(pipeline.decode(encoded, spec, out), decoded)
            if self.detects and encoded:
                with pytest.raises(CodecError):
                    pipeline.decode(encoded[: len(encoded) // 2], spec, contiguous)

    def test_configuration_round_trip(self):
        for array, spec, pipeline in self.cases():
            codecs = (*pipeline.filters, pipeline.serializer, *pipeline.compressors)
            again = build_pipeline([codec.config() for codec in codecs], spec)
            assert again == pipeline
            assert bytes(again.encode(array, spec)) == bytes(pipeline.encode(array, spec))

    def test_pickles_small_and_equal_even_after_use(self):
        for array, spec, pipeline in self.cases():
            fresh = pickle.dumps(pipeline)
            pipeline.decode(pipeline.encode(array, spec), spec)
            assert pickle.dumps(pipeline) == fresh
            assert len(fresh) < 2000
            assert pickle.loads(fresh) == pipeline

    def test_encoded_size_is_true(self):
        for array, spec, pipeline in self.cases():
            size = pipeline.encoded_size(spec)
            assert (size is not None) == self.fixed_size
            if size is not None:
                assert len(bytes(pipeline.encode(array, spec))) == size

    def test_frozen_bytes(self):
        for array, text in self.frozen:
            spec = spec_of(array)
            pipeline = pipeline_of(self.chain, spec)
            assert same(pipeline.decode(bytes.fromhex(text), spec), array)
            if self.reproduces:
                assert bytes(pipeline.encode(array, spec)).hex() == text.replace(" ", "")

    def test_truncated_and_extended_data_raise(self):
        if not self.detects:
            return
        for array, spec, pipeline in self.cases():
            encoded = bytes(pipeline.encode(array, spec))
            half = encoded[: len(encoded) // 2]
            for broken in {b"", half, encoded[:-1], encoded + b"x", encoded + encoded[:5] + b"x"}:
                if broken != encoded:
                    with pytest.raises(CodecError):
                        pipeline.decode(broken, spec)

    def test_flipped_bytes_raise_or_keep_the_shape(self):
        for array, spec, pipeline in self.cases():
            encoded = bytes(pipeline.encode(array, spec))
            for i in range(0, len(encoded), max(1, len(encoded) // 50)):
                broken = bytearray(encoded)
                broken[i] ^= 0xFF
                try:
                    decoded = pipeline.decode(bytes(broken), spec)
                except CodecError:
                    continue
                assert decoded.shape == array.shape

    def test_noise_ends_in_a_codec_error_within_bounds(self):
        rng = np.random.default_rng(0)
        tracemalloc.start()
        try:
            for _, spec, pipeline in self.cases():
                for n in (1, 4, 16, 200):
                    noise = rng.bytes(n)
                    try:
                        pipeline.decode(noise, spec)
                    except CodecError as error:
                        assert error.codec  # noqa: PT017
                    assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def contract(chain, arrays, frozen=(), *, package=None, **members):
    """Return the contract of a chain; `frozen` may be the bytes of the first array alone."""
    frozen = [(arrays[0], frozen)] if isinstance(frozen, str) else frozen
    marks = [pytest.mark.skipif(package is not None and find_spec(package) is None, reason=f"{package} is not there")]
    members |= {"chain": chain, "arrays": arrays, "frozen": frozen, "pytestmark": marks}
    return type("Contract", (CodecContract,), members)


def fixed(chain, arrays, frozen=(), **members):
    """Return the contract of a chain whose encoded size is known before."""
    return contract(chain, arrays, frozen, fixed_size=True, **members)
