"""Classify every key of a store: document of a node, chunk, record of a job, leftover (P8), or orphan.

Consolidated metadata are compared with the documents that they copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import ChunkmillError, MetadataError, NodeNotFound, StoreError, UnknownCodec, UnsupportedFeature
from chunkmill.formats.base import Format, is_blank, parse_json
from chunkmill.formats.registry import FORMATS
from chunkmill.journal.heartbeat import any_live, stored_beats
from chunkmill.journal.lease import discard_jobs
from chunkmill.journal.plans import JOB_PREFIX, LOCK_PREFIX, PLAN, TAG_PREFIX, run_tag
from chunkmill.journal.records import Records
from chunkmill.journal.unfinished import UnfinishedJob, clear_journal, unfinished_jobs
from chunkmill.model.metadata import is_within, same_json
from chunkmill.nodes import opening
from chunkmill.nodes.documents import entry_names, fetch, format_of_store, node_keys, present, put_back
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores import conflicts
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import PROBE_PREFIX
from chunkmill.xarray.publication import UnfinishedAppend, end_dead_append

_MAX_NAMED = 5  # documents or arrays, in one reason


def staleness(group: StoredGroup, key: str, nodes: Iterable[StoredNode]) -> tuple[str | None, dict[str, bytes]]:
    """Compare the consolidated metadata under `key` with the documents of `nodes`.

    Returns
    -------
    tuple
        How they differ, ``None`` where they do not, or where there are none; and those documents of nodes of which more
        is stored that are in consolidated metadata alone. Some writers store no other: then that is nothing missing.
    """
    store = group.store.uncached
    value = store.get(key)
    if value is None:
        return None, {}
    try:
        known = group.documents.parse_consolidated(group.path, value)
    except MetadataError as error:
        return str(error), {}
    if known is None:
        return None, {}
    actual = _actual(group, nodes, known)
    missing = {name: known[name] for name in known.keys() - actual.keys() if _is_missed(store, name, actual)}
    compared = actual | missing
    differing = [name for name in sorted(known.keys() | actual.keys()) if not _same(known, compared, name)]
    if group.documents.group_keys(group.path)[0] not in {*actual, key}:
        missing = {}
    if not differing:
        return None, missing
    more = f" and {len(differing) - _MAX_NAMED} more" if len(differing) > _MAX_NAMED else ""
    return f"differs from the documents at {', '.join(map(repr, differing[:_MAX_NAMED]))}{more}", missing


def _is_missed(store: Store, key: str, actual: Mapping[str, bytes]) -> bool:
    """Return whether a document is missing from the store: more of its node is there, but nothing that makes a node."""
    folder, slash, _ = key.rpartition("/")
    entries = {f"{folder}{slash}{name}" for each in FORMATS if each.node_keys_known for name in entry_names(each)}
    return entries.isdisjoint(actual) and bool(store.list_dir(folder + slash))


def _actual(group: StoredGroup, nodes: Iterable[StoredNode], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the current documents that consolidated metadata of the group should hold."""
    prefix = f"{group.path}/" if group.path else ""
    wanted = set(known)
    for node in nodes:
        if node.path.startswith(prefix) and node.path != group.path:
            wanted.update(node_keys(group.documents, node.path))
    return present(fetch(group.store.uncached, sorted(wanted)))


