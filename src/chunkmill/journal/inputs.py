"""Compare what tasks on record have read with what there is now, when their job is resumed (P7).

A record holds a digest of the versions of all values that its task read (`chunkmill.stores.wrapper`). Where the
source was written in place since, the digest is another one, and the task is done again: else the target would hold
old values next to new ones. Versions come with the values. They are asked for again where records are
read: by listing where requests cost latency, else file by file.
"""

from __future__ import annotations

from array import array as column
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.model.grid import ChunkCoords, Region
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store
from chunkmill.stores.wrapper import digest_of

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
