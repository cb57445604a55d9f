"""Xarray backend ``engine="chunkmill"``, and `write_dataset`."""
