"""Delete what a job that is over has left in its journal, where another one may begin at any moment.

Nothing is deleted by its folder, which may be the next job's by then, but by keys that were listed when the job that
had them was over: names of runs and attempts stand in them, and are used once. What a write that is computed later has
stored beside the node that it replaces has no plan yet: it is claimed before it is deleted, by the mark with which that
write claims it (`chunkmill.nodes.replacing.LaterReplacement`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from chunkmill.journal.attempts import end_dead
from chunkmill.journal.journal_names import PLAN, RUNNING, STAGED, new_mark
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import delete_keys, remove_empty_folders, remove_folder, sweep_partial_files

__all__ = ["clear_journal", "clear_listed"]


def clear_journal(store: Store, prefix: str, *, ended: Collection[str] = ()) -> None:
    """Delete all below the prefix of a journal unless there is a plan; `ended`, as of `clear_listed`."""
    keys = list(store.list_prefix(prefix))
    if store.get(f"{prefix}{PLAN}") is None:  # after the listing: who has begun since is not listed
        clear_listed(store, prefix, keys, ended=ended)


def clear_listed(store: Store, prefix: str, keys: Iterable[str], *, ended: Collection[str] = ()) -> None:
    """Delete keys of a journal, listed before its plan was deleted or missed, and folders in which nothing is left.

    Of attempts those that have `ended`, and those whose clients are dead: a living one may be about to begin.
    """
    keys = [key for key in keys if key != f"{prefix}{PLAN}"]
    others = {key for key in keys if key.startswith(f"{prefix}{RUNNING}") and key not in ended}
    kept, marks = _claimed(store, prefix, keys)
    delete_keys(store, [key for key in keys if key not in others and key not in marks and not key.startswith(kept)])
    delete_keys(store, marks)  # last: until then nobody else claims what is being deleted
    end_dead(store, others)
    sweep_partial_files(store, prefix)  # of clients that were killed while they recorded a task
    remove_empty_folders(store, prefix)
    remove_folder(store, prefix)


def _claimed(store: Store, prefix: str, keys: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Claim what runs have staged; return the prefixes of what those have claimed, and the marks of the rest.

    A claim is an empty mark, by which nobody puts what is staged in place.
    """
    listed, kept, marks = set(keys), [], []
    start = f"{prefix}{STAGED}"
    below = (key.removeprefix(start).partition("/") for key in keys if key.startswith(start))
    for run in sorted({name for name, slash, _ in below if slash and "-" not in name}):  # others have a plan
        mark = f"{start}{run}/{new_mark(run)}"
        # a run that is listed with its mark was over by then: it had, or has, a plan
        if mark in listed or store.set_if(mark, b"", None):
            marks.append(mark)
        else:
            kept.append(f"{start}{run}/")
    return tuple(kept), marks
