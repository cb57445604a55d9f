"""Scans of netCDF and HDF5 files: references to their chunks, joined along a dimension."""
