"""The judges: other implementations, reading one array each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

__all__ = ["READERS", "WARNINGS", "Read", "Reader", "read_tensorstore", "read_z5py", "read_zarr_python", "read_zarrs",
    "unmoved"]  # fmt: skip


# zarr-python's notes on data types and codecs without a specification, and on consolidated metadata in v3
WARNINGS = [pytest.mark.filterwarnings("ignore:::zarr"), pytest.mark.filterwarnings("ignore:::zarrs")]


class Read:
    """What a peer found; ``attributes`` and ``names`` are ``None`` where it does not say."""

    def __init__(self, values: Any, attributes: dict[str, Any] | None = None, names: Any = None) -> None:
        self.values = np.asarray(values)
        self.attributes = attributes
        self.names = None if names is None else tuple(names)


class Reader(Protocol):
    def __call__(self, store: Path, path: str, fmt: str) -> Read: ...


def read_zarr_python(store: Path, path: str, fmt: str) -> Read:
    import zarr

    kind = zarr.storage.ZipStore if store.suffix == ".zip" else zarr.storage.LocalStore
    opened = kind(store, read_only=True)
    try:
        array = zarr.open_array(opened, mode="r", path=path, zarr_format=int(fmt[-1]))
        attributes = dict(array.attrs)
        names = attributes.pop("_ARRAY_DIMENSIONS", None)
        if fmt == "zarr3" and (names is None or len(set(names)) == len(names)):  # names that repeat are there as well
            names = array.metadata.dimension_names
        return Read(array[...], attributes, names)
    finally:
        opened.close()


def read_zarrs(store: Path, path: str, fmt: str) -> Read:
    """Read through zarrs' pipeline of codecs, strictly: what it cannot do is refused, not left to zarr-python."""
    import zarr

    pipeline = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    with zarr.config.set(pipeline):
        return read_zarr_python(store, path, fmt)


_DRIVERS = {"zarr2": "zarr", "zarr3": "zarr3", "n5": "n5"}


def read_tensorstore(store: Path, path: str, fmt: str) -> Read:
    import tensorstore

    below = f"{path}/" if path else ""
    where: dict[str, Any] = {"driver": "file", "path": f"{store}/{below}"}
    if store.suffix == ".zip":
        where = {"driver": "zip", "base": {"driver": "file", "path": str(store)}, "path": below}
    array = tensorstore.open({"driver": _DRIVERS[fmt], "kvstore": where}).result()
    values = array.read().result()
    # tensorstore writes and reads N5 in the order of its axes, as Java does
    names = list(array.domain.labels)
    if fmt == "n5":
        values, names = values.T, names[::-1]
    return Read(values, None, names if all(names) and names else None)  # "" is what it calls a name that is not there


def read_z5py(store: Path, path: str, fmt: str) -> Read:
    import z5py

    with z5py.File(str(store), mode="r", use_zarr_format=False) as file:
        dataset = file[path]
        hidden = {"dimensions", "blockSize", "dataType", "compression"}
        attributes = {name: value for name, value in json.loads(_attributes(store, path)).items() if name not in hidden}
        assert {name: dataset.attrs[name] for name in attributes} == attributes
        return Read(dataset[:], unmoved(attributes))


def unmoved(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an N5 dataset with those that tensorstore would refuse in their own place."""
    rest = dict(attributes)
    return rest | rest.pop("_chunkmill_attributes", {})


def _attributes(store: Path, path: str) -> str:
    return (store / path / "attributes.json").read_text()


READERS: dict[str, tuple[Reader, frozenset[str]]] = {
    "zarr-python": (read_zarr_python, frozenset({"zarr2", "zarr3"})),
    "zarrs": (read_zarrs, frozenset({"zarr2", "zarr3"})),
    "tensorstore": (read_tensorstore, frozenset({"zarr2", "zarr3", "n5"})),
    "z5py": (read_z5py, frozenset({"n5"})),
}
"""Name -> how it reads, and the formats that it claims."""
