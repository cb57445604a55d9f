"""Hypothesis strategies: shapes, grids, regions, dtypes with awkward fill values, codec chains, metadata."""

from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter

import numpy as np
from hypothesis import strategies as st

from chunkmill.model.dtypes import PLAIN, SMALL, STRING, byte_order, cleared, complex_part, is_small, small_dtype
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, NamedConfig

# --------------------------------------------------------------------------------------------------------------------
# Shapes, grids, regions


def shapes(max_rank=4, max_size=12):
    return st.lists(st.integers(0, max_size), min_size=0, max_size=max_rank).map(tuple)


@st.composite
def regular_grids(draw, max_rank=4, max_size=12):
    shape = draw(shapes(max_rank, max_size))
    return ChunkGrid.regular(shape, [draw(st.integers(1, max_size + 2)) for _ in shape])


def _merged(runs):
    """As the parser keeps them: neighbours of one length are one run."""
    return tuple((length, sum(count for _, count in same)) for length, same in groupby(runs, itemgetter(0)))


@st.composite
def runs_axes(draw):
    runs = _merged(draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=4)))
    return RunsAxis(draw(st.integers(0, sum(length * count for length, count in runs))), runs)


@st.composite
def axes(draw, size):
    """An axis of a given length: of equal chunks, or of runs that may go past its end."""
    if draw(st.booleans()):
        return RegularAxis(size, draw(st.integers(1, size + 2)))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    return RunsAxis(size, (*((n, 1) for n in lengths), (draw(st.integers(1, 4)), max(size, 1))))


@st.composite
def grids(draw):
    """Regular and rectilinear grids."""
    if draw(st.booleans()):
        return draw(regular_grids())
    axis = runs_axes() | st.builds(RegularAxis, st.integers(0, 12), st.integers(1, 6))
    return ChunkGrid(tuple(draw(st.lists(axis, min_size=1, max_size=3))))


@st.composite
def lengths(draw, total):
    """Lengths that add up to `total`."""
    parts = []
    while total:
        parts.append(draw(st.integers(1, total)))
        total -= parts[-1]
    return tuple(parts)


@st.composite
def regions(draw, shape):
    """Any region of `shape`, empty ones too."""
    cuts = []
    for size in shape:
        start = draw(st.integers(0, size))
        cuts.append(slice(start, draw(st.integers(start, size))))
    return tuple(cuts)


grids_with_regions = grids().flatmap(lambda grid: st.tuples(st.just(grid), regions(grid.shape)))


# --------------------------------------------------------------------------------------------------------------------
# Data types and fill values

units = st.sampled_from(["Y", "M", "W", "D", "h", "m", "s", "ms", "25us", "ns", "ps", "fs", "as"])
scalar_dtypes = (
    st.sampled_from(list(PLAIN.values()))
    | st.integers(1, 9).map(lambda n: np.dtype(f"S{n}"))
    | st.integers(1, 9).map(lambda n: np.dtype(f"U{n}"))
    | st.integers(1, 9).map(lambda n: np.dtype(f"V{n}"))
    | units.map(lambda unit: np.dtype(f"M8[{unit}]"))
    | units.map(lambda unit: np.dtype(f"m8[{unit}]"))
)
small_dtypes = (
    st.sampled_from([small_dtype(name, format_name="", key="") for name in SMALL])
    if find_spec("ml_dtypes")
    else st.nothing()
)


@st.composite
def struct_dtypes(draw, base=scalar_dtypes):
    names = draw(st.lists(st.text(min_size=1, max_size=4, alphabet="abxyé_ "), min_size=1, max_size=3, unique=True))
    return np.dtype([(name, draw(base)) for name in names])


fixed_dtypes = scalar_dtypes | struct_dtypes() | struct_dtypes(struct_dtypes())
dtypes = fixed_dtypes | st.just(STRING) | small_dtypes


def texts(max_size=9):
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=max_size)


