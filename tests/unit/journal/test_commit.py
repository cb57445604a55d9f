"""A commit is decided once, applied by one client at a time, and rolled forward by the next one."""

import errno
import itertools
import json
import os
from dataclasses import asdict, replace
from hashlib import sha256

import pytest

from chunkmill.errors import JobError, StoreError
from chunkmill.journal import commit, heartbeat
from chunkmill.journal.commit import (
    ByCopies,
    ByRename,
    Intent,
    decide,
    intent_key,
    is_applying,
    is_decided,
    roll_forward,
    roll_forward_plan,
)
from chunkmill.journal.names import journal_prefix, run_tag, staged_prefix
from chunkmill.journal.plans import Plan
from chunkmill.stores import conflicts
from chunkmill.stores.memory import MemoryStore

JOURNAL = journal_prefix("a")
RECORD = intent_key("a", "1")
COPIES = ByCopies(
    documents=f"{JOURNAL}documents-1/",
    new_documents=(("a/c/zarr.json",), ("a/zarr.json",)),
    old_prefixes=("a/",),
    old_documents=(("a/zarr.json",), ("a/b/zarr.json",)),
    placeholder="a/.chunkmill-new-1-applied",
)
PLANNED = Intent(job="replace 'a'", path="a", run="1", prefix="a/", staged=f"{JOURNAL}new-1/", way=COPIES)
PLACED = {"a/0": b"new", "a/zarr.json": b"new", "a/c/zarr.json": b"new", "other": b"other", f"a/{PLANNED.tag}": b""}


def staged():
    store = MemoryStore()
    for key in ("a/0", "a/1", "a/zarr.json", "a/b/zarr.json"):
        store.set(key, b"old")
    store.set("other", b"other")
    store.set(f"{JOURNAL}plan.json", b'{"run": "1"}')
    for key in ("a/zarr.json", "a/c/zarr.json"):
        store.set(f"{COPIES.documents}{key}", b"new")
    store.set(f"{PLANNED.staged}0", b"new")
    store.set(f"{PLANNED.staged}{PLANNED.tag}", b"1")
    return store


def decided():
    store = staged()
    decide(store, PLANNED)
    return store


def values(store):
    return {key: store.get(key) for key in store.list_prefix("") if not key.startswith(JOURNAL)}


def left(store):
    return [key for key in store.list_prefix(JOURNAL) if key not in {RECORD, f"{JOURNAL}plan.json"}]


def test_the_new_node_is_in_place_alone():
    store = decided()
    assert roll_forward(store, "a", "1")
    assert values(store) == PLACED
    assert not left(store)
    store.set("a/1", b"since")
    assert roll_forward(store, "a", "1")  # again: nothing happens
    assert values(store) == {**PLACED, "a/1": b"since"}


class Died(BaseException):
    pass


class Dying(MemoryStore):
    n_left = 1 << 30

    def _spend(self):
        self.n_left -= 1
        if self.n_left < 0:
            raise Died

    def set(self, key, value, **pin):
        self._spend()
        super().set(key, value, **pin)

    def set_if(self, key, value, version, **pin):
        self._spend()
        return super().set_if(key, value, version, **pin)

    def delete(self, key, **pin):
        self._spend()
        super().delete(key, **pin)


def test_the_next_client_rolls_forward(monkeypatch):
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    for n in itertools.count():
        store = Dying()
        for key, (value, _) in decided()._values.items():
            store.set(key, value)
        store.n_left = n
        try:
            roll_forward(store, "a", "1")
        except Died:
            there = values(store)
            assert there.get("a/zarr.json") != b"new" or (there["a/0"], there["a/c/zarr.json"]) == (b"new", b"new")
            assert there.get("a/zarr.json") != b"old" or there["a/0"] == b"old"
        else:
            break
        store.n_left = 1 << 30
        assert roll_forward(store, "a", "1")
        assert values(store) == PLACED
        assert not [key for key in left(store) if "/running/" not in key]
    assert n > 10


def test_one_client_at_a_time(monkeypatch):
    """The second one waits until the first has ended, and replaces nothing that came since."""
    store, waited = decided(), []

    def first_ends(_):
        waited.append(1)
        owner = next(key for key in store.list_prefix(f"{JOURNAL}running/") if key != mine[0])
        heartbeat._ALIVE.pop(owner)

    monkeypatch.setattr(conflicts, "pause", first_ends)
    mine = []
    with heartbeat.Heartbeat(store, f"{JOURNAL}running/first", "").running():
        first = heartbeat.Heartbeat(store, f"{JOURNAL}running/first", "")
        assert commit._claim(store, PLANNED, first) is None
        mine.append(f"{JOURNAL}running/second")
        monkeypatch.setattr(commit, "uuid4", lambda: type("Name", (), {"hex": "second"}))
        assert roll_forward(store, "a", "1")
        assert waited
        with pytest.raises(JobError):  # suspended: it deletes nothing any more
            first.check(now=True)
    assert values(store) == PLACED


def test_a_lost_answer_to_the_claim_is_not_another_client(monkeypatch):
    class LosesAnswers(MemoryStore):
        def set_if(self, key, value, version):
            return super().set_if(key, value, version) and key != RECORD

    def waited(_):
        pytest.fail("waits for itself")

    store = LosesAnswers()
    for key, value in ((key, decided().get(key)) for key in decided().list_prefix("")):
        store.set(key, value)
    monkeypatch.setattr(conflicts, "pause", waited)
    assert roll_forward(store, "a", "1")
    assert values(store) == PLACED


