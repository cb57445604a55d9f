"""Names of the keys of journals and runs, and the fingerprint of a plan.

Not here: what is stored there (`chunkmill.journal.journal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import uuid4

JOB_PREFIX = ".chunkmill-job-"
"""Prefix of the keys of every job's journal, at the root of a store."""

PLAN = "plan.json"
"""Name of the object, below a journal's prefix, that exists from the beginning to the end of the job."""

RUNNING = "running/"
"""Prefix of heartbeats, below a journal's."""

STAGED = "new-"
"""Start of the staging prefixes, below a journal's."""

TAG_PREFIX = ".chunkmill-new-"
"""Start of the name of the tag: a key in a new node, until the job is over, that names the run that wrote it."""


def fingerprint(*parts: Any) -> str:
    """Return a hash of the ``repr`` of `parts`: of values (integers, strings, tuples, metadata), never of objects.

    It must be the same for every run of one plan, in any process, so that one may resume another.

    Examples
    --------
    >>> fingerprint("convert", (3, 4)) == fingerprint("convert", (3, 4))
    True
    """
    hashed = sha256()
    for text in _texts(parts, 2):  # of 10^5 arrays they are 100 MB
        hashed.update(text.encode())
    return hashed.hexdigest()


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the ``repr`` of `value` text by text: that of each member of lists and tuples, down to `depth`."""
    if not depth or type(value) not in {list, tuple} or len(value) < 2:  # noqa: PLR2004 - (1,) has a comma
        yield repr(value)
        return
    yield "[" if type(value) is list else "("
    for i, member in enumerate(value):
        if i:
            yield ", "
        yield from _texts(member, depth - 1)
    yield "]" if type(value) is list else ")"


@lru_cache  # every record of a task asks for it
def journal_prefix(path: str, scope: str = "") -> str:
    """Return the prefix of the keys of the journal of a job that writes the node at `path`, or what `scope` names."""
    return f"{JOB_PREFIX}{sha256(path.encode()).hexdigest()[:16]}{f'-{scope}' if scope else ''}/"


def new_run() -> str:
    """Return a name for a run, never the same twice."""
    return uuid4().hex[:8]


def staged_prefix(path: str, run: str, number: int = 0) -> str:
    """Return the staging prefix of a run of the job at `path`, for the first, or another, node that it replaces."""
    return f"{journal_prefix(path)}{STAGED}{run}{f'-{number}' if number else ''}/"


def check_own(path: str, keys: Iterable[str]) -> None:
    """Raise `ValueError` where a record of the job at `path` names keys, or prefixes, that are not below it (P13).

    A store from elsewhere may hold any record.
    """
    own = (f"/{path}/", f"/{path}.")  # as in a/zarr.json, meta/a.array.json
    for key in keys:
        if path and not any(each in f"/{key}" for each in own):
            raise ValueError(key)


def run_tag(run: str) -> str:
    """Return the name of the key by which a node is known to be the new one of that run."""
    return TAG_PREFIX + run
