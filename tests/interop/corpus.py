"""The golden stores written anew by chunkmill: same description, same values, our bytes.

What the peers must find in a copy stands in ``golden/cases.py`` and ``golden/n5_cases.py``, written there by hand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from golden import cases, n5_cases

import chunkmill as cm
from chunkmill.formats.registry import get_format
from chunkmill.nodes.array import Array
from chunkmill.nodes.target import put_array, put_group
from chunkmill.stores.open import open_store

FOLDER = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Golden:
    """One golden store, and the format that its copy is written as."""

    source: Path
    format: str
    case: cases.Case

    @property
    def id(self) -> str:
        """As in ``"zarr_v2/zarr-python-2.18.7/int16"``."""
        return "/".join((*self.source.parts[-3:-1], self.source.stem))

    @property
    def name(self) -> str:
        return self.source.stem

    def key(self, path: str) -> str:
        """Name of one array for `interop.known`."""
        return f"{self.format}:{self.name}:{path}" if path else f"{self.format}:{self.name}"

    @property
    def arrays(self) -> list[cases.Case]:
        return list(self.case.arrays.values())

    def open(self, path: str) -> cm.Array | cm.Group:
        # every folder may be an N5 group: without a version at the root the format must be given
        options = {"format": "n5"} if self.format == "n5" else {}
        return cm.open(self.source, path, **options, **self.case.options)


def stores() -> Iterator[Golden]:
    """Every golden store of Zarr v2, Zarr v3, N5 and the draft."""
    for folder, name in (("zarr_v2", "zarr2"), ("zarr_v3", "zarr3")):
        for path in sorted((FOLDER / folder).glob("*/*.z*")):
            yield Golden(path, name, cases.CASES[path.stem])
    for path, case in n5_cases.stores(FOLDER):
        yield Golden(path, "n5" if case.format == "n5" else "zarr3-draft", case)


STORES = list(stores())
GOLDENS = [each for each in STORES if not each.case.error and not each.name.startswith("experimental")]
"""Those that can be copied."""

UNWRITTEN = {
    "n5/zarr-python-2.18.7/compression_lzma_alone": "a compression of zarr-python alone",
    "n5/zarr-python-2.18.7/dtype_bool": "no data type of N5",
    "n5/zarr-python-2.18.7/zero_d": "N5 has no arrays without dimensions",
}
"""Goldens that need not be read, so that nothing can be written anew."""


BY_NAME: dict[str, list[Golden]] = {}
"""Goldens that can be written, of one name, format and kind of store: by whom they were written is the difference."""
for _each in GOLDENS:
    if _each.id not in UNWRITTEN:
        BY_NAME.setdefault(f"{_each.format}/{_each.name}{_each.source.suffix}", []).append(_each)
BY_FORMAT = {name: [n for n in BY_NAME if n.startswith(f"{name}/")] for name in ("zarr2", "zarr3", "n5", "zarr3-draft")}


def distinct(found: list[Golden]) -> Iterator[Golden]:
    """Yield goldens of one name whose descriptions differ: of equal ones, with equal values, we write the same bytes."""
    seen = set()
    for golden in found:
        documents = [_documents(golden, path) for path in (*golden.case.groups, *golden.case.arrays)]
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
    for path in golden.case.groups:
        node = golden.open(path)
        put_group(store, path, node.metadata, format=golden.format, overwrite=False)
    for path in golden.case.arrays:
        node = golden.open(path)
        array = put_array(store, path, node.metadata, format=golden.format, overwrite=False)
        Array(array)[...] = node[...]
        store.flush()
    if "consolidated" in golden.name:
        cm.consolidate(store)
    return target
