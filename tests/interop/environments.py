"""Peers that cannot live in our environment: each has one of its own below ``.venv/peers``, made by the Makefile."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interop.peers import Read, unmoved

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".venv" / "peers"


def interpreter(name: str, *, demanded: bool, way: str = "`make peers` makes it") -> Path:
    """Return the peer's interpreter; skip the test without it, fail it in CI when it is `demanded`."""
    python = PEERS / name / "bin" / "python"
    if not python.exists():
        why = f"no environment of the peer {name} in {python.parents[1]}: {way}"
        if demanded and os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return python


def run(*command: str | Path) -> str:
    """Run a program in a clean environment; return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_all(python: Path, script: str, jobs: Sequence[dict[str, Any]], folder: Path) -> list[Read | Exception]:
    """Run all jobs in one process of the peer; return what it read, or what it raised, for each."""
    folder.mkdir(parents=True, exist_ok=True)
    todo, out = folder / "jobs.json", folder / "out"
    todo.write_text(json.dumps(jobs))
    run(python, HERE / script, todo, out)
    answers = json.loads((out / "answers.json").read_text())
    assert len(answers) == len(jobs)
    return [_answer(answer, out / f"{n}.npy") for n, answer in enumerate(answers)]


def _answer(answer: dict[str, Any], values: Path) -> Read | Exception:
    if "error" in answer:
        return RuntimeError(f"{answer['error']} ({answer['trace'].splitlines()[-2].strip()})")
    return Read(np.load(values, allow_pickle=True), unmoved(answer["attributes"]), answer["names"])