def _same(known: Mapping[str, bytes], actual: Mapping[str, bytes], key: str) -> bool:
    if key not in known or key not in actual:
        return False
    try:
        one, other = parse_json(key, known[key]), parse_json(key, actual[key])
    except MetadataError:
        return False
    for document in (one, other):
        document.pop("consolidated_metadata", None)  # of groups below, which have their own
    return same_json(one, other)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a store, found by `chunkmill.check`.

    Attributes
    ----------
    kind
        ``"torn"``: a shard whose index does not fit it; ``"short"``: a value that ends too early; ``"corrupt"``: a
        value that does not decode for another reason; ``"failed"``: a value that the store could not return.
        ``"orphan"``: a key that is not a chunk in its array's grid, or that belongs to no node.
        ``"leftover"``: a partial file of a writer that died, or files that a job did not delete.
        ``"unfinished"``: a job or an append that was interrupted; ``"running"``: a job whose client is alive.
        ``"stale"``: consolidated metadata that differ from the documents.
        ``"metadata"``: an invalid document; ``"unsupported"``: a document with a feature that chunkmill lacks.
    path
        Path of the node.
    key
        Store key.
    coords
        Coordinates of the chunk in the array's chunk grid; of a whole shard, in the grid of shards.
    reason
        Description of the problem.
    repaired
        Whether `chunkmill.check` has repaired it.
    """

    kind: str
    path: str
    key: str
    reason: str
    coords: tuple[int, ...] | None = None
    repaired: bool = False

    def __str__(self) -> str:
        where = f" chunk {self.coords}" if self.coords is not None else ""
        done = " (repaired)" if self.repaired else ""
        return f"{self.kind}: {self.key}{where}: {self.reason}{done}"


@dataclass(slots=True)
class Inventory:
    """Nodes and keys at and below a path.

    Attributes
    ----------
    arrays, groups
        The nodes.
    chunks
        For each array the coords of its stored keys, one row each.
    undocumented
        Paths of nodes that no group above them leads to, since folders in between have no document of a group.
    appends
        Path of a group -> array, chunk and store key of what its append, whose client has died, or which is running,
        has stored past the end of arrays.
    problems
        Problems found so far.
    repairs
        Functions that repair problems, and return false where they could not.
    repaired
        Problems that have been repaired.
    """

    store: Store
    path: str
    arrays: list[StoredArray] = field(default_factory=list)
    groups: list[StoredGroup] = field(default_factory=list)
    chunks: list[NDArray[np.int64]] = field(default_factory=list)
    undocumented: list[str] = field(default_factory=list)
    appends: dict[str, list[tuple[str, tuple[int, ...], str]]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    repairs: dict[Problem, Callable[[], Any]] = field(default_factory=dict)
    repaired: set[Problem] = field(default_factory=set)

    @property
    def nodes(self) -> list[StoredNode]:
        """Groups and arrays."""
        return [*self.groups, *self.arrays]

    def report(self, problem: Problem, repair: Callable[[], Any] | None = None) -> None:
        """Add a problem, and how it is repaired, if it can be."""
        self.problems.append(problem)
        if repair is not None:
            self.repairs[problem] = repair

    def add(self, node: StoredNode) -> None:
        """Add an array or a group; of a folder without a document only the nodes below it count."""
        if isinstance(node, StoredArray):
            self.arrays.append(node)
        elif node.is_documented:
            self.groups.append(node)


def take_inventory(store: Store, path: str = "") -> Inventory:
    """List a store below `path` and classify its keys.

    Raises
    ------
    NodeNotFound
        There is nothing at `path`, not even an unfinished job.
    """
    found = Inventory(store, path.strip("/"))
    try:
        jobs = _unfinished(found)
    except StoreError:  # a web server
        return _without_listing(found)
    top, nothing = _top(found)
    if top is not None:
        _add_nodes(found, top)
    found.appends.update({path: [] for path in sorted({*_marked(found), *(job.path for job in jobs if job.scope)})})
    _Keys(found, jobs).sort(_listed(store, found, top))
    if nothing is not None and not (jobs or found.arrays or found.groups):
        raise nothing
    _leftovers(found, {run_tag(job.run) for job in jobs})
    marked = _dead_appends(found, [job for job in jobs if job.scope])
    undocumented = set(found.undocumented)  # not in consolidated metadata: no group leads to them
    listed = [node for node in found.nodes if node.path not in undocumented]
    for group in found.groups:
        key = group.documents.consolidated_key(group.path)
        if any(is_within(path, group.path) or path == group.path for path in marked):
            continue  # changed last by an append
        reason, missing = (None, {}) if key is None else staleness(group, key, listed)
        for missed in sorted(missing):
            reads = "consolidated metadata alone have it: readers that do not use those find no such node"
            problem = Problem("metadata", missed.rpartition("/")[0], missed, reads)
            if problem not in found.repairs:
                found.report(problem, partial(put_back, store, {missed: None}, {missed: missing[missed]}))
        if key is not None and reason:
            found.report(Problem("stale", group.path, key, reason), partial(_consolidate, found, group))
    return found


def _consolidate(found: Inventory, group: StoredGroup) -> bool:
    """Write consolidated metadata again, unless they would lose a node that cannot be read."""
    prefix = f"{group.path}/" if group.path else ""
    left = [p for p in found.problems if p.kind in {"metadata", "unsupported"} and p not in found.repaired]
    if any(problem.path.startswith(prefix) for problem in left):
        return False
    opening.consolidate(found.store, group)
    return True


def _top(found: Inventory) -> tuple[StoredNode | None, NodeNotFound | None]:
    """Open the node; without one, return the error if nothing at all is there, or report the invalid document."""
    for consolidated in (None, False):  # the latter where consolidated metadata are invalid, which is a problem itself
        try:
            node = open_stored(found.store, found.path, consolidated=consolidated, read_only=False)
            return opening.as_stored(node), None
        except NodeNotFound as error:
            return None, error
        except ChunkmillError as error:
            problem = error
    _report_document(found, found.path, problem)
    return None, None


def _without_listing(found: Inventory) -> Inventory:
    """Take the nodes that metadata name, consolidated ones too, and all chunks of their grids."""
    _add_nodes(found, open_stored(found.store, found.path))
    for array in found.arrays:
        grid_shape = array.write_layout.grid.grid_shape
        if prod(grid_shape) > _MAX_UNLISTED:
            reason = f"the store cannot list keys, and a grid of {grid_shape} store keys is too large to try each"
            raise StoreError(url=array.url, key=array.prefix, reason=reason)
        found.chunks.append(np.indices(grid_shape, np.int64).reshape(array.ndim, -1).T)
    return found


_MAX_UNLISTED = 1 << 22


def _add_nodes(found: Inventory, top: StoredNode) -> None:
    """Add `top` and everything below it; nodes that cannot be opened are problems."""
    folders: list[str] = []
    for node in opening.walk(top, on_error=lambda path, error: _report_document(found, path, error)):
        found.add(node)
        if isinstance(node, StoredGroup) and not node.is_documented:
            folders.append(f"{node.path}/")
        elif node.path.startswith(tuple(folders)):
            found.undocumented.append(node.path)


def _report_document(found: Inventory, path: str, error: ChunkmillError) -> None:
    cannot = isinstance(error, (UnsupportedFeature, UnknownCodec))
    key = str(getattr(error, "key", "")) or path
    problem = Problem("unsupported" if cannot else "metadata", path, key, str(error))
    found.report(problem, partial(_delete_blank, found.store, key))


def _delete_blank(store: Store, key: str) -> bool:
    """Delete a document that a crash of the machine has left empty."""
    value = store.get(key)
    if value is None or not is_blank(value):
        return False
    conflicts.update(store, key, lambda value: None if is_blank(value or b"") else value)
    return True


def _listed(store: Store, found: Inventory, top: StoredNode | None) -> Iterator[str]:
    """Yield every key at and below the path, whatever the format."""
    if not found.path:
        yield from store.list_prefix("")
        return
    prefixes = {f"{found.path}/"}
    formats = FORMATS if top is None else [format_of_store(store, top.format)]
    for documents_format in formats:
        prefixes |= {documents_format.chunk_prefix(found.path), *documents_format.list_prefixes(found.path)} - {""}
    seen: list[str] = []
    for prefix in sorted(prefixes):
        if not any(prefix.startswith(other) for other in seen):
            seen.append(prefix)
            yield from store.list_prefix(prefix)


class _Keys:
    """Sort keys into chunks of arrays, known keys, and problems."""

    def __init__(self, found: Inventory, jobs: Iterable[UnfinishedJob]) -> None:
        self.found = found
        self.owners: dict[str, int] = {}
        self.chunks: list[list[tuple[int, ...]]] = []
        self.documents: set[str] = set()
        for node in found.nodes:
            self._know(node)
        unreadable = [p.path for p in found.problems if p.kind in {"metadata", "unsupported"}]
        self.documents.update(key for path in unreadable for key in _document_keys(FORMATS, path))
        hidden = [*unreadable, *(job.path for job in jobs)]
        self.hidden = tuple(prefix for path in hidden for prefix in _prefixes(path))

    def _know(self, node: StoredNode) -> None:
        # a node may have documents of two formats, and some formats are configured by their root
        own = format_of_store(node.store, node.format) if isinstance(node, StoredArray) else node.documents
        self.documents.update(_document_keys((own, *FORMATS), node.path))
        if isinstance(node, StoredArray):
            self.owners[node.prefix] = len(self.chunks)
            self.chunks.append([])

    def sort(self, keys: Iterable[str]) -> None:
        """Sort all keys, and add the nodes that only their documents show."""
        unknown = [key for key in keys if not self._sorted(key)]
        if self._discovered(unknown):
            unknown = [key for key in unknown if not self._sorted(key)]
        for key in unknown:
            if not key.startswith(self.hidden):
                self.found.report(Problem("orphan", "", key, "it belongs to no node"))
        self.found.chunks = [
            np.array(sorted(coords), np.int64).reshape(len(coords), array.ndim)
            for array, coords in zip(self.found.arrays, self.chunks, strict=True)
        ]

    def _sorted(self, key: str) -> bool:
        is_tag = key.rpartition("/")[2].startswith(TAG_PREFIX)
        if is_tag or key in self.documents or key.startswith((JOB_PREFIX, LOCK_PREFIX, PROBE_PREFIX)):
            return True
        which = self._owner(key)
        if which is not None:
            self._sort_chunk(which, key)
        return which is not None

    def _discovered(self, unknown: Iterable[str]) -> bool:
        """Open nodes of other formats, and below folders that were not walked; return whether there are any."""
        names = {key.rpartition("/")[2] for each in FORMATS if each.node_keys_known for key in node_keys(each, "a")}
        paths = {key.rpartition("/")[0] for key in unknown if key.rpartition("/")[2] in names}
        n_before = len(self.found.nodes)
        for path in sorted(paths):
            try:
                node = open_stored(self.found.store, path, consolidated=False, read_only=False)
            except NodeNotFound:
                continue
            except ChunkmillError as error:
                _report_document(self.found, path, error)
                self.documents.update(_document_keys(FORMATS, path))
                self.hidden = (*self.hidden, *_prefixes(path))
            else:
                self.found.add(node)
                self.found.undocumented.append(node.path)
                self._know(node)
        return len(self.found.nodes) > n_before

    def _owner(self, key: str) -> int | None:
        """Return the number of the array to whose prefix the key belongs."""
        end = len(key)
        while (end := key.rfind("/", 0, end)) >= 0:
            if (which := self.owners.get(key[: end + 1])) is not None:
                return which
        return self.owners.get("")

    def _sort_chunk(self, which: int, key: str) -> None:
        array = self.found.arrays[which]
        coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], array.ndim)
        shape = array.metadata.chunk_grid.grid_shape  # not of its layout: its codecs may be unknown here
        if coords is None:
            reason = "it is below an array and is not one of its chunk keys"
            self.found.report(Problem("orphan", array.path, key, reason))
        elif all(i < n for i, n in zip(coords, shape, strict=True)):
            self.chunks[which].append(coords)
        elif (append := next((path for path in self.found.appends if is_within(array.path, path)), None)) is not None:
            self.found.appends[append].append((array.path, coords, key))
        else:
            reason = f"it is outside the grid of {shape} store keys"
            self.found.report(Problem("orphan", array.path, key, reason, coords))


def _at(formats: Iterable[Format], path: str) -> Iterator[tuple[Format, str]]:
    """Yield each format that has such a path, and the path there."""
    for documents_format in formats:
        with suppress(MetadataError):
            yield documents_format, documents_format.normalize_path(path)


def _document_keys(formats: Iterable[Format], path: str) -> Iterator[str]:
    """Yield the keys of a node's documents in each format."""
    for documents_format, at in _at(formats, path):
        yield from documents_format.root_keys()
        yield from node_keys(documents_format, at)
        if (key := documents_format.consolidated_key(at)) is not None:
            yield key


