"""Run the notebooks and keep their outputs: ``make notebooks``, or ``python docs/run_notebooks.py NAME …`` for some.

Each runs in an empty folder. Paths of this machine are replaced in what is kept, and so is what differs from run to run
without need, so that a run changes as few lines as it can.
"""

from __future__ import annotations

import re
import site
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

# what distributed says where a busy machine takes more than four seconds to end a worker
_BUSY = re.compile(
    r"^.*distributed\.nanny - WARNING - Worker process still alive after .*\n?",
    re.MULTILINE,
)

FOLDER = Path(__file__).parents[1] / "notebooks"
TIMEOUT = 300  # seconds for a cell

# addresses of objects and of clusters, and names that are made at random
_RANDOM = (
    (re.compile(r" at 0x[0-9a-f]+"), ""),
    (re.compile(r"(tcp|http)://127\.0\.0\.1:\d+(/status)?"), r"\1://127.0.0.1"),
)
# identifiers of elements, which are numbered: a label says which box it is of
_IDENTIFIER = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a run in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=TIMEOUT, resources={"metadata": {"path": folder}}
        ).execute()
        return without_places(
            notebook,
            {
                folder: "/data",
                **dict.fromkeys(site.getsitepackages(), "/site-packages"),
            },
        )


def without_places(
    notebook: nbformat.NotebookNode, places: dict[str, str]
) -> nbformat.NotebookNode:
    """Return a notebook without paths of this machine, without times of execution and without random names."""
    numbers: dict[str, int] = {}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = list(_joined(cell.outputs))
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = _clean(output.text, places, numbers)
            for kind, value in output.get("data", {}).items():
                if isinstance(value, str) and not kind.startswith("image/png"):
                    output.data[kind] = _clean(value, places, numbers)
    notebook.metadata = {
        name: notebook.metadata[name]
        for name in ("kernelspec", "language_info")
    }
    notebook.metadata.language_info = {
        "name": "python"
    }  # without the version that happened to run it
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def _joined(
    outputs: list[nbformat.NotebookNode],
) -> Iterator[nbformat.NotebookNode]:
    """Yield outputs, text that was printed in several goes as one: in how many depends on time, as `_BUSY` does."""
    before = None
    for output in outputs:
        if (
            output.get("name") == "stderr"
            and not (text := _BUSY.sub("", output.text)).strip()
        ):
            continue
        if output.get("name") == "stderr":
            output.text = text
        if (
            before is not None
            and output.output_type == "stream" == before.output_type
            and output.name == before.name
        ):
            before.text += output.text
            continue
        if before is not None:
            yield before
        before = output
    if before is not None:
        yield before


def _clean(text: str, places: dict[str, str], numbers: dict[str, int]) -> str:
    for place, instead in places.items():
        text = text.replace(place, instead)
    for pattern, instead in _RANDOM:
        text = pattern.sub(instead, text)
    return _IDENTIFIER.sub(
        lambda found: f"id-{numbers.setdefault(found[0], len(numbers))}", text
    )


def main(names: list[str]) -> None:
    """Run notebooks by name, or all of them, and write them with their outputs."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            start = time.perf_counter()
            nbformat.write(run(path), path)
            seconds, size = time.perf_counter() - start, path.stat().st_size
            sys.stdout.write(
                f"{path.name}: {seconds:.0f} s, {size / 1e3:.0f} kB\n"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
