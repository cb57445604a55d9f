"""The call that began a job, as its plan stores it: plain JSON, from which `chunkmill.resume` repeats it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from chunkmill.jobs.plan import Plan
from chunkmill.nodes.api import as_node
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.stores.open import is_store, open_store
from chunkmill.stores.places import is_zarr_python_node, place_of

P = ParamSpec("P")


def with_call(planner: Callable[P, Plan]) -> Callable[P, Plan]:
    """Decorate a public planner, so that the plan which a job stores holds the call, for `chunkmill.resume`.

    The target is not stored, whose url `resume` is given, but its kind, as of `_kind_of`.
    """

    @wraps(planner)
    def planned(*args: P.args, **options: P.kwargs) -> Plan:
        plan = planner(*args, **options)
        named = signature(planner).bind(*args, **options).arguments
        named = {name: value for name, value in named.items() if "storage_options" not in name}
        target = named.pop("target", None)
        call: dict[str, Any] = {"function": planner.__name__, "target": _kind_of(target, **named)}
        try:
            call["options"] = {n: _location(v) if n == "source" else _storable(v) for n, v in named.items()}
        except TypeError as error:
            call["missing"] = str(error)
        return replace(plan, job=replace(plan.job, call=call))

    return planned


def _kind_of(target: Any, *, overwrite: bool = False, **_: object) -> str | None:
    """Return ``"array"`` for a target that is written into, ``"group:a/b"`` for one that is added to; else ``""``."""
    target = as_node(target)
    if isinstance(target, Array):
        return "array"
    if isinstance(target, Group) and not overwrite:
        return f"group:{target.path}"
    return None if target is None else ""


def _location(place: Any, path: str = "") -> Any:
    """Return plain JSON for a source, which any process finds there; `TypeError` for what has no url."""
    if isinstance(place, list):
        return [_location(each) for each in place]
    if isinstance(place, tuple):
        return _location(*place)
    if is_zarr_python_node(place):
        place, path, *_ = place_of(place, path)
    if isinstance(place, (Array, Group)):
        place, path = place.url, place.path
    if not isinstance(place, (str, os.PathLike)):
        if is_store(place):
            return _location(open_store(place).url, path)
        raise TypeError(f"a source of type {type(place).__module__.partition('.')[0]}.{type(place).__name__}")
    url = os.fspath(place)
    if "://" not in url and "::" not in url:
        url = os.path.abspath(os.path.expanduser(url))  # noqa: PTH100, PTH111 - a pattern, or followed by `|zip:`
    return {"tuple": [url, path]} if path else url


def _storable(value: Any) -> Any:
    """Return plain JSON for an argument, which `argument` reads; `TypeError` for what JSON cannot hold."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (Array, Group, os.PathLike)):
        return _location(value)
    if isinstance(value, slice) or value is ...:
        return {"slice": None if value is ... else [_storable(each) for each in (value.start, value.stop, value.step)]}
    if isinstance(value, (tuple, set, frozenset)):
        return {"tuple": [_storable(each) for each in value]}
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, Mapping):
        return {"dict": {str(name): _storable(each) for name, each in value.items()}}
    raise TypeError(f"{value!r} ({type(value).__name__})")


def argument(stored: Any) -> Any:
    """Return the argument that a stored plan holds.

    Examples
    --------
    >>> argument({"tuple": [1, {"slice": [2, 3, None]}]})
    (1, slice(2, 3, None))
    """
    if isinstance(stored, list):
        return [argument(each) for each in stored]
    if not isinstance(stored, dict):
        return stored
    ((kind, value),) = stored.items()
    if kind == "dict":
        return {name: argument(each) for name, each in value.items()}
    if kind == "tuple":
        return tuple(argument(each) for each in value)
    return ... if value is None else slice(*value)
