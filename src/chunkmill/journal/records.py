"""Records of the tasks of a job that are done (P7): one object a task, stored after the task's data.

Layout, below the prefix of a journal: ``<stage>/<task>-<run>``.

A record holds the counts of its task, the sizes of the values that it wrote, and a digest of the versions of those that
it read. Stores keep their promise that a value is there whole or not at all, so a record that can be read is true,
unless the machine went down before its files were on the disk, or others changed them since.
So sizes are compared when a job resumes: on files all, elsewhere a sample, and all of them where one differs.
"""

from __future__ import annotations

import json
import re
import zlib
from array import array as column
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.model.grid import ChunkCoords, Region
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteSpan, Store, check_key
from chunkmill.stores.wrapper import digest_of

_LARGE = 4096  # bytes of a record that is worth compressing
_MOST_BYTES = 64 << 20  # of a record: more was not written by a task
_N_SAMPLED = 32
_AT_ONCE = 32  # records, looked at by one thread before it takes the next
_NAME = re.compile(r"(\d+)-([^.]+)")
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # `json.dumps` makes one a call


@dataclass(frozen=True, slots=True)
class Record:
    """Record of one task.

    Attributes
    ----------
    counts
        Its counts.
    written
        Store key -> size of the value that it wrote there.
    reads
        Digest of the versions of what it read; ``None``: not known.
    elsewhere
        Whether it wrote to another store than the journal's: that of intermediate files.
    """

    counts: Mapping[str, int]
    written: Mapping[str, int]
    reads: int | None = None
    elsewhere: bool = False

    def pack(self) -> bytes:
        """Return the record as bytes.

        Examples
        --------
        >>> record = Record({"n_keys": 1}, {"a/c/0": 3})
        >>> record.pack()
        b'{"counts":{"n_keys":1},"written":{"a/c/0":3}}'
        >>> Record.unpack(record.pack()) == record
        True
        """
        record: dict[str, Any] = {"counts": self.counts, "written": self.written}
        record |= {} if self.reads is None else {"reads": self.reads}
        record |= {"elsewhere": True} if self.elsewhere else {}
        value = _ENCODER.encode(record).encode()
        return value if len(value) < _LARGE else zlib.compress(value, 1)

    @classmethod
    def unpack(cls, value: bytes | None) -> Record | None:
        """Return the record that `pack` made bytes of; ``None`` for others."""
        try:
            parsed = json.loads(value if value is None or value[:1] == b"{" else _inflated(value))  # type: ignore[arg-type]
            written = {check_key(key): int(size) for key, size in parsed["written"].items()}
            counts = {name: n + 0 for name, n in parsed["counts"].items()}  # numbers, or a TypeError
            return cls(counts, written, parsed.get("reads"), "elsewhere" in parsed)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, zlib.error):
            return None

    def differences(self, store: Store) -> Iterator[tuple[str, str]]:
        """Yield the key of each value that has another size than on record, and a text on how it differs."""
        for key, size in self.written.items():
            there = store.size(key)
            if there != size:
                yield key, f"{'absent' if there is None else f'{there} bytes'}, where {size} bytes were written"

    def holds(self, store: Store) -> bool:
        """Return whether all values have the size on record; ``False`` if they cannot be looked at."""
        try:
            return next(self.differences(store), None) is None
        except OSError:
            return False


