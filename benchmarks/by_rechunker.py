"""Rechunk one array with Rechunker, in an environment of its own, since it needs zarr-python 2: see README.md.

    python -m venv ENV && ENV/bin/pip install rechunker "zarr<3" "numpy<2.4" dask
    ENV/bin/python benchmarks/by_rechunker.py SOURCE TARGET 512,32,32

SOURCE is an array of Zarr v2. Two threads, as everywhere here; what Rechunker takes as ``max_mem`` is for each of them.
"""

import json
import resource
import shutil
import sys
import time


def main(source: str, target: str, chunks: str, max_mem: str = "192MiB") -> None:
    import dask
    import zarr
    from rechunker import rechunk

    array = zarr.open(source, mode="r")
    temporary = f"{target}.tmp"
    with dask.config.set(scheduler="threads", num_workers=2):
        start = time.perf_counter()
        plan = rechunk(array, tuple(map(int, chunks.split(","))), max_mem, target, temp_store=temporary)
        plan.execute()
        shutil.rmtree(temporary, ignore_errors=True)
        seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
