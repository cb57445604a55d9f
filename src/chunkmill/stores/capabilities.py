"""Abilities that some stores have beyond the protocol `Store`, and what holds for a store without them.

A store has an ability when it has the method or attribute of that name: nothing is inherited or registered, so a store
of one's own gains one by defining it. Callers ask these functions, never for the class of a store. Stores that wrap
another one name it `below`, and are looked through. Writing a value in parts is `chunkmill.stores.base.WritesParts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import StoreError
from chunkmill.model.references import Reference, References
from chunkmill.stores.base import ByteRange, Store, WritesParts

__all__ = [
    "HoldsReferences",
    "LocatesValues",
    "can_list",
    "delete_keys",
    "deletes_conditionally",
    "documents_demanded",
    "explain_absence",
    "flush",
    "get_writable",
    "innermost",
    "is_empty",
    "limited_to",
    "n_publications",
    "pinned",
]
__all__ += [
    "can_rename",
    "can_replace",
    "copy_value",
    "has_folders",
    "is_link",
    "links",
    "list_sizes",
    "remove_empty_folders",
    "remove_folder",
    "replace_prefix",
    "scratch_store",
    "set_parts",
    "stage",
    "swap_in",
]
__all__ += ["sweep_partial_files", "uncached"]


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

    def subset(self, keys: Iterable[str]) -> Store:
        """Return a store of only those of `keys` that the set has."""


def innermost(store: Store) -> Store:
    """Return the store that holds the bytes, below those that count or answer from memory (`below`)."""
    while (below := getattr(store, "below", None)) is not None:
        store = below
    return store


def uncached(store: Store) -> Store:
    """Return the store without the documents that it answers from memory (attribute `uncached`); else the store."""
    found: Store = getattr(store, "uncached", store)
    return found


def documents_demanded(store: Store) -> bool:
    """Return whether the caller asked for the documents in memory, stale or not (attribute `is_demanded`)."""
    return bool(getattr(store, "is_demanded", False))


def flush(store: Store) -> None:
    """Make what was written visible to others now (`flush()`); stores without that method do so at each write."""
    if (own := _ability(store, "flush")) is not None:
        own()
    _Publications.n += 1


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
    own = _ability(store, "sweep")
    return [] if own is None else list(own(prefix, remove=remove, recursive=recursive))


def get_writable(store: Store, key: str, byte_range: ByteRange | None = None) -> bytes | NDArray[np.uint8] | None:
    """Return a value, or a range of it, as an array of the caller's (``get_writable(key, byte_range)``), or as `get`.

    What is stored as it is in memory need not be copied then to be written to.
    """
    own = getattr(store, "get_writable", None)  # of this store alone: what it wraps would not be counted
    return store.get(key, byte_range) if own is None else own(key, byte_range)


def explain_absence(store: Store) -> str | None:
    """Return why the store has no keys at all, where it knows (``explain_absence()``)."""
    own = _ability(store, "explain_absence")
    return None if own is None else own()


def scratch_store(store: Store) -> Store | None:
    """Return where temporary values go instead, for a store that never frees what is deleted (``scratch_store()``)."""
    own = _ability(store, "scratch_store")
    return None if own is None else own()


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
    own = getattr(store, "limited_to", None)
    limited: Store = store if own is None else own(n_bytes)
    return limited


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
    own = _ability(store, "list_sizes")
    return ((key, None) for key in store.list_prefix(prefix)) if own is None else own(prefix)


def remove_folder(store: Store, prefix: str) -> None:
    """Remove the folder of a prefix if nothing is in it (``remove_folder(prefix)``); other stores have no folders."""
    own = _ability(store, "remove_folder")
    if own is not None:
        own(prefix)


def remove_empty_folders(store: Store, prefix: str, *, besides: tuple[str, ...] = ()) -> None:
    """Remove the folders below a prefix in which nothing is left, but for those whose names begin in some way."""
    for name in store.list_dir(prefix) if has_folders(store) else ():
        if name.endswith("/") and not name.startswith(besides):
            remove_empty_folders(store, prefix + name, besides=besides)
            remove_folder(store, prefix + name)


def delete_keys(store: Store, keys: Sequence[str]) -> None:
    """Delete keys: by ``delete_many(keys)`` where a remote store has that, else one by one."""
    own = _delete_many(store)
    if own is None:
        for key in keys:
            store.delete(key)
    elif keys:
        own(list(keys))


def _delete_many(store: Store) -> Callable[[list[str]], None] | None:
    # of this store alone: what it wraps would write past it
    return getattr(store, "delete_many", None) if store.is_remote else None


def set_parts(store: Store, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
    """Store joined parts, each written as it comes where the store can."""
    if isinstance(store, WritesParts):
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
    chunkmill.errors.StoreError: ...all that was stored below 'a/' was deleted or replaced meanwhile
    """
    own = getattr(store, "pin", None)  # of this store alone: what it wraps would write past it
    return store if own is None else own(prefix)


