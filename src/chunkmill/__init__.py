"""Chunked N-D arrays on Dask."""
