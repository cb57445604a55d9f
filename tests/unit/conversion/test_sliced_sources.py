"""Marks of sources that are read by slices: equal while nothing is written, and other ones after."""

from types import SimpleNamespace

import pytest
from support.cases import cases
from support.rechunks import make
from support.recording import FarStore, RecordingStore

from chunkmill.conversion import stages
from chunkmill.conversion.stages import check_slices, see_slices
from chunkmill.errors import JobError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


class Listing(FarStore):
    """A store whose requests cost latency, and whose listings tell versions."""

    def list_versions(self, prefix):
        return ((key, self.below.version(key)) for key in self.below.list_prefix(prefix))


def plans_of(array, sliced=0):
    return [SimpleNamespace(source=array, rechunk=SimpleNamespace(source=SimpleNamespace(sliced=sliced)))]


@cases("kind", [MemoryStore, LocalStore, Listing])
def test_a_chunk_that_is_written_again_is_named(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_BATCH", 2)
    array, _ = make(LocalStore(tmp_path) if kind is LocalStore else kind(), shape=(10,), chunks=(2,), absent=[(3,)])
    plans = plans_of(array.stored)
    seen = see_slices(plans)
    check_slices("rechunk", plans, seen)
    array[9:] = 4
    with pytest.raises(JobError, match=r"chunks of the source 'a' .* while tasks read slices of them"):
        check_slices("rechunk", plans, seen)


def test_what_is_read_whole_or_has_no_listed_versions_is_not_asked_for():
    array, _ = make(MemoryStore(), shape=(10,), chunks=(2,))
    source = array.stored.with_store(store := RecordingStore(array.store))
    assert see_slices(plans_of(source, sliced=None)) == {}
    assert see_slices([SimpleNamespace(rechunk=None)]) == {}
    far = FarStore(array.store)
    assert see_slices(plans_of(array.stored.with_store(far))) == {}
    assert not store.log + far.log
