"""Every golden store, written by other implementations and by hand, reads exactly as its case in ``golden`` says."""

import numpy as np
import pytest
from golden.cases import plain, same, same_json
from interop.corpus import STORES

import chunkmill as cm
from chunkmill.errors import ChunkmillError

WRITERS = sorted({golden.source.parent for golden in STORES})


def test_the_corpus_is_there():
    assert sum(golden.format in {"zarr2", "zarr3"} for golden in STORES) > 700
    assert len(STORES) > 930
    assert all(golden.source.exists() for golden in STORES)


@pytest.mark.filterwarnings("ignore:.*has no endian:UserWarning")  # zarr-python 3.0 and 3.1
@pytest.mark.filterwarnings("ignore:.*unknown here and read as:UserWarning")
@pytest.mark.parametrize("writer", WRITERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_golden_stores(writer, subtests):
    for golden in STORES:
        if golden.source.parent == writer:
            with subtests.test(golden.source.name):
                check_store(golden, golden.case)


def check_store(golden, case):
    options = dict(case.options)
    if golden.format == "n5" and not (golden.source / "attributes.json").exists():
        options["format"] = "n5"
    if case.error:
        with pytest.raises(ChunkmillError):
            read_everything(cm.open(str(golden.source), case.path, **options))
        return
    try:
        node = cm.open(str(golden.source), case.path, **options)
        assert node.format == ("zarr3-experimental" if case.name.startswith("experimental") else golden.format)
        (check_group if case.is_group else check_array)(node, case)
    except ChunkmillError:
        if not case.may_refuse:
            raise


def read_everything(node):
    if isinstance(node, cm.Group):
        for child in node.children().values():
            read_everything(child)
    else:
        node[...]


def check_group(group, case):
    for path, attributes in case.groups.items():
        node = group[path] if path else group
        assert isinstance(node, cm.Group)
        assert same_json(node.attributes, attributes), path
    for path, array in case.arrays.items():
        assert isinstance(group[path], cm.Array)
        check_array(group[path], array)
    top = {p.split("/")[0] for p in (*case.groups, *case.children) if p}
    named = {p for p in (*case.groups, *case.children) if p and "/" not in p}
    # in Zarr v2 and v3, a prefix without a document of its own is no member
    assert set(group) == top if case.format else named <= set(group) <= top


def check_array(array, case):
    expected = case.expected()
    assert array.shape == expected.shape
    if case.edges is None and 0 not in (case.chunks or (1,)):
        if "nested" not in case.name:  # the chunks of a shard of shards are the inner shards, as in zarr-python
            assert array.chunks == case.chunks
        assert array.shards == case.shards
    assert same_json(dict(array.attributes), dict(case.attributes))
    assert array.dimension_names == case.dimension_names or (case.dimension_names == () and expected.ndim == 0)
    if case.fill_value is None:
        assert array.fill_value is None or expected.dtype.kind == "O"
    elif expected.dtype.kind != "O":
        found = plain(np.asarray(array.fill_value, array.dtype))
        assert found.tobytes() == np.asarray(case.fill_scalar(), case.native_dtype).tobytes()
    got = array[...]
    assert same(got, expected)
    assert np.asarray(got).flags.writeable or expected.ndim == 0
    check_slices(array, got)


def check_slices(array, whole):
    """Parts are read as the whole is: through chunks, shards' ranges and crops."""
    cuts = [
        tuple(slice(n // 3, n - n // 4) for n in array.shape),
        tuple(slice(0, min(n, 1)) for n in array.shape),
        tuple(slice(n // 2, n // 2 + 1) for n in array.shape),
    ]
    for cut in cuts:
        got, expected = np.asarray(array[cut]), np.asarray(whole)[(*cut, ...)]
        assert got.shape == expected.shape
        if array.dtype.hasobject:
            assert repr(got.astype(object).tolist()) == repr(expected.astype(object).tolist())
        else:
            assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
