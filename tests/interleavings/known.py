"""What fails today: a row goes when its pair holds."""

from __future__ import annotations

__all__ = ["KNOWN"]

_FINDINGS = {
    "folders": "in N5, folders of chunks that were written while their array was deleted are taken for a group",
    "reads": "who opened an array before it was deleted reads chunks that are gone as fill values",
    "deletes": "a write in place goes on, in the chunks that it knew, where the array was replaced meanwhile",
}

_PAIRS = {
    "replace+region": "deletes",
    "replace+store": "deletes",
    "store+delete": "deletes folders",
    "delete+reader": "reads",
}

KNOWN = {tuple(pair.split("+")): "; ".join(map(_FINDINGS.get, found.split())) for pair, found in _PAIRS.items()}
"""Pair of operations -> what is wrong with it."""
