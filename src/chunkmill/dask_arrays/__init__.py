"""Dask arrays from stored chunks, and stored chunks from dask arrays."""
