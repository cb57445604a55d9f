"""Show a node of any format to zarr-python: the public function.

It is importable without zarr-python, whose class the store derives from; apart from both, it breaks a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chunkmill.nodes.api import NodeLocation, open_source


def zarr_store(node: NodeLocation, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return a read-only store of zarr-python that shows a node of any format as Zarr v3.

    N5, the draft of Zarr v3, reference sets, zip files and nested folders can be read by zarr-python, xarray's zarr
    engine, napari, anndata, and whatever else takes a ``zarr.abc.store.Store``, with equal values.

    Parameters
    ----------
    node
        As in `open`, ``(url, path)``, an Array or a Group; what is below a group is shown, too.
    storage_options
        For the filesystem of the url, as in fsspec.

    Returns
    -------
    zarr.abc.store.Store
        Its root is the node. It refuses to write; bytes, and ranges of them, are passed on where Zarr v3 has the codec.

    Raises
    ------
    NodeNotFound
        There is no node.
    ModuleNotFoundError
        zarr-python is not installed.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np, zarr
    >>> _ = cm.to_store(np.arange(6), "memory://doc-zarr-store", chunks=4, format="n5")
    >>> zarr.open_array(cm.zarr_store("memory://doc-zarr-store"), mode="r")[2:5]
    array([2, 3, 4])
    """
    try:
        from chunkmill.zarr_python.view import NodeStore  # noqa: PLC0415 - zarr-python is an extra
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("zarr"):
            raise
        msg = "zarr_store() returns a store of zarr-python, which is not installed: pip install 'chunkmill[zarr]'"
        raise ModuleNotFoundError(msg, name=error.name) from error
    return NodeStore(open_source(node, storage_options))
