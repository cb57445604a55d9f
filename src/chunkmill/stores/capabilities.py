# mypy: disable-error-code="type-abstract"
"""Abilities that some stores have beyond the protocol `Store`, and what holds for a store without them.

Each ability is a protocol. A store has one when it defines every method of that protocol: nothing is inherited or
registered. Callers ask the functions below, never for the class of a store. A store that
wraps another one names it `below`, and is looked through.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from chunkmill.stores.base import ByteRange, ByteSpan, Store

if TYPE_CHECKING:
    from chunkmill.model.references import Reference, References

__all__ = [
    "HoldsReferences",
    "LocatesValues",
    "WritesParts",
    "after_stored",
    "can_list",
    "can_sync",
    "check_store",
    "delete_keys",
    "deletes_conditionally",
    "documents_demanded",
    "explain_absence",
    "flush",
    "get_writable",
    "has_ability",
    "has_store_methods",
    "innermost",
    "is_empty",
    "limited_to",
    "make_durable",
    "n_publications",
    "pinned",
    "remembered",
]
__all__ += [
    "can_rename",
    "can_replace",
    "has_folders",
    "is_archive",
    "is_link",
    "list_sizes",
    "remove_empty_folders",
    "remove_folder",
    "replace_prefix",
    "set_parts",
    "stage",
    "swap_in",
]
__all__ += ["ListsVersions", "ReadsManyVersioned", "ReadsVersioned", "RecordVersion", "may_have_versions"]
__all__ += ["sweep_partial_files", "uncached"]

A = TypeVar("A")

RecordVersion = Callable[[str, str], None]
"""Called with the key of a value that was read, and its version."""


# --- the abilities


@runtime_checkable
class WritesParts(Protocol):
    """A store that writes a value in parts, each as it is made: the value need not be in memory as a whole."""

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts: whole, or nothing of it becomes visible, also when making a part fails."""


@runtime_checkable
class ReadsIntoArrays(Protocol):
    """A store that reads into a new array, which its caller may write to."""

    def get_writable(self, key: str, byte_range: ByteRange | None = None) -> Any:
        """Return a value, or a range of it."""


@runtime_checkable
class Flushes(Protocol):
    """A store whose values become visible to others later than `set` returns."""

    def flush(self) -> None:
        """Make what was written visible to others now."""


@runtime_checkable
class Syncs(Protocol):
    """A store whose values survive a crash of the machine only some time after `set` returns."""

    def sync(self) -> None:
        """Make all that was written, by any process of this machine, survive a crash."""


@runtime_checkable
class SweepsPartialFiles(Protocol):
    """A store in which a killed writer leaves files."""

    def sweep(self, prefix: str, *, remove: bool, recursive: bool) -> Iterable[str]:
        """Return the keys of the files that killed writers left below `prefix`; delete them if `remove`."""


@runtime_checkable
class ExplainsAbsence(Protocol):
    """A store that may know why it has no keys at all."""

    def explain_absence(self) -> str | None:
        """Return why; ``None`` where it does not know."""


@runtime_checkable
class LimitsSizes(Protocol):
    """A store that decompresses values."""

    def limited_to(self, n_bytes: int) -> Store:
        """Return the store, such that it decompresses no value to more than `n_bytes`."""


@runtime_checkable
class ListsSizes(Protocol):
    """A store whose listings tell sizes."""

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        """Yield every key that starts with `prefix`, with its size."""


@runtime_checkable
class DeletesMany(Protocol):
    """A store that deletes many keys in one call."""

    def delete_many(self, keys: list[str]) -> None:
        """Delete keys, of which others may delete some at the same time."""


@runtime_checkable
class HasFolders(Protocol):
    """A store with folders, which stay when nothing is in them."""

    def remove_folder(self, prefix: str) -> bool:
        """Remove the folder of a prefix if nothing is in it; return whether there is none left."""


@runtime_checkable
class HasLinks(Protocol):
    """A store whose folders may be symbolic links."""

    def is_link(self, prefix: str) -> bool:
        """Return whether the folder of a prefix is a symbolic link."""


@runtime_checkable
class Pins(Protocol):
    """A store that can hold on to the tree of keys below a prefix."""

    def pin(self, prefix: str) -> Store:
        """Return a store that writes to what is below `prefix` now, and never to its replacement."""


@runtime_checkable
class Stages(Protocol):
    """A store that can hold what is to replace a prefix, hidden, until one call replaces it."""

    def stage(self, prefix: str) -> Store | None:
        """Return a store for what is to replace all below `prefix`; ``None`` where it cannot hold both."""

    def swap_in(self, prefix: str, staged: Any) -> None:
        """Replace all below `prefix` by what the store from `stage` holds."""


