"""The main job, end to end on real data: ``chunkmill demo``.

Climate model output and satellite sea surface temperatures, from netCDF to Zarr v2 to sharded Zarr v3 with chunks for
time series, checked, computed on and drawn; on a local Dask cluster of processes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Self

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table

import chunkmill as cm

__all__ = ["run_demo"]

# file, variable, how often it is repeated along (time, latitude, longitude) so that there is work to see
_SOURCES = (
    ("A1B_north_america.nc", "air_temperature", (1, 8, 8)),
    ("ostia_monthly.nc", "surface_temperature", (4, 4, 2)),
)


def run_demo(output: str | os.PathLike[str], *, n_workers: int = 2) -> dict[str, Any]:
    """Run the main job and leave two stores and a plot in the folder `output`; return what was measured.

    Raises
    ------
    RuntimeError
        The extra ``demo`` is not installed, or the result does not verify.
    """
    console = Console()
    folder = Path(output).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    v2, v3 = str(folder / "climate-v2.zarr"), str(folder / "climate-v3.zarr")
    steps: list[tuple[str, int, float, float]] = []
    arrays = {name: _tiled(name, times) for _, name, times in _SOURCES}
    n_bytes = sum(x.nbytes for x in arrays.values())
    console.print(f"[bold]chunkmill demo[/] {n_bytes / 1e6:,.0f} MB of {', '.join(arrays)} → {folder}")
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        console.print(f"a cluster of {n_workers} processes; {cm.create_group(v2, format='zarr2', overwrite=True)}")
        for name, x in arrays.items():
            with _Timed() as timed:
                report = cm.to_store(
                    x, v2, name, format="zarr2", mode="w", codecs="blosc",
                    dimension_names=("time", "latitude", "longitude"),
                )  # fmt: skip
            steps.append((f"to_store {name} (Zarr v2, a chunk a month)", report.n_keys, timed.seconds, x.nbytes))
        cm.consolidate(v2)

        with _Timed() as timed:
            converted = cm.convert(
                v2, v3, format="zarr3", overwrite=True, chunks=_series_chunks, shards=_series_shards
            )  # fmt: skip
        steps.append(("convert to sharded Zarr v3, chunks for time series", converted.n_tasks, timed.seconds, n_bytes))

        with _Timed() as timed:
            verified = cm.verify(v2, v3)
        steps.append(("verify that both are equal", verified.n_tasks, timed.seconds, 2 * n_bytes))
        if not verified.equal:
            raise RuntimeError(f"the conversion differs from its source: {verified}")

        with _Timed() as timed:
            means = {name: da.nanmean(cm.from_store(v3, name), axis=0).compute() for name in arrays}
        n_tasks = sum(cm.from_store(v3, name).npartitions for name in arrays)
        steps.append(("mean over time, from Zarr v3", n_tasks, timed.seconds, n_bytes))

    for name, x in arrays.items():
        expected = np.nanmean(_tiled_values(name), axis=0)
        got = means[name][: expected.shape[0], : expected.shape[1]]
        if not np.allclose(got, expected, rtol=1e-4, equal_nan=True):
            raise RuntimeError(f"the mean of {name} over {x.shape[0]} months is not that of the file")
    plot = folder / "means.png"
    _plot(means, plot)
    console.print(_table(steps))
    console.print(f"{cm.open_group(v3).tree()}")
    console.print(f"equal: {verified.equal} · plot: {plot}")
    return {"steps": steps, "equal": verified.equal, "plot": str(plot)}


def _series_chunks(array: cm.Array) -> tuple[int, ...]:
    """Return a chunk shape that holds all times of a small patch."""
    return (array.shape[0], 12, 12)


def _series_shards(array: cm.Array) -> tuple[int, ...]:
    return (array.shape[0], 144, 144)


def _read(file: str, name: str) -> xr.DataArray:
    try:
        import iris_sample_data  # noqa: PLC0415 - only the demo needs it
    except ImportError:
        raise RuntimeError("the demo's data are missing: pip install 'chunkmill[demo]'") from None
    path = Path(iris_sample_data.path) / file
    # months of 30 days need cftime to be decoded, which nothing here needs
    with xr.open_dataset(path, engine="h5netcdf", decode_times=False) as dataset:
        return dataset[name].astype("f4").load()


def _tiled_values(name: str) -> np.ndarray[Any, Any]:
    (file,) = (file for file, variable, _ in _SOURCES if variable == name)
    return _read(file, name).values


def _tiled(name: str, times: tuple[int, int, int]) -> da.Array:
    tiled: da.Array = da.tile(da.from_array(_tiled_values(name), chunks=(24, -1, -1)), times).rechunk((1, -1, -1))
    return tiled


def _plot(means: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only the demo needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, len(means), figsize=(12, 4), layout="constrained")
    for axis, (name, mean) in zip(axes, means.items(), strict=True):
        picture = axis.imshow(mean, origin="lower", aspect="auto", cmap="inferno")
        axis.set_title(f"{name}, mean over time")
        axis.set_xlabel("longitude (index)")
        axis.set_ylabel("latitude (index)")
        figure.colorbar(picture, ax=axis, label="K")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _table(steps: list[tuple[str, int, float, float]]) -> Table:
    table = Table("step", title="what was done")
    for column in ("tasks", "MB", "seconds", "MB/s"):
        table.add_column(column, justify="right")
    for step, n_tasks, seconds, n_bytes in steps:
        table.add_row(
            step, f"{n_tasks:,}", f"{n_bytes / 1e6:,.0f}", f"{seconds:.1f}", f"{n_bytes / 1e6 / seconds:,.0f}"
        )
    return table


class _Timed:
    """Seconds that a block takes."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = max(time.perf_counter() - self._start, 1e-9)
