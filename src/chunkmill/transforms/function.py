"""The function of a transform: its call for one block, and the checks of what it returns.

Not here: blocks (`chunkmill.transforms.blocks`), reading and writing (`chunkmill.transforms.tasks`), what tells the
function from others (`chunkmill.jobs.call`).
"""

from __future__ import annotations

import inspect
import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
from dask.utils import has_keyword
from numpy.typing import NDArray

from chunkmill.errors import TransformError, UnsupportedFeature
from chunkmill.jobs.call import shown_function
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.model.user_values import as_dtype
from chunkmill.transforms.blocks import ArrayAxes


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