def _inflated(value: bytes) -> bytes:
    inflate = zlib.decompressobj()
    inflated = inflate.decompress(value, _MOST_BYTES)
    if not inflate.eof:
        raise zlib.error
    return inflated


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one run (of all runs, where `run` is empty) below a journal's prefix.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> records = Records(MemoryStore(), "job/", "r1")
    >>> records.put(0, 7, Record({}, {}))
    >>> records.names()
    [(0, 7, 'job/0/7-r1')]
    """

    store: Store
    prefix: str
    run: str

    def key(self, stage: int, task: int) -> str:
        """Return the key of the record of a task."""
        return f"{self.prefix}{stage}/{task}-{self.run}"

    def names(self) -> list[tuple[int, int, str]]:
        """Return stage and number of every task on record, and the key of its record: one listing a stage."""
        found = []
        for name in self.store.list_dir(self.prefix):  # intermediate files may be stored there, too
            if name.endswith("/") and name[:-1].isdigit():
                for key in self.store.list_prefix(self.prefix + name):
                    match = _NAME.fullmatch(key.rpartition("/")[2])
                    if match is not None and self.run in {"", match[2]}:
                        found.append((int(name[:-1]), int(match[1]), key))
        return found

    def read(self, stage: int, task: int) -> Record | None:
        """Return the record of a task; ``None`` when it is not on record."""
        return Record.unpack(self.store.get(self.key(stage, task)))

    def read_many(self, stage: int, tasks: Sequence[int]) -> Iterator[tuple[int, Record | None]]:
        """Yield each task and its record."""
        values = self.store.get_many([ByteSpan(self.key(stage, task)) for task in tasks])
        return ((task, Record.unpack(value)) for task, value in zip(tasks, values, strict=True))

    def put(self, stage: int, task: int, record: Record) -> None:
        """Record that a task, whose data are in the store, is done."""
        self.store.set(self.key(stage, task), record.pack())

    def forget(self, stage: int, tasks: Iterable[int]) -> None:
        """Delete the records of tasks: what they say is not true any more."""
        self.store.delete_many([self.key(stage, task) for task in tasks])

    def delete(self) -> None:
        """Delete the records of the run."""
        self.store.delete_many([key for *_, key in self.names()])

    def forget_false(self, stage: int, tasks: Collection[int], files: Store | None = None) -> set[int]:
        """Return those tasks whose values are there as recorded; forget the records of the others.

        `files`: the store of what they wrote, where that is not the journal's.
        """
        store = self.store if files is None else files
        ordered = sorted(tasks)
        if store.is_remote and files is None:
            sample = ordered[:: max(1, len(ordered) // _N_SAMPLED)]
            if not self._false(stage, sample, store):
                return set(ordered)
        false = self._false(stage, ordered, store)
        self.forget(stage, false)
        return set(ordered) - set(false)

    def _false(self, stage: int, tasks: Sequence[int], store: Store) -> list[int]:
        def false(part: slice) -> list[int]:
            records = self.read_many(stage, tasks[part])
            return [task for task, record in records if record is None or not record.holds(store)]

        parts = cut_evenly(len(tasks), -(-len(tasks) // _AT_ONCE))
        return [*chain.from_iterable(in_threads(false, parts, REQUESTS_AT_ONCE))]


# --------------------------------------------------------------------------------------------------------------------
# Compare what tasks have read with what there is now, when their job is resumed (P7)
#
# Where the source was written in place since, the digest is another one, and the task is done again: else the target
# would hold old values next to new ones. Versions come with the values (`chunkmill.stores.wrapper`). They are asked for
# again where records are read: by listing where requests cost latency, else file by file.


_MOST_LISTED = 1 << 22  # values whose versions are held at once: 64 MB


class StoreKeys(NamedTuple):
    """Keys of a store, all of which begin with `prefix`; those that do not exist do not matter."""

    store: Store
    prefix: str
    keys: Iterable[str]

    @classmethod
    def of(cls, array: StoredArray, region: Region, present: Numbers | None = None) -> StoreKeys:
        """Return the store keys of a region; of an array that was listed, those with the numbers `present`."""
        store, layout = array.store.uncached, array.write_layout
        if present is None:  # one by one: a damaged document may claim more keys than memory holds
            coords: Iterable[ChunkCoords] = (overlap.coords for overlap in layout.grid.overlaps(region))
        else:
            coords = map(layout.grid.coords_of, present.tolist())
        return cls(store, array.prefix, map(layout.locator.key, coords))


Inputs = Callable[[Any, Any], Iterator[StoreKeys]]
"""Called as ``inputs(common, spec)``."""


def inputs_of(inputs: Inputs, common: Any, specs: Iterable[Any]) -> Iterator[StoreKeys]:
    """Yield what some specs read."""
    for spec in specs:
        yield from inputs(common, spec)


def digest_now(inputs: Inputs, common: Any, specs: Iterable[Any], listings: Listings | None = None) -> int | None:
    """Return the digest of the versions that some specs would read; ``None`` where a store has no versions."""
    total = 0
    for each in inputs_of(inputs, common, specs):
        if not each.store.has_versions:
            return None
        digest = None if listings is None else listings.digest(each)
        total += _asked(each.store, list(dict.fromkeys(each.keys))) if digest is None else digest
    return total % 2**64


def _asked(store: Store, keys: Sequence[str]) -> int:
    """Return the digest of some keys, each of which is asked for."""

    def ask(part: slice) -> int:
        found = ((key, store.version(key)) for key in keys[part])
        return digest_of({key: version for key, version in found if version is not None})

    n_threads = REQUESTS_AT_ONCE if store.is_remote else 1
    return sum(in_threads(ask, cut_evenly(len(keys), n_threads), n_threads))


@dataclass(slots=True)
class Listings:
    """Versions of all values below some prefixes, each listed when it is first asked for."""

    _found: dict[tuple[int, str], _Listing | None] = field(default_factory=dict)

    def digest(self, inputs: StoreKeys) -> int | None:
        """Return the digest of some keys; ``None`` where listings hold no versions, or are too long to hold."""
        name = id(inputs.store), inputs.prefix
        if name not in self._found:
            self._found[name] = _Listing.of(inputs.store, inputs.prefix)
        listing = self._found[name]
        return None if listing is None else listing.digest(inputs.keys)


@dataclass(frozen=True, slots=True)
class _Listing:
    """Hashes of keys, ascending, and the digests of their versions: 16 bytes a value."""

    store: Store  # kept, so that no other has its id
    keys: NDArray[np.uint64]
    digests: NDArray[np.uint64]

    @classmethod
    def of(cls, store: Store, prefix: str) -> _Listing | None:
        found = store.list_versions(prefix)
        if found is None:
            return None
        keys, digests = column("Q"), column("Q")
        for key, version in found:
            keys.append(digest_of({key: ""}))
            digests.append(digest_of({key: version}))
            if len(keys) > _MOST_LISTED:
                return None
        order = np.argsort(np.array(keys, np.uint64))
        return cls(store, np.array(keys, np.uint64)[order], np.array(digests, np.uint64)[order])

    def digest(self, keys: Iterable[str]) -> int:
        wanted = np.array([digest_of({key: ""}) for key in dict.fromkeys(keys)], np.uint64)
        if not len(self.keys):
            return 0
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return int(self.digests[at[self.keys[at] == wanted]].sum(dtype=np.uint64))
