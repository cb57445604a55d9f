"""Reference sets as documents: kerchunk's JSON (v0, v1) and parquet."""

from __future__ import annotations

from chunkmill.errors import MetadataError
from chunkmill.formats.base import parse_json

__all__ = ["ROOT_KEY", "is_reference_root"]

ROOT_KEY = ".zmetadata"


def is_reference_root(document: bytes | None) -> bool:
    """Return whether a ``.zmetadata`` document is that of a reference set, not of consolidated Zarr metadata.

    Examples
    --------
    >>> is_reference_root(b'{"metadata": {}, "record_size": 10000}')
    True
    >>> is_reference_root(b'{"metadata": {}, "zarr_consolidated_format": 1}'), is_reference_root(None)
    (False, False)
    """
    if document is None or b'"record_size"' not in document:  # most are long, and need not be parsed for this
        return False
    try:
        members = parse_json(ROOT_KEY, document)
    except MetadataError:  # reading it as consolidated metadata will say what is wrong
        return False
    return "record_size" in members and "metadata" in members
