"""Tasks over reference sets in other processes: a set is opened there by its url, one in memory is sent."""

import pickle

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.stores.reference import ReferenceStore


@pytest.mark.slow
@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "memory"])
def test_what_tasks_read(is_file, tmp_path):
    values = np.arange(1600, dtype="i4")
    cm.create_array(tmp_path / "s", "a", shape=(1600,), dtype="i4", chunks=(4,), fill_value=-1)[4:] = values[4:]
    cm.to_references(tmp_path / "s", tmp_path / "set.json")
    store = ReferenceStore(parse_reference_json((tmp_path / "set.json").read_bytes()))
    if is_file:
        store = open_reference_store(tmp_path / "set.json")
    assert (len(pickle.dumps(store)) < 1_000) is is_file
    cm.rechunk(store, tmp_path / "spilled.zarr", chunks=(100,), strategy="spill")
    assert cm.verify(store, tmp_path / "spilled.zarr").equal
    x = cm.open_array(store, "a").to_dask(chunks=40)
    assert int((x + 1)[::3].sum().compute()) == int((values + 1)[6::3].sum())
