"""Read stored arrays as dask arrays, and write dask arrays to stores."""

from chunkmill import config  # noqa: F401 - puts the defaults of the settings into dask's
