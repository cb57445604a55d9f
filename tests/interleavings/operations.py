"""The public operations that meet each other, and the places where they do.

Every operation writes values that tell who wrote them, to an array of eight rows in two chunks, so that a run takes
some twenty store operations. Two operations at their places, in a format and on a ground, are a scenario.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from interleavings.snapshot import snapshot

import chunkmill as cm
from chunkmill.errors import NodeExists, StoreError
from chunkmill.stores.base import Store
from chunkmill.stores.memory import MemoryStore

__all__ = ["FORMATS", "GROUNDS", "OPERATIONS", "Operation", "Scenario", "scenarios"]

FORMATS = ("zarr3", "zarr2", "n5")
CONSOLIDATED = FORMATS[:2]
GROUNDS = ("bare", "consolidated", "copying", "consolidated-copying")
COPYING_FORMATS = (*FORMATS, "zarr3-draft")  # below the root, the draft copies whatever the store can
MARKS = {"a": 100, "b": 200}


class CopyingStore(MemoryStore):
    """Cannot rename, as object stores: what is replaced is exchanged by copies."""

    stage = swap_in = can_replace = replace_prefix = pin = None  # type: ignore[assignment]

    def copy(self, source: str, target: str) -> None:
        """Store the value of one key under another one, as the server does."""
        value = self.get(source)
        if value is None:
            raise StoreError(url=self.url, key=source, reason="it was deleted before it could be copied")
        self.set(target, value)


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
    puts_whole
        Whether it writes some of these without reading them.
    replaces
        Whether it puts a new node in the place of an old one: by copies, where the store cannot rename.
    joins
        Whether two alike, at one place, are one job that both run.
    restart
        Does it again where an interrupted run of another plan is in the way: its source has changed since.
    paths
        Where it is done.
    """

    name: str
    run: Callable[[Call], Any]
    needs: Callable[[Call], Any] | None = None
    in_place: bool = False
    puts_whole: bool = False
    replaces: bool = False
    joins: bool = False
    restart: Callable[[Call], Any] | None = None
    paths: tuple[str, ...] = ("g/a", "g/b", "g", "")
    formats: tuple[str, ...] = COPYING_FORMATS


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
    cm.to_store(_blocks(call.mark), call.store, call.path, format=call.format, attributes={"mark": call.mark}, **more)


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
    part = _dataset(4, call.mark).isel(x=region).drop_vars("x")
    cm.write_dataset(part, call.store, call.path, region={"x": region})


def _resize(call: Call) -> None:
    cm.open_array(call.store, call.path, mode="r+").resize((10 if call.mark == MARKS["a"] else 6, 1))


def _append_values(call: Call) -> None:
    cm.open_array(call.store, call.path, mode="r+").append(_values(call.mark)[:3])


def _delete(call: Call) -> None:
    cm.delete(call.store, call.path)


def _convert(call: Call, **more: Any) -> None:
    cm.convert((call.store, "src"), (call.store, call.path), format=call.format, **more)


def _rechunk(call: Call, **more: Any) -> None:
    cm.rechunk((call.store, "src/a"), (call.store, call.path), chunks=(3, 1), **more)


def _replace_resuming(call: Call) -> None:
    _to_store(call, mode="w", resume=True, chunks=(3, 1), codecs="raw")


def _convert_over(call: Call) -> None:
    cm.rechunk((call.store, "src/a"), (call.store, call.path), chunks=(3, 1), codecs="raw", overwrite=True)


def _source_and_array(call: Call) -> None:
    _source(call)
    _array(call)


def _repair(call: Call) -> None:
    cm.check(call.store, repair=True)


