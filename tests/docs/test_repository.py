"""The files around the package: workflows, recipe and configuration say what is true of it."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import chunkmill as cm

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ON_CONDA = {"dask": "dask-core", "isal": "python-isal", "xxhash": "python-xxhash"}


def text_of(path):
    return (ROOT / path).read_text("utf-8")


def loaded(path):
    return yaml.safe_load(text_of(path))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_exists(path):
    workflow = yaml.safe_load(path.read_text("utf-8"))
    targets = set(re.findall(r"^([\w-]+):", text_of("Makefile"), flags=re.MULTILINE))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = " ; ".join(step["run"] for step in steps if "run" in step)
    asked = {target for words in re.findall(r"\bmake ([a-z -]+)", commands) for target in words.split()}
    assert asked
    assert asked <= targets
    named = re.findall(r"tests/[\w/]+(?:\.py)?", commands)
    assert all((ROOT / name).exists() for name in named)
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


def test_a_release_is_published_without_a_token():
    publish = loaded(".github/workflows/release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "secrets." not in text_of(".github/workflows/release.yml")


def test_the_tag_is_compared_with_the_version():
    (line,) = re.findall(r'^__version__ = ".*"(.*)$', text_of("src/chunkmill/__init__.py"), flags=re.MULTILINE)
    (command,) = re.findall(r"run: grep -Fx (.*) src/", text_of(".github/workflows/release.yml"))
    assert command.endswith(f'{line}"')


def test_the_recipe_has_the_requirements_of_the_package():
    recipe = loaded("conda/recipe.yaml")
    assert recipe["context"]["version"] == cm.__version__
    wanted = {"distributed": ">=2026.3"}
    for requirement in PROJECT["project"]["dependencies"]:
        name, lowest = re.fullmatch(r"([\w-]+)(?:\[.*\])?(>=.*)", requirement).groups()
        wanted[ON_CONDA.get(name, name)] = lowest
    assert ">=" + recipe["context"]["python_min"] == PROJECT["project"]["requires-python"]
    wanted["python"] = ">=${{ python_min }}"
    assert dict(each.split(" ", 1) for each in recipe["requirements"]["run"]) == wanted
    assert recipe["about"]["license"] == PROJECT["project"]["license"]
    assert recipe["about"]["summary"] == PROJECT["project"]["description"]
    assert recipe["extra"]["recipe-maintainers"]


def test_actions_are_pinned_by_commit():
    used = [line for path in WORKFLOWS for line in re.findall(r"uses: (\S+)", path.read_text("utf-8"))]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


def test_classifiers_are_what_the_matrix_runs():
    classified = set(re.findall(r":: (3\.\d+)\b", "\n".join(PROJECT["project"]["classifiers"])))
    run = set(re.findall(r"PYTHON3(\d+)", text_of("Makefile")))
    assert classified == {f"3.{minor}" for minor in run}
    assert not [each for each in PROJECT["project"]["classifiers"] if "Windows" in each or "MacOS" in each]


def test_pre_commit_runs_the_pinned_ruff():
    (pinned,) = [each for each in PROJECT["dependency-groups"]["check"] if each.startswith("ruff==")]
    (repository,) = loaded(".pre-commit-config.yaml")["repos"]
    assert repository["rev"] == "v" + pinned.removeprefix("ruff==")
