"""The README's examples run, in order, in an empty folder; its links and tables, and those of pages that it names, are right."""

import re
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
import xarray as xr
from docs.test_pages import FENCE, run_shell

import chunkmill as cm
from chunkmill.formats.registry import FORMATS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
EXTENDING = (ROOT / "docs" / "how_to" / "extend.md").read_text("utf-8")
FORMATS_PAGE = (ROOT / "docs" / "formats.md").read_text("utf-8")
BLOCKS = FENCE.findall(README)


def test_every_example_runs_as_pasted(tmp_path, monkeypatch, capsys):
    """In an empty folder, in order; Dask alone loses what the first sentence says."""
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "README.md", "exec"), namespace)
    n_commands = sum(run_shell(block) for language, block in BLOCKS if language == "shell")
    assert n_commands == 1
    printed = capsys.readouterr().out
    (dasks,) = re.findall(r"^dask.zarr lost (\d+) of 4000000$", printed, flags=re.MULTILINE)
    assert 0.05 < int(dasks) / 4_000_000 < 0.5, "a quarter, says the README"
    assert "ours.n5 lost 0 of 4000000" in printed
    assert re.search(r"^4 store keys were changed in part; lost: 0$", printed, flags=re.MULTILINE)
    assert "False" not in printed  # what is compared is equal


def test_make_targets_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    named = re.findall(r"(?:^|`)make ([\w-]+)", README, flags=re.MULTILINE)
    assert named
    assert set(named) <= set(targets)


def test_extras_are_those_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (named,) = re.findall(r"# extras: (.*)", README)
    assert set(named.split(", ")) == set(extras)


def test_the_readme_is_short():
    assert len(README.split()) <= 900
    assert len(re.findall(r"(?<!!)\[[^]]+\]\(", README)) <= 12
    assert README.index("pip install") < README.index("```python") < README.index("![")


def test_links_into_the_repository_lead_somewhere():
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_picture_shows_the_layers_that_are_checked():
    picture = EXTENDING.split("```")[1].strip("\n")
    shown = [re.split(r" {2,}", line.strip())[0].split(" | ") for line in picture.splitlines()]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for layer in contracts[0]["layers"]]
    assert [[name.removesuffix("/").removesuffix(".py") for name in names] for names in shown] == layers
    source = ROOT / "src" / "chunkmill"
    assert all((source / name).is_dir() == name.endswith("/") for names in shown for name in names)


def _table_rows():
    table = FORMATS_PAGE[FORMATS_PAGE.index("## What is supported") :].partition("\n## ")[0]
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


ROWS = {row[0]: row[1:] for row in _table_rows()}

# row of the table -> how an array is made that it speaks of
MADE = {
    "Zarr v2": {"format": "zarr2"},
    "Zarr v3, regular and rectilinear grids": {"format": "zarr3", "chunks": ((1, 3), (2, 2))},
    "Zarr v3, sharded (nested, both index locations)": {"format": "zarr3", "shards": (4, 2)},
    "Zarr v3 draft of May 2022": {"format": "zarr3-draft"},
    "zarr-python 2.13-2.18's experimental v3": {"format": "zarr3-experimental"},
    "N5 4.0.0 (raw, gzip, bzip2, xz, lz4, blosc, zstd)": {"format": "n5"},
}
REFERENCES = "reference sets: JSON v0 and v1, parquet"


def test_support_table_has_every_format():
    assert {how["format"] for how in MADE.values()} == {known.name for known in FORMATS}
    assert set(ROWS) == {*MADE, REFERENCES}
    assert ROWS[REFERENCES] == ["yes", "as a set over another store", "yes", "yes / no", "yes / `to_references`"]


@pytest.mark.parametrize("name", MADE)
def test_support_table_is_right(name, tmp_path):
    """What it says cannot be done is refused; that the rest can, properties and contracts show of each format."""
    read, write, dask, xarray, convert = ROWS[name]
    can_write, can_texts = write == "yes", xarray == "yes / yes"
    assert (read, dask, convert) == ("yes", "yes", "yes / yes" if can_write else "yes / no")
    assert xarray in {"yes / yes", "yes / numbers only" if can_write else "yes / no"}
    how = {"shape": (4, 4), "dtype": "i4", "chunks": (2, 2)} | MADE[name]
    with nullcontext() if can_write else pytest.raises(cm.ChunkmillError):
        cm.create_array(tmp_path / "x", "a", **how)
    with nullcontext() if can_texts else pytest.raises(cm.ChunkmillError):
        cm.write_dataset(xr.Dataset({"s": ("x", ["a", "b"])}), tmp_path / "s", format=how["format"])


def test_figures_are_written_between_marks():
    from benchmarks.summary import BEGIN, END, PAGE, table, written

    page = PAGE.read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert written(page, table()).count("open_dataset`, 1000 variables") == 1