_TARGETS = ("g/a", "g/b", "g")  # of jobs, whose source is below the root
_ROOT = ("",)

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("new", _to_store),
        Operation(
            "replace", lambda call: _to_store(call, mode="w", chunks=(3, 1), codecs="raw"), _array, replaces=True
        ),
        Operation("region", _region, _array, in_place=True),
        Operation("resume", lambda call: _to_store(call, resume=True)),
        Operation("store", _store, _array, in_place=True, puts_whole=True),
        Operation("create_array", _create_array),
        Operation("create_arrays", _create_arrays),
        Operation("create_group", _create_group),
        Operation("array-attributes", _array_attributes, _array, paths=("g/a", "g/b", "g")),
        Operation("group-attributes", _group_attributes, _group, paths=("g/a", "g", "")),
        Operation("consolidate", lambda call: len(cm.consolidate(call.store)), paths=_ROOT, formats=CONSOLIDATED),
        Operation("dataset", _write_dataset),
        Operation("append", _append, _stored_dataset),
        Operation("dataset-region", _region_of_dataset, _stored_dataset, in_place=True, puts_whole=True),
        Operation("convert", _convert, _source, joins=True, restart=partial(_convert, resume=False), paths=_TARGETS),
        Operation("rechunk", _rechunk, _source, joins=True, restart=partial(_rechunk, resume=False), paths=_TARGETS),
        Operation("resize", _resize, _array, paths=("g/a", "g/b", "g")),
        Operation("append-values", _append_values, _array, paths=("g/a", "g/b", "g")),
        Operation("delete", _delete, _array, paths=("g/a", "g/b", "g")),
        Operation("replace-resume", _replace_resuming, _array, replaces=True),
        Operation("replace-convert", _convert_over, _source_and_array, replaces=True, joins=True, paths=_TARGETS),
        Operation("replace-dataset", _replace_dataset, _stored_dataset, replaces=True),
        Operation("repair", _repair, paths=_ROOT),
        Operation("reader", lambda call: snapshot(call.store, raises=True), paths=_ROOT),
    )
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two operations at their places, in a format and on a ground."""

    format: str
    ground: str
    names: tuple[str, str]
    paths: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.format},{self.ground},{self.names[0]}@{self.paths[0]},{self.names[1]}@{self.paths[1]}"

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Read what `str` wrote."""
        name, ground, *calls = text.split(",")
        (a, path_a), (b, path_b) = (call.split("@") for call in calls)
        return cls(name, ground, (a, b), (path_a, path_b))

    @property
    def is_copying(self) -> bool:
        """Whether the store cannot rename."""
        return "copying" in self.ground

    @property
    def operations(self) -> dict[str, Operation]:
        return {actor: OPERATIONS[name] for actor, name in zip(MARKS, self.names, strict=True)}

    def actions(self) -> dict[str, Callable[[Store], Any]]:
        """Return what each actor does."""
        return {actor: self._action(actor) for actor in MARKS}

    def _action(self, actor: str) -> Callable[[Store], Any]:
        run = self.operations[actor].run
        return lambda store: run(self._call(actor, store))

    def restart(self, actor: str, store: Store) -> None:
        """Do the operation of an actor again, as the error says that it was refused with."""
        run = self.operations[actor].restart
        assert run is not None
        run(self._call(actor, store))

    def _call(self, actor: str, store: Store) -> Call:
        return Call(store, dict(zip(MARKS, self.paths, strict=True))[actor], self.format, MARKS[actor])

    def ground_store(self) -> MemoryStore:
        """Return the store in which both begin.

        Raises
        ------
        ChunkmillError
            Both cannot begin in one store.
        """
        store = CopyingStore() if self.is_copying else MemoryStore()
        if "consolidated" in self.ground:
            cm.create_group(store, format=self.format, attributes={"title": "ground"})
        made = set()
        for actor, operation in self.operations.items():
            call = self._call(actor, store)
            if operation.needs is not None and (made_by := (operation.needs, call.path)) not in made:
                operation.needs(call)
                made.add(made_by)
        if "consolidated" in self.ground and self.format in CONSOLIDATED:
            cm.consolidate(store)
        return store


def scenarios(pair: tuple[str, str]) -> Iterator[Scenario]:
    """Yield the scenarios of two operations: the most telling first."""
    a, b = (OPERATIONS[name] for name in pair)
    seen = set()
    for paths in _meetings(a, b):
        for ground, name in itertools.product(GROUNDS, COPYING_FORMATS):
            if name not in _formats_on(ground, a, b):
                continue
            if name in a.formats and name in b.formats and (name in CONSOLIDATED or "consolidated" not in ground):
                mirrored = (name, ground, paths[::-1])
                if a is b and mirrored in seen:
                    continue
                seen.add((name, ground, paths))
                yield Scenario(name, ground, pair, paths)


def _formats_on(ground: str, a: Operation, b: Operation) -> tuple[str, ...]:
    if "copying" not in ground:
        return FORMATS
    # a chunk that is written whole may get into the array that has replaced its own: nothing pins those stores
    return COPYING_FORMATS if (a.replaces or b.replaces) and not (a.puts_whole or b.puts_whole) else ()


def _meetings(a: Operation, b: Operation) -> Iterator[tuple[str, str]]:
    """Yield the paths of both: one place, neighbours, one above the other, and one what the other reads."""
    met = [("g/a", "g/a"), ("g/a", "g/b"), ("g/a", "g"), ("g", "g/a"), ("g/a", ""), ("", "g/a"), ("", "")]
    met += [("g/a", "src/a"), ("src/a", "g/a"), ("g/a", "src"), ("src", "g/a")]
    for one, other in met:
        if _goes(a, one, b) and _goes(b, other, a):
            yield one, other


def _goes(operation: Operation, path: str, other: Operation) -> bool:
    if path.startswith("src"):
        return other.needs is _source and operation.needs in {_array, _group, None} and operation.paths != _ROOT
    return path in operation.paths
