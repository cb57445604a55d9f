"""One stored array: its layout and THE DATA PATH, chunk by chunk; no dask."""
