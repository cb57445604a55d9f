"""Reference sets as documents: kerchunk's JSON (v0, v1) and parquet."""
