"""The public array: indexing, conversion to dask, drawings.

Not here: layouts and metadata (`chunkmill.array.stored_array`), how chunks are read and written
(`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.array.chunk_io import write_region
from chunkmill.array.layout import ChunkLayout
from chunkmill.array.scattered import read_outer, read_points, write_index, write_outer, write_points
from chunkmill.array.selection import as_region, full_region, region_shape, select
from chunkmill.array.staleness import read_published, written_to
from chunkmill.array.stored_array import ArrayFacts, ReadMissing, StoredArray
from chunkmill.array.threads import automatic_lock, own_threads
from chunkmill.errors import RegionError
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.model.user_values import scalar_of, spread
from chunkmill.nodes.changes import PublicNode, append, resize

if TYPE_CHECKING:
    import dask.array


class Array(PublicNode, ArrayFacts):  # type: ignore[override]  # properties
    """A chunked array in a store: lazy, picklable, safe to read and write from many threads.

    Made by `chunkmill.open_array` and `chunkmill.create_array`. It is mutable: `resize`, `append`, `update_attributes`
    and `del_attributes` change the stored array and this object, and with them its Dask token; equality is identity.

    Attributes
    ----------
    stored : StoredArray
        The stored array as tasks carry it, which never changes: metadata, layouts, keys.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-array", shape=(7, 5), dtype="int16", chunks=(3, 2))
    >>> a[1:3, 4] = 8
    >>> a[2]
    array([0, 0, 0, 0, 8], dtype=int16)
    """

    stored: StoredArray

    def __init__(self, stored: StoredArray) -> None:
        self.stored = stored
        if stored.store.is_remote and "dask.array" in sys.modules:
            _read_from_arrays_in_runs()

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # da.from_array asks for it, perhaps where the user has set plugins of dask's since
        _read_from_arrays_in_runs()
        return self.stored.__dask_tokenize__()

    @property
    def metadata(self) -> ArrayMetadata:  # type: ignore[override]
        """Content of the stored document, in one form for all formats."""
        return self.stored.metadata

    @property
    def chunks(self) -> tuple[Any, ...]:
        """Chunk shape (of the inner chunks, when sharded); lengths per axis when the grid is rectilinear."""
        return self.stored.chunks

    @property
    def shards(self) -> tuple[Any, ...] | None:
        """Shard shape, or ``None`` when every chunk has a store key of its own."""
        return self.stored.shards

    @property
    def read_layout(self) -> ChunkLayout:
        """Layout by which single chunks are read: ``read_layout.grid`` is the grid of chunks."""
        return self.stored.read_layout

    @property
    def write_layout(self) -> ChunkLayout:
        """Layout of store keys, read and written whole; the same object as `read_layout` unless sharded."""
        return self.stored.write_layout

    @property
    def nchunks(self) -> int:
        """Number of chunks (inner chunks, when sharded), present or not."""
        return self.stored.chunk_grid.n_chunks

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    @overload
    def __getitem__(self, index: SupportsIndex | tuple[SupportsIndex, ...]) -> Any: ...
    @overload
    def __getitem__(self, index: Any) -> NDArray[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        """Read elements as numpy selects them, from their bounding region; ``a["field"]`` of a structured dtype."""
        fields, index = split_fields(index, self.dtype)
        if fields is not None:
            return self[index][fields]
        selection = select(index, self.shape)
        # also for `da.from_array`, whose graph may be older than what is stored
        block = read_published(self.stored, selection.region, n_threads=own_threads())
        return block[selection.picks]

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write elements, selected as in numpy; partly covered chunks under a lock and a version check.

        ``a["field"] = values`` writes one field of a structured dtype; the others keep their values.
        """
        self.stored.check_writable()
        fields, index = split_fields(index, self.dtype)
        selection = select(index, self.shape)
        if fields is not None or not selection.is_region:
            with written(self.stored) as array:
                write_index(array, index, values, lock=automatic_lock, fields=... if fields is None else fields)
            return
        shape = tuple(n for n, part in zip(region_shape(selection.region), selection.within, strict=True) if part != 0)
        block = spread(values, self.dtype, shape).reshape(region_shape(selection.region))
        with written(self.stored) as array:
            write_region(array, selection.region, block, lock=automatic_lock, n_threads=own_threads())

    @property
    def info(self) -> str:
        """Facts of the array as text: shape, chunks, bytes, data type, fill value, codecs, format, location."""
        from chunkmill.display.nodes import array_info  # noqa: PLC0415

        return array_info(self.stored)

    @property
    def oindex(self) -> OuterIndex:
        """Elements at all combinations of positions along the axes: ``a.oindex[[5, 1], mask]``, to read and write."""
        return OuterIndex(self)

    @property
    def vindex(self) -> PointIndex:
        """Elements at points: ``a.vindex[[5, 1], [2, 0]]``, or by a mask of the array's shape, to read and write."""
        return PointIndex(self)

    @property
    def blocks(self) -> BlockIndex:
        """Chunks (shards, when sharded) by their number along each axis: ``a.blocks[0, 1:3]``, to read and write."""
        return BlockIndex(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read the whole array."""
        if copy is False:
            raise ValueError("an array in a store cannot become a numpy array without a copy")
        whole = read_published(self.stored, full_region(self.shape), n_threads=own_threads())
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def to_dask(
        self,
        chunks: int | str | Sequence[Any] | Mapping[Any, Any] | None = None,
        *,
        region: slice | Sequence[Any] | None = None,
        read_missing: ReadMissing | None = None,
        name: str | None = None,
        chunked_array_type: Literal["dask", "dask-array"] | None = None,
    ) -> dask.array.Array:
        """Return the array as a dask array: one symbolic layer, a task for each block.

        Parameters
        ----------
        chunks
            ``None``: a block for each store key (for each shard, when sharded). ``"auto"``, ``-1``, a tuple or a
            dict: as in dask, made multiples of the store keys where dask chooses.
        region
            Slices of step 1: only this region. Sliced after arithmetic, dask.array names all blocks: 1 s for a million.
        read_missing
            What an absent chunk is: its fill value (``"fill"``), or an error; as the array was opened when ``None``.
        name
            Name of the dask array; derived from what is read when ``None``.
        chunked_array_type
            ``"dask"``: an array of dask.array. ``"dask-array"``: one of the package dask-array. The kind that xarray
            makes when ``None``: the second one if it is registered there.

        Notes
        -----
        The graph holds the array's metadata. Computing it raises `StoreError` where the array was deleted or replaced
        in the store by one with other chunks, data type, codecs or fill value, or a smaller shape: tasks compare the
        stored document with theirs, at first in each process and then about once a second. A task that began less than
        a second before another process replaced the array may still read by the old metadata.

        Examples
        --------
        >>> import chunkmill as cm
        >>> cm.create_array("memory://doc-to-dask", shape=(6, 4), dtype="f4", chunks=(3, 2)).to_dask().chunks
        ((3, 3), (2, 2))
        """
        array = self.stored if read_missing is None else self.stored.with_read_missing(read_missing)
        where = as_region(region, self.shape)
        from chunkmill.dask_arrays.expressions import read_array  # noqa: PLC0415

        lazy: dask.array.Array = read_array(array, chunks, where, name, chunked_array_type)
        return lazy

    @contextmanager
    def lock(self, region: Any = None, *, timeout: float | None = None) -> Iterator[None]:
        """Hold all store keys that a region touches, for code that writes them by other means than chunkmill.

        Threads of this process, and workers of the same cluster, wait for each other; so do unrelated processes and
        machines where the store compares versions (local files, S3, GCS, Azure, memory), by a lease in the store that
        others take over when its process has died. Only those wait that take the lock, too: chunkmill's own writes lose
        nothing without it, and inside it they are not held up.

        Parameters
        ----------
        region : slice or tuple of slice, optional
            Slices of step 1; the whole array when ``None``.
        timeout : float, optional
            Seconds to wait; without end when ``None``.

        Raises
        ------
        TimeoutError
            Others hold a part of it when the time is over.
        StoreError
            This thread holds a part of it already; or, at the end, the process was silent for so long that others have
            taken the lock over. A lock inside the region of one that this thread holds costs nothing.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-lock", shape=(6, 4), dtype="i4", chunks=(3, 2))
        >>> with a.lock((slice(0, 2), slice(0, 4)), timeout=60):
        ...     a[0:2] = a[0:2] + 1
        """
        from chunkmill.runtime.locks import hold  # noqa: PLC0415

        with hold(self.stored, as_region(region, self.shape), timeout):
            yield

    def with_fill_value(self, fill_value: Any) -> Array:
        """Return the array, for reading, with another fill value than the stored one.

        For arrays whose writers meant another value by an absent chunk than their metadata say, such as those of N5,
        which hold none. A conversion of it writes that fill value.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-fill", shape=(3,), dtype="f4", chunks=(2,), format="n5")
        >>> a[2] = 7
        >>> a.with_fill_value(float("nan"))[...]
        array([nan, nan,  7.], dtype=float32)
        """
        metadata = replace(self.metadata, fill_value=scalar_of(fill_value, self.dtype))
        return Array(replace(self.stored, metadata=metadata, read_only=True, has_own_fill_value=True))

    def resize(self, shape: int | Sequence[int]) -> Self:
        """Change the shape of the array in the store and here; new elements hold the fill value.

        The metadata are published first. Then chunks outside the new bounds are deleted, and in the chunks at its ends
        the elements outside are set to the fill value, so that an array that becomes longer again shows none of them.
        This lists the array's chunks, and reads those at the ends. Other handles of an array that became shorter raise
        `StoreError` when they are used.

        Parameters
        ----------
        shape : int or sequence of int
            Length of each axis.

        Returns
        -------
        Array
            The array itself.

        Raises
        ------
        RegionError
            The shape has another number of axes.
        StoreError
            The array was opened with ``mode="r"``, or was replaced since.
        JobError
            A job, or another writer, is at work there.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-resize", shape=(4,), dtype="i4", chunks=(3,))
        >>> a[...] = 7
        >>> a.resize((2,)).resize((5,))[...]
        array([7, 7, 0, 0, 0], dtype=int32)
        """
        self.stored.check_writable()
        self.stored = resize(self.stored, shape)
        return self

    def append(self, values: Any, axis: int = 0) -> tuple[int, ...]:
        """Write values after the last ones along an axis, and return the new shape.

        The longer array becomes visible when all values are written; a dask array is written by its tasks. For
        datasets, whose coordinates grow too, there is `chunkmill.write_dataset` with ``append_dim=``.

        Parameters
        ----------
        values : array_like
            As long as the array along all other axes.
        axis : int
            The axis along which the array becomes longer.

        Returns
        -------
        tuple of int
            The new shape.

        Raises
        ------
        AlignmentError
            The values have another shape.
        StoreError
            The array was opened with ``mode="r"``, or was changed since; the values are not visible then.
        JobError
            A job, or another append, is at work there.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-append", shape=(0, 2), dtype="i4", chunks=(2, 2))
        >>> a.append([[1, 2]]), a.append([[3, 4], [5, 6]])
        ((1, 2), (3, 2))
        """
        self.stored.check_writable()
        self.stored = append(self.stored, values, axis)
        return self.shape


def _read_from_arrays_in_runs() -> None:
    from chunkmill.dask_arrays.from_array import read_from_arrays_in_runs  # noqa: PLC0415

    read_from_arrays_in_runs()


# --------------------------------------------------------------------------------------------------------------------
# Other ways to index


@contextmanager
def written(stored: StoredArray) -> Iterator[StoredArray]:
    """Yield the array to write elements to: one commit, in a store that has commits."""
    with stored.store.transaction(f"write to {stored.path!r}"), written_to(stored, stored) as array:
        yield array


class _Index:
    _read: Callable[[StoredArray, Any], NDArray[Any]]
    _write: Callable[..., None]

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read the elements."""
        return self._read(self._array.stored, index)

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write the elements; of the same one, the last value stays."""
        self._array.stored.check_writable()
        with written(self._array.stored) as array:
            self._write(array, index, values, lock=automatic_lock)


class OuterIndex(_Index):
    """Select all combinations of positions, as ``np.ix_`` does.

    An index has for each axis an integer, a slice, or a one-dimensional array of integers or booleans; axes at the end
    may be left out.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-oindex", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a.oindex[[3, 0], ::5] = [[1, 2], [3, 4]]
    >>> a.oindex[[0, 3], [5]]
    array([[4],
           [2]], dtype=int16)
    """

    _read, _write = staticmethod(read_outer), staticmethod(write_outer)


class PointIndex(_Index):
    """Select elements one by one, by an array of integers for each axis, or by a mask of the array's shape.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-vindex", shape=(4, 6), dtype="i2", chunks=(2, 2))
    >>> a.vindex[[3, 0], [5, 1]] = [8, 9]
    >>> a.vindex[a[...] > 0]
    array([9, 8], dtype=int16)
    """

    _read, _write = staticmethod(read_points), staticmethod(write_points)


class BlockIndex(_Index):
    """Select chunks (shards, when sharded) by their number along each axis; several by slices of step 1.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-blocks", shape=(5, 6), dtype="i2", chunks=(2, 3))
    >>> a.blocks[2, 1] = 4
    >>> a.blocks[-1, :].shape, int(a[4, 3])
    ((1, 6), 4)
    """

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read the chunks, as one block."""
        block: NDArray[Any] = self._array[self._region(index)]
        return block

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write the chunks."""
        self._array[self._region(index)] = values

    def _region(self, index: Any) -> tuple[slice, ...]:
        grid = self._array.stored.write_layout.grid
        selection = select(index, grid.grid_shape)
        if not selection.is_region:
            reason = "blocks are selected by integers and slices of step 1"
            raise RegionError(index=repr(index)[:200], shape=grid.grid_shape, reason=reason)
        ends = [cut.stop - 1 if cut.start < cut.stop else None for cut in selection.region]
        return tuple(
            slice(0) if i is None else slice(axis.start(cut.start), min(axis.start(i) + axis.length(i), axis.size))
            for axis, cut, i in zip(grid.axes, selection.region, ends, strict=True)
        )


def split_fields(index: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the field of a structured dtype that an index names, and the rest of it; ``None`` without one.

    Raises
    ------
    RegionError
        The dtype has no such field, or several are named.

    Examples
    --------
    >>> split_fields(("x", slice(3)), np.dtype([("x", "i4"), ("y", "f4")]))
    ('x', (slice(None, 3, None),))
    >>> split_fields(5, np.dtype("i4"))
    (None, 5)
    """
    parts = index if isinstance(index, tuple) else (index,)
    named = [part for part in parts if isinstance(part, str)]
    if not named:
        return None, index
    if len(named) > 1 or named[0] not in (dtype.names or ()):
        has = f"the dtype has the fields {list(dtype.names)}" if dtype.names else f"{dtype} has no fields"
        raise RegionError(index=", ".join(map(repr, named)), shape=(), reason=has)
    return named[0], tuple(part for part in parts if part is not named[0]) or (...,)
