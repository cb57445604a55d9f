"""Writes onto the array that is read: refused where a task would read what another overwrites or what is deleted."""

import dask.array as da
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import JobError

pytestmark = pytest.mark.usefixtures("one_thread")


@cases("read", ["to_dask", "from_zarr", "rechunked"])
def test_what_is_read_is_not_replaced(tmp_path, read):
    if read == "from_zarr":
        pytest.importorskip("zarr")
    url = tmp_path / "a.zarr"
    (tmp_path / "link").symlink_to(url)
    array = cm.to_store(da.arange(8, chunks=4), url, "g/a") and cm.open_array(tmp_path / "link", "g/a")
    x = {
        "to_dask": array.to_dask,
        "from_zarr": lambda: da.from_zarr(str(url), "g/a"),
        "rechunked": lambda: cm.from_store(url, "g/a").rechunk(3)[1:].sum() + da.ones(2),
    }[read]()
    for path in ("g/a", "g", ""):
        with pytest.raises(JobError, match=r"mode='w' would delete .*a\.zarr/g/a, which"):
            cm.to_store(x + 1, url, path, mode="w")
    np.testing.assert_array_equal(array, np.arange(8))
    cm.to_store(x + 1, url, "g/ab", mode="w")
    cm.to_store(x.persist(), url, "g/a", mode="w")


IN_PLACE = {
    "block by block": (lambda x: x + 1, np.s_[:], lambda v: v + 1),
    "larger blocks": (lambda x: x.rechunk((10, 20)) * 2, np.s_[:], lambda v: v * 2),
    "the same part": (lambda x: x[5:15, 3:] * 2, np.s_[5:15, 3:], lambda v: v[5:15, 3:] * 2),
    "another part": (lambda x: x[:5] + 1, np.s_[15:], lambda v: v[:5] + 1),
    "held in memory": (lambda x: x.T.persist(), np.s_[:], lambda v: v.T),
}


@cases("case", IN_PLACE)
def test_onto_what_is_read(case):
    make, region, expected = IN_PLACE[case]
    values = np.arange(400.0).reshape(20, 20)
    a = filled(values, chunks=(5, 5))
    cm.to_store(make(a.to_dask()), a, region=region)
    wanted = values.copy()
    wanted[region] = expected(values)
    np.testing.assert_array_equal(a[...], wanted)


def test_onto_what_is_read_shifted():
    values = np.arange(float(4 << 20)).reshape(64, -1)  # blocks of 8 MiB: of smaller ones a task would write several
    a = filled(values, chunks=(16, values.shape[1]), codecs="raw")
    shifted = a.to_dask(region=np.s_[:56])
    with pytest.raises(JobError, match="of the same array"):
        cm.to_store(shifted, a, region=np.s_[8:])
    cm.to_store(shifted.persist(), a, region=np.s_[8:])
    np.testing.assert_array_equal(a[8:], values[:56])


def test_onto_what_is_read_costs_no_walk(monkeypatch):
    """Where the layers tell that each block is made from itself, no task is looked at."""
    a = filled(np.zeros(50), chunks=(1,))
    monkeypatch.setattr("chunkmill.dask_arrays.hazards.convert_legacy_graph", None)
    cm.store(da.where(a.to_dask() > 0, a.to_dask(), da.from_array(np.ones(50), chunks=1)), a)
    assert (a[...] == 1).all()
