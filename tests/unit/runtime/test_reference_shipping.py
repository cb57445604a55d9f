"""References that travel with the tasks that need them."""

import json
import pickle
import threading

import pytest

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import StoreError
from chunkmill.runtime.reference_shipping import ReferenceSender, references_in_scope
from chunkmill.stores.local import LocalStore

N = 100


@pytest.fixture
def array(tmp_path) -> StoredArray:
    (tmp_path / "data").write_bytes(bytes(range(N)))
    document = {"zarr_format": 2, "shape": [N], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None}
    refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(document | {"fill_value": 0, "order": "C"})}
    refs |= {f"a/{i}": [str(tmp_path / "data"), i, 1] for i in range(N - 1)}  # the last is absent
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    return cm.open_array(str(tmp_path / "refs.json"), "a")


def reads(common, spec):
    return [(common, [f"a/{spec}"])]


def test_a_task_carries_its_own_references(array):
    sender = ReferenceSender(reads, array)
    packed = sender.pack(array)
    tasks = list(sender.with_references([(number, [number]) for number in range(N)]))
    assert len(tasks) == N
    assert max(len(pickle.dumps(task)) for task in tasks[:]) < 2000
    remote = pickle.loads(packed)
    for number, specs, references in tasks[50:52]:
        with references_in_scope(pickle.loads(pickle.dumps(references))):
            assert remote.store.get(f"a/{specs[0]}") == bytes([number])


def test_an_absent_key_is_known_to_be_absent(array):
    sender = ReferenceSender(reads, array)
    remote = pickle.loads(sender.pack(array))
    _, _, references = next(sender.with_references([(0, [N - 1])]))
    with references_in_scope(references):
        assert remote.store.get(f"a/{N - 1}") is None


def test_a_reference_that_was_not_sent_is_an_error(array):
    sender = ReferenceSender(reads, array)
    remote = pickle.loads(sender.pack(array))
    _, _, references = next(sender.with_references([(0, [3])]))
    with references_in_scope(references):
        for ask in (
            lambda: remote.store.get("a/4"),
            lambda: list(remote.store.list_prefix("")),
            lambda: remote.store.list_dir(""),
        ):
            with pytest.raises(StoreError, match="was not sent this reference"):
                ask()
    with pytest.raises(StoreError, match="was not sent this reference"):
        remote.store.get("a/3")  # the task has ended


def test_tasks_of_one_process_hold_theirs_at_the_same_time(array):
    sender = ReferenceSender(reads, array)
    remote = pickle.loads(sender.pack(array))
    tasks = list(sender.with_references([(number, [number]) for number in range(8)]))
    together = threading.Barrier(8)
    found = []

    def run(references, number):
        with references_in_scope(references):
            together.wait(10)
            found.append(remote.store.get(f"a/{number}") == bytes([number]))
            together.wait(10)

    threads = [threading.Thread(target=run, args=(references, number)) for number, _, references in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def test_other_stores_travel_as_they_are():
    sender = ReferenceSender(lambda *_: [], None)
    tasks = [(0, [0])]
    sender.pack({"x": 1})
    assert list(sender.with_references(tasks)) == list(tasks)
    assert pickle.loads(sender.pack(LocalStore("folder"))) == LocalStore("folder")
