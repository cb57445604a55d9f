"""The judges: other implementations, reading one array each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interop import read_with_zarr_3

# zarr-python's notes on data types and codecs without a specification, and on consolidated metadata in v3
WARNINGS = [pytest.mark.filterwarnings("ignore:::zarr"), pytest.mark.filterwarnings("ignore:::zarrs")]


class Read:
    """What a peer found; ``attributes`` and ``names`` are ``None`` where it does not say."""

    def __init__(self, values: Any, attributes: dict[str, Any] | None = None, names: Any = None) -> None:
        self.values = np.asarray(values)
        self.attributes = attributes
        self.names = None if names is None else tuple(names)


def read_zarr_python(store: Path, path: str, fmt: str) -> Read:
    return Read(*read_with_zarr_3.read(store, path, int(fmt[-1])))


def references(url: Path) -> Any:
    """Return zarr-python's store over a set of references, by fsspec."""
    import fsspec
    from fsspec.implementations.reference import LazyReferenceMapper
    from zarr.storage import FsspecStore

    fo = LazyReferenceMapper(str(url), engine="pyarrow") if url.is_dir() else str(url)
    fs = fsspec.filesystem("reference", fo=fo, remote_protocol="file", asynchronous=True)
    return FsspecStore(fs, path="", read_only=True)


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
        document = json.loads((store / path / "attributes.json").read_text())
        attributes = {name: value for name, value in document.items() if name not in hidden}
        assert {name: dataset.attrs[name] for name in attributes} == attributes
        return Read(dataset[:], unmoved(attributes))


def unmoved(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an N5 dataset with those that tensorstore would refuse in their own place."""
    rest = dict(attributes)
    return rest | rest.pop("_chunkmill_attributes", {})


READERS: dict[str, tuple[Callable[[Path, str, str], Read], frozenset[str]]] = {
    "zarr-python": (read_zarr_python, frozenset({"zarr2", "zarr3"})),
    "zarrs": (read_zarrs, frozenset({"zarr2", "zarr3"})),
    "tensorstore": (read_tensorstore, frozenset({"zarr2", "zarr3", "n5"})),
    "z5py": (read_z5py, frozenset({"n5"})),
}
"""Name -> how it reads, and the formats that it claims."""
