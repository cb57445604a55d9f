"""Join reference sets along a dimension: the public function.

Not here: how the references are joined (`chunkmill.formats.references.combine`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from chunkmill.errors import StoreError
from chunkmill.formats.references import combine
from chunkmill.model.references import ReferenceSet
from chunkmill.nodes import api
from chunkmill.nodes.api import StoreLocation
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.files import SetFile, in_memory, matching_urls
from chunkmill.stores.base import Store
from chunkmill.stores.open import open_store, takes_options, without_reference_options
from chunkmill.stores.places import place_of
from chunkmill.stores.reference import ReferenceStore


def concat_references(
    sets: str | Sequence[StoreLocation | Array | Group],
    *,
    dim: str,
    target: str | os.PathLike[str] | None = None,
    format: Literal["json", "parquet"] | None = None,  # noqa: A002
    record_size: int = 10_000,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Array | Group:
    """Join reference sets along a dimension, in their order; no data is read.

    The sets must agree in everything but the length of that dimension: arrays, chunks, codecs, dtype, and the
    attributes that scale values. Attributes, and arrays without the dimension, are taken from the first set.

    Parameters
    ----------
    sets : sequence of str, path, Array or Group
        Urls of reference sets, sets as dicts, or nodes opened from them; or one pattern, ``"archive/2026-*.json"``,
        whose matches are joined in the order of their names.
    dim : str
        Name of the dimension.
    target : str or path, optional
        Url of the set to write; ``None``: nothing is written.
    format, record_size, overwrite
        As in `to_references`.
    storage_options, target_storage_options : dict, optional
        Options for the sets and for the target, as in `open`; the target uses those of the sets by default.

    Returns
    -------
    Array or Group
        The joined set, opened.

    Raises
    ------
    MetadataError
        Sets do not agree; lists every array that differs, in which set and why. Nothing was written.

    Examples
    --------
    >>> import chunkmill as cm
    >>> for day in ("monday", "tuesday"):
    ...     url = f"memory://doc-concat/{day}"
    ...     a = cm.create_array(url, "t", shape=(4,), dtype="i4", chunks=(2,), dimension_names=["time"])
    ...     a[...] = len(day)
    ...     report = cm.to_references(url, f"memory://doc-concat-sets/{day}.json")
    >>> sets = ["memory://doc-concat-sets/monday.json", "memory://doc-concat-sets/tuesday.json"]
    >>> week = cm.concat_references(sets, dim="time")
    >>> week["t"][2:6]
    array([6, 6, 7, 7], dtype=int32)
    """
    stores = [_reference_store(each, storage_options) for each in _listed(sets, storage_options)]
    options = storage_options if target_storage_options is None else target_storage_options
    if target is not None:
        file = SetFile.at(target, options, kind=format, record_size=record_size)
        replaces = file.check_free(overwrite=overwrite)
    names = [repr(store.url) for store in stores]
    joined = combine.concat_references([_absolute(store) for store in stores], dim, names=names)
    if target is None:
        return api.open(ReferenceStore(joined, stores[0].targets, url=f"{stores[0].url}+{len(stores) - 1}"))
    file.write(joined, replaces=replaces)
    return api.open(target, storage_options=options)


def _listed(sets: Any, storage_options: Mapping[str, Any] | None) -> Sequence[Any]:
    """Return several sets as they are, and the matches of a pattern, sorted by name."""
    if not isinstance(sets, (str, os.PathLike, Array, Group)):
        listed = list(sets)
        if not listed:
            raise ValueError("sets=[]: expected at least one reference set")
        return listed
    found = matching_urls(sets, without_reference_options(storage_options)) if isinstance(sets, str) else None
    if found is None:
        raise TypeError(f"sets={sets!r:.100}: expected a list of reference sets, or a pattern such as '2026-*.json'")
    if not found:
        raise ValueError(f"no reference set matches {sets!r}")
    return found


def _reference_store(each: StoreLocation | Array | Group, storage_options: Mapping[str, Any] | None) -> Store:
    if isinstance(each, (str, os.PathLike)):
        place = place_of(each)
        if place.path:
            raise ValueError(f"{each!r} names a node: give the url of the reference set")
        return open_reference_store(place.url, storage_options)
    if isinstance(each, (Array, Group)):
        store = each.store.innermost
    else:
        store = open_store(each, storage_options if takes_options(each) else None)
    if store.references is None:
        raise TypeError(f"expected the url of a reference set or a node opened from one, got {each!r:.100}")
    return store


def _absolute(store: Store) -> ReferenceSet:
    """Return the set in memory, with urls that mean the same in another set."""
    references = in_memory(cast("ReferenceSet", store.references))
    urls: list[str | None] = []
    for url in references.urls:
        try:
            urls.append(store.targets.resolve(url))
        except StoreError:  # relative without a base: the joined set needs one too
            urls.append(url)
    return replace(references, urls=urls)