@runtime_checkable
class Renames(Protocol):
    """A store that renames what is below a prefix, at once."""

    def can_replace(self, prefix: str) -> bool:
        """Return whether there is something below `prefix` that `replace_prefix` can replace."""

    def replace_prefix(self, prefix: str, staged: str, proof: str) -> None:
        """Replace all below `prefix` by what is below the prefix `staged`, the key `proof` included; once."""


@runtime_checkable
class LimitsRenames(Protocol):
    """A store of the ability `Renames` that cannot rename some prefixes: links, mount points."""

    def can_rename(self, prefix: str) -> bool:
        """Return whether `prefix` can be renamed, or nothing is there."""


@runtime_checkable
class ReadsVersioned(Protocol):
    """A store whose values come with their versions."""

    def get_noting(self, key: str, byte_range: ByteRange | None, record: RecordVersion) -> bytes | None:
        """Return a value, or a range of it, and call `record` with its version."""

    def version(self, key: str) -> str | None:
        """Return the version of a value without reading it; ``None`` when the key is absent."""


@runtime_checkable
class ReadsManyVersioned(Protocol):
    """A store of the ability `ReadsVersioned` that reads many values at once."""

    def get_many_noting(self, spans: Iterable[ByteSpan | None], record: RecordVersion) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order, and call `record` with the version of each value."""


@runtime_checkable
class ListsVersions(Protocol):
    """A store of the ability `ReadsVersioned` whose listings tell versions."""

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield every key that starts with `prefix`, with its version."""


@runtime_checkable
class LocatesValues(Protocol):
    """A store whose values are byte ranges of files that others can open: an archive, a reference set."""

    def locate(self, key: str) -> Reference | None:
        """Return url, offset and length of a value, or its bytes; ``None`` when there is no such key."""


@runtime_checkable
class HoldsReferences(Protocol):
    """A store that answers from a reference set.

    Attributes
    ----------
    references
        The set.
    targets
        Opens the urls that the set names.
    """

    url: str
    references: References
    targets: Any
    is_remote: bool


# --- asking for them


def innermost(store: Store) -> Store:
    """Return the store that holds the bytes, below those that count or answer from memory (`below`)."""
    while (below := _below(store)) is not None:
        store = below
    return store


def uncached(store: Store) -> Store:
    """Return the store without the documents that it answers from memory (attribute `uncached`); else the store."""
    found: Store = getattr(store, "uncached", store)
    return found


def after_stored(store: Store, *, without: str | None = None) -> Store:
    """Return the store such that documents in memory answer for no more than what is not stored (`after_stored`).

    Parameters
    ----------
    without
        Prefix of keys that they do not answer for: of what is written or deleted.
    """
    narrowed = getattr(store, "after_stored", None)
    below = uncached(store)
    found: Store = below if narrowed is None or not can_list(below) else narrowed(without=without)
    return found


def remembered(store: Store, prefix: str) -> Mapping[str, bytes]:
    """Return the documents below `prefix` that a store holds in memory (`remembered`); none elsewhere."""
    known = getattr(store, "remembered", None)
    found: Mapping[str, bytes] = {} if known is None else known(prefix)
    return found


def documents_demanded(store: Store) -> bool:
    """Return whether the caller asked for the documents in memory, stale or not (attribute `is_demanded`)."""
    return bool(getattr(store, "is_demanded", False))


def flush(store: Store) -> None:
    """Make what was written visible to others now (`flush()`); stores without that method do so at each write."""
    if (own := find_ability(store, Flushes)) is not None:
        own.flush()
    _Publications.n += 1


def make_durable(store: Store) -> None:
    """Make all that was written on this machine survive its crash; other stores keep what `set` has returned for."""
    if (own := find_ability(store, Syncs)) is not None:
        own.sync()


def can_sync(store: Store) -> bool:
    """Return whether `make_durable` does anything."""
    return find_ability(store, Syncs) is not None


def n_publications() -> int:
    """Return how often this process has published documents: what it knows of others may be out of date since."""
    return _Publications.n


class _Publications:
    n = 0


def sweep_partial_files(store: Store, prefix: str = "", *, remove: bool = True, recursive: bool = True) -> list[str]:
    """Remove files that writers which died left half written below `prefix`, and return their keys.

    By ``sweep(prefix, remove=, recursive=)``; stores without that method leave no such files.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> sweep_partial_files(MemoryStore())
    []
    """
    own = find_ability(store, SweepsPartialFiles)
    return [] if own is None else list(own.sweep(prefix, remove=remove, recursive=recursive))