def _prefixes(path: str) -> Iterator[str]:
    """Yield the prefixes of chunks, and of what is below, of a node at `path` in every format."""
    for documents_format, at in _at(FORMATS, path):
        yield documents_format.chunk_prefix(at)
        if at:
            yield from documents_format.list_prefixes(at)


# --------------------------------------------------------------------------------------------------------------------
# Leftovers of jobs and writers


def _unfinished(found: Inventory) -> list[UnfinishedJob]:
    jobs: list[UnfinishedJob] = []
    for job in unfinished_jobs(found.store):
        if is_within(job.path, found.path) or job.is_damaged:
            jobs.append(job)
            if job.is_running or not job.scope:
                problem = job_problem(found.store, job)
                dead = problem.kind == "leftover" and not job.scope
                found.report(problem, partial(_discard, found.store, job.key) if dead else None)
    return jobs


def _discard(store: Store, key: str) -> bool:
    """Delete the journal of a dead job, if it is still dead: a check may take hours."""
    jobs = [job for job in unfinished_jobs(store) if job.key == key and not job.is_running]
    dead = [job for job in jobs if job_problem(store, job).kind == "leftover"]
    discard_jobs(store, dead)
    return bool(dead)


def job_problem(store: Store, job: UnfinishedJob) -> Problem:
    """Return how a job that has not ended is reported: running, unfinished, or a leftover."""
    kind, key = ("running" if job.is_running else "unfinished"), job.key
    state = "is running" if job.is_running else "was interrupted: run it again to resume it"
    state += "" if job.silence is None else f", or its client has died, which is silent for {job.silence:.0f} s"
    if job.is_lease and not job.is_running:
        state = "was interrupted: run it again, or write something else there"
        if _is_visible(store, job.path):
            state = "was interrupted when all was written"
            kind, key = "leftover", f"{job.key.rpartition('/')[0]}/"
    if job.is_damaged:
        text = "the plan of a job is damaged: the same call resumes it, `chunkmill jobs --discard` drops it"
        if not (job.is_running or Records(store, job.key.removesuffix(PLAN), "").names()):
            kind, text = "leftover", "the plan of a job is damaged, and no task is on record"
        return Problem(kind, job.path, key, text)
    if job.is_in_place:
        state += "; what it has replaced is gone, and only consolidated metadata may be missing"
    elif job.replaces:
        state += "; the array or group that it replaces is there until it is done"
    return Problem(kind, job.path, key, f"{job.job}, begun {job.began}, {state}")


