"""Describe an environment for reports of errors: versions, the system, and what optional packages bring.

Not here: stores and workers (`chunkmill.checks.doctor`).
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, TextIO

__all__ = ["environment", "extras", "show_versions"]

_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_NAME = re.compile(r"[\w.-]+")
# how others of the field are installed next to chunkmill: not required, and asked for in reports
_PEERS = ("zarr", "obstore", "kerchunk", "virtualizarr", "icechunk", "dask-array")


def extras() -> dict[str, tuple[str, ...]]:
    """Return the packages of each extra of chunkmill, and under ``""`` those that it always requires."""
    found: dict[str, list[str]] = {"": []}
    for requirement in requires("chunkmill") or ():
        extra = _EXTRA.search(requirement)
        name = _NAME.match(requirement)
        if name:
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return {extra: tuple(dict.fromkeys(names)) for extra, names in found.items()}


def environment() -> dict[str, Any]:
    """Return versions of Python, the system and packages, by name; ``None`` for a package that is not installed.

    Examples
    --------
    >>> sorted(environment())
    ['cpus', 'packages', 'python', 'system']
    >>> environment()["packages"]["chunkmill"] is not None
    True
    """
    names = dict.fromkeys(
        ["chunkmill", "distributed", *(name for group in extras().values() for name in group), *_PEERS]
    )
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: _version(name) for name in names},
    }


def show_versions(file: TextIO | None = None, *, as_json: bool = False) -> None:
    """Print the versions of chunkmill, Python, the system and every package that chunkmill uses, for a report.

    Parameters
    ----------
    file
        A text file to print to. Standard output by default.
    as_json
        Print JSON instead of lines.

    Returns
    -------
    None

    Raises
    ------
    OSError
        The file cannot be written.

    Examples
    --------
    >>> from io import StringIO
    >>> text = StringIO()
    >>> show_versions(text)
    >>> text.getvalue().splitlines()[0].split()[0]
    'chunkmill'
    """
    file = sys.stdout if file is None else file
    found = environment()
    if as_json:
        file.write(json.dumps(found, indent=2) + "\n")
        return
    packages = found.pop("packages")
    rows = {"chunkmill": packages.pop("chunkmill")} | found | packages
    width = max(map(len, rows))
    file.writelines(f"{name:{width}}  {'-' if value is None else value}\n" for name, value in rows.items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
