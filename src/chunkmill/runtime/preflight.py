"""Check every worker before a job moves any data: package versions, codecs, stores it can reach and write (P7).

The same check runs on every worker of a cluster before a job or a write begins, and once in every process that takes
it up, so that a worker that joins later is checked too. The error names the worker and what it lacks.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

from dask._task_spec import Task
from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.protocol.pickle import dumps  # what a script defines, by value: workers do not have it

from chunkmill.array.layout import build_layouts
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.runtime.cluster_tasks import await_workers, cluster_facts, scheduler_needed, worker_name
from chunkmill.runtime.computed import values_left_out
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import PROBE_PREFIX

_PACKAGES = ("chunkmill", "numcodecs")
_MAX_SHOWN = 5
_MAX_TEXT = 300  # characters of what a kind of workers lacks


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements on a worker.

    Attributes
    ----------
    job
        Description of the job for error messages.
    versions
        Package -> the client's version.
    arrays
        Metadata of arrays whose codecs the worker must be able to build.
    reads
        Store, key, and the hash of the value that the client read there.
    writes
        Stores that a probe is written to.
    """

    job: str
    versions: Mapping[str, str | None]
    arrays: tuple[ArrayMetadata, ...] = ()
    reads: tuple[tuple[Store, str, str], ...] = ()
    writes: tuple[Store, ...] = ()


def describe_needs(
    job: str, *, sources: Iterable[StoredArray] = (), targets: Iterable[StoredArray] = (), writes: Iterable[Store] = ()
) -> Needs:
    """Return the requirements for reading `sources`, and for writing `targets` and further stores.

    The first of several arrays with the same codecs, and of several sources in one store, represents the others.
    """
    sources, targets = list(sources), list(targets)
    kinds = {(repr(array.codecs), str(array.dtype)): array.metadata for array in (*sources, *targets)}
    reads = []
    for array in {id(array.store): array for array in reversed(sources)}.values():
        for key in get_format(array.format).array_keys(array.path):
            if (value := array.store.get(key)) is not None:
                reads.append((array.store, key, sha256(value).hexdigest()))
                break
    # what a task writes in a transaction comes back with it
    written = {s.url: s for s in (*(array.store for array in targets), *writes) if not s.has_transactions}
    return Needs(job, _versions(), tuple(kinds.values()), tuple(reads), tuple(written.values()))


def check_writers(arrays: Sequence[StoredArray]) -> None:
    """Check the workers that have not been checked for writing `arrays` before."""
    scheduler = Scheduler()
    if scheduler.in_process or not arrays:
        return
    scheduler.check_may_wait(writes_to(arrays))
    needs = describe_needs(writes_to(arrays), targets=arrays)
    if scheduler.client is not None:
        check_client_workers(scheduler.client, needs, again=False)
    elif (key := ("", hash(_packed(needs)))) not in _FIT:
        check_scheduler(scheduler.get, needs)
        _FIT[key] = set()


def _packed(needs: Needs) -> bytes:
    with values_left_out():
        return dumps(needs)  # type: ignore[no-any-return]


def writes_to(arrays: Sequence[StoredArray]) -> str:
    """Describe a write to `arrays` for error messages."""
    more = f" and {len(arrays) - 1} more" if len(arrays) > 1 else ""
    return f"write to {arrays[0].path!r}{more} in {arrays[0].url}"


_FIT: dict[tuple[str, int], set[str]] = {}  # scheduler and hash of the needs -> workers that meet them


def check_client_workers(client: Client, needs: Needs, *, again: bool = True) -> None:
    """Check the workers of a cluster (unless `again`, the new ones); `JobError` names each that lacks something."""
    with scheduler_needed(client, needs.job):
        _check_workers(client, needs, again=again)


def _check_workers(client: Client, needs: Needs, *, again: bool) -> None:
    packed = _packed(needs)
    about = cluster_facts(client)
    if not about["workers"]:
        await_workers(client)
        about = cluster_facts(client)
    fit = _FIT.setdefault((about["id"], hash(packed)), set())
    workers = [address for address in about["workers"] if again or address not in fit]
    if not workers:
        return
    with _probing(needs) as probe:
        # pickled by hand: a worker without a package could not unpickle its arguments, and the error not name it
        answers = client.run(partial(_check, packed, probe), workers=workers, on_error="return")
        # a worker that dies during the check is left out; the one that replaces it is checked by its first task
        alive = cluster_facts(client)["workers"]
        answers = {worker: a for worker, a in answers.items() if worker in alive or not isinstance(a, OSError)}
        answers = {worker: a for worker, a in answers.items() if not isinstance(a, CommClosedError)}
        found = {worker: a if isinstance(a, tuple) else (worker, _failed(a)) for worker, a in answers.items()}
        _raise_lacking(needs, found, probe)
    fit.update(found)


