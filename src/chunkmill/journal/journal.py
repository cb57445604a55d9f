"""Journal of a whole-store job: records of the tasks that are done, kept in the target's store until all are.

One record a task (`chunkmill.journal.records`), so that a job that was killed resumes where it stopped (P7) and a task
that dask repeats returns at once.

Layout, at the root of the target's store, under a name that no format takes for a node::

    .chunkmill-job-<hash of the target's path>/plan.json            fingerprint, what, when, choices
    .chunkmill-job-<hash of the target's path>/<stage>/             records (`chunkmill.journal.records`)
    .chunkmill-job-<hash of the target's path>/running-<name>       heartbeats (`chunkmill.journal.heartbeat`)
    .chunkmill-job-<hash of the target's path>/new-<run>/           the staging prefix of a node

A run lasts from the beginning of a job to its end, however often it is interrupted and resumed. Its name is part of
the names of its records and temporary values, so that tasks of a run that was discarded, which may still be at work
somewhere, cannot be mistaken for tasks of the next run. Not here: other writers
(`chunkmill.journal.lease`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from chunkmill.array.threads import at_once
from chunkmill.errors import ChunkmillError, JobError, NodeExists
from chunkmill.hints import Hint
from chunkmill.journal import plans
from chunkmill.journal.heartbeat import (
    CHECK_SECONDS,
    Heartbeat,
    age,
    any_live,
    end_dead,
    heartbeats_below,
    silence,
)
from chunkmill.journal.plans import LEASE, PLAN, RUNNING, Plan, journal_prefix, new_run, run_tag, staged_prefix
from chunkmill.journal.records import Records
from chunkmill.journal.unfinished import clear_journal, clear_listed, remove_folders
from chunkmill.log import LOG
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import create, swap, update

_VERSION = 4
_RUN_OF_PLAN = 8  # characters of the fingerprint at the end of the name of a run
_KEPT = {True: "what is on record is compared with it, and kept", False: "it is discarded"}


@dataclass(slots=True)
class Journal:
    """Journal of the job that writes the node at a path of `store`.

    Parameters
    ----------
    plan
        Of the job: its run is named by `begin` or `resume`, which finds it over where all was done, and only the
        journal had to be deleted.
    prefix
        Of its keys, where that does not follow from the plan: of a job whose plan is damaged.
    heartbeat
        This client's heartbeat, while it is `running`: of a lease, its plan.
    other
        The plan of the unfinished job that `resume` refused.
    interrupted
        Name of the run that was interrupted before: what is stored may be half deleted, or half written.
    reserved
        Version of the stored plan that `begin` replaces: of the lease of `reserving`, or of a run that is taken over.
    """

    store: Store
    plan: Plan
    prefix: str = ""
    heartbeat: Heartbeat | None = None
    other: Plan | None = None
    interrupted: str = ""
    reserved: str | None = None

    def __post_init__(self) -> None:
        self.prefix = self.prefix or journal_prefix(self.plan.path, self.plan.scope)

    @property
    def plan_key(self) -> str:
        """Key of the object that exists from the beginning to the end of the job."""
        return f"{self.prefix}{PLAN}"

    def resume(self) -> bool:
        """Return whether there is an unfinished job, or one that is over; end heartbeats of the dead.

        Raises
        ------
        JobError
            There is an unfinished job with another plan.
        """
        value, version = self.store.get_versioned(self.plan_key)
        if value is None:
            # of a job that was killed when all but folders was deleted
            if not (self.store.is_remote or self.store.remove_folder(self.prefix)):
                clear_journal(self.store, self.prefix)
            return False
        plan = Plan.parsed(value) or Plan()
        staged = staged_prefix(self.plan.path, plan.run)
        # else half of what is staged would be missing where the old node is
        lacks_old = not plan.is_damaged and plan.old_prefix is None and not self.store.is_empty(staged)
        if plan.is_damaged or lacks_old:
            self._drop_damaged(value)
            return False
        if plan.is_lease and self._is_ours(plan):  # a client died that had reserved the place, and had not begun
            self.check_dead()
            self.interrupted, self.reserved = plan.run, version
            self._reserve()  # from now on what holds the path is of this run, which does not refuse itself
            return False
        if plan.over:
            self._forget_commit(plan)
            self.discard()
        if not self._is_ours(plan):
            if not plan.over:
                self.other = plan
                raise self._another(plan)
            return False
        self.plan = plan
        if not plan.over:
            end_dead(self.store, self._others())
            if not self.is_in_place:
                self._tag_staged()
        return True

    def _drop_damaged(self, value: bytes) -> None:
        """Delete a plan that cannot be read, of a client that is not alive; of this job's run keep what is on record.

        What a machine that went down has kept is compared with the records as in any run that resumes.
        """
        plans.watch_client(self.store, self.plan_key, Plan())
        if self._has_others():
            reason = f"the plan at {self.plan_key!r} is damaged, and a client of its job is alive"
            raise JobError(job=self.plan.job, reason=reason, hint="wait until it is done, or stop it")
        own = self.plan.fingerprint[:_RUN_OF_PLAN]
        keys = (key for _, _, key in Records(self.store, self.prefix, "").names())
        runs = (key.rpartition("-")[2] for key in keys)
        run = next((run for run in runs if run.endswith(own)), "")
        self.plan = replace(self.plan, run=run)
        LOG.warning("%s: the plan of the unfinished job is damaged; %s", self.plan.job, _KEPT[bool(run)])
        if not run:
            self.discard()
        elif update(self.store, self.plan_key, lambda there: None if there == value else there) is not None:
            raise JobError(job=self.plan.job, reason="another job has begun to write the target", hint="try again")

    def name_run(self) -> str:
        """Name the run, unless it has a name; the name tells by which plan its records were made."""
        run = self.plan.run or f"{new_run()}{self.plan.fingerprint[:_RUN_OF_PLAN]}"
        self.plan = replace(self.plan, run=run)
        return run

    def check_dead(self) -> None:
        """Raise `JobError` where a client is at work on a job at the target, which is not to be discarded then."""
        if (value := self.store.get(self.plan_key)) is None:
            return
        plan = Plan.parsed(value) or Plan()  # a damaged journal is discarded
        plans.watch_client(self.store, self.plan_key, plan)
        if not plan.over and self._has_others():
            raise self._another(plan)

    def _another(self, plan: Plan) -> JobError:
        """Return the error that names the unfinished job at the target, and the way out."""
        other = f"{plan.job!r}, begun {age(plan.began)}{self._difference(plan)}"
        kind = "of this plan" if self._is_ours(plan) else "with another plan"
        beats = self._beats()
        if any_live(beats):
            seconds = silence(beats)
            hint, state = Hint("wait until it is done, or stop it"), "which is running"
            if seconds is not None:
                state = f"whose client is silent for {seconds:.0f} s"
                hint = hint.also("{} discards it when that client has missed two heartbeats", ("resume", False))
            return JobError(
                job=self.plan.job, reason=f"there is a job {kind} at the target, {state}: {other}", hint=hint
            )
        text = "give {} to discard what it wrote and start again"
        text += "" if plan.is_lease else ", or finish it with its own arguments"  # nothing resumes a lease
        reason = f"there is an unfinished job {kind} at the target, whose client has ended: {other}"
        return JobError(job=self.plan.job, reason=reason, hint=Hint(text, ("resume", False)))

    def _difference(self, plan: Plan) -> str:
        """Name the first argument of another plan that differs from this one's, with both values."""
        theirs, ours = (each.choices.get("arguments") for each in (plan, self.plan))
        if not (isinstance(theirs, dict) and isinstance(ours, dict)):  # damaged, or of a job without any
            return ""
        for name in ours.keys() if theirs else ():
            if theirs.get(name) != ours[name]:
                return f", with {name} {theirs.get(name)} where this call has {ours[name]}"
        return ""

    def has_this_plan(self) -> bool | None:
        """Return whether the unfinished job at the target has this plan; ``None`` without one. Changes nothing."""
        value = self.store.get(self.plan_key)
        if value is None:
            return None
        self.other = plan = Plan.parsed(value) or Plan()
        if plan.is_damaged or (plan.is_lease and self._is_ours(plan)):
            return None
        return self._is_ours(plan) or (None if plan.over else False)

    def _is_ours(self, plan: Plan) -> bool:
        return plan.version == _VERSION and plan.fingerprint == self.plan.fingerprint

    def begin(self) -> None:
        """Begin a run, after `resume` found no job or `discard` deleted it.

        Raises
        ------
        JobError
            Another job has begun since: the two would write over each other.
        """
        self._name_beginning()
        is_beating = self.heartbeat is not None and self.heartbeat.key == self.plan_key
        packed = self.heartbeat.packed() if is_beating else self.plan.packed()  # type: ignore[union-attr]
        if not swap(self.store, self.plan_key, packed, self.reserved):
            hint = "wait until it is done, or stop it, and run this one again"
            raise JobError(job=self.plan.job, reason="another job has begun to write the target", hint=hint)
        self._tag_staged()

    def _name_beginning(self) -> None:
        self.name_run()
        self.plan = replace(self.plan, version=_VERSION, began=datetime.now(UTC).isoformat(timespec="seconds"))

    @contextmanager
    def reserving(self) -> Iterator[str]:
        """Hold the path, by a lease, while what is replaced is deleted inside, and `begin` replaces that lease.

        Yields the name of the run. Where another writer is at work there, nothing stays; an interruption leaves the
        lease, which names the job to readers and is discarded by its repetition.

        Raises
        ------
        JobError
            Another job has begun since.
        """
        self._reserve()
        try:
            yield self.plan.run
        except (JobError, NodeExists):
            if plans.is_of_run(self.store.get(self.plan_key), self.plan.run):
                self.discard()
            raise

    def _reserve(self) -> None:
        self.name_run()
        replace(self, plan=replace(self.plan, kind=LEASE)).begin()
        plan, version = self.store.get_versioned(self.plan_key)
        self.reserved = version if plans.is_of_run(plan, self.plan.run) else None

    @property
    def is_in_place(self) -> bool:
        """True when the new node has taken the place of the old one."""
        return plans.is_in_place(self.store, self.plan.run, self.plan.old_prefix)

    @contextmanager
    def running(self, says: Callable[[], Mapping[str, Any]] | None = None) -> Iterator[None]:
        """Run tasks inside, after `resume` or `begin`: they may write until this ends or the job is discarded."""
        name = f"{self.prefix}{RUNNING}{self.name_run()}-{uuid4().hex[:8]}"
        if self.plan.is_lease:
            self._name_beginning()
        key, lease = (self.plan_key, self.plan.said()) if self.plan.is_lease else (name, {})
        self.heartbeat = Heartbeat(self.store, key, self.plan.job, lease, name)
        try:
            with self.heartbeat.running(says):
                yield
        except ChunkmillError:  # nothing had begun, or others have ended it
            clear_journal(self.store, self.prefix)
            raise

    @contextmanager
    def giving_way(self, *, keeps_records: bool = False) -> Iterator[None]:
        """Discard the journal where others have made a node, and wait for the end of this job (P4).

        With `keeps_records`, tasks may be on record, and the journal of those stays.
        """
        try:
            yield
        except NodeExists:
            is_ours = plans.is_of_run(self.store.get(self.plan_key), self.plan.run) and not self.is_joined()
            if is_ours and not (keeps_records and self.records.names()):
                self.discard()
            raise

    def is_joined(self) -> bool:
        """Return whether another client has resumed this run: one that died may have made what is there."""
        return bool(self._others(self.plan.run)) and plans.is_of_run(self.store.get(self.plan_key), self.plan.run)

    def check(self, *, now: bool = False) -> None:
        """Raise `JobError` when this client's heartbeat was ended: its tasks must not write any more."""
        if self.heartbeat is None:
            raise JobError(job=self.plan.job, reason="the job is not running; this result is discarded")
        self.heartbeat.check(now=now)

    @property
    def records(self) -> Records:
        """The records of this run."""
        return Records(self.store, self.prefix, self.plan.run)

    def finish(self, seen: tuple[bytes | None, str | None] | None = None) -> None:
        """Delete the journal of a job that is done; a job that is killed here has only that left to do.

        `seen`: the plan and its version before the result was published; another run's, of since then, stays.
        """
        plan, version = seen or self.store.get_versioned(self.plan_key)
        keys = list(self.store.list_prefix(self.prefix))  # while nobody else may begin here
        is_ours = plans.end_plan(self.store, self.plan_key, plan, version, self.plan.run)
        if is_ours is False:
            return
        if self.heartbeat is not None:
            self.heartbeat.stop()  # its object is deleted with the rest
        self._forget_commit(self.plan)
        if not is_ours:
            clear_journal(self.store, self.prefix, ended=self._own_heartbeat())
            return
        others = self._others(self.plan.run, keys)
        ended = [*others, *self._own_heartbeat()]
        _, (plan, version) = at_once(
            self.store,
            lambda: clear_listed(self.store, self.prefix, keys, ended=ended),
            lambda: self.store.get_versioned(self.plan_key),
        )
        if plans.is_of_run(plan, self.plan.run):  # and not of one that has begun since
            swap(self.store, self.plan_key, None, version)
        remove_folders(self.store, self.prefix, keys)
        if others:
            time.sleep(CHECK_SECONDS)
            clear_journal(self.store, self.prefix)

    def discard(self) -> bool:
        """Delete the journal, the plan first, since records without a plan are ignored; return whether there was one.

        Heartbeats of its clients end with it. Where there were others, but for those of a lease, this returns when
        their tasks must have learned of it.
        """
        plan, version = self.store.get_versioned(self.plan_key)
        known = Plan() if plan is None else Plan.parsed(plan) or Plan()
        if plans.is_in_place(self.store, known.run, known.old_prefix):
            self._forget_commit(known)
        others = [] if plan is None or known.is_lease else self._others(known.run)
        if plan is None or swap(self.store, self.plan_key, None, version):  # else another run has begun since
            clear_journal(self.store, self.prefix, ended=others)
        if others:
            time.sleep(CHECK_SECONDS)
            clear_journal(self.store, self.prefix)
        self.interrupted = known.run
        return plan is not None

    def release(self, *, is_taken_over: bool = False) -> None:
        """Delete the journal, unless another run has taken it over: its client seemed dead, being suspended.

        With `is_taken_over`, this run has taken over another one's, which may have left more.
        """
        found: list[str] = []
        if self.store.has_folders and not is_taken_over:
            value = self.store.get(self.plan_key)  # nothing else was stored here, as a rule
        else:
            value, found = at_once(
                self.store, lambda: self.store.get(self.plan_key), lambda: list(self.store.list_prefix(self.prefix))
            )
        plans.forget_tag(self.store, self.plan.run, self.plan.old_prefix)
        if not plans.is_of_run(value, self.plan.run):
            return
        if self.heartbeat is not None:
            self.heartbeat.stop()
        self.store.delete(self.plan_key)
        clear_listed(self.store, self.prefix, found)
        if not self.store.remove_folder(self.prefix):
            clear_journal(self.store, self.prefix)

    def _tag_staged(self) -> None:
        """Tag what is staged as this run's: nothing else is committed, and that once."""
        if self.plan.old_prefix is not None:
            run = self.plan.run
            create(self.store, f"{staged_prefix(self.plan.path, run)}{run_tag(run)}", run.encode())

    def _forget_commit(self, plan: Plan) -> None:
        """Delete the records of a node that is in place, then the tag by which recorded values are found."""
        if plan.old_prefix is not None:
            Records(self.store, self.prefix, plan.run).delete()
            plans.forget_tag(self.store, plan.run, plan.old_prefix)

    def _own_heartbeat(self) -> list[str]:
        return [] if self.heartbeat is None else [self.heartbeat.key]

    def _has_others(self) -> bool:
        """Return whether another client of the job is alive."""
        return any_live(self._beats())

    def _beats(self) -> list[bytes]:
        return plans.beats_of(self.store, self.plan_key, but=self._own_heartbeat())

    def _others(self, run: str = "", keys: Iterable[str] | None = None) -> list[str]:
        """Return the keys of the heartbeats of other clients, of one run or all: of one that is about to begin, too."""
        start, own = f"{self.prefix}{RUNNING}{run}", self._own_heartbeat()
        found = heartbeats_below(self.store, start) if keys is None else keys
        return [key for key in found if key.startswith(start) and key not in own]

    def take_over(self, version: str | None, *, waits: bool = True) -> None:
        """Begin a run instead of an interrupted one, whose plan has that version, and end its heartbeats.

        With `waits`, this returns when their tasks, which may outlive them, must have learned of it.
        """
        self.reserved = version
        self.begin()
        if version is not None and end_dead(self.store, self._others()) and waits:
            time.sleep(CHECK_SECONDS)
