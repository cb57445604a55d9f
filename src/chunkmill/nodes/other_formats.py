"""Documents of formats other than the one that the group above is of: trees may be mixed.

Not here: which nodes they describe (`chunkmill.nodes.stored_group`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import chain

from chunkmill.errors import MetadataError
from chunkmill.formats.base import Format
from chunkmill.formats.registry import FORMATS
from chunkmill.nodes.documents import Documents, fetch, node_keys
from chunkmill.stores.base import Store

__all__ = ["documents_of_zarr", "first_document"]

# Formats whose documents alone tell that there is a node: N5's `attributes.json` may be anybody's.
_OF_DOCUMENTS = tuple(each for each in FORMATS if each.node_keys_known and not each.implicit_groups)


def documents_of_zarr(store: Store, paths: Collection[str]) -> dict[str, tuple[Format, Documents]]:
    """Return the format and the documents of each of some paths where Zarr has a node, all asked for at once."""
    keys = {(path, each): tuple(node_keys(each, path)) for path in paths for each in _OF_DOCUMENTS}
    documents = fetch(store, chain.from_iterable(keys.values()))
    found: dict[str, tuple[Format, Documents]] = {}
    for (path, each), own in keys.items():
        if path not in found and any(documents[of(path)[0]] is not None for of in (each.array_keys, each.group_keys)):
            found[path] = each, {key: documents[key] for key in own}
    return found


def first_document(store: Store, documents_format: Format, folder: str) -> tuple[str, Format] | None:
    """List a folder that is not a node, down to the first document; return the path and format of its node."""
    todo = [folder]
    while todo:
        path = todo.pop()
        documents = {
            key: each for each in _OF_DOCUMENTS for key in (each.array_keys(path)[0], each.group_keys(path)[0])
        }
        for prefix in documents_format.list_prefixes(path):
            for listed in store.list_dir(prefix):
                key = f"{prefix}{listed}"
                found = documents.get(key) or _folder_format(store, path, key)
                if found is not None:
                    return path, found
                if (name := documents_format.child_name(path, prefix, listed)) is not None:
                    todo.append("/".join(filter(None, (path, name))))
    return None


def _folder_format(store: Store, path: str, key: str) -> Format | None:
    """Return the format, of those in which any folder is a group, of which a listed document makes the folder an array.

    Others may have a file of that name, too: it is read.
    """
    for each in FORMATS:
        if each.empty_groups and key == each.array_keys(path)[0] and (value := store.get(key)) is not None:
            with suppress(MetadataError):
                return each if each.parse_array(path, {key: value}) is not None else None
    return None
