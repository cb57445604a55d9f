"""The built site: each public object has a page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import chunkmill as cm

ROOT = Path(__file__).parents[2]


def find_mkdocs():
    own = ROOT / ".venv" / "docs" / "bin" / "mkdocs"
    here = Path(sys.executable).with_name("mkdocs")
    return next((path for path in (own, here) if path.exists()), None)


def last_change():
    """Return the time of the last change of a file that the site is made of."""
    folders = [ROOT / "docs", ROOT / "notebooks", ROOT / "src" / "chunkmill"]
    files = [*ROOT.glob("*.*"), *(path for folder in folders for path in folder.rglob("*.*"))]
    return max(path.stat().st_mtime for path in files if path.is_file() and "__pycache__" not in path.parts)


pytestmark = pytest.mark.slow  # it is built


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    built = ROOT / "site" / "index.html"
    if built.exists() and built.stat().st_mtime > last_change():  # by `make docs`, before this
        return built.parent
    mkdocs = find_mkdocs()
    if mkdocs is None:
        pytest.skip("THE SITE IS NOT BUILT: mkdocs is not installed; run `make docs` once")
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [mkdocs, "build", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_public_object_has_a_page(site):
    pages = {path.name for path in (site / "api").iterdir() if path.is_dir()}
    assert {*cm.__all__} - {"ChunkmillError"} <= pages
    for name in ("to_store", "Array", "Plan"):
        html = (site / "api" / name / "index.html").read_text("utf-8")
        assert len(re.findall("<h1", html)) == 1
        assert f'id="chunkmill.{name}"' in html