def check_scheduler(get: Any, needs: Needs) -> None:
    """Check one process that the local scheduler `get` runs tasks in; its other processes are alike."""
    with _probing(needs) as probe:
        key = f"preflight-{uuid4().hex}"
        name, text = get({key: Task(key, _check, _packed(needs), probe)}, key)
        _raise_lacking(needs, {name: (name, text)}, probe)


def check_process(needs: bytes) -> None:
    """Check this process before its first task: `needs` are pickled."""
    with _process.lock:
        if hash(needs) in _process.fit:
            return
        try:
            wanted: Needs | None = pickle.loads(needs)  # noqa: S301 - made by the client
        except Exception as error:
            reason = f"worker {worker_name() or os.getpid()} cannot run the tasks: {type(error).__name__}: {error}"
            raise JobError(job="a job", reason=reason, hint="give every worker the client's packages") from error
        if wanted is not None:
            with _probing(wanted) as probe:
                name, text = _check(needs, probe)
                _raise_lacking(wanted, {worker_name() or name: (name, text)}, probe)
        _process.fit.add(hash(needs))


class _Process:
    """Hashes of the needs that this process meets."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fit: set[int] = set()


_process = _Process()
if hasattr(os, "register_at_fork"):  # a child is checked by itself, and has no threads that could release the lock
    os.register_at_fork(after_in_child=_process.__init__)  # type: ignore[misc]


@contextmanager
def _probing(needs: Needs) -> Iterator[str]:
    """Yield a prefix for probes, and delete everything below it at the end."""
    probe = f"{PROBE_PREFIX}{uuid4().hex}/"
    try:
        yield probe
    finally:
        for store in needs.writes:
            store.delete_prefix(probe)


def _raise_lacking(needs: Needs, found: Mapping[str, tuple[str, str | None]], probe: str) -> None:
    """Raise `JobError` for workers that lack something, and for those whose probes are not seen from here."""
    lacking = {worker: text for worker, (_, text) in found.items() if text is not None}
    for store in needs.writes:
        for worker in found.keys() - lacking.keys():
            if store.get(probe + found[worker][0]) is None:
                lacking[worker] = f"writes to a {store.url} of its own: what it writes is not seen from here"
    if not lacking:
        return
    kinds: dict[str, list[str]] = {}
    for worker, text in sorted(lacking.items()):
        kinds.setdefault(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…", []).append(worker)
    shown = [
        f"worker {workers[0]} {text}" + (f" (so do {len(workers) - 1} more)" if workers[1:] else "")
        for text, workers in [*kinds.items()][:_MAX_SHOWN]
    ]
    if len(kinds) > _MAX_SHOWN:
        shown.append(f"and {len(kinds) - _MAX_SHOWN} more kinds of workers")
    hint = "give every worker the client's packages, and access to the stores from wherever it runs"
    raise JobError(job=needs.job, reason="\n  ".join(["", *shown] if shown[1:] else shown), hint=hint)


def _failed(error: Exception) -> str:
    return f"cannot run the tasks: {type(error).__name__}: {error}"


def _check(needs: bytes, probe: str) -> tuple[str, str | None]:
    """Return a name of this process, and a text on what it lacks (``None`` when it meets all needs)."""
    name = f"{os.getpid()}-on-{socket.gethostname()}"
    lacks = _lacks(needs, probe + name)
    if lacks is None:
        _process.fit.add(hash(needs))  # its tasks need not check again
    return name, lacks


def _lacks(needs: bytes, probe_key: str) -> str | None:
    try:
        wanted: Needs = pickle.loads(needs)  # noqa: S301 - made by the client
        for metadata in wanted.arrays:
            build_layouts(metadata, "")  # an array builds its codecs when they are asked for first
    except Exception as error:  # noqa: BLE001 - a missing package or codec may raise anything
        return _failed(error)
    if wrong := _wrong_versions(wanted.versions):
        return wrong
    try:
        for store, key, digest in wanted.reads:
            value = store.get(key)
            if value is None or sha256(value).hexdigest() != digest:
                seen = "nothing" if value is None else "something else"
                return f"finds {seen} under {key!r} in {store.url}, where the client finds metadata"
        for store in wanted.writes:
            store.set(probe_key, b"probe")
    except Exception as error:  # noqa: BLE001 - a store may raise anything
        return f"cannot use a store: {type(error).__name__}: {error}"
    return None


def _versions() -> dict[str, str | None]:
    return {package: package_version(package) for package in _PACKAGES}


@cache  # each call parses a metadata file, and even a write of a few values makes one
def package_version(package: str) -> str | None:
    """Return the version of a package; ``None`` where it is not installed.

    >>> package_version("numpy") is None, package_version("no-such-package")
    (False, None)
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _wrong_versions(wanted: Mapping[str, str | None]) -> str | None:
    found = _versions()
    wrong = [f"{name} {found[name]} instead of {wanted[name]}" for name in wanted if found[name] != wanted[name]]
    return f"has {', '.join(wrong)}" if wrong else None
