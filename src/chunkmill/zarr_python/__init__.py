"""Nodes of every format, shown to zarr-python."""
