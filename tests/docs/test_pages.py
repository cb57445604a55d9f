"""The documentation: every example of every page runs and prints what the page shows; the site builds, with no broken link."""

import doctest
import re
import shlex
import urllib.request
from pathlib import Path

import distributed
import pytest
from click.testing import CliRunner
from support.servers import serve_s3

import chunkmill as cm
from chunkmill.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "notebooks" not in path.relative_to(DOCS).parts)
CLUSTERS = {"cluster_jobs.md"}  # pages whose examples start one
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# zarr's opinion of data types without a specification, and dask's of chunks, are no matter of the examples
pytestmark = pytest.mark.filterwarnings("default")


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def named(path):
    return path.relative_to(DOCS).as_posix()


def blocks(page):
    return FENCE.findall(page.read_text("utf-8"))


def run_shell(block):
    """Run the lines that call chunkmill, and return how many there were; pip and make are CI's business."""
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    commands = [words for words in lines if words[:1] == ["chunkmill"]]
    for words in commands:
        result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{shlex.join(words)}: {result.output}"
    return len(commands)


@pytest.fixture
def bucket(monkeypatch):
    """S3 with the bucket of the examples, found by variables of the environment, as users have it."""
    with serve_s3() as server:
        request = urllib.request.Request(f"{server.endpoint_url}/archive", method="PUT")
        urllib.request.urlopen(request).close()
        values = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
        values |= {"AWS_ENDPOINT_URL": server.endpoint_url, "AWS_ALLOW_HTTP": "true"}
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        yield


def cases():
    for page in PAGES:
        if any(language in {"python", "shell"} for language, _ in blocks(page)):
            marks = [pytest.mark.slow] if page.name in CLUSTERS else []
            yield pytest.param(page, id=named(page), marks=marks)


@pytest.mark.parametrize("page", list(cases()))
def test_examples_run_and_print_what_is_shown(page, tmp_path, monkeypatch, capsys, request):
    request.addfinalizer(close_clients)
    if "s3://" in page.read_text("utf-8"):
        request.getfixturevalue("bucket")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()  # of the server
    namespace = {"__name__": "__main__"}
    printed = None
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, named(page), "exec"), namespace)
            printed = capsys.readouterr().out
        elif language == "shell":
            run_shell(block)
            printed = None
        elif language == "text" and printed is not None:
            assert doctest.OutputChecker().check_output(block, printed, SAME), (
                f"{block}\nis not what is printed:\n{printed}"
            )
            printed = None
        if language == "python" and not re.search(r"^```text", after(page, block)):
            assert not printed.strip(), f"{named(page)} does not show what this prints:\n{block}\n{printed}"


def close_clients():
    """Close what an example that failed has left open: the ones after it would run there."""
    while client := distributed.client._get_global_client():
        cluster = client.cluster
        client.close()
        if cluster is not None:
            cluster.close()


def after(page, block):
    text = page.read_text("utf-8")
    return text[text.index(block) + len(block) + len("```") :].lstrip()


@pytest.mark.slow
def test_pictures_are_what_is_drawn():
    from docs.pictures import FOLDER, drawn  # needs pygraphviz

    files = drawn()
    photographs = {"neuroglancer.png"}  # compared where there is a browser, by tests/interop/test_neuroglancer.py
    assert {path.name for path in FOLDER.iterdir()} == set(files) | photographs, "python docs/pictures.py"
    for name, content in files.items():
        assert (FOLDER / name).read_text("utf-8") == content, f"{name}: python docs/pictures.py"


def test_every_public_name_is_on_the_page_of_the_api():
    named_there = re.findall(r"^::: chunkmill\.(\w+)$", (DOCS / "api.md").read_text("utf-8"), flags=re.MULTILINE)
    assert sorted(named_there) == sorted({*cm.__all__} - {"ChunkmillError"}), "docs/api.md"  # which is among the errors


def test_the_site_has_every_page_and_notebook():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")  # tags of its plugins keep yaml.safe_load from reading it
    in_nav = set(re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.(?:md|ipynb))$", text, flags=re.MULTILINE))
    notebooks = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert in_nav == {named(page) for page in PAGES} | notebooks


def test_links_reach_files_of_the_documentation():
    """The site refuses to be built with a link that leads nowhere; this says so without building it."""
    missing = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        folder = DOCS if page.name == "CHANGELOG.md" else page.parent
        links = LINK.findall(page.read_text("utf-8"))
        missing += [f"{page.name}: {link}" for link in links if not (folder / link).exists()]
    assert not missing