def _is_visible(store: Store, path: str) -> bool:
    """Return whether there is an array or a group with a document of its own."""
    with suppress(ChunkmillError):  # what is damaged is reported as such
        node = opening.find_stored(store, path)
        return node is not None and not (isinstance(node, StoredGroup) and node.is_implicit)
    return False


def _marked(found: Inventory) -> dict[str, UnfinishedAppend]:
    """Return the topmost groups whose attributes record an append that is being published, or was interrupted there."""
    appends = {group.path: UnfinishedAppend.of(group.metadata.attributes) for group in found.groups}
    marked = {path: append for path, append in appends.items() if append.dim}
    return {path: each for path, each in marked.items() if not any(is_within(path, o) for o in marked if o != path)}


def _dead_appends(found: Inventory, jobs: Iterable[UnfinishedJob]) -> Collection[str]:
    """Report each append whose client has died in one problem, and return the groups where one was being published."""
    dead = {job.path: job for job in jobs if not job.is_running}
    running = [job.path for job in jobs if job.is_running]
    marked = {path: a for path, a in _marked(found).items() if not any(is_within(path, r) for r in running)}
    keys = {group.path: group.documents.group_keys(group.path)[-1] for group in found.groups}
    for path, append in marked.items():
        arrays = ", ".join(map(repr, sorted(append.shapes)[:_MAX_NAMED]))
        reason = f"an append along {append.dim!r} to {arrays} was interrupted while it became visible: repeat it"
        more = ", or repair this" * bool(append.after)
        found.report(Problem("unfinished", path, keys[path], reason + more), partial(_end_append, found, path))
    for path in dead.keys() - marked.keys():
        past = found.appends[path]
        n_keys, n_arrays = len(past), len({array for array, *_ in past})
        reason = f"{dead[path].job}, begun {dead[path].began}, was interrupted before its elements became visible: "
        reason += f"{n_keys:,} store keys of {n_arrays} arrays are past their ends; the same append writes them again"
        key = f"{dead[path].key.rpartition('/')[0]}/"
        problem = Problem("leftover", path, key, f"{reason}, and repair removes them")
        found.report(problem, partial(_end_append, found, path))
    return marked


