"""The function of a transform: its fingerprint, its call for one block, and the checks of what it returns.

The fingerprint tells a function from one that would compute other values: it is made of the code, the constants and
defaults, the values that it closes over, and the globals that the code names. Functions of other packages count by
their names alone. Not here: blocks (`chunkmill.transforms.blocks`), reading and writing (`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from dask.base import tokenize
from dask.utils import has_keyword
from numpy.typing import NDArray

from chunkmill.errors import TransformError
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.transforms.blocks import ArrayAxes

__all__ = ["BlockFunction", "block_facts", "checked_result", "function_fingerprint", "shown_function"]


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

    Examples
    --------
    >>> def scaled(factor):
    ...     return lambda block: factor * block
    >>> a, b, c = (function_fingerprint(scaled(n)) for n in (2, 2, 3))
    >>> a == b, a == c
    (True, False)
    """
    hashed = sha256()
    for text in _parts((function, *values), _package(function), {}):
        hashed.update(text.encode(errors="surrogatepass"))
        hashed.update(b"\0")
    return hashed.hexdigest()


def _package(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", None) or type(function).__module__).partition(".")[0]


def _parts(value: Any, package: str, seen: dict[int, Any]) -> Iterator[str]:
    """Yield texts that tell a value from others; of functions, those of their code if they are of `package`."""
    if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes, np.dtype)):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        yield f"again {list(seen).index(id(value))}"
        return
    seen[id(value)] = value  # and kept, so that no other has its id
    for kind, parts in _KINDS:
        if isinstance(value, kind):
            yield from parts(value, package, seen)
            return
    if callable(value) and hasattr(value, "__dict__"):
        yield from _all("callable", [type(value), vars(value)], package, seen)
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__} {tokenize(value)}"


def _all(kind: str, members: Iterable[Any], package: str, seen: dict[int, Any]) -> Iterator[str]:
    yield f"{kind} ("
    for member in members:
        yield from _parts(member, package, seen)
    yield ")"


def _code(code: CodeType, package: str, seen: dict[int, Any]) -> Iterator[str]:
    """Yield what the code does; not its file, lines, or name."""
    python = sys.implementation.cache_tag  # other versions have other instructions
    yield f"code {python} {code.co_code.hex()} {code.co_names} {code.co_argcount} {code.co_kwonlyargcount}"
    doc = code.co_consts[:1] if isinstance(next(iter(code.co_consts), None), str) else ()
    yield from _all("constants", code.co_consts[len(doc) :], package, seen)
    yield from map(str, doc)


def _function(function: FunctionType, package: str, seen: dict[int, Any]) -> Iterator[str]:
    if _package(function) != package:
        yield f"function {shown_function(function)}"
        return
    cells = [_content(cell) for cell in function.__closure__ or ()]
    names = sorted(_names(function.__code__))
    # what the code names: modules by their names, functions of the same package by their code
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    kept = [function.__code__, function.__defaults__, function.__kwdefaults__, cells, named]
    yield from _all("function", kept, package, seen)


def _class(kind: type, package: str, seen: dict[int, Any]) -> Iterator[str]:
    yield f"class {kind.__module__}.{kind.__qualname__}"
    if _package(kind) == package:
        methods = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
        yield from _all("methods", methods, package, seen)


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _shown(value: Any, *_: object) -> Iterator[str]:
    yield shown_function(value)


_KINDS: list[tuple[Any, Callable[[Any, str, dict[int, Any]], Iterator[str]]]] = [
    (ModuleType, lambda value, *_: iter([f"module {value.__name__}"])),
    (CodeType, _code),
    (FunctionType, _function),
    (MethodType, lambda value, *rest: _all("method", [value.__func__, value.__self__], *rest)),
    (partial, lambda value, *rest: _all("partial", [value.func, value.args, value.keywords], *rest)),
    ((tuple, list), lambda value, *rest: _all(type(value).__name__, value, *rest)),
    ((set, frozenset), lambda value, *rest: _all("set", sorted(value, key=repr), *rest)),
    (Mapping, lambda value, *rest: _all("mapping", [each for item in value.items() for each in item], *rest)),
    (type, _class),
    ((BuiltinFunctionType, np.ufunc), _shown),
]


