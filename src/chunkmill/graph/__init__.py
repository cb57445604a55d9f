"""The only package that imports dask: plans and arrays -> graphs, locks, jobs."""
