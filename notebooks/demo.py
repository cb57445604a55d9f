# ruff: noqa: INP001 - a script
"""Run the main job end to end on real data: ``make demo``, or ``python notebooks/demo.py --output FOLDER``.

Climate model output and satellite sea surface temperatures, from netCDF to Zarr v2 to sharded Zarr v3 with chunks for
time series; a netCDF file by reference, and from the references to sharded Zarr v3; a brain with scale levels as N5,
and as sharded Zarr v3. All results are verified, computed on and plotted, on a local Dask cluster of processes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, Self

import click
import dask
import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table

import chunkmill as cm

__all__ = ["run_demo"]

# file, variable, how often each value is repeated along (time, latitude, longitude) so that there is work to see: a
# finer grid of the same map
_SOURCES = (
    ("A1B_north_america.nc", "air_temperature", (1, 8, 8)),
    ("ostia_monthly.nc", "surface_temperature", (4, 4, 2)),
)
_BRAIN = "mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
_SCALES = 3

Step = tuple[str, int, float, float]  # description, tasks, seconds, bytes


def run_demo(output: str | os.PathLike[str], *, n_workers: int = 2) -> dict[str, Any]:
    """Run the main job, keep its stores and a plot in the folder `output`, and return the measurements.

    Raises
    ------
    RuntimeError
        The extra ``demo`` is not installed, or a result does not verify.
    """
    console = Console()
    start = time.perf_counter()
    folder = Path(output).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    steps: list[Step] = []
    console.print(f"[bold]chunkmill, the demo[/] on {n_workers} processes, into {folder}")
    with (
        dask.config.set({"chunkmill.progress": True}),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        means = _climate(folder, steps)
        _by_reference(folder, steps)
        slices = _brain(folder, steps)
    plot = folder / "demo.png"
    _plot({**means, **slices}, plot)
    console.print(_table(steps))
    for name in ("climate-v3.zarr", "virtual.zarr", "brain.n5"):
        console.print(f"{name}: {cm.open_group(str(folder / name)).tree()}")
    seconds = time.perf_counter() - start
    console.print(f"everything verified equal in {seconds:.0f} s · plot: {plot}", soft_wrap=True)
    return {"steps": steps, "plot": str(plot)}


def _climate(folder: Path, steps: list[Step]) -> dict[str, Any]:
    """Write climate data as Zarr v2, convert them to sharded Zarr v3 for time series, verify, and take means."""
    v2, v3 = str(folder / "climate-v2.zarr"), str(folder / "climate-v3.zarr")
    arrays = {name: _refined(name, times) for _, name, times in _SOURCES}
    n_bytes = sum(x.nbytes for x in arrays.values())
    cm.create_group(v2, format="zarr2", overwrite=True)
    dims = ("time", "latitude", "longitude")
    for name, x in arrays.items():
        with _Timed() as timed:
            report = cm.to_store(x, v2, name, format="zarr2", codecs="blosc", dimension_names=dims)
        steps.append((f"{name} to v2, a chunk a month", report.n_keys, timed.seconds, x.nbytes))
    cm.consolidate(v2)
    with _Timed() as timed:
        converted = cm.convert(v2, v3, format="zarr3", chunks=_series_chunks, shards=_series_shards, overwrite=True)
    steps.append(("convert: sharded v3, chunks for time series", converted.n_tasks, timed.seconds, n_bytes))
    _verify(v2, v3, n_bytes, steps)
    with _Timed() as timed:
        lazy = {name: cm.from_store(v3, name) for name in arrays}
        means = dict(zip(lazy, da.compute(*map(_lazy_mean, lazy.values())), strict=True))
    steps.append(("mean over time", sum(x.npartitions for x in lazy.values()), timed.seconds, n_bytes))
    for name, mean in means.items():
        (times,) = (times for _, variable, times in _SOURCES if variable == name)
        expected = _mean_over_time(_values(name))
        if not np.allclose(mean, np.kron(expected, np.ones(times[1:])), rtol=1e-4, equal_nan=True):
            raise RuntimeError(f"the mean of {name} is not that of the file")
    return means


def _by_reference(folder: Path, steps: list[Step]) -> None:
    """Make references to a netCDF file, convert them to sharded Zarr v3, and compare both with the file."""
    file, name, _ = _SOURCES[0]
    path = _sample(file)
    refs, target = folder / "virtual.json", str(folder / "virtual.zarr")
    with _Timed() as timed:
        references = _scanned(path)
        refs.write_text(json.dumps(references))
    steps.append((f"kerchunk: references to {file}", len(references["refs"]), timed.seconds, path.stat().st_size))
    group = cm.open_group(str(refs))
    n_bytes = sum(array.size * array.dtype.itemsize for array in group.arrays().values())
    with _Timed() as timed:
        converted = cm.convert(group, target, format="zarr3", shards=_ten_years, overwrite=True)
    steps.append(("convert the references: sharded v3", converted.n_tasks, timed.seconds, n_bytes))
    _verify(str(refs), target, n_bytes, steps)
    expected = _values(name)
    for url in (str(refs), target):
        if not np.array_equal(cm.from_store(url, name).compute(), expected, equal_nan=True):
            raise RuntimeError(f"{name} in {url} is not that of the file")


def _ten_years(array: cm.Array) -> tuple[int, ...] | None:
    """Return a shard shape of 120 chunks along time."""
    return (120 * array.chunks[0], *array.chunks[1:]) if array.ndim and array.shape[0] > array.chunks[0] else None


def _scanned(path: Path) -> dict[str, Any]:
    try:
        from kerchunk.hdf import SingleHdf5ToZarr  # noqa: PLC0415 - only the demo needs it
    except ImportError:
        raise RuntimeError("the demo needs kerchunk: pip install 'chunkmill[demo]'") from None
    references: dict[str, Any] = SingleHdf5ToZarr(str(path), inline_threshold=300).translate()
    return references


def _brain(folder: Path, steps: list[Step]) -> dict[str, Any]:
    """Write a brain as N5 with several scale levels, as its viewers want it, and convert it to sharded Zarr v3."""
    n5, v3 = str(folder / "brain.n5"), str(folder / "brain.zarr")
    cm.create_group(n5, format="n5", overwrite=True)
    cm.create_group(n5, "t1", format="n5", attributes={"axes": ["x", "y", "z"], "units": ["mm"] * 3})
    level = da.from_array(_template(), chunks=64)
    n_bytes = 0
    for scale in range(_SCALES):
        factors = [2**scale] * 3
        with _Timed() as timed:
            report = cm.to_store(
                level, n5, f"t1/s{scale}", format="n5", chunks=(64, 64, 64), codecs="gzip",
                dimension_names=("z", "y", "x"), attributes={"downsamplingFactors": factors},
            )  # fmt: skip
        steps.append((f"to_store brain t1/s{scale}: N5 gzip", report.n_keys, timed.seconds, level.nbytes))
        n_bytes += level.nbytes
        level = da.coarsen(np.mean, level, dict.fromkeys(range(3), 2), trim_excess=True).astype(level.dtype)
    if not np.array_equal(cm.open_array(n5, "t1/s0")[...], _template()):
        raise RuntimeError("the brain in N5 is not that of the file")
    with _Timed() as timed:
        converted = cm.convert(n5, v3, format="zarr3", shards=(128, 128, 128), overwrite=True)
    steps.append(("convert the brain: sharded v3", converted.n_tasks, timed.seconds, n_bytes))
    _verify(n5, v3, n_bytes, steps)
    return {"brain, N5 level s1": cm.open_array(n5, "t1/s1")[36]}


def _verify(a: str, b: str, n_bytes: float, steps: list[Step]) -> None:
    with _Timed() as timed:
        verified = cm.verify(a, b)
    steps.append((f"verify {Path(a).name} = {Path(b).name}", verified.n_blocks, timed.seconds, 2 * n_bytes))
    if not verified.equal:
        raise RuntimeError(f"{b} differs from its source: {verified}")


def _series_chunks(array: cm.Array) -> tuple[int, ...]:
    """Return a chunk shape that holds all times of a small patch."""
    return (array.shape[0], 12, 12)


def _series_shards(array: cm.Array) -> tuple[int, ...]:
    return (array.shape[0], 144, 144)


def _sample(file: str) -> Path:
    try:
        import iris_sample_data  # noqa: PLC0415 - only the demo needs it
    except ImportError:
        raise RuntimeError("the demo's data are missing: pip install 'chunkmill[demo]'") from None
    return Path(iris_sample_data.path) / file


def _read(file: str, name: str) -> xr.DataArray:
    # months of 30 days need cftime to be decoded, which nothing here needs
    with xr.open_dataset(_sample(file), engine="h5netcdf", decode_times=False) as dataset:
        return dataset[name].astype("f4").load()


def _values(name: str) -> np.ndarray[Any, Any]:
    (file,) = (file for file, variable, _ in _SOURCES if variable == name)
    return _read(file, name).values


def _refined(name: str, times: tuple[int, int, int]) -> da.Array:
    """Return the variable on a grid that is finer by whole numbers, a block a month."""
    months = da.from_array(np.repeat(_values(name), times[0], axis=0), chunks=(1, -1, -1))
    space = tuple((n * t,) for n, t in zip(months.shape[1:], times[1:], strict=True))
    cells = np.ones((1, *times[1:]), "f4")
    refined: da.Array = da.map_blocks(np.kron, months, cells, chunks=(months.chunks[0], *space), dtype="f4")
    return refined


def _lazy_mean(x: da.Array) -> da.Array:
    mean: da.Array = da.map_blocks(_mean_over_time, x, drop_axis=0, dtype=x.dtype)  # a block holds all times
    return mean


def _mean_over_time(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():  # land has no sea surface temperature
        warnings.simplefilter("ignore", RuntimeWarning)
        mean: np.ndarray[Any, Any] = np.nanmean(block, axis=0)
    return mean


def _template() -> np.ndarray[Any, Any]:
    """Return the MNI brain template that nilearn ships, slowest axis z."""
    found = importlib.util.find_spec("nilearn")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("the demo's data are missing: pip install 'chunkmill[demo]'")
    import nibabel  # noqa: PLC0415 - only the demo needs it

    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / _BRAIN
    image = nibabel.Nifti1Image.from_filename(path)
    return np.ascontiguousarray(np.asarray(image.dataobj).T)


def _plot(pictures: dict[str, Any], path: Path) -> None:
    """Draw each map once, on its longitudes and latitudes, and the brain."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only the demo needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure = plt.figure(figsize=(12, 8), layout="constrained")
    grid = figure.add_gridspec(2, 3, height_ratios=(1.6, 1))
    places = {"air_temperature": grid[0, :2], "surface_temperature": grid[1, :]}
    for name, picture in pictures.items():
        axis = figure.add_subplot(places.get(name, grid[0, 2]))
        if name not in places:
            axis.imshow(picture, origin="lower", cmap="gray")
            axis.set_title(name)
            axis.set_axis_off()
            continue
        extent = _extent(name)
        shown = axis.imshow(picture, origin="lower", extent=extent, aspect="auto", cmap="inferno")
        axis.set(title=f"{name.replace('_', ' ')}, mean over time", xlabel="longitude", ylabel="latitude")
        axis.xaxis.set_major_locator(mpl.ticker.MultipleLocator(15 if extent[1] - extent[0] < _HALF_TURN else 30))
        axis.xaxis.set_major_formatter(lambda degrees, _: _degrees(degrees, "EW"))
        axis.yaxis.set_major_formatter(lambda degrees, _: _degrees(degrees, "NS"))
        figure.colorbar(shown, ax=axis, label="K", pad=0.01)
    figure.savefig(path, dpi=110)
    plt.close(figure)


