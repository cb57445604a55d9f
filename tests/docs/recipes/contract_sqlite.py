"""The contract of stores for `sqlite`, and the store in use."""

import numpy as np
import pytest
from chunkmill.stores.sqlite import SqliteStore
from contracts.store_contract import StoreContract

import chunkmill as cm


class TestSqlite(StoreContract):
    n_listed = 100
    n_reads = 4

    @pytest.fixture
    def store(self, tmp_path):
        return SqliteStore(tmp_path / "values.sqlite")


def test_it_is_opened_by_its_url(tmp_path):
    url = f"sqlite://{tmp_path}/values.sqlite"
    x = np.arange(30.0).reshape(5, 6)
    report = cm.to_store(x[1:], url, "a", chunks=(2, 4))
    assert report.guard == "version"
    assert cm.open_array(url, "a", mode="r+").url == url
    cm.to_store(x[:4], url, "a", region=(slice(0, 4), slice(None)))
    np.testing.assert_array_equal(cm.from_store(url, "a").compute(), x[:4])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["values.sqlite"]
