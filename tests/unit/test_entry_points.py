"""Formats and stores of another package, which registers them by entry points."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.formats import registry

RECIPES = Path(__file__).parents[1] / "docs" / "recipes"
OPENER = """
from chunkmill_example.sqlite import SqliteStore

def open_sqlite(url, storage_options):
    return SqliteStore(url.removeprefix("sqlite://"))

def open_nothing(url, storage_options):
    return 5
"""
ENTRY_POINTS = """
[chunkmill.formats]
plain = chunkmill_example:PLAIN
broken = chunkmill_example.none:PLAIN

[chunkmill.stores]
sqlite = chunkmill_example.opener:open_sqlite
fails = chunkmill_example.none:open
nothing = chunkmill_example.opener:open_nothing
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package as pip does: its modules, and the folder that names what it registers."""
    package = tmp_path / "site" / "chunkmill_example"
    facts = tmp_path / "site" / "chunkmill_example-1.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    for name in ("plain.py", "sqlite.py"):
        shutil.copy(RECIPES / name, package)
    (package / "__init__.py").write_text("from chunkmill_example.plain import Plain\n\nPLAIN = Plain()\n")
    (package / "opener.py").write_text(OPENER)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: chunkmill-example\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(registry, "_BY_NAME", dict(registry._BY_NAME))


@pytest.mark.usefixtures("installed")
def test_a_format_and_a_store_are_found_by_name(tmp_path):
    url = f"sqlite://{tmp_path}/values.sqlite"
    x = np.arange(30, dtype="f4").reshape(5, 6)
    assert cm.to_store(x, url, "x", format="plain", chunks=(2, 4)).guard == "version"
    array = cm.open_array(url, "x", format="plain", mode="r+")
    array[1, 2:4] = -1
    x[1, 2:4] = -1
    assert array.format == "plain"
    assert array[...].tolist() == x.tolist()
    cm.convert(array, tmp_path / "b", format="zarr3")
    assert cm.verify(array, tmp_path / "b").equal


@pytest.mark.usefixtures("installed")
def test_a_package_that_fails_is_named(tmp_path):
    with pytest.raises(UnsupportedFeature, match=r"chunkmill_example.none:PLAIN: No module"):
        cm.create_group(tmp_path / "a", format="broken")
    with pytest.raises(StoreError, match=r"chunkmill_example.none:open.*ModuleNotFoundError"):
        cm.open("fails://x")
    with pytest.raises(StoreError, match=r"open_nothing.*a store is named by"):
        cm.open("nothing://x")


def test_what_nobody_has_registered_is_refused_as_before():
    with pytest.raises(UnsupportedFeature, match="the formats are"):
        cm.create_group("memory://entry-points", format="plain")
    with pytest.raises(StoreError, match="unknown protocol 'sqlite'"):
        cm.open("sqlite:///x")
