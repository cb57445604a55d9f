"""Benchmarks: chunkmill, the libraries that do the same, and the bare loop, side by side in one run."""
