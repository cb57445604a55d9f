"""What fails today: a row goes when its pair holds."""

from __future__ import annotations

__all__ = ["KNOWN"]

KNOWN: dict[tuple[str, str], str] = {}
"""Pair of operations -> what is wrong with it."""
