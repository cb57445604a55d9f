"""What a call allocates, at most."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def peak_below(n_bytes):
    """Check that what is done inside never holds so many bytes, numpy's among them."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_bytes
