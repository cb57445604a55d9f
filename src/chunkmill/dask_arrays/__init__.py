"""Read stored arrays as dask arrays, and write dask arrays to stores."""
