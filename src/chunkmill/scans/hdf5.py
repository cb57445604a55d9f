"""Find what references of HDF5 files cannot say: values without byte ranges, attributes that a parser changes.

Small arrays of such values are read, and stored in the set; larger ones are refused by name. Not here: byte ranges of
chunks, which VirtualiZarr finds.
Checked against: h5py 3.x's kinds of storage; values against h5py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from io import RawIOBase
from typing import Any, BinaryIO

import numpy as np

from chunkmill.errors import ScanError
from chunkmill.nodes.api import create_array
from chunkmill.stores.memory import MemoryStore

__all__ = ["MAX_INLINE_BYTES", "Unreferenced", "read_unreferenced", "stored_whole"]

MAX_INLINE_BYTES = 1 << 20
"""Arrays of more decoded bytes are not stored in a set."""


@dataclass(frozen=True)
class Unreferenced:
    """Arrays and attributes that the references of a file lack.

    Attributes
    ----------
    dropped
        Names of variables that the parser is to leave out.
    documents
        Key -> document or chunk of the arrays that were read.
    empty_attributes
        Path of a node -> names of attributes that are empty texts.
    """

    dropped: tuple[str, ...] = ()
    documents: Mapping[str, bytes] = field(default_factory=dict)
    empty_attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_unreferenced(url: str, file: BinaryIO | RawIOBase, drop_variables: Collection[str] = ()) -> Unreferenced:
    """Read the small arrays of an HDF5 file whose values are no byte ranges.

    Raises
    ------
    ScanError
        A variable has values that are no byte ranges, and is too large or of a kind that no array holds; names it.
    """
    h5py = import_module("h5py")
    with h5py.File(file, "r") as opened:
        kept = dict(_nodes(url, opened, "", (), frozenset(drop_variables)))
        arrays = {path: node for path, node in kept.items() if isinstance(node, h5py.Dataset)}
        odd = {path: why for path, node in arrays.items() if (why := _no_ranges(node)) is not None}
        # the parser leaves variables out by their last name, in every group
        dropped = {path.rpartition("/")[2] for path in odd}
        documents: dict[str, bytes] = {}
        for path, node in arrays.items():
            if path.rpartition("/")[2] in dropped:
                documents |= _inline(url, path, node, odd.get(path, f"there are others of that name: {min(odd)!r}"))
        empty = {path: names for path, node in {"": opened, **kept}.items() if (names := _empty_attributes(node))}
    return Unreferenced((*dropped, *drop_variables), documents, empty)


def _nodes(
    url: str, group: Any, prefix: str, above: tuple[Any, ...], dropped: Collection[str]
) -> Iterator[tuple[str, Any]]:
    """Yield path and node of all that is below a group, through links too, as the parser walks."""
    h5py = import_module("h5py")
    for name in group:
        if name in dropped:
            continue
        if (node := group.get(name)) is None:  # nor does the parser get past it
            raise ScanError(url=url, reason=f"{prefix + name!r} is a link to nothing")
        if node in above or node == group:
            out = f"leave it out (drop_variables={[name]!r})"
            raise ScanError(url=url, reason=f"{prefix + name!r} is a link to a group above it; {out}")
        yield f"{prefix}{name}", node
        if isinstance(node, h5py.Group):
            yield from _nodes(url, node, f"{prefix}{name}/", (*above, group), dropped)


def _no_ranges(dataset: Any) -> str | None:
    """Return why values of a dataset are no byte ranges of its file; ``None`` where they are."""
    h5py = import_module("h5py")
    text = h5py.check_string_dtype(dataset.dtype)
    kinds = {
        "it has no elements": dataset.shape is None,
        "it has strings of variable length": text is not None and text.length is None,
        "its elements are of variable length": h5py.check_vlen_dtype(dataset.dtype) is not None,
        "its elements are references": h5py.check_ref_dtype(dataset.dtype) is not None,
        "its elements are arrays": dataset.dtype.subdtype is not None,
        "it is stored in other files": _is_elsewhere(dataset),
        "it is stored in its header": dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT,
    }
    if found := [reason for reason, holds in kinds.items() if holds]:
        return found[0]
    try:
        import_module("virtualizarr.parsers.hdf.filters").codecs_from_dataset(dataset)
    except Exception as error:  # noqa: BLE001 - whatever the filter of a plugin raises
        return f"its filters are not known: {error}"
    return next(_chunks_without_filters(dataset), None)


def _is_elsewhere(dataset: Any) -> bool:
    h5py, plist = import_module("h5py"), dataset.id.get_create_plist()
    own = {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED}
    return plist.get_layout() not in own or plist.get_external_count() > 0


def _chunks_without_filters(dataset: Any) -> Iterator[str]:
    """Yield a reason if some chunk was stored without some of the filters: references cannot say which."""
    n_filters = dataset.id.get_create_plist().get_nfilters()
    if n_filters and dataset.chunks is not None:
        masks: list[int] = []
        dataset.id.chunk_iter(lambda chunk: masks.append(chunk.filter_mask))
        if any(masks):
            yield "some of its chunks are stored without its filters"


def _inline(url: str, path: str, dataset: Any, reason: str) -> dict[str, bytes]:
    """Return documents and the one chunk of an array; `ScanError` where it is not small, or no array."""
    h5py = import_module("h5py")
    parsed = import_module("virtualizarr.parsers.hdf.hdf")
    where = f"the variable {path!r} cannot be referenced: {reason}"
    out = f"leave it out (drop_variables={[path.rpartition('/')[2]]!r}), or convert the file by other means"
    text = h5py.check_string_dtype(dataset.dtype) if dataset.shape is not None else None
    is_text = text is not None and text.length is None
    # HDF5 reads fill values where it does not find other files
    if dataset.shape is None or _is_elsewhere(dataset) or (dataset.dtype.kind == "O" and not is_text):
        raise ScanError(url=url, reason=f"{where}; {out}")
    if dataset.size * dataset.dtype.itemsize > MAX_INLINE_BYTES:
        raise ScanError(url=url, reason=f"{where}, and it is too large to be stored in the set; {out}")
    try:
        values = np.asarray(dataset.asstr()[...] if is_text else dataset[...])
        attributes = parsed._extract_attrs(dataset)  # noqa: SLF001 - as of those that VirtualiZarr parses
        attributes |= dict.fromkeys(_empty_attributes(dataset), "")
        dims = parsed._dataset_dims(dataset, group=dataset.parent.name)  # noqa: SLF001
    except Exception as error:
        raise ScanError(url=url, reason=f"{where}, and cannot be read: {error}; {out}") from error
    if is_text:
        values = values.astype(np.dtypes.StringDType())
        attributes.pop("_FillValue", None)  # no text is missing in xarray's sense
    if "_FillValue" in attributes:
        encode = import_module("virtualizarr.parsers.utils").encode_cf_fill_value
        attributes["_FillValue"] = encode(attributes["_FillValue"], dataset.dtype)
    if values.ndim > dataset.ndim:  # elements that are arrays are further axes
        dims = [*dims, *(f"phony_dim_{axis}" for axis in range(dataset.ndim, values.ndim))]
    return stored_whole(path, values, dims=dims, attributes=attributes)


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


def _empty_attributes(node: Any) -> tuple[str, ...]:
    """Return the names of attributes that are empty texts, of which the parser makes a space."""
    return tuple(name for name in node.attrs if _is_empty(node, name))


def _is_empty(node: Any, name: str) -> bool:
    try:
        value = node.attrs[name]
    except (OSError, TypeError, ValueError):  # a type that h5py does not read; what the parser makes of it stays
        return False
    return isinstance(value, (bytes, np.bytes_)) and not value
