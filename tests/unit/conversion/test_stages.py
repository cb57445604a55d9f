"""The stages of a conversion, and what it publishes."""

import pickle

import pytest
from support import small_jobs as jobs
from support.rechunks import make

import chunkmill as cm
from chunkmill.conversion.stages import stages_of
from chunkmill.errors import NodeNotFound
from chunkmill.stores.memory import MemoryStore


def writer_of(plan):
    return plan.job.tasks


@pytest.fixture
def source():
    cm.create_group(store := MemoryStore(), attributes={"title": "all"})
    make(store, "x", shape=(12, 12), chunks=(1, 12))
    make(store, "sub/line", shape=(12,), chunks=(5,))
    return store


def test_stages_of_a_mixture(source):
    writer = writer_of(cm.plan_rechunk(source, MemoryStore(), chunks={"x": (12, 4)}, strategy="spill"))
    convert, spill, write = stages_of(writer, "r", fresh=True)
    assert [stage.name for stage in (convert, spill, write)] == ["convert", "rechunk-spill", "rechunk-write"]
    names = [plan.source.path for plan in writer.plans]
    x, line = names.index("x"), names.index("sub/line")
    assert {which for which, _ in convert.tasks} == {line}
    assert {which for which, _ in spill.tasks} == {which for which, _ in write.tasks} == {x}
    assert spill.common[line] is None
    assert spill.common[x].prefix.endswith(f"/r/{x}/")


def test_stages_of_no_arrays():
    cm.create_group(store := MemoryStore())
    plan = cm.plan_convert(store, MemoryStore(), format="n5")
    assert [(stage.name, len(stage.tasks)) for stage in stages_of(writer_of(plan), "", fresh=True)] == [("convert", 0)]


def test_absent_chunks_are_deleted_where_something_is_there(source):
    target = MemoryStore()
    plan = cm.plan_convert(source, target, format="zarr3")
    assert jobs.stages_of(plan)[0].common[0].fresh
    target.set("sub/line/c/0", b"of an older job")
    assert not jobs.stages_of(plan)[0].common[0].fresh


def test_documents_are_published_once_and_again(source):
    target = MemoryStore()
    job = pickle.loads(pickle.dumps(cm.plan_convert(source, target, format="zarr3"))).job
    target = job.target.store
    job.target.make_room()
    with pytest.raises(NodeNotFound):
        cm.open_group(target)
    written = job.tasks.publish(job.target)
    assert sorted(set(written)) == ["sub/line/zarr.json", "sub/zarr.json", "x/zarr.json", "zarr.json"]
    assert sorted(job.tasks.publish(job.target)) == sorted(written)
    assert dict(cm.open_group(target, consolidated=True).attributes) == {"title": "all"}
