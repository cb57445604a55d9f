"""The site that `make docs` has built: each public object has a page."""

import re
from pathlib import Path

import pytest

import chunkmill as cm

API = Path(__file__).parents[2] / "site" / "api"

pytestmark = pytest.mark.skipif(not API.is_dir(), reason="THE SITE IS NOT LOOKED AT: run `make docs` first")


def test_each_public_object_has_a_page():
    pages = {path.name for path in API.iterdir() if path.is_dir()}
    assert {*cm.__all__} - {"ChunkmillError"} <= pages
    for name in ("to_store", "Array", "Plan"):
        html = (API / name / "index.html").read_text("utf-8")
        assert len(re.findall("<h1", html)) == 1
        assert f'id="chunkmill.{name}"' in html
