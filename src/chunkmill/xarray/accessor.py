"""`Dataset.chunkmill` and `DataTree.chunkmill`: write and append as methods of the data.

Not here: the functions that they call, and when the accessors are registered (`chunkmill.xarray`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, Literal, TypeVar

from dask.delayed import Delayed
from xarray import Dataset, DataTree

from chunkmill.formats.base import WritableFormatName
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
