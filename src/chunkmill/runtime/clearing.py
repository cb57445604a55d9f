"""Delete what a job that is over has left in its journal, where another one may begin at any moment.

Nothing is deleted by its folder, which may be the next job's by then, but by keys that were listed when the job that
had them was over: names of runs and attempts stand in them, and are used once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chunkmill.runtime.attempts import end_dead
from chunkmill.runtime.journal_names import PLAN, RUNNING
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import delete_keys, remove_empty_folders, remove_folder

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
    delete_keys(store, [key for key in keys if key not in others])
    end_dead(store, others)
    remove_empty_folders(store, prefix)
    remove_folder(store, prefix)
