"""A walk yields every array and the groups above it, whichever group documents are there."""

from hypothesis import given
from hypothesis import strategies as st

import chunkmill as cm
from chunkmill.model.metadata import parents_of
from chunkmill.nodes.opening import walk
from chunkmill.stores.memory import MemoryStore

NAMES = st.sampled_from(["a", "b", "0", "c"])  # "c" and digits look like chunks
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@st.composite
def hierarchies(draw):
    """Draw a format, paths of arrays of which none is above another, and groups without a document."""
    paths = []
    for path in draw(st.lists(PATHS, min_size=1, max_size=5, unique=True)):
        if not any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in paths):
            paths.append(path)
    groups = sorted({parent for path in paths for parent in parents_of(path)} - {""})
    return (
        draw(st.sampled_from(["zarr2", "zarr3", "n5"])),
        paths,
        draw(st.sets(st.sampled_from(groups))) if groups else set(),
    )


@given(hierarchies())
def test_every_array_is_found_once(hierarchy):
    fmt, paths, undocumented = hierarchy
    store = MemoryStore()
    cm.create_group(store, format=fmt)
    for path in paths:
        cm.create_array(store, path, shape=(2, 2), dtype="i1", chunks=(1, 1), format=fmt)[...] = 1
    for group in undocumented:
        for name in (".zgroup", ".zattrs", "zarr.json", "attributes.json"):
            store.delete(f"{group}/{name}")
    found = [node.path for node in walk(cm.open_group(store).stored)]
    assert sorted(found) == sorted({*paths, *(parent for path in paths for parent in parents_of(path))})
    assert all(found.index(parent) < found.index(path) for path in paths for parent in parents_of(path))
    documented = [node.path for node in walk(cm.open_group(store).stored, undocumented=False)]
    if fmt != "n5":
        assert set(documented) == {p for p in found if not any(g in undocumented for g in (p, *parents_of(p)))}
