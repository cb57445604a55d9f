"""What the generators share: where stores go, and how failures are counted."""

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

from cases import CASES, Case  # noqa: E402

# gzip headers hold the time of day: give them none, so that a second run writes the same bytes
gzip.time = types.SimpleNamespace(time=lambda: 0.0)  # type: ignore[attr-defined]

__all__ = ["BIG", "CASES", "CRC", "LITTLE", "Case", "Job", "codec", "run", "sharding", "versions"]

Job = Callable[[Path, Case], None]


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    """Return a codec, a grid or an encoding of keys as documents of Zarr v3 have it."""
    return {"name": name, "configuration": configuration}


LITTLE, BIG, CRC = codec("bytes", endian="little"), codec("bytes", endian="big"), {"name": "crc32c"}


def sharding(inner: Any, *codecs: Any, index: Any = (LITTLE, CRC), location: str | None = "end") -> dict[str, Any]:
    """Return the codec of shards; ``None`` leaves a member out."""
    about = {"chunk_shape": inner, "codecs": codecs or (LITTLE,), "index_codecs": index, "index_location": location}
    return codec("sharding_indexed", **{name: value for name, value in about.items() if value is not None})


def versions(*modules: Any) -> None:
    """Print the interpreter and the versions of modules."""
    print(
        f"python {platform.python_version()}, numpy {np.__version__}",
        *(f"{m.__name__} {m.__version__}" for m in modules),
        sep=", ",
    )


def remove(target: Path) -> None:
    """Remove a store, if there is one."""
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def run(folder: Path, jobs: dict[str, Job], *, suffix: str = ".zarr") -> int:
    """Write each case afresh into ``folder``; return the number of failures."""
    failures = 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, job in jobs.items():
        target = folder / f"{name}{suffix}"
        remove(target)
        try:
            job(target, CASES[name])
        except Exception:
            failures += 1
            print(f"FAILED {folder.name}/{name}")
            traceback.print_exc(limit=-3)
            remove(target)
    print(f"{folder.parent.name}/{folder.name}: {len(jobs) - failures} stores written, {failures} failed")
    return failures
