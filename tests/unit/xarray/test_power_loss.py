"""After a crash of the machine an append of a dataset is there or not, and the next one works (P11)."""

import sys

import numpy as np
import pytest
import xarray as xr
from support.power_loss import recorded_crashes

import chunkmill as cm

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of open files are in /proc")


def days(first, last):
    at = np.arange(first, last)
    return xr.Dataset({"v": ("t", at * 10.0)}, {"t": at}).chunk(t=4)


@pytest.mark.usefixtures("one_thread")
def test_after_an_append_the_next_one_works(disk_folder):
    """Where the document says that there are more days, their chunks are there, and are not empty."""
    encoding = {name: {"chunks": (4,)} for name in "tv"}
    cm.write_dataset(days(0, 5), disk_folder / "d.zarr", encoding=encoding)
    with recorded_crashes(disk_folder) as disk:
        cm.write_dataset(days(5, 9), disk_folder / "d.zarr", append_dim="t")
    for state in disk.states:
        with xr.open_dataset(state / "d.zarr", engine="chunkmill") as ds:
            again = {"region": "auto"} if ds.sizes["t"] > 5 else {"append_dim": "t"}
        cm.write_dataset(days(5, 9), state / "d.zarr", **again)
        cm.write_dataset(days(9, 11), state / "d.zarr", append_dim="t")
        with xr.open_dataset(state / "d.zarr", engine="chunkmill") as ds:
            assert ds.t.values.tolist() == list(range(11)), state
            assert ds.v.values.tolist() == [10.0 * day for day in range(11)], state
