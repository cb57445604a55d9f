"""Checks that compressors share: numbers of a configuration, sizes that a frame states.

Not here: what a whole chunk may take (`chunkmill.codecs.pipeline`).
"""

from __future__ import annotations

from collections.abc import Mapping

from chunkmill.model.metadata import JSON

__all__ = ["check_claim", "integer"]


def integer(configuration: Mapping[str, JSON], key: str, default: int, low: int, high: int) -> int:
    """Return a member that must be an integer within bounds."""
    value = configuration.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{key} is {value!r}, expected an integer from {low} to {high}")
    return value


def check_claim(stated: int, max_bytes: int, n_bytes: int, ratio: int) -> None:
    """Refuse the size that a frame of `n_bytes` states, before it is allocated."""
    if stated > max_bytes:
        raise ValueError(f"the frame states {stated} bytes, expected at most {max_bytes}")
    if stated > n_bytes * ratio:
        raise ValueError(f"the frame states {stated} bytes, which {n_bytes} compressed bytes cannot hold")
