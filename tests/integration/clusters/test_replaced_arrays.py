"""Arrays that the client replaces: workers have seen the old one, in memory of their own."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import StoreError

pytestmark = pytest.mark.slow


def test_workers_see_at_once_what_the_client_replaced(url, client):
    array = cm.create_array(url, "a", shape=(4, 4), chunks=(4, 1), dtype="i4", codecs=None)
    array[...] = np.arange(16).reshape(4, 4)
    x = array.to_dask()
    np.testing.assert_array_equal(x.compute(), np.arange(16).reshape(4, 4))
    cm.create_array(url, "a", shape=(4, 4), chunks=(2, 2), dtype="i4", codecs=None, overwrite=True)
    with pytest.raises(StoreError, match="it has been replaced"):
        x.compute()
