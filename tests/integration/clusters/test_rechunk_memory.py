"""The resident memory of a worker that rechunks: of a process that does nothing else (P12)."""

import os
import tempfile
from math import prod
from pathlib import Path

import numpy as np
import pytest
from support.clusters import cluster_of

import chunkmill as cm

MIB = 2**20


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as folder:  # pytest would keep gigabytes
        yield Path(folder)


def resident(name):
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:"))


def forget_peak():
    """Make what is resident now the most that ever was, and return it."""
    import chunkmill.conversion.convert  # noqa: F401 - what is imported is baseline

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


BIG = pytest.mark.skipif("CHUNKMILL_BIG" not in os.environ, reason="25 GB of disk, minutes: set CHUNKMILL_BIG=1")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
@pytest.mark.parametrize(
    ("n_images", "max_mem", "source", "target", "options"),
    [
        pytest.param(2048, 1024, (1, 1024, 1024), (-1, 32, 32), {}, id="1 GiB for 8 GiB, images to series", marks=BIG),
        pytest.param(128, 64, (1, 1024, 1024), (-1, 32, 32), {}, id="64 MiB, images to series"),
        pytest.param(64, 32, (64, 64, 64), (128, 128, 16), {"strategy": "direct"}, id="32 MiB, regrid"),
    ],
)
def test_memory_of_a_worker_stays_within_its_limit(folder, n_images, max_mem, *, source, target, options):
    """An array of eight times `max_mem`, of noise that does not compress: encoded chunks are as large as they get."""
    shape = (n_images, 1024, 1024)
    array = cm.create_array(folder / "a.zarr", shape=shape, dtype="f4", chunks=source, codecs="zstd")
    axis = 0 if array.chunks[0] < n_images else 1
    length = array.chunks[axis]
    random = np.random.Generator(np.random.SFC64(0))
    part = (*shape[:axis], length, *shape[axis + 1 :])
    for start in range(0, shape[axis], length):  # any bits will do, and are made faster than normal numbers
        noise = random.integers(0, 2**64, prod(part) // 2, "u8", endpoint=False).view("f4").reshape(part)
        array[(slice(None),) * axis + (slice(start, start + length),)] = noise
    with cluster_of(1, 2) as client:
        plan = cm.plan_rechunk(array, folder / "b.zarr", chunks=target, max_mem=f"{max_mem} MiB", **options)
        (baseline,) = client.run(forget_peak).values()
        plan.run()
        (peak,) = client.run(resident, "VmHWM").values()
        got = cm.open_array(folder / "b.zarr")
        corner = tuple(slice(0, 32) for _ in shape)
        assert got[corner].tobytes() == array[corner].tobytes()
    used = (peak - baseline) / MIB
    print(f"planned {plan.peak_memory_bytes / MIB:.0f} MiB, used {used:.0f} MiB of {max_mem}")
    assert used <= plan.peak_memory_bytes / MIB <= max_mem
