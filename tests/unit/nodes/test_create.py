"""Many arrays created at once."""

from contextlib import ExitStack, nullcontext
from functools import partial
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest
from support.cases import cases
from support.recording import Meanwhile, RecordingStore

import chunkmill as cm
from chunkmill.errors import JobError, NodeExists, UnsupportedFeature
from chunkmill.journal.lease import leased
from chunkmill.stores import conflicts
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import Meter, MeteredStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
ABOUT = {"shape": (4,), "dtype": "i4", "chunks": (2,)}


@pytest.mark.parametrize("fmt", FORMATS)
def test_they_are_as_if_created_one_by_one(store, fmt):
    wanted = {"g/a": ABOUT, "g/h/b": {**ABOUT, "chunks": (3,)}, "c": {**ABOUT, "attributes": {"x": 1}}}
    made = cm.create_arrays(store, wanted, format=fmt)
    assert list(made) == list(wanted)
    made["g/a"][...] = np.arange(4)
    single = MemoryStore()
    for path, about in wanted.items():
        cm.create_array(single, path, format=fmt, **about)
    documents = {key: value for key in single.list_prefix("") if (value := single.get(key)) is not None}
    assert {key: store.get(key) for key in documents} == documents
    assert cm.open_group(store)["g/a"][...].tolist() == [0, 1, 2, 3]
    assert cm.check(store).ok


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_one_of_many_is_opened_by_its_own_documents(fmt):
    """Those of the group, consolidated, may be 100 MB."""
    store = RecordingStore(MemoryStore())
    cm.create_group(store, "", format=fmt)
    cm.create_arrays(store, {f"g/{i}": ABOUT for i in range(50)})
    cm.consolidate(store)
    store.clear()
    assert cm.open_array(store, "g/7").shape == (4,)
    assert {key.rpartition("/")[0] for key in store.keys("get")} == {"g/7"}
    store.delete("g/7/zarr.json")
    store.delete("g/7/.zarray")
    assert cm.open_array(store, "g/7").shape == (4,)  # as consolidated metadata have it
    assert cm.open_array(store, "g/8", consolidated=True).shape == (4,)


@cases(("fmt", "n_requests"), [("zarr2", 10), ("zarr3", 2), ("zarr3-draft", 3), ("n5", 1)])
def test_bytes_and_requests_are_linear(fmt, n_requests):
    """Consolidated metadata take what was written, which is read again."""

    def costs(n):
        store = MemoryStore()
        cm.create_group(store, format=fmt)
        if fmt in {"zarr2", "zarr3"}:
            cm.consolidate(store)
        meter = Meter()
        cm.create_arrays(MeteredStore(store, meter), {f"a{i}": ABOUT | {"attributes": {"x": 1}} for i in range(n)})
        return (meter.bytes_read + meter.bytes_written) / n, meter.n_requests / n

    (few_bytes, few_requests), (many_bytes, many_requests) = costs(40), costs(400)
    assert many_bytes < 1.2 * few_bytes
    assert many_requests < 1.2 * few_requests
    assert many_requests < n_requests + 0.1


def test_those_that_are_alike_but_for_a_sign_are_not_the_same():
    about = {str(fill): ABOUT | {"dtype": "f4", "fill_value": fill} for fill in (0.0, -0.0)}
    made = cm.create_arrays(MemoryStore(), about)  # those that are alike are described once
    assert [str(array.fill_value) for array in made.values()] == ["0.0", "-0.0"]


def test_what_new_arrays_are_like_need_not_be_pickled():
    like = {str(n): {"like": SimpleNamespace(shape=(n,), dtype="i4", file=Lock())} for n in (3, 4)}
    assert [array.shape for array in cm.create_arrays(MemoryStore(), like).values()] == [(3,), (4,)]


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_there_is_refused_before_anything_is_created(store, fmt):
    cm.create_array(store, "g/b", format=fmt, **ABOUT)
    keys = set(store.list_prefix(""))
    with pytest.raises(NodeExists, match="1 of 3 arrays exist; nothing was created"):
        cm.create_arrays(store, {"g/a": ABOUT, "g/b": ABOUT, "h/c": ABOUT})
    with pytest.raises(NodeExists, match="cannot have nodes below it"):
        cm.create_arrays(store, {"g/b/c": ABOUT})
    with pytest.raises(NodeExists, match="cannot have nodes below it"):
        cm.create_arrays(store, {"x": ABOUT, "x/y": ABOUT})
    with pytest.raises(TypeError, match=r"arrays\['x'\].*create_array\(\).*chnks"):
        cm.create_arrays(store, {"w": ABOUT, "x": {**ABOUT, "chnks": 1}})
    assert set(store.list_prefix("")) == keys


