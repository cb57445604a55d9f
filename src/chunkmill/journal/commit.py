"""Commit a new node in the place of an old one: one state machine, finished by any client.

What replaces a node is written below a staging prefix, and the old node stays until the new one is complete:

======== ============================== ==================== ============================= ===========================
state    stored                         a reader sees        a dead client leaves          the next client
======== ============================== ==================== ============================= ===========================
free     the old node                   the old node         nothing                       takes the lease
leased   + plan, heartbeat              the old node         an expired lease              takes the lease over
staged   + new node below `staged`,     the old node         the new node, not visible     rolls back: deletes it; the
         with the tag of its run                                                           same job resumes
decided  + intent record                old node, then       both nodes, and how to apply  rolls forward
                                        `NodeBeingReplaced`
applied  new node with its tag          the new node         the record and the tag        deletes both
free     the new node                   the new node         nothing                       takes the lease
======== ============================== ==================== ============================= ===========================

Where the store renames (`ByRename`), the rename of one node decides and applies in one step, and needs no record. A
rename is not repeated: the tag says which node is in place. Where it cannot (`ByCopies`), the record decides. Then the
old documents are deleted, the topmost first, so that nobody reads new chunks by old metadata; the old keys that the new
node lacks are deleted, and the new chunks copied. The documents are written last, only where there are none, the
topmost at the very end. One client at a time does so: it claims the record with its heartbeat.

One job may replace several nodes. The record of the first one names the others, and decides for all.

A process that sleeps between looking at its heartbeat and deleting a key is not stopped.
Not here: which keys a node has (`chunkmill.nodes.replacing`), leases (`chunkmill.journal.lease`), what is staged
without a lease (`chunkmill.journal.recovery`).
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Self
from uuid import uuid4

from chunkmill.array.threads import BackgroundCalls
from chunkmill.errors import JobError, StoreError
from chunkmill.journal import plans
from chunkmill.journal.heartbeat import Heartbeat, any_live, end_dead, stored_beats
from chunkmill.journal.names import (
    JOB_PREFIX,
    PLAN,
    RUNNING,
    check_own,
    journal_prefix,
    placeholder_key,
    run_tag,
    staged_prefix,
)
from chunkmill.log import LOG
from chunkmill.stores import conflicts
from chunkmill.stores.base import Store, check_key, check_prefix
from chunkmill.stores.capabilities import (
    copy_value,
    flush,
    is_link,
    links,
    remove_empty_folders,
    replace_prefix,
)
from chunkmill.stores.conflicts import PROBE_PREFIX

__all__ = [
    "ByCopies",
    "ByRename",
    "Intent",
    "decide",
    "forget_intent",
    "intent_key",
    "is_applying",
    "is_decided",
    "is_tagged",
    "is_undecided",
    "roll_forward",
    "roll_forward_plan",
    "roll_forward_recorded",
]

_INTENT = "intent-"
_AT_ONCE = 32  # requests of a copy carry no bytes
_LOG_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ByRename:
    """Apply a commit by one rename: a reader sees the old node, then the new one."""

    def apply(self, store: Store, intent: Intent) -> bool:
        """Put the new node in place, unless it is there; return whether it is."""
        try:
            replace_prefix(store, intent.prefix, intent.staged, intent.tag)
        except StoreError as error:
            if error.errno not in {None, errno.ENOENT} or is_tagged(store, intent.staged, intent.run):
                raise
            raise _ended(intent.job) from None
        return True


@dataclass(frozen=True, slots=True)
class ByCopies:
    """Apply a commit by a copy of each value: for a time a reader sees no node.

    Attributes
    ----------
    documents
        Prefix below which the new documents are stored, each by its whole key.
    new_documents
        Their keys, in the order in which they are written, those of each tuple at once: of the topmost node last.
    old_prefixes
        Below which the old node is stored.
    old_documents
        Keys of the old documents, in the order in which they are deleted: of the topmost node first.
    placeholder
        Key in the folder of the node, by which a listing shows the folder until the commit is applied.
    derived
        Those of the new documents that repeat what others say, and may be written by anybody: consolidated metadata.
    """

    documents: str
    new_documents: tuple[tuple[str, ...], ...]
    old_prefixes: tuple[str, ...]
    old_documents: tuple[tuple[str, ...], ...]
    placeholder: str
    derived: tuple[str, ...] = ()

    @classmethod
    def parsed(cls, known: Mapping[str, Any]) -> Self:
        """Return what JSON holds; `ValueError`, `TypeError` or `KeyError` where that is something else."""
        waves: dict[str, Any] = {name: tuple(map(tuple, known[name])) for name in ("new_documents", "old_documents")}
        tuples: dict[str, Any] = {name: tuple(known[name]) for name in ("old_prefixes", "derived")}
        texts = {name: known[name] for name in ("documents", "placeholder")}
        _check_texts([*texts.values(), *chain(*waves["new_documents"], *waves["old_documents"], *tuples.values())])
        if not texts["documents"].startswith(JOB_PREFIX):  # all below is deleted when the commit is applied
            raise ValueError(texts["documents"])
        for prefix in (texts["documents"], *tuples["old_prefixes"]):
            check_prefix(prefix)
        for key in chain(*waves["new_documents"], *waves["old_documents"], tuples["derived"]):
            check_key(key)
        return cls(**texts, **waves, **tuples)

    def apply(self, store: Store, intent: Intent) -> bool:
        """Copy the new node to its place, as the one client that does so; return whether it is there.

        Where another client is at work on it, this waits until that one has ended.
        """
        heartbeat = Heartbeat(store, f"{journal_prefix(intent.path)}{RUNNING}{uuid4().hex[:8]}", intent.job)
        with heartbeat.running():
            is_applied = _claim(store, intent, heartbeat)
            if is_applied is None:
                _apply_copies(store, intent, self, heartbeat)
        flush(store)  # a client that rolls forward for a dead one may have opened the old array before
        return is_applied is not False


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit: a new node that is complete below its staging prefix, and its place.

    Attributes
    ----------
    job
        Name of the job, for messages.
    path, run
        Of the node, and of the run that has written it.
    prefix
        Prefix of the keys of the new node's chunks; below it, the tag says that they are complete there.
    staged
        Prefix below which the new node is stored until then, with the tag as well.
    way
        How it is applied.
    seen, new
        Hashes of the old documents, and of the new ones, by store key: of a node that another one decides for.
    further
        Nodes that are committed with this one.
    owner
        Key of the heartbeat of the client that applies it.
    """

    job: str
    path: str
    run: str
    prefix: str
    staged: str
    way: ByRename | ByCopies
    seen: Mapping[str, str] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    further: tuple[Intent, ...] = ()
    owner: str = ""

    @property
    def tag(self) -> str:
        """Name of the key that tags the new node, where it is staged and after the commit."""
        return run_tag(self.run)

    @property
    def is_recorded(self) -> bool:
        """True where the record decides; one rename needs none."""
        return isinstance(self.way, ByCopies) or bool(self.further)

    @classmethod
    def parsed(cls, known: Mapping[str, Any]) -> Self:
        """Return what JSON holds; errors as of `ByCopies.parsed`, or `AttributeError`, where it is another thing."""
        texts = {name: known[name] for name in ("job", "path", "run", "prefix", "staged", "owner")}
        hashes: dict[str, Any] = {name: {**known[name]} for name in ("seen", "new")}
        _check_texts([*texts.values(), *hashes["seen"].values(), *hashes["new"].values()])
        check_prefix(texts["prefix"])
        check_prefix(texts["staged"])
        way = ByCopies.parsed(known["way"]) if known["way"] else ByRename()
        return cls(**texts, **hashes, way=way, further=tuple(map(cls.parsed, known["further"])))

    def packed(self) -> bytes:
        """Return its record."""
        return json.dumps(asdict(self)).encode()

    def is_as_seen(self, store: Store) -> bool:
        """Return whether nobody else has changed the old documents since; deleted ones do not count."""
        found = {key: value for key in self.seen if (value := store.get(key)) is not None}
        hashes = {key: sha256(value).hexdigest() for key, value in found.items()}
        return all(hashed in {self.seen[key], self.new.get(key)} for key, hashed in hashes.items())


