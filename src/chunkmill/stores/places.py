"""Split what users give as a place into a store, the path of a node in it, and a format.

A url pipeline names all three, and so does an array or a group of zarr-python, which is not imported here. Not here:
the store itself (`chunkmill.stores.open`), nodes of ours as places (`chunkmill.nodes.api`).
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from chunkmill.stores.base import check_text
from chunkmill.stores.url_pipeline import parse_url_pipeline

__all__ = ["Place", "is_zarr_python_node", "place_of"]


class Place(NamedTuple):
    """Store, path and format of a node.

    Attributes
    ----------
    url
        Url of a store, or a store of any kind that `chunkmill.stores.open.open_store` takes.
    path
        Of the node in the store.
    format
        Name of the format; ``None`` where none is named.
    adapter
        Name of the format that the last adapter of a url pipeline names, ``"zarr"`` being Zarr v2 or v3; ``None`` of
        other places.
    """

    url: Any
    path: str
    format: Any = None
    adapter: str | None = None


def place_of(url: Any, path: str = "", format: Any = None) -> Place:  # noqa: A002 - the word of the public face
    """Return the store, path and format that a url and the arguments `path` and `format` name together.

    Raises
    ------
    ValueError
        A url pipeline, or a node of zarr-python, names another format, or a pipeline another path.
    TypeError
        `path` is below an array of zarr-python.

    Examples
    --------
    >>> place_of("s3://b/x.zip|zip:|n5:a/b")
    Place(url='zip://::s3://b/x.zip', path='a/b', format='n5', adapter='n5')
    >>> place_of("s3://b/x", "a", "zarr3")
    Place(url='s3://b/x', path='a', format='zarr3', adapter=None)
    >>> place_of("s3://b/x|zarr3:a", "b")
    Traceback (most recent call last):
    ValueError: the url pipeline 's3://b/x|zarr3:a' names the path 'a', and path='b' another one: leave one of them out
    """
    check_text(path)
    if isinstance(url, (str, os.PathLike)):
        text = os.fspath(url)
        check_text(text)
        pipeline = parse_url_pipeline(text) if "|" in text else None
        if pipeline is None:
            return Place(url, path, format)
        if path.strip("/") and pipeline.path not in {"", path.strip("/")}:
            named = f"the url pipeline {text!r} names the path {pipeline.path!r}"
            raise ValueError(f"{named}, and path={path!r} another one: leave one of them out")
        chosen = _agreed(pipeline.format, format, f"the url pipeline {text!r}")
        return Place(pipeline.store_url, pipeline.path or path, chosen, pipeline.format)
    if not is_zarr_python_node(url):
        return Place(url, path, format)
    at = getattr(url, "store_path", url)
    if path.strip("/") and hasattr(url, "shape"):
        raise TypeError(f"path={path!r}: the array {at.path!r} of zarr-python has no nodes below it")
    metadata = getattr(url, "metadata", None)
    own = None if metadata is None else f"zarr{metadata.zarr_format}"
    named = f"the {type(url).__name__} of zarr-python at {at.path!r}"
    return Place(at.store, "/".join(part for part in (at.path, path.strip("/")) if part), _agreed(own, format, named))


def _agreed(named: str | None, wanted: Any, what: str) -> Any:
    """Return the format that a place names, or the one that is wanted, which may be a `Format` with options."""
    own = getattr(wanted, "name", wanted)
    if named == "zarr":  # of either version
        named = own if own in {None, "zarr2", "zarr3"} else named
    if named is not None and own is not None and own != named:
        raise ValueError(f"{what} is of format {named!r}, and format={own!r} another one: leave one of them out")
    return named if wanted is None else wanted


def is_zarr_python_node(place: Any) -> bool:
    """Return whether `place` is an array, a group or a ``StorePath`` of zarr-python, which is not imported.

    Examples
    --------
    >>> is_zarr_python_node("x.zarr")
    False
    """
    if "zarr.abc.store" not in sys.modules:
        return False
    zarr, storage = sys.modules.get("zarr"), sys.modules.get("zarr.storage")
    names = ("Array", "Group", "AsyncArray", "AsyncGroup")
    kinds = [getattr(zarr, name, None) for name in names] + [getattr(storage, "StorePath", None)]
    return isinstance(place, tuple(kind for kind in kinds if kind is not None))
