"""Records of the tasks of a job that are done, and whether the values that they name are as they were written.

Not here: where a journal keeps them (`chunkmill.runtime.journal`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

import google_crc32c

from chunkmill.stores.base import Store

__all__ = ["differences", "records"]


def records(store: Store, prefix: str, run: str) -> list[tuple[int, int, str]]:
    """Return stage, number and key of every record of a run (all runs, if empty) below a journal's prefix."""
    found = []
    stages = [
        name for name in store.list_dir(prefix) if name.endswith("/") and name[:-1].isdigit()
    ]  # values may be stored beside
    for key in chain.from_iterable(store.list_prefix(prefix + stage) for stage in stages):
        stage, _, name = key[len(prefix) :].partition("/")
        task, _, of = name.partition("-")
        if stage.isdigit() and task.isdigit() and run in {"", of}:
            found.append((int(stage), int(task), key))
    return found


def differences(store: Store, record: str, *, read: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the key of each value that differs from its record, and a text on how it differs.

    Sizes are compared, and with `read` the values' crc32c. A record that cannot be read is yielded itself.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a/c/0", b"123456789")
    >>> store.set("record", json.dumps({"keys": {"a/c/0": (9, 0)}}).encode())
    >>> list(differences(store, "record")), list(differences(store, "record", read=True))
    ([], [('a/c/0', 'its bytes are not those that were written')])
    """
    value = store.get(record)
    if value is None:
        return  # the job has ended since
    try:
        written = [(key, int(known[0]), int(known[1])) for key, known in json.loads(value)["keys"].items() if known]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        yield record, "the record is damaged"
        return
    for key, size, checksum in written:
        data = store.get(key) if read else None
        there = store.size(key) if data is None else len(data)
        if there != size:
            yield key, f"{'absent' if there is None else f'{there} bytes'}, where {size} bytes were written"
        elif data is not None and google_crc32c.value(data) != checksum:
            yield key, "its bytes are not those that were written"
