"""What only POSIX has is not needed to import the package, nor to write and read local files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WITHOUT_POSIX = """
import os, shutil, sys, time
import dask.array, distributed, xarray, pytest  # which have their own ways on Windows
for name in ("fcntl", "resource"):
    sys.modules[name] = None
NAMES = ("pread", "pwrite", "fork", "register_at_fork", "sched_getaffinity", "mkfifo", "fchmod", "chown", "statvfs", "killpg")
for name in (*NAMES, "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "clock_gettime", "CLOCK_BOOTTIME"):
    for module in (os, time):
        vars(module).pop(name, None)
os.supports_fd.discard(os.utime)
shutil._use_fd_functions = False  # as it finds out when it is imported
from chunkmill.stores import posix_file
posix_file._renameat2 = lambda: None
"""

USE = """
import chunkmill as cm
import numpy as np
cm.to_store(np.arange(12), sys.argv[1], "a", chunks=(4,), shards=(8,))
array = cm.open_array(sys.argv[1], "a", mode="r+")
array[3] = 99
assert array[2:5].tolist() == [2, 99, 4], array[2:5]
cm.to_store(np.arange(3), sys.argv[1], "a", mode="w")
assert cm.open_array(sys.argv[1], "a")[...].tolist() == [0, 1, 2]
"""

CONTRACTS = """
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", sys.argv[1], *sys.argv[2:]]))
"""


def test_local_stores_without_posix(tmp_path):
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX + USE, tmp_path / "x"], capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        ["tests/contracts/test_stores.py", "-k", "TestLocal or TestZip or TestMemory"],
        [f"tests/unit/stores/test_{name}.py" for name in ("local", "pinned_directory", "staging", "zip")],
        [f"tests/unit/runtime/test_{name}.py" for name in ("attempts", "fork_safety", "journal", "published")],
    ],
    ids=["contracts", "stores", "runtime"],
)
def test_stores_and_jobs_without_posix(tests):
    command = [sys.executable, "-c", WITHOUT_POSIX + CONTRACTS, ROOT, *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert not done.returncode, done.stdout[-2000:] + done.stderr
    assert "passed" in done.stdout
