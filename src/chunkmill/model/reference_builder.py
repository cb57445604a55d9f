"""Build a `ReferenceSet` from references as they come: one at a time, or thousands.

Later references of a key replace earlier ones. Not here: where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.errors import MetadataError
from chunkmill.model.references import INLINE, WHOLE, KeyForm, ReferenceSet, ReferenceTable, split_key

_INT64_MAX = 2**63 - 1
_FEW = 16  # keys of one form: fewer go to the dict, where they cost less than a table's arrays
_LOOSE = 256  # keys given together that are worth a look whether all are of one form
_MOST_WAITING = 1 << 14  # keys kept as Python objects before they become arrays
_MAX_COORDS = 32  # numpy's limit for the mixed radix

_Piece = tuple[NDArray[np.integer], ...]
"""Coords (rows, coords of a key), url ids, offsets, lengths of some rows."""


@lru_cache(maxsize=128)
def _coords_pattern(separator: str, n_coords: int) -> re.Pattern[str]:
    number = "(?:0|[1-9][0-9]{0,17})"  # what int64 holds and what str() would write: so that spelling is undone
    row = number + (re.escape(separator) + number) * (n_coords - 1) if n_coords <= _MAX_COORDS else "(?!)"
    return re.compile(f"(?:{row}\n)*+{row}")


def _alike(keys: Sequence[str]) -> tuple[KeyForm, str] | None:
    """Return the form and the coords (one key a line) when all keys have the form of the first; else ``None``.

    What a large set consists of, and several times faster here than key by key.
    """
    if (split := split_key(next(iter(keys)))) is None:
        return None
    prefix, separator, first = split
    n_coords = first.count(separator) + 1
    text = "\n" + "\n".join(keys)
    if text.count("\n" + prefix) != len(keys):
        return None
    text = text.replace("\n" + prefix, "\n")[1:]
    # a key may hold line breaks of its own: as many lines as keys, or it is not what it looks like
    if text.count("\n") != len(keys) - 1 or not _coords_pattern(separator, n_coords).fullmatch(text):
        return None
    return (prefix, separator, n_coords), text


class ReferenceBuilder:
    """Collects references and builds the set.

    Parameters
    ----------
    source
        What errors name: the url of the set that is being read or written.

    Examples
    --------
    >>> builder = ReferenceBuilder()
    >>> builder.add_data(".zattrs", b"{}")
    >>> builder.add("x/0", "/data/a.nc", 4096, 100)
    >>> builder.add("x/1", "/data/b.nc")  # the whole file
    >>> sorted(builder.build().keys())
    ['.zattrs', 'x/0', 'x/1']
    """

    def __init__(self, source: str = "<references>") -> None:
        self._source = source
        self._urls: list[str | None] = []
        self._url_ids: dict[str | None, int] = {}
        self._blob = bytearray()
        self._named: dict[str, tuple[int, int, int]] = {}
        self._pieces: dict[KeyForm, list[_Piece]] = {}
        self._keys: list[str] = []
        self._waiting: list[tuple[NDArray[np.integer], ...]] = []  # columns of those keys

    def url_id(self, url: str | None) -> int:
        """Return the number of a target, for `add_many` and `add_table`."""
        number = self._url_ids.get(url)
        if number is None:
            number = self._url_ids[url] = len(self._urls)
            self._urls.append(url)
        return number

    def map_urls(self, mapped: Callable[[str | None], str | None]) -> None:
        """Replace every url given so far by what `mapped` makes of it; those to come are taken as they are."""
        self._urls = [mapped(url) for url in self._urls]
        self._url_ids = {url: number for number, url in enumerate(self._urls)}

    def add(self, key: str, url: str | None, offset: int = 0, length: int | None = None) -> None:
        """Add a byte range of a target, or all of it (``length=None``)."""
        if length is not None and length < 0:
            raise self._error(key, length, "length in 0..2**63-1")
        self.add_many([key], [self.url_id(url)], [offset], [WHOLE if length is None else length])

    def add_data(self, key: str, data: bytes) -> None:
        """Add the bytes of a key themselves."""
        self.add_many_data([key], [data])

    def add_many(self, keys: Sequence[str], url_ids: ArrayLike, offsets: ArrayLike, lengths: ArrayLike) -> None:
        """Add many ranges at once; `url_ids` are of `url_id`, a length of -1 means the whole object.

        Several times faster than `add` when neighbouring keys belong to one array.
        """
        columns = self._columns(len(keys), url_ids, offsets, lengths)
        if len(keys) >= _LOOSE and (alike := _alike(keys)) is not None:
            self._flush()
            form, text = alike
            self._add_piece(form, _coords(form, text), columns)
            return
        for key in keys:
            self._check(key)
        self._keys += keys
        self._waiting.append(columns)
        if len(self._keys) >= _MOST_WAITING:
            self._flush()

    def add_many_data(self, keys: Sequence[str], data: Sequence[bytes]) -> None:
        """Add the bytes of many keys themselves."""
        lengths = np.fromiter(map(len, data), dtype=np.int64, count=len(data))
        offsets = np.cumsum(lengths) - lengths + len(self._blob)
        self._blob += b"".join(data)
        self.add_many(keys, np.full(len(data), INLINE), offsets, lengths)

    def add_table(  # noqa: PLR0917 - columns, as everywhere in here
        self,
        prefix: str,
        separator: str,
        coords: NDArray[np.integer],
        url_ids: ArrayLike,
        offsets: ArrayLike,
        lengths: ArrayLike,
    ) -> None:
        """Add the chunks of one array without spelling their keys: `coords` has the shape (rows, coords of a key).

        The key of a row is `prefix` (empty or ending with ``/``) and its coords joined by `separator`.
        """
        if coords.size and int(coords.min()) < 0:
            raise self._error(prefix, int(coords.min()), "coords that are not negative")
        columns = self._columns(len(coords), url_ids, offsets, lengths)
        if not len(coords):
            return
        # the form by which the keys will be looked up, whatever the caller calls it
        split = split_key(prefix + separator.join(["0"] * coords.shape[1]))
        if split is None or split[0] != prefix or (split[1] != separator and coords.shape[1] > 1):
            pattern = prefix.replace("%", "%%") + separator.join(["%d"] * coords.shape[1])
            self.add_many([pattern % tuple(row) for row in coords.tolist()], *columns)
            return
        self._flush()
        self._add_piece((prefix, split[1], coords.shape[1]), coords, columns)

    def build(self) -> ReferenceSet:
        """Return the set; the builder is empty afterwards."""
        self._flush()
        tables = {}
        for form in sorted(self._pieces):
            if (table := self._table(form, self._pieces.pop(form))) is not None:
                tables[form] = table
        result = ReferenceSet(tuple(self._urls), tables, self._named, bytes(self._blob))
        self.__init__(self._source)  # type: ignore[misc]
        return result

    def _columns(self, n_rows: int, *columns: ArrayLike) -> tuple[NDArray[np.integer], ...]:
        narrow = []
        for name, column in zip(("url id", "offset", "length"), columns, strict=True):
            try:
                values = np.asarray(column)
            except (OverflowError, ValueError):  # ragged, or beyond every integer
                values = np.array([None])
            if values.size and values.dtype.kind not in "iu":
                raise self._error("*", f"{name} of dtype {values.dtype}", "integers in 0..2**63-1")
            low = 0 if name == "offset" else -1
            if values.size and not low <= int(values.min()) <= int(values.max()) <= _INT64_MAX:
                raise self._error("*", (int(values.min()), int(values.max())), f"{name} in 0..2**63-1")
            if len(values) != n_rows:
                raise self._error("*", f"{name}s of {len(values)} rows", f"{n_rows} rows, as many as keys")
            narrow.append(_narrow(values))
        return tuple(narrow)

    def _flush(self) -> None:
        """Turn the keys that wait into arrays by their form; those of no form go to the dict."""
        if not self._keys:
            return
        keys, columns = self._keys, [np.concatenate(column) for column in zip(*self._waiting, strict=True)]
        self._keys, self._waiting = [], []
        forms: dict[KeyForm, list[tuple[int, str]]] = {}
        odd = []
        for row, key in enumerate(keys):
            prefix, separator, text = split_key(key) or ("", ".", "")
            form = prefix, separator, text.count(separator) + 1
            if not _coords_pattern(*form[1:]).fullmatch(text):
                odd.append(row)
            else:
                forms.setdefault(form, []).append((row, text))
        self._name([keys[row] for row in odd], [column[odd] for column in columns])
        for form, found in forms.items():
            rows = [row for row, _ in found]
            coords = _coords(form, "\n".join(text for _, text in found))
            self._add_piece(form, coords, [column[rows] for column in columns])

    def _add_piece(self, form: KeyForm, coords: NDArray[np.integer], columns: Sequence[NDArray[np.integer]]) -> None:
        if form[0]:
            self._check(form[0][:-1])
        self._pieces.setdefault(form, []).append((_narrow(coords), *columns))

    def _name(self, keys: Sequence[str], columns: Sequence[NDArray[np.integer]]) -> None:
        url_ids, offsets, lengths = (column.tolist() for column in columns)
        self._named.update(zip(keys, zip(url_ids, offsets, lengths, strict=True), strict=True))

    def _table(self, form: KeyForm, pieces: list[_Piece]) -> ReferenceTable | None:
        extents = tuple(int(n) + 1 for n in np.max([piece[0].max(axis=0) for piece in pieces], axis=0))
        is_few = sum(len(coords) for coords, *_ in pieces) < _FEW
        if is_few or prod(extents) > _INT64_MAX:  # ranks would overflow: hostile, or so sparse that a dict serves
            for coords, *columns in pieces:
                self._name([form[0] + form[1].join(map(str, row)) for row in coords.tolist()], columns)
            return None
        ranks = np.concatenate([np.ravel_multi_index(tuple(piece[0].T), extents) for piece in pieces])
        order = _order(ranks)
        held = []
        for number in (1, 2, 3):  # a column at a time, so that no more than one is there twice
            column = np.concatenate([_narrow(piece[number]) for piece in pieces])
            held.append(_narrow(column if order is None else column[order]))
        if order is not None:
            ranks = ranks[order]
        is_dense = len(ranks) == prod(extents)
        return ReferenceTable(form, extents, None if is_dense else _narrow(ranks), *held)

    def _check(self, key: str) -> None:
        if not key or "\0" in key or any(part in {"", ".", ".."} for part in key.split("/")):
            raise self._error(key, key, "a key without empty, '.' or '..' segments")

    def _error(self, key: str, got: object, expected: str) -> MetadataError:
        return MetadataError(key=self._source, field=f"reference {key[:200]!r}", got=got, expected=expected)


def _coords(form: KeyForm, text: str) -> NDArray[np.int64]:
    """Return the coords that are spelt in the lines of `text`, which the pattern has matched."""
    return np.fromstring(text.replace(form[1], " "), dtype=np.int64, sep=" ").reshape(-1, form[2])


def _order(ranks: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """Return the rows to keep, by rank and each rank once, the last that came; ``None``: as they are."""
    if bool((ranks[1:] > ranks[:-1]).all()):
        return None
    _, first = np.unique(ranks[::-1], return_index=True)
    return len(ranks) - 1 - first


def _narrow(values: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return `values` in the smallest signed dtype that holds them."""
    if not values.size:
        return values.astype(np.int8)
    lowest = min(int(values.min()), -1 - int(values.max()))  # of a signed dtype that holds the highest, too
    return np.asarray(values, np.min_scalar_type(lowest))
