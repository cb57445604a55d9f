"""Split url pipelines: a url of a store, and adapters after ``|`` that say what is inside it.

``s3://bucket/x.zip|zip:inner|zarr3:a/b`` is the array ``a/b`` of the Zarr v3 hierarchy in the folder ``inner`` of an
archive. Nothing is opened here. Paths are percent-encoded; where a format's adapter has a path, it is the node's.
Spec: ZEP 8, "Zarr URL syntax", draft of November 2025.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from chunkmill.errors import StoreError

__all__ = ["UrlPipeline", "parse_url_pipeline"]

_STEP = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_FORMATS = {"zarr": None, "zarr2": "zarr2", "zarr3": "zarr3", "n5": "n5"}
_ICECHUNK = {"icechunk", "ic"}
_REFERENCE = re.compile(r"@(?:(branch|tag)\.([^/]+)|([^/]+))(?:/|$)")

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
        Named by the last adapter; ``None`` where none does, or ``zarr:`` leaves it open.
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
        return f"{self.url}|icechunk:@{name if kind == 'snapshot' else f'{kind}.{name}'}"


def parse_url_pipeline(text: str) -> UrlPipeline | None:
    """Return what a url pipeline names; ``None`` for a url or a path without adapters.

    Raises
    ------
    StoreError
        An adapter is not known, or stands where it cannot.

    Examples
    --------
    >>> parse_url_pipeline("s3://b/x.zip|zip:inner|zarr3:a/b")
    UrlPipeline(url='zip://inner::s3://b/x.zip', path='a/b', format='zarr3', icechunk=None)
    >>> parse_url_pipeline("s3://b/repo|icechunk:@tag.v1/a").icechunk
    ('tag', 'v1')
    >>> parse_url_pipeline("/data/x.zarr") is None
    True
    """
    root, *steps = text.split("|")
    if not steps or not all(_STEP.fullmatch(step) for step in steps):
        return None  # a path may have the character
    found = UrlPipeline(root)
    for step in steps:
        found = _with_step(found, step, text)
    return found


def _with_step(before: UrlPipeline, step: str, text: str) -> UrlPipeline:
    scheme, _, encoded = step.partition(":")
    name, path = scheme.lower(), unquote(encoded).strip("/")
    if before.format is not None:
        raise StoreError(url=text, key="", reason=f"{step!r} stands after the format {before.format!r}, which is last")
    if name in _FORMATS:
        joined = "/".join(part for part in (before.path, path) if part)
        return UrlPipeline(before.url, joined, _FORMATS[name], before.icechunk)
    if before.path or before.icechunk is not None:
        raise StoreError(url=text, key="", reason=f"{step!r} stands after an adapter that holds nothing but nodes")
    if name == "zip":
        return UrlPipeline(f"zip://{path}::{before.url}")
    if name in _ICECHUNK:
        return _in_repository(before.url, unquote(encoded), text)
    known = ", ".join(sorted([*_FORMATS, "zip", "icechunk"]))
    reason = f"there is no adapter for {scheme + ':'!r}; those for {known} are known"
    raise StoreError(url=text, key="", reason=reason)


def _in_repository(url: str, rest: str, text: str) -> UrlPipeline:
    version: tuple[Kind, str] = ("branch", "main")
    if rest.startswith("@"):
        if (match := _REFERENCE.match(rest)) is None:
            reason = "'@' is followed by branch.NAME, tag.NAME or a snapshot's name, and '/' before a path"
            raise StoreError(url=text, key="", reason=reason)
        kind, name, snapshot = match.groups()
        version = ("snapshot", snapshot) if kind is None else ("tag" if kind == "tag" else "branch", name)
        rest = rest[match.end() :]
    return UrlPipeline(url, rest.strip("/"), None, version)
