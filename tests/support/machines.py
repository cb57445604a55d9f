"""Workers that take themselves for processes of other machines, and say where they sync."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_PRELOAD = """
import os

from chunkmill.runtime import cluster_tasks as machines
from chunkmill.stores import local, posix_file


def logged(directory):
    posix_file.sync_file_system(directory)
    with open({log!r}, "a") as file:
        file.write(f"{{os.getpid()}}|{{directory}}|{{os.path.exists({document!r})}}\\n")


machines.origin = lambda: (f"machine-{{os.getpid()}}", "", "")
local.sync_file_system = logged
"""


def on_other_machines(folder: Path, document: Path) -> tuple[str, Callable[[], list[tuple[int, str, bool]]]]:
    """Return a preload for workers, and what lists their syncs: process, place, and whether `document` was there."""
    log, preload = folder / "synced", folder / "preload.py"
    preload.write_text(_PRELOAD.format(log=str(log), document=str(document)))

    def synced() -> list[tuple[int, str, bool]]:
        lines = [line.split("|") for line in log.read_text().splitlines()] if log.exists() else []
        return [(int(pid), place, was_there == "True") for pid, place, was_there in lines]

    return str(preload), synced
