"""Split what users give as a place into a store, the path of a node in it, and a format.

A url pipeline names all three, and so does an array or a group of zarr-python, which is not imported here. Not here:
the store itself (`chunkmill.stores.open`), nodes of ours as places (`chunkmill.nodes.api`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from chunkmill.errors import StoreError
from chunkmill.stores.base import check_text, is_instance


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
    nodes = ("Array", "Group", "AsyncArray", "AsyncGroup")
    return is_instance(place, "zarr", *nodes) or is_instance(place, "zarr.storage", "StorePath")


def protocols_of(url: str) -> list[str]:
    """Return the protocols of a url or a chain of urls, the outermost first; what names none is a local path.

    Examples
    --------
    >>> protocols_of("zip://a::s3://bucket/x.zip"), protocols_of("simplecache::/data/x.nc"), protocols_of("x")
    (['zip', 's3'], ['simplecache', 'file'], ['file'])
    """
    links = url.split("::")
    if links == [url] and "://" not in url:
        return ["file"]
    return ["file" if match is None else match[1] or match[2] for match in map(_LINK.match, links)]


_LINK = re.compile("([A-Za-z][A-Za-z0-9+.-]*)://|([a-z]+)$")  # a word alone is a protocol, as in fsspec's chains


# --- Split url pipelines: a url of a store, and adapters after ``|`` that say what is inside it

_STEP = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # of two letters or more: Windows' drives have one
_FORMATS = {"zarr", "zarr2", "zarr3", "n5"}
_ICECHUNK = {"icechunk", "ic"}
_KNOWN = frozenset({*_FORMATS, *_ICECHUNK, "zip"})
_VERSION = re.compile(r"(?:(branch|tag)\.([^/]+)|([^/]+))(?:/|$)")
_ADAPTERS = ", ".join(sorted(_KNOWN - {"ic"}))

Kind = Literal["branch", "tag", "snapshot"]


@dataclass(frozen=True, slots=True)
class UrlPipeline:
    """Place that a url pipeline names.

    Attributes
    ----------
    url
        Of the store, as fsspec has it: archives are ``zip://inner::url``.
    path
        Of the node in the store; empty for the root.
    format
        Named by the last adapter, ``"zarr"`` being Zarr v2 or v3; ``None`` where none does.
    icechunk
        Version of the repository of Icechunk by kind and name; ``None`` for all other stores.
    """

    url: str
    path: str = ""
    format: str | None = None
    icechunk: tuple[Kind, str] | None = None

    @property
    def store_url(self) -> str:
        """Url of the store, without path and format: a pipeline still where it is a repository of Icechunk."""
        if self.icechunk is None:
            return self.url
        kind, name = self.icechunk
        return f"{self.url}|icechunk://{'' if kind == 'snapshot' else kind + '.'}{quote(name, safe='')}"


def parse_url_pipeline(text: str) -> UrlPipeline | None:
    """Return what a url pipeline names; ``None`` for a url or a path without adapters.

    A local path may have the character: it is a pipeline if each part after it has a colon, or is an adapter's name.

    Raises
    ------
    StoreError
        An adapter is not known, or stands where it cannot.

    Examples
    --------
    >>> parse_url_pipeline("s3://b/x.zip|zip:inner|zarr3:a/b")
    UrlPipeline(url='zip://inner::s3://b/x.zip', path='a/b', format='zarr3', icechunk=None)
    >>> parse_url_pipeline("s3://b/repo|icechunk://tag.v1/a").icechunk
    ('tag', 'v1')
    >>> parse_url_pipeline("/data/x.zarr") is None
    True
    """
    root, *steps = text.split("|")
    if not steps:
        return None
    if _URL.match(root) is None and not all(_STEP.fullmatch(each) or each.lower() in _KNOWN for each in steps):
        return None
    found = UrlPipeline(_plain_root(root))
    for step in steps:
        found = _with_step(found, step, text)
    return found


def _plain_root(root: str) -> str:
    """Return the first url as fsspec has it: the specification allows more spellings, and percent-encodes paths."""
    scheme, _, rest = root.partition(":")
    if scheme.lower() == "memory":
        return f"memory://{unquote(rest).lstrip('/')}"
    if scheme.lower() != "file":
        return root
    return f"file://{re.sub('^//(localhost(?=/))?', '', unquote(rest), flags=re.IGNORECASE)}"


def _with_step(before: UrlPipeline, step: str, text: str) -> UrlPipeline:
    scheme, _, encoded = step.partition(":")
    name, path = scheme.lower(), unquote(encoded).strip("/")
    if before.format is not None:
        raise StoreError(url=text, key="", reason=f"{step!r} stands after the format {before.format!r}, which is last")
    if name not in _KNOWN:
        reason = f"there is no adapter for {scheme + ':'!r}; those for {_ADAPTERS} are known"
        raise StoreError(url=text, key="", reason=reason)
    if "?" in encoded or "#" in encoded:
        reason = f"{step!r}: {name}: has no queries; as part of a name, write %3F or %23"
        raise StoreError(url=text, key="", reason=reason)
    if name in _FORMATS:
        joined = "/".join(part for part in (before.path, path) if part)
        return UrlPipeline(before.url, joined, name, before.icechunk)
    if before.path or before.icechunk is not None:
        raise StoreError(url=text, key="", reason=f"{step!r} stands after an adapter that holds nothing but nodes")
    return UrlPipeline(f"zip://{path}::{before.url}") if name == "zip" else _in_repository(before.url, encoded, text)


def _in_repository(url: str, encoded: str, text: str) -> UrlPipeline:
    version: tuple[Kind, str] = ("branch", "main")
    start = next((start for start in ("//", "@") if encoded.startswith(start)), "")
    if start:
        if (match := _VERSION.match(encoded, len(start))) is None:
            reason = f"{start!r} is followed by branch.NAME, tag.NAME or a snapshot's name, and '/' before a path"
            raise StoreError(url=text, key="", reason=reason)
        kind, name, snapshot = match.groups()
        version = ("snapshot", snapshot) if kind is None else ("tag" if kind == "tag" else "branch", unquote(name))
        encoded = encoded[match.end() :]
    return UrlPipeline(url, unquote(encoded).strip("/"), None, version)
