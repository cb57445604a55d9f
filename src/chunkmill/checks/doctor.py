"""Examine an environment, a store and the workers of a cluster, and say what is slow or unsafe, and why.

A store is probed by a scratch key, which is deleted again: whether it can be written, whether conditional writes are
refused as they must be, how long a request takes. Not here: versions (`chunkmill.checks.versions`), damaged chunks
(`chunkmill.checks.check`).
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from chunkmill.stores.open import open_store
from chunkmill.stores.probe import PROBE_PREFIX

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
    write_seconds: float | None = None


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
        yield (
            "chunkmill",
            f"{packages['chunkmill']} on Python {self.environment['python']}, {self.environment['system']}",
        )
        yield "packages", ", ".join(f"{name} {found}" for name, found in packages.items() if found)
        if missing := [name for name, found in packages.items() if found is None]:
            yield "not installed", ", ".join(missing)
        if self.store is not None:
            yield "store", f"{self.store.url} ({self.store.kind})"
            yield "written to", _yes(self.store.writable)
            yield "values", "replaced at once" if self.store.replaces_atomically else "seen while they are written"
            yield "guard", "versions are compared" if self.store.compares_versions else "a lock only"
            if self.store.read_seconds is not None:
                yield "small request", f"{self.store.read_seconds * 1e3:.3g} ms to read"
            if self.store.write_seconds is not None:
                yield "", f"{self.store.write_seconds * 1e3:.3g} ms to write"
        if self.workers:
            yield (
                "workers",
                f"{len(self.workers)}, of {sum(each.get('threads', 1) for each in self.workers.values())} threads",
            )

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
    facts, store = None, None
    if url is not None:
        facts, store = _examine_store(url, storage_options, findings)
    client = client or _current_client()
    workers = {} if client is None else _examine_workers(client, store, found, findings)
    return DoctorReport(found, facts, workers, tuple(findings))


def _current_client() -> Client | None:
    try:
        client: Client = default_client()
    except ValueError:
        return None
    return client


def _examine_store(
    url: Any, storage_options: Mapping[str, Any] | None, findings: list[Finding]
) -> tuple[StoreFacts, Store | None]:
    if isinstance(url, (str, os.PathLike)) and is_reference_set(url, storage_options):
        return StoreFacts(os.fspath(url), "reference set", writable=False), None
    store = open_store(url, storage_options)
    kind = type(store).__name__
    if store.url.startswith("zip:"):  # a probe would be a member of the file
        return StoreFacts(store.url, kind, replaces_atomically=store.replaces_atomically), None
    absent = _absent_folders(store)
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a probe finds out is said in the report
            facts = _probed(store, kind, key)
    except ChunkmillError as error:
        findings.append(Finding("error", f"the store cannot be written: {error}"))
        return _read_only(store, kind, findings), store
    finally:
        with contextlib.suppress(ChunkmillError):
            store.delete(key)
        with contextlib.suppress(OSError):  # another process has stored something there
            for folder in absent:
                folder.rmdir()
    findings += _store_findings(facts)
    return facts, store


def _absent_folders(store: Store) -> list[Path]:
    """Return the folders that a probe would create, the deepest first."""
    if not store.url.startswith(_LOCAL):
        return []
    root = Path(store.url.removeprefix(_LOCAL))
    return [folder for folder in (root, *root.parents) if not folder.exists()]


def _probed(store: Store, kind: str, key: str) -> StoreFacts:
    """Return what a scratch key tells: conditions that must be met and refused, and the time of requests."""
    compares = store.compares_versions
    if compares:
        compares = store.set_if(key, _BEGIN, None) and not store.set_if(key, _CHANGED, None)
        _, version = store.get_versioned(key)
        compares = compares and store.set_if(key, _CHANGED, version) and not store.set_if(key, _BEGIN, version)
    written = [_seconds(partial(store.set, key, _BEGIN)) for _ in range(_N_TIMED)]
    read = [_seconds(partial(store.get, key)) for _ in range(_N_TIMED)]
    return StoreFacts(
        store.url,
        kind,
        writable=store.get(key) == _BEGIN,
        replaces_atomically=store.replaces_atomically,
        compares_versions=compares,
        read_seconds=median(read),
        write_seconds=median(written),
    )


def _read_only(store: Store, kind: str, findings: list[Finding]) -> StoreFacts:
    try:
        seconds = _seconds(partial(store.get, f"{PROBE_PREFIX}absent"))
    except ChunkmillError as error:
        findings.append(Finding("error", f"the store cannot be read: {error}"))
        return StoreFacts(store.url, kind, writable=False)
    return StoreFacts(store.url, kind, writable=False, read_seconds=seconds)


def _store_findings(facts: StoreFacts) -> list[Finding]:
    findings = []
    if not facts.compares_versions:
        why = (
            "the store does not compare versions: a lock of this process or cluster alone guards parts of chunks, and "
        )
        findings.append(Finding("unsafe", why + "documents; write from one of them at a time, or whole store keys"))
    if not facts.replaces_atomically:
        findings.append(Finding("unsafe", "a reader may see a value that is partly written"))
    if facts.read_seconds is not None and facts.read_seconds > _SLOW_SECONDS:
        why = f"a small request takes {facts.read_seconds * 1e3:.0f} ms: run where the data are, or give larger shards"
        findings.append(Finding("slow", why))
    return findings


def _seconds(request: Any) -> float:
    begin = perf_counter()
    request()
    return perf_counter() - begin


def _examine_workers(
    client: Client, store: Store | None, here: Mapping[str, Any], findings: list[Finding]
) -> dict[str, dict[str, Any]]:
    """Ask every worker for its versions, and whether it sees what this process writes to the store."""
    about = client.scheduler_info(n_workers=-1)["workers"]
    if not about:
        findings.append(Finding("error", "the cluster has no workers: tasks wait for one"))
        return {}
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    wrote = False
    if store is not None:
        with contextlib.suppress(ChunkmillError):
            store.set(key, _BEGIN)
            wrote = True
    try:
        answers = client.run(_answer, store if wrote else None, key, on_error="return")
    finally:
        if wrote and store is not None:
            with contextlib.suppress(ChunkmillError):
                store.delete(key)
    workers = {}
    for address, answer in answers.items():
        if isinstance(answer, Exception):
            findings.append(Finding("error", f"worker {address}: {type(answer).__name__}: {answer}"))
            continue
        workers[address] = {"threads": about.get(address, {}).get("nthreads", 1)} | answer
        findings += _worker_findings(address, answer, here)
    return workers


def _worker_findings(address: str, answer: Mapping[str, Any], here: Mapping[str, Any]) -> list[Finding]:
    theirs, ours = answer["environment"]["packages"], here["packages"]
    different = [
        f"{name} {theirs.get(name)} instead of {ours.get(name)}"
        for name in _ALIKE
        if theirs.get(name) != ours.get(name)
    ]
    missing = [name for name, found in ours.items() if found and name not in _ALIKE and theirs.get(name) is None]
    found = []
    if different:
        found.append(Finding("unsafe", f"worker {address} has {', '.join(different)}"))
    if missing:
        found.append(Finding("error", f"worker {address} lacks {', '.join(missing)}, which this process has"))
    if answer["error"]:
        found.append(Finding("error", f"worker {address} cannot use the store: {answer['error']}"))
    elif answer["sees_store"] is False:
        found.append(
            Finding("unsafe", f"worker {address} has a store of its own: it does not see what is written here")
        )
    return found


def _answer(store: Store | None, key: str) -> dict[str, Any]:
    """Return what one worker has, and sees."""
    answer: dict[str, Any] = {"environment": environment(), "sees_store": None, "error": None}
    if store is not None:
        try:
            answer["sees_store"] = store.get(key) == _BEGIN
        except ChunkmillError as error:
            answer["error"] = str(error)
    return answer


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "not tried"}[value]
