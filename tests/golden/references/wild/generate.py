"""Write files of several formats and the reference sets that other tools make of them: ``python generate.py``.

Targets are relative: the sets stand beside the files. See PROVENANCE.md for the versions.
"""

import base64
import gc
import json
import os
import shutil
import warnings
from pathlib import Path

import h5py
import hdf5plugin
import kerchunk.df
import kerchunk.fits
import kerchunk.grib2
import kerchunk.hdf
import kerchunk.netCDF3
import numpy as np
import tifffile
import eccodes
import xarray as xr
from astropy.io import fits
from kerchunk.combine import MultiZarrToZarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser

warnings.simplefilter("ignore")
gc.disable()  # kerchunk hangs when HDF5 objects are collected in zarr's thread while it waits for it
HERE = Path(__file__).parent
os.chdir(HERE)
for old in [*HERE.glob("*.json"), *HERE.glob("*.parquet")]:
    shutil.rmtree(old) if old.is_dir() else old.unlink()


def save(name, refs):
    text = json.dumps(
        refs,
        default=lambda value: (
            "base64:" + base64.b64encode(value).decode() if isinstance(value, bytes) else value.item()
        ),
    )
    Path(f"{name}.json").write_text(text.replace(f"{HERE}/", "").replace("file://", ""))


numbers = (np.arange(24 * 10) * 37 % 500).astype("i4").reshape(24, 10)
FILTERS = {"zlib_shuffle": {"compression": "gzip", "shuffle": True}, "fletcher32": {"fletcher32": True},
    "zstd": hdf5plugin.Zstd(), "blosc": hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE),
    "blosc_bits": hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
    "big": {"compression": "gzip", "dtype": ">i4"}}  # fmt: skip
with h5py.File("filters.h5", "w") as file:
    for name, options in FILTERS.items():
        file.create_dataset(name, data=numbers, chunks=(7, 10), **options)
    file.create_dataset("plain", data=numbers.astype("f8"))
    pairs = np.rec.fromarrays([numbers[:, 0], numbers[:, 1] / 4], names="a,b")
    file.create_dataset("pairs", data=pairs, chunks=(10,))
    file.create_dataset("fixed", data=np.array([b"ab", b"", b"xyz"], "S3"))
with h5py.File("strings.h5", "w") as file:
    words = ["", "a", "Zürich", "日本"]
    file.create_dataset("words", data=words, dtype=h5py.string_dtype(), chunks=(4,))
for name in ("filters", "strings"):
    for threshold in (0, 300):
        save(
            f"kerchunk-{name}-{threshold}",
            kerchunk.hdf.SingleHdf5ToZarr(f"{name}.h5", inline_threshold=threshold).translate(),
        )

days = []
for day in range(3):
    dataset = xr.Dataset({"air": (("time", "lat"), np.arange(8, dtype="f4").reshape(2, 4) + 8 * day)},
        {"time": np.datetime64("2020-01-01", "ns") + np.arange(2 * day, 2 * day + 2) * np.timedelta64(1, "D"),
        "lat": np.arange(4.0)})  # fmt: skip
    encoding = {"time": {"units": "days since 2020-01-01", "dtype": "i4"}}
    dataset.to_netcdf(f"day{day}.nc", engine="scipy", unlimited_dims=["time"], encoding=encoding)
    encoding["air"] = {"zlib": True, "chunksizes": (1, 4)}
    dataset.to_netcdf(f"day{day}.nc4", engine="h5netcdf", encoding=encoding)
    days.append(kerchunk.hdf.SingleHdf5ToZarr(f"day{day}.nc4", inline_threshold=0).translate())
save("kerchunk-classic", kerchunk.netCDF3.NetCDF3ToZarr("day0.nc", inline_threshold=0).translate())
for mode in ("data", "cf"):
    multi = MultiZarrToZarr(
        days, concat_dims=["time"], identical_dims=["lat"], coo_map={"time": f"{mode}:time"}
    ).translate()
    save(f"kerchunk-multi-{mode}", multi)
multi = json.loads(Path("kerchunk-multi-data.json").read_text())
for size in (2, 1000):
    kerchunk.df.refs_to_dataframe(multi, f"kerchunk-multi-{size}.parquet", record_size=size)

image = numbers.astype("i2")
columns = [fits.Column("a", "J", array=np.arange(5)), fits.Column("s", "4A", array=["abc"] * 5)]
fits.HDUList([fits.PrimaryHDU(image), fits.BinTableHDU.from_columns(columns, name="TABLE")]).writeto(
    "image.fits", overwrite=True
)
save("kerchunk-fits", {"version": 1, "refs": kerchunk.fits.process_file("image.fits")})

message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
for key, value in {"Ni": 6, "Nj": 4, "bitsPerValue": 12, "shortName": "2t"}.items():
    eccodes.codes_set(message, key, value)
eccodes.codes_set_values(message, 250 + np.arange(24) / 2)
Path("field.grib2").write_bytes(eccodes.codes_get_message(message))
save("kerchunk-grib", kerchunk.grib2.scan_grib("field.grib2", inline_threshold=0)[0])

tifffile.imwrite("tiles.tif", np.kron(numbers, np.ones((2, 4), "u2")).astype("u2"), tile=(16, 16), compression="zlib")
tifffile.imwrite("predictor.tif", numbers.astype("u2"), compression="zlib", predictor=True)
for name in ("tiles", "predictor"):
    with tifffile.TiffFile(f"{name}.tif") as file, file.aszarr() as store:
        store.write_fsspec(f"tifffile-{name}.json", url="", version=1)

registry = ObjectStoreRegistry({"file://": LocalStore()})
virtual = [
    open_virtual_dataset(
        f"file://{HERE}/day{day}.nc4", registry=registry, parser=HDFParser(), loadable_variables=["time"]
    )
    for day in range(3)
]
joined = xr.concat(virtual, dim="time", coords="minimal", compat="override", join="override")
joined.vz.to_kerchunk("virtualizarr-days.json", format="json")
text = Path("virtualizarr-days.json").read_text()
Path("virtualizarr-days.json").write_text(text.replace(str(HERE).replace("/", "\\/") + "\\/", ""))
assert str(HERE.parent.name) not in Path("virtualizarr-days.json").read_text()
