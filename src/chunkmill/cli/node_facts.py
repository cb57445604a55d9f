"""Describe nodes for the command line: facts as plain values, and the same facts as text.

Not here: commands (`chunkmill.cli.main`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from math import prod
from typing import Any, cast

import numpy as np

from chunkmill.array.present_keys import chunks_in_shards
from chunkmill.array.stored_array import StoredArray
from chunkmill.display.nodes import codecs_text, shape_text
from chunkmill.display.report import format_bytes, plain, report_text
from chunkmill.errors import ChunkmillError
from chunkmill.formats.references.chunk_numbers import split_by_array
from chunkmill.model.references import INLINE
from chunkmill.nodes import opening
from chunkmill.nodes.group import Group
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.reference import ReferenceStore

_MAX_CHILDREN = 50  # named by `info`
_BATCH = 256  # shards whose indexes are read together


def describe(node: StoredNode, *, count: bool = False) -> dict[str, Any]:
    """Return the facts of a node; with `count`, also how much of it is stored, which costs a listing."""
    facts: dict[str, Any] = {"kind": _kind(node), "format": node.format, "url": node.url, "path": node.path}
    if isinstance(node, StoredArray):
        facts |= _array_facts(node)
    else:
        broken: dict[str, str] = {}
        found = node.children(on_error=lambda path, error: broken.update({path.rpartition("/")[2]: str(error)}))
        facts["children"] = sorted({*found, *broken})
        facts |= {"cannot_be_opened": broken} if broken else {}
        facts |= _images(node)
    if count:
        facts |= stored(node)
    return facts | {"attributes": dict(node.attributes)}


def attribute_lines(attributes: Mapping[str, Any], indent: str = "") -> list[str]:
    """Return name and value of each attribute, as JSON."""
    return [f"{indent}{name} = {json.dumps(plain(v), ensure_ascii=False)}" for name, v in attributes.items()]


def _kind(node: StoredNode) -> str:
    return "array" if isinstance(node, StoredArray) else "group"


def _images(group: StoredGroup) -> dict[str, Any]:
    """Return the levels of each multiscale image in a group: what attributes say wrongly is left to `attributes`."""
    try:
        images = Group(group).multiscales
    except ChunkmillError:
        return {}
    rows = [
        {
            "version": image.version,
            "path": level.array.path,
            "shape": level.array.shape,
            "scale": level.scale,
            "translation": level.translation,
            "axes": [axis.name for axis in image.axes],
            "units": [axis.unit for axis in image.axes],
        }
        for image in images
        for level in image
    ]
    return {"levels": rows} if rows else {}


def _array_facts(array: StoredArray) -> dict[str, Any]:
    grid, keys = array.chunk_grid, array.write_layout.grid
    facts = {
        "shape": array.shape,
        "dtype": str(array.dtype),
        "chunks": array.chunks,
        "n_chunks": array.chunk_grid.n_chunks,
        "chunk_bytes": prod(grid.chunk_shape) * array.dtype.itemsize,
        "shards": array.shards,
        "n_store_keys": keys.n_chunks,
        "store_key_bytes": prod(keys.chunk_shape) * array.dtype.itemsize,
        "bytes": array.nbytes,
        "fill_value": array.fill_value,
        "codecs": [{"name": c.name, "configuration": dict(c.configuration)} for c in array.codecs],
        "dimension_names": array.dimension_names,
    }
    if not array.shards:  # every chunk has a store key of its own, and the numbers are the same
        del facts["n_store_keys"], facts["store_key_bytes"]
    return facts


def stored(node: StoredNode) -> dict[str, Any]:
    """Count absent chunks and stored bytes of an array, or of all below a group, by one listing of each array.

    Of arrays with shards the index of each that is stored is read.
    """
    arrays = [each for each in opening.walk_openable(node) if isinstance(each, StoredArray)]
    sizes = [_sizes(array) for array in arrays]
    n_bytes, n_stored = sum(array.nbytes for array in arrays), sum(sum(each.values()) for each in sizes)
    missing = [_missing_chunks(array, each) for array, each in zip(arrays, sizes, strict=True)]
    if isinstance(node, StoredArray):
        keys = node.write_layout.grid.n_chunks - len(sizes[0])
        facts: dict[str, Any] = {"missing_store_keys": keys} if node.shards else {}
        facts["missing_chunks"] = missing[0]
    else:
        facts = {"n_arrays": len(arrays), "bytes": n_bytes, "missing_chunks": sum(n or 0 for n in missing)}
    return facts | {"stored_bytes": n_stored, "compression_ratio": round(n_bytes / n_stored, 2) if n_stored else None}


def _sizes(array: StoredArray) -> dict[int, int]:
    """Return the bytes of each store key that is stored, by its number in the grid."""
    grid, found = array.write_layout.grid, {}
    for key, size in array.store.list_sizes(array.prefix):
        coords = array.coords_of_key(key)
        if coords is not None and all(i < n for i, n in zip(coords, grid.grid_shape, strict=True)):
            found[grid.number_of(coords)] = (array.store.size(key) if size is None else size) or 0
    return found


def _missing_chunks(array: StoredArray, sizes: Mapping[int, int]) -> int | None:
    """Return how many chunks are absent; ``None`` where they are in shards whose index cannot be read alone."""
    if array.shards and array.read_layout is array.write_layout:
        return None
    n_missing = array.read_layout.grid.n_chunks
    if not array.shards:
        return n_missing - len(sizes)
    shards = iter(sizes)
    while batch := list(islice(shards, _BATCH)):
        n_missing -= len(chunks_in_shards(array, np.array(batch, np.int64)))
    return n_missing


def facts_text(facts: Mapping[str, Any]) -> str:
    """Return the facts of `describe` as text."""
    where = f"{facts['url']}/{facts['path']}" if facts["path"] else facts["url"]
    rows: list[tuple[str, str]] = []
    for name, value in facts.items():
        if name not in {"kind", "url", "path"} and value is not None:
            lines = _shown(name, value).splitlines()
            rows += zip([name.replace("_", " "), *[""] * len(lines)], lines, strict=False)
    return report_text(f"{facts['kind']} {where}", rows)


def _shown(name: str, value: Any) -> str:
    if name in _SHOWN:
        return _SHOWN[name](value)
    if isinstance(value, int):
        exact = f" ({value:,} B)" if value >= 1 << 10 else ""
        return f"{format_bytes(value)}{exact}" if name.endswith("bytes") else f"{value:,}"
    return shape_text(value) if isinstance(value, tuple) else str(value)


def _attributes(attributes: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {v if isinstance(v, str) else json.dumps(plain(v))}" for name, v in attributes.items())


def _children(names: list[str]) -> str:
    more = f", … and {len(names) - _MAX_CHILDREN:,} more" if len(names) > _MAX_CHILDREN else ""
    return ", ".join(names[:_MAX_CHILDREN]) + more or "none"


def _codec(codec: Mapping[str, Any]) -> str:
    return f"{codec['name']} {json.dumps(plain(codec['configuration']))}" if codec["configuration"] else codec["name"]


def _level(row: Mapping[str, Any]) -> str:
    axes = zip(row["axes"], row["scale"], row["units"], strict=True)
    voxel = ", ".join(f"{name} {length:g}{f' {unit}' if unit else ''}" for name, length, unit in axes)
    return f"{row['path']} {row['shape']}: {voxel}"


_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "attributes": _attributes,
    "cannot_be_opened": _attributes,
    "children": _children,
    "codecs": lambda chain: "\n".join(map(_codec, chain)),
    "dimension_names": lambda names: ", ".join(name or "?" for name in names),
    "levels": lambda rows: "\n".join(map(_level, rows)),
}


def listing(node: StoredNode) -> str:
    """Return a table of the arrays at and below a node: path, shape, dtype, chunks, shards, bytes and codecs."""
    head = ("path", "shape", "dtype", "chunks", "shards", "bytes", "codecs")
    unsupported: list[tuple[str, str]] = []
    rows = [
        (
            array.path or "/",
            str(array.shape),
            str(array.dtype),
            shape_text(array.chunks),
            shape_text(array.shards) if array.shards else "-",
            format_bytes(array.nbytes),
            codecs_text(array.codecs),
        )
        for array in opening.walk(node, on_error=lambda path, error: unsupported.append((path, str(error))))
        if isinstance(array, StoredArray)
    ]
    facts = [("cannot be opened", f"{path}: {error}") for path, error in unsupported]
    return report_text(f"{_kind(node)} {node.url} ({node.format})", facts, [[head, *rows]])


# --------------------------------------------------------------------------------------------------------------------
# Reference sets

_COLUMNS = ("n_chunks", "n_references", "n_inline", "n_absent")
_FEW = 3  # targets shown


def describe_set(store: Any) -> dict[str, Any]:
    """Return the facts of a set, which is read as a whole."""
    from chunkmill.references.files import in_memory  # noqa: PLC0415 - other nodes need no dask

    store = cast("ReferenceStore", store.innermost)
    references = in_memory(store.references)
    documents, arrays, rows = split_by_array(references)
    found = []
    bytes_referenced = bytes_inline = 0
    used: set[int] = set()
    for path, array in arrays.items():
        own = rows.get(path)
        ids, lengths = (np.empty(0, np.int64),) * 2 if own is None else (own.url_ids, own.lengths)
        is_inline = ids == INLINE
        n_inline = int(is_inline.sum())
        bytes_inline += int(lengths[is_inline].sum(dtype=np.int64))
        bytes_referenced += int(lengths[~is_inline & (lengths > 0)].sum(dtype=np.int64))
        used.update(np.unique(ids[~is_inline]).tolist())
        counts = (array.n_chunks, len(ids) - n_inline, n_inline, array.n_chunks - len(ids))
        found.append({"path": path} | dict(zip(_COLUMNS, counts, strict=True)))
    return {
        "url": store.url,
        "layout": "json" if references is store.references else "parquet",
        "n_documents": len(documents),
        "n_references": sum(each["n_references"] for each in found),
        "n_inline": sum(each["n_inline"] for each in found),
        "bytes_referenced": bytes_referenced,  # without references to whole files, whose sizes are not in the set
        "bytes_inline": bytes_inline,
        "n_targets": len(used),
        "targets": [str(references.urls[number]) for number in sorted(used)[:_FEW]],
        "arrays": found,
    }


def set_text(facts: Mapping[str, Any]) -> str:
    """Return the facts of `describe_set` as text."""
    more = ", …" if facts["n_targets"] > _FEW else ""
    rows = [
        ("layout", facts["layout"]),
        ("references", f"{facts['n_references']:,} ({format_bytes(facts['bytes_referenced'])})"),
        ("inline", f"{facts['n_inline']:,} ({format_bytes(facts['bytes_inline'])})"),
        ("targets", f"{facts['n_targets']:,}{': ' if facts['targets'] else ''}{', '.join(facts['targets'])}{more}"),
    ]
    arrays = [(a["path"] or "/", *(f"{a[name]:,}" for name in _COLUMNS)) for a in facts["arrays"]]
    table = [("array", "chunks", "references", "inline", "absent"), *arrays]
    return report_text(f"reference set {facts['url']}", rows, [table])
