"""What a peer read against what it must read."""

from __future__ import annotations

import math
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from golden.cases import Case, same, same_json
from interop.known import reason
from interop.peers import READERS, Read


def judge(read: Read, expected: Case) -> str:
    """Say what is wrong; ``""`` when nothing is."""
    if not same(read.values, expected.expected()):
        return f"other values: {read.values.dtype} {read.values.shape} {read.values.ravel()[:8]}"
    if read.attributes is not None and not same_json(read.attributes, plain(dict(expected.attributes))):
        return f"other attributes: {read.attributes}"
    if read.names is not None and read.names != expected.dimension_names:
        return f"other names: {read.names}"
    return ""


def plain(value: Any) -> Any:
    """The attributes as JSON can hold them: NaN and infinities, which some write bare, are written as strings."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def same_as_peer(found: Any, read: Any) -> bool:
    """Whether our values are those of zarr-python, whose texts are of numpy's StringDType."""
    read = np.asarray(read)
    return same(found, read.astype(object if read.dtype.kind == "T" else read.dtype.newbyteorder("=")))


def complaint(peer: str, name: str, read: Read | Exception, expected: Case, *, may_read: bool = False) -> str:
    """Return what the test of this case must complain of: a failure that is not listed, a listed one that is none.

    The latter is none where the peer reads what is listed in some of its names: `may_read`.
    """
    if isinstance(read, Exception):
        wrong = f"refused: {type(read).__name__}: {' '.join(str(read).split())[:300]}"
    else:
        wrong = judge(read, expected)
    why = reason(peer, name)
    if wrong and not why:
        return f"{peer} on {name}: {wrong}"
    if why and not wrong and not may_read:
        return f"{peer} reads {name}: strike it off known.py ({why})"
    return ""


def complaints(
    store: Path, fmt: str, name: str, expected: Case, *, without: Container[str] = (), may_read: bool = False
) -> list[str]:
    """Return what is to be complained of the peers in this environment that know the format."""
    found = []
    for peer, (reader, formats) in READERS.items():
        if fmt in formats and peer not in without:
            try:
                read: Read | Exception = reader(store, expected.path, fmt)
            except Exception as error:  # noqa: BLE001 - whatever a peer raises
                read = error
            found.append(complaint(peer, name, read, expected, may_read=may_read))
    return [each for each in found if each]