def get_writable(store: Store, key: str, byte_range: ByteRange | None = None) -> bytes | NDArray[np.uint8] | None:
    """Return a value, or a range of it, as an array of the caller's (``get_writable(key, byte_range)``), or as `get`.

    What is stored as it is in memory need not be copied then to be written to.
    """
    # of this store alone: what it wraps would not be counted
    own = getattr(store, "get_writable", None)  # not `has_ability`: every chunk comes by here
    return store.get(key, byte_range) if own is None else own(key, byte_range)


def explain_absence(store: Store) -> str | None:
    """Return why the store has no keys at all, where it knows (``explain_absence()``)."""
    own = find_ability(store, ExplainsAbsence)
    return None if own is None else own.explain_absence()


def is_archive(store: Store) -> bool:
    """Return whether the store is one file with one writer, to which members are appended (attribute `is_archive`).

    A node there is replaced by deleting it first (P6), and a job that was killed begins again (P7).
    """
    return bool(getattr(innermost(store), "is_archive", False))


def limited_to(store: Store, n_bytes: int) -> Store:
    """Return the store, such that it decompresses no value to more than `n_bytes` (``limited_to(n_bytes)``).

    A small archive can hold values that decompress to a thousand times its size. Only the reader knows how long a value
    may be. Stores that do not decompress are returned as they are: what they read into memory was stored.

    Examples
    --------
    >>> from chunkmill.stores.zip import ZipStore
    >>> limited_to(ZipStore("/data/x.zip"), 4096)
    ZipStore('/data/x.zip')
    """
    return store.limited_to(n_bytes) if has_ability(store, LimitsSizes) else store


def can_list(store: Store) -> bool:
    """Return whether listings are complete (attribute `can_list`): those of web servers are not, or fail."""
    found: bool = getattr(innermost(store), "can_list", True)
    return found


def deletes_conditionally(store: Store) -> bool:
    """Return whether `set_if` is atomic where it deletes, too (attribute `deletes_conditionally`).

    Where it is not, a value that others may be changing is replaced by an empty chunk rather than deleted.
    """
    found: bool = getattr(innermost(store), "deletes_conditionally", True)
    return found


def may_have_versions(store: Store) -> bool:
    """Return whether values of the store come with versions where it has the methods (attribute `has_versions`).

    That may depend on the process, which was forked, or on the service.
    """
    return bool(getattr(store, "has_versions", True))


def is_empty(store: Store, prefix: str, *, besides: tuple[str, ...] = ()) -> bool:
    """Return whether nothing is stored below `prefix` but names that begin as `besides` does.

    The first key of a listing tells it: of 10^9 keys no more are listed, unless the store cannot stop
    (attribute `lists_at_once`), which is asked for the names directly below.
    """
    if getattr(innermost(store), "lists_at_once", False):
        return all(name.startswith(besides) for name in store.list_dir(prefix))
    return all(key[len(prefix) :].startswith(besides) for key in store.list_prefix(prefix))


def list_sizes(store: Store, prefix: str) -> Iterator[tuple[str, int | None]]:
    """Yield every key that starts with `prefix`, with its size where a listing tells it (``list_sizes(prefix)``)."""
    own = find_ability(store, ListsSizes)
    return ((key, None) for key in store.list_prefix(prefix)) if own is None else own.list_sizes(prefix)


def remove_folder(store: Store, prefix: str) -> bool:
    """Remove the folder of a prefix if nothing is in it, and return whether there is none left.

    Stores without ``remove_folder(prefix)`` have no folders.
    """
    own = find_ability(store, HasFolders)
    return own is None or own.remove_folder(prefix)


def remove_empty_folders(store: Store, prefix: str, *, besides: tuple[str, ...] = ()) -> None:
    """Remove the folders below a prefix in which nothing is left, but for those whose names begin in some way."""
    for name in store.list_dir(prefix) if has_folders(store) else ():
        if name.endswith("/") and not name.startswith(besides):
            remove_empty_folders(store, prefix + name, besides=besides)
            remove_folder(store, prefix + name)


def delete_keys(store: Store, keys: Sequence[str]) -> None:
    """Delete keys: by ``delete_many(keys)`` where a remote store has that, else one by one."""
    if not (store.is_remote and has_ability(store, DeletesMany)):  # of this store alone: what it wraps writes past it
        for key in keys:
            store.delete(key)
    elif keys:
        store.delete_many(list(keys))


