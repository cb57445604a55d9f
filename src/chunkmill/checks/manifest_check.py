"""Compare the values of a store with a manifest: by their bytes, without decoding them, or by a listing alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import google_crc32c

from chunkmill.checks.inventory import Problem
from chunkmill.conversion.manifest import Manifest, ManifestRow
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS, Stage, TaskResult
from chunkmill.stores.base import ByteSpan, Store
from chunkmill.stores.capabilities import list_sizes
from chunkmill.stores.read_versions import list_versions

__all__ = ["listed_problems", "manifest_stage", "wanted_rows"]


def wanted_rows(manifest: Manifest, prefix: str) -> list[ManifestRow]:
    """Return the rows of the store keys that begin with `prefix`."""
    return [row for row in manifest.rows() if row.key.startswith(prefix)]


def manifest_stage(store: Store, rows: Sequence[ManifestRow]) -> Stage:
    """Return the stage that reads the values of rows and compares their sizes and crc32c."""
    specs = [tuple(each) for each in _grouped(rows)]
    return Stage("check-manifest", _compare, store, specs, shows=_shows)


def _grouped(rows: Sequence[ManifestRow]) -> Iterator[list[ManifestRow]]:
    most, group, n_bytes = max(1, min(MAX_TASK_KEYS, len(rows) // LEAST_TASKS)), list[ManifestRow](), 0
    for row in rows:
        group.append(row)
        n_bytes += row.size
        if len(group) >= most or n_bytes >= MAX_TASK_BYTES:
            yield group
            group, n_bytes = [], 0
    if group:
        yield group


def _shows(store: Store, spec: Sequence[Any]) -> str:  # noqa: ARG001 - as for every stage
    return str(spec[0].key)


def _compare(store: Store, spec: Sequence[Any]) -> TaskResult:
    problems, n_bytes = [], 0
    for row, value in zip(spec, store.get_many([ByteSpan(row.key) for row in spec]), strict=True):
        n_bytes += len(value or b"")
        problems += _difference(row, None if value is None else len(value), value)
    return TaskResult({"n_keys": len(spec), "bytes_read": n_bytes}, {}, problems)


def _difference(row: ManifestRow, size: int | None, value: bytes | None = None) -> list[Problem]:
    path = row.key.rpartition("/")[0]
    if size is None:
        return [Problem("absent", path, row.key, f"{row.size:,} bytes were written, and there is no such key")]
    if size != row.size:
        return [Problem("differs", path, row.key, f"{size:,} bytes, where {row.size:,} were written")]
    if value is not None and google_crc32c.value(value) != row.crc32c:
        return [Problem("differs", path, row.key, "its crc32c is not that of the bytes that were written")]
    return []


def listed_problems(store: Store, rows: Sequence[ManifestRow], prefix: str) -> list[Problem]:
    """Compare sizes, and ETags where both have them, with a listing; no value is read."""
    sizes = {key: -1 if size is None else size for key, size in list_sizes(store, prefix)}
    versions = dict(list_versions(store, prefix) or ())
    problems = []
    for row in rows:
        size = sizes.get(row.key)
        found = _difference(row, store.size(row.key) if size == -1 else size)
        if not found and row.version is not None and versions.get(row.key, row.version) != row.version:
            path = row.key.rpartition("/")[0]
            found = [Problem("differs", path, row.key, "its ETag is not that of the value that was written")]
        problems += found
    return problems
