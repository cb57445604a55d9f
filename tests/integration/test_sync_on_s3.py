"""A target in an object store is brought up to date by the ETags of its source."""

import numpy as np
import pytest
from support.servers import WARNINGS, s3_server  # noqa: F401

import chunkmill as cm
from chunkmill.stores.open import open_store

pytestmark = WARNINGS


@pytest.mark.slow
def test_objects_are_compared_by_their_etags(s3_server, tmp_path):  # noqa: F811
    store = open_store(s3_server.new_bucket() + "/root", s3_server.storage_options)
    a = cm.create_array(store, "x", shape=(40, 36), dtype="i4", chunks=(10, 6))
    a[...] = 3
    kept = {"lineage": str(tmp_path / "kept")}
    cm.rechunk((store, "x"), (store, "y"), chunks=(-1, 9), **kept)
    assert cm.sync((store, "x"), (store, "y"), **kept).bytes_read == 0
    a[3, 20:] = 4
    a.append(np.ones((2, 36)))
    report = cm.sync((store, "x"), (store, "y"), **kept)
    assert 0 < report.n_keys <= 8
    assert cm.verify((store, "x"), (store, "y")).equal
