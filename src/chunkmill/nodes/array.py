"""The public array: indexing, conversion to dask, drawings.

Not here: layouts and metadata (`chunkmill.array.stored_array`), how chunks are read and written
(`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike, NDArray

from chunkmill.array.chunk_io import write_region
from chunkmill.array.scattered_writes import write_index
from chunkmill.array.selection import as_region, full_region, region_shape, select
from chunkmill.array.staleness import check_unchanged, read_published, unchanged_while_written
from chunkmill.array.stored_array import CHECK_INTERVAL, LastSeen, ReadMissing, StoredArray
from chunkmill.array.threads import own_threads
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.model.user_values import scalar_of, spread
from chunkmill.nodes import deferred_imports
from chunkmill.nodes.attributes import Change, ChangesAttributes, changed_array
from chunkmill.nodes.indexers import BlockIndex, OuterIndex, PointIndex, split_fields
from chunkmill.stores.capabilities import n_publications

if TYPE_CHECKING:
    import dask.array

__all__ = ["Array"]


class Array(StoredArray, ChangesAttributes):
    """A chunked array in a store: lazy, picklable, safe to use from many threads.

    Made by `chunkmill.open_array` and `chunkmill.create_array`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-array", shape=(7, 5), dtype="int16", chunks=(3, 2))
    >>> a[1:3, 4] = 8
    >>> a[2]
    array([0, 0, 0, 0, 8], dtype=int16)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store.is_remote and "dask.array" in sys.modules:
            deferred_imports.read_from_arrays_in_runs()

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # da.from_array asks for it, perhaps where the user has set plugins of dask's since
        if self.store.is_remote:
            deferred_imports.read_from_arrays_in_runs()
        return super().__dask_tokenize__()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """Read elements as numpy selects them, from their bounding region; ``a["field"]`` of a structured dtype."""
        fields, index = split_fields(index, self.dtype)
        if fields is not None:
            return self[index][fields]
        selection = select(index, self.shape)
        check_unchanged(self, may_grow=True)  # also for `da.from_array`, whose graph may be older than what is stored
        block = read_published(self, selection.region, n_threads=own_threads())
        return block[selection.picks]

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Write elements, selected as in numpy; partly covered chunks under a lock and a version check."""
        self.check_writable()
        selection = select(index, self.shape)
        if not selection.is_region:
            with unchanged_while_written(self) as array:
                write_index(array, index, values, lock=deferred_imports.automatic_lock)
            return
        shape = tuple(n for n, part in zip(region_shape(selection.region), selection.within, strict=True) if part != 0)
        block = spread(values, self.dtype, shape)
        block = block.reshape(region_shape(selection.region))
        with unchanged_while_written(self) as array:
            write_region(array, selection.region, block, lock=deferred_imports.automatic_lock, n_threads=own_threads())

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
        whole = read_published(self, full_region(self.shape), n_threads=own_threads())
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def to_dask(
        self,
        chunks: Any = None,
        *,
        region: Any = None,
        read_missing: ReadMissing | None = None,
        name: str | None = None,
    ) -> dask.array.Array:
        """Return the array as a dask array: one symbolic layer, a task for each block.

        Parameters
        ----------
        chunks
            ``None``: a block for each store key (for each shard, when sharded). ``"auto"``, ``-1``, a tuple or a
            dict: as in dask, made multiples of the store keys where dask chooses.
        region
            Slices of step 1: only this region. Sliced later, dask may still name every block (1 s for a million).
        read_missing
            What an absent chunk is: its fill value (``"fill"``), or an error; as the array was opened when ``None``.
        name
            Name of the dask array; derived from what is read when ``None``.

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
        array = self if read_missing is None else self.with_read_missing(read_missing)
        return deferred_imports.read_graph(array, chunks, as_region(region, self.shape), name)

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
        return replace(self, metadata=metadata, read_only=True, has_own_fill_value=True)

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
            The array was opened with ``mode="r"``, or was replaced meanwhile.
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
        from chunkmill.nodes.resize import resize  # noqa: PLC0415 - reading an array needs nothing of it

        self.check_writable()
        return self._set_metadata(resize(self, shape))

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
            The array was opened with ``mode="r"``, or was changed meanwhile; the values are not visible then.
        JobError
            A job, or another append, is at work there.

        Examples
        --------
        >>> import chunkmill as cm
        >>> a = cm.create_array("memory://doc-append", shape=(0, 2), dtype="i4", chunks=(2, 2))
        >>> a.append([[1, 2]]), a.append([[3, 4], [5, 6]])
        ((1, 2), (3, 2))
        """
        from chunkmill.nodes.resize import append  # noqa: PLC0415

        self.check_writable()
        return self._set_metadata(append(self, values, axis)).shape

    def _set_metadata(self, metadata: ArrayMetadata) -> Self:
        """Take what was just published for the metadata of this array."""
        for name in ("_layouts", "chunk_grid"):  # cached properties of the old metadata
            self.__dict__.pop(name, None)
        object.__setattr__(self, "metadata", metadata)
        object.__setattr__(self, "last_seen", LastSeen(n_publications(), time.monotonic() + CHECK_INTERVAL))
        return self

    def _change_attributes(self, change: Change) -> Self:
        self.check_writable()
        metadata = changed_array(self.store, self.path, self.format, change)
        object.__setattr__(self, "metadata", metadata)
        return self

    def __repr__(self) -> str:
        return deferred_imports.array_text(self)

    def _repr_html_(self) -> str:
        return deferred_imports.array_html(self)
