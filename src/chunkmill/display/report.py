"""Show plans and reports as text, HTML and plain values: a title, rows of facts, tables.

Not here: what the rows say; each class that uses `ReportMixin` does.
"""

from __future__ import annotations

import re
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from html import escape
from itertools import zip_longest
from math import isfinite
from shutil import get_terminal_size
from typing import Any, ClassVar, cast

import numpy as np

Facts = Iterable[tuple[str, str]]
Table = Sequence[Sequence[str]]  # the first row is the head

LEFT = "style='text-align:left;vertical-align:top'"
TABLE = "<table cellpadding='3' style='border-collapse:collapse'>"


class ReportMixin(ABC):
    """Text, HTML and plain values of a dataclass that has a title, facts and tables.

    The dataclass is made with ``repr=False``, or its own `repr` would come before this one. Fields with ``repr=False``
    are left out of `to_dict`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class Copied(ReportMixin):
    ...     names: tuple[str, ...]
    ...     n_bytes: int
    ...
    ...     def _title(self):
    ...         return "copy: done"
    ...
    ...     def _facts(self):
    ...         return [("bytes", f"{self.n_bytes:,}")]
    ...
    ...     def _tables(self):
    ...         return [[("array",), *((name,) for name in self.names)]]
    >>> Copied(("a", "b"), 2000)
    copy: done
      bytes  2,000
      array
      a
      b
    >>> Copied(("a", "b"), 2000).to_dict()
    {'names': ['a', 'b'], 'n_bytes': 2000}
    """

    __slots__ = ()

    _computed: ClassVar[tuple[str, ...]] = ()  # properties that `to_dict` shows before the fields

    @abstractmethod
    def _title(self) -> str:
        """Return the headline, in a few words."""

    @abstractmethod
    def _facts(self) -> Facts:
        """Return names and values, one a line."""

    def _tables(self) -> Iterable[Table]:
        """Return tables; the first row of each is its head, and an empty table is not shown."""
        return ()

    def _drawing(self) -> str:
        """Return HTML to show next to the facts."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as plain values."""
        own = [one.name for one in fields(cast("Any", self)) if one.repr]
        return {name: _plain(getattr(self, name)) for name in (*self._computed, *own)}

    def __repr__(self) -> str:
        return report_text(self._title(), self._facts(), self._tables(), max_rows=_MAX_ROWS, width=text_width())

    def _repr_html_(self) -> str:
        return report_html(self._title(), self._facts(), self._tables(), self._drawing())


_WIDTH, _LEAST_WIDTH = 100, 40  # columns of text; the first one also where it is not for a terminal
_MAX_ROWS = 40  # of one table of a report: a group may have any number of arrays, and a store of problems


def text_width() -> int:
    """Return the columns that texts have: those of the terminal, if they are fewer than 100."""
    if not (sys.stdout and sys.stdout.isatty()):
        return _WIDTH
    return max(_LEAST_WIDTH, min(get_terminal_size((_WIDTH, 24)).columns, _WIDTH))


class Text(str):
    """A text that an interactive session shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def format_seconds(seconds: float) -> str:
    """Return a time as text, with three digits and no zeros at the end.

    Examples
    --------
    >>> format_seconds(0.00025), format_seconds(0.5), format_seconds(12.04), format_seconds(125), format_seconds(7260)
    ('250 µs', '500 ms', '12 s', '2 min 5 s', '2 h 1 min')
    """
    for unit, name in ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")):
        if seconds < 999.5 * unit and (name != "s" or seconds < 99.95):  # noqa: PLR2004 - then in minutes
            return f"{seconds / unit:.3g} {name}"
    size, large, small = (60, "min", "s") if seconds < 3600 else (3600, "h", "min")  # noqa: PLR2004 - of an hour
    n = round(seconds / (size // 60))
    rest = f" {n % 60} {small}" if n % 60 else ""
    return f"{n // 60} {large}{rest}"


def counted(n: int, noun: str) -> str:
    """Return a number and a noun, in the plural where there is not one.

    Examples
    --------
    >>> counted(1, "group"), counted(2000, "array")
    ('1 group', '2,000 arrays')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _plain(value: Any) -> Any:
    """Return records as dicts and sequences of them as lists; values inside a record stay as they are."""
    if isinstance(value, ReportMixin):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def plain(value: Any) -> Any:
    """Return `value` as JSON types: NaN, infinities, bytes and other values become text.

    Examples
    --------
    >>> plain({"fill_value": np.float32("nan"), "shape": (2, 3)})
    {'fill_value': 'NaN', 'shape': [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"  # noqa: PLR0124 - NaN
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def report_text(
    title: str, facts: Facts, tables: Iterable[Table] = (), *, max_rows: int | None = None, width: int | None = None
) -> str:
    """Return a title, and indented below it names and values in two columns, then the tables.

    Parameters
    ----------
    title, facts, tables
        See `ReportMixin`.
    max_rows
        Rows shown of each table; ``None``: all.
    width
        Columns of text: longer values and cells take several lines, and single words that are longer are kept whole in
        facts, since they are urls. ``None``: a line each.

    Examples
    --------
    >>> print(report_text("done", [("tasks", "2"), ("read", "1 kiB")], [[("stage", "s"), ("copy", "1")]]))
    done
      tasks  2
      read   1 kiB
      stage  s
      copy   1
    >>> print(report_text("done", [("why", "since all of them are the same")], width=24))
    done
      why  since all of them
           are the same
    """
    rows = [(printable(name), printable(value)) for name, value in facts]
    first = max((len(name) for name, _ in rows), default=0)
    lines = [printable(title)]
    for name, value in rows:
        left = None if width is None else max(width - first - 4, _NARROW)
        here, *more = _wrapped(value, left, break_words=False)
        lines += [f"  {name:<{first}}  {here}".rstrip(), *(f"{'':<{first + 4}}{each}" for each in more)]
    for table in tables:
        if not table:
            continue
        shown = table if max_rows is None else table[: 1 + max_rows]
        cells = [[printable(cell) for cell in row] for row in shown]
        lines += ["  " + line for line in _table_lines(cells, None if width is None else width - 2)]
        if len(table) > len(shown):
            lines.append(f"  … and {len(table) - len(shown):,} more")
    return "\n".join(lines)


_NARROW = 12  # columns that cells and values keep at least


def _wrapped(text: str, width: int | None, *, break_words: bool) -> list[str]:
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=break_words, break_on_hyphens=False) or [""]


def _table_lines(cells: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Yield the lines of a table; its widest columns are made narrower until it fits: between words if that will do."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    words = [max(len(word) for cell in column for word in (cell.split() or [""])) for column in columns]
    for least in (words, [_NARROW] * len(widths)):
        while width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
            wide = [i for i, w in enumerate(widths) if w > max(least[i], _NARROW)]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    for row in cells:
        wrapped = [_wrapped(cell, w, break_words=True) for cell, w in zip(row, widths, strict=True)]
        for line in zip_longest(*wrapped, fillvalue=""):
            yield "  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip()


def format_bytes(n_bytes: float) -> str:
    """Return bytes as text, as `dask.utils.format_bytes`, which would import dask.

    Examples
    --------
    >>> format_bytes(1), format_bytes(1234), format_bytes(1 << 40)
    ('1 B', '1.21 kiB', '1.00 TiB')
    """
    units = ((f"{prefix}iB", 1 << 10 * power) for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")))
    return next((f"{n_bytes / unit:.2f} {name}" for name, unit in units if n_bytes >= 0.9 * unit), f"{n_bytes} B")


def printable(text: str) -> str:
    r"""Return text with control characters spelled out: a name in a store must not control a terminal.

    Examples
    --------
    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def html_text(text: str) -> str:
    r"""Return text for HTML: markup is escaped and control characters are spelled out, since notebooks are printed too.

    Examples
    --------
    >>> html_text("<b>\x1b[31m")
    '&lt;b&gt;\\x1b[31m'
    """
    return escape(printable(text))