def test_nothing_is_deleted_where_nothing_is_staged():
    store = staged()
    assert not is_decided(store, "a", "1", "a/")
    before = values(store)
    store.delete(f"{PLANNED.staged}{PLANNED.tag}")
    with pytest.raises(JobError, match="has ended"):
        decide(store, PLANNED)
    assert not is_applying(store, "a", "1")
    with pytest.raises(JobError, match=r"replace 'a'.*has ended"):
        roll_forward(store, "a", "1", job="replace 'a'")
    assert values(store) == before


def test_another_node_is_not_replaced():
    store = decided()

    class Racing(MemoryStore):
        def delete(self, key, **pin):
            super().delete(key, **pin)
            if key == "a/1":
                self.set("a/zarr.json", b"somebody's")

    racing = Racing()
    for key, (value, _) in store._values.items():
        racing.set(key, value)
    with pytest.raises(StoreError, match="others have made or changed a node here"):
        roll_forward(racing, "a", "1")
    assert racing.get("a/zarr.json") == b"somebody's"
    assert racing.get(f"{PLANNED.staged}0") == b"new"  # and nothing is lost


@pytest.mark.parametrize(
    "record", [b"", b"[" * 100_000, b"[]", b"{}", b'{"last": 1, "old_prefixes": [], "old_documents": []}', b"null"]
)
def test_a_damaged_record_is_one_error_and_deletes_nothing(record):
    store = MemoryStore()
    store.set(intent_key("a", "r"), record)
    store.set("a/zarr.json", b"old")
    with pytest.raises(StoreError, match="the intent record of an interrupted commit is damaged"):
        roll_forward(store, "a", "r")
    assert store.get("a/zarr.json") == b"old"


@pytest.mark.parametrize(
    "damage",
    [
        {"staged": 1},
        {"run": None},
        {"seen": []},
        {"new": {"b/zarr.json": 1}},
        {"further": 1},
        {"way": {**asdict(COPIES), "old_prefixes": [1]}},
        {"way": {**asdict(COPIES), "new_documents": [[{}]]}},
        {"way": 1},
    ],
    ids=str,
)
def test_a_record_with_values_of_other_types_is_the_same_error(damage):
    test_a_damaged_record_is_one_error_and_deletes_nothing(json.dumps({**asdict(PLANNED), **damage}).encode())


@pytest.mark.parametrize("intent", [PLANNED, replace(PLANNED, way=ByRename(), further=(PLANNED,), owner="o")], ids=str)
def test_a_record_holds_the_intent(intent):
    assert Intent.parsed(json.loads(intent.packed())) == intent


# --------------------------------------------------------------------------------------------------------------------
# Several nodes

PLAN = json.dumps({"run": "1", "job": "x", "path": "a", "old_prefix": "a/"}).encode()


def together(document=b"old"):
    """Return a store where the nodes `a` and `b` are staged, of which `b` has that document, and their intent."""
    store = MemoryStore()
    store.set(f"{JOURNAL}plan.json", PLAN)
    store.set("a/zarr.json", b"old")
    store.set("b/zarr.json", document)
    staged = {path: staged_prefix("a", "1", i) for i, path in enumerate("ab")}
    for prefix in staged.values():
        for name in ("zarr.json", run_tag("1")):
            store.set(prefix + name, b"new")
    hashes = [{"b/zarr.json": sha256(value).hexdigest()} for value in (b"old", b"new")]
    other = Intent("replace 'b'", "b", "1", "b/", staged["b"], ByRename(), *hashes)
    return store, Intent("replace 'a'", "a", "1", "a/", staged["a"], ByRename(), further=(other,))


def test_the_record_of_the_first_node_decides_for_all():
    store, intent = together()
    assert not roll_forward_plan(store, "a", Plan.parsed(PLAN))
    assert (store.get("a/zarr.json"), store.get("b/zarr.json")) == (b"old", b"old")
    decide(store, intent)
    assert is_decided(store, "a", "1", "a/")
    assert is_applying(store, "a", "1")
    for _ in range(2):
        assert roll_forward_plan(store, "a", Plan.parsed(PLAN))
        assert (store.get("a/zarr.json"), store.get("b/zarr.json")) == (b"new", b"new")
        assert list(store.list_prefix("b/")) == ["b/zarr.json"]


def test_a_node_that_others_have_changed_stays():
    store, intent = together(b"theirs")
    decide(store, intent)
    assert roll_forward_plan(store, "a", Plan.parsed(PLAN))
    assert (store.get("a/zarr.json"), store.get("b/zarr.json")) == (b"new", b"theirs")


def test_what_is_not_staged_is_not_decided():
    store, intent = together()
    store.delete(intent.further[0].staged + run_tag("1"))
    with pytest.raises(JobError, match="has ended"):
        decide(store, intent)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_the_rename_is_the_cause_that_is_told(code):
    """The new node has been moved next to its place by then, and is not where it was staged."""

    class Refuses(MemoryStore):
        def replace_prefix(self, prefix, staged, proof):
            self.delete_prefix(staged)
            error = StoreError(url=self.url, key=prefix, reason=f"cannot put it in place: {os.strerror(code)}")
            error.errno = code
            raise error

    intent = Intent("replace 'a'", "a", "1", "a/", staged_prefix("a", "1"), ByRename())
    with pytest.raises(StoreError, match=os.strerror(code)):
        roll_forward(Refuses(), "a", "1", intent=intent, job="replace 'a'", old_prefix="a/")


def test_one_rename_needs_no_record():
    store, intent = together()
    alone = replace(intent, further=())
    assert not alone.is_recorded
    assert roll_forward(store, "a", "1", intent=alone)
    assert roll_forward(store, "a", "1", intent=alone)  # by its tag
    assert store.get("a/zarr.json") == b"new"
    store.delete(f"a/{run_tag('1')}")
    with pytest.raises(JobError, match="has ended"):
        roll_forward(store, "a", "1", intent=alone)
