"""Put a new node in the place of an old one by one rename (P6), where the store renames.

What replaces a node is written below a staging prefix, and the old node stays until the new one is complete:

======== ============================== ==================== ============================= ===========================
state    stored                         a reader sees        a dead client leaves          the next client
======== ============================== ==================== ============================= ===========================
free     the old node                   the old node         nothing                       takes the lease
leased   + plan, heartbeat              the old node         an expired lease              takes the lease over
staged   + new node below `staged`,     the old node         the new node, not visible     deletes it; the same job
         with the tag of its run                                                           resumes
in place new node with its tag          the new node         the tag                       deletes the tag
======== ============================== ==================== ============================= ===========================

A rename is not repeated: the tag says which node is in place. Not here: which keys a node has
(`chunkmill.nodes.target`), leases (`chunkmill.journal.lease`).
"""

from __future__ import annotations

import errno

from chunkmill.errors import JobError, StoreError
from chunkmill.journal import plans
from chunkmill.journal.names import PLAN, journal_prefix, run_tag
from chunkmill.stores.base import Store


def is_tagged(store: Store, prefix: str, run: str) -> bool:
    """Return whether the tag of the run is below its staging prefix."""
    return bool(store.get(prefix + run_tag(run)))


def is_in_place(store: Store, run: str, old_prefix: str) -> bool:
    """Return whether the run's new node has taken the place of the old one."""
    return store.size(old_prefix + run_tag(run)) is not None


def put_in_place(store: Store, job: str, path: str, run: str, *, old_prefix: str, staged: str) -> None:
    """Put the staged node in place, unless it is there.

    Parameters
    ----------
    job
        Description of the job, for messages.
    path
        Of the node that the journal is named after.

    Raises
    ------
    JobError
        The job has ended, or another one has taken its place.
    """
    stands = plans.stands(store.get(f"{journal_prefix(path)}{PLAN}"), run)
    try:
        # a client may have died that had moved a new root out of the one that it replaces
        if stands and (is_tagged(store, staged, run) or not old_prefix):
            store.replace_prefix(old_prefix, staged, run_tag(run))
    except StoreError as error:
        if error.errno not in {None, errno.ENOENT} or is_tagged(store, staged, run):
            raise
    if not is_in_place(store, run, old_prefix):
        reason = "the job has ended, or was replaced by another one, while this client was at its end"
        raise JobError(job=job, reason=reason)


def forget_tag(store: Store, run: str, old_prefix: str | None) -> None:
    """Delete the tag of a node that is in place, if the run replaces one."""
    if old_prefix is not None:
        store.delete(old_prefix + run_tag(run))