# ESC and other control characters, characters that reverse the direction of text, and halves of surrogate pairs, which
# cannot be encoded for a terminal
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def report_html(title: str, facts: Facts, tables: Iterable[Table] = (), drawing: str = "") -> str:
    """Return the same as HTML, next to `drawing`, which is HTML already; long tables are folded.

    Examples
    --------
    >>> report_html("<done>", [("tasks", "2")])[:23]
    '<div><b>&lt;done&gt;</b'
    """
    shown = "".join(_table_html(table) for table in tables if table)
    return f"<div><b>{html_text(title)}</b>{side_by_side(facts_html(facts), drawing, first=_FACTS)}{shown}</div>"


# facts are as wide as the room next to the drawing, but not narrow: then the drawing comes below
_FACTS = "flex:1 1 28em;min-width:0;max-width:60em;overflow-wrap:anywhere"


def side_by_side(*parts: str, first: str = "") -> str:
    """Return HTML of several elements next to each other; where there is no room, below each other.

    Parameters
    ----------
    parts
        HTML of each; empty ones are left out.
    first
        Style of the first one.

    Examples
    --------
    >>> side_by_side("<svg/>", "", "→").count("<div style=''>")
    2
    """
    styles = [first, *[""] * len(parts)]
    shown = "".join(f"<div style='{style}'>{part}</div>" for part, style in zip(parts, styles, strict=False) if part)
    return f"<div style='display:flex;flex-wrap:wrap;align-items:center;gap:0 1.5em'>{shown}</div>"


_NAME = f"{LEFT[:-1]};white-space:nowrap'"


def facts_html(facts: Facts) -> str:
    """Return names and values as a table of two columns."""
    rows = (f"<tr><th {_NAME}>{html_text(name)}</th><td {LEFT}>{html_text(value)}</td></tr>" for name, value in facts)
    return f"{TABLE}{''.join(rows)}</table>"


def _table_html(table: Table) -> str:
    n_rows = len(table) - 1
    head = "".join(f"<th {LEFT}>{html_text(cell)}</th>" for cell in table[0])
    body = "".join(f"<tr>{cells_html(row)}</tr>" for row in table[1 : 1 + _MAX_ROWS])
    shown = f"<div style='overflow-x:auto'>{TABLE}<tr>{head}</tr>{body}</table></div>"
    return folded_html(f"{table[0][0]}s ({n_rows:,})", shown, n_rows - _MAX_ROWS, is_open=n_rows <= _MAX_OPEN)


def cells_html(row: Sequence[str]) -> str:
    """Return the cells of a row; short ones stay one line, where the table scrolls."""
    widths = ("white-space:nowrap" if len(cell) <= _SHORT else "min-width:16em" for cell in row)
    return "".join(f"<td {LEFT[:-1]};{width}'>{html_text(c)}</td>" for c, width in zip(row, widths, strict=True))


def folded_html(title: str, shown: str, n_more: int, *, is_open: bool) -> str:
    """Return HTML that unfolds below a title, and how many more there are than it shows."""
    more = f"<i>… and {n_more:,} more</i>" if n_more > 0 else ""
    return f"<details{' open' if is_open else ''}><summary>{html_text(title)}</summary>{shown}{more}</details>"


_MAX_OPEN = 12  # rows of a table that is not folded
_SHORT = 40  # letters of a cell that is not broken
