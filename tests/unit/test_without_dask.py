"""What opens, reads, writes and lists nodes imports neither dask, distributed, xarray nor pandas."""

import base64
import json
import os
from textwrap import dedent

import dask
import numpy as np
import pytest
from support.cases import cases
from support.scripts import run_script

import chunkmill as cm
from chunkmill.config import read_settings

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


@pytest.fixture
def place(tmp_path):
    cm.create_array(tmp_path / "s", "a", shape=(7, 6), dtype="f8", chunks=(3, 2))[...] = np.arange(42.0).reshape(7, 6)
    return str(tmp_path / "s")


def test_the_core_imports_no_dask(place):
    """One way after the other in one process: importing numpy and the package takes most of the time."""
    script = BEGIN + "".join(
        f"{code}\nfound = {{{name!r}: {IMPORTED}}}\nassert not any(found.values()), found\n"
        for name, code in WAYS.items()
    )
    found = run_script(f"{script}cm.open_array(place, 'b').to_dask()\nprint(*{IMPORTED})", place)
    assert found.splitlines()[-1].startswith("dask")  # which is found where it is needed


INHERITED = base64.urlsafe_b64encode(json.dumps({"chunkmill": {"fsync": True, "temp": "/t"}}).encode()).decode()
CASES = [
    ({}, {}),
    ({"DASK_CHUNKMILL__MAX_MEM": "1GiB"}, {}),
    ({"DASK_CHUNKMILL__PROGRESS": "False", "DASK_CHUNKMILL__FSYNC": "true"}, {}),
    ({"DASK_CHUNKMILL__REMOTE_REQUESTS": "7", "DASK_CHUNKMILL__TEMP": "null"}, {}),
    ({"DASK_CHUNKMILL__RETRY_SECONDS": "1.5"}, {}),
    ({"DASK_CHUNKMILL": "{'fsync': True, 'max-mem': 5}"}, {}),
    ({"DASK_INTERNAL_INHERIT_CONFIG": INHERITED, "DASK_CHUNKMILL__FSYNC": "False"}, {}),
    ({}, {"a.yaml": "chunkmill:\n  fsync: true\n  max_mem: 2 GiB\n"}),
    ({}, {"a.yaml": "chunkmill:\n  fsync: true\n", "b.yml": "chunkmill:\n  fsync: false\n  temp: /scratch\n"}),
    ({}, {"a.json": '{"chunkmill": {"retry-seconds": 5}}', "b.txt": "chunkmill: {fsync: true}", "c.yaml": ""}),
    ({"DASK_CHUNKMILL__MAX_MEM": "3"}, {"a.yaml": "chunkmill:\n  max-mem: 2 GiB\narray:\n  chunk-size: 1MiB\n"}),
    ({}, {"a.yaml": "chunkmill:\n"}),
]


@cases(("environment", "files"), CASES)
def test_settings_without_dask_are_those_of_dask(tmp_path, monkeypatch, environment, files):
    for name, text in files.items():
        tmp_path.joinpath(name).write_text(text)
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)
    for name, value in {"DASK_CONFIG": str(tmp_path), **environment}.items():
        monkeypatch.setenv(name, value)
    section = dask.config.collect([str(tmp_path)], environment).get("chunkmill") or {}
    assert read_settings.__wrapped__() == {name.replace("_", "-"): value for name, value in section.items()}
    assert len(section) >= len(environment)


def test_what_is_named_may_be_a_file_and_hold_what_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").mkdir()
    (tmp_path / "b.yaml").write_text("chunkmill: {fsync: true}")
    for place in (tmp_path, tmp_path / "b.yaml"):
        monkeypatch.setenv("DASK_CONFIG", str(place))
        assert read_settings.__wrapped__()["fsync"] is True
    for text, reason in (("chunkmill: [", ""), ("- 1", "it is not a mapping")):
        (tmp_path / "b.yaml").write_text(text)
        with pytest.raises(ValueError, match=rf"b\.yaml' is malformed: {reason}"):
            read_settings.__wrapped__()


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    tmp_path.joinpath("a.yaml").write_text("- chunkmill\n")
    script = "from chunkmill.config import setting\ntry: setting('fsync')\nexcept ValueError as error: print(error)"
    assert "is malformed: it is not a mapping" in run_script(script, DASK_CONFIG=str(tmp_path))


def test_the_config_of_dask_rules_once_it_is_imported():
    script = """
from chunkmill.config import setting
before = setting("fsync")
import dask
with dask.config.set({"chunkmill.fsync": True}):
    print(before, setting("fsync"), dask.config.get("chunkmill.progress"))
"""
    assert run_script(script) == "False True auto"


def test_the_defaults_are_those_of_the_file():
    yaml = pytest.importorskip("yaml")
    from importlib.resources import files

    from chunkmill.config import DEFAULTS

    assert yaml.safe_load(files("chunkmill").joinpath("chunkmill.yaml").read_text("utf-8")) == DEFAULTS


def test_a_worker_takes_the_lock_of_its_cluster():
    """The core does not import distributed, but asks for the cluster's lock where a worker runs."""
    script = """
from chunkmill.array.threads import automatic_lock
kinds = [type(automatic_lock("k", True)).__name__]
from distributed import Client
with Client(processes=False, n_workers=1, dashboard_address=None) as client:
    kinds.append(client.submit(lambda: type(automatic_lock("k", True)).__name__).result())
print(*kinds)
"""
    assert run_script(script) == "lock ClusterLock"


def test_jobs_of_what_is_stored_do_without_arrays_of_dask(place):
    """They import xarray and pandas: 0.5 s of each command, 46 MiB of each worker."""
    code = """
        cm.rechunk((place, "a"), (place, "b"), chunks=(7, 3), strategy="spill")
        cm.convert((place, "a"), (place, "c"), format="n5", chunks=(7, 2), region=(slice(0, 6), ...))
        cm.pyramid((place, "a"), (place, "d"), levels=2)
        cm.transform(np.negative, (place, "a"), (place, "e"))
        assert cm.verify((place, "a"), (place, "b")).equal and cm.check(place).ok
    """
    run_script(f"{BEGIN}{dedent(code)}assert not {{'dask.array', 'xarray', 'pandas'}} & set(sys.modules)", place)
