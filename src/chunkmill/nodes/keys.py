"""Which keys a node has, and in which order its documents are written and deleted.

Not here: what is stored there (`chunkmill.nodes.documents`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from chunkmill.errors import StoreError
from chunkmill.formats.base import Format
from chunkmill.formats.registry import FORMATS
from chunkmill.journal.names import JOB_PREFIX
from chunkmill.nodes.documents import format_of_store, node_keys
from chunkmill.stores.base import Store

__all__ = [
    "child_names",
    "documents_below",
    "formats_of",
    "holds_chunks",
    "in_order_of_deletion",
    "is_folder",
    "join_path",
    "node_prefix",
    "node_prefixes",
]


def node_prefixes(path: str, documents_format: Format) -> tuple[str, ...]:
    """Return the prefixes below which nodes at and below `path` are stored."""
    return (documents_format.chunk_prefix(path), *documents_format.list_prefixes(path)) if path else ("",)


def formats_of(store: Store, path: str, seen: Iterable[str]) -> list[Format]:
    """Return the formats whose nodes at `path` have documents under some keys."""
    keys = set(seen)
    found = [each for each in FORMATS if each.node_keys_known and keys.issuperset(node_keys(each, path))]
    if found or not keys:
        return found
    others = (format_of_store(store, each.name) for each in FORMATS if not each.node_keys_known)
    return [each for each in others if keys.issuperset(node_keys(each, path))]


def documents_below(store: Store, documents_format: Format, path: str, prefixes: Iterable[str]) -> list[str]:
    """Return the keys of all documents below some prefixes, whatever their format."""
    names = {name for each in _document_names() for name in each}
    apart = tuple({*documents_format.list_prefixes(path)} - {documents_format.chunk_prefix(path)})
    return [
        key
        for prefix in prefixes
        for key in store.list_prefix(prefix)
        if (key.rpartition("/")[2] in names or key.startswith(apart)) and not key.startswith(JOB_PREFIX)
    ]


def _document_names() -> tuple[set[str], set[str], set[str]]:
    """Return the names of consolidated metadata apart, of documents that make nodes, and of others."""
    known = [each for each in FORMATS if each.node_keys_known]
    entries = {key for each in known for key in (each.array_keys("a")[0], each.group_keys("a")[0])}
    consolidated = {key for each in known if (key := each.consolidated_key("a")) is not None} - entries
    others = {key for each in known for key in node_keys(each, "a")} - entries
    return tuple({key.removeprefix("a/") for key in keys} for keys in (consolidated, entries, others))  # type: ignore[return-value]


def in_order_of_deletion(documents: Iterable[str], formats: Iterable[Format]) -> list[tuple[str, ...]]:
    """Return keys of documents in the order of deletion: nobody meets a part of a node, or a node without one above."""
    consolidated, _, others = _document_names()
    of_root = {key for each in formats for key in node_keys(each, "")}  # in the draft next to those of its children

    def wave(key: str) -> tuple[int, int, int]:
        name, depth = key.rpartition("/")[2], key.count("/")
        return 0 if key in of_root else depth, 0 if name in consolidated else 2 if name in others else 1, depth

    return [tuple(keys) for _, keys in groupby(sorted(documents, key=lambda key: (*wave(key), key)), wave)]


def node_prefix(documents_format: Format, path: str) -> str:
    """Return the prefix below which all of a node is stored, in formats that have one: of the root, all keys."""
    return documents_format.chunk_prefix(path) if path else ""


# --------------------------------------------------------------------------------------------------------------------
# Names that listings show below a path


def is_folder(store: Store, documents_format: Format, path: str) -> bool:
    """Return whether a listing shows anything below `path`, or an empty folder where that is a group."""
    try:
        if any(store.list_dir(prefix) for prefix in documents_format.list_prefixes(path)):
            return True
        above, _, name = path.rpartition("/")
        return documents_format.empty_groups and bool(name) and name in child_names(store, documents_format, above)
    except StoreError:  # a server that cannot list
        return False


def holds_chunks(store: Store, documents_format: Format, path: str) -> bool:
    """Return whether a folder is of an array that has no document: of an interrupted write, or a deleted one.

    That is a folder named by a number, with folders named by numbers down to a file named by one.
    """
    while path.rpartition("/")[2].isdigit():
        listed = [name for prefix in documents_format.list_prefixes(path) for name in store.list_dir(prefix)]
        if any(name.isdigit() for name in listed):
            return True
        if not listed or not all(name.endswith("/") for name in listed):
            return False
        path = join_path(path, listed[0].removesuffix("/"))
    return False


_OURS = ".chunkmill-"  # journals of unfinished jobs: every folder is a group in N5


def child_names(store: Store, documents_format: Format, path: str) -> set[str]:
    """Return the names of the direct children that listings show."""
    prefixes = documents_format.list_prefixes(path)
    listed = [(prefix, name) for prefix in prefixes for name in store.list_dir(prefix) if not name.startswith(_OURS)]
    found = (documents_format.child_name(path, prefix, name) for prefix, name in listed)
    return {child for child in found if child is not None}


def join_path(path: str, name: str) -> str:
    """Return the path of a child."""
    return "/".join(part for part in (path, name) if part)
