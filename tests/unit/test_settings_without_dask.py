"""Settings are the same without dask and with it, whichever is imported first."""

import base64
import json
import os
from importlib.resources import files

import dask
import pytest
from support.cases import cases
from support.scripts import run_script

from chunkmill.config import DEFAULTS, read_settings

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


def test_dask_that_is_there_knows_the_settings():
    assert run_script("import dask, chunkmill\nprint(dask.config.get('chunkmill.progress'))") == "auto"


def test_the_config_of_dask_rules_once_it_is_imported_and_settings_outlive_a_block():
    """At its end, dask removes the whole section, where it found none at the beginning."""
    script = """
import chunkmill
from chunkmill.config import setting
print(setting("fsync"))
import dask
print(dask.config.get("chunkmill.progress"))
with dask.config.set({"chunkmill.fsync": True}):
    chunkmill.open_array
    print(setting("fsync"), setting("progress"))
print(setting("fsync"), setting("progress"))
"""
    assert run_script(script).split() == ["False", "auto", "True", "auto", "False", "auto"]


def test_stores_alone_know_the_settings(tmp_path):
    script = f"from chunkmill.stores.local import LocalStore\nprint(LocalStore({str(tmp_path)!r})._fsync)"
    assert run_script(script) == "False"


def test_the_defaults_are_those_of_the_file():
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(files("chunkmill").joinpath("chunkmill.yaml").read_text("utf-8")) == DEFAULTS
