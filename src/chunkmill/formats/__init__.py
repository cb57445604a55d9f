"""Documents <-> model: bytes in, dataclasses out. No store, no codec object, no dask."""
