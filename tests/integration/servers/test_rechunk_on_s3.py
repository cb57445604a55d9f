"""Rechunking between object stores and local files, temporary files included."""

import numpy as np
import pytest
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.stores.open import open_store

pytestmark = WARNINGS

SHAPE = (24, 30, 8)
VALUES = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE) + 1


@pytest.fixture
def store(s3_server):
    return open_store(s3_server.new_bucket() + "/some/root", s3_server.storage_options)


@pytest.mark.slow
def test_temporary_files_in_another_store(store, s3_server, tmp_path):
    """Between local files by way of a bucket, and from a bucket to another by way of local files."""
    local, bucket = f"{tmp_path}/local", s3_server.new_bucket()
    apart = open_store(bucket, s3_server.storage_options)
    source = cm.create_array(local, "a", shape=SHAPE, dtype="i4", chunks=(2, 5, 8))
    source[...] = VALUES
    for target, temp, remote in (((local, "b"), apart, apart), ((store, "b"), f"{tmp_path}/scratch", store)):
        report = cm.rechunk(source, target, chunks=(24, 7, 3), strategy="spill", temp=temp)
        assert report.bytes_temporary >= VALUES.nbytes
        np.testing.assert_array_equal(cm.open_array(*target)[...], VALUES)
        assert not [key for key in remote.list_prefix("") if "chunkmill" in key]
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and "chunkmill" in str(path.relative_to(tmp_path))
    ]
