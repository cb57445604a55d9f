"""Arrays that hold values."""

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore


def filled(values, store=None, path="", **options):
    """Return a new array of `values`, in memory where no store is given; `options` are those of `create_array`."""
    about = {"shape": values.shape, "dtype": values.dtype} | options
    array = cm.create_array(MemoryStore() if store is None else store, path, **about)
    array[...] = values
    return array