@cases(("fmt", "document"), [("zarr2", "g/.zgroup"), ("zarr3", "g/zarr.json"), ("n5", "g/attributes.json")])
@cases("kind", ["group", "array"])
def test_what_others_make_above_in_the_same_moment(store, fmt, document, kind):
    """Their group keeps its attributes; below their array no node can be."""
    about = {"attributes": {"by": "others"}, "format": fmt} | (ABOUT if kind == "array" else {})
    make = partial(cm.create_array if kind == "array" else cm.create_group, path="g", **about)
    watched = Meanwhile(store, ("set_if", document), make)
    with pytest.raises(NodeExists) if kind == "array" else nullcontext():
        cm.create_array(watched, "g/a", format=fmt, **ABOUT)
    assert cm.open(store, "g").attributes == {"by": "others"}
    assert watched.done


def test_one_that_the_format_cannot_hold(store):
    with pytest.raises(UnsupportedFeature):
        cm.create_arrays(store, {"a": ABOUT, "b": {"shape": (4,), "dtype": "c8"}}, format="n5")
    assert list(store.list_prefix("")) == []


def before_it_is_there(act):
    """Return a store in which others act just before a document is there."""
    return Meanwhile(MemoryStore(), ("set_if", "g/b/zarr.json"), act)


CREATORS = {
    "array": lambda store: cm.create_array(store, "g/b", **ABOUT),
    "arrays": lambda store: cm.create_arrays(store, {"g/a": ABOUT, "g/b": ABOUT}),
    "group": lambda store: cm.create_group(store, "g/b"),
}


@cases("creator", CREATORS)
@cases("path", ["g", "g/b"])
def test_what_is_created_where_others_have_begun_to_write_is_withdrawn(creator, path, monkeypatch):
    """They saw no node, and write chunks, which would be values of the new one."""
    waited = []
    monkeypatch.setattr(conflicts, "pause", waited.append)
    with ExitStack() as held:
        store = before_it_is_there(lambda below: held.enter_context(leased(below, path, "convert it")))
        cm.create_group(store)
        cm.consolidate(store)
        with pytest.raises(JobError, match=r"is running: 'convert it'"):
            CREATORS[creator](store)
        assert "g/b" not in cm.open_group(store, consolidated=True)
        assert 1 < sum(waited) < 5
        assert not [key for key in store.list_prefix("g/") if key != "g/zarr.json"]
    CREATORS[creator](store)


@cases("kind", ["array", "group"])
def test_what_others_create_first_is_theirs_alone(kind, monkeypatch):
    """Zarr v2 has documents for arrays, groups and attributes: none of ours is left."""
    store, other = cm.create_group(MemoryStore(), format="zarr2").store, MemoryStore()
    cm.consolidate(store)
    monkeypatch.setattr(conflicts, "pause", lambda _: cm.consolidate(store))
    cm.create_array(other, "g/array", format="zarr2", **ABOUT)
    cm.create_group(other, "g/group", format="zarr2")
    theirs = f".z{kind}"
    document = other.get(f"g/{kind}/{theirs}")
    raced = Meanwhile(store, ("set_if", "g/b/.zarray"), lambda below: below.set(f"g/b/{theirs}", document))
    with pytest.raises(NodeExists, match="made by others"):
        cm.create_array(raced, "g/b", format="zarr2", attributes={"n": 1}, **ABOUT)
    assert list(store.list_prefix("g/b/")) == [f"g/b/{theirs}"]
    assert cm.check(store).ok


@cases("creator", CREATORS)
def test_what_is_created_stays_where_others_give_up(creator, monkeypatch):
    """Who leases a path looks for a node afterwards: of both, one goes on."""

    def begin(below):
        held.enter_context(leased(below, "g/b", "convert it"))
        below.set("g/b/c/0", b"a chunk")

    with ExitStack() as held:
        store = before_it_is_there(begin)
        monkeypatch.setattr(conflicts, "pause", lambda _: held.close())
        CREATORS[creator](store)
    assert not [key for key in store.list_prefix("") if ".chunkmill" in key]
    assert "g/b" in cm.open_group(store)
    assert creator == "group" or store.get("g/b/c/0") is None


@cases("creator", CREATORS)
def test_groups_above_that_are_deleted_at_the_same_time_are_made_again(creator):
    store = before_it_is_there(lambda below: below.delete("g/zarr.json"))
    cm.create_group(store, "g")
    CREATORS[creator](store)
    assert "b" in cm.open_group(store, "g")
