"""What only POSIX has is not needed to import the package, nor to write and read local files (P2)."""

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from chunkmill.stores import posix_file

ROOT = Path(__file__).parents[2]

WITHOUT_POSIX = """
import multiprocessing.popen_fork, os, shutil, signal, sys, time
import dask.array, distributed, xarray, pytest  # which have their own ways on Windows
try:
    import trio  # has as well: hypothesis imports it where it is installed
except ImportError:
    pass
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
UNKNOWN_TO_WINDOWS = {
    os: "O_ACCMODE O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_LARGEFILE O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SYNC"
    " SEEK_DATA SEEK_HOLE WNOHANG chown chroot confstr copy_file_range eventfd fchdir fchmod fchown fdatasync fork forkpty fpathconf fstatvfs"
    " fwalk getgroups getloadavg getpgid getpgrp getpriority getrandom getresuid getsid getxattr killpg lchown listxattr"
    " lockf memfd_create mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev readv"
    " register_at_fork removexattr sched_getaffinity sched_setaffinity sched_yield setpgid setpriority setsid setuid setxattr splice statvfs sync"
    " uname wait wait3 wait4 waitid writev",
    time: "CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_REALTIME CLOCK_TAI clock_getres clock_gettime clock_gettime_ns clock_settime tzset",
    signal: "SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIG_BLOCK SIG_SETMASK alarm pause pthread_kill"
    " pthread_sigmask setitimer sigwait",
}
for module, names in UNKNOWN_TO_WINDOWS.items():
    for name in names.split():
        vars(module).pop(name, None)
multiprocessing.popen_fork.Popen.kill = multiprocessing.popen_fork.Popen.terminate  # as on Windows
os.supports_fd.discard(os.utime)
shutil._use_fd_functions = False  # as it finds out when it is imported
from chunkmill.stores import posix_file
posix_file._renamed = lambda *_: False
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
def test_stores_and_jobs_without_posix():
    pytest.importorskip("obstore")  # of the contracts
    tests = ["tests/contracts/test_stores.py"]
    tests += [f"tests/unit/stores/test_{name}.py" for name in ("local", "directories", "zip", "open", "wrapper")]
    tests += [f"tests/unit/runtime/test_{name}.py" for name in ("cancellation", "stage")]
    chosen = ["-m", "not slow", "-k", "not test_stores.py or TestLocal or TestZip or TestMemory"]
    command = [sys.executable, "-c", WITHOUT_POSIX + CONTRACTS, ROOT, *chosen, *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert not done.returncode, done.stdout[-2000:] + done.stderr
    assert "passed" in done.stdout


def test_without_proc_and_the_functions_of_linux(tmp_path, monkeypatch):
    monkeypatch.setattr(posix_file, "_of_linux", lambda _: None)
    monkeypatch.setattr("os.sync", synced := Mock())
    posix_file.sync_file_system(str(tmp_path))
    assert synced.called
    monkeypatch.setattr(posix_file, "_BOOT_ID", str(tmp_path / "none"))
    assert posix_file.origin.__wrapped__() == (socket.gethostname(), "", "")
    monkeypatch.setattr(posix_file, "os", SimpleNamespace(name="nt"))
    assert posix_file.sync_file_system(str(tmp_path)) is posix_file.sync_directory(str(tmp_path)) is None
