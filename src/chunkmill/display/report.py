"""Rows of facts and tables as text and as HTML: how plans and reports show themselves.

Not here: what the rows say (`chunkmill.conversion.plan`, `chunkmill.checks.verify_job`, `chunkmill.dask_arrays.write`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["LEFT", "TABLE", "facts_html", "printable", "report_html", "report_text"]

Facts = Iterable[tuple[str, str]]
Table = Sequence[Sequence[str]]  # the first row is the head

LEFT = "style='text-align:left;vertical-align:top'"
TABLE = "<table cellpadding='3' style='border-collapse:collapse'>"


def report_text(title: str, facts: Facts, tables: Iterable[Table] = ()) -> str:
    """Return a title, and indented below it names and values in two columns, then the tables.

    Examples
    --------
    >>> print(report_text("done", [("tasks", "2"), ("read", "1 kiB")], [[("stage", "s"), ("copy", "1")]]))
    done
      tasks  2
      read   1 kiB
      stage  s
      copy   1
    """
    rows = [(printable(name), printable(value)) for name, value in facts]
    width = max((len(name) for name, _ in rows), default=0)
    lines = [printable(title), *(f"  {name:<{width}}  {value}" for name, value in rows)]
    for table in tables:
        table = [[printable(cell) for cell in row] for row in table]  # noqa: PLW2901
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  " + "  ".join(f"{c:<{w}}" for c, w in zip(r, widths, strict=True)).rstrip() for r in table]
    return "\n".join(lines)


def printable(text: str) -> str:
    r"""Return text with control characters spelled out: a name in a store must not give orders to a terminal.

    Examples
    --------
    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


# those that turn the direction around, and halves of surrogate pairs, which no terminal can be sent
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def report_html(title: str, facts: Facts, tables: Iterable[Table] = (), drawing: str = "") -> str:
    """Return the same as HTML, beside `drawing`, which is HTML already; all but the facts fold away.

    Examples
    --------
    >>> report_html("<done>", [("tasks", "2")])[:23]
    '<div><b>&lt;done&gt;</b'
    """
    shown = "".join(_table_html(table) for table in tables if table)
    picture = f"<td style='vertical-align:top;white-space:nowrap'>{drawing}</td>" if drawing else ""
    body = f"<table><tr><td>{facts_html(facts)}</td>{picture}</tr></table>"
    return f"<div><b>{escape(title)}</b>{body}{shown}</div>"


def facts_html(facts: Facts) -> str:
    """Return names and values as a table of two columns."""
    rows = (f"<tr><th {LEFT}>{escape(name)}</th><td {LEFT}>{escape(value)}</td></tr>" for name, value in facts)
    return f"{TABLE}{''.join(rows)}</table>"


def _table_html(table: Table) -> str:
    head = "".join(f"<th {LEFT}>{escape(cell)}</th>" for cell in table[0])
    body = "".join(f"<tr>{''.join(f'<td {LEFT}>{escape(c)}</td>' for c in row)}</tr>" for row in table[1:])
    n_rows = len(table) - 1
    shown = " open" if n_rows <= _MAX_OPEN else ""
    summary = f"<summary>{escape(table[0][0])}s ({n_rows:,})</summary>"
    return f"<details{shown}>{summary}{TABLE}<tr>{head}</tr>{body}</table></details>"


_MAX_OPEN = 12  # rows of a table that is not folded away
