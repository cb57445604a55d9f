"""Scans of netCDF, HDF5, FITS and GRIB files: references to their chunks, joined along a dimension."""
