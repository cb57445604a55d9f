"""Put a new node in the place of the old one by copies, in stores that cannot rename: object stores.

The new one is stored whole beside its journal, chunks and documents. Then a note in the journal says so: from there on
the old one is given up, and any client finishes what another one has begun. In this order: a sign is stored at the
place, so that a listing shows it; the old documents are deleted, the topmost first, so that nobody reads new chunks by
old metadata, and the other old keys that the new node lacks; the new chunks are copied; a mark at the place says that
they are whole; the documents are written where there are none, the topmost last; what was staged, and the sign, are
deleted. Until the documents are written, it is there whole. One client at a time, whose heartbeat others see, does it.
Whoever misses a document looks for the note (`chunkmill.nodes.being_replaced`).

What this leaves open is what attempts leave open (`chunkmill.journal.attempts`): a process that sleeps between asking
whether it still stands and deleting a key. Not here: which keys a node has (`chunkmill.nodes.replacement`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any
from uuid import uuid4

from chunkmill.array.threads import BackgroundCalls
from chunkmill.errors import JobError, StoreError
from chunkmill.journal import plan_document
from chunkmill.journal.attempts import Attempt, any_live, end_dead
from chunkmill.journal.journal_names import JOB_PREFIX, PLAN, RUNNING, journal_prefix, new_mark, staged_prefix
from chunkmill.log import LOG
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import copy_value, flush, links, remove_empty_folders, scratch_store
from chunkmill.stores.probe import PROBE_PREFIX

__all__ = ["Exchange", "complete_exchange", "delete_note", "is_decided", "is_exchanging", "note_exchange"]
__all__ += ["check_texts", "is_marked", "is_to_be_put_in_place", "is_under_way", "note_key", "store_note", "unpacked"]

_AT_ONCE = 32  # requests of a copy carry no bytes
_LOG_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """Keys of a new node that is stored whole, of its place, and of the old node there.

    Attributes
    ----------
    job
        Name of the job, for messages.
    prefix
        Prefix of the keys of the new node's chunks.
    staged
        Prefix below which they are stored until then.
    mark
        Name of the key that is below `staged` when all is whole there, and then below `prefix`.
    documents
        Prefix below which the new documents are stored, each by its whole key.
    new_documents
        Their keys, in the order in which they are written, those of each tuple at once: of the topmost node last.
    old_prefixes
        Below which the old node is stored.
    old_documents
        Keys of the old documents, in the order in which they are deleted: of the topmost node first.
    sign
        Key that is there meanwhile, in the folder of the node.
    owner
        Key of the attempt of the client that does it.
    derived
        Those of the new documents that say again what others say, and may be written by anybody: consolidated metadata.
    """

    job: str
    prefix: str
    staged: str
    mark: str
    documents: str
    new_documents: tuple[tuple[str, ...], ...]
    old_prefixes: tuple[str, ...]
    old_documents: tuple[tuple[str, ...], ...]
    sign: str
    owner: str = ""
    derived: tuple[str, ...] = ()


def note_key(path: str, run: str) -> str:
    """Return the key of the note that the new node of a run is whole, and is taking the place of the old one."""
    return f"{journal_prefix(path)}exchange-{run}.json"


def is_exchanging(store: Store, path: str, run: str) -> bool:
    """Return whether the new node is stored whole beside its place, where it is, or is being, copied."""
    return store.size(note_key(path, run)) is not None


def is_marked(store: Store, staged: str, mark: str) -> bool:
    """Return whether what is staged has the mark of its run; who deletes it has put an empty one there."""
    return bool(store.get(staged + mark))


def is_under_way(store: Store, path: str, run: str) -> bool:
    """Return whether that node is being copied, or is to be, and not in place with its documents already."""
    value = store.get(note_key(path, run))
    if value is None:
        return False
    try:
        staged = _unpacked(store, note_key(path, run), value).staged
    except StoreError:  # damaged: whoever completes it is told so
        staged = staged_prefix(path, run)
    return is_marked(store, staged, new_mark(run))


def is_decided(store: Store, path: str, run: str, old_prefix: str) -> bool:
    """Return whether the old node is given up: the new one is in its place, or on its way there."""
    return store.size(old_prefix + new_mark(run)) is not None or is_exchanging(store, path, run)


def is_to_be_put_in_place(store: Store, path: str, run: str) -> bool:
    """Return whether the run that `is_decided` has just called undecided is so, and not over: asked in that order.

    At the end of a job its plan is over before the traces of the exchange are deleted. A zip file has one writer, and
    not always a plan.
    """
    return scratch_store(store) is not None or plan_document.stands(store.get(f"{journal_prefix(path)}{PLAN}"), run)


def note_exchange(store: Store, path: str, run: str, exchange: Exchange) -> None:
    """Note that the new node is stored whole: `complete_exchange` puts it in place, and any client may.

    Raises
    ------
    JobError
        The run has ended, or another one has taken its place.
    """
    if not is_to_be_put_in_place(store, path, run) or not is_marked(store, exchange.staged, exchange.mark):
        raise _ended(exchange.job)
    store_note(store, path, run, exchange)


def store_note(store: Store, path: str, run: str, exchange: Exchange) -> None:
    """Store the note of an exchange that is decided already, unless another client has."""
    store.set_if(note_key(path, run), _packed(exchange), None)


def complete_exchange(store: Store, path: str, run: str, job: str = "", old_prefix: str | None = None) -> bool:
    """Finish the exchange that a run has noted; return whether the new node is in place, below `old_prefix` if given.

    Where another client is at work on it, this waits until that one has ended.

    Raises
    ------
    JobError
        There is nothing to put in place, nor is it there, where a `job` is said to be named then.
    StoreError
        Somebody has made another node there meanwhile.
    """
    attempt = Attempt(store, f"{journal_prefix(path)}{RUNNING}{uuid4().hex[:8]}", job)
    found: Exchange | bool = False
    if is_exchanging(store, path, run):
        with attempt.running():
            found = _claimed(store, note_key(path, run), attempt)
            if isinstance(found, Exchange):
                _exchange(store, found, attempt, note_key(path, run))
        flush(store)  # a writer that finishes it for a dead one may have opened the old array before
    is_there = bool(found) or (old_prefix is not None and store.size(old_prefix + new_mark(run)) is not None)
    if job and not is_there:
        raise _ended(job)
    return is_there


def delete_note(store: Store, path: str, run: str, old_prefix: str | None) -> None:
    """Forget an exchange that is complete, if the run replaces a node: its note, then the mark of the new node."""
    if old_prefix is not None:
        store.delete(note_key(path, run))
        store.delete(old_prefix + new_mark(run))


def _claimed(store: Store, note: str, attempt: Attempt) -> Exchange | bool:
    """Become the one client that does it; True where it is done, False where all of it has ended since."""
    while True:
        value, version = store.get_versioned(note)
        if value is None:
            return False
        exchange = _unpacked(store, note, value)
        if not is_marked(store, exchange.staged, exchange.mark):  # it is deleted when all is in place, before the rest
            is_done = store.get(exchange.prefix + exchange.mark) is not None
            if is_done:
                _delete_staged(store, exchange)
            return is_done
        if exchange.owner == attempt.key:  # the answer to its claim was lost
            return exchange
        if exchange.owner and any_live(store, [exchange.owner]):
            plan_document.pause(plan_document.LOOK_SECONDS)
            continue
        own = Exchange(**{**asdict(exchange), "owner": attempt.key})
        if store.set_if(note, _packed(own), version):
            if exchange.owner:
                end_dead(store, [exchange.owner])
            return own


def _exchange(store: Store, exchange: Exchange, attempt: Attempt, note: str) -> None:
    job = exchange.job
    if store.get(exchange.prefix + exchange.mark) is None:
        staged = {*_below(store, exchange.documents)}
        if not staged.issuperset(chain(*exchange.new_documents)):  # another client has put the node in place, and ended
            raise _ended(job)
        LOG.info("%s: puts the new node in place, one copy a value", job)
        store.set(exchange.sign, b"")
        for prefix in exchange.old_prefixes:  # what links lead to is not of the old node
            for link in links(store, prefix):
                store.delete_prefix(link)
        _delete_documents(store, exchange.old_documents, attempt)
        names = _below(store, exchange.staged, exchange.mark)
        new = {exchange.sign, *(exchange.prefix + name for name in names)}
        _each(store, (key for key in _old_keys(store, exchange) if key not in new), store.delete, attempt)
        for prefix in exchange.old_prefixes:  # folders are groups, in some formats
            remove_empty_folders(store, prefix, besides=(JOB_PREFIX, PROBE_PREFIX))
        begun, n_copied = time.monotonic(), 0

        def copy(name: str) -> None:
            nonlocal begun, n_copied
            copy_value(store, exchange.staged + name, exchange.prefix + name)
            n_copied += 1
            if time.monotonic() - begun > _LOG_SECONDS:
                begun = time.monotonic()
                LOG.info("%s: %d of %d values are copied to their place", job, n_copied, len(names))

        _each(store, names, copy, attempt)
        attempt.check(now=True)
        store.set(exchange.prefix + exchange.mark, b"")
    _write_documents(store, exchange, attempt, note)
    store.delete(exchange.staged + exchange.mark)  # all is in place: from now on others may change the documents
    _delete_staged(store, exchange)


def _delete_staged(store: Store, exchange: Exchange) -> None:
    store.delete(exchange.sign)
    store.delete_prefix(exchange.documents)
    store.delete_prefix(exchange.staged)


def _below(store: Store, prefix: str, *besides: str) -> list[str]:
    names = (key.removeprefix(prefix) for key in store.list_prefix(prefix))
    return [name for name in names if name not in besides]


def _old_keys(store: Store, exchange: Exchange) -> Iterator[str]:
    """Yield the keys below the old node's prefixes; of the root, not those of journals and probes."""
    for prefix in exchange.old_prefixes:
        listed = [prefix] if prefix else [n for n in store.list_dir("") if not n.startswith((JOB_PREFIX, PROBE_PREFIX))]
        for name in listed:
            yield from list(store.list_prefix(name)) if name.endswith("/") else [name]


