"""Leases, records, plans, commits and recovery: files in a node's store, without Dask."""
