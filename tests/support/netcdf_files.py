"""netCDF files that follow one another, and what xarray reads from them: for tests of scans."""

import numpy as np
import xarray as xr

N = 4  # times in each file


def write_part(path, number, *, engine="h5netcdf", **attrs):
    """Write one of several files that follow one another along ``time``."""
    times = np.datetime64("2000-01-01") + np.arange(N) + N * number
    rng = np.random.default_rng(number)
    ds = xr.Dataset(
        {
            "v": (("time", "x"), rng.random((N, 6)), {"units": "m"}),
            "packed": (("time", "x"), np.arange(N * 6.0).reshape(N, 6) / 2),
            "static": ("x", np.arange(6, dtype="i4")),
        },
        coords={"time": ("time", times.astype("M8[ns]")), "x": np.arange(6.0)},
        attrs={"title": "t", "empty": ""} | attrs,
    )
    encoding = {
        "packed": {"dtype": "i2", "_FillValue": -1, "scale_factor": 0.5},
        "time": {"units": "days since 2000-01-01", "dtype": "i4"},
    }
    if engine == "scipy":
        ds.to_netcdf(path, engine=engine, encoding=encoding)
        return
    encoding["packed"]["chunksizes"] = (1, 6)
    encoding["v"] = {"chunksizes": (2, 3), "zlib": True, "shuffle": True, "fletcher32": True}
    ds.to_netcdf(path, engine=engine, encoding=encoding, unlimited_dims=["time"])


def write_parts(folder, n):
    """Write ``0.nc`` and those that follow; return the pattern of their names, and what xarray reads from all."""
    paths = [folder / f"{number}.nc" for number in range(n)]
    for number, path in enumerate(paths):
        write_part(path, number)
    return str(folder / "*.nc"), opened_by_xarray(paths, "h5netcdf")


def write_tiles(folder):
    """Write files of one dataset, cut along two dimensions; their names run against the values of both."""
    rng = np.random.default_rng(0)
    whole = xr.Dataset(
        {
            "v": (("time", "x", "lat"), rng.random((6, 3, 5))),
            "of_lat": ("lat", rng.random(5)),
            "of_time": (("time", "x"), rng.random((6, 3))),
            "static": ("x", rng.random(3)),
        },
        {"time": xr.date_range("2000-01-01", periods=6), "lat": np.linspace(60.0, -60.0, 5), "x": np.arange(3.0)},
    )
    whole.time.encoding = {"units": "days since 2000-01-01"}
    whole.v.encoding = {"chunksizes": (2, 3, 1), "zlib": True, "shuffle": True}
    for i, times in enumerate((slice(4, 6), slice(0, 2), slice(2, 4))):
        for j, lats in enumerate((slice(3, 5), slice(0, 2), slice(2, 3))):
            whole.isel(time=times, lat=lats).to_netcdf(folder / f"{i}-{j}.nc", engine="h5netcdf")
    return sorted(folder.glob("*.nc")), whole


def opened_by_xarray(paths, engine):
    return xr.concat(
        [xr.load_dataset(path, engine=engine) for path in paths],
        dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="outer",
    )
