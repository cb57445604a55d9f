"""Intermediate files: where they are, when they go, and those that are lost or damaged."""

from functools import partial

import pytest
from support.cases import cases
from support.rechunks import check, make, planned_tightly
from support.recording import FailingStore, FarStore, Meanwhile, RecordingStore

from chunkmill.conversion.convert import plan_rechunk, rechunk
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


def test_intermediate_files_elsewhere_go_with_the_next_run_and_the_job():
    store, temp, left = MemoryStore(), MemoryStore(), []
    array, values = make(MemoryStore(), shape=(40, 40), chunks=(1, 40))
    options = {"chunks": (40, 1), "strategy": "spill", "temp": temp}
    for _ in range(2):
        failing = FailingStore(store, every=9, methods=["set", "set_if"], times=1)
        with pytest.raises((StoreError, ChunkError)):
            plan_rechunk(array, failing, **options).run(resume=False)
        left.append(set(temp.list_prefix("")))
    assert left[0].isdisjoint(left[1])
    assert all(left)
    assert not any("intermediate" in key for key in store.list_prefix(""))
    assert rechunk(array, store, **options).n_resumed
    check(store, values, "")
    assert not list(temp.list_prefix(""))


def test_a_temporary_file_that_was_lost_is_not_taken_for_absent_chunks(tmp_path):
    array, values = make(str(tmp_path / "a.zarr"), shape=(40, 40), chunks=(1, 40), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr")
    arguments = {"chunks": (40, 1), "strategy": "spill"}

    def lose(_):
        store.delete(next(k for k in store.list_prefix("") if "/intermediate/" in k and not k.endswith(".absent")))

    losing = Meanwhile(store, lambda method, key: method == "set_if" and "/c/" in f"/{key}", lose)
    with pytest.raises(StoreError, match="intermediate file was written and is gone; run the job again"):
        planned_tightly(array, losing, **arguments).run()
    planned_tightly(array, store, **arguments).run()
    check(store, values, "")


@cases("kind", ["separate", "memory", "far"])
@cases("damage", [lambda _: b"", lambda value: value[: len(value) // 2]])
def test_intermediate_files_that_are_not_as_on_record_are_written_again(tmp_path, kind, damage):
    """Files of another size than is on record failed at every resume."""
    array, values = make(str(tmp_path / "a.zarr"), shape=(10, 10), chunks=(1, 10), absent=[(0, 0)])
    store = LocalStore(tmp_path / "b.zarr") if kind == "separate" else MemoryStore()
    store = FarStore(store) if kind == "far" else store
    arguments = {"chunks": (10, 1), "strategy": "spill"} | ({"temp": tmp_path / "temp"} if kind == "separate" else {})
    planned = partial(plan_rechunk, max_mem="18 MiB") if kind == "far" else planned_tightly
    files = LocalStore(tmp_path / "temp") if kind == "separate" else store

    class Failing(RecordingStore):
        def set_if(self, key, value, version):
            if "/c/" in f"/{key}":
                raise StoreError(url="x", key=key, reason="broken")
            return super().set_if(key, value, version)

    with pytest.raises((StoreError, ChunkError), match="broken"):
        planned(array, Failing(store), **arguments).run()
    own = [key for key in files.list_prefix("") if "intermediate/" in key and files.get(key)]
    assert own
    for key in own:
        files.set(key, damage(files.get(key)))
    report = planned(array, store, **arguments).run()
    assert report.n_resumed == (0 if kind == "far" else 1)  # the file of the absent chunk, which is an empty one
    check(store, values, "")
