"""N5 and the Zarr v3 draft: parse∘emit = id; decode∘encode = id over blocks of every shape."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.strategies import attributes, blosc, json_values, regular_grids, texts

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.registry import build_pipeline
from chunkmill.formats.n5 import CHUNK_KEYS, N5, n5_chain, zarr_chain
from chunkmill.formats.zarr_v3_draft import ZarrV3Draft, chunk_keys
from chunkmill.model.metadata import ArrayMetadata, NamedConfig

N5_DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
DRAFT_DTYPES = [*N5_DTYPES, "?", "f2", "c8", "c16", "V3"]
RESERVED = {"dimensions", "blockSize", "dataType", "compression", "compressionType", "n5", "axes", "_ARRAY_DIMENSIONS"}

levels = st.integers(0, 9)
compressors = st.one_of(
    st.builds(lambda n: NamedConfig("gzip", {"level": n}), levels),
    st.builds(lambda n: NamedConfig("numcodecs.zlib", {"level": n}), levels),
    st.builds(lambda n: NamedConfig("numcodecs.bz2", {"level": n}), st.integers(1, 9)),
    st.builds(
        lambda n: NamedConfig("numcodecs.lzma", {"format": 1, "check": -1, "preset": n, "filters": None}),
        st.integers(0, 2),
    ),
    st.builds(lambda n: NamedConfig("n5_lz4", {"blockSize": n}), st.integers(64, 1 << 25)),
    st.builds(lambda n: NamedConfig("zstd", {"level": n, "checksum": False}), st.integers(-7, 9)),
)


attribute_sets = attributes.map(lambda drawn: {name: value for name, value in drawn.items() if name not in RESERVED})


@st.composite
def n5_arrays(draw: st.DrawFn) -> ArrayMetadata:
    dtype = np.dtype(draw(st.sampled_from(N5_DTYPES)))
    grid = draw(regular_grids().filter(lambda drawn: drawn.ndim))
    compressor = draw(st.none() | compressors | blosc(dtype.itemsize))
    dimension_names = draw(st.none() | st.tuples(*[texts()] * grid.ndim))
    attributes = draw(attribute_sets)
    if dimension_names is not None:  # they are an attribute
        attributes["axes"] = list(dimension_names[::-1])
    return ArrayMetadata(
        dtype=dtype,
        chunk_grid=grid,
        chunk_keys=CHUNK_KEYS,
        codecs=n5_chain([] if compressor is None else [compressor]),
        fill_value=dtype.type(0),
        edge_chunks="truncated",
        dimension_names=dimension_names,
        attributes=attributes,
    )


@given(n5_arrays(), st.sampled_from(["", "a", "a/b"]))
def test_n5_documents(metadata: ArrayMetadata, path: str) -> None:
    n5 = N5()
    assert n5.parse_array(path, n5.emit_array(path, metadata)) == metadata
    assert n5.parse_group(path, n5.emit_array(path, metadata)) is None
    assert n5.adapt(metadata) == metadata


@given(st.dictionaries(st.sampled_from(sorted(RESERVED)), json_values), n5_arrays())
def test_n5_never_drops_an_attribute(attributes: dict[str, Any], metadata: ArrayMetadata) -> None:
    """Attributes under names that N5 uses itself come back as they were, or are refused."""
    n5 = N5()
    try:
        documents = n5.emit_array("a", replace(metadata, attributes=attributes, dimension_names=None))
    except ValueError:
        return
    read = n5.parse_array("a", documents)
    assert read is not None
    assert read.attributes == attributes


@given(n5_arrays())
def test_chains_come_back_from_zarr(metadata: ArrayMetadata) -> None:
    plain = zarr_chain(metadata.codecs)
    assert plain[0].name == "bytes"
    if len(plain) == 1 or plain[1].name != "numcodecs.lz4":  # whose block size is lost
        assert n5_chain(plain) == metadata.codecs


@st.composite
def draft_arrays(draw: st.DrawFn) -> ArrayMetadata:
    dtype = np.dtype(draw(st.sampled_from(DRAFT_DTYPES)))
    grid = draw(regular_grids())
    filters = [NamedConfig("transpose", {"order": list(range(grid.ndim))[::-1]})]
    gzip = st.builds(lambda n: NamedConfig("gzip", {"level": n}), levels)
    fill = draw(hnp.arrays(dtype, (1,), elements=None if dtype.kind != "V" else st.binary(min_size=3, max_size=3)))
    return ArrayMetadata(
        dtype=dtype,
        chunk_grid=grid,
        chunk_keys=chunk_keys(draw(st.sampled_from("/."))),
        codecs=(
            *(filters if grid.ndim > 1 and draw(st.booleans()) else []),
            NamedConfig("bytes", {"endian": draw(st.sampled_from(["little", "big"]))}),
            *draw(st.lists(gzip | blosc(dtype.itemsize), max_size=2)),
        ),
        fill_value=fill[0],
        dimension_names=draw(st.none() | st.tuples(*[texts()] * grid.ndim)),
        attributes=draw(attribute_sets),
    )


@given(draft_arrays(), st.sampled_from(["", "a", "a/b"]), st.sampled_from(["", ".json", ".x"]))
def test_draft_documents(metadata: ArrayMetadata, path: str, suffix: str) -> None:
    draft = ZarrV3Draft(suffix)
    try:
        documents = draft.emit_array(path, metadata)
    except ValueError:  # a complex fill value with a payload in a NaN
        assert metadata.dtype.kind == "c"
        return
    read = draft.parse_array(path, documents)
    assert read is not None
    assert np.asarray(read.fill_value, read.dtype).tobytes() == np.asarray(metadata.fill_value).tobytes()
    for name in set(ArrayMetadata.__slots__) - {"fill_value"}:
        assert getattr(read, name) == getattr(metadata, name)
    assert draft.configured(draft.emit_root()) == draft


@given(st.data())
def test_blocks(data: st.DataObject) -> None:
    """Any block not larger than the chunk comes back at its corner, and zeros around it."""
    dtype = np.dtype(data.draw(st.sampled_from(N5_DTYPES)))
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=6))
    block_shape = tuple(data.draw(st.integers(1, side)) for side in shape)
    compressor = data.draw(st.none() | compressors | blosc(dtype.itemsize))
    block = data.draw(hnp.arrays(dtype, block_shape))
    spec = ChunkSpec(shape, dtype, dtype.type(0))
    codecs = build_pipeline(n5_chain([] if compressor is None else [compressor]), spec)
    encoded = bytes(codecs.encode(block, ChunkSpec(block_shape, dtype, dtype.type(0))))
    chunk = codecs.decode(encoded, spec).copy()
    corner = tuple(map(slice, block_shape))
    assert chunk[corner].tobytes() == block.tobytes()
    chunk[corner] = 0
    assert not chunk.any()
