"""Describe nodes for the command line: facts as plain values, and the same facts as text.

Not here: commands (`chunkmill.cli.main`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from chunkmill.array.present_keys import chunks_in_shards
from chunkmill.array.stored_array import StoredArray
from chunkmill.cli.options import plain
from chunkmill.display.array import codecs_text, shape_text
from chunkmill.display.report import format_bytes, report_text
from chunkmill.errors import ChunkmillError
from chunkmill.nodes import opening
from chunkmill.nodes.group import Group
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.capabilities import HoldsReferences, innermost, list_sizes
from chunkmill.stores.places import pipeline_url

__all__ = ["describe", "facts_text", "headers", "listing", "stored"]

_MAX_CHILDREN = 50  # named by `info`
_CONCURRENT = 16  # sizes asked for at once
_BATCH = 256  # shards whose indexes are read together


def describe(node: StoredNode, *, count: bool = False) -> dict[str, Any]:
    """Return the facts of a node; with `count`, also how much of it is stored, which costs a listing."""
    facts: dict[str, Any] = {"kind": _kind(node), "format": node.format, "url": node.url, "path": node.path}
    pipeline = pipeline_url(node.store.url, node.path, node.format)
    if pipeline is not None and not isinstance(innermost(node.store), HoldsReferences):
        facts["url_pipeline"] = pipeline
    if isinstance(node, StoredArray):
        facts |= _array_facts(node)
        if count:
            facts |= stored(node)
    else:
        broken: dict[str, str] = {}
        found = node.openable(lambda path, error: broken.update({path.rpartition("/")[2]: str(error)}))
        facts["children"] = sorted({*found, *broken})
        facts |= {"cannot_be_opened": broken} if broken else {}
        facts |= _images(node)
        if count:
            facts |= _stored_below(node)
    return facts | {"attributes": dict(node.attributes)}


def headers(node: StoredNode) -> str:
    """Return dimensions, variables and attributes of a node and of all below it, as ``ncdump -h`` shows them.

    Examples
    --------
    >>> import chunkmill as cm
    >>> g = cm.create_group("memory://doc-headers", attributes={"title": "all"})
    >>> a = g.create_array("t", shape=(3, 4), dtype="f4", dimension_names=("y", "x"), attributes={"units": "K"})
    >>> print(headers(g.stored))
    dimensions:
      y = 3
      x = 4
    variables:
      float32 t(y, x)
        units = "K"
    attributes:
      title = "all"
    """
    if isinstance(node, StoredArray):
        return "\n".join(_header_lines([node], {}))
    broken: list[str] = []
    below = list(opening.walk(node, on_error=lambda path, error: broken.append(f"{path}: {error}")))
    parts: list[str] = []
    for group in below:
        if not isinstance(group, StoredArray):
            own = [
                each for each in below if isinstance(each, StoredArray) and each.path.rpartition("/")[0] == group.path
            ]
            if parts:
                parts.append(f"group: {group.path}")
            indent = "" if group is below[0] else "  "
            parts += [indent + line for line in _header_lines(own, group.attributes)]
    return "\n".join([*parts, *(["cannot be opened:"] if broken else []), *(f"  {line}" for line in broken)])


def _header_lines(arrays: Iterable[StoredArray], attributes: Mapping[str, Any]) -> Iterator[str]:
    arrays = list(arrays)
    sizes: dict[str, int] = {}
    for array in arrays:
        for name, size in zip(array.dimension_names or (), array.shape, strict=False):
            if name is not None:
                sizes.setdefault(name, size)
    if sizes:
        yield "dimensions:"
        yield from (f"  {name} = {size}" for name, size in sizes.items())
    if arrays:
        yield "variables:"
    for array in arrays:
        names = array.dimension_names or (None,) * array.ndim
        axes = [
            name if name is not None and sizes[name] == size else f"{name}={size}" if name is not None else str(size)
            for name, size in zip(names, array.shape, strict=True)
        ]
        yield f"  {array.dtype} {array.path.rpartition('/')[2] or '/'}({', '.join(axes)})"
        yield from _attribute_lines(array.attributes, "    ")
    if attributes:
        yield "attributes:"
        yield from _attribute_lines(attributes, "  ")


def _attribute_lines(attributes: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in attributes.items():
        yield f"{indent}{name} = {json.dumps(plain(value), ensure_ascii=False)}"


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
        "n_chunks": array.nchunks,
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


def stored(array: StoredArray) -> dict[str, Any]:
    """Count absent chunks and stored bytes of an array: one listing, and the index of each shard that is stored."""
    grid = array.write_layout.grid
    sizes = {key: size for key, size in list_sizes(array.store, array.prefix) if _is_chunk(array, key)}
    unknown = [key for key, size in sizes.items() if size is None]
    with ThreadPoolExecutor(_CONCURRENT if array.store.is_remote else 1) as pool:
        sizes |= zip(unknown, pool.map(array.store.size, unknown), strict=True)
    n_bytes = sum(size or 0 for size in sizes.values())
    counts: dict[str, Any] = {"missing_store_keys": grid.n_chunks - len(sizes)} if array.shards else {}
    counts["missing_chunks"] = _missing_inner_chunks(array, sizes) if array.shards else grid.n_chunks - len(sizes)
    ratio = round(array.nbytes / n_bytes, 2) if n_bytes else None
    return counts | {"stored_bytes": n_bytes, "compression_ratio": ratio}


def _missing_inner_chunks(array: StoredArray, keys: Iterable[str]) -> int | None:
    """Return how many chunks are absent, by the shards under `keys`; ``None`` if their indexes cannot be read alone."""
    layout, grid, decode = array.read_layout, array.write_layout.grid, array.metadata.chunk_keys.decode
    if layout is array.write_layout:
        return None
    numbers = (grid.number_of(decode(key[len(array.prefix) :], array.ndim) or ()) for key in keys)
    n_missing = layout.grid.n_chunks
    while batch := list(islice(numbers, _BATCH)):
        n_missing -= len(chunks_in_shards(array, np.array(batch, np.int64)))
    return n_missing


def _is_chunk(array: StoredArray, key: str) -> bool:
    coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], array.ndim)
    return coords is not None and all(i < n for i, n in zip(coords, array.write_layout.grid.grid_shape, strict=True))


def _stored_below(group: StoredGroup) -> dict[str, Any]:
    arrays = [node for node in opening.walk_openable(group) if isinstance(node, StoredArray)]
    counts = [stored(array) for array in arrays]
    n_bytes, n_stored = sum(array.nbytes for array in arrays), sum(c["stored_bytes"] for c in counts)
    return {
        "n_arrays": len(arrays),
        "bytes": n_bytes,
        "missing_chunks": sum(c["missing_chunks"] or 0 for c in counts),
        "stored_bytes": n_stored,
        "compression_ratio": round(n_bytes / n_stored, 2) if n_stored else None,
    }


def facts_text(facts: Mapping[str, Any]) -> str:
    """Return the facts of `describe` as text."""
    where = f"{facts['url']}/{facts['path']}" if facts["path"] else facts["url"]
    rows = [
        (name.replace("_", " "), line)
        for name, value in facts.items()
        if name not in {"kind", "url", "path"} and value is not None
        for line in [_SHOWN.get(name, str)(value)]
        if line
    ]
    return report_text(f"{facts['kind']} {where}", [one for name, text in rows for one in _indented(name, text)])


def _indented(name: str, text: str) -> Iterator[tuple[str, str]]:
    first, *rest = text.splitlines()
    yield name, first
    yield from (("", line) for line in rest)


def _bytes_text(n_bytes: int) -> str:
    return format_bytes(n_bytes) if n_bytes < 1 << 10 else f"{format_bytes(n_bytes)} ({n_bytes:,} B)"


def _codecs(chain: list[dict[str, Any]]) -> str:
    return "\n".join(_codec(codec) for codec in chain)


def _codec(codec: Mapping[str, Any]) -> str:
    return f"{codec['name']} {json.dumps(plain(codec['configuration']))}" if codec["configuration"] else codec["name"]


def _attributes(attributes: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {v if isinstance(v, str) else json.dumps(plain(v))}" for name, v in attributes.items())


def _children(names: list[str]) -> str:
    more = f", … and {len(names) - _MAX_CHILDREN:,} more" if len(names) > _MAX_CHILDREN else ""
    return ", ".join(names[:_MAX_CHILDREN]) + more or "none"


def _names(names: tuple[str | None, ...]) -> str:
    return ", ".join(name or "?" for name in names)


def _levels(rows: list[Mapping[str, Any]]) -> str:
    return "\n".join(_level(row) for row in rows)


def _level(row: Mapping[str, Any]) -> str:
    axes = zip(row["axes"], row["scale"], row["units"], strict=True)
    voxel = ", ".join(f"{name} {length:g}{f' {unit}' if unit else ''}" for name, length, unit in axes)
    return f"{row['path']} {row['shape']}: {voxel}"


_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "attributes": _attributes,
    "bytes": _bytes_text,
    "children": _children,
    "cannot_be_opened": _attributes,
    "chunks": shape_text,
    "chunk_bytes": _bytes_text,
    "codecs": _codecs,
    "dimension_names": _names,
    "levels": _levels,
    "missing_chunks": "{:,}".format,
    "missing_store_keys": "{:,}".format,
    "n_chunks": "{:,}".format,
    "n_store_keys": "{:,}".format,
    "store_key_bytes": _bytes_text,
    "stored_bytes": _bytes_text,
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
