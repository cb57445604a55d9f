"""Show a node of any format to zarr-python: the public function.

It is importable without zarr-python, whose class the store derives from; apart from both, it breaks a circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from chunkmill.nodes.api import NodeLocation, open_source


def zarr_store(
    node: NodeLocation, *, mode: Literal["r", "r+"] = "r", storage_options: Mapping[str, Any] | None = None
) -> Any:
    """Return a store of zarr-python that shows a node of any format as Zarr v3.

    N5, the draft of Zarr v3, reference sets, zip files and nested folders can be read by zarr-python, xarray's zarr
    engine, napari, anndata, and whatever else takes a ``zarr.abc.store.Store``, with equal values.

    Parameters
    ----------
    node
        As in `open`, ``(url, path)``, an Array or a Group; what is below a group is shown, too.
    mode
        ``"r"``: writing is refused. ``"r+"``: zarr-python writes chunks and attributes of nodes that exist, and makes
        arrays smaller; all is stored in the node's own format.
    storage_options
        For the filesystem of the url, as in fsspec.

    Returns
    -------
    zarr.abc.store.Store
        Its root is the node. Bytes, and ranges of them, are passed on where Zarr v3 has the codec.

    Notes
    -----
    With ``"r+"``, threads and processes that write parts of the same chunk or shard lose nothing: where zarr-python
    reads a chunk, changes some elements and sets all, only elements whose bits differ from those that this operation
    read are written, onto what is stored then, with the version check of every partial write. A chunk that zarr-python
    sets without reading it is written whole. Both hold as far as the store guards partial writes; not
    through a cache of chunks, whose readers are not seen here.

    Raises
    ------
    NodeNotFound
        There is no node.
    ModuleNotFoundError
        zarr-python is not installed.
    ValueError
        The mode is none of these, or an Array or Group that was opened for reading is to be written.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np, zarr
    >>> _ = cm.to_store(np.arange(6), "memory://doc-zarr-store", chunks=4, format="n5")
    >>> zarr.open_array(cm.zarr_store("memory://doc-zarr-store"), mode="r")[2:5]
    array([2, 3, 4])
    >>> zarr.open_array(cm.zarr_store("memory://doc-zarr-store", mode="r+"))[3:] = 7
    >>> cm.open_array("memory://doc-zarr-store")[...]
    array([0, 1, 2, 7, 7, 7])
    """
    if mode not in {"r", "r+"}:
        raise ValueError(f"mode={mode!r}: a zarr_store reads ('r') or writes to nodes that exist ('r+')")
    try:
        from chunkmill.zarr_python.view import NodeStore  # noqa: PLC0415 - zarr-python is an extra
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("zarr"):
            raise
        msg = "zarr_store() returns a store of zarr-python, which is not installed: pip install 'chunkmill[zarr]'"
        raise ModuleNotFoundError(msg, name=error.name) from error
    return NodeStore(open_source(node, storage_options, mode), read_only=mode == "r")
