"""What the generators share: where stores go, how failures are counted, how the result is checked."""

from __future__ import annotations

import gzip
import platform
import shutil
import sys
import traceback
import types
from pathlib import Path
from typing import Any, Callable

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from cases import CASES, Case, same, same_json  # noqa: E402

# gzip headers hold the time of day: give them none, so that a second run writes the same bytes
gzip.time = types.SimpleNamespace(time=lambda: 0.0)  # type: ignore[attr-defined]

__all__ = ["CASES", "Case", "Job", "run", "same", "same_json", "versions"]

Job = Callable[[Path, Case], None]


def versions(*modules: Any) -> None:
    """Print the interpreter and the versions of modules."""
    print(
        f"python {platform.python_version()}, numpy {np.__version__}",
        *(f"{m.__name__} {m.__version__}" for m in modules),
        sep=", ",
    )


def run(
    folder: Path, jobs: dict[str, Job], *, suffix: str = ".zarr", verify: Callable[[Path, Case], None] | None = None
) -> int:
    """Write each case afresh into ``folder`` and check it; return the number of failures."""
    failures = 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, job in jobs.items():
        target = folder / f"{name}{suffix}"
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        try:
            job(target, CASES[name])
            if verify is not None and not CASES[name].error:
                verify(target, CASES[name])
        except Exception:
            failures += 1
            print(f"FAILED {folder.name}/{name}")
            traceback.print_exc(limit=-3)
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
    done = "written and read back" if verify is not None else "written"
    print(f"{folder.parent.name}/{folder.name}: {len(jobs) - failures} stores {done}, {failures} failed")
    return failures
