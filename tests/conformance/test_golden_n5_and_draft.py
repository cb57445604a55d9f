"""Every golden store of N5 and of the Zarr v3 draft reads exactly as ``golden/n5_cases.py`` says."""

from pathlib import Path

import numpy as np
import pytest
from golden.n5_cases import chunk_coords, region, stores

import chunkmill as cm
from chunkmill.errors import ChunkmillError, UnsupportedFeature

GOLDEN = Path(__file__).parents[1] / "golden"
STORES = list(stores(GOLDEN))
FORMATS = {"n5": {"n5"}, "zarr_v3_draft": {"zarr3-draft", "zarr3-experimental"}}


def test_the_corpus_is_there():
    assert len(STORES) > 230
    assert all(path.is_dir() for _, path, _ in STORES)


@pytest.mark.filterwarnings("ignore:.*unknown here and read as:UserWarning")
@pytest.mark.parametrize(("fmt", "writer"), sorted({(case.format, writer) for writer, _, case in STORES}))
def test_golden_stores(fmt, writer, subtests):
    for by, path, case in STORES:
        if (case.format, by) == (fmt, writer):
            with subtests.test(case.name):
                check_store(path, case)


def check_store(path, case):
    if case.error:
        with pytest.raises(ChunkmillError):
            read_everything(cm.open(str(path), case.path))
        return
    given = "n5" if case.format == "n5" and not (path / "attributes.json").exists() else None
    try:
        node = cm.open(str(path), case.path, format=given)
        check(node, case, FORMATS[case.format])
    except ChunkmillError:
        if not case.may_refuse:
            raise


def read_everything(node):
    if isinstance(node, cm.Group):
        for child in node.children().values():
            read_everything(child)
    else:
        node[...]


def check(node, case, formats):
    assert node.format in formats
    assert dict(node.attributes) == dict(case.attributes)
    if case.kind == "group":
        assert isinstance(node, cm.Group)
        for path, child in (case.children or {}).items():
            check(node[path], child, formats)
        if case.children is not None:  # all descendants, of the case's own node
            assert set(node) == {path.split("/")[0] for path in case.children}
        return
    expected = case.expected()
    got = node[...]
    assert got.shape == expected.shape
    if expected.dtype.kind == "O":
        assert repr(np.asarray(got).tolist()) == repr(expected.tolist())
        return
    assert np.asarray(got).dtype == expected.dtype
    assert got.tobytes() == expected.tobytes()
    if case.chunks is not None and 0 not in case.chunks:
        assert node.chunks == case.chunks
        for coords in chunk_coords(case):
            where = region(case, coords)
            assert np.asarray(node[where]).tobytes() == np.ascontiguousarray(expected[where]).tobytes()
    assert node.dimension_names == case.dimension_names


def test_refusals_name_what_is_refused():
    (path,) = (
        p
        for _, p, c in STORES
        if (c.format == "n5" and c.name == "n5/compression_jpeg") or c.name == "compression_jpeg"
    )
    (case,) = (c for _, p, c in STORES if p == path)
    with pytest.raises(UnsupportedFeature, match="jpeg"):
        cm.open(str(path), case.path)
