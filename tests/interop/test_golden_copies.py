"""What we write is read exactly by zarr-python 3, zarrs, tensorstore and z5py: the golden stores, written anew."""

from functools import partial

import numpy as np
import pytest
from golden.cases import same, same_json
from interop.corpus import GOLDENS, UNWRITTEN, copy
from interop.known import KNOWN, reason
from interop.peers import READERS, WARNINGS
from interop.verdict import judge_all, plain

import chunkmill as cm

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fallback:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*read as:UserWarning"),  # the draft's extension types
    *WARNINGS,
]


def test_the_corpus_is_there():
    assert len(GOLDENS) > 780
    assert sum(len(golden.arrays) for golden in GOLDENS) > 850
    assert {golden.format for golden in GOLDENS} == {"zarr2", "zarr3", "n5", "zarr3-draft"}


@pytest.mark.parametrize("golden", [g for g in GOLDENS if g.id not in UNWRITTEN], ids=lambda golden: golden.id)
def test_copy(golden, tmp_path):
    store = copy(golden, tmp_path)
    wrong = []
    for expected in golden.arrays:
        array = cm.open_array(store, expected.path, format=golden.format)
        if not same(np.asarray(array[...]), expected.values):
            wrong.append(f"chunkmill on {expected.path!r}: other values")
        if not same_json(dict(array.attributes), plain(dict(expected.attributes))):
            wrong.append(f"chunkmill on {expected.path!r}: other attributes")
        for peer, (read, formats) in READERS.items():
            if golden.format in formats and not (peer == "zarrs" and store.suffix == ".zip"):  # left to zarr-python
                name = golden.key(expected.path)
                wrong.append(judge_all(peer, name, partial(read, store, expected.path, golden.format), expected))
    assert not list(filter(None, wrong))


@pytest.mark.parametrize("golden", [g for g in GOLDENS if g.id in UNWRITTEN], ids=lambda golden: golden.id)
def test_what_cannot_be_copied_is_refused(golden, tmp_path):
    with pytest.raises(cm.ChunkmillError):
        copy(golden, tmp_path)


def test_no_reason_is_stale():
    names = {golden.key(expected.path) for golden in GOLDENS for expected in golden.arrays}
    formats = {peer: formats for peer, (_, formats) in READERS.items()}
    for peer, reasons in KNOWN.items():
        used = {reason(peer, name) for name in names if name.partition(":")[0] in formats.get(peer, {"zarr2", "n5"})}
        assert set(reasons) <= used, peer
