"""Arrays that a target was made of, found again: by the call in its lineage, or by paths alone.

Not here: what has changed in them (`chunkmill.syncs.changes`), transforms (`chunkmill.syncs.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.convert import plan_convert, plan_rechunk
from chunkmill.conversion.lineage import ArrayPair
from chunkmill.conversion.options import argument
from chunkmill.conversion.plan import Plan
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.hints import Hint
from chunkmill.nodes.api import open_array, open_group
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.opening import open_stored, walk
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.pyramids.downsample import Method, Reduction, downsampled_shape
from chunkmill.pyramids.pyramid import plan_pyramid
from chunkmill.pyramids.tasks import PyramidWriter
from chunkmill.stores.base import Store

__all__ = ["Derived", "described_again", "same_paths", "stored_target"]


class Derived(NamedTuple):
    """An array, the path of the target that is made of it, and of a level the factors and the method against it."""

    source: StoredArray
    path: str
    factors: tuple[int, ...] = ()
    method: Method | Reduction = "mean"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape that the target is to have."""
        return downsampled_shape(self.source.shape, self.factors) if self.factors else self.source.shape


_PLANNERS: dict[str, Callable[..., Plan]] = {
    "plan_convert": plan_convert,
    "plan_rechunk": plan_rechunk,
    "plan_pyramid": plan_pyramid,
}


def described_again(
    job: str,
    made: Mapping[str, Any],
    node: StoredNode,
    target: tuple[Store, str],
    *,
    storage_options: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    known: Collection[str],
) -> Iterator[Derived]:
    """Yield the arrays of the call that made a target: of a pyramid, the levels that are `known`."""
    call = made.get("call", {})
    if call.get("function") not in _PLANNERS or "options" not in call:
        missing = f": a lineage cannot hold {call['missing']}" if "missing" in call else ""
        hint = Hint("{} compares every element", ("compare", "values"))
        raise JobError(job=job, reason=f"the call that made the target is not stored{missing}", hint=hint)
    store, path = target
    place: Any = target
    if made.get("into"):
        place = open_array(store, path, mode="r+")
    if (group := made.get("group")) is not None:
        place = open_group(store, group, mode="r+")
    if "target" in call:  # None: next to the source
        place = None
    options = {name: argument(value) for name, value in call["options"].items()}
    options |= {"overwrite": False, "lineage": False, "manifest": None}
    stores = dict(zip(("storage_options", "target_storage_options"), storage_options, strict=True))
    plan = _PLANNERS[call["function"]]((node.store, node.path), place, **options, **stores)
    if call["function"] == "plan_pyramid":
        yield from (each for each in _levels(plan) if each.path in known)
    else:
        yield from (Derived(one, at.path) for one, at in zip(plan.job.sources, plan.job.targets, strict=True))


def _levels(plan: Plan) -> Iterator[Derived]:
    writer = cast("PyramidWriter", plan.job.stages.__self__)  # type: ignore[attr-defined]
    pairs: list[ArrayPair] = [*plan.pairs]
    if writer.action is not None:
        first = pairs.pop(0)
        yield Derived(first[0], first[1].path)
    factors = (level.factors for blocks in writer.blocks for level in blocks[1:])
    for (above, level), each in zip(pairs, factors, strict=True):
        yield Derived(above, level.path, each, writer.method)


def same_paths(job: str, node: StoredNode, store: Store, path: str) -> Iterator[Derived]:
    """Yield the array of the source at the path of each array of the target."""
    top = open_stored(store, path, consolidated=False, read_only=False)
    for stored in [top] if isinstance(top, StoredArray) else walk(top):
        if not isinstance(stored, StoredArray):
            continue
        below = stored.path[len(path) :].strip("/")
        one = node
        if below:
            try:
                one = open_stored(node.store, join_path(node.path, below), consolidated=False)
            except NodeNotFound as error:
                raise JobError(job=job, reason=f"the source has no array {below!r}, which the target has") from error
        if not isinstance(one, StoredArray):
            raise JobError(job=job, reason=f"the source has a group where the target has the array {stored.path!r}")
        yield Derived(one, stored.path)


def stored_target(job: str, store: Store, path: str) -> StoredArray:
    """Return an array of the target as it is stored.

    Raises
    ------
    JobError
        There is none.
    """
    try:
        stored = open_stored(store, path, consolidated=False, read_only=False)
    except NodeNotFound as error:
        reason = f"the target has no array {path!r}, which the source has"
        raise JobError(job=job, reason=reason, hint="convert that array alone") from error
    if not isinstance(stored, StoredArray):
        raise JobError(job=job, reason=f"the target has a group at {path!r}")
    return stored