@st.composite
def fills(draw, dtype, *, payloads=True):
    """A scalar of `dtype`, every bit pattern of it: NaN payloads, NaT, extremes."""
    if dtype.kind == "T":
        return draw(texts())
    if dtype.kind == "U":
        return np.array(draw(texts(dtype.itemsize // 4)), dtype)[()]
    if dtype.kind == "b":
        return dtype.type(draw(st.booleans()))
    if dtype.fields is not None:
        parts = [np.array(draw(fills(dtype[name], payloads=payloads)), dtype[name]).tobytes() for name in dtype.names]
        return np.frombuffer(b"".join(parts), dtype)[0]
    raw = np.frombuffer(draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize)), dtype)
    fill = (cleared(raw) if is_small(dtype) else raw)[0]
    if (
        (dtype.kind in "fc" or is_small(dtype))
        and not payloads
        and np.isnan(np.array([fill]).view(complex_part(dtype) or dtype)).any()
    ):
        return np.ones(1, dtype)[0] if is_small(dtype) else dtype.type("nan")
    return fill


# --------------------------------------------------------------------------------------------------------------------
# Codecs

compressors = st.lists(
    st.sampled_from(
        [
            NamedConfig("gzip", {"level": 6}),
            NamedConfig("zstd", {"level": 3, "checksum": False}),
            NamedConfig("zstd", {"level": 3, "checksum": True}),
            NamedConfig("numcodecs.zlib", {"level": 1}),
            NamedConfig("numcodecs.shuffle", {"elementsize": 4}),
            NamedConfig("crc32c", {}),
        ]
    ),
    max_size=3,
)


@st.composite
def blosc(draw, itemsize):
    shuffle = draw(st.sampled_from(["noshuffle", "shuffle", "bitshuffle"]))
    typesize = itemsize if 0 < itemsize < 256 else 1
    return NamedConfig("blosc", {"cname": "lz4", "clevel": 5, "shuffle": shuffle, "blocksize": 0, "typesize": typesize})


@st.composite
def chains(draw, dtype):
    """Serializer and compressors for `dtype`, as parsed: parameters written out, ``endian`` where it means something."""
    if dtype.kind == "T":
        serializer = NamedConfig("vlen-utf8", {})
    elif byte_order(dtype) == "none":
        serializer = NamedConfig("bytes", {})
    else:
        serializer = NamedConfig("bytes", {"endian": draw(st.sampled_from(["little", "big"]))})
    itemsize = 1 if dtype.kind == "T" else dtype.itemsize
    first = [draw(blosc(itemsize))] if draw(st.booleans()) else []
    return (serializer, *first, *draw(compressors))


# --------------------------------------------------------------------------------------------------------------------
# Metadata

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
    max_leaves=8,
)
attributes = st.dictionaries(texts(), json_values, max_size=3)


@st.composite
def v2_metadata(draw):
    """What Zarr v2 can hold."""
    dtype = draw(dtypes.filter(lambda each: not is_small(each) or byte_order(each) == "none"))  # others: little there
    grid = draw(regular_grids())
    chain = draw(chains(dtype))
    if grid.ndim > 1 and draw(st.booleans()):
        chain = (NamedConfig("transpose", {"order": list(range(grid.ndim))[::-1]}), *chain)
    return ArrayMetadata(
        dtype=dtype,
        chunk_grid=grid,
        chunk_keys=ChunkKeyEncoding("", draw(st.sampled_from("./")), "0"),
        codecs=chain,
        fill_value=draw(
            fills(dtype, payloads=False) if dtype.kind in "mM" else st.none() | fills(dtype, payloads=False)
        ),
        dimension_names=draw(st.none() | st.tuples(*[texts()] * grid.ndim)),
        attributes=draw(attributes),
    )


@st.composite
def v3_metadata(draw):
    """What Zarr v3 can hold."""
    dtype = draw(dtypes)
    grid = draw(grids())
    chain = draw(chains(dtype))
    lengths = grid.chunk_shape
    if grid.ndim and draw(st.booleans()):
        order = draw(st.permutations(range(grid.ndim)))
        lengths = tuple(lengths[axis] for axis in order)
        chain = (NamedConfig("transpose", {"order": list(order)}), *chain)
    if grid.is_regular and draw(st.booleans()):
        chain = draw(shards(chain, lengths))
    separator = draw(st.sampled_from("./"))
    keys = ChunkKeyEncoding(f"c{separator}", separator, "c"), ChunkKeyEncoding("", separator, "0")
    return ArrayMetadata(
        dtype=dtype,
        chunk_grid=grid,
        chunk_keys=draw(st.sampled_from(keys)),
        codecs=chain,
        fill_value=draw(fills(dtype)),
        dimension_names=draw(st.none() | st.tuples(*[st.none() | texts()] * grid.ndim)),
        attributes=draw(attributes),
    )


@st.composite
def shards(draw, chain, lengths):
    """`chain` within a shard; its transpose before it."""
    n_transposes = 1 if chain[0].name == "transpose" else 0
    index = [{"name": "bytes", "configuration": {"endian": draw(st.sampled_from(["little", "big"]))}}]
    if draw(st.booleans()):
        index.append({"name": "crc32c", "configuration": {}})
    configuration = {
        "chunk_shape": [draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in lengths],
        "codecs": [{"name": c.name, "configuration": dict(c.configuration)} for c in chain[n_transposes:]],
        "index_codecs": index,
        "index_location": draw(st.sampled_from(["start", "end"])),
    }
    return (*chain[:n_transposes], NamedConfig("sharding_indexed", configuration))
