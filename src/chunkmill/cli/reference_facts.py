"""Describe reference sets for the command line: facts as plain values, and the same facts as text.

Not here: commands (`chunkmill.cli.references`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from dask.utils import format_bytes

from chunkmill.display.report import report_text
from chunkmill.formats.references.chunk_numbers import split_by_array
from chunkmill.model.references import INLINE
from chunkmill.references.files import in_memory
from chunkmill.stores.capabilities import innermost
from chunkmill.stores.reference import ReferenceStore

__all__ = ["describe_set", "set_text"]

_COLUMNS = ("n_chunks", "n_references", "n_inline", "n_absent")
_FEW = 3  # targets shown


def describe_set(store: Any) -> dict[str, Any]:
    """Return the facts of a set, which is read as a whole."""
    store = cast("ReferenceStore", innermost(store))
    references = in_memory(store.references)
    documents, arrays, rows = split_by_array(references)
    found = []
    bytes_referenced = bytes_inline = 0
    used: set[int] = set()
    for path, array in arrays.items():
        own = rows.get(path)
        n_rows = n_inline = 0
        if own is not None:
            is_inline = own.url_ids == INLINE
            n_rows, n_inline = len(own.numbers), int(is_inline.sum())
            bytes_inline += int(own.lengths[is_inline].sum(dtype=np.int64))
            lengths = own.lengths[~is_inline]
            bytes_referenced += int(lengths[lengths > 0].sum(dtype=np.int64))
            used.update(np.unique(own.url_ids[~is_inline]).tolist())
        counts = (array.n_chunks, n_rows - n_inline, n_inline, array.n_chunks - n_rows)
        found.append({"path": path} | dict(zip(_COLUMNS, counts, strict=True)))
    return {
        "url": store.url,
        "layout": "json" if references is store.references else "parquet",
        "n_documents": len(documents),
        "n_references": sum(each["n_references"] for each in found),
        "n_inline": sum(each["n_inline"] for each in found),
        "bytes_referenced": bytes_referenced,  # without references to whole files, whose sizes are not in the set
        "bytes_inline": bytes_inline,
        "n_targets": len(used),
        "targets": [str(references.urls[number]) for number in sorted(used)[:_FEW]],
        "arrays": found,
    }


def set_text(facts: Mapping[str, Any]) -> str:
    """Return the facts of `describe_set` as text."""
    more = ", …" if facts["n_targets"] > _FEW else ""
    rows = [
        ("layout", facts["layout"]),
        ("references", f"{facts['n_references']:,} ({format_bytes(facts['bytes_referenced'])})"),
        ("inline", f"{facts['n_inline']:,} ({format_bytes(facts['bytes_inline'])})"),
        ("targets", f"{facts['n_targets']:,}{': ' if facts['targets'] else ''}{', '.join(facts['targets'])}{more}"),
    ]
    arrays = [(a["path"] or "/", *(f"{a[name]:,}" for name in _COLUMNS)) for a in facts["arrays"]]
    table = [("array", "chunks", "references", "inline", "absent"), *arrays]
    return report_text(f"reference set {facts['url']}", rows, [table])