def _delete_documents(store: Store, keys: Sequence[Sequence[str]], attempt: Attempt) -> None:
    """Delete documents: each as it was when the attempt stood, since others may be about to write the new one."""

    def delete(key: str) -> None:
        while True:
            value, version = store.get_versioned(key)
            attempt.check(now=True)
            if value is None or store.set_if(key, None, version):
                return

    for each in keys:
        _each(store, each, delete, attempt)


def _write_documents(store: Store, exchange: Exchange, attempt: Attempt, note: str) -> None:
    def write(key: str) -> None:
        value, there, version = store.get(exchange.documents + key), None, None
        while value not in {None, there} and not store.set_if(key, value, version):
            there, version = store.get_versioned(key)
            if there != value and key not in exchange.derived:
                reason = "others have made or changed a node here while the job put its own in place"
                way_out = f"delete it and run the job again, or keep it and delete the key {note!r}"
                raise StoreError(url=store.url, key=key, reason=f"{reason}: {way_out}")

    for each in exchange.new_documents:
        attempt.check(now=True)
        _each(store, each, write, attempt)


def _each(store: Store, items: Iterable[str], function: Callable[[str], object], attempt: Attempt) -> None:
    """Call a function with each item, many at once where requests cost latency, as long as the attempt stands."""
    with BackgroundCalls(_AT_ONCE if store.is_remote else 0) as calls:
        for item in items:
            attempt.check()
            calls.call(function, item)


