"""Bytes <-> one chunk. No key, no path, no grid, no store."""
