"""Pure integer arithmetic. No IO, no dask, no codec."""
