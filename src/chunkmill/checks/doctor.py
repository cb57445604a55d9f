"""Examine an environment, a store and the workers of a cluster, and say what is slow or unsafe, and why.

A store is probed by a scratch key, which is deleted again: whether it can be written, whether conditional writes are
refused as they must be, how long a request takes. Not here: damaged chunks (`chunkmill.checks.check`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import requires
from pathlib import Path
from statistics import median
from timeit import repeat
from typing import Any, Literal, TextIO
from uuid import uuid4

from distributed import Client, default_client

from chunkmill.display.report import Facts, ReportMixin, Table, counted, format_seconds
from chunkmill.errors import ChunkmillError
from chunkmill.nodes.reference_sets import is_reference_set
from chunkmill.runtime.preflight import package_version
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import PROBE_PREFIX
from chunkmill.stores.open import open_store

_N_TIMED = 5  # requests
_SLOW_SECONDS = 0.2  # of a small request
_ALIKE = ("chunkmill", "numcodecs", "numpy", "dask", "distributed")  # packages that client and workers share bytes by
_LOCAL = "file://"
_NAME = re.compile(r"[\w.-]+")
# how others of the field are installed next to chunkmill: not required, and asked for in reports
_PEERS = ("zarr", "obstore", "kerchunk", "virtualizarr", "icechunk", "dask-array")
_BEGIN = b"probe"


def environment() -> dict[str, Any]:
    """Return versions of Python, the system and packages, by name; ``None`` for a package that is not installed.

    Examples
    --------
    >>> sorted(environment())
    ['cpus', 'packages', 'python', 'system']
    >>> environment()["packages"]["chunkmill"] is not None
    True
    """
    required = [found[0] for each in requires("chunkmill") or () if (found := _NAME.match(each))]
    names = dict.fromkeys(["chunkmill", "distributed", *required, *_PEERS])
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: package_version(name) for name in names},
    }


def show_versions(file: TextIO | None = None) -> None:
    """Print the versions of chunkmill, Python, the system and every package that chunkmill uses, for a report.

    Parameters
    ----------
    file
        A text file to print to. Standard output by default.

    Returns
    -------
    None

    Raises
    ------
    OSError
        The file cannot be written.

    Examples
    --------
    >>> from io import StringIO
    >>> text = StringIO()
    >>> show_versions(text)
    >>> text.getvalue().splitlines()[0].split()[0]
    'chunkmill'
    """
    found = environment()
    packages = found.pop("packages")
    rows = {"chunkmill": packages.pop("chunkmill")} | found | packages
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {'-' if value is None else value}", file=file)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is slow or unsafe, with the reason."""

    kind: Literal["unsafe", "slow", "error"]
    what: str


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Properties of a store that a probe found out; ``None`` where it was not probed."""

    url: str
    kind: str
    writable: bool | None = None
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
        return f"doctor: {counted(len(self.findings), 'finding') if self.findings else 'nothing found'}"

    def _facts(self) -> Facts:
        yield "python", f"{self.environment['python']}, {self.environment['system']}"
        yield "packages", ", ".join(f"{name} {found or '-'}" for name, found in self.environment["packages"].items())
        if (store := self.store) is not None:
            yield "store", f"{store.url} ({store.kind})"
            if store.writable:
                yield "partial writes", "versions are compared" if store.compares_versions else "guarded by a lock only"
            if store.read_seconds is not None:
                yield "small request", format_seconds(store.read_seconds)
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
    facts = None if url is None else _examine_store(url, storage_options, findings)
    with contextlib.suppress(ValueError):  # there is none
        client = client or default_client()
    workers = {} if client is None else _examine_workers(client, found, findings)
    return DoctorReport(found, facts, workers, tuple(findings))


def _examine_store(url: Any, storage_options: Mapping[str, Any] | None, findings: list[Finding]) -> StoreFacts:
    if isinstance(url, (str, os.PathLike)) and is_reference_set(url, storage_options):
        return StoreFacts(os.fspath(url), "reference set")
    store = probed = open_store(url, storage_options)
    facts = StoreFacts(store.url, type(store).__name__)
    if store.url.startswith("zip:"):  # a probe would be a member of the file
        return facts
    if store.url.startswith(_LOCAL):  # a folder that does not exist is not made: the one above is like it
        root = Path(store.url.removeprefix(_LOCAL))
        probed = open_store(next(folder for folder in (root, *root.parents) if folder.exists()))
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        seconds = median(repeat(partial(probed.get, key), repeat=_N_TIMED, number=1))
        facts = replace(facts, read_seconds=seconds, writable=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a probe finds out is said in the report
            probed.set(key, _BEGIN)
            facts = replace(facts, writable=probed.get(key) == _BEGIN, compares_versions=probed.compares_versions)
        findings += _store_findings(facts, store)
    except ChunkmillError as error:
        cannot = "read" if facts.writable is None else "written"
        findings.append(Finding("error", f"the store cannot be {cannot}: {error}"))
    with contextlib.suppress(ChunkmillError):
        probed.delete(key)
    return facts


def _store_findings(facts: StoreFacts, store: Store) -> Iterator[Finding]:
    if not facts.compares_versions:
        why = "the store does not compare versions: a lock of this process or cluster alone guards parts of chunks, and"
        yield Finding("unsafe", f"{why} documents; write from one of them at a time, or whole store keys")
    if not store.replaces_atomically:
        yield Finding("unsafe", "a reader may see a value that is partly written")
    if facts.read_seconds is not None and facts.read_seconds > _SLOW_SECONDS:
        why = f"a small request takes {format_seconds(facts.read_seconds)}: run where the data are"
        yield Finding("slow", f"{why}, or give larger shards")


def _examine_workers(client: Client, here: Mapping[str, Any], findings: list[Finding]) -> dict[str, Any]:
    """Ask every worker for its versions."""
    if not client.scheduler_info(n_workers=1)["workers"]:
        findings.append(Finding("error", "the cluster has no workers: tasks wait for one"))
        return {}
    workers = {}
    for address, answer in client.run(environment, on_error="return").items():
        if isinstance(answer, Exception):
            findings.append(Finding("error", f"worker {address}: {type(answer).__name__}: {answer}"))
        else:
            workers[address] = answer
            findings += _worker_findings(address, answer, here)
    return workers


def _worker_findings(address: str, answer: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Finding]:
    theirs, ours = answer["packages"], here["packages"]
    different = [f"{n} {theirs.get(n)} instead of {ours.get(n)}" for n in _ALIKE if theirs.get(n) != ours.get(n)]
    missing = [name for name, found in ours.items() if found and name not in _ALIKE and theirs.get(name) is None]
    if different:
        yield Finding("unsafe", f"worker {address} has {', '.join(different)}")
    if missing:
        yield Finding("error", f"worker {address} lacks {', '.join(missing)}, which this process has")
