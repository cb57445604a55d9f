"""Workers of other machines sync what they wrote before it is published."""

import dask.array as da
import numpy as np
import pytest
from support.clusters import cluster_of
from support.machines import on_other_machines

import chunkmill as cm
from chunkmill.runtime.cluster_tasks import machine, sync_other_machines
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

X = np.arange(1600).reshape(40, 40)


class Unasked:
    asynchronous = False


@pytest.mark.parametrize(
    ("store", "ran"),
    [
        pytest.param(LocalStore("unused"), {machine(): {"tcp://here:1"}}, id="all ran on this machine"),
        pytest.param(MemoryStore(), {"another": {"tcp://there:1"}}, id="the store keeps what it has taken"),
    ],
)
def test_nobody_is_asked_in_vain(store, ran):
    sync_other_machines([store], Unasked(), "convert", ran)


@pytest.mark.slow
def test_each_machine_syncs_before_the_documents_are_published(tmp_path):
    """The client's `syncfs` reached its own machine alone."""
    cm.to_store(X, tmp_path / "source.zarr", chunks=(10, 10))
    document = tmp_path / "target" / "attributes.json"
    preload, synced = on_other_machines(tmp_path, document)
    with cluster_of(2, preload=preload):
        cm.convert(tmp_path / "source.zarr", tmp_path / "target", format="n5", chunks=(10, 10))
        found = synced()
        assert len({pid for pid, _, _ in found}) == 2, found
        assert {place for _, place, _ in found} == {str(tmp_path / "target")}
        assert not any(was_published for *_, was_published in found), found
        np.testing.assert_array_equal(cm.open_array(tmp_path / "target")[...], X)
        blocks = da.from_array(X, chunks=(10, 40))
        cm.to_store(blocks, tmp_path / "written", chunks=(10, 10), format="n5", resume=True)
        resumed = synced()[len(found) :]
        assert {place for _, place, _ in resumed} == {str(tmp_path / "written")}
        # workers of one host, of which one is asked
        cm.to_store(-blocks, tmp_path / "written", chunks=(10, 10), format="n5", mode="w")
        assert [place for _, place, _ in synced()[len(found) + len(resumed) :]] == [str(tmp_path / "written")]
        np.testing.assert_array_equal(cm.open_array(tmp_path / "written")[...], -X)


@pytest.mark.slow
def test_machines_without_a_worker_are_named(tmp_path):
    preload, synced = on_other_machines(tmp_path, tmp_path / "none")
    with cluster_of(1, preload=preload) as client:
        (worker,) = client.run(int)
        (name,) = client.run(machine).values()
        ran = {name: {worker}, "third": {"tcp://gone:1"}}
        with pytest.warns(UserWarning, match=r"^convert: what workers wrote to .* that are gone \(tcp://gone:1\) was"):
            sync_other_machines(
                [LocalStore(tmp_path), MemoryStore(), LocalStore(tmp_path / "other")], client, "convert", ran
            )
    assert len(synced()) == 2  # of each store that has files
