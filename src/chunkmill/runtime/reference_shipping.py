"""Reference sets in whole-store jobs: tasks in other processes are lent the references that they need.

What the tasks of a stage share is pickled once, without the references of sets that are held in memory. Each task
brings those of the store keys that it will ask for; asking for another one is an error, never an absent chunk. Not
here: which keys those are (the stage's ``reads``), single reads through dask arrays
(`chunkmill.dask_arrays.reference_subsets`).
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias
from uuid import uuid4

from chunkmill.array.references import held_references
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import StoreError
from chunkmill.model.references import Reference, ReferenceSet
from chunkmill.stores.reference import ReferenceStore
from chunkmill.stores.reference_targets import Targets

__all__ = ["Lender", "Lent", "Reads", "borrowed"]

Reads: TypeAlias = Callable[[Any, Any], Iterable[tuple[StoredArray, Iterable[str]]]]
"""What the tasks of a stage share, and a spec -> arrays, and the store keys of each that the task will ask for."""

Unit: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Lent:
    """References for one task: of the set called `token`, those of some keys, and which of the keys there are not."""

    token: str
    references: ReferenceSet
    absent: frozenset[str]


class Lender:
    """The sets of one stage, in the process that holds them."""

    def __init__(self, reads: Reads, common: Any) -> None:
        self._reads = reads
        self._common = common
        self._tokens: dict[int, str] = {}
        self._stores: list[ReferenceStore] = []  # alive, so that no other gets the id of one

    def pack(self, value: Any) -> bytes:
        """Pickle `value` without the references of its sets."""
        buffer = io.BytesIO()
        _LeanPickler(buffer, self._token).dump(value)
        return buffer.getvalue()

    def units(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Return number and specs of each task, and behind them what it is lent: cut out when it is asked for."""
        return _LentUnits(units, self._lent) if self._stores else units

    def _token(self, store: ReferenceStore) -> str:
        if id(store) not in self._tokens:
            self._tokens[id(store)] = uuid4().hex
            self._stores.append(store)
        return self._tokens[id(store)]

    def _lent(self, specs: Sequence[Any]) -> tuple[Lent, ...]:
        wanted: dict[str, tuple[ReferenceStore, set[str]]] = {}
        for spec in specs:
            for array, keys in self._reads(self._common, spec):
                store = held_references(array)
                if store is not None and id(store) in self._tokens:
                    wanted.setdefault(self._tokens[id(store)], (store, set()))[1].update(keys)
        lent = []
        for token, (store, keys) in wanted.items():
            subset = store.references.subset(sorted(keys))
            lent.append(Lent(token, subset, frozenset(keys - subset.named.keys())))
        return tuple(lent)


class _LeanPickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, token: Callable[[ReferenceStore], str]) -> None:
        super().__init__(buffer)
        self._token = token

    def reducer_override(self, value: Any) -> Any:
        if type(value) is ReferenceStore and isinstance(value.references, ReferenceSet):
            return _lean_store, (self._token(value), value.targets, value.url, value.is_remote)
        return NotImplemented


class _LentUnits(Sequence[Unit]):
    def __init__(self, units: Sequence[Unit], lent: Callable[[Sequence[Any]], tuple[Lent, ...]]) -> None:
        self._units = units
        self._lent = lent

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [(number, specs, self._lent(specs)) for number, specs in self._units[at]]
        return self[at : at + 1][0]


# --------------------------------------------------------------------------------------------------------------------
# In the process that runs a task

_borrowed: dict[str, list[Lent]] = {}
_lock = threading.Lock()


@contextmanager
def borrowed(lent: Sequence[Lent]) -> Iterator[None]:
    """Have the references of a task at hand while it runs, in whichever of its threads."""
    with _lock:
        for each in lent:
            _borrowed[each.token] = [*_borrowed.get(each.token, []), each]
    try:
        yield
    finally:
        with _lock:
            for each in lent:
                left = [other for other in _borrowed[each.token] if other is not each]
                if left:
                    _borrowed[each.token] = left
                else:
                    del _borrowed[each.token]


def _lean_store(token: str, targets: Targets, url: str, is_remote: bool) -> ReferenceStore:
    store = ReferenceStore(_Borrowed(token, url), targets, url=url)
    store.is_remote = is_remote
    return store


class _Borrowed:
    """What is at hand of a set: the references of the tasks that run here now."""

    def __init__(self, token: str, url: str) -> None:
        self._token = token
        self._url = url
        self.fingerprint = token

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of `key` are; ``None`` when the set has no such key."""
        for lent in _borrowed.get(self._token, ()):
            found = lent.references.locate(key)
            if found is not None or key in lent.absent:
                return found
        return self._fail(key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Refuse: only some of the keys are at hand."""
        self._fail(prefix)

    def list_dir(self, prefix: str) -> list[str]:
        """Refuse: only some of the keys are at hand."""
        self._fail(prefix)

    def subset(self, keys: Iterable[str]) -> ReferenceSet:
        """Refuse: only some of the keys are at hand."""
        self._fail(next(iter(keys), ""))

    def _fail(self, key: str) -> NoReturn:
        reason = "the task was not lent this reference of the set: an error of chunkmill, please report it"
        raise StoreError(url=self._url, key=key, reason=reason)
