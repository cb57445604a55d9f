"""Write the golden reference sets: a netCDF-4 file by h5netcdf, references to it by kerchunk and VirtualiZarr.

Run in this folder: `python generate.py`. PROVENANCE.md says in which environment and what for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5netcdf
import kerchunk.df
import kerchunk.hdf
import numpy as np

HERE = Path(__file__).resolve().parent


def air() -> np.ndarray:
    """Values that shuffle and deflate earn their place with; odd chunks at the ends."""
    return (np.arange(5 * 4 * 6).reshape(5, 4, 6) * 37 % 500 - 250).astype("i2")


def write_netcdf(path: Path) -> None:
    with h5netcdf.File(path, "w") as f:
        f.dimensions = {"time": 5, "lat": 4, "lon": 6, "step": 6}
        v = f.create_variable("air", ("time", "lat", "lon"), "i2", chunks=(2, 4, 3), compression="gzip", shuffle=True)
        v[...] = air()
        v.attrs["scale_factor"] = np.float64(0.5)
        v.attrs["units"] = "K"
        # 8-byte items, deflated without shuffle
        v = f.create_variable("time", ("time",), "f8", chunks=(2,), compression="gzip", compression_opts=9)
        v[...] = np.arange(5) * 6.0
        for name, n in (("lat", 4), ("lon", 6)):  # contiguous: one chunk, not compressed
            f.create_variable(name, (name,), "f4")[...] = np.arange(n, dtype="f4") - 1.5
        v = f.create_variable("sparse", ("step",), "i4", chunks=(2,), fillvalue=-9)
        v[2:4] = [20, 30]  # the other chunks are not allocated: no references
        f.create_variable("crs", (), "i4")[...] = 7
        v = f.create_variable("checked", ("step",), "f4", chunks=(3,), fletcher32=True)
        v[...] = np.arange(6, dtype="f4") / 4  # kerchunk 0.2.10 leaves it out
        group = f.create_group("deep/er")
        group.create_variable("air", ("time", "lat"), "u1", chunks=(3, 3), compression="gzip")[...] = (
            air()[:, :, 0] % 200
        )


def main() -> None:
    netcdf = HERE / "small.nc"
    write_netcdf(netcdf)
    for name, threshold in (("kerchunk", 0), ("kerchunk-inlined", 300)):
        with netcdf.open("rb") as f:
            refs = kerchunk.hdf.SingleHdf5ToZarr(f, "small.nc", inline_threshold=threshold).translate()
        (HERE / f"{name}.json").write_text(json.dumps(refs, indent=0) + "\n")
        for record_size in (4, 100_000):
            folder = HERE / f"{name}-{record_size}.parquet"
            shutil.rmtree(folder, ignore_errors=True)
            kerchunk.df.refs_to_dataframe(json.loads(json.dumps(refs)), str(folder), record_size=record_size)


if __name__ == "__main__":
    main()
