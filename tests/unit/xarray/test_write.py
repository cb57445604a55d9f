"""Reports of a dataset's variables, and of two writes."""

from chunkmill.dask_arrays.write import WriteReport
from chunkmill.xarray.write import DatasetReport


def test_two_writes():
    one, two = WriteReport(3, 1, 0, 30), WriteReport(2, 0, 1, 20, guard="lock")
    joined = DatasetReport({"a": one, "b": one}, ("c", "d")).joined(DatasetReport({"a": two, "d": two}, ("c", "b")))
    assert joined.variables == {"a": WriteReport(5, 1, 1, 50, guard="lock"), "b": one, "d": two}
    assert joined.unchanged == ("c",)
    assert (joined.n_keys, joined.n_partial, joined.bytes_written) == (10, 2, 100)
    assert "store keys" in repr(joined)
