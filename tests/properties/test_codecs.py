"""decode∘encode = id, for chains that nobody would write down."""

from __future__ import annotations

from math import prod

import numpy as np
from contracts.codec_contract import same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from chunkmill.codecs.base import ChunkSpec, fill_array
from chunkmill.codecs.elements import is_fill
from chunkmill.codecs.registry import build_pipeline, parse_codecs, sharded
from chunkmill.errors import CodecError
from chunkmill.model.dtypes import SMALL, is_small, n_bits, small_dtype
from chunkmill.model.metadata import NamedConfig

SMALL_TYPES = [small_dtype(name, format_name="", key="") for name in SMALL]
DTYPES = st.sampled_from(
    ["b1", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "M8[us]", "m8[s]", "U3", "S5", "V3", *SMALL_TYPES]
)
COMPRESSORS = st.sampled_from(["zstd", "gzip", "blosc", "lz4", "zlib", "bz2", "crc32c", "shuffle", "adler32"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def arrays(draw, shape):
    dtype = np.dtype(draw(DTYPES))
    if is_small(dtype) or dtype.kind in "Vfc":  # any bits at all, signalling NaNs too
        most = (1 << min(n_bits(dtype), 8)) - 1 if is_small(dtype) else 255
        raw = draw(npst.arrays("u1", (*shape, dtype.itemsize), elements=st.integers(0, most)))
        return np.ascontiguousarray(raw).view(dtype).reshape(shape)
    return draw(npst.arrays(dtype, shape))


@st.composite
def chains(draw, shape, dtype, depth=2):
    """A chain for chunks of `shape`: other axes, a serializer or a shard of such chains, compressors."""
    filters = []
    for _ in range(draw(st.integers(0, 2))):
        if shape and draw(st.integers(0, 3)) == 0:
            cut = draw(st.integers(1, len(shape)))
            joined = [list(range(cut)), *([axis] for axis in range(cut, len(shape)))]
            filters.append(NamedConfig("reshape", {"shape": joined}))
            shape = (prod(shape[:cut]), *shape[cut:])
            continue
        order = draw(st.permutations(range(len(shape))))
        filters.append(NamedConfig("transpose", {"order": list(order)}))
        shape = tuple(shape[axis] for axis in order)
    if depth and shape and draw(st.booleans()):
        inner = tuple(draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in shape)
        location = draw(st.sampled_from(["start", "end"]))
        serializer = sharded(draw(chains(inner, dtype, depth - 1)), inner, location)
    elif dtype.kind == "T":
        serializer = NamedConfig("vlen-utf8")
    elif (dtype.kind in "biufcmM" or is_small(dtype)) and draw(st.booleans()):
        serializer = NamedConfig(
            "packbits", {"padding_encoding": draw(st.sampled_from(["none", "first_byte", "last_byte"]))}
        )
    else:
        serializer = NamedConfig("bytes", {"endian": draw(st.sampled_from(["little", "big"]))})
    compressors = list(parse_codecs(draw(st.lists(COMPRESSORS, max_size=2)), np.dtype("u1"))[1:])
    return [*filters, serializer, *compressors]


SHAPES = st.lists(st.integers(1, 6), max_size=3).map(tuple)


@given(st.data())
def test_round_trip(data):
    shape = data.draw(SHAPES)
    array = data.draw(arrays(shape))
    fill_value = data.draw(st.sampled_from([None, *array.reshape(-1)[:1]]))
    spec = ChunkSpec(shape, array.dtype, fill_value)
    pipeline = build_pipeline(data.draw(chains(shape, array.dtype)), spec)
    encoded = bytes(pipeline.encode(array, spec))
    assert same(pipeline.decode(encoded, spec), array)
    assert pipeline.encoded_size(spec) in {None, len(encoded)}


@given(st.data())
def test_round_trip_of_strings(data):
    shape = data.draw(SHAPES)
    dtype = np.dtypes.StringDType() if data.draw(st.booleans()) else np.dtype(object)
    array = data.draw(npst.arrays(object, shape, elements=TEXT)).astype(dtype)
    spec = ChunkSpec(shape, array.dtype, "")
    pipeline = build_pipeline(data.draw(chains(shape, np.dtypes.StringDType())), spec)
    assert same(pipeline.decode(bytes(pipeline.encode(array, spec)), spec), array)


@given(st.data())
def test_whatever_is_decoded_ends_in_a_chunk_or_a_codec_error(data):
    shape = data.draw(SHAPES)
    array = data.draw(arrays(shape))
    spec = ChunkSpec(shape, array.dtype, None)
    pipeline = build_pipeline(data.draw(chains(shape, array.dtype)), spec)
    encoded = bytearray(pipeline.encode(array, spec))
    for _ in range(data.draw(st.integers(0, 4))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    encoded = encoded[: data.draw(st.integers(0, len(encoded)))] + data.draw(st.binary(max_size=8))
    try:
        decoded = pipeline.decode(bytes(encoded), spec)
    except CodecError:
        return
    assert (decoded.shape, decoded.dtype) == (array.shape, array.dtype)


@given(st.data())
def test_is_fill_is_what_it_says(data):
    shape = data.draw(SHAPES)
    array = data.draw(arrays(shape))
    fill_value = array.reshape(-1)[0]
    assert is_fill(fill_array(ChunkSpec(shape, array.dtype, fill_value)), fill_value)
    assert is_fill(array, fill_value) == (
        array.tobytes() == fill_array(ChunkSpec(shape, array.dtype, fill_value)).tobytes()
    )
