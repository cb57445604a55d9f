"""Names that listings show below a path: of children, of chunks, and of nothing.

Not here: documents (`chunkmill.nodes.documents`), nodes (`chunkmill.nodes.stored_group`).
"""

from __future__ import annotations

from chunkmill.errors import StoreError
from chunkmill.formats.base import Format
from chunkmill.stores.base import Store

__all__ = ["child_names", "holds_chunks", "is_folder", "join_path", "listed_children"]


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
    return listed_children(store, documents_format, path)[0]


def listed_children(store: Store, documents_format: Format, path: str) -> tuple[set[str], bool]:
    """Return the names of the direct children that listings show, and whether a group's document is among the keys."""
    prefixes = documents_format.list_prefixes(path)
    listed = [(prefix, name) for prefix in prefixes for name in store.list_dir(prefix)]
    names = {
        child
        for prefix, name in listed
        if not name.startswith(_OURS) and (child := documents_format.child_name(path, prefix, name)) is not None
    }
    own = documents_format.group_keys(path)[0]
    return names, any(prefix + name == own for prefix, name in listed)


def join_path(path: str, name: str) -> str:
    """Return the path of a child."""
    return "/".join(part for part in (path, name) if part)
