"""Write new nodes by a job: room for them, staging where they replace others, documents last (P4, P5, P6).

Not here: the journal of the job (`chunkmill.journal.journal`), the states of a replacement and what a client does after
a crash (`chunkmill.journal.plans`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Self

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.errors import JobError, MetadataError, NodeExists
from chunkmill.formats.base import Format
from chunkmill.journal.journal import Journal
from chunkmill.journal.lease import check_no_job, discard_jobs, leased
from chunkmill.journal.plans import (
    JOB_PREFIX,
    PLAN,
    TAG_PREFIX,
    forget_tag,
    is_in_place,
    is_of_run,
    is_tagged,
    journal_prefix,
    put_in_place,
    run_tag,
    staged_prefix,
)
from chunkmill.journal.unfinished import jobs_at
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, is_within, parents_of
from chunkmill.nodes import delete
from chunkmill.nodes.changes import Change, with_changed
from chunkmill.nodes.documents import (
    check_own,
    check_root,
    create_node,
    create_nodes,
    entry_keys,
    fetch,
    forget_consolidated,
    format_of_store,
    join_path,
    node_keys,
    node_prefix,
    present,
    refresh_consolidated,
    unpublish,
)
from chunkmill.nodes.opening import (
    array_at,
    check_nothing_hidden,
    find_stored,
    has_no_documents,
    missing_above,
    seen_at_once,
)
from chunkmill.nodes.stored_group import StoredGroup, StoredNode, child_names
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import create


@dataclass(frozen=True, slots=True)
class Target:
    """New nodes of one store and format, or arrays that are written into; can be pickled.

    Attributes
    ----------
    path
        Of the first of the topmost nodes, which the job is named after.
    arrays
        Where chunks are written.
    groups
        Metadata of the new groups by path.
    overwrite
        Whether nodes at their paths are replaced; ``None``: the arrays exist, and are written into.
    group
        Path of the group, which exists, that the nodes are added to.
    run
        Name of the run.
    is_staged
        Whether the nodes are written below staging prefixes of the run, and renamed when they are complete (P6).
    again
        Whether an earlier client of the run, or another one, may have published some of them: equal documents are
        theirs then, else of others (P4).
    """

    store: Store
    path: str
    format: Format
    arrays: Sequence[StoredArray]
    groups: Mapping[str, GroupMetadata] = field(default_factory=dict)
    overwrite: bool | None = False
    group: str | None = None
    run: str = ""
    is_staged: bool = False
    again: bool = True

    @property
    def paths(self) -> list[str]:
        """Paths of all nodes, groups first."""
        return [*self.groups, *(array.path for array in self.arrays)]

    @property
    def tops(self) -> list[str]:
        """Paths of the topmost nodes."""
        order = {path: n for n, path in enumerate(self.paths)}
        tops: list[str] = []
        for path in sorted(order, key=lambda path: path and f"{path}/"):  # what is below a path follows it
            if not (tops and is_within(path, tops[-1])):
                tops.append(path)
        return sorted(tops, key=order.__getitem__)

    def keeps_old(self) -> bool | None:
        """Return whether nodes that are there stay until the new ones are complete; ``None`` where there are none."""
        there = {path: old for path in self.tops if (old := self._format_at(path)) is not None}
        return all(self._keeps(path, old) for path, old in there.items()) if there else None

    def _format_at(self, path: str, seen: Store | None = None) -> Format | None:
        """Return the format of the node at `path`, that of the new one where it does not open; ``None`` without one."""
        try:
            there = find_stored(seen or self.store, path)
        except MetadataError:
            return self.format
        if there is None:
            return None
        return there.documents if isinstance(there, StoredGroup) else format_of_store(self.store, there.format)

    def _keeps(self, path: str, old: Format) -> bool:
        """Return whether documents and chunks of both nodes are below one prefix, which the store renames (P6)."""
        prefix = node_prefix(self.format, path)
        is_below = all(key.startswith(prefix) for key in (*node_keys(self.format, path), *node_keys(old, path)))
        return is_below and self.store.can_replace(prefix)

    def prepared(self, journal: Journal, check: Callable[[], object] = lambda: None) -> Self:
        """Return the target of a run that is about to begin: staged, where what it replaces can stay; else with room.

        Parameters
        ----------
        check
            Called before anything is deleted; it may raise.

        Raises
        ------
        NodeExists, JobError
            There is a node, and not `overwrite`, or an array above one; or somebody is at work there.
        """
        is_staged = bool(self.overwrite and self.keeps_old())
        if is_staged:
            self._discard_interrupted(journal.name_run())
            journal.plan = replace(journal.plan, old_prefix=node_prefix(self.format, self.path))
        target = self._in_run(journal.name_run(), is_staged=is_staged)
        if not self.overwrite:
            self.make_room(of_job=True)
        elif not is_staged:
            check_root(self.store, self.format)
            check()
            with journal.reserving():
                target.make_room(again=bool(journal.interrupted))
        return target

    def resumed(self, journal: Journal) -> Self:
        """Return the target of a run that was interrupted."""
        return self._in_run(journal.plan.run, is_staged=journal.plan.old_prefix is not None)

    def stays_free(self, journal: Journal) -> bool:
        """Give a run that has begun up where another writer has reserved or taken its place since room was made.

        Others look for jobs after they have reserved a place: of two that begin at once, one sees the other (P4).
        Returns ``False`` where another client, which has resumed this run, may have made the node that is there.

        Raises
        ------
        NodeExists, JobError
            As of `prepared`. The journal is discarded then.
        """
        if self.overwrite and not self.is_staged:  # it has reserved the place, and looked since: others give way
            return True
        try:
            # what is said of nodes afterwards is true after waiting, too
            check_no_job(self.store, self.path, own_run=self.run, below=self.overwrite is not None, waits=True)
            if self.overwrite is False:
                self.make_room(of_job=True)
        except BaseException as error:
            if isinstance(error, NodeExists) and journal.is_joined():
                return False
            journal.discard()
            raise
        return True

    def _in_run(self, run: str, *, is_staged: bool) -> Self:
        if not is_staged:
            return replace(self, run=run)
        prefixes = dict(self._staged_prefixes(run))
        arrays = []
        for array in self.arrays:
            top = next(path for path in (array.path, *parents_of(array.path)) if path in prefixes)
            prefix = prefixes[top] + array.prefix.removeprefix(node_prefix(self.format, top))
            arrays.append(StoredArray(array.store, array.path, array.metadata, array.format, prefix))
        return replace(self, run=run, arrays=arrays, is_staged=True)

    def _staged_prefixes(self, run: str) -> list[tuple[str, str]]:
        return [(path, staged_prefix(self.path, run, number)) for number, path in enumerate(self.tops)]

    def _discard_interrupted(self, run: str, *, waits: bool = False) -> bool:
        """Discard the jobs that have ended at or below the paths; return whether there were any."""
        options: Any = {"overwrite": True, "own_run": run, "waits": waits}
        found = [job for path in self.tops for job in check_no_job(self.store, path, **options)]
        discard_jobs(self.store, found)
        return bool(found)

    @contextmanager
    def held(self, job: str, *, continues: bool = False) -> Iterator[Self]:
        """Lease the paths inside, and yield the target to write to: staged where the old node can stay, else with room.

        What is written is deleted where the caller fails. With `continues`, the lease stays as that of a client that
        has died, and what is staged, to be published later inside of `continued`.

        Raises
        ------
        NodeExists, JobError
            There is a node, and not `overwrite`, or an array above one; or somebody is at work there.
        """
        store, is_staged = self.store, bool(self.overwrite and self.keeps_old())
        old = node_prefix(self.format, self.path) if is_staged else None
        is_dead = bool(self.overwrite) and not is_staged and self._discard_interrupted("")
        with leased(store, self.path, job, old_prefix=old, continues=continues) as own:
            new = replace(self._in_run(own.run, is_staged=is_staged), again=False)
            with new.leases(job):
                if is_staged:
                    self._discard_interrupted(own.run, waits=True)
                elif not new.make_room(again=own.follows_interrupted or is_dead):
                    delete.delete_stored_chunks(new.arrays)  # of a write that was interrupted
                try:
                    yield new
                except BaseException as error:
                    with suppress(OSError):  # the first error is raised, not that of the roll back
                        # not where another writer has taken the lease over and stored values while this one slept (P4)
                        if not own.run or is_of_run(store.get(f"{journal_prefix(self.path)}{PLAN}"), own.run):
                            new.take_back(error.path if isinstance(error, NodeExists) else None)
                    raise

    def take_back(self, of_others: str | None) -> None:
        """Delete what was written to nodes that are not visible; the document at the path `of_others` is not ours (P8).

        Chunks would be values of whatever is created there next.
        """
        if self.is_staged:
            for _, prefix in self._staged_prefixes(self.run):
                self.store.delete_prefix(prefix)
            return
        nodes = self.documents()
        if of_others is not None or not self.visible([self.path]):
            for path in nodes.keys() - {of_others}:
                unpublish(self.store, self.format, path, nodes[path])
        visible = self.visible([array.path for array in self.arrays]) - {of_others}
        delete.delete_stored_chunks(array for array in self.arrays if array.path not in visible)

    def visible(self, paths: Iterable[str]) -> set[str]:
        """Return those paths at which a node of the format is."""
        entries = {key: path for path in paths for key in entry_keys(self.format, path)}
        return {entries[key] for key in present(fetch(self.store, entries))}

    def create(self, job: str) -> None:
        """Make nodes without chunks visible.

        Where nothing is stored at their paths, no lease is needed (P4): each document is written only where there is
        none, and writers that have leased a path before that, and saw none, are looked for afterwards.

        Raises
        ------
        NodeExists, UnsupportedFeature
            There is a node, or an array above one; or the format cannot hold one. Nothing is created then.
        JobError
            A job, or another writer, is at work there.
        """
        with self.store.transaction(job):
            self.documents()  # what the format cannot hold is refused before all else
            for each in [self] if self.overwrite else self._create_free():
                with each.held(f"{job} in {self.store.url}") as new:
                    new.publish(consolidates=False)

    def _create_free(self) -> list[Self]:
        """Create the nodes at whose paths nothing is stored; return the others, one by one (P4)."""
        if len(self.arrays) <= 1 and not self.make_room():
            return [self]
        taken = self._taken() if len(self.arrays) > 1 else set()
        free = replace(self, arrays=[array for array in self.arrays if array.path not in taken], again=False)
        if nodes := free.documents():
            free.publish(consolidates=False)
            try:
                below = len(nodes) > 1
                if jobs_at(self.store, *nodes, below=below):
                    check_no_job(self.store, *nodes, below=below, waits=True)
                    delete.delete_stored_chunks(free.arrays)  # of those that have given up since
                groups = (self.format.emit_group(each, GroupMetadata()) for path in nodes for each in parents_of(path))
                if None in fetch(self.store, chain.from_iterable(groups)).values():  # others have deleted some since
                    free.make_groups_above(free.visible(nodes))
            except (JobError, NodeExists):
                for path, its in nodes.items():
                    unpublish(self.store, self.format, path, its)
                self.refresh_consolidated()
                raise
        return [replace(self, path=array.path, arrays=[array]) for array in self.arrays if array.path in taken]

    def _taken(self) -> set[str]:
        """Return those paths of many arrays at which something is stored, of writers that were interrupted.

        Raises
        ------
        NodeExists
            There is a node at one of the paths, or an array above one.
        JobError
            A job, or another writer, is at work there.
        """
        paths = [array.path for array in self.arrays]
        check_no_job(self.store, *paths, below=True)
        check_root(self.store, self.format)
        missing_above(self.store, paths, self.format)
        parents = {parent for path in paths for parent in parents_of(path)}
        if nested := sorted(parents & set(paths)):
            raise NodeExists(
                url=self.store.url, path=nested[0], found="array", hint="an array cannot have nodes below it"
            )
        groups = {path.rpartition("/")[0] for path in paths if path}
        folders = {join_path(group, name) for group in groups for name in child_names(self.store, self.format, group)}
        found = [path for path in paths if path in folders]
        # attributes alone are of a node that was half written: it is written again
        if there := self.visible(found):
            hint = f"{len(there):,} of {len(paths):,} arrays exist; nothing was created"
            raise NodeExists(url=self.store.url, path=min(there), found="node", hint=hint)
        return set(found)

    @contextmanager
    def continued(self, job: str, n_chunks: int) -> Iterator[None]:
        """Hold the lease again that `held` has left, while the nodes are published, of which that many are stored (P4).

        Raises
        ------
        JobError
            Another writer has taken the place since.
        """
        taken = JobError(job=job, reason="another writer has taken the place since", hint="write it again")
        plan, old = self.store.get(f"{journal_prefix(self.path)}{PLAN}"), node_prefix(self.format, self.path)
        # without a plan, what was staged and published may be computed again
        if self.run and not is_of_run(plan, self.run) and (plan is not None or not self.is_staged):
            raise taken
        with leased(self.store, self.path, job, run=self.run, old_prefix=old if self.is_staged else None) as own:
            if plan is not None and not own.follows_interrupted:
                raise taken
            staged = staged_prefix(self.path, self.run)  # the plan is deleted before it, which has a tag now
            if self.is_staged and sum(1 for _ in self.store.list_prefix(staged)) <= n_chunks:
                raise taken
            yield

    def make_room(self, *, of_job: bool = False, again: bool = False) -> bool:
        """Check that the nodes can be made; with `overwrite`, delete what is there, whole if `again` half is.

        Return whether nothing is stored there then. A job looks for others at its first path itself, when it has begun.
        """
        paths = [] if self.overwrite is None else self.tops
        try:
            rooms = [self._make_room_at(each, looks=not of_job or each != self.path, again=again) for each in paths]
        except NodeExists:
            self.refresh_consolidated()  # its writer may have died before it did so
            check_no_job(self.store, *self.tops, own_run=self.run)  # or an array hides what a job writes
            raise
        if self.overwrite and not all(rooms):  # documents below a path that has none: of others, they would stay
            self.store.delete_many([*present(fetch(self.store, chain.from_iterable(self.documents().values())))])
        return all(rooms)

    def _make_room_at(self, path: str, *, looks: bool, again: bool) -> bool:
        """Check and clear one path; return whether no chunks are stored there then, nor a writer has died there."""
        store, overwrite, run = self.store, bool(self.overwrite), self.run
        if again:
            delete.withdraw_below(store, path)
        # those that write below it make a group of the place
        options: Any = {"below": bool(run and self.groups), "waits": bool(run), "own_run": run, "overwrite": overwrite}
        jobs = partial(check_no_job, store, path, **options) if looks else list
        look = partial(seen_at_once, store, path, self.format, is_new=not overwrite)
        if run or overwrite:  # in this order: the nodes of a job that ends in between are seen
            interrupted, seen = jobs(), look()
        else:
            interrupted, seen = at_once(store, jobs, look)
            if interrupted:  # its lease is taken first, and what it has published is withdrawn
                return False
        if not (overwrite or path) and seen.has_folders and all(n.startswith(JOB_PREFIX) for n in seen.list_dir("")):
            return True
        check_root(seen, self.format)
        missing_above(seen, [path], self.format)
        if overwrite:
            discard_jobs(store, interrupted)
            # chunks of those that died, which no document makes a node of, are of whatever format
            is_torn = bool(interrupted) or again
            for each in delete.formats_of(store, path) if is_torn else [self._format_at(path, seen)]:
                if each is not None:
                    delete.clear(store, path, each)
            seen = store
        else:
            there = find_stored(seen, path)
            if isinstance(there, StoredArray) or (there is not None and not has_no_documents(there)):
                found = "array" if isinstance(there, StoredArray) else "group"
                raise NodeExists(url=store.url, path=path, found=found)
            if self.arrays:  # an array hides nodes below it, and a job takes them for its own
                check_nothing_hidden(seen, path, self.format)
        names = seen.list_dir(self.format.chunk_prefix(path)) if self.arrays and store.can_list else []
        return all(name.startswith(JOB_PREFIX) for name in names)

    @contextmanager
    def leases(self, job: str) -> Iterator[None]:
        """Hold the paths of all topmost nodes but the first, which the journal holds (P4)."""
        with ExitStack() as held:
            for path in self.tops[1:]:
                held.enter_context(leased(self.store, path, job, run=self.run))
                if self.is_staged:
                    check_no_job(self.store, path, own_run=self.run, below=True, waits=True)
            yield

    def is_fresh(self) -> bool:
        """Return whether there is nothing yet where the nodes are written."""
        staged = dict(self._staged_prefixes(self.run)) if self.is_staged else {}
        prefixes = [staged.get(path) or self.format.chunk_prefix(path) for path in self.tops]
        return all(self.store.is_empty(at, besides=(JOB_PREFIX, TAG_PREFIX)) for at in prefixes)

    def check_own(self) -> None:
        """Raise `NodeExists` where others have made a node while the job was interrupted, before it writes (P4)."""
        check_own(self.store, self.format, self.documents() if self.overwrite is False else {})

    def documents(self) -> dict[str, dict[str, bytes]]:
        """Return the documents of each node by its path, groups first."""
        nodes = {path: self.format.emit_group(path, group) for path, group in self.groups.items()}
        return nodes | {array.path: self.format.emit_array(array.path, array.metadata) for array in self.arrays}

    def publish(self, *, consolidates: bool = True, changes: Iterable[tuple[StoredNode, Change]] = ()) -> list[str]:
        """Make the nodes visible: groups above them, members, the topmost group, consolidated metadata (P5).

        Returns the keys of their documents, and of those of groups above that were missing.

        Parameters
        ----------
        consolidates
            Whether a new topmost group gets consolidated metadata, where the format has them.
        changes
            Of the attributes of nodes that exist, such as those of the group of an image that gets further levels:
            written last.

        Raises
        ------
        JobError
            The job has ended.
        NodeExists
            Others have made one of the nodes.
        """
        if self.overwrite is None:
            self.store.flush()
            return []
        nodes = self.documents()
        top = self.path if self.group is None and self.path in self.groups else None
        consolidates &= top is not None and not self.store.has_transactions
        if consolidates and top is not None and self.format.consolidated_key(top) is not None:
            every = {key: value for documents in nodes.values() for key, value in documents.items()}
            nodes[top] |= self.format.emit_consolidated(top, every)
        written = [key for documents in nodes.values() for key in documents]
        if self.is_staged:
            self._put_in_place(nodes)
        else:
            written += self._create(nodes, top)
        for node, change in changes:
            with_changed(node, change)
        return written

    def _create(self, nodes: dict[str, dict[str, bytes]], top: str | None) -> list[str]:
        """Create nodes by their documents, that at `top` last, and groups above them; return the keys of these."""
        try:
            written = self.make_groups_above([] if self.group is not None else self.tops)
            if not self.path:
                nodes[""] = {**self.format.emit_root(), **nodes[""]}
            own = {} if top is None else nodes.pop(top)
            if own and nodes:
                delete.announce_below(self.store, self.format, self.path)
            create_nodes(self.store, self.format, nodes, again=self.again)
            if own:
                create_nodes(self.store, self.format, {self.path: own}, again=self.again)
        except NodeExists:  # others may have consolidated a document since that is withdrawn
            self.refresh_consolidated()
            raise
        self.refresh_consolidated()
        self.store.flush()
        return written

    def refresh_consolidated(self) -> None:
        """Bring consolidated metadata above the nodes up to date."""
        if self.path:
            refresh_consolidated(self.store, self.format, self.paths, own=False)

    def make_groups_above(self, paths: Iterable[str]) -> list[str]:
        """Make the groups that are missing above nodes; return the keys of their documents."""
        missing = missing_above(self.store, paths, self.format)
        for group in sorted(missing, key=lambda path: (path.count("/"), path)):
            create_node(self.store, self.format, group, missing[group], is_above=True)
        return [key for documents in missing.values() for key in documents]

    def _put_in_place(self, nodes: Mapping[str, Mapping[str, bytes]]) -> None:
        """Put the staged nodes, with documents by path, in place, the first, which the journal is named after, last."""
        store, staged = self.store, self._staged_prefixes(self.run)
        is_over = is_in_place(store, self.run, node_prefix(self.format, self.path))
        for path, prefix in staged[:1] if is_over else reversed(staged):
            old = node_prefix(self.format, path)
            if path != self.path and not is_in_place(store, self.run, old):
                create(store, prefix + run_tag(self.run), self.run.encode())
            if is_tagged(store, prefix, self.run):
                self.make_groups_above([path])
                own = {} if path else self.format.emit_root()
                for each, its in nodes.items():
                    own |= its if path in {each, *parents_of(each)} else {}
                for key, value in own.items():
                    store.set(prefix + key.removeprefix(old), value)
            # a reader by consolidated metadata must not meet the new chunks with the old codecs
            forget_consolidated(store, path)
            try:
                job = f"replace {path!r} in {store.url}"
                put_in_place(store, job, self.path, self.run, old_prefix=old, staged=prefix)
            finally:  # whatever is stored then: others may have replaced the node as well
                refresh_consolidated(store, self.format, [path, *nodes], own=False)
            store.flush()
        for path, _ in staged[1:]:
            forget_tag(store, self.run, node_prefix(self.format, path))


def put_array(store: Store, path: str, metadata: ArrayMetadata, *, format: str, overwrite: bool) -> StoredArray:  # noqa: A002
    """Create an array without chunks (see `Target.create`)."""
    return put_arrays(store, {path: metadata}, format=format, overwrite=overwrite)[path]


def put_group(store: Store, path: str, metadata: GroupMetadata, *, format: str, overwrite: bool) -> StoredGroup:  # noqa: A002
    """Create a group (see `Target.create`)."""
    documents_format = format_of_store(store, format)
    at = documents_format.normalize_path(path)
    Target(store, at, documents_format, [], {at: metadata}, overwrite).create(f"create the group {path!r}")
    return StoredGroup(store, at, metadata, documents_format, read_only=False)


def put_arrays(
    store: Store,
    arrays: Mapping[str, ArrayMetadata],
    *,
    format: str,  # noqa: A002
    overwrite: bool = False,
) -> dict[str, StoredArray]:
    """Create arrays without chunks, and the groups above them; return them by path (see `Target.create`)."""
    documents_format = format_of_store(store, format)
    made = {path: array_at(store, path, metadata, documents_format) for path, metadata in arrays.items()}
    if made:
        first = next(iter(made.values())).path
        job = f"create the array {first!r}" if len(made) == 1 else f"create {len(made):,} arrays"
        Target(store, first, documents_format, [*made.values()], overwrite=overwrite).create(job)
    return made
