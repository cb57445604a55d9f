"""The page's "Add a format / codec / store / job", followed to the letter in a copy of the package.

Each recipe of ``docs/how_to/extend.md`` names the files to write and those to change; ``tests/docs/recipes`` has an example of each
file. The test writes and changes exactly these, and runs the contract tests that the recipe asks for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "recipes"
PAGE = (ROOT / "docs" / "how_to" / "extend.md").read_text("utf-8")


@dataclass(frozen=True)
class Recipe:
    """How one recipe is followed: files and tests to write, each with its example, and files to change."""

    title: str
    name: str
    written: dict[str, str]
    tests: dict[str, str]
    changed: dict[str, tuple[tuple[str, str], ...]]  # file -> text added, and the text there that comes after it


RECIPES = [
    Recipe(
        "Add a format",
        "plain",
        {"formats/plain.py": "plain.py"},
        {"tests/unit/formats/test_plain.py": "contract_plain.py"},
        {
            "formats/registry.py": (
                ("from chunkmill.formats.plain import Plain\n", "from chunkmill.formats.zarr_v2 "),
                ("Plain(), ", "ZarrV3(), ZarrV2()"),
            )
        },
    ),
    Recipe(
        "Add a codec",
        "xxh3",
        {"codecs/xxh3.py": "xxh3.py"},
        {"tests/unit/codecs/test_xxh3.py": "contract_xxh3.py"},
        {
            "codecs/registry.py": (('    "xxh3.Xxh3.from_config": "xxh3",\n', '    "crc32c.Crc32c.from_config"'),),
            "model/metadata.py": (('    "xxh3",\n', '    "blosc", "gzip", "zstd", '),),
        },
    ),
    Recipe(
        "Add a store",
        "sqlite",
        {"stores/sqlite.py": "sqlite.py"},
        {"tests/contracts/test_sqlite.py": "contract_sqlite.py"},
        {
            "stores/open.py": (
                ("from chunkmill.stores.sqlite import SqliteStore\n", "from chunkmill.stores.places "),
                (
                    '    if url.startswith("sqlite://"):\n        return SqliteStore(url.removeprefix("sqlite://"))\n',
                    "    from chunkmill.stores.fsspec import FsspecStore  # noqa: PLC0415 - fsspec takes 50 ms",
                ),
            )
        },
    ),
    Recipe(
        "Add a job",
        "squaring",
        {
            "squaring/__init__.py": "square_init.py",
            "squaring/plan.py": "square_plan.py",
            "squaring/job.py": "square_job.py",
        },
        {
            "tests/unit/squaring/test_plan.py": "contract_square_plan.py",
            "tests/integration/test_squaring.py": "contract_square_job.py",
        },
        {
            "pyproject.toml": (
                ('"squaring", ', '"conversion | xarray",'),
                ('"chunkmill.squaring.plan", ', '"chunkmill.conversion.actions",'),
            )
        },
    ),
]


def text_of(title):
    """Return a recipe as the page has it, up to the next one."""
    start = PAGE.index(f"## {title}\n")
    return re.split(r"\n(?=##)", PAGE[start:], maxsplit=1)[0]


def paths_in(text, name):
    """Return the paths that a recipe names, with `name` for ``<name>``."""
    return {path.replace("<name>", name) for path in re.findall(r"`([\w<>/]+\.(?:py|toml))`", text)}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_the_page_names_every_file_that_is_written_or_changed(recipe):
    named = paths_in(text_of(recipe.title), recipe.name)
    touched = {*recipe.written, *recipe.tests, *recipe.changed}
    assert touched <= named
    read = named - touched  # to look at: protocols, contracts, examples
    assert all((ROOT / path).exists() or (ROOT / "src" / "chunkmill" / path).exists() for path in read), read


@pytest.mark.slow
def test_recipes_work(tmp_path):
    """All of them in one copy of the package, whose layers and tests are checked once."""
    package = tmp_path / "src" / "chunkmill"
    shutil.copytree(ROOT / "src" / "chunkmill", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for recipe in RECIPES:
        written = {package / path: example for path, example in recipe.written.items()}
        written |= {tmp_path / path: example for path, example in recipe.tests.items()}
        for path, example in written.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(EXAMPLES / example, path)
        for path, changes in recipe.changed.items():
            change(tmp_path / path if path == "pyproject.toml" else package / path, changes)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(ROOT / "tests")])}
    run([str(Path(sys.executable).with_name("lint-imports")), "--no-cache"], tmp_path, environment)
    options = ["-rA", "--import-mode=importlib", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tmp_path}"]
    tests = [path for recipe in RECIPES for path in recipe.tests]
    printed = run([sys.executable, "-m", "pytest", *options, *tests], tmp_path, environment)
    assert not [path for path in tests if f"PASSED {path}" not in printed]
    assert "skipped" not in printed


def change(path, changes):
    text = path.read_text("utf-8")
    for new, there in changes:
        assert text.count(there) == 1, f"{path.name}: {there}"
        text = text.replace(there, new + there)
    path.write_text(text, "utf-8")


def run(command, folder, environment):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
