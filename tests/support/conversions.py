"""Arrays to convert, and their chunks: for the tests of conversion."""

import numpy as np

import chunkmill as cm
from chunkmill.array import chunk_io
from chunkmill.stores.memory import MemoryStore

KINDS = {
    "zarr2": {"format": "zarr2"},
    "zarr3": {"format": "zarr3"},
    "zarr3 sharded": {"format": "zarr3", "shards": (6, 4)},
    "zarr3-draft": {"format": "zarr3-draft"},
    "n5": {"format": "n5"},
}

SHAPE, CHUNKS = (7, 5), (3, 2)


def make(kind="zarr2", codecs="gzip", dtype=">i4", fill_value=0, **kwargs):
    """A store with one array ``g/a``: chunk (0, 0) absent, (1, 1) present and of fill value, the others random."""
    store = MemoryStore()
    options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": dtype, "codecs": codecs, "fill_value": fill_value}
    cm.create_group(store, format=KINDS[kind]["format"], attributes={"title": "x"})
    cm.create_array(store, "g/a", **options | {"attributes": {"units": "K"}} | KINDS[kind] | kwargs)
    a = cm.open_array(store, "g/a", mode="r+")
    values = np.random.default_rng(0).integers(1, 99, a.shape).astype(a.dtype)
    values[:3, :2] = values[3:6, 2:4] = fill_value
    grid = a.write_layout.grid
    for coords in grid.all_coords():
        is_kept = a.shards is None and coords != (0, 0)
        chunk_io.write_chunk(a.stored, coords, values[grid.region(coords)], write_empty=is_kept)
    return store, values


def encoded(array):
    """Encoded bytes of every chunk that is there."""
    layout = array.read_layout
    coords = list(layout.grid.all_coords())
    found = array.store.get_many(layout.locator.locate(array.store, coords))
    return {c: data for c, data in zip(coords, found, strict=True) if data is not None}
