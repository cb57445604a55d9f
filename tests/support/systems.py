"""Marks for tests of what not every system has: where they are skipped, the reason says what is not tested."""

import os

import pytest

from chunkmill.stores import directories, posix_file

NEEDS_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="FORKS ARE NOT TESTED: this system has none")
NEEDS_FLOCK = pytest.mark.skipif(not directories.CAN_LOCK, reason="FLOCK IS NOT TESTED: this system has none")
NEEDS_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="PIPES ARE NOT TESTED: this system names none")
NEEDS_NEW_NAMES = pytest.mark.skipif(
    posix_file._of_linux("renameat2") is None,
    reason="CREATING WITHOUT A LOCK IS NOT TESTED: this system has no renameat2",
)
NEEDS_READS_INTO_ARRAYS = pytest.mark.skipif(
    posix_file._read_into is None, reason="READING INTO ARRAYS IS NOT TESTED: this system has no preadv"
)
NEEDS_DESCRIPTORS = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"),  # noqa: PTH112
    reason="OPEN FILES ARE NOT COUNTED: this system lists none",
)
NEEDS_POSIX_NAMES = pytest.mark.skipif(
    os.name == "nt", reason="LINKS, AND NAMES IN URLS, ARE NOT TESTED: the test has those of POSIX"
)
