"""Golden stores of programs above Zarr: ``python generate_other_writers.py OUTPUT_DIR KIND``, KIND as in `WRITERS`.

Each kind is run in an environment that has its program; what stores hold, `tests/interop/test_golden_of_programs.py` says.
"""

import sys
from pathlib import Path

import numpy as np


def spatialdata(out):
    """Images whose coordinateTransformations are alternatives, one for each coordinate system."""
    import spatialdata as sd
    from spatialdata.models import Image2DModel
    from spatialdata.transformations import Affine, Scale, Sequence, Translation

    yx = ("y", "x")
    affine = Affine([[1, 0.2, 3], [0, 1, 4], [0, 0, 1]], input_axes=("x", "y"), output_axes=("x", "y"))
    moved = Sequence([Scale([0.5, 0.25], yx), Translation([10, 20], yx)])
    values = np.arange(64, dtype="u1").reshape(1, 8, 8)
    images = {"two": {"global": Scale([0.17, 0.17], yx), "other": Scale([0.05, 0.05], yx)},
        "affine": {"aligned": affine, "global": moved}, "only": {"aligned": affine}}  # fmt: skip
    models = {
        name: Image2DModel.parse(values, dims=("c", "y", "x"), scale_factors=[2], transformations=each)
        for name, each in images.items()
    }
    sd.SpatialData(images=models).write(out / f"spatialdata-{sd.__version__}.zarr")


def anndata(out):
    """A table with a sparse matrix, categories and text, in both versions of Zarr."""
    import anndata
    import pandas as pd
    import scipy.sparse

    table = anndata.AnnData(
        X=scipy.sparse.csr_matrix(np.eye(5, 4, dtype="f4")),
        obs=pd.DataFrame({"cell": pd.Categorical(list("abaca")), "n": range(5)}, index=[f"c{i}" for i in range(5)]),
        var=pd.DataFrame(index=[f"g{i}" for i in range(4)]),
    )
    for version in (2, 3):
        anndata.settings.zarr_write_format = version
        table.write_zarr(out / f"anndata-{anndata.__version__}-v{version}.zarr")


def gdal(out):
    """Complex arrays with the filter delta, by the multidimensional API."""
    from osgeo import gdal as g
    from osgeo import gdal_array

    values = (np.arange(12) * (1 + 2j)).reshape(3, 4)
    for dtype in ("c8", "c16"):
        name = str(out / f"gdal-{g.VersionInfo('RELEASE_NAME')}-{dtype}.zarr")
        root = g.GetDriverByName("Zarr").CreateMultiDimensional(name, options=["FORMAT=ZARR_V2"]).GetRootGroup()
        dims = [root.CreateDimension(each, None, None, n) for each, n in zip("yx", values.shape, strict=True)]
        kind = g.ExtendedDataType.Create(gdal_array.NumericTypeCodeToGDALTypeCode(np.dtype(dtype).type))
        array = root.CreateMDArray("a", dims, kind, ["FILTER=DELTA", "COMPRESS=NONE", "BLOCKSIZE=2,4"])
        array.Write(values.astype(dtype))
        del array, dims, root


def xarray(out):
    """A DataArray without a name: the name of its array begins with two underscores."""
    import xarray as xr

    array = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("y", "x"))
    array.to_zarr(out / f"xarray-{xr.__version__}-unnamed.zarr", zarr_format=3, consolidated=True)


WRITERS = {"spatialdata": spatialdata, "anndata": anndata, "gdal": gdal, "xarray": xarray}

if __name__ == "__main__":
    WRITERS[sys.argv[2]](Path(sys.argv[1]))
