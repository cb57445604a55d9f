"""The function of a transform: its call for one block, the checks of what it returns, and its fingerprint.

A fingerprint tells a function from one that would compute other values, in every process (P7). It is made of the code,
the constants and defaults, the values that it closes over, and the globals that the code names: of functions and
classes among them, their code in turn; Dask's tokens stand for all other values. Of what is installed, the function's
own code counts alone: what that calls changes with a release. Names of files and lines do not count, nor do comments,
which they would in Dask's token of a function. Not here: blocks (`chunkmill.transforms.blocks`), reading and writing
(`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

import inspect
import pickle
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
import numpy as np
from dask.tokenize import TokenizationError, tokenize
from dask.utils import has_keyword
from numpy.typing import NDArray

from chunkmill.errors import TransformError, UnsupportedFeature
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.model.user_values import as_dtype
from chunkmill.transforms.blocks import ArrayAxes


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
        msg = "the function uses an object of which another process cannot see whether it is the same "
        raise ValueError(
            f"{msg}({str(error)[:200]}): give it a `__dask_tokenize__`, which returns a name of what it computes"
        ) from None


def _facts(value: Any, met: dict[int, int]) -> Any:
    """Return a value in which Dask knows all members; functions and classes that were met before by their number."""
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dask_tokenize__"):
        return "token", value.__dask_tokenize__()
    if isinstance(value, (FunctionType, type)):
        if id(value) in met:
            return "met", met[id(value)]
        met[id(value)] = len(met)
    members = _members(value)
    return value if members is None else (type(value).__qualname__, [_facts(each, met) for each in members])


def _members(value: Any) -> Iterable[Any] | None:
    """Return what a value is made of, functions perhaps among it; ``None`` where Dask knows it."""
    for kinds, members in _MEMBERS:
        if isinstance(value, kinds):
            return members(value)
    if hasattr(value, "__wrapped__"):  # by a cache, or a compiler
        return [shown_function(type(value)), value.__wrapped__]
    return [type(value), vars(value)] if callable(value) and hasattr(value, "__dict__") else None


def _of_code(code: CodeType) -> list[Any]:
    """Return what code does; not its file, lines, name or documentation."""
    is_documented = isinstance(next(iter(code.co_consts), None), str)
    counts = code.co_argcount, code.co_kwonlyargcount, is_documented
    python = sys.implementation.cache_tag  # other versions have other instructions
    return [python, code.co_code, code.co_names, counts, code.co_consts[is_documented:]]


def _of_class(value: type) -> Iterator[Any]:
    yield f"{value.__module__}.{value.__qualname__}"
    if not _is_installed(value.__module__):
        for name, member in sorted(vars(value).items()):
            if isinstance(member, (FunctionType, staticmethod, classmethod, property)):
                yield getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            elif not name.startswith("__") and isinstance(member, _PLAIN):
                yield member
        yield from value.__bases__


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
    ((ModuleType, BuiltinFunctionType, np.ufunc), lambda named: [shown_function(named)]),
    (type, _of_class),
    (FunctionType, _of_function),
    (CodeType, _of_code),
    (partial, lambda function: [function.func, function.args, function.keywords]),
    (MethodType, lambda method: [method.__func__, method.__self__]),
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Return its parts; `TypeError` that names the function where they cannot be pickled."""
        parts = self.function, dict(self.params), self.n_targets
        try:
            cloudpickle.dumps(parts)
        except Exception as error:
            msg = f"{shown_function(self.function)}, what it closes over, or params cannot be pickled for workers of "
            hint = "make it in the function, or run with dask.config.set(scheduler='threads')"
            raise TypeError(f"{msg}other processes: {error}; {hint}") from error
        return BlockFunction, parts

    def check_call(self, n_blocks: int) -> None:
        """Raise `TypeError` where the function does not take so many blocks and the parameters."""
        try:
            signature = inspect.signature(self.function)
        except (ValueError, TypeError):  # of compiled code
            return
        keywords = [*self.params, *filter(self._asks_for, ("block_info", "block_id"))]
        try:
            signature.bind(*[None] * n_blocks, **dict.fromkeys(keywords))
        except TypeError as error:
            passed = f"{n_blocks} block{'s' * (n_blocks != 1)}, one of each source"
            passed += f", and params {[*self.params]}" if self.params else ""
            called = f"{shown_function(self.function)}{signature}"
            raise TypeError(f"{called} cannot be called with {passed}: {error}") from None

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
            what = f"{len(each)} blocks for {self.n_targets} targets"
            raise TypeError(f"the function returned {what}: give a list of targets, or return one array for each")
        blocks = [np.asanyarray(one) for one in each]
        for block, one in zip(blocks, each, strict=True):
            if isinstance(one, (str, bytes)) or (block.dtype == object and not hasattr(one, "dtype")):
                what = "None" if one is None else f"a {type(one).__name__}"
                raise TypeError(f"the function returned {what}, expected a NumPy array")
        return blocks

    def failed(self, error: BaseException, **where: Any) -> TransformError:
        """Return the error that says where the function failed, and in which line of its code (`TransformError`)."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _OWN_FILES]
        line = f" (line {frames[-1].lineno} of {frames[-1].name})" if frames else ""
        return TransformError(
            function=shown_function(self.function), reason=f"{type(error).__name__}: {error}{line}", **where
        )


def carried(error: BaseException) -> BaseException:
    """Return what a function raised, or its traceback as text where that cannot be pickled: it may be of a worker."""
    try:
        pickle.loads(cloudpickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - of the user's class
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


_OWN_FILES = {__file__, __file__.replace("function.py", "tasks.py")}


def checked_result(
    result: NDArray[Any], shape: Sequence[int], dtype: np.dtype[Any], *, with_halo: Sequence[int] = ()
) -> NDArray[Any]:
    """Return a block that the function has returned as the target holds it (P1).

    Parameters
    ----------
    with_halo
        The shape that a block with its halo has, which is right, too.

    Raises
    ------
    ValueError, TypeError
        It has another shape, a dtype of another kind than the target's, or values that this does not hold.
    """
    if isinstance(result, np.ma.MaskedArray):
        raise TypeError("the function returned a masked array: fill it (`.filled(...)`), a store holds no masks")
    if result.shape not in {tuple(shape), tuple(with_halo)}:
        expected = f"{tuple(with_halo)}, or {tuple(shape)} without its halo" if with_halo else f"{tuple(shape)}"
        hint = "give dimension_names= where it drops or adds dimensions, source_region= where it changes lengths"
        raise ValueError(f"the function returned a block of shape {result.shape}, expected {expected}; {hint}")
    if result.dtype == dtype:
        return result
    if not np.can_cast(result.dtype, dtype, "same_kind"):
        raise TypeError(f"the function returned {result.dtype}, which {dtype} does not hold: cast it, or give dtype=")
    try:
        return as_dtype(result, dtype)
    except UnsupportedFeature as error:
        raise ValueError(f"the function returned what does not fit: {error.feature}: give a wider dtype=") from None
