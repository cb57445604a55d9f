"""Read a table with anndata, in its own environment: ``python read_with_anndata.py STORE`` prints it as JSON.

``python read_with_anndata.py --shown STORE`` reads it as chunkmill shows it to zarr-python.
"""

import json
import sys
import warnings

import anndata

warnings.simplefilter("ignore")
if sys.argv[1] == "--shown":
    from chunkmill import zarr_store

    table = anndata.read_zarr(zarr_store(sys.argv[2]))
else:
    table = anndata.read_zarr(sys.argv[1])
print(
    json.dumps(
        {
            "X": table.X.toarray().tolist(),
            "cell": table.obs["cell"].tolist(),
            "n": table.obs["n"].tolist(),
            "obs": table.obs_names.tolist(),
            "var": table.var_names.tolist(),
        }
    )
)
