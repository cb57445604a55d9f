"""A release: the version is the same wherever it is said, and what is built can be installed and used."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import chunkmill as cm

ROOT = Path(__file__).parents[2]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def run(*command, cwd=None):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_changelog_and_citation_are_of_this_version():
    newest = re.search(r"^## (\S+)(?: \((.*)\))?$", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    assert newest[1] == CITATION["version"] == cm.__version__
    assert (newest[2] == "unreleased") == ("date-released" not in CITATION)


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return the source distribution, and the wheel that is built from it."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_what_is_built_has_what_it_needs(dist):
    sdist, wheel = dist
    assert sdist.name == f"chunkmill-{cm.__version__}.tar.gz"
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "chunkmill").rglob("*.py")}
    assert own <= names
    assert {"chunkmill/py.typed", "chunkmill/chunkmill.yaml"} <= names
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
        shown = archive.extractfile(f"chunkmill-{cm.__version__}/PKG-INFO").read().decode()
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "src/chunkmill/__init__.py"} <= inside
    assert not [name for name in inside if name.startswith((".venv", "site/", "demo-output", "tests/golden/zarr"))]
    assert "notebooks/demo.py" in inside
    assert [link for link in re.findall(r"\]\(([^)]+)\)", shown) if not link.startswith("https://")] == []


FIRST = """
import chunkmill as cm, numpy as np
from chunkmill.testing.codecs import CodecContract
from chunkmill.testing.formats import FormatContract
from chunkmill.testing.stores import StoreContract
cm.to_store(np.arange(12).reshape(3, 4), "first.zarr", chunks=(2, 2), shards=(4, 4))
print(cm.__version__, int(cm.from_store("first.zarr").sum().compute()), "site-packages" in cm.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["sdist", "wheel"])
def test_what_is_built_can_be_installed_and_used(dist, which, tmp_path):
    """In an environment without the repository; what chunkmill requires is taken from this one."""
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", dist[which])
    site = run(python, "-c", "import site; print(site.getsitepackages()[0])").strip()
    here = run(sys.executable, "-c", "import site; print(site.getsitepackages()[0])").strip()
    # after its own packages; .pth files there, as that of the editable chunkmill, are not read
    Path(site, "required.pth").write_text(f"{here}\n")
    assert run(python, "-c", FIRST, cwd=tmp_path).split() == [cm.__version__, "66", "True"]
    command = tmp_path / "env" / "bin" / "chunkmill"
    assert run(command, "--version").strip() == f"chunkmill, version {cm.__version__}"
    assert "first.zarr" in run(command, "info", "first.zarr", cwd=tmp_path)
