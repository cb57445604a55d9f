"""The golden stores written anew by chunkmill: same description, same values, our bytes.

What the peers must find in a copy stands in ``golden/cases.py`` and ``golden/n5_cases.py``, written there by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from golden import cases, n5_cases

import chunkmill as cm
from chunkmill.formats.registry import get_format
from chunkmill.nodes.array import Array
from chunkmill.nodes.target import put_array, put_group
from chunkmill.stores.open import open_store

__all__ = ["BY_FORMAT", "BY_NAME", "GOLDENS", "UNWRITTEN", "Expected", "Golden", "copy", "distinct"]

FOLDER = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Expected:
    """One array: where it lies in its store, and what is in it."""

    path: str
    values: np.ndarray
    attributes: Mapping[str, Any]
    dimension_names: tuple[str | None, ...] | None


@dataclass(frozen=True)
class Golden:
    """One valid golden store."""

    id: str
    """``"zarr_v2/zarr-python-2.18.7/int16"``"""
    source: Path
    format: str
    """what the copy is written as"""
    case: cases.Case

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    def key(self, path: str) -> str:
        """Name of one array for `interop.known`."""
        return f"{self.format}:{self.name}:{path}" if path else f"{self.format}:{self.name}"

    @cached_property
    def arrays(self) -> list[Expected]:
        return [
            Expected(path, case.expected(), case.attributes, case.dimension_names)
            for path, case in self.case.arrays.items()
        ]

    @property
    def groups(self) -> Mapping[str, Mapping[str, Any]]:
        """Attributes of every group by path."""
        return self.case.groups

    def open(self, path: str) -> cm.Array | cm.Group:
        # every folder may be an N5 group: without a version at the root the format must be given
        options = {"format": "n5"} if self.format == "n5" else {}
        return cm.open(self.source, path, **options, **self.case.options)


def goldens() -> list[Golden]:
    """Every valid golden store of Zarr v2, Zarr v3, N5 and the draft."""
    found = []
    for folder, name in (("zarr_v2", "zarr2"), ("zarr_v3", "zarr3")):
        for path in sorted((FOLDER / folder).glob("*/*")):
            case = cases.CASES.get(path.stem)
            if case is not None and not case.error:
                found.append(Golden(f"{folder}/{path.parent.name}/{path.stem}", path, name, case))
    for writer, path, case in n5_cases.stores(FOLDER):
        if not case.error and not case.name.startswith("experimental"):
            name = "n5" if case.format == "n5" else "zarr3-draft"
            found.append(Golden(f"{case.format}/{n5_cases.WRITERS[case.format][writer]}/{case.name}", path, name, case))
    return found


GOLDENS = goldens()

UNWRITTEN = {
    "n5/zarr-python-2.18.7/compression_lzma_alone": "a compression of zarr-python alone",
    "n5/zarr-python-2.18.7/dtype_bool": "no data type of N5",
    "n5/zarr-python-2.18.7/zero_d": "N5 has no arrays without dimensions",
}
"""Goldens that need not be read, so that nothing can be written anew."""


def by_name() -> dict[str, list[Golden]]:
    """Goldens that can be written, of one name, format and kind of store: by whom they were written is the difference."""
    found: dict[str, list[Golden]] = {}
    for golden in GOLDENS:
        if golden.id not in UNWRITTEN:
            found.setdefault(f"{golden.format}/{golden.name}{golden.source.suffix}", []).append(golden)
    return found


BY_NAME = by_name()
BY_FORMAT = {name: [n for n in BY_NAME if n.startswith(f"{name}/")] for name in ("zarr2", "zarr3", "n5", "zarr3-draft")}


def distinct(found: list[Golden]) -> Iterator[Golden]:
    """Yield goldens of one name whose descriptions differ: of equal ones, with equal values, we write the same bytes."""
    seen = set()
    for golden in found:
        documents = [_documents(golden, path) for path in (*golden.groups, *(each.path for each in golden.arrays))]
        if (key := repr(documents)) not in seen:
            seen.add(key)
            yield golden


def _documents(golden: Golden, path: str) -> dict[str, bytes]:
    node, documents_format = golden.open(path), get_format(golden.format)
    if isinstance(node, cm.Array):
        return dict(documents_format.emit_array(path, node.metadata))
    return dict(documents_format.emit_group(path, node.metadata))


def copy(golden: Golden, folder: Path) -> Path:
    """Write the golden store anew into `folder`, as chunkmill does; return where it is."""
    target = folder / (golden.id.replace("/", "-") + golden.source.suffix)
    if target.is_dir():
        shutil.rmtree(target)
    store = open_store(target)
    for path in golden.groups:
        node = golden.open(path)
        put_group(store, path, node.metadata, format=golden.format, overwrite=False)
    for expected in golden.arrays:
        node = golden.open(expected.path)
        array = put_array(store, expected.path, node.metadata, format=golden.format, overwrite=False)
        Array(array)[...] = node[...]
        store.flush()
    if "consolidated" in golden.name:
        cm.consolidate(store)
    return target
