"""The xarray engine ``chunkmill``, and the writing of datasets."""
