"""Entries of the set of a file: documents, attributes as JSON, chunks of VirtualiZarr's manifests and of values.

Not here: what the parsers say wrongly (`chunkmill.scans.hdf5`, `chunkmill.scans.kerchunk`, `chunkmill.scans.tiff`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chunkmill.errors import ScanError
from chunkmill.hints import Hint
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.nodes.api import create_array
from chunkmill.scans.tiff import with_known_codecs
from chunkmill.stores.memory import MemoryStore

__all__ = [
    "add_document",
    "add_group",
    "add_manifest",
    "refused",
    "stored_whole",
    "text_of",
    "text_or_numbers",
    "with_way_out",
]


def add_group(builder: ReferenceBuilder, prefix: str, group: Any) -> None:
    """Add a ``ManifestGroup`` with all that is below it, whose store keys begin with `prefix`."""
    add_document(builder, prefix, group.metadata.to_dict())
    for name, array in group.arrays.items():
        document = with_known_codecs(array.metadata.to_dict())
        add_document(builder, f"{prefix}{name}/", document)
        add_manifest(builder, f"{prefix}{name}/", document, array.manifest)
    for name, below in group.groups.items():
        add_group(builder, f"{prefix}{name}/", below)


def add_document(builder: ReferenceBuilder, prefix: str, document: Mapping[str, Any]) -> None:
    """Add the document of a group or an array, whose store keys begin with `prefix`."""
    own = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    builder.add_data(f"{prefix}zarr.json", json.dumps(own, default=text_or_numbers).encode())


def add_manifest(builder: ReferenceBuilder, prefix: str, document: Mapping[str, Any], manifest: Any) -> None:
    """Add the chunks of an array: byte ranges, and those that are stored in the manifest."""
    paths, offsets, lengths = (np.asarray(a) for a in (manifest._paths, manifest._offsets, manifest._lengths))  # noqa: SLF001
    for coords, data in (getattr(manifest, "_inlined", None) or {}).items():
        builder.add_data("/".join([f"{prefix}c", *map(str, coords)]), bytes(data))
    is_stored = np.asarray(paths != "")
    if not paths.ndim or list(document["shape"]) == []:
        if is_stored.all() and paths.size:
            builder.add(f"{prefix}c", str(paths.ravel()[0]), int(offsets.ravel()[0]), int(lengths.ravel()[0]))
        return
    coords = np.argwhere(is_stored)
    names, numbers = np.unique(np.array(paths[is_stored].tolist(), dtype=str), return_inverse=True)
    ids = np.array([builder.url_id(str(name)) for name in names], dtype=np.int64)
    if len(coords):
        columns = (ids[numbers.reshape(-1)], offsets[is_stored].astype(np.int64), lengths[is_stored].astype(np.int64))
        builder.add_table(f"{prefix}c/", "/", coords, *columns)


def stored_whole(path: str, values: Any, *, dims: Any, attributes: Any, fill_value: Any = None) -> dict[str, bytes]:
    """Return documents and the one chunk of an array with all its values, as Zarr v3 has them."""
    store = MemoryStore()
    create_array(
        store,
        path,
        shape=values.shape,
        dtype=values.dtype,
        chunks=values.shape,
        codecs="raw",
        fill_value=fill_value,
        dimension_names=dims,
        attributes=attributes,
    )[...] = values
    return {key: value for key in store.list_prefix(f"{path}/") if (value := store.get(key)) is not None}


def text_or_numbers(value: Any) -> Any:
    """Return an attribute as text, number or list of these; one that has a single element, as that.

    Examples
    --------
    >>> text_or_numbers(b"K"), text_or_numbers(np.array([0.5], "f4")), text_or_numbers(np.array([1, 2], ">i2"))
    ('K', 0.5, [1, 2])
    """
    if isinstance(value, (bytes, str)):
        return text_of(value)
    if getattr(value, "shape", ()) is None:  # h5py's Empty
        return "" if value.dtype.kind in "SO" else []
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.ravel().tolist() if value.size == 1 else value.tolist()
    if isinstance(value, (list, tuple)):
        listed = [text_or_numbers(each) for each in value]
        return listed[0] if len(listed) == 1 else listed
    return value if isinstance(value, (bool, int, float, dict, type(None))) else str(value)


def text_of(value: bytes | str) -> str:
    """Return a text that is UTF-8, or else Latin-1, as in older archives.

    Examples
    --------
    >>> text_of("°C".encode()), text_of("°C".encode("latin-1"))
    ('°C', '°C')
    """
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def fill_value_of(url: str, path: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the attribute ``_FillValue`` as an element of `dtype`; ``None`` where no element equals it.

    Raises
    ------
    ScanError
        It is several values, or not of the kind of the elements; names the variable.
    """
    scalar = np.ravel(value)
    if scalar.size != 1:
        raise refused(url, path, f"its attribute '_FillValue' has {scalar.size} elements")
    found: Any = value.encode() if isinstance(value, str) else scalar[0]
    if (dtype.kind == "S") != isinstance(found, bytes) or (isinstance(found, bytes) and len(found) > dtype.itemsize):
        raise refused(url, path, f"its attribute '_FillValue' is {text_or_numbers(found)!r}, its elements are {dtype}")
    if dtype.kind not in "iu":
        return found
    limits = np.iinfo(dtype)
    is_element = bool(np.isfinite(found)) and limits.min <= found <= limits.max and int(found) == found
    return dtype.type(found) if is_element else None


def refused(url: str, name: str, why: str, *, kind: str = "variable") -> ScanError:
    """Return the error that a variable, or another kind of thing, cannot be referenced."""
    return ScanError(url=url, reason=with_way_out(f"the {kind} {name!r} cannot be referenced: {why}", [name]))


def with_way_out(reason: str, paths: Sequence[str]) -> Hint:
    """Return a reason with the hint that these variables can be left out."""
    names = sorted({path.rpartition("/")[2] for path in paths})
    text = reason.replace("{", "{{").replace("}", "}}")
    return Hint(f"{text}; `scan` leaves it out ({{}}), or convert the file by other means", ("drop_variables", names))
