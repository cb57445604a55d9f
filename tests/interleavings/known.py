"""What fails today: a row goes when its pair holds."""

from __future__ import annotations

__all__ = ["KNOWN"]

_FINDINGS = {
    "parents": "a node is published before its parents: a death in between leaves it below nothing",
    "late": "documents are published over what others have made since the operation began",
    "zattrs": "Zarr v2 publishes .zarray before .zattrs: a death in between leaves an array without names of dimensions",
    "consolidated": "consolidated metadata are changed without a version check",
    "append": "of two appends at a time one is lost",
    "jobs": "a job that goes on publishes over what others have made since it was interrupted",
    "leftovers": "values, or arrays, of an operation that died show in what is created there",
    "folders": "in N5, folders of chunks of what died are taken for a group, and its repetition is refused",
    "both": "each is refused because of the other",
    "forgets": "consolidated metadata are without an array while it is replaced, and stay so if that dies",
    "reads": "who opened an array before it was deleted reads chunks that are gone as fill values",
    "deletes": "a write in place goes on, in the chunks that it knew, where the array was replaced meanwhile",
}

_PAIRS = {
    "replace+region": "forgets deletes consolidated",
    "replace+resume": "forgets",
    "replace+store": "deletes consolidated",
    "replace+create_array": "forgets",
    "replace+create_group": "forgets",
    "replace+array-attributes": "forgets",
    "replace+group-attributes": "forgets",
    "replace+dataset": "deletes forgets",
    "replace+append": "forgets",
    "replace+dataset-region": "forgets",
    "replace+convert": "forgets",
    "replace+delete": "forgets",
    "replace+reader": "deletes forgets",
    "store+delete": "deletes folders",
    "delete+reader": "reads",
}

KNOWN = {tuple(pair.split("+")): "; ".join(map(_FINDINGS.get, found.split())) for pair, found in _PAIRS.items()}
"""Pair of operations -> what is wrong with it."""