def _packed(exchange: Exchange) -> bytes:
    return json.dumps(asdict(exchange)).encode()


def _unpacked(store: Store, note: str, value: bytes) -> Exchange:
    try:
        return unpacked(json.loads(value))
    except (ValueError, TypeError, KeyError, RecursionError):
        reason = "the note of an interrupted exchange is damaged; the new node is stored whole beside it"
        raise StoreError(url=store.url, key=note, reason=reason) from None


def unpacked(known: Mapping[str, Any]) -> Exchange:
    """Return an exchange from its members as JSON holds them; `TypeError` or `KeyError` where they are none."""
    waves = {name: tuple(map(tuple, known[name])) for name in ("new_documents", "old_documents")}
    tuples = {"old_prefixes": tuple(known["old_prefixes"]), "derived": tuple(known.get("derived", ()))}
    texts = [value for name, value in known.items() if name not in {*waves, *tuples}]
    check_texts([*texts, *chain(*waves["new_documents"], *waves["old_documents"], *tuples.values())])
    return Exchange(**{**known, **waves, **tuples})


def check_texts(values: Iterable[object]) -> None:
    """Raise `TypeError` where one of the given members of a document is not a text."""
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a text is expected")


def _ended(job: str) -> JobError:
    reason = "the job has ended, or was replaced by another one, while this client was at its end"
    return JobError(job=job, reason=reason)
