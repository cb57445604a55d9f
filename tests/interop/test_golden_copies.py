"""What we write is read exactly by zarr-python 3, zarrs, tensorstore and z5py: the golden stores, written anew."""

import itertools
import json

import numpy as np
import pytest
from golden.cases import same, same_json
from interop.corpus import BY_FORMAT, BY_NAME, GOLDENS, UNWRITTEN, copy, distinct
from interop.known import KNOWN, listed
from interop.peers import READERS, WARNINGS
from interop.verdict import complaints, plain

import chunkmill as cm

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fallback:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*read as:UserWarning"),  # the draft's extension types
    pytest.mark.filterwarnings("ignore:a dimension name occurs twice"),
    *WARNINGS,
]


def test_the_corpus_is_there():
    assert len(GOLDENS) > 780
    assert sum(len(golden.arrays) for golden in GOLDENS) > 850
    assert {golden.format for golden in GOLDENS} == {"zarr2", "zarr3", "n5", "zarr3-draft"}


@pytest.mark.parametrize("names", BY_FORMAT.values(), ids=BY_FORMAT)
def test_copies(names, tmp_path, subtests):
    for name in names:
        with subtests.test(name):
            assert not [each for golden in distinct(BY_NAME[name]) for each in wrong_in_copy(golden, tmp_path)]


def wrong_in_copy(golden, folder):
    """Return what we and each peer read otherwise in our copy of a golden store."""
    store = copy(golden, folder)
    wrong = []
    for expected in golden.arrays:
        array = cm.open_array(store, expected.path, format=golden.format)
        if not same(np.asarray(array[...]), expected.expected()):
            wrong.append(f"chunkmill on {expected.path!r}: other values")
        if not same_json(dict(array.attributes), plain(dict(expected.attributes))):
            wrong.append(f"chunkmill on {expected.path!r}: other attributes")
        # zarrs leaves zip files to zarr-python
        without = {"zarrs"} if store.suffix == ".zip" else ()
        # structured types keep the name that they have: zarr-python's own one, or the registered one
        may_read = array.dtype.names is not None
        name = golden.key(expected.path)
        wrong += complaints(store, golden.format, name, expected, without=without, may_read=may_read)
    return [f"{golden.id}: {each}" for each in wrong]


@pytest.mark.parametrize("golden", [g for g in GOLDENS if g.id in UNWRITTEN], ids=lambda golden: golden.id)
def test_what_cannot_be_copied_is_refused(golden, tmp_path):
    with pytest.raises(cm.ChunkmillError):
        copy(golden, tmp_path)


def test_no_reason_is_stale():
    names = {golden.key(expected.path) for golden in GOLDENS for expected in golden.arrays}
    formats = {peer: formats for peer, (_, formats) in READERS.items()} | {"zarr-python 3.4": {"zarr2", "zarr3"}}
    for peer, reasons in KNOWN.items():
        used = {listed(peer, name) for name in names if name.partition(":")[0] in formats.get(peer, {"zarr2", "n5"})}
        assert set(reasons) <= used, peer


SMALL_FLOATS = [
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


def test_fill_values_of_small_floats_are_read_by_zarrs_and_tensorstore(tmp_path, subtests):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    zarrs = pytest.importorskip("interop.zarrs_codecs")
    tensorstore = pytest.importorskip("tensorstore")
    for name, value in itertools.product(SMALL_FLOATS, (1, 2, np.nan)):
        with subtests.test(f"{value} of {name}"):
            dtype, url = np.dtype(getattr(ml_dtypes, name)), tmp_path / f"{name}-{value}"
            fill = np.array(value).astype(dtype)[()]
            bits = int(fill.view("u1"))
            cm.create_array(url, shape=(2,), dtype=dtype, chunks=(2,), fill_value=fill, format="zarr3")
            written = json.loads((url / "zarr.json").read_text())
            if name != "float8_e4m3fn":  # which zarrs has not
                assert zarrs.zarrs_fills(name, written["fill_value"]) == bits
            if hasattr(tensorstore, name):
                store = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{url}/"}}
                assert tensorstore.open(store).result().fill_value.view("u1") == bits
