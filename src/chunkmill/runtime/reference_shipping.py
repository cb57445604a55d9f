"""Send each task of a job only the references it needs.

What the tasks of a stage share is pickled once, without the references of sets that are held in memory. Each task
carries those of the store keys that it will ask for; asking for another one is an error, never an absent chunk. Not
here: which keys those are (the stage's ``reads``), single reads through dask arrays
(`chunkmill.dask_arrays.reference_subsets`).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias
from uuid import uuid4

import cloudpickle

from chunkmill.array.other_stores import held_references
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import StoreError
from chunkmill.model.references import Reference, ReferenceSet
from chunkmill.stores.capabilities import HoldsReferences
from chunkmill.stores.reference import ReferenceStore, Targets

__all__ = ["Reads", "ReferenceSender", "TaskReferences", "references_in_scope"]

Reads: TypeAlias = Callable[[Any, Any], Iterable[tuple[StoredArray, Iterable[str]]]]
"""Called with what the tasks of a stage share, and a spec: arrays, and the store keys of each that the task reads."""

TaskArguments: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TaskReferences:
    """References for one task: those of some keys of the set `token`, and the keys that the set does not have."""

    token: str
    references: ReferenceSet
    absent: frozenset[str]


class ReferenceSender:
    """Reference sets of one stage, in the process that holds them."""

    def __init__(self, reads: Reads, common: Any) -> None:
        self._reads = reads
        self._common = common
        self._tokens: dict[int, str] = {}
        self._stores: list[HoldsReferences] = []  # alive, so that no other gets the id of one

    def pack(self, value: Any) -> bytes:
        """Pickle `value` without the references of its sets."""
        buffer = io.BytesIO()
        _LeanPickler(buffer, self._token).dump(value)
        return buffer.getvalue()

    def with_references(self, tasks: Iterable[TaskArguments]) -> Iterator[TaskArguments]:
        """Yield number and specs of each task, followed by its references, if there are any."""
        if not self._stores:
            return iter(tasks)
        return ((number, specs, self._references(specs)) for number, specs in tasks)

    def _token(self, store: HoldsReferences) -> str:
        if id(store) not in self._tokens:
            self._tokens[id(store)] = uuid4().hex
            self._stores.append(store)
        return self._tokens[id(store)]

    def _references(self, specs: Sequence[Any]) -> tuple[TaskReferences, ...]:
        needed: dict[str, tuple[HoldsReferences, set[str]]] = {}
        for spec in specs:
            for array, keys in self._reads(self._common, spec):
                store = held_references(array)
                if store is not None and id(store) in self._tokens:
                    needed.setdefault(self._tokens[id(store)], (store, set()))[1].update(keys)
        found = []
        for token, (store, keys) in needed.items():
            subset = store.references.subset(sorted(keys))
            found.append(TaskReferences(token, subset, frozenset(keys - subset.named.keys())))
        return tuple(found)


class _LeanPickler(cloudpickle.Pickler):  # type: ignore[misc]  # classes of scripts and notebooks go by value
    def __init__(self, buffer: io.BytesIO, token: Callable[[HoldsReferences], str]) -> None:
        super().__init__(buffer)
        self._token = token

    def reducer_override(self, value: Any) -> Any:
        # the class first: every value that is pickled comes by here
        is_store = hasattr(type(value), "subset") and isinstance(value, HoldsReferences)
        if is_store and isinstance(value.references, ReferenceSet):
            return _lean_store, (self._token(value), value.targets, value.url, value.is_remote)
        return super().reducer_override(value)


# --------------------------------------------------------------------------------------------------------------------
# In the process that runs a task

_in_scope: dict[str, list[TaskReferences]] = {}
_lock = threading.Lock()


@contextmanager
def references_in_scope(references: Sequence[TaskReferences]) -> Iterator[None]:
    """Hold the references of a task while it runs, for all its threads."""
    with _lock:
        for each in references:
            _in_scope[each.token] = [*_in_scope.get(each.token, []), each]
    try:
        yield
    finally:
        with _lock:
            for each in references:
                left = [other for other in _in_scope[each.token] if other is not each]
                if left:
                    _in_scope[each.token] = left
                else:
                    del _in_scope[each.token]


def _lean_store(token: str, targets: Targets, url: str, is_remote: bool) -> ReferenceStore:
    store = ReferenceStore(_ReferencesInScope(token, url), targets, url=url)
    store.is_remote = is_remote
    return store


class _ReferencesInScope:
    """The references of a set that the tasks of this process hold now."""

    def __init__(self, token: str, url: str) -> None:
        self._token = token
        self._url = url
        self.fingerprint = token

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of `key` are; ``None`` when the set has no such key."""
        for task in _in_scope.get(self._token, ()):
            found = task.references.locate(key)
            if found is not None or key in task.absent:
                return found
        return self._fail(key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Refuse: only some of the keys are known here."""
        self._fail(prefix)

    def list_dir(self, prefix: str) -> list[str]:
        """Refuse: only some of the keys are known here."""
        self._fail(prefix)

    def subset(self, keys: Iterable[str]) -> ReferenceSet:
        """Refuse: only some of the keys are known here."""
        self._fail(next(iter(keys), ""))

    def _fail(self, key: str) -> NoReturn:
        reason = "the task was not sent this reference of the set: an error of chunkmill, please report it"
        raise StoreError(url=self._url, key=key, reason=reason)
