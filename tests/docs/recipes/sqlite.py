"""Values in one SQLite file, which processes of one machine share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from chunkmill.stores.base import ByteRange, Store, check_key, check_prefix

__all__ = ["SqliteStore"]

_TABLE = "CREATE TABLE IF NOT EXISTS chunks (key TEXT PRIMARY KEY, value BLOB, version INTEGER)"
_PUT = "INSERT OR REPLACE INTO chunks VALUES (?, ?, abs(random()))"


class SqliteStore(Store):
    """Keys and values as rows of a table; every request is a transaction."""

    is_remote = False
    compares_versions = True

    def __init__(self, path: str) -> None:
        self.path = str(Path(path).absolute())
        self.url = f"sqlite://{self.path}"

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "chunkmill.SqliteStore", self.path

    def _run(self, *statements: tuple[str, tuple[Any, ...]]) -> tuple[list[Any], int]:
        """Run statements in one transaction; return the rows of the last, and how many it changed."""
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TABLE)
            for statement in statements:
                cursor = connection.execute(*statement)
                rows, n_changed = cursor.fetchall(), cursor.rowcount
            connection.execute("COMMIT")
        return rows, n_changed

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value or a range of it."""
        value, _ = self.get_versioned(key)
        return None if value is None else self.cut(key, value, byte_range)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        self._run((_PUT, (check_key(key), bytes(value))))

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and the random number of the write that stored it."""
        rows, _ = self._run(("SELECT value, version FROM chunks WHERE key = ?", (check_key(key),)))
        return (rows[0][0], str(rows[0][1])) if rows else (None, None)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value`, or delete, if the key still has `version`."""
        check_key(key)
        if version is None and value is None:
            return self.size(key) is None
        if version is None:
            put, row = _PUT.replace("REPLACE", "IGNORE"), (key, bytes(value))
        elif value is None:
            put, row = "DELETE FROM chunks WHERE key = ? AND CAST(version AS TEXT) = ?", (key, version)
        else:
            put = "UPDATE chunks SET value = ?, version = abs(random()) WHERE key = ? AND CAST(version AS TEXT) = ?"
            row = (bytes(value), key, version)
        return self._run((put, row))[1] == 1

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        rows, _ = self._run(("SELECT length(value) FROM chunks WHERE key = ?", (check_key(key),)))
        return rows[0][0] if rows else None

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._run(("DELETE FROM chunks WHERE key = ?", (check_key(key),)))

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        self._run(("DELETE FROM chunks WHERE substr(key, 1, ?) = ?", (len(check_prefix(prefix)), prefix)))

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with `prefix`."""
        ask = "SELECT key FROM chunks WHERE substr(key, 1, ?) = ?"
        yield from (key for (key,) in self._run((ask, (len(check_prefix(prefix)), prefix)))[0])
