"""netCDF files that follow one another, and what xarray reads from them: for tests of scans."""

import numpy as np
import xarray as xr

N = 4  # times in each file


def write_part(path, number, *, engine="h5netcdf", encoding=None, units="days since 2000-01-01", **changes):
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
        attrs={"title": "t", "empty": ""},
    )
    known = {
        "v": {"chunksizes": (2, 3), "zlib": True, "shuffle": True, "fletcher32": True},
        "packed": {"dtype": "i2", "_FillValue": -1, "scale_factor": 0.5, "chunksizes": (1, 6)},
    }
    times_as = {"time": {"units": units, "dtype": "i4"}}
    of_variables = {"packed": known["packed"] | {"chunksizes": None}} if engine == "scipy" else known
    if engine == "scipy":
        of_variables["packed"].pop("chunksizes")
    ds = ds.assign_attrs(changes.pop("attrs", {}))
    unlimited = {} if engine == "scipy" else {"unlimited_dims": ["time"]}
    ds.to_netcdf(path, engine=engine, encoding=of_variables | times_as | (encoding or {}), **unlimited)


def opened_by_xarray(paths, engine):
    return xr.concat(
        [xr.load_dataset(path, engine=engine) for path in paths],
        dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="outer",
    )
