"""Reference sets in JSON, versions 0 and 1: document <-> `ReferenceSet`.

The parser holds all of a document at once: a few times its text, until the columns of the set are built.

Spec: references.txt; what it leaves open follows fsspec's ReferenceFileSystem, except where that drops or guesses.
Not here: parquet, fetching, templates and ``gen`` (`template`).
"""

from __future__ import annotations

import base64
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError
from chunkmill.model.metadata import JSON
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import WHOLE, ReferenceSet

HEAD_BYTES = 4096
"""Number of bytes of a file that tell a reference set from other JSON."""

_BLOCK = 1000  # entries: neighbours become columns together, faster where they are of one array
_MEMBER = re.compile(r'[ \t\n\r,]*("(?:[^"\\]|\\.)*")[ \t\n\r]*:[ \t\n\r]*')
_DOCUMENTS = (".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json")
_BASE64 = "base64:"


def is_reference_json(head: bytes) -> bool:
    """Return whether a file that starts with `head` looks like a reference set in JSON.

    The first few thousand bytes suffice: writers put the version, or metadata documents, first. What this denies may
    still be parsed when the user says that it is one.

    Examples
    --------
    >>> is_reference_json(b'{"version": 1, "refs": {"x/0": ["a.nc"')
    True
    >>> is_reference_json(b'{"zarr_format": 3, "node_type": "array"')
    False
    """
    text = head[:HEAD_BYTES].decode("utf-8-sig", errors="ignore").lstrip()
    members: list[tuple[str, JSON]] = []
    at = 1
    try:
        while text.startswith("{") and (found := _MEMBER.match(text, at)):
            members.append((json.loads(found[1]), None))
            value, at = json.JSONDecoder().raw_decode(text, found.end())
            members[-1] = members[-1][0], value
    except (ValueError, RecursionError):  # where the head ends, at the latest
        pass
    return _is_reference_set(members)


def _is_reference_set(members: list[tuple[str, JSON]]) -> bool:
    """Judge by the top-level members that are known; the value of the last may be unknown, which is ``None``."""
    names = {name for name, _ in members}
    if "version" in names and names & {"refs", "templates", "gen"}:
        return True
    if members and members[0][0] in {"refs", "templates", "gen"}:  # the version may come after them
        return members[0][1] is None
    return any(name.rpartition("/")[2] in _DOCUMENTS or _is_range(value) for name, value in members)


def _is_range(value: JSON) -> bool:
    return isinstance(value, list) and [type(item) for item in value] == [str, int, int]


