"""The README's examples run, in order, in an empty folder; its links and tables say what is there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import chunkmill as cm
from chunkmill.cli import main
from chunkmill.config import DEFAULTS
from chunkmill.formats.registry import FORMATS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_there_are_blocks_to_run():
    languages = [language for language, _ in BLOCKS]
    assert languages.count("python") >= 5
    assert languages.count("shell") >= 3
    assert set(languages) <= {"python", "shell", "yaml"}


def test_every_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    n_commands = 0
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "README.md", "exec"), namespace)
        elif language == "shell":
            n_commands += run_shell(block)
    assert n_commands >= 6
    printed = capsys.readouterr().out
    assert "(1000, 800) (128, 128) [" in printed
    assert "False" not in printed  # what the examples compare is equal


def run_shell(block):
    """Run the lines that call chunkmill, and return how many there were; pip and make are CI's business."""
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    commands = [words for words in lines if words and words[0] == "chunkmill"]
    for words in commands:
        result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{shlex.join(words)}: {result.output}"
    return len(commands)


def test_make_targets_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    named = re.findall(r"(?:^|`)make ([\w-]+)", README, flags=re.MULTILINE)
    assert named
    assert set(named) <= set(targets)


def test_settings_are_the_defaults():
    (settings,) = [block for language, block in BLOCKS if language == "yaml"]
    assert yaml.safe_load(settings) == DEFAULTS


def test_links_into_the_repository_lead_somewhere():
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_files_named_in_prose_exist():
    source = ROOT / "src" / "chunkmill"
    named = set(re.findall(r"`((?:formats|codecs|stores)/\w+\.py)`", README))
    named |= set(re.findall(r"\b(\w+\.py)\b", README[README.index("## How it is made") :]))
    roots = (source, source / "formats", source / "codecs", source / "stores")
    missing = [name for name in named if not any((root / name).exists() for root in roots)]
    assert named
    assert not missing


def _table_rows():
    table = README[README.index("## What is supported") : README.index("### What it is not")]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return rows[2:]


@pytest.mark.parametrize("row", _table_rows(), ids=lambda row: row[0])
def test_support_table(row):
    """Every format that is registered has a row, and formats that the table says are written can be."""
    words = {
        "zarr2": "Zarr v2",
        "zarr3": "Zarr v3, regular",
        "zarr3-draft": "Zarr v3 draft",
        "zarr3-experimental": "experimental",
        "n5": "N5",
    }
    assert {known.name for known in FORMATS} == set(words)
    assert all(any(word in other[0] for other in _table_rows()) for word in words.values())
    names = [name for name, word in words.items() if word in row[0]]
    for name in names:
        url = f"memory://readme-{name}"
        make = {"shape": (4,), "dtype": "i4", "chunks": (2,), "format": name, "overwrite": True}
        if row[2] == "yes":
            cm.create_array(url, "a", **make)[1:3] = 5
            assert cm.from_store(url, "a").sum().compute() == 10
        else:
            with pytest.raises(cm.ChunkmillError):
                cm.create_array(url, "a", **make)
