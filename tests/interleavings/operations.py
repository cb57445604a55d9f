"""The public operations that meet each other, and the places where they do.

Every operation writes values that tell who wrote them, to an array of eight rows in two chunks, so that a run takes
some twenty store operations.

Not here: which of them meet, and where both begin (`interleavings.scenarios`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from interleavings.snapshot import snapshot

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.stores.base import Store

FORMATS = ("zarr3", "zarr2", "n5")
CONSOLIDATED = FORMATS[:2]
ALL_FORMATS = (*FORMATS, "zarr3-draft")  # of the draft, a node is stored below two prefixes, and deleted first
MARKS = {"a": 100, "b": 200}


@dataclass(frozen=True, slots=True)
class Call:
    """What an operation is called with."""

    store: Store
    path: str
    format: str
    mark: int

    def region(self) -> slice:
        """Rows that share chunks, and some rows, with those of the other."""
        return slice(1, 6) if self.mark == MARKS["a"] else slice(3, 8)


@dataclass(frozen=True, slots=True)
class Operation:
    """A public operation.

    Attributes
    ----------
    needs
        Makes what must be there before.
    in_place
        Whether it changes chunks that are visible, one after the other.
    replaces
        Whether it puts a new node in the place of an old one: by copies, where the store cannot rename.
    reserves_late
        Whether it reserves its place when its values are stored: it and one that replaces the node may both be refused.
    joins
        Whether two alike, at one place, are one job that both run.
    restart
        Does it again where an interrupted run of another plan is in the way: its source has changed since.
    begins
        Does what others see, and may change, before the rest is done.
    makes
        Whether it makes a node below its place, ``1``, which others may be at.
    paths
        Where it is done.
    """

    name: str
    run: Callable[[Call], Any]
    needs: Callable[[Call], Any] | None = None
    in_place: bool = False
    replaces: bool = False
    reserves_late: bool = False
    joins: bool = False
    restart: Callable[[Call], Any] | None = None
    begins: Callable[[Call], Any] | None = None
    makes: bool = False
    paths: tuple[str, ...] = ("g/a", "g/b", "g", "")
    formats: tuple[str, ...] = ALL_FORMATS


def _values(mark: int) -> np.ndarray:
    return np.arange(8, dtype="i4").reshape(8, 1) + mark


@cache
def _blocks(mark: int) -> da.Array:
    return da.from_array(_values(mark), chunks=(4, 1))


def _new_array(call: Call, **attributes: Any) -> cm.Array:
    about: dict[str, Any] = {"shape": (8, 1), "dtype": "i4", "chunks": (4, 1)}  # chunk keys of two axes are nested
    return cm.create_array(call.store, call.path, format=call.format, attributes=attributes, **about)


def _array(call: Call) -> None:
    _new_array(call, made="before")[...] = _values(1)


def _group(call: Call) -> None:
    with suppress(NodeExists):
        cm.create_group(call.store, call.path, format=call.format, attributes={"made": "before"})


@cache
def _dataset(n: int, mark: int) -> xr.Dataset:
    t = ("x", da.from_array(np.arange(n, dtype="i4") + mark, chunks=2))
    return xr.Dataset({"t": t}, coords={"x": np.arange(n, dtype="i4")}, attrs={"mark": mark})


def _stored_dataset(call: Call) -> None:
    cm.write_dataset(_dataset(4, 1), call.store, call.path, format=call.format, consolidated=False)


def _source(call: Call) -> None:
    with suppress(NodeExists):
        cm.create_group(call.store, "src", format=call.format, attributes={"from": "source"})
        _array(Call(call.store, "src/a", call.format, call.mark))


def _to_store(call: Call, **more: Any) -> None:
    about: dict[str, Any] = {"format": call.format, "attributes": {"mark": call.mark}, **more}
    written = cm.to_store(_blocks(call.mark), call.store, call.path, **about)
    if not more.get("compute", True):
        written.compute()


_replace = partial(_to_store, mode="w", chunks=(3, 1), codecs="raw")


def _region(call: Call) -> None:
    region = slice(call.region().start, call.region().stop - 1)  # covers no chunk whole
    cm.to_store(_blocks(call.mark)[region], call.store, call.path, region=region, mode="r+")


def _store(call: Call) -> None:
    region = call.region()
    cm.store([_blocks(call.mark)[region]], [cm.open_array(call.store, call.path, mode="r+")], regions=[region])


def _create_array(call: Call) -> None:
    _new_array(call, mark=call.mark)


def _create_arrays(call: Call) -> None:
    about: dict[str, Any] = {"shape": (8, 1), "dtype": "i4", "chunks": (4, 1), "attributes": {"mark": call.mark}}
    cm.create_arrays(call.store, {call.path: about}, format=call.format)


def _create_group(call: Call) -> None:
    cm.create_group(call.store, call.path, format=call.format, attributes={"mark": call.mark})


def _array_attributes(call: Call) -> None:
    cm.open_array(call.store, call.path, mode="r+").update_attributes({f"by {call.mark}": call.mark})


def _group_attributes(call: Call) -> None:
    cm.open_group(call.store, call.path, mode="r+").update_attributes({f"by {call.mark}": call.mark})


def _write_dataset(call: Call) -> None:
    cm.write_dataset(_dataset(4, call.mark), call.store, call.path, format=call.format)


def _replace_dataset(call: Call) -> None:
    # chunks that are larger than the old ones: smaller blocks of N5 can be decoded by the old documents
    cm.write_dataset(_dataset(4, call.mark).chunk(x=4), call.store, call.path, mode="w", format=call.format)


def _append(call: Call) -> None:
    more = _dataset(4, call.mark)
    cm.write_dataset(more.assign_coords(x=more.x + call.mark), call.store, call.path, append_dim="x")


def _region_of_dataset(call: Call) -> None:
    region = slice(0, 3) if call.mark == MARKS["a"] else slice(1, 4)
    part = _dataset(4, call.mark).isel(x=region).drop_vars("x").load()  # lazy ones are written as by `store`
    cm.write_dataset(part, call.store, call.path, region={"x": region})


def _resize(call: Call) -> None:
    cm.open_array(call.store, call.path, mode="r+").resize((10 if call.mark == MARKS["a"] else 6, 1))


def _append_values(call: Call) -> None:
    cm.open_array(call.store, call.path, mode="r+").append(_values(call.mark)[:3])


def _convert(call: Call, *, resume: bool = True) -> None:
    cm.plan_convert((call.store, "src"), (call.store, call.path), format=call.format).run(resume=resume)


def _rechunk(call: Call, *, resume: bool = True) -> None:
    cm.plan_rechunk((call.store, "src/a"), (call.store, call.path), chunks=(3, 1)).run(resume=resume)


def _convert_over(call: Call) -> None:
    cm.rechunk((call.store, "src/a"), (call.store, call.path), chunks=(3, 1), codecs="raw", overwrite=True)


def _begin_dataset(call: Call, mode: Any = "w-") -> Any:
    data = _dataset(4, call.mark).chunk(x=4 if mode == "w" else 2)
    return cm.write_dataset(data, call.store, call.path, mode=mode, format=call.format, compute=False)


def _delayed_dataset(call: Call, mode: Any = "w-") -> None:
    _begin_dataset(call, mode).compute()


def _pyramid(call: Call, *, resume: bool = True, **more: Any) -> None:
    source = cm.open_array(call.store, "src/a")  # a folder that a deletion has left is a group in N5, of no image
    more |= {"levels": 2, "method": "stride", "format": call.format}
    cm.plan_pyramid(source, (call.store, call.path), **more).run(resume=resume)


def _replace_pyramid(call: Call, **more: Any) -> None:
    _pyramid(call, chunks=(3, 1), codecs="raw", overwrite=True, **more)


def _old_pyramid(call: Call) -> None:
    _source(call)
    _pyramid(call)


def _levels(call: Call, *, resume: bool = True, **more: Any) -> None:
    cm.plan_pyramid((call.store, f"{call.path}/0"), levels=3, method="stride", **more).run(resume=resume)


def _replace_levels(call: Call, **more: Any) -> None:
    _levels(call, chunks=(3, 1), codecs="raw", overwrite=True, **more)


def _base(call: Call) -> None:
    _group(call)
    _array(Call(call.store, f"{call.path}/0", call.format, call.mark))


def _old_levels(call: Call) -> None:
    _base(call)
    _levels(call)


def _source_and_array(call: Call) -> None:
    _source(call)
    _array(call)


def _repair(call: Call) -> None:
    cm.check(call.store, repair=True)


def _job(name: str, run: Callable[..., Any], needs: Callable[[Call], Any]) -> Operation:
    again, replaces = partial(run, resume=False), name.startswith("replace")
    makes = name.endswith("levels")
    return Operation(name, run, needs, replaces=replaces, joins=True, restart=again, makes=makes, paths=_TARGETS)


_TARGETS = ("g/a", "g/b", "g")  # of jobs, whose source is below the root
_ROOT = ("",)

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("new", _to_store),
        Operation("replace", _replace, _array, replaces=True),
        Operation("region", _region, _array, in_place=True),
        Operation("resume", partial(_to_store, resume=True)),
        Operation("store", _store, _array, in_place=True),
        Operation("create_array", _create_array),
        Operation("create_arrays", _create_arrays),
        Operation("create_group", _create_group),
        Operation("array-attributes", _array_attributes, _array, paths=_TARGETS),
        Operation("group-attributes", _group_attributes, _group, paths=("g/a", "g", "")),
        Operation("consolidate", lambda call: len(cm.consolidate(call.store)), paths=_ROOT, formats=CONSOLIDATED),
        Operation("dataset", _write_dataset),
        Operation("append", _append, _stored_dataset),
        Operation("dataset-region", _region_of_dataset, _stored_dataset, in_place=True),
        _job("convert", _convert, _source),
        _job("rechunk", _rechunk, _source),
        Operation("resize", _resize, _array, paths=_TARGETS),
        Operation("append-values", _append_values, _array, paths=_TARGETS),
        Operation("delete", lambda call: cm.delete(call.store, call.path), _array, paths=_TARGETS),
        Operation(
            "replace-resume",
            partial(_replace, resume=True),
            _array,
            replaces=True,
            restart=partial(_replace, resume=False),
        ),
        Operation("replace-later", partial(_replace, compute=False), _array, replaces=True, reserves_late=True),
        Operation("replace-convert", _convert_over, _source_and_array, replaces=True, joins=True, paths=_TARGETS),
        Operation("replace-dataset", _replace_dataset, _stored_dataset, replaces=True),
        Operation("delayed-dataset", _delayed_dataset, in_place=True, begins=_begin_dataset),
        Operation(
            "replace-delayed-dataset",
            partial(_delayed_dataset, mode="w"),
            _stored_dataset,
            in_place=True,
            replaces=True,
            begins=partial(_begin_dataset, mode="w"),
        ),
        _job("pyramid", _pyramid, _source),
        _job("replace-pyramid", _replace_pyramid, _old_pyramid),
        _job("levels", _levels, _base),
        _job("replace-levels", _replace_levels, _old_levels),
        Operation("repair", _repair, paths=_ROOT),
        Operation("reader", lambda call: snapshot(call.store, raises=True), paths=_ROOT),
    )
}


def needs_source(reads: Operation, other: Operation) -> bool:
    """Return whether one reads a source, and what the other needs may be that source."""
    return reads.needs is _source and other.needs in {_array, _group, None}
