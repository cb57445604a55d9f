"""Records of the tasks of a job that are done, and whether the values that they name are as they were written.

Not here: where a journal keeps them (`chunkmill.runtime.journal`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import chain

import google_crc32c

from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store

__all__ = ["differences", "records", "records_that_hold"]

_AT_ONCE = 256  # records, looked at by one thread before it takes the next
_SLOW = 1e-4  # seconds for a record: files that others serve (NFS, Lustre), where waiting is what takes long


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


def records_that_hold(store: Store, prefix: str, run: str) -> set[tuple[int, int]]:
    """Return stage and number of every recorded task of a run: a listing for each stage.

    In a store of files each record is read, too, and the sizes of the values are compared: a machine that went down
    may have kept a file's name and lost its bytes. Records that are not true any more are deleted, so that their
    tasks are done again. Many threads do this where files are slow; elsewhere, threads of Python would slow down
    what the system answers from memory.
    """
    found = records(store, prefix, run)
    if store.is_remote:
        return {(stage, task) for stage, task, _ in found}

    def true(batch: slice) -> list[tuple[int, int]]:
        held = []
        for stage, task, key in found[batch]:
            if _holds(store, key):
                held.append((stage, task))
            else:
                store.delete(key)
        return held

    batches = cut_evenly(len(found), -(-len(found) // _AT_ONCE))
    begun = time.perf_counter()
    first = true(batches[0])
    waits = time.perf_counter() - begun > _AT_ONCE * _SLOW
    rest = in_threads(true, batches[1:], REQUESTS_AT_ONCE if waits else 1)
    return {*first, *chain.from_iterable(rest)}


def _holds(store: Store, record: str) -> bool:
    """Return whether all values are as recorded; ``False`` also when they cannot be looked at."""
    try:
        return not any(differences(store, record))
    except OSError:
        return False


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
