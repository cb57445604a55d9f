"""Examine an environment, a store and the workers of a cluster, and say what is slow or unsafe, and why.

A store is probed by a scratch key, which is deleted again: whether it can be written, whether conditional writes are
refused as they must be, how long a request takes. Not here: versions (`chunkmill.checks.versions`), damaged chunks
(`chunkmill.checks.check`).
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal
from uuid import uuid4

from distributed import Client, default_client

from chunkmill.checks.versions import environment
from chunkmill.display.report import Facts, ReportMixin, Table
from chunkmill.errors import ChunkmillError
from chunkmill.nodes.reference_sets import is_reference_set
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import PROBE_PREFIX
from chunkmill.stores.open import open_store

__all__ = ["DoctorReport", "Finding", "StoreFacts", "doctor"]

_N_TIMED = 5  # requests
_SLOW_SECONDS = 0.2  # of a small request
_ALIKE = ("chunkmill", "numcodecs", "numpy", "dask", "distributed")  # packages that client and workers share bytes by
_LOCAL = "file://"
_BEGIN, _CHANGED = b"probe", b"changed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is slow or unsafe, with the reason."""

    kind: Literal["unsafe", "slow", "error"]
    what: str


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Properties of a store that a probe found out; ``None`` where it could not be probed."""

    url: str
    kind: str
    writable: bool | None = None
    replaces_atomically: bool | None = None
    compares_versions: bool | None = None
    read_seconds: float | None = None


@dataclass(frozen=True, repr=False)
class DoctorReport(ReportMixin):
    """Versions, a store, the workers of a cluster, and findings."""

    environment: Mapping[str, Any]
    store: StoreFacts | None = None
    workers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    _computed = ("ok",)

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.findings

    def _title(self) -> str:
        n = len(self.findings)
        return "doctor: " + ("nothing found" if not n else f"{n} finding" + "s" * (n > 1))

    def _facts(self) -> Facts:
        packages = self.environment["packages"]
        python, system = self.environment["python"], self.environment["system"]
        yield "chunkmill", f"{packages['chunkmill']} on Python {python}, {system}"
        yield "packages", ", ".join(f"{name} {found or '-'}" for name, found in packages.items())
        if (store := self.store) is not None:
            yield "store", f"{store.url} ({store.kind})"
            yield "written to", {True: "yes", False: "no", None: "not tried"}[store.writable]
            yield "values", "replaced at once" if store.replaces_atomically else "seen while they are written"
            yield "guard", "versions are compared" if store.compares_versions else "a lock only"
            if store.read_seconds is not None:
                yield "small request", f"{store.read_seconds * 1e3:.3g} ms to read"
        if self.workers:
            yield "workers", f"{len(self.workers)}"

    def _tables(self) -> list[Table]:
        return [[("finding", ""), *((each.kind, each.what) for each in self.findings)]] if self.findings else []


def doctor(
    url: Any = None, *, storage_options: Mapping[str, Any] | None = None, client: Client | None = None
) -> DoctorReport:
    """Examine this environment, and a store and the workers of a cluster where they are given.

    Parameters
    ----------
    url
        Of a store, which need not exist. A scratch key is written there, and deleted again.
    storage_options
        As in `open`.
    client
        Of a cluster; the current one by default, if there is any.

    Examples
    --------
    >>> report = doctor("memory://doc-doctor")
    >>> report.store.writable, report.store.compares_versions  # of fsspec's memory
    (True, False)
    """
    found = environment()
    findings: list[Finding] = []
    facts, store = (None, None) if url is None else _examine_store(url, storage_options, findings)
    with contextlib.suppress(ValueError):  # there is none
        client = client or default_client()
    workers = {} if client is None else _examine_workers(client, store, found, findings)
    return DoctorReport(found, facts, workers, tuple(findings))


def _examine_store(
    url: Any, storage_options: Mapping[str, Any] | None, findings: list[Finding]
) -> tuple[StoreFacts, Store | None]:
    if isinstance(url, (str, os.PathLike)) and is_reference_set(url, storage_options):
        return StoreFacts(os.fspath(url), "reference set", writable=False), None
    store = probed = open_store(url, storage_options)
    facts = StoreFacts(store.url, type(store).__name__, replaces_atomically=store.replaces_atomically)
    if store.url.startswith("zip:"):  # a probe would be a member of the file
        return facts, None
    if store.url.startswith(_LOCAL):  # a folder that does not exist is not made: the one above is like it
        root = Path(store.url.removeprefix(_LOCAL))
        probed = open_store(next(folder for folder in (root, *root.parents) if folder.exists()))
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a probe finds out is said in the report
            compares = probed.compares_versions and _are_compared(probed, key)
            probed.set(key, _BEGIN)
            facts = replace(facts, writable=probed.get(key) == _BEGIN, compares_versions=compares)
    except ChunkmillError as error:
        findings.append(Finding("error", f"the store cannot be written: {error}"))
        facts = replace(facts, writable=False)
    try:
        facts = replace(facts, read_seconds=median(_seconds(partial(probed.get, key)) for _ in range(_N_TIMED)))
    except ChunkmillError as error:
        findings.append(Finding("error", f"the store cannot be read: {error}"))
    with contextlib.suppress(ChunkmillError):
        probed.delete(key)
    if facts.writable:
        findings += _store_findings(facts)
    return facts, store


def _are_compared(store: Store, key: str) -> bool:
    """Return whether conditions are met and refused as they must be."""
    if not store.set_if(key, _BEGIN, None) or store.set_if(key, _CHANGED, None):
        return False
    _, version = store.get_versioned(key)
    return store.set_if(key, _CHANGED, version) and not store.set_if(key, _BEGIN, version)


def _store_findings(facts: StoreFacts) -> Iterator[Finding]:
    if not facts.compares_versions:
        why = "the store does not compare versions: a lock of this process or cluster alone guards parts of chunks, and"
        yield Finding("unsafe", f"{why} documents; write from one of them at a time, or whole store keys")
    if not facts.replaces_atomically:
        yield Finding("unsafe", "a reader may see a value that is partly written")
    if facts.read_seconds is not None and facts.read_seconds > _SLOW_SECONDS:
        why = f"a small request takes {facts.read_seconds * 1e3:.0f} ms: run where the data are, or give larger shards"
        yield Finding("slow", why)


def _seconds(request: Any) -> float:
    begin = perf_counter()
    request()
    return perf_counter() - begin


def _examine_workers(
    client: Client, store: Store | None, here: Mapping[str, Any], findings: list[Finding]
) -> dict[str, dict[str, Any]]:
    """Ask every worker for its versions, and whether it sees what this process writes to the store."""
    if not client.scheduler_info(n_workers=1)["workers"]:
        findings.append(Finding("error", "the cluster has no workers: tasks wait for one"))
        return {}
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        if store is not None:
            store.set(key, _BEGIN)
    except ChunkmillError:
        store = None
    answers = client.run(_answer, store, key, on_error="return")
    if store is not None:
        with contextlib.suppress(ChunkmillError):
            store.delete(key)
    failed = {address: answer for address, answer in answers.items() if isinstance(answer, Exception)}
    findings += (Finding("error", f"worker {a}: {type(error).__name__}: {error}") for a, error in failed.items())
    workers = {address: answer for address, answer in answers.items() if address not in failed}
    for address, answer in workers.items():
        findings += _worker_findings(address, answer, here)
    return workers


def _worker_findings(address: str, answer: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Finding]:
    theirs, ours = answer["environment"]["packages"], here["packages"]
    different = [f"{n} {theirs.get(n)} instead of {ours.get(n)}" for n in _ALIKE if theirs.get(n) != ours.get(n)]
    missing = [name for name, found in ours.items() if found and name not in _ALIKE and theirs.get(name) is None]
    if different:
        yield Finding("unsafe", f"worker {address} has {', '.join(different)}")
    if missing:
        yield Finding("error", f"worker {address} lacks {', '.join(missing)}, which this process has")
    if answer["error"]:
        yield Finding("error", f"worker {address} cannot use the store: {answer['error']}")
    elif answer["sees_store"] is False:
        yield Finding("unsafe", f"worker {address} has a store of its own: it does not see what is written here")


def _answer(store: Store | None, key: str) -> dict[str, Any]:
    """Return what one worker has, and sees."""
    answer: dict[str, Any] = {"environment": environment(), "sees_store": None, "error": None}
    if store is not None:
        try:
            answer["sees_store"] = store.get(key) == _BEGIN
        except ChunkmillError as error:
            answer["error"] = str(error)
    return answer
