"""Documents in a store: fetched, written, and kept in step with the consolidated metadata above them.

Bytes by key, and which keys a format has for a node. Not here: what documents say (`chunkmill.formats`), nodes
(`chunkmill.nodes.hierarchy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from chunkmill.array.threads import Behind
from chunkmill.errors import MetadataError, StoreError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.references.chunk_numbers import ROOT_KEY
from chunkmill.formats.references.parquet import is_reference_root
from chunkmill.formats.registry import FORMATS, get_format
from chunkmill.hints import Hint
from chunkmill.model.paths import parents_of
from chunkmill.runtime.journal import JOB_PREFIX
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteSpan, Store
from chunkmill.stores.capabilities import explain_absence

__all__ = [
    "READ_ONLY_SET",
    "Documents",
    "check_free",
    "check_root",
    "explain_missing",
    "fetch",
    "forget_consolidated",
    "format_of_store",
    "is_reference_folder",
    "may_have",
    "node_keys",
    "present",
    "refresh_consolidated",
    "set_all",
]

Documents = dict[str, bytes | None]


def format_of_store(store: Store, name: str) -> Format:
    """Return the format as the store's root documents configure it; fresh when there are none."""
    fresh = get_format(name)
    found = fresh.configured(present(fetch(store, fresh.root_keys())))
    return fresh if found is None else found


def may_have(documents_format: Format, path: str) -> bool:
    """Whether a node of the format can be at `path`: what one bars, others allow."""
    try:
        documents_format.normalize_path(path)
    except MetadataError:
        return False
    return True


def node_keys(documents_format: Format, path: str) -> Iterator[str]:
    """Yield the keys of every document that an array or a group at `path` may have."""
    yield from documents_format.array_keys(path)
    yield from documents_format.group_keys(path)


def fetch(store: Store, keys: Iterable[str]) -> Documents:
    """Get documents, all at once where the store can; ``None`` for those that are not there."""
    wanted = list(dict.fromkeys(keys))
    return dict(zip(wanted, store.get_many(ByteSpan(key) for key in wanted), strict=True))


def present(documents: Documents) -> dict[str, bytes]:
    """Return those that are there."""
    return {key: value for key, value in documents.items() if value is not None}


def refresh_consolidated(store: Store, format: str, documents: Mapping[str, bytes]) -> None:  # noqa: A002
    """Bring consolidated metadata above documents just published up to date with them, where there is some."""
    documents_format = format_of_store(store, format)
    groups = {group for key in documents for group in parents_of(key)}
    for group, known in _consolidated(store, documents_format, groups):
        prefix = f"{group}/" if group else ""
        below = {key: value for key, value in documents.items() if key.startswith(prefix)}
        set_all(store, documents_format.emit_consolidated(group, {**known, **below}))


def forget_consolidated(store: Store, path: str) -> None:
    """Take a node that is gone, and what was below it, out of consolidated metadata above it, of whatever format."""
    for documents_format in FORMATS:
        if not may_have(documents_format, path):
            continue
        gone = set(node_keys(documents_format, path))
        for group, known in _consolidated(store, documents_format, parents_of(path)):
            left = {k: v for k, v in known.items() if k not in gone and not k.startswith(f"{path}/")}
            if left != known:
                set_all(store, documents_format.emit_consolidated(group, left))


def _consolidated(
    store: Store, documents_format: Format, groups: Iterable[str]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield those of `groups` that have consolidated metadata, and the documents in them."""
    keys = {group: key for group in groups if (key := documents_format.consolidated_key(group)) is not None}
    found = fetch(store, keys.values())
    for group, key in keys.items():
        value = found[key]
        known = None if value is None else documents_format.parse_consolidated(group, value)
        if known is not None:
            yield group, known


def set_all(store: Store, documents: Mapping[str, bytes]) -> None:
    """Write documents, whatever their order: many at once where each waits."""
    with Behind(REQUESTS_AT_ONCE if store.is_remote else 0) as behind:
        for key, value in documents.items():
            behind.call(store.set, key, value)


READ_ONLY_SET = (
    "there is a reference set, and those are read-only: give another url, "
    "or convert the set to a store of its own and write there"
)
_ENTRY_POINT = "zarr.json"  # of a group in Zarr v3, of a whole store in its draft: what one writes would hide the other


def check_root(store: Store, documents_format: Format) -> None:
    """Refuse a store whose root is configured by another format in the same documents, and a reference set."""
    root = present(fetch(store, {ROOT_KEY: None, **dict.fromkeys(documents_format.root_keys())}))
    if is_reference_root(root.pop(ROOT_KEY, None)):
        raise StoreError(url=store.url, key=ROOT_KEY, reason=READ_ONLY_SET)
    if root and documents_format.configured(root) is None:
        raise _of_another_format(documents_format, next(iter(root)))


def is_reference_folder(store: Store) -> bool:
    """Whether the store is the folder of a reference set in parquet."""
    return is_reference_root(store.get(ROOT_KEY))


def check_free(documents_format: Format, new: Iterable[str], there: Documents) -> None:
    """Refuse to write documents that are there and belong to another format."""
    for key in new:
        if key.endswith(_ENTRY_POINT) and there.get(key) is not None:
            raise _of_another_format(documents_format, key)


def _of_another_format(documents_format: Format, key: str) -> UnsupportedFeature:
    feature = "nodes in a store of another format, of which both need one document"
    return UnsupportedFeature(format=documents_format.name, feature=feature, key=key, hint="give another url")


def explain_missing(store: Store, path: str, formats: Sequence[Format]) -> str:
    """Return what there is instead where none of `formats` has a node, and the way out."""
    looked = "of a known format" if len(formats) > 1 else f"of format {formats[0].name!r}"
    if (why := explain_absence(store)) is not None:
        return why
    try:
        listed = store.list_dir(f"{path.strip('/')}/" if path.strip("/") else "")
        at_root = store.list_dir("") if path.strip("/") else listed
    except (OSError, ValueError):
        return f"nothing {looked} answers there"
    if any(name.startswith(JOB_PREFIX) for name in at_root):
        return "a job that writes to this store is not done: it runs, or was cut off and goes on when it is run again"
    if not listed and path.strip("/"):
        text = "the store has no keys there: is the url right, and the path? Without {} its root is opened"
        return Hint(text, ("path", ...))
    if not listed:
        return "the store has no keys there: is the url right?"
    more = ", …" if len(listed) > _MAX_LISTED else ""
    return f"nothing {looked} there, only {', '.join(map(repr, listed[:_MAX_LISTED]))}{more}"


_MAX_LISTED = 8
