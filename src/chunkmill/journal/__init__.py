"""Leases, records, plans, commits and recovery: files stored beside a node, without Dask."""
