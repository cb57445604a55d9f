"""The call that began a job, as its plan stores it: plain JSON, from which `chunkmill.resume` repeats it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

import numpy as np

from chunkmill.jobs.plan import Plan
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group

__all__ = ["argument", "partial_call", "with_call"]

P = ParamSpec("P")


def with_call(planner: Callable[P, Plan]) -> Callable[P, Plan]:
    """Decorate a public planner, so that the plan which a job stores holds the call, for `chunkmill.resume`.

    The target is not stored, whose url `resume` is given, but for ``None``.
    """

    @wraps(planner)
    def planned(*args: P.args, **options: P.kwargs) -> Plan:
        plan = planner(*args, **options)
        named = signature(planner).bind(*args, **options).arguments
        named = {name: value for name, value in named.items() if "storage_options" not in name}
        source, target = named.pop("source"), named.pop("target", None)
        call: dict[str, Any] = {"function": planner.__name__}
        try:
            call["options"] = {name: _storable(value) for name, value in named.items()}
            call["source"] = _location(source)
        except TypeError as error:
            if "options" in call and "source" in plan.job.choices:
                call["source"] = {"tuple": plan.job.choices["source"]}
            else:
                call["missing"] = str(error)
        if target is None:
            call["target"] = None
        return replace(plan, job=replace(plan.job, choices={**plan.job.choices, "call": call}))

    return planned


def partial_call(function: str, source: Any, options: Mapping[str, Any], lacks: str) -> dict[str, Any]:
    """Return the call of a planner of which a plan cannot hold something: all that it can.

    Parameters
    ----------
    options
        By name: those that JSON cannot hold are named in `lacks`.
    lacks
        What is missing.

    Examples
    --------
    >>> partial_call("plan_transform", "s3://b/a", {"halo": (1, 2), "params": object}, "the function f")
    ... # doctest: +NORMALIZE_WHITESPACE
    {'function': 'plan_transform', 'missing': 'the function f, params', 'options': {'halo': {'tuple': [1, 2]}},
     'source': 's3://b/a'}
    """
    known = {}
    for name, value in options.items():
        try:
            known[name] = _storable(str(value) if isinstance(value, np.dtype) else value)
        except TypeError:
            lacks += f", {name}"
    return {"function": function, "missing": lacks, "options": known, "source": _location(source)}


def _location(place: Any, path: str = "") -> Any:
    """Return plain JSON for a source, which any process finds there; `TypeError` for what has no url."""
    if isinstance(place, list):
        return [_location(each) for each in place]
    if isinstance(place, tuple):
        return _location(*place)
    if isinstance(place, (Array, Group)):
        place, path = place.url, place.path
    if not isinstance(place, (str, os.PathLike)):
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