def stage(store: Store, prefix: str) -> Store | None:
    """Return a store for what is to replace all below `prefix`, by ``stage(prefix)``; ``None``: it cannot hold both."""
    own = _ability(store, "stage")
    return None if own is None else own(prefix)


def swap_in(store: Store, prefix: str, staged: Store) -> None:
    """Replace all below `prefix` by what the store from `stage` holds; the old is there until the new is."""
    _ability(store, "swap_in")(prefix, staged)


def can_rename(store: Store, prefix: str) -> bool:
    """Return whether the store can put what is below other prefixes in the place of `prefix`, by `replace_prefix`.

    Directories may be links or mount points (``can_rename(prefix)``).
    """
    own = _ability(store, "can_rename")
    return _ability(store, "replace_prefix") is not None and (own is None or bool(own(prefix)))


def has_folders(store: Store) -> bool:
    """Return whether the store has folders, which stay when nothing is in them (``remove_folder(prefix)``)."""
    return _ability(store, "remove_folder") is not None


def is_link(store: Store, prefix: str) -> bool:
    """Return whether the folder of `prefix` is a symbolic link, which `delete_prefix` deletes (``is_link(prefix)``)."""
    own = _ability(store, "is_link")
    return own is not None and bool(own(prefix))


def links(store: Store, prefix: str) -> list[str]:
    """Return the prefixes below `prefix` whose folders are symbolic links, none below another (``links(prefix)``)."""
    own = _ability(store, "links")
    return [] if own is None else own(prefix)


def copy_value(store: Store, source: str, target: str) -> None:
    """Store the value of one key under another one: on the server where the store can (``copy(source, target)``).

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"1")
    >>> copy_value(store, "a", "b")
    >>> store.get("b")
    b'1'
    """
    own = _ability(store, "copy")
    if own is not None:
        own(source, target)
        return
    value = store.get(source)
    if value is None:
        raise StoreError(url=store.url, key=source, reason="it was deleted before it could be copied")
    store.set(target, value)


def can_replace(store: Store, prefix: str) -> bool:
    """Return whether `replace_prefix` can replace what is below `prefix` now (``can_replace(prefix)``)."""
    own = _ability(store, "can_replace")
    return own is not None and bool(own(prefix))


def replace_prefix(store: Store, prefix: str, staged: str, mark: str) -> None:
    """Replace all below `prefix` by what is below the prefix `staged`, by ``replace_prefix(prefix, staged, mark)``.

    Of what is staged, the key `mark` is known by: where it is below `prefix` already, nothing is replaced, so that a
    repetition does no harm, be it after a death or by another client. Where it is in neither place, or is empty in what
    is staged, `StoreError`.
    """
    _ability(store, "replace_prefix")(prefix, staged, mark)


def _ability(store: Store, name: str) -> Any:
    """Return the method of that name of the outermost store that has one."""
    layer: Store | None = store
    while layer is not None:
        if (method := getattr(layer, name, None)) is not None:
            return method
        layer = getattr(layer, "below", None)
    return None