# --------------------------------------------------------------------------------------------------------------------
# Calls


def block_facts(blocks: ChunkGrid, array: ArrayAxes, coords: Sequence[int], region: Region) -> dict[str, Any]:
    """Return what ``block_info`` says of one array, as in `dask.array.map_blocks`.

    Parameters
    ----------
    blocks
        Grid of the space.
    region
        Of the array: what its block holds, with the halo.

    Examples
    --------
    >>> axes = ArrayAxes(ChunkGrid.regular((6,), (1,)), (0,))
    >>> block_facts(ChunkGrid.regular((6,), (3,)), axes, (1,), (slice(3, 6),))
    {'shape': (6,), 'num-chunks': (2,), 'array-location': [(3, 6)], 'chunk-location': (1,)}
    """
    return {
        "shape": array.grid.shape,
        "num-chunks": tuple(1 if axis is None else blocks.axes[axis].n_chunks for axis in array.axes),
        "array-location": [(cut.start, cut.stop) for cut in region],
        "chunk-location": tuple(0 if axis is None else coords[axis] for axis in array.axes),
    }


@dataclass(frozen=True, slots=True)
class BlockFunction:
    """A function of the user, with its parameters; can be pickled where the function can.

    Attributes
    ----------
    n_targets
        Blocks that it returns.
    """

    function: Callable[..., Any]
    params: Mapping[str, Any]
    n_targets: int

    @property
    def name(self) -> str:
        """Module and name."""
        return shown_function(self.function)

    def __call__(
        self, blocks: Sequence[NDArray[Any]], coords: Sequence[int], info: Callable[[], dict[Any, Any]]
    ) -> Any:
        """Return what the function returns.

        Parameters
        ----------
        coords
            Of the block: ``block_id``.
        info
            Returns ``block_info``, where the function asks for it.
        """
        keywords = dict(self.params)
        if self._asks_for("block_info"):
            keywords["block_info"] = info()
        if self._asks_for("block_id"):
            keywords["block_id"] = tuple(coords)
        return self.function(*blocks, **keywords)

    def _asks_for(self, name: str) -> bool:
        return name not in self.params and bool(has_keyword(self.function, name))  # type: ignore[no-untyped-call]

    def results(self, found: Any) -> list[NDArray[Any]]:
        """Return what the function has returned as a block for each target; `TypeError` for another number of them."""
        each = found if isinstance(found, (tuple, list)) else [found]
        if len(each) != self.n_targets:
            raise TypeError(f"the function returned {len(each)} blocks for {self.n_targets} targets")
        return [np.asanyarray(one) for one in each]

    def failed(self, error: Exception, **where: Any) -> TransformError:
        """Return the error that says where the function failed, and in which line of its code (`TransformError`)."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _OWN_FILES]
        line = f" (line {frames[-1].lineno} of {frames[-1].name})" if frames else ""
        return TransformError(function=self.name, reason=f"{type(error).__name__}: {error}{line}", **where)


_OWN_FILES = {__file__, __file__.replace("function.py", "tasks.py")}


def checked_result(
    result: NDArray[Any], shape: Sequence[int], dtype: np.dtype[Any], *, without_halo: Sequence[int] = ()
) -> NDArray[Any]:
    """Return a block that the function has returned as the target holds it.

    Parameters
    ----------
    without_halo
        The shape that a block without its halo has, for a hint.

    Raises
    ------
    ValueError, TypeError
        It has another shape, or a dtype that cannot be cast without changing the kind of its values.
    """
    if isinstance(result, np.ma.MaskedArray):
        raise TypeError("the function returned a masked array: fill it (`.filled(...)`), a store holds no masks")
    if result.shape != tuple(shape):
        has_core = result.shape == tuple(without_halo) and result.ndim
        hint = "; give trim=False where it cuts the halo off itself" if has_core else ""
        raise ValueError(f"the function returned a block of shape {result.shape}, expected {tuple(shape)}{hint}")
    if result.dtype == dtype:
        return result
    if not np.can_cast(result.dtype, dtype, "same_kind"):
        raise TypeError(f"the function returned {result.dtype}, which {dtype} does not hold: cast it, or give dtype=")
    return result.astype(dtype)
