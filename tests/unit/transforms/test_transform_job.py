"""Plans of transforms: blocks within memory, figures, and the same job on other workers."""

import dask
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import AlignmentError, JobError
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


@pytest.fixture
def source():
    store = MemoryStore()
    cm.to_store(np.random.default_rng(0).normal(size=(96, 96, 96)).astype("f4"), store, "a", chunks=(16, 16, 16))
    return cm.open_array(store, "a")


def planned(source, **options):
    ndimage = pytest.importorskip("scipy.ndimage")
    options = {"halo": 2, "params": {"sigma": 0.5}} | options
    return cm.plan_transform(ndimage.gaussian_filter, source, (MemoryStore(), "b"), **options)


def test_a_plan_prints_its_figures(source):
    plan = planned(source, block=(32, 32, 32))
    text = " ".join(plan.explain().split())
    assert "27 blocks of (32, 32, 32), with a halo" in text
    assert "each element 4.6 times" in text
    assert plan.n_keys == 216
    assert plan.bytes_read == pytest.approx(
        plan.read_amplification * sum(map(source.store.size, source.stored.stored_keys())), rel=0.01
    )
    report = plan.run()
    assert report.bytes_read == pytest.approx(plan.bytes_read, rel=0.02)
    assert report.read_amplification == pytest.approx(plan.read_amplification, rel=0.01)
    assert report.n_requests == plan.n_requests


def test_blocks_are_as_large_as_memory_allows(source):
    least = planned(source, block=(16, 16, 16)).peak_memory_bytes
    found = [planned(source, max_mem=n).read_amplification for n in (least, 4 * least, "400 MB")]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    with pytest.raises(JobError, match=rf"the smallest that works is {least} bytes.*; give max_mem={least} or more"):
        planned(source, max_mem=least - 1)


def test_blocks_that_cut_store_keys_are_refused(source):
    with pytest.raises(AlignmentError, match=r"multiples of \(16, 32, 16\)"):
        planned(source, chunks=(16, 32, 16), block=(16, 16, 16))
    assert planned(source, chunks=(16, 32, 16), block={1: 32}).job is not None


def test_an_unfinished_job_is_resumed_by_other_workers(source):
    store = MemoryStore()
    calls = []

    def function(block, block_id=None):
        calls.append(block.shape)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return -block

    function.__dask_tokenize__ = lambda: "negative"

    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        cm.plan_transform(function, source, (store, "b"), dtype="f4", block=(16, 16, 16)).run()
    with dask.config.set(num_workers=1):
        other = cm.plan_transform(function, source, (store, "b"), dtype="f4", max_mem="1 GB")
        assert other.at_target() == "an unfinished job of this plan, which will be resumed"
        other.run()
    assert set(calls) == {(16, 16, 16)}
    np.testing.assert_array_equal(cm.open_array(store, "b")[...], -source[...])