def set_parts(store: Store, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
    """Store joined parts, each written as it comes where the store can."""
    if has_ability(store, WritesParts):
        store.set_parts(key, parts)
    else:
        store.set(key, b"".join(parts))


def pinned(store: Store, prefix: str) -> Store:
    """Return the store such that what is written below `prefix` goes to the tree that is there now.

    By ``pin(prefix)``. Where that tree was deleted or replaced since, the value is gone with it, or writing it is an
    error. Stores without that method are returned as they are: there it would become a value of the new tree.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> tree = pinned(store, "a/")
    >>> tree.set("a/0", b"1")
    >>> store.delete_prefix("a/")
    >>> tree.set("a/1", b"2")
    Traceback (most recent call last):
    ...
    chunkmill.errors.StoreError: ...all that was stored below 'a/' was deleted or replaced since
    """
    return store.pin(prefix) if has_ability(store, Pins) else store  # of this store alone: what it wraps writes past it


def stage(store: Store, prefix: str) -> Store | None:
    """Return a store for what is to replace all below `prefix`, by ``stage(prefix)``; ``None``: it cannot hold both."""
    own = find_ability(store, Stages)
    return None if own is None else own.stage(prefix)


def swap_in(store: Store, prefix: str, staged: Store) -> None:
    """Replace all below `prefix` by what the store from `stage` holds; the old is there until the new is."""
    _demanded(store, Stages).swap_in(prefix, staged)


def can_rename(store: Store, prefix: str) -> bool:
    """Return whether the store can put what is below other prefixes in the place of `prefix`, by `replace_prefix`.

    Directories may be links or mount points (``can_rename(prefix)``).
    """
    own = find_ability(store, LimitsRenames)
    return find_ability(store, Renames) is not None and (own is None or own.can_rename(prefix))


def has_folders(store: Store) -> bool:
    """Return whether the store has folders, which stay when nothing is in them (``remove_folder(prefix)``)."""
    return find_ability(store, HasFolders) is not None


def is_link(store: Store, prefix: str) -> bool:
    """Return whether the folder of `prefix` is a symbolic link, which `delete_prefix` deletes (``is_link(prefix)``)."""
    own = find_ability(store, HasLinks)
    return own is not None and own.is_link(prefix)


def can_replace(store: Store, prefix: str) -> bool:
    """Return whether `replace_prefix` can replace what is below `prefix` now (``can_replace(prefix)``)."""
    own = find_ability(store, Renames)
    return own is not None and own.can_replace(prefix)


def replace_prefix(store: Store, prefix: str, staged: str, proof: str) -> None:
    """Replace all below `prefix` by what is below the prefix `staged`, by ``replace_prefix(prefix, staged, proof)``.

    Of what is staged, the key `proof` is known by: where it is below `prefix` already, nothing is replaced, so that a
    repetition does no harm, be it after a death or by another client. Where it is in neither place, or is empty in what
    is staged, `StoreError`.
    """
    _demanded(store, Renames).replace_prefix(prefix, staged, proof)


def _demanded(store: Store, ability: type[A]) -> A:
    if (found := find_ability(store, ability)) is None:
        raise TypeError(
            f"{type(innermost(store)).__name__} has not the ability {ability.__name__}: ask before using it"
        )
    return found


def find_ability(store: Store, ability: type[A]) -> A | None:
    """Return the outermost store with an ability: the store itself, or one below it; ``None`` when none has it."""
    layer: Store | None = store
    while layer is not None:
        if has_ability(layer, ability):
            return layer
        layer = _below(layer)
    return None


def has_ability(store: object, ability: type[A]) -> TypeGuard[A]:
    """Return whether a store itself has an ability; ``isinstance`` of a protocol takes twenty times as long."""
    return all(callable(getattr(store, name, None)) for name in _methods(cast("Any", ability)))


def _below(store: Store) -> Store | None:
    return getattr(store, "below", None)


# --- checking a store that is opened

_ATTRIBUTES = ("url", "is_remote")


def check_store(store: Store) -> None:
    """Raise `TypeError` where a store, or one that it wraps, lacks what every store has.

    Examples
    --------
    >>> class Half:
    ...     url, is_remote = "half://", False
    ...     get = get_many = set = get_versioned = set_if = size = delete = delete_prefix = list_prefix = print
    >>> check_store(Half())
    Traceback (most recent call last):
    ...
    TypeError: Half is not a store: it has no list_dir
    """
    layer: Store | None = store
    while layer is not None:
        lacking = [name for name in _ATTRIBUTES if not hasattr(layer, name)]
        lacking += [name for name in _methods(Store) if not callable(getattr(layer, name, None))]
        if lacking:
            raise TypeError(f"{type(layer).__name__} is not a store: it has no {', '.join(lacking)}")
        layer = _below(layer)


def has_store_methods(place: Any) -> bool:
    """Return whether an object is meant as a `Store`: it has a method that nothing but our stores has."""
    return any(callable(getattr(place, name, None)) for name in ("get_versioned", "set_if"))


@cache
def _methods(protocol: Any) -> list[str]:
    return [name for name, member in vars(protocol).items() if name[0] != "_" and inspect.isfunction(member)]