_HALF_TURN = 180


def _extent(name: str) -> tuple[float, float, float, float]:
    """Return longitudes and latitudes of the borders of a map: half a cell beyond the outermost points."""
    (file,) = (file for file, variable, _ in _SOURCES if variable == name)
    borders: list[float] = []
    for dim in ("longitude", "latitude"):
        points = _read(file, name)[dim].values
        half = (points[-1] - points[0]) / (len(points) - 1) / 2
        borders += [float(points[0] - half), float(points[-1] + half)]
    west, east, south, north = borders
    return west, east, south, north


def _degrees(degrees: float, sides: str) -> str:
    """Return an angle as on maps.

    Examples
    --------
    >>> _degrees(225, "EW"), _degrees(30, "EW"), _degrees(-5, "NS"), _degrees(180, "EW")
    ('135°W', '30°E', '5°S', '180°')
    """
    turned = (degrees + _HALF_TURN) % (2 * _HALF_TURN) - _HALF_TURN
    side = "" if turned in {0, -_HALF_TURN} else sides[0] if turned > 0 else sides[1]
    return f"{abs(turned):g}°{side}"


def _table(steps: list[Step]) -> Table:
    table = Table("step", title="steps")
    for column in ("tasks", "MB", "seconds", "MB/s"):
        table.add_column(column, justify="right")
    for step, n_tasks, seconds, n_bytes in steps:
        table.add_row(
            step, f"{n_tasks:,}", f"{n_bytes / 1e6:,.0f}", f"{seconds:.1f}", f"{n_bytes / 1e6 / seconds:,.0f}"
        )
    return table


class _Timed:
    """Measure the seconds that a `with` block takes."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = max(time.perf_counter() - self._start, 1e-9)


@click.command()
@click.option(
    "--output", type=click.Path(), default="demo-output", show_default=True, help="Folder of stores and plot."
)
@click.option("--workers", default=2, show_default=True, help="Processes of the local cluster.")
def main(output: str, workers: int) -> None:
    """Run the main job on real data: write, convert, verify, compute, plot."""
    run_demo(output, n_workers=workers)


if __name__ == "__main__":  # the workers import this file again
    main()
