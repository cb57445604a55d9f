"""Documents of the node that is being replaced, as they were when that began: what others change of it is not lost.

Not here: how the two nodes are exchanged (`chunkmill.nodes.replacement`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from chunkmill.errors import JobError
from chunkmill.formats.base import Format
from chunkmill.nodes.documents import fetch, node_keys, present
from chunkmill.stores.base import Store

__all__ = ["check_as_seen", "seen_documents", "seen_of"]


def seen_documents(store: Store, path: str, documents_format: Format) -> dict[str, str]:
    """Return what is to be known later of the documents of the node at `path`, consolidated metadata included."""
    keys = {*node_keys(documents_format, path), documents_format.consolidated_key(path)} - {None}
    found = fetch(store, sorted(key for key in keys if key is not None))
    return {key: _hash(value) for key, value in found.items()}


def seen_of(seen: Mapping[str, str], path: str) -> dict[str, str]:
    """Return of what was seen of several nodes, none below another one, what concerns that at `path`."""
    own = (f"{path}/", f"{path}.")  # as in a/zarr.json, meta/a.array.json
    return {key: value for key, value in seen.items() if not path or any(f"/{each}" in f"/{key}" for each in own)}


def check_as_seen(store: Store, seen: Mapping[str, str], new: Mapping[str, bytes], job: str, *, note: str = "") -> None:
    """Raise `JobError` where a document is another one than `seen_documents` saw.

    Deleted ones are not lost here, and those that are as in the `new` node already are of an earlier run. Where the key
    of a `note` is said, it is told once: whoever resumes after it replaces what was there then.
    """
    found = present(fetch(store, seen))
    there = {key: _hash(value) for key, value in found.items()}
    changed = sorted(key for key in there if there[key] != seen[key] and found[key] != new.get(key))
    if not changed:
        return
    now = json.dumps(there).encode()
    if note and store.get(note) == now:
        return
    if note:
        store.set(note, now)
    reason = f"others have changed {', '.join(map(repr, changed))} since this began to replace the node, "
    reason += "which is left as they made it"
    raise JobError(job=job, reason=reason, hint="look at it; the same call again replaces it as it is now")


def _hash(value: bytes | None) -> str:
    return "" if value is None else sha256(value).hexdigest()