def _end_append(found: Inventory, path: str) -> bool:
    return end_dead_append(found.store, path, found.appends[path])


def _leftovers(found: Inventory, proofs: Collection[str]) -> None:
    """Find files of writers and jobs that are over; unfinished jobs know by `proofs` that all is in place."""
    store = found.store

    def leftover(key: str, reason: str, repair: Callable[[], Any]) -> None:
        found.report(Problem("leftover", "", key, reason), repair)

    for key in store.sweep(f"{found.path}/" if found.path else "", remove=False):
        above = key.rpartition("/")[0]
        prefix, is_outside = ("", above == "..") if above in {"", ".."} else (f"{above}/", False)
        leftover(key, "a partial file of a writer that died", partial(store.sweep, prefix, recursive=is_outside))
    names = [] if found.path else store.list_dir("")
    locks = {name: name.rpartition("-")[0] for name in names if name.startswith(LOCK_PREFIX)}
    held = {path for name, path in locks.items() if any_live(stored_beats(store, [name]))}
    for name in names:
        remove = partial(store.delete_prefix if name.endswith("/") else store.delete, name)
        if name.startswith(TAG_PREFIX) and name not in proofs:
            leftover(name, "the commit proof of a job that replaced what was here", partial(_delete_proof, store, name))
        elif name in locks and locks[name] not in held:
            leftover(name, "of a lock, of a process that died", remove)
        elif name.startswith(PROBE_PREFIX):
            leftover(name, "a probe that a job's workers wrote", remove)
        elif name.startswith(JOB_PREFIX) and not name.endswith("/"):
            leftover(name, "a link, or a file, where a job keeps its records", remove)
        elif name.startswith(JOB_PREFIX) and store.get(f"{name}{PLAN}") is None:
            # unless a job has begun there since
            leftover(name, "records of a job without a plan", partial(clear_journal, store, name))


def _delete_proof(store: Store, key: str) -> None:
    if key not in {run_tag(job.run) for job in unfinished_jobs(store)}:
        store.delete(key)
