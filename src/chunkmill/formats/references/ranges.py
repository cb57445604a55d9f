r"""Byte ranges in the JSON of a reference set, many at once, without a parser: all but a few entries of large sets are.

Reading 1 000 000 of them took 1.5 s of processor time, most of it the JSON parser's and that of the lists it makes; now
it takes 0.6 s. kerchunk's documentation and VirtualiZarr write with ujson: compact, and ``\/`` for each slash; a
parser took 1.6 s for those, now it is 0.8 s. Not here: what else an entry may be (`chunkmill.formats.references.json`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ByteRanges", "byte_ranges"]

_LEADING_ZERO = re.compile(r"[ ,]0[0-9]")
_DIGITS, _CONTROLS = b"0123456789", bytes(range(32))
_MOST = 2**63 - 1


class ByteRanges(NamedTuple):
    """Entries ``"key": [url, offset, length]``, by column."""

    keys: list[str]
    urls: list[str]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]


def byte_ranges(text: str) -> ByteRanges | None:
    r"""Return the members of a JSON object whose inside is `text`; ``None`` where a parser must look at them.

    Found are byte ranges without escapes but ``\/``, in the spacing of `json.dumps`, its default or the compact one.

    Examples
    --------
    >>> byte_ranges('"x/0": ["a.nc", 8, 100], "x/1": ["a.nc", 108, 100]').offsets
    array([  8, 108])
    >>> byte_ranges('"x/0": ["a.nc"]')
    """
    if "\\" in text and "\\\\" not in text:  # without that pair, each backslash begins an escape
        text = text.replace("\\/", "/")
    raw = text.encode()
    if b"\\" in raw or len(raw.translate(None, _CONTROLS)) != len(raw):  # JSON has control characters escaped only
        return None
    tokens = text.split('"')
    n, rest = divmod(len(tokens) - 1, 4)
    spaces = {"": "", " ": " "}.get(tokens[2][1:-1] if len(tokens) > 2 else "x")  # noqa: PLR2004 - of `: [`
    if rest or not n or spaces is None or tokens[0] or set(tokens[2::4]) != {f":{spaces}["}:
        return None
    keys = tokens[1::4]
    numbers = _numbers("".join(tokens[4::4]), n, spaces)
    if numbers is None or len(dict.fromkeys(keys)) != n:
        return None
    return ByteRanges(keys, tokens[3::4], numbers[::2], numbers[1::2])


def _numbers(text: str, n: int, spaces: str) -> NDArray[np.int64] | None:
    """Return the 2 * `n` numbers of ``, 8, 100], , 108, 100]``; ``None`` where that is not what `text` is."""
    between = f",{spaces}"
    try:
        structure = text.encode("ascii").translate(None, _DIGITS)
    except UnicodeEncodeError:
        return None
    one = f"{between}{between}]"
    if structure != (f"{one}{between}" * (n - 1) + one).encode():
        return None
    joined = text[len(between) : -1].replace(f"]{between}{between}", between)
    if not text.startswith(between) or "]" in joined or not joined.count(between) == joined.count(",") == 2 * n - 1:
        return None  # a digit stands where none may
    if f"{between}," in joined or joined[:1] == "," or joined.endswith(between):
        return None  # a number is missing
    if (joined[:1] == "0" or f"{between}0" in joined) and _LEADING_ZERO.search(f",{joined}"):
        return None  # none of JSON's
    found = np.fromstring(joined, np.int64, sep=",")
    return found if len(found) == 2 * n and int(found.max()) < _MOST else None
