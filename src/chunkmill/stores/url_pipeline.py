"""Split url pipelines: a url of a store, and adapters after ``|`` that say what is inside it.

``s3://bucket/x.zip|zip:inner|zarr3:a/b`` is the array ``a/b`` of the Zarr v3 hierarchy in the folder ``inner`` of an
archive. Nothing is opened here. Paths are percent-encoded; where a format's adapter has a path, it is the node's.
Spec: github.com/jbms/url-pipeline (commit 1a01ce6), which ZEP 8 became; also ZEP 8's ``icechunk:@branch.main/``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

from chunkmill.errors import StoreError

__all__ = ["UrlPipeline", "parse_url_pipeline", "pipeline_url"]

_STEP = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # of two letters or more: Windows' drives have one
_FORMATS = {"zarr", "zarr2", "zarr3", "n5"}
_ROOTS = {"file", "gs", "http", "https", "memory", "s3"}  # of the specification
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


def pipeline_url(store_url: str, path: str, format: str) -> str | None:  # noqa: A002 - the word of the public face
    """Return the url pipeline of a node; ``None`` where pipelines have no scheme for its store, or none for its format.

    Examples
    --------
    >>> pipeline_url("zip://inner::s3://b/x.zip", "a b", "zarr3")
    's3://b/x.zip|zip:inner/|zarr3:a%20b'
    >>> pipeline_url("s3://b/x", "a", "zarr3-draft") is None
    True
    """
    root, adapters = store_url, ""
    while (archive := re.fullmatch(r"zip://(.*?)::(.*)", root, re.DOTALL)) is not None:
        inner, root = archive[1].strip("/"), archive[2]
        adapters = f"|zip:{quote(inner)}{'/' if inner and not adapters else ''}{adapters}"
    if root.startswith("file://") and "|icechunk:" not in root:
        root = "file://" + quote(root.removeprefix("file://"))
    says_it = format in _FORMATS and root.partition("://")[0] in _ROOTS and "::" not in root
    return f"{root}{adapters}|{format}:{quote(path)}" if says_it else None


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
