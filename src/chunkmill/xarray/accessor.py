"""`Dataset.chunkmill` and `DataTree.chunkmill`: write, append, rechunk and transform as methods of the data.

Not here: the functions that they call, and when the accessors are registered (`chunkmill.xarray`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from dask.delayed import Delayed
from xarray import Dataset, DataTree, Variable

from chunkmill.errors import DatasetError
from chunkmill.formats.base import WritableFormatName
from chunkmill.nodes import deferred_imports
from chunkmill.xarray.duplicates import OnDuplicate
from chunkmill.xarray.write import DatasetReport, Mode, write_dataset

__all__ = ["DatasetAccessor", "TreeAccessor"]

T = TypeVar("T", Dataset, DataTree)


class _Accessor(Generic[T]):
    """Methods of datasets and trees alike."""

    def __init__(self, data: T) -> None:
        self._data: T = data

    def write(
        self,
        url: Any,
        path: str = "",
        *,
        format: WritableFormatName | None = None,  # noqa: A002 - as in write_dataset
        mode: Mode = "w-",
        region: Mapping[Hashable, Any] | Literal["auto"] | None = None,
        encoding: Mapping[str, Any] | None = None,
        chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
        consolidated: bool | None = None,
        lock: Any = "auto",
        compute: bool = True,
        write_empty_chunks: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> DatasetReport | Delayed:
        """Write the data to the group at `path` of the store at `url`, as `chunkmill.write_dataset`.

        Examples
        --------
        >>> import chunkmill, numpy as np, xarray as xr
        >>> ds = xr.Dataset({"t": ("x", np.arange(6.0))}, coords={"x": np.arange(6)})
        >>> ds.chunkmill.write("memory://doc-accessor").n_keys
        2
        """
        return write_dataset(
            self._data,
            url,
            path,
            format=format,
            mode=mode,
            region=region,
            encoding=encoding,
            chunk_key_encoding=chunk_key_encoding,
            consolidated=consolidated,
            lock=lock,
            compute=compute,
            write_empty_chunks=write_empty_chunks,
            storage_options=storage_options,
        )

    def append(
        self,
        url: Any,
        dim: Hashable,
        path: str = "",
        *,
        on_duplicate: OnDuplicate = "error",
        mode: Literal["a", "a-"] = "a",
        consolidated: bool | None = None,
        lock: Any = "auto",
        compute: bool = True,
        write_empty_chunks: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> DatasetReport | Delayed:
        """Append the data along `dim` to the group at `path` of the store at `url`, as `chunkmill.write_dataset`.

        Examples
        --------
        >>> import chunkmill, numpy as np, xarray as xr
        >>> ds = xr.Dataset({"t": ("x", np.arange(6.0))}, coords={"x": np.arange(6)})
        >>> _ = ds.chunkmill.write("memory://doc-accessor-append")
        >>> ds.assign_coords(x=ds.x + 6).chunkmill.append("memory://doc-accessor-append", "x").n_keys
        2
        """
        return write_dataset(
            self._data,
            url,
            path,
            mode=mode,
            append_dim=dim,
            on_duplicate=on_duplicate,
            consolidated=consolidated,
            lock=lock,
            compute=compute,
            write_empty_chunks=write_empty_chunks,
            storage_options=storage_options,
        )


class TreeAccessor(_Accessor[DataTree]):
    """`DataTree.chunkmill`."""


class DatasetAccessor(_Accessor[Dataset]):
    """`Dataset.chunkmill`."""

    def rechunk(
        self,
        url: Any,
        chunks: Mapping[Hashable, int],
        path: str = "",
        *,
        shards: Mapping[Hashable, int] | None = None,
        format: WritableFormatName | None = None,  # noqa: A002 - as in write_dataset
        mode: Literal["w-", "w"] = "w-",
        storage_options: Mapping[str, Any] | None = None,
    ) -> DatasetReport | Delayed:
        """Write the dataset, with its present values, in other chunks.

        Values come from the dataset and may have been computed. To give what is stored other chunks, each element read
        once and in bounded memory, use `chunkmill.rechunk`.

        Parameters
        ----------
        chunks, shards
            Lengths by dimension; ``-1`` for all of it. Other dimensions keep the chunks that the variables came with,
            or are not divided. Without `shards` there are none.
        url, path, format, mode, storage_options
            As in `chunkmill.write_dataset`.

        Examples
        --------
        >>> import chunkmill as cm, numpy as np, xarray as xr
        >>> ds = xr.Dataset({"t": (("time", "x"), np.ones((6, 4)))})
        >>> _ = ds.chunkmill.rechunk("memory://doc-accessor-rechunk", {"time": -1, "x": 2})
        >>> cm.open_array("memory://doc-accessor-rechunk", "t").chunks
        (6, 2)
        """
        for named in (chunks, shards or {}):
            if unknown := [dim for dim in named if dim not in self._data.dims]:
                known = ", ".join(map(str, self._data.dims))
                raise DatasetError(variable="", url=str(url), reason=f"no dimensions {unknown}: there are {known}")
        dataset = self._data.copy()
        for variable in dataset.variables.values():
            if {*chunks, *(shards or {})} & set(variable.dims):
                variable.encoding = _encoding(variable, chunks, shards or {})
        return write_dataset(dataset, url, path, format=format, mode=mode, storage_options=storage_options)

    def transform(
        self,
        function: Callable[..., Any],
        url: Any,
        path: str = "",
        *,
        variables: Sequence[Hashable] | None = None,
        names: Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """Apply a function to variables of the dataset block by block, and write the results with their coordinates.

        Blocks are of the variables as the dataset has them, decoded or computed. The group gets the coordinates first;
        the results appear in it when all are complete, and the same call resumes an interrupted job.

        Parameters
        ----------
        function
            Called with one NumPy block for each variable, as in `chunkmill.transform`.
        url, path
            Of the group, as in `chunkmill.open`; what is there has the same coordinates.
        variables
            Names of the variables that the function gets, in this order; all data variables by default.
        names
            Names of the results; that of the variable, where there is one, by default. Coordinates are kept along the
            dimensions that results have.
        **options
            As in `chunkmill.transform`: ``halo={"lat": 2}``, ``dtype=``, ``chunks={"time": 30}``, ``resume=``, …

        Returns
        -------
        Report
            Store keys by action, bytes, seconds.

        Raises
        ------
        DatasetError
            There are several variables and no `names`; a dimension that has coordinates gets another length; or other
            coordinates are stored at the target.
        TransformError, JobError
            As in `chunkmill.transform`.

        Examples
        --------
        >>> import chunkmill as cm, numpy as np, xarray as xr
        >>> uv = {name: ("x", np.full(6, value)) for name, value in (("u", 3.0), ("v", 4.0))}
        >>> ds = xr.Dataset(uv, coords={"x": np.arange(6) * 10})
        >>> _ = ds.chunkmill.transform(np.hypot, "memory://doc-accessor-transform", names=["speed"])
        >>> stored = xr.open_dataset("memory://doc-accessor-transform", engine="chunkmill")
        >>> float(stored.speed.sel(x=50))
        5.0
        """
        chosen: dict[str, Any] = {"variables": variables, "names": names}
        return deferred_imports.transform_dataset(self._data, function, url, path, **chosen, **options)


def _encoding(
    variable: Variable, chunks: Mapping[Hashable, int], shards: Mapping[Hashable, int]
) -> dict[Hashable, Any]:
    """Return the encoding of a variable with chunks, and shards where one of its dimensions has them."""
    before = variable.encoding.get("preferred_chunks", {})
    encoding = {name: value for name, value in variable.encoding.items() if name not in {"chunks", "shards"}}
    encoding.pop("preferred_chunks", None)
    encoding["chunks"] = _lengths(variable, {**before, **chunks})
    if shards.keys() & set(variable.dims):
        encoding["shards"] = _lengths(variable, {**before, **chunks, **shards})
    return encoding


def _lengths(variable: Variable, named: Mapping[Hashable, Any]) -> tuple[int, ...]:
    """Return a length for each axis; chunks of several lengths, as dask's may be, count as their first."""
    lengths = ((size, named.get(dim, -1)) for dim, size in variable.sizes.items())
    return tuple(size if n == -1 else n[0] if isinstance(n, tuple) else n for size, n in lengths)
