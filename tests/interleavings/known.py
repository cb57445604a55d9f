"""What fails today: a row goes when its pair holds."""

from __future__ import annotations

__all__ = ["KNOWN"]

_FINDINGS = {
    "parents": "a node is published before its parents: a death in between leaves it below nothing",
    "late": "documents are published over what others have made since the operation began",
    "zattrs": "Zarr v2 publishes .zarray before .zattrs: a death in between leaves an array without names of dimensions",
    "consolidated": "consolidated metadata are changed without a version check",
    "append": "an append that dies while publishing leaves variables of different lengths, and is refused when repeated",
    "jobs": "a job that goes on publishes over what others have made since it was interrupted",
    "leftovers": "values, or arrays, of an operation that died show in what is created there",
    "folders": "in N5, folders of chunks of what died are taken for a group, and its repetition is refused",
    "forgets": "consolidated metadata are without an array while it is replaced, and stay so if that dies",
    "deletes": "a write in place goes on, in the chunks that it knew, where the array was replaced meanwhile",
}

_PAIRS = {
    "new+resume": "leftovers consolidated",
    "new+dataset": "late",
    "new+append": "append",
    "new+convert": "leftovers consolidated",
    "replace+region": "forgets deletes consolidated",
    "replace+resume": "forgets",
    "replace+store": "deletes consolidated",
    "replace+create_array": "forgets",
    "replace+create_group": "forgets",
    "replace+array-attributes": "forgets",
    "replace+group-attributes": "forgets",
    "replace+dataset": "deletes consolidated forgets",
    "replace+append": "append forgets consolidated",
    "replace+dataset-region": "forgets",
    "replace+convert": "forgets",
    "replace+reader": "deletes forgets",
    "region+dataset": "late zattrs",
    "region+append": "append",
    "resume+create_array": "leftovers consolidated",
    "resume+dataset": "late",
    "resume+append": "append",
    "resume+convert": "jobs late",
    "store+dataset": "zattrs late consolidated",
    "store+append": "append",
    "create_array+dataset": "parents late leftovers consolidated",
    "create_array+append": "append",
    "create_array+rechunk": "leftovers",
    "create_group+dataset": "late zattrs consolidated leftovers",
    "create_group+append": "append",
    "create_group+convert": "late jobs",
    "array-attributes+dataset": "late consolidated zattrs",
    "array-attributes+append": "append consolidated",
    "group-attributes+dataset": "late consolidated parents leftovers",
    "group-attributes+append": "append consolidated",
    "consolidate+dataset": "zattrs parents consolidated",
    "consolidate+append": "append consolidated",
    "dataset+dataset": "parents late consolidated",
    "dataset+append": "zattrs consolidated late",
    "dataset+dataset-region": "late",
    "dataset+convert": "leftovers consolidated late",
    "dataset+rechunk": "consolidated zattrs late",
    "dataset+repair": "parents consolidated zattrs",
    "dataset+reader": "parents",
    "append+append": "append consolidated",
    "append+dataset-region": "append",
    "append+convert": "append consolidated",
    "append+rechunk": "append",
    "append+repair": "append",
    "append+reader": "append",
}

KNOWN = {tuple(pair.split("+")): "; ".join(map(_FINDINGS.get, found.split())) for pair, found in _PAIRS.items()}
"""Pair of operations -> what is wrong with it."""
