"""What only POSIX has is not needed to import the package, nor to write and read local files."""

import subprocess
import sys

WITHOUT_POSIX = """
import os, sys
import dask.array, distributed, xarray  # which have their own ways on Windows
sys.modules["fcntl"] = None
for name in ("pread", "O_NONBLOCK"):
    delattr(os, name)
import chunkmill as cm
import numpy as np
cm.to_store(np.arange(12), sys.argv[1], "a", chunks=(4,), shards=(8,))
array = cm.open_array(sys.argv[1], "a", mode="r+")
array[3] = 99
assert array[2:5].tolist() == [2, 99, 4], array[2:5]
"""


def test_local_stores_without_posix(tmp_path):
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX, tmp_path / "x"], capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()
