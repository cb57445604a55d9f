"""Read a table with anndata, in its own environment: ``python read_with_anndata.py STORE`` prints it as JSON."""

import json
import sys
import warnings

import anndata

warnings.simplefilter("ignore")
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
