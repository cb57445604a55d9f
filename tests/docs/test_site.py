"""The built site: search finds names, each public object has a page, no section stands twice, and nothing is cut off."""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.browser import find_chromium, open_tab

import chunkmill as cm

ROOT = Path(__file__).parents[2]
SEARCHED = ("to_zarr", "from_zarr", "open_zarr", "oindex", "napari", "SLURM")
WIDTHS = (1280, 390)
# a page of each kind: one with figures, tables, code, a signature, notebooks' outputs, commands
LOOKED_AT = ("", "comparison/", "concepts/", "guarantees/", "faq/", "formats/", "benchmarks/", "cli/", "api/",
    "api/to_store/", "api/Array/", "how_to/partial_writes/", "how_to/from_other_libraries/",
    "notebooks/n5_to_ome_zarr/")  # fmt: skip


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


@pytest.fixture(scope="module")
def index(site):
    return json.loads((site / "search" / "search_index.json").read_text("utf-8"))


def words_of(text, index):
    separator = re.compile(index["config"]["separator"])
    return [word.lower() for word in separator.split(re.sub(r"<[^>]+>", " ", text)) if word]


@pytest.mark.parametrize("query", SEARCHED)
def test_search_has_the_words_of(query, index):
    """Every word of the query begins a word of one section: this is what the page's search looks for."""
    asked = words_of(query, index)
    found = [
        section["location"]
        for section in index["docs"]
        if all(
            any(word.startswith(each) for word in words_of(section["title"] + " " + section["text"], index))
            for each in asked
        )
    ]
    assert found
    assert "stopWordFilter" not in index["config"]["pipeline"]  # "to" and "from" are parts of names


def test_each_public_object_has_a_page(site):
    pages = {path.name for path in (site / "api").iterdir() if path.is_dir()}
    assert {*cm.__all__} - {"ChunkmillError"} <= pages
    for name in ("to_store", "Array", "Plan"):
        html = (site / "api" / name / "index.html").read_text("utf-8")
        assert len(re.findall("<h1", html)) == 1
        assert f'id="chunkmill.{name}"' in html


def test_no_section_stands_twice(index):
    """No two sections of the pages have the same text; methods that arrays and groups share are on the page of each."""
    texts = {}
    for section in index["docs"]:
        text = " ".join(words_of(section["text"], index))
        if len(text) > 200 and not section["location"].startswith("api/"):
            texts.setdefault(text, []).append(section["location"])
    assert not [places for places in texts.values() if len(places) > 1]


# --- in a browser


@pytest.fixture(scope="module")
def address(site):
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("NO PAGE IS LOOKED AT: no Chromium is installed")
    with open_tab(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


# Elements of the page that reach out of it, or out of an ancestor that hides what does; within boxes that scroll, and
# below what is itself hidden, nothing is.
CUT_OFF = """(() => {
  const found = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width + 1) found.push("the page scrolls sideways");
  for (const element of document.querySelectorAll(".md-content *")) {
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || getComputedStyle(element).visibility == "hidden") continue;
    if (element.closest(".md-clipboard, .headerlink, .md-annotation, .jp-OutputPrompt, .jp-InputPrompt")) continue;
    let right = width, scrolls = false;
    for (let above = element.parentElement; above && !scrolls; above = above.parentElement) {
      const overflow = getComputedStyle(above).overflowX;
      scrolls = overflow == "auto" || overflow == "scroll";
      if (overflow == "hidden" || overflow == "clip") right = Math.min(right, above.getBoundingClientRect().right);
    }
    if (!scrolls && (box.right > right + 1 || box.left < -1))
      found.push(element.tagName + "." + element.className + ": " + element.textContent.trim().slice(0, 60));
  }
  return found;
})()"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", LOOKED_AT)
def test_nothing_is_cut_off(page, width, tab, address, request):
    tab.set_width(width)
    tab.open(address + page)
    folder = os.environ.get("CHUNKMILL_SCREENSHOTS")
    if folder:
        tab.screenshot(Path(folder) / f"{page.strip('/').replace('/', '-') or 'index'}-{width}.png")
    assert tab.evaluate("document.querySelectorAll('.md-content *').length") > 10
    assert tab.evaluate(CUT_OFF) == []


def test_what_is_cut_off_is_found(tab, address):
    tab.set_width(390)
    tab.open(address)
    tab.evaluate(
        "document.querySelector('.md-content article').insertAdjacentHTML('beforeend', "
        '\'<div style="width: 700px; overflow: hidden"><p style="width: 700px">wide</p></div>\')'
    )
    assert tab.evaluate(CUT_OFF)


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_shrink(width, tab, address):
    tab.set_width(width)
    tab.open(address + "concepts/")
    widths = tab.evaluate("[...document.querySelectorAll('figure .picture')].map(e => e.getBoundingClientRect().width)")
    assert widths
    assert max(widths) <= width


FIRST_RESULTS = "[...document.querySelectorAll('.md-search-result__item a')].map(a => a.href + ' ' + a.textContent)"


@pytest.mark.parametrize("query", SEARCHED)
def test_search_in_the_page_finds(query, tab, address):
    tab.set_width(1280)
    tab.open(address + f"?q={query}")
    tab.wait_for("document.querySelectorAll('.md-search-result__item').length")
    found = tab.evaluate(FIRST_RESULTS)[:3]
    assert any(query.lower() in each.lower() for each in found), found


def test_docs_need_only_what_docs_need():
    """`make docs` has an environment of its own, without the tests and their peers."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (recipe,) = re.findall(r"^\$\(DOCS\)/\.made:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert "--group docs" in recipe
    assert "--group test" not in recipe
    assert (
        shutil.which("make") is None
        or "group test"
        not in subprocess.run(
            ["make", "--dry-run", "--always-make", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    )
