"""Fingerprint of a function: tells it from one that would compute other values, in every process alike.

It is made of the code, the constants and defaults, the values that it closes over, and the globals that the code names:
of functions and classes among them, their code in turn. Of what is installed, the function's own code counts alone:
what that calls changes with a release. Names of files and lines do not count, nor do comments. Not here: calls
(`chunkmill.transforms.function`).
"""

from __future__ import annotations

import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from dask.tokenize import TokenizationError, tokenize

__all__ = ["function_fingerprint", "shown_function"]


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
    hashed = sha256()
    walk = _Walk({})
    for text in walk.texts(walk.parts((function, *values))):
        hashed.update(text.encode(errors="surrogatepass"))
        hashed.update(b"\0")
    return hashed.hexdigest()


class _Walk:
    """Texts that tell a value, and all that it uses, from others.

    Functions and classes are numbered where they are met, and described later: theirs may be long chains.
    """

    def __init__(self, seen: dict[int, tuple[int, Any]]) -> None:
        self.seen = seen  # id -> number, and the value, so that no other has its id
        self.left: deque[Iterator[str]] = deque()

    def texts(self, first: Iterator[str]) -> Iterator[str]:
        yield from first
        while self.left:
            yield from self.left.popleft()

    def parts(self, value: Any) -> Iterator[str]:
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes, np.dtype)):
            yield f"{type(value).__name__} {value!r}"
            return
        if id(value) in self.seen:
            yield f"again {self.seen[id(value)][0]}"
            return
        self.seen[id(value)] = len(self.seen), value
        for kind, parts in _KINDS:
            if isinstance(value, kind):
                yield from parts(self, value)
                return
        if callable(value) and hasattr(value, "__dict__"):
            yield from self.called(value)
        else:
            yield from self.token(value)

    def group(self, kind: str, members: Iterable[Any]) -> Iterator[str]:
        yield f"{kind} ("
        for member in members:
            yield from self.parts(member)
        yield ")"

    def later(self, kind: str, value: Any, members: Iterable[Any]) -> Iterator[str]:
        number = self.seen[id(value)][0]
        yield f"{kind} {number}"
        self.left.append(self.group(f"{number} is", members))

    def token(self, value: Any) -> Iterator[str]:
        try:
            token = tokenize(value, ensure_deterministic=True)
        except TokenizationError:
            msg = f"the function uses a {type(value).__qualname__}, of which another process cannot see whether it is "
            raise ValueError(f"{msg}the same: give fingerprint='a name' of what the function computes") from None
        yield f"{type(value).__module__}.{type(value).__qualname__} {token}"

    def called(self, value: Any) -> Iterator[str]:
        """Yield the state of an object; of one that a compiler has made, the function that it was made from."""
        tried = _Walk(dict(self.seen))
        try:
            state = [*tried.texts(tried.group("callable", [type(value), vars(value)]))]
        except ValueError:
            if not hasattr(value, "__wrapped__"):
                raise
            yield from self.group("compiled", [shown_function(type(value)), value.__wrapped__])
        else:
            self.seen = tried.seen
            yield from state

    def code(self, code: CodeType) -> Iterator[str]:
        """Yield what the code does; not its file, lines, or name."""
        python = sys.implementation.cache_tag  # other versions have other instructions
        yield f"code {python} {code.co_code.hex()} {code.co_names} {code.co_argcount} {code.co_kwonlyargcount}"
        doc = code.co_consts[:1] if isinstance(next(iter(code.co_consts), None), str) else ()
        yield from self.group("constants", code.co_consts[len(doc) :])
        yield from map(str, doc)

    def function(self, function: FunctionType) -> Iterator[str]:
        kept: list[Any] = [function.__code__, function.__defaults__, function.__kwdefaults__]
        if not _is_installed(function.__module__):
            kept += [_content(cell) for cell in function.__closure__ or ()]
            kept += _named(sorted(_names(function.__code__)), function.__globals__, set())
        elif "<locals>" in function.__qualname__:  # made by a call of what is installed
            kept += [shown_function(function), *map(_content, function.__closure__ or ())]
        else:
            kept = [shown_function(function), function.__code__]
        yield from self.later("function", function, kept)

    def kind(self, kind: type) -> Iterator[str]:
        yield f"class {kind.__module__}.{kind.__qualname__}"
        if not _is_installed(kind.__module__):
            members = [each for name, each in sorted(vars(kind).items()) if _counts(name, each)]
            own = [getattr(each, "__func__", None) or getattr(each, "fget", None) or each for each in members]
            yield from self.later("methods", kind, [*own, *kind.__bases__])


def _is_installed(module: str | None) -> bool:
    if module is None or module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in sys.builtin_module_names
    path = Path(file)
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts) or path.is_relative_to(_STDLIB)


_STDLIB = sysconfig.get_path("stdlib")


def _counts(name: str, member: Any) -> bool:
    """Return whether what a class holds under a name changes what its methods compute."""
    if isinstance(member, (FunctionType, staticmethod, classmethod, property)):
        return True
    plain = (bool, int, float, complex, str, bytes, tuple, list, dict, np.ndarray)
    return not name.startswith("__") and isinstance(member, plain)


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


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


_KINDS: list[tuple[Any, Callable[[_Walk, Any], Iterator[str]]]] = [
    (ModuleType, lambda _, value: iter([f"module {value.__name__}"])),
    (CodeType, _Walk.code),
    (FunctionType, _Walk.function),
    (MethodType, lambda walk, value: walk.group("method", [value.__func__, value.__self__])),
    (partial, lambda walk, value: walk.group("partial", [value.func, value.args, value.keywords])),
    # without what it keeps of calls
    (np.vectorize, lambda walk, value: walk.group("vectorize", [value.pyfunc, value.otypes, value.signature])),
    ((tuple, list), lambda walk, value: walk.group(type(value).__name__, value)),
    ((set, frozenset), lambda walk, value: walk.group("set", sorted(value, key=repr))),
    (Mapping, lambda walk, value: walk.group("mapping", [each for item in value.items() for each in item])),
    (type, _Walk.kind),
    ((BuiltinFunctionType, np.ufunc), lambda _, value: iter([shown_function(value)])),
]
