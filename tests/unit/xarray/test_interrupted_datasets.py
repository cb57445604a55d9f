"""`write_dataset` that dies between any two writes: readers see the old or the new, and the same call again succeeds."""

import numpy as np
import pytest
import xarray as xr
from support.datasets import LATER, is_alive, read, refused, series
from support.recording import CHANGES, Meanwhile, RecordingStore

import chunkmill as cm
from chunkmill.errors import DatasetError, StoreError
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.xarray.publication import ATTRIBUTE, UnfinishedAppend


class Dying(RecordingStore):
    """Dies after the mark of an append and the document of one array."""

    def _before(self, method, key, byte_range=None):
        if method in CHANGES and key.endswith(("zarr.json", "attributes.json")):
            super()._before(method, key)
            if len(self.log) > 2:
                raise RuntimeError("injected")


@pytest.mark.parametrize("name", ["zarr3", "n5"])
def test_after_an_interrupted_append(store, name):
    cm.write_dataset(series(), store, format=name, consolidated=False)
    with pytest.raises(RuntimeError, match="injected"):
        cm.write_dataset(LATER, Dying(store), append_dim="time")
    assert {cm.open_array(store, each).shape[0] for each in ("v", "time")} == {5, 8}
    is_alive(store, 5)
    with pytest.raises(DatasetError, match="along 'time' to 'time', 'v' was interrupted; repeat it"):
        cm.write_dataset(xr.Dataset({"mask": ("x", [5]), "v": (("time", "x"), np.ones((5, 1), "f4"))}, {"x": [40]}),
                         store, append_dim="x")  # fmt: skip
    cm.write_dataset(series().isel(time=slice(1, 3))[["v"]] + 5, store, region="auto")
    cm.write_dataset(xr.Dataset({"w": ("x", [1, 2, 3, 4])}), store, mode="a")
    assert read(store).v[1, 0] == 106
    cm.write_dataset(series(1, "2000-01-06"), store, append_dim="time")  # another one, and a shorter
    found = read(store).load()
    assert found.sizes["time"] == 6
    np.testing.assert_array_equal(found.v[[0, 5]], series(6).v[[0, 5]])


def test_two_appends_at_a_time(url):
    """The second to be published is refused: it would take the elements of the first for its own."""
    cm.write_dataset(series(), url)
    first, second = (cm.write_dataset(LATER.chunk(time=1), url, append_dim="time", compute=False) for _ in range(2))
    first.compute(scheduler="sync")
    with pytest.raises((DatasetError, StoreError), match=r"changed or replaced by others|not as it was"):
        second.compute(scheduler="sync")
    is_alive(open_store(url), 8)


@pytest.mark.parametrize("change", [
    lambda store: store.delete("v/zarr.json"),
    lambda store: store.set("v/zarr.json", store.get("v/zarr.json").replace(b"NaN", b"Infinity")),
], ids=["deleted", "changed"])  # fmt: skip
def test_an_array_that_changes_while_an_append_is_published(change):
    cm.write_dataset(series(), below := MemoryStore(), consolidated=False)
    store = Meanwhile(below, ("set_if", "zarr.json"), change)
    refused(r"'v'.* was changed or replaced by others while elements were .*again", LATER, store, append_dim="time")


def test_an_append_that_others_have_marked_since_it_was_planned():
    cm.write_dataset(series(), below := MemoryStore(), consolidated=False)
    mark = {ATTRIBUTE: UnfinishedAppend("time", {"v": (3,)}).to_json()}
    marked = cm.create_group(MemoryStore(), attributes=mark).store.get("zarr.json")
    its_lease = Meanwhile(below, lambda method, key: method in CHANGES, lambda its: its.set("zarr.json", marked))
    refused(r"was changed or replaced by others while elements", LATER, its_lease, append_dim="time")
    assert below.get("zarr.json") == marked


@pytest.mark.parametrize(("name", "path"), [("zarr2", ""), ("zarr3", "g"), ("n5", "")])
def test_replacing_keeps_the_old_until_the_new_is_whole(url, name, path):
    """A block of the source that raises leaves the old dataset, and no files beside it."""
    cm.write_dataset(series(), url, path, format=name)
    bad = series(9).chunk(time=1)
    bad["v"] = bad.v.copy(data=bad.v.data.map_blocks(_fail, dtype="f4"))
    with pytest.raises(RuntimeError, match="bad block"):
        cm.write_dataset(bad, url, path, mode="w", format=name)
    xr.testing.assert_identical(read(url, group=path or None).load(), series())
    assert cm.check(url).ok
    cm.write_dataset(series(9).chunk(time=2), url, path, mode="w", format=name)
    for consolidated in (None, False):
        xr.testing.assert_identical(read(url, group=path or None, consolidated=consolidated).load(), series(9))
    assert cm.check(url).ok


def _fail(block):
    if block.size and block.flat[0] > 500:
        raise RuntimeError("bad block")
    return block