def parse_reference_dict(references: dict[str, Any], template_overrides: Mapping[str, str] | None) -> ReferenceSet:
    """Parse a set in memory, in which bytes may stand as they are, and numbers of numpy.

    Examples
    --------
    >>> parse_reference_dict({"x/0": b"ab"}, None).locate("x/0").data
    b'ab'
    """

    def plain(value: Any) -> JSON:
        return value.item() if isinstance(value, np.generic) else _BASE64 + base64.b64encode(value).decode()

    try:
        document = json.dumps(references, default=plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        expected = "texts, lists, dicts, numbers and bytes"
        raise MetadataError(key="<references>", field="document", got=str(error), expected=expected) from None
    return parse_reference_json(document, template_overrides=template_overrides)


def parse_reference_json(
    document: bytes,
    *,
    source: str = "<references>",
    template_overrides: Mapping[str, str] | None = None,
) -> ReferenceSet:
    r"""Parse a reference set of version 0 or 1.

    Parameters
    ----------
    document
        The JSON text in UTF-8.
    source
        What errors name: the url of the document.
    template_overrides
        Templates to use in place of those of the document.

    Raises
    ------
    MetadataError
        When the document is not a JSON object, has another version, or says something that the specification does not
        know: then nothing of it is used.

    Examples
    --------
    >>> references = parse_reference_json(b'{"x/0": ["s3://bucket/a.nc", 4096, 100], "x/1": "base64:AAE="}')
    >>> references.locate("x/0").offset, references.locate("x/1").data
    (4096, b'\x00\x01')
    """
    try:
        return _Reader(source).read(json.loads(document.decode("utf-8-sig")), template_overrides or {})
    except MetadataError as error:
        if error.key != "<references>" or source == "<references>":
            raise
        raise MetadataError(key=source, field=error.field, got=error.got, expected=error.expected) from None
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise MetadataError(key=source, field="document", got=str(error), expected="a JSON object in UTF-8") from None


def emit_reference_json(references: ReferenceSet) -> bytes:
    r"""Return a set as JSON.

    Inline bytes are written as text when they are UTF-8, else in base64. Neither templates nor ``gen`` are used.

    Examples
    --------
    >>> references = parse_reference_json(b'{".zgroup": {"zarr_format": 2}, "x/0": ["a.nc", 8, 100]}')
    >>> emit_reference_json(references)
    b'{"version": 1, "refs": {".zgroup": "{\\"zarr_format\\": 2}", "x/0": ["a.nc", 8, 100]}}'
    """
    entries: dict[str, JSON] = {}
    for key, reference in references.items():
        if reference.data is not None:
            entries[key] = _emit_inline(reference.data)
        elif reference.length is None:
            entries[key] = [reference.url]
        else:
            entries[key] = [reference.url, reference.offset, reference.length]
    return json.dumps({"version": 1, "refs": entries}).encode("ascii")


def _emit_inline(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _BASE64
    if text.startswith(_BASE64):
        return _BASE64 + base64.b64encode(data).decode("ascii")
    return text


class _Reader:
    """Turns the members of one document into references."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._builder = ReferenceBuilder(source)

    def read(self, members: JSON, overrides: Mapping[str, str]) -> ReferenceSet:
        """Return the set."""
        if not isinstance(members, dict):
            raise self._error("document", members, "a JSON object")
        version = members.get("version")
        if "version" in members and (isinstance(version, bool) or version != 1):
            raise self._error("version", version, "1, or no version at all (version 0)")
        refs = members if version is None else members.get("refs", {})
        if not isinstance(refs, dict):
            raise self._error("refs", refs, "an object")
        # kerchunk writes "x/" for scalars of GRIB files, with inline_threshold=0; no reader asks for such a key
        unreachable = sorted(key for key in refs if key.endswith("/") and key[:-1].strip("./"))
        if unreachable:
            text = f"{self._source}: references without a chunk number are left out, their arrays read as fill values: "
            warnings.warn(text + ", ".join(map(repr, unreachable[:5])), UserWarning, stacklevel=2)
            refs = {key: value for key, value in refs.items() if key not in set(unreachable)}
        entries = iter(refs.items())
        while block := dict(islice(entries, _BLOCK)):
            self._take(block)
        if version is not None:
            self._expand(members.get("templates", {}), members.get("gen", []), overrides)
        return self._builder.build()

    def _expand(self, templates: JSON, gen: JSON, overrides: Mapping[str, str]) -> None:
        """Render the urls, each once, and what ``gen`` stands for; its references replace others."""
        if not isinstance(templates, dict):
            raise self._error("templates", templates, "an object")
        templates = {**templates, **overrides}
        for name, text in templates.items():
            if not isinstance(text, str):
                raise self._error(f"templates[{name!r:.300}]", text, "a string")
        if not templates and gen == []:  # without templates braces in urls mean themselves
            return
        from chunkmill.formats.references.template import Templates, add_generated  # noqa: PLC0415 - imports jinja2

        known = Templates(templates)
        if templates:
            self._builder.map_urls(lambda url: known.render(url) if url is not None and "{{" in url else url)
        add_generated(self._builder, gen, known, self._source)

    def _take(self, entries: dict[str, Any]) -> None:
        """Add some entries: together where all are byte ranges, as most entries of a large set are."""
        ranges = {k: v for k, v in entries.items() if isinstance(v, list) and len(v) == 3}  # noqa: PLR2004
        whole = {k: v for k, v in entries.items() if isinstance(v, list) and len(v) == 1}
        inline = {k: self._inline(k, v) for k, v in entries.items() if k not in ranges and k not in whole}
        if ranges:
            self._take_ranges(list(ranges), list(ranges.values()))
        if whole:
            ids = self._url_ids(list(whole), [value[0] for value in whole.values()])
            self._builder.add_many(list(whole), ids, np.zeros(len(whole), np.int8), np.full(len(whole), WHOLE))
        self._builder.add_many_data(list(inline), list(inline.values()))

    def _take_ranges(self, keys: list[str], ranges: list[list[Any]]) -> None:
        urls, offsets, lengths = zip(*ranges, strict=True)
        if set(map(type, offsets + lengths)) != {int} or min(offsets + lengths) < 0 or max(offsets + lengths) >= 2**63:
            for key, value in zip(keys, ranges, strict=True):
                if not all(type(number) is int and 0 <= number < 2**63 for number in value[1:]):
                    raise self._bad_entry(key, value)
        self._builder.add_many(keys, self._url_ids(keys, urls), np.array(offsets), np.array(lengths))

    def _url_ids(self, keys: list[str], urls: Sequence[Any]) -> NDArray[np.int64]:
        if not set(map(type, urls)) <= {str, NoneType}:
            for key, url in zip(keys, urls, strict=True):
                if url is not None and not isinstance(url, str):
                    raise self._bad_entry(key, [url])
        ids = {url: self._builder.url_id(url) for url in dict.fromkeys(urls)}  # in their order, in every process
        return np.fromiter(map(ids.__getitem__, urls), dtype=np.int64, count=len(urls))

    def _inline(self, key: str, value: Any) -> bytes:
        if isinstance(value, dict):
            return json.dumps(value).encode()
        if not isinstance(value, str):
            raise self._bad_entry(key, value)
        try:
            if value.startswith(_BASE64):
                return base64.b64decode(value[len(_BASE64) :], validate=True)
            return value.encode("utf-8")
        except ValueError as error:  # binascii.Error and, for lone surrogates, UnicodeEncodeError are ValueErrors
            raise self._error(f"reference {key!r:.300}", str(error), "text, or base64 after 'base64:'") from None

    def _bad_entry(self, key: str, value: object) -> MetadataError:
        expected = "text, an object, [url], or [url, offset, length] with integers in 0..2**63-1"
        return self._error(f"reference {key!r:.300}", value, expected)

    def _error(self, field: str, got: object, expected: str) -> MetadataError:
        return MetadataError(key=self._source, field=field, got=got, expected=expected)
