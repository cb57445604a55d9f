"""Jobs whose target, journal included, is an object store, also one that is too busy to answer at once."""

import dask
import dask.array as da
import numpy as np
import pytest
from support.arrays import filled
from support.recording import FailingStore
from support.servers import WARNINGS, serve_flaky

import chunkmill as cm
from chunkmill.errors import ChunkError, StoreError
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.wrapper import Meter, MeteredStore, digest_of

pytestmark = WARNINGS


@pytest.fixture
def store(s3_server):
    return open_store(s3_server.new_bucket() + "/some/root", s3_server.storage_options)


def test_resume(store):
    values, source = np.arange(600, dtype="i4").reshape(100, 6), MemoryStore()
    cm.to_store(values, source, "deep/a", chunks=(3, 4), format="n5")  # 68 chunks, of which a task owns 32
    with pytest.raises((ChunkError, StoreError)):
        cm.convert(source, FailingStore(store, every=60, methods=["set", "set_if"]), format="zarr3")
    assert [job.path for job in unfinished_jobs(store)] == [""]
    report = cm.convert(source, store, format="zarr3")
    assert report.n_resumed > 0
    assert cm.verify(source, store).equal
    assert not unfinished_jobs(store)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]


def test_etags_of_values_are_those_of_listings(store):
    for key in ("a/0", "a/1"):
        store.set(key, b"0123456789")
    read = Meter()
    source = MeteredStore(store, read, is_source=True)
    assert list(source.get_many([ByteSpan("a/0"), ByteSpan("a/1", ByteRange(2, 3))]))[1] == b"234"
    assert read.digest() == digest_of(dict(store.list_versions("a/")))
    assert read.digest() == digest_of({key: store.version(key) for key in ("a/0", "a/1")})


@pytest.mark.parametrize("after", [False, True], ids=["refused", "done, and not said"])
def test_writes_to_a_busy_server(s3_server, after):
    """503 is answered to some requests; obstore waits and asks again."""
    values = np.random.default_rng(0).integers(1, 1000, (12, 10)).astype("i4")
    with serve_flaky(s3_server.endpoint_url, every=6, methods=("GET", "PUT"), after=after) as proxy:
        options = s3_server.storage_options
        options = {**options, "client_kwargs": {**options["client_kwargs"], "endpoint_url": proxy.url}}
        store = open_store(s3_server.new_bucket() + "/x.zarr", options)
        with dask.config.set(scheduler="threads", num_workers=4):
            cm.to_store(da.from_array(values, chunks=(3, 5)), store, "a")
            array = cm.open_array(store, "a", mode="r+")
            regions = [(slice(i, i + 2), slice(j, j + 5)) for i in range(0, 12, 2) for j in (0, 5)]
            parts = [da.from_array(-values[region], chunks=-1) for region in regions]
            writes = [cm.store([x], [array], regions=[r], compute=False) for x, r in zip(parts, regions, strict=True)]
            reports = [report for (report,) in dask.compute(*writes)]
        assert sum(report.n_partial for report in reports) > 8
        assert reports[0].guard == "version"
        np.testing.assert_array_equal(array[...], -values)
        assert proxy.n_failures > 5
    assert cm.check(store.url, storage_options=s3_server.storage_options).ok


@pytest.mark.slow
def test_temporary_files_in_another_store(store, s3_server, tmp_path):
    """Between local files by way of a bucket, and from a bucket to another by way of local files."""
    apart = open_store(s3_server.new_bucket(), s3_server.storage_options)
    values = np.arange(5760, dtype="i4").reshape(24, 30, 8) + 1
    source = filled(values, tmp_path / "local", "a", chunks=(2, 5, 8))
    for target, temp in (((tmp_path / "local", "b"), apart), ((store, "b"), tmp_path / "scratch")):
        report = cm.rechunk(source, target, chunks=(24, 7, 3), strategy="spill", temp=temp)
        assert report.bytes_temporary >= values.nbytes
        np.testing.assert_array_equal(cm.open_array(*target)[...], values)
    assert not [key for each in (apart, store) for key in each.list_prefix("") if "chunkmill" in key]
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert not [name for name in files if "chunkmill" in name]
