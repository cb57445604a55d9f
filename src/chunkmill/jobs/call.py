"""The call that began a job, as its plan stores it: plain JSON, from which `chunkmill.resume` repeats it.

A function among the arguments is not stored. Its fingerprint tells it from one that would compute other values, in
every process (P7): its code, defaults, what it closes over, and the globals that the code names; of functions and
classes among these, their code in turn. Dask's tokens stand for all other values. Of what is installed, the function's
own code counts alone: what that calls changes with a release. Names of files and lines do not count, nor do comments,
which they would in Dask's token of a function.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from inspect import signature
from itertools import chain
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ParamSpec

import numpy as np
from dask.tokenize import TokenizationError, tokenize

from chunkmill.jobs.plan import Plan
from chunkmill.nodes.api import as_node
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.runtime.stage_runner import JobMonitor
from chunkmill.stores.open import is_store, open_store
from chunkmill.stores.places import is_zarr_python_node, place_of

P = ParamSpec("P")
_PATIENCE = 1.0  # seconds without a bar


def with_call(planner: Callable[P, Plan]) -> Callable[P, Plan]:
    """Decorate a public planner, so that the plan which a job stores holds the call, for `chunkmill.resume`.

    The target is not stored, whose url `resume` is given, but its kind, as of `_kind_of`.
    """

    @wraps(planner)
    def planned(*args: P.args, **options: P.kwargs) -> Plan:
        with JobMonitor(planner.__name__).showing(after=_PATIENCE):  # of many arrays it takes a while
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


# --------------------------------------------------------------------------------------------------------------------
# Functions


def shown_function(function: Any) -> str:
    """Return module and name of a function, for messages.

    Examples
    --------
    >>> shown_function(np.linalg.norm), shown_function(partial(max, 3))
    ('numpy.linalg.norm', 'partial of builtins.max')
    """
    if isinstance(function, partial):
        return f"partial of {shown_function(function.func)}"
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(name) if module == "__main__" else f"{module}.{name}"


def function_fingerprint(function: Any, *values: Any) -> str:
    """Return a hash of what a function computes, and of further values, which is the same in every process.

    Raises
    ------
    ValueError
        It uses an object that no other process can recognize, such as a lock or a generator.

    Examples
    --------
    >>> def scaled(factor):
    ...     return lambda block: factor * block
    >>> a, b, c = (function_fingerprint(scaled(n)) for n in (2, 2, 3))
    >>> a == b, a == c
    (True, False)
    """
    try:
        return tokenize(_facts((function, *values), {}), ensure_deterministic=True)
    except (TokenizationError, RecursionError) as error:
        msg = f"{shown_function(function)} uses an object of which another process cannot see whether it is the same "
        msg += f"({str(error)[:200]}): give it a `__dask_tokenize__`, which returns a name of what it computes"
        raise ValueError(msg) from None


def _facts(value: Any, met: dict[int, int]) -> Any:
    """Return a value in which Dask knows all members; functions and classes that were met before by their number."""
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dask_tokenize__"):
        return "token", value.__dask_tokenize__()
    if isinstance(value, (FunctionType, type)):
        if id(value) in met:
            return "met", met[id(value)]
        met[id(value)] = len(met)
    members = next((members(value) for kinds, members in _MEMBERS if isinstance(value, kinds)), None)
    if members is None and hasattr(value, "__wrapped__"):  # by a cache, or a compiler
        members = [shown_function(type(value)), value.__wrapped__]
    elif members is None and callable(value) and hasattr(value, "__dict__") and not isinstance(value, np.ufunc):
        members = [type(value), vars(value)]
    return value if members is None else (type(value).__qualname__, [_facts(each, met) for each in members])


def _of_code(code: CodeType) -> list[Any]:
    """Return what code does; not its file, lines, name or documentation."""
    is_documented = isinstance(next(iter(code.co_consts), None), str)
    counts = code.co_argcount, code.co_kwonlyargcount, is_documented
    python = sys.implementation.cache_tag  # other versions have other instructions
    return [python, code.co_code, code.co_names, counts, code.co_consts[is_documented:]]


def _of_class(value: type) -> Iterator[Any]:
    yield shown_function(value)
    if not _is_installed(value.__module__):
        for name, member in sorted(vars(value).items()):
            if isinstance(member, _METHODS) or (isinstance(member, _PLAIN) and not name.startswith("__")):
                yield member
        yield from value.__bases__


_METHODS = (FunctionType, staticmethod, classmethod, property)
_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, np.ndarray)


def _of_function(value: FunctionType) -> Iterator[Any]:
    yield value.__code__
    is_installed = _is_installed(value.__module__)
    if not is_installed or "<locals>" in value.__qualname__:  # made by a call
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # not assigned yet
                yield cell.cell_contents
    if is_installed:
        yield shown_function(value)
    else:
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from _named(sorted(_names(value.__code__)), value.__globals__, set())


_MEMBERS: Sequence[tuple[Any, Callable[[Any], Iterable[Any]]]] = (
    ((tuple, list), iter),
    ((set, frozenset), partial(sorted, key=repr)),
    (Mapping, lambda mapping: chain.from_iterable(mapping.items())),
    (ModuleType, lambda module: [shown_function(module)]),
    (type, _of_class),
    (FunctionType, _of_function),
    (CodeType, _of_code),
    (partial, lambda function: [function.func, function.args, function.keywords]),
    (MethodType, lambda method: [method.__func__, method.__self__]),
    (property, lambda each: [each.fget]),
    (np.vectorize, lambda function: [function.pyfunc, function.otypes, function.signature]),  # not what it keeps
)


def _is_installed(module: str | None) -> bool:
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None or module == "__main__":
        return module in sys.builtin_module_names
    path = Path(file)
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts) or path.is_relative_to(_STDLIB)


_STDLIB = sysconfig.get_path("stdlib")


def _named(names: Sequence[str], namespace: Mapping[str, Any], seen: set[str]) -> Iterator[Any]:
    """Yield the values of names in a module, and of the same in modules among them that are not installed."""
    for value in (namespace[name] for name in names if name in namespace):
        yield value
        if isinstance(value, ModuleType) and value.__name__ not in seen and not _is_installed(value.__name__):
            seen.add(value.__name__)
            yield from _named(names, vars(value), seen)


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))
