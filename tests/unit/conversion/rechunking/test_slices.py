"""Rechunks whose tasks read slices of raw chunks: no intermediate files, equal values, and changes of the source."""

import pytest
from support.cases import cases
from support.rechunks import check, make
from support.recording import FarStore, RecordingStore

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
F_ORDER = {"name": "transpose", "configuration": {"order": [2, 1, 0]}}
IMAGES, SERIES = {"shape": (8, 250, 1024), "chunks": (1, 256, 1024)}, (8, 16, 64)
LAYOUTS = {
    "zarr3": {"codecs": "raw"},
    "zarr2": {"codecs": "raw", "format": "zarr2"},
    "big endian": {"codecs": [BIG]},
    "shards": {"codecs": "raw", "shards": (2, 256, 1024)},
    "thick": {"codecs": "raw", "chunks": (4, 256, 1024)},
    "overhanging": {"codecs": "raw", "shape": (8, 250, 1000)},
    "F order": {"codecs": [F_ORDER, LITTLE]},
}


def planned(array, target, **options):
    target_chunks = (1024, 8, 16) if array.shape[0] > SERIES[0] else SERIES
    return cm.plan_rechunk(array, (target, "b"), chunks=target_chunks, max_mem="8 MiB", **options)


@cases("layout", LAYOUTS)
def test_each_byte_is_read_once_and_none_is_spilled(layout):
    is_far = layout in {"zarr3", "shards"}
    options = IMAGES | LAYOUTS[layout]
    if layout == "F order":
        options |= {"shape": (1024, 250, 8), "chunks": (1024, 256, 1)}
    source, target = FarStore() if is_far else MemoryStore(), MemoryStore()
    array, values = make(source, absent=[] if layout == "shards" else [(0, 0, 0)], fill_value=3, **options)
    plan = planned(array, target, format="zarr3", shards=None, strategy="direct" if is_far else None)
    assert [stage.name for stage in plan.stages] == ["rechunk-write"]
    assert "slices of raw chunks" in plan.explain()
    report = plan.run()
    check(target, values)
    n_absent = 0 if layout == "shards" else 1 / (2 if layout == "thick" else 8)
    assert report.bytes_read == pytest.approx((1 - n_absent) * plan.bytes_read, abs=1 << 10)
    assert report.n_requests == plan.n_requests
    assert plan.bytes_read == pytest.approx(
        values.nbytes * (1024 / 1000 if layout == "overhanging" else 1), abs=1 << 10
    )


@pytest.mark.parametrize("region", [(slice(2, 8), slice(0, 200)), (slice(0, 8), slice(5, 200))], ids=["at one", "cut"])
def test_a_region_of_the_source(region):
    array, values = make(MemoryStore(), codecs="raw", **IMAGES)
    plan = planned(array, target := MemoryStore(), region=region)
    assert "slices of raw chunks" not in plan.explain()  # its chunks are cut
    plan.run()
    check(target, values[region])


class Changing(RecordingStore):
    """A store of which a chunk is written again when as many were asked for as `after`."""

    def __init__(self, below, after):
        super().__init__(below)
        self.after = after

    def _before(self, method, key, byte_range=None):
        super()._before(method, key, byte_range)
        if "/c/" in key and method.startswith("get"):
            self.after -= 1
            if self.after == 0:
                cm.open_array(self.below, "a", mode="r+")[3] = -1


@cases(("kind", "after"), [(MemoryStore, 4), (LocalStore, 20), (MemoryStore, 1 << 9)])
def test_a_chunk_that_is_replaced_between_two_slices_is_found_and_read_again(kind, after, tmp_path):
    source = MemoryStore() if kind is MemoryStore else LocalStore(tmp_path)
    values = make(source, codecs="raw", **IMAGES)[1]
    watched = Changing(source, after)
    plan = planned(cm.open_array(watched, "a"), target := MemoryStore())
    if after > 1 << 8:  # at rest
        plan.run()
        check(target, values)
        return
    with pytest.raises(JobError, match=r"chunks of the source 'a' .* were written while tasks read slices"):
        plan.run()
    with pytest.raises(NodeNotFound):
        cm.open_array(target, "b")
    report = plan.run()
    values[3] = -1
    check(target, values)
    assert report.n_tasks > 0