def _check_texts(values: Iterable[object]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a text is expected")


# --------------------------------------------------------------------------------------------------------------------
# The state


def intent_key(path: str, run: str) -> str:
    """Return the key of the intent record of a run."""
    return f"{journal_prefix(path)}{_INTENT}{run}.json"


def is_tagged(store: Store, prefix: str, run: str) -> bool:
    """Return whether the tag of the run is below its staging prefix; one that is being deleted has an empty tag."""
    return bool(store.get(prefix + run_tag(run)))


def is_decided(store: Store, path: str, run: str, old_prefix: str) -> bool:
    """Return whether the commit is decided, or applied: the old node is given up."""
    return store.size(old_prefix + run_tag(run)) is not None or store.size(intent_key(path, run)) is not None


def is_undecided(store: Store, path: str, run: str) -> bool:
    """Return whether a run that `is_decided` has just called undecided is so, and not over: asked in that order.

    At the end of a job its plan is over before the traces of the commit are deleted.
    """
    return plans.stands(store.get(f"{journal_prefix(path)}{PLAN}"), run)


def is_applying(store: Store, path: str, run: str) -> bool:
    """Return whether the commit is decided, and not applied."""
    value = store.get(intent_key(path, run))
    if value is None:
        return False
    try:
        staged = _parsed(store, intent_key(path, run), value).staged
    except StoreError:  # damaged: the client that rolls forward says so
        staged = staged_prefix(path, run)
    return is_tagged(store, staged, run)


def _read(store: Store, path: str, run: str) -> Intent | None:
    key = intent_key(path, run)
    value = store.get(key)
    return None if value is None else _parsed(store, key, value)


def _parsed(store: Store, key: str, value: bytes) -> Intent:
    try:
        intent = Intent.parsed(json.loads(value))
        for each in (intent, *intent.further):
            _check_names(key, intent, each)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        reason = "the intent record of an interrupted commit is damaged; the new node is whole below its staging prefix"
        raise StoreError(url=store.url, key=key, reason=reason) from None
    return intent


def _check_names(key: str, first: Intent, intent: Intent) -> None:
    """Raise `ValueError` where a record names what is not of its node, or of a journal of its run."""
    way = intent.way
    own = re.compile(
        rf"{re.escape(JOB_PREFIX)}[0-9a-f]{{16}}/(new|documents)-{re.escape(intent.run)}(-\d+)?(-documents)?/"
    )
    is_first = intent is first
    if not own.fullmatch(intent.staged) or (is_first and intent_key(intent.path, intent.run) != key):
        raise ValueError(intent.staged)
    if (intent.further and not is_first) or intent.run != first.run:
        raise ValueError(intent.further)
    check_own(intent.path, documents=[*intent.seen, *intent.new], keys=filter(None, [intent.prefix]))
    if isinstance(way, ByCopies):
        documents = [*chain(*way.new_documents, *way.old_documents), *way.derived]
        check_own(intent.path, documents=documents, keys=[*filter(None, way.old_prefixes), way.placeholder])
        if not own.fullmatch(way.documents) or not way.placeholder.endswith(placeholder_key(intent.run)):
            raise ValueError(way.documents)


def _check_no_link(store: Store, intent: Intent) -> None:
    """Raise where the node of a record is below a link, which may lead anywhere (P13)."""
    for prefix in (intent.prefix, *(intent.way.old_prefixes if isinstance(intent.way, ByCopies) else ())):
        names = prefix.split("/")[:-1]
        for n in range(len(names)):
            if is_link(store, link := "/".join(names[: n + 1]) + "/"):
                key = intent_key(intent.path, intent.run)
                reason = (
                    f"the record of a commit that was interrupted leads through the symbolic link {link!r}, and is "
                )
                reason += "not applied: write the node again, or delete the record"
                raise StoreError(url=store.url, key=key, reason=reason)


# --------------------------------------------------------------------------------------------------------------------
# The transitions


def decide(store: Store, intent: Intent) -> None:
    """Store the intent record of what is staged: from now on any client may roll forward.

    Raises
    ------
    JobError
        The run has ended, or another one has taken its place.
    """
    staged = [intent, *intent.further]
    if not is_undecided(store, intent.path, intent.run) or not all(is_tagged(store, i.staged, i.run) for i in staged):
        raise _ended(intent.job)
    conflicts.create(store, intent_key(intent.path, intent.run), intent.packed())


def roll_forward(
    store: Store,
    path: str,
    run: str,
    *,
    intent: Intent | None = None,
    job: str = "",
    old_prefix: str | None = None,
) -> bool:
    """Apply the commit of a run that is decided; return whether the new node is in place, by its tag if need be.

    Parameters
    ----------
    intent
        Where there is no record.
    job
        Name of a job: `JobError` says so where nothing is to be applied, and nothing is in place.
    old_prefix
        Prefix of the keys of the node.

    Raises
    ------
    StoreError
        Somebody has made another node there, or the record is damaged.
    """
    intent = _read(store, path, run) or intent
    if intent is not None and not job:  # else the caller has named the place
        for each in (intent, *intent.further):
            _check_no_link(store, each)
    is_there = intent is not None and intent.way.apply(store, intent)
    is_there = is_there or (old_prefix is not None and store.size(old_prefix + run_tag(run)) is not None)
    for each in intent.further if intent is not None and is_there else ():
        _roll_forward_further(store, each)
    if job and not is_there:
        raise _ended(job)
    return is_there


def _roll_forward_further(store: Store, intent: Intent) -> None:
    """Apply the commit of a node that another one decides for; one whose documents others have changed stays."""
    key = intent_key(intent.path, intent.run)
    if store.size(key) is None and is_tagged(store, intent.staged, intent.run):
        if not intent.is_as_seen(store):
            LOG.warning("%s: others have changed the node since, and it stays", intent.job)
            return
        if isinstance(intent.way, ByCopies):  # readers look for the record at the path
            conflicts.create(store, key, intent.packed())
        else:
            intent.way.apply(store, intent)
            flush(store)
    if (recorded := _read(store, intent.path, intent.run)) is not None:
        recorded.way.apply(store, recorded)
    forget_intent(store, intent.path, intent.run, intent.prefix)


def roll_forward_plan(store: Store, path: str, plan: plans.Plan) -> bool:
    """Apply what the run of a plan has decided, before the plan is deleted; return whether its node is in place."""
    return plan.old_prefix is not None and roll_forward(store, path, plan.run, old_prefix=plan.old_prefix)


def roll_forward_recorded(store: Store, prefix: str) -> None:
    """Apply each commit whose intent record is in a journal, the plan of which is damaged."""
    for name in store.list_dir(prefix):
        if name.startswith(_INTENT) and (value := store.get(prefix + name)) is not None:
            intent = _parsed(store, prefix + name, value)
            roll_forward(store, intent.path, intent.run)
            forget_intent(store, intent.path, intent.run, intent.prefix)


def forget_intent(store: Store, path: str, run: str, old_prefix: str | None) -> None:
    """Delete the traces of a commit that is applied, if the run replaces a node: the record, then the tag."""
    if old_prefix is not None:
        store.delete(intent_key(path, run))
        store.delete(old_prefix + run_tag(run))


def _ended(job: str) -> JobError:
    reason = "the job has ended, or was replaced by another one, while this client was at its end"
    return JobError(job=job, reason=reason)


# --------------------------------------------------------------------------------------------------------------------
# Copies


def _claim(store: Store, intent: Intent, heartbeat: Heartbeat) -> bool | None:
    """Claim the record: ``None``; True where the commit is applied, False where all of it has ended."""
    key = intent_key(intent.path, intent.run)
    while True:
        dead: list[str] = []
        try:
            conflicts.update(store, key, partial(_claimed, store, key, heartbeat.key, dead))
        except _OwnedByAnother:
            conflicts.pause(conflicts.LOOK_SECONDS)
        except _NothingToApply:
            is_there = store.size(key) is not None and store.get(intent.prefix + intent.tag) is not None
            if is_there and isinstance(intent.way, ByCopies):
                _delete_staged(store, intent, intent.way)
            return is_there
        else:
            end_dead(store, dead)
            return None


def _claimed(store: Store, key: str, own: str, dead: list[str], value: bytes | None) -> bytes:
    """Return the record with this client as its owner; in `dead`, the key of the heartbeat of the one before."""
    if value is None:
        raise _NothingToApply
    found = _parsed(store, key, value)
    if not is_tagged(store, found.staged, found.run):  # the tag is deleted when all is in place, before the rest
        raise _NothingToApply
    if found.owner not in {"", own}:
        if any_live(stored_beats(store, [found.owner])):
            raise _OwnedByAnother
        dead[:] = [found.owner]
    return replace(found, owner=own).packed()


class _NothingToApply(Exception):
    """The commit is applied, or has ended."""


class _OwnedByAnother(Exception):
    """Another client, which is alive, applies the commit."""


def _apply_copies(store: Store, intent: Intent, way: ByCopies, heartbeat: Heartbeat) -> None:
    job = intent.job
    for prefix in way.old_prefixes:  # what links lead to is not of the old node
        for link in links(store, prefix):
            store.delete_prefix(link)
    if store.get(intent.prefix + intent.tag) is None:
        staged = {*_below(store, way.documents)}
        if not staged.issuperset(chain(*way.new_documents)):  # another client has applied it, and ended
            raise _ended(job)
        LOG.info("%s: puts the new node in place, one copy a value", job)
        store.set(way.placeholder, b"")
        _delete_documents(store, way.old_documents, heartbeat)
        names = _below(store, intent.staged, intent.tag)
        new = {way.placeholder, *(intent.prefix + name for name in names)}
        _each(store, (key for key in _old_keys(store, way) if key not in new), store.delete, heartbeat)
        for prefix in way.old_prefixes:  # folders are groups, in some formats
            remove_empty_folders(store, prefix, besides=(JOB_PREFIX, PROBE_PREFIX))
        begun, n_copied = time.monotonic(), 0

        def copy(name: str) -> None:
            nonlocal begun, n_copied
            copy_value(store, intent.staged + name, intent.prefix + name)
            n_copied += 1
            if time.monotonic() - begun > _LOG_SECONDS:
                begun = time.monotonic()
                LOG.info("%s: %d of %d values are copied to their place", job, n_copied, len(names))

        _each(store, names, copy, heartbeat)
        heartbeat.check(now=True)
        store.set(intent.prefix + intent.tag, b"")
    _write_documents(store, intent, way, heartbeat)
    store.delete(intent.staged + intent.tag)  # all is in place: from now on others may change the documents
    _delete_staged(store, intent, way)


def _delete_staged(store: Store, intent: Intent, way: ByCopies) -> None:
    store.delete(way.placeholder)
    store.delete_prefix(way.documents)
    store.delete_prefix(intent.staged)


def _below(store: Store, prefix: str, *besides: str) -> list[str]:
    names = (key.removeprefix(prefix) for key in store.list_prefix(prefix))
    return [name for name in names if name not in besides]


def _old_keys(store: Store, way: ByCopies) -> Iterator[str]:
    """Yield the keys below the old node's prefixes; of the root, not those of journals and probes."""
    for prefix in way.old_prefixes:
        listed = [prefix] if prefix else [n for n in store.list_dir("") if not n.startswith((JOB_PREFIX, PROBE_PREFIX))]
        for name in listed:
            yield from list(store.list_prefix(name)) if name.endswith("/") else [name]


def _delete_documents(store: Store, keys: Sequence[Sequence[str]], heartbeat: Heartbeat) -> None:
    """Delete documents: each as it was when the heartbeat stood, since others may be about to write the new one."""

    def deleted(_: bytes | None) -> None:
        heartbeat.check(now=True)

    for each in keys:
        _each(store, each, lambda key: conflicts.update(store, key, deleted), heartbeat)


def _write_documents(store: Store, intent: Intent, way: ByCopies, heartbeat: Heartbeat) -> None:
    def write(key: str) -> None:
        staged = store.get(way.documents + key)

        def written(there: bytes | None) -> bytes | None:
            if staged is None or there in {None, staged} or key in way.derived:
                return there if staged is None else staged
            reason = "others have made or changed a node here while the job put its own in place"
            record = intent_key(intent.path, intent.run)
            way_out = f"delete it and run the job again, or keep it and delete the key {record!r}"
            raise StoreError(url=store.url, key=key, reason=f"{reason}: {way_out}")

        conflicts.update(store, key, written, seen=(None, None))

    for each in way.new_documents:
        heartbeat.check(now=True)
        _each(store, each, write, heartbeat)


def _each(store: Store, items: Iterable[str], function: Callable[[str], object], heartbeat: Heartbeat) -> None:
    """Call a function with each item, many at once where requests cost latency, as long as the heartbeat stands."""
    with BackgroundCalls(_AT_ONCE if store.is_remote else 0) as calls:
        for item in items:
            heartbeat.check()
            calls.call(function, item)
