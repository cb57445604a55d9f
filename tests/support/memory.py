"""What a call allocates, at most, and how deep it calls."""

import inspect
import sys
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


def peak_of(run):
    """Return the most bytes that Python's allocators held while a function ran, and its result."""
    tracemalloc.start()
    try:
        result = run()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@contextmanager
def calls_no_deeper_than(n_frames):
    """Raise RecursionError where what is done inside calls deeper: what follows each level of a hierarchy does."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + n_frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
