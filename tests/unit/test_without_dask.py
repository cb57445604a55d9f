"""What opens, reads, writes and lists nodes imports neither dask, distributed, xarray nor pandas; jobs not dask.array."""

import numpy as np
from support.arrays import filled
from support.scripts import run_script

BEGIN = """
import sys
import numpy as np
import chunkmill as cm
place = sys.argv[1]
"""
IMPORTED = "sorted({name.partition('.')[0] for name in sys.modules} & {'dask', 'distributed', 'xarray', 'pandas'})"
WAYS = {
    "open_array": "cm.open_array(place, 'a')[0, 0]",
    "open_group": "list(cm.open_group(place)); cm.open_group(place).tree()",
    "open": "repr(cm.open(place)), repr(cm.open(place, 'a'))",
    "create_array": "cm.create_array(place, 'b', shape=(8,), dtype='i4', chunks=(3,))",
    "create_arrays": "cm.create_arrays(place, {'c': {'shape': (8,), 'dtype': 'i4'}})",
    "create_group": "cm.create_group(place, 'g').create_array('c', shape=(3,), dtype='i4')",
    "partial write": "cm.open_array(place, 'a', mode='r+')[1:3, 2] = 7",
    "resize": "cm.open_array(place, 'a', mode='r+').resize((5, 9))",
    "append": "cm.open_array(place, 'a', mode='r+').append(np.ones((2, 9)))",
    "attributes": "cm.open_array(place, 'a', mode='r+').update_attributes({'units': 'K'})",
    "delete": "cm.delete(place, 'a')",
    "consolidate": "cm.consolidate(place)",
    "jobs": "cm.jobs(place)",
    **{
        command: f"from chunkmill.cli.main import main; main([*{command.split()}, place], standalone_mode=False)"
        for command in ("info --missing", "info --json", "ls", "ls --long", "attrs", "jobs")
    },
}
# dask.array imports xarray and pandas: 0.5 s of each command, 46 MiB of each worker
JOBS = """
cm.create_array(place, "j", shape=(7, 6), dtype="f8", chunks=(3, 2))[...] = np.arange(42.0).reshape(7, 6)
cm.rechunk((place, "j"), (place, "k"), chunks=(7, 3), strategy="spill")
cm.convert((place, "j"), (place, "l"), format="n5", chunks=(7, 2), region=(slice(0, 6), ...))
cm.pyramid((place, "j"), (place, "m"), levels=2)
cm.transform(np.negative, (place, "j"), (place, "n"))
assert cm.verify((place, "j"), (place, "k")).equal and cm.check(place).ok
assert not {'dask.array', 'xarray', 'pandas'} & set(sys.modules)
"""
LOCKS = """
from chunkmill.array.threads import automatic_lock
kinds = [type(automatic_lock("k", True)).__name__]
from distributed import Client
with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    kinds.append(client.submit(lambda: type(automatic_lock("k", True)).__name__).result())
print(*kinds)
"""


def test_the_core_imports_no_dask_and_jobs_of_what_is_stored_none_of_its_arrays(tmp_path):
    """One way after the other in one process; at last, where a worker runs, the lock of its cluster is asked for."""
    filled(np.arange(42.0).reshape(7, 6), tmp_path / "s", "a", chunks=(3, 2))
    script = BEGIN + "".join(
        f"{code}\nfound = {{{name!r}: {IMPORTED}}}\nassert not any(found.values()), found\n"
        for name, code in WAYS.items()
    )
    *_, locks, imported = run_script(f"{script}{JOBS}{LOCKS}print(*{IMPORTED})", tmp_path / "s").splitlines()
    assert locks == "lock ClusterLock"
    assert imported.startswith("dask distributed")  # which are found
