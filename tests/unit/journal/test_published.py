"""Documents that an interrupted job has published below its place."""

from chunkmill.journal.journal_names import journal_prefix
from chunkmill.journal.published import note_published, withdraw_published
from chunkmill.stores.memory import MemoryStore


def test_what_others_have_changed_stays():
    store = MemoryStore()
    note_published(store, "g", "g/zarr.json", {"g/a/zarr.json": b"a", "g/b/zarr.json": b"b"})
    store.set("g/a/zarr.json", b"a")
    store.set("g/b/zarr.json", b"of others")
    withdraw_published(store, "g")
    assert (store.get("g/a/zarr.json"), store.get("g/b/zarr.json")) == (None, b"of others")


def test_a_damaged_note_stops_nobody_from_discarding_the_job():
    store = MemoryStore()
    note_published(store, "g", "g/zarr.json", {"g/a/zarr.json": b"a"})
    store.set("g/a/zarr.json", b"a")
    (key,) = store.list_prefix(journal_prefix("g"))
    store.set(key, store.get(key)[:-3])
    withdraw_published(store, "g")
    assert store.get("g/a/zarr.json") == b"a"
