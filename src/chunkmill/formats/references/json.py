"""Reference sets in JSON, versions 0 and 1: document <-> `ReferenceSet`.

A large document is parsed in pieces of a few hundred kilobytes which become columns at once, so that reading takes
little more than the text and the columns; the JSON parser alone takes several times as much for the same document.

Spec: references.txt; what it leaves open follows fsspec's ReferenceFileSystem, except where that drops or guesses.
Not here: parquet, fetching, the template language (`template`), ``gen`` (`generators`).
"""

from __future__ import annotations

import base64
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError
from chunkmill.formats.references.generators import add_generated
from chunkmill.formats.references.ranges import ByteRanges, byte_ranges
from chunkmill.formats.references.template import TemplateText, parse_template, render
from chunkmill.model.metadata import JSON
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import WHOLE, ReferenceSet

__all__ = ["HEAD_BYTES", "emit_reference_json", "is_reference_json", "parse_reference_json"]

_PIECE = 1 << 16  # characters parsed at a time: what they become still fits the cache when it is turned into columns
_SPACE = re.compile(r"[ \t\n\r]*")
_SPACES = " \t\n\r"
_BOUNDARY = re.compile(r"[\]\"}][ \t\n\r]*,(?=[ \t\n\r]*\")")  # an entry ends here, unless this is inside something
_VERSION_1 = re.compile(r'[ \t\n\r]*"(?:version|templates|gen|refs)"')
HEAD_BYTES = 4096
"""Number of bytes of a file that tell a reference set from other JSON."""

_DOCUMENTS = (".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json")
_scan = json.JSONDecoder().raw_decode
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
    at, is_last = 1, not text.startswith("{")
    while not is_last:
        try:
            name, at = _name(text, _skip(text, at))
            members.append((name, None))
            value, at = _scan(text, at)
            members[-1] = name, value
            at, is_last = _comma(text, at)
        except (ValueError, RecursionError):  # where the head ends, at the latest
            break
    return _is_reference_set(members)


def _is_reference_set(members: list[tuple[str, JSON]]) -> bool:
    """Judge by the top-level members that are known; the value of the last may be unknown, which is ``None``."""
    names = {name for name, _ in members}
    if "version" in names and names & {"refs", "templates", "gen"}:
        return True
    if members and members[0][0] in {"refs", "templates", "gen"}:  # the version may come after them
        return members[0][1] is None
    return any(name.rsplit("/", 1)[-1] in _DOCUMENTS or _is_range(value) for name, value in members)


def _is_range(value: JSON) -> bool:
    return isinstance(value, list) and [type(item) for item in value] == [str, int, int]


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
        text = document.decode("utf-8-sig")
        return _Reader(text, source, template_overrides or {}).read()
    except MetadataError as error:
        if error.key != "<references>" or source == "<references>":
            raise
        raise MetadataError(key=source, field=error.field, got=error.got, expected=error.expected) from None
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise MetadataError(key=source, field="document", got=str(error), expected="a JSON object in UTF-8") from None


def emit_reference_json(references: ReferenceSet, *, version: int = 1) -> Iterator[bytes]:
    r"""Yield a set as JSON, some text at a time, without ever holding all of it.

    Inline bytes are written as text when they are UTF-8, else in base64. Neither templates nor ``gen`` are used.

    Examples
    --------
    >>> references = parse_reference_json(b'{".zgroup": {"zarr_format": 2}, "x/0": ["a.nc", 8, 100]}')
    >>> b"".join(emit_reference_json(references, version=0))
    b'{\n".zgroup": "{\\"zarr_format\\": 2}",\n"x/0": ["a.nc", 8, 100]\n}'
    """
    if version not in {0, 1}:
        raise MetadataError(key="<references>", field="version", got=version, expected="0 or 1")
    start, end = ("{", "\n}") if version == 0 else ('{"version": 1, "refs": {', "\n}}")
    yield start.encode("ascii")
    comma = b"\n"
    for piece in _entries(references):
        yield comma + piece
        comma = b",\n"
    yield end.encode("ascii")


def _entries(references: ReferenceSet) -> Iterator[bytes]:
    """Yield the entries of a set, some at a time, without the comma between one text and the next."""
    pieces, size = list[str](), 0
    quoted = lru_cache(maxsize=1 << 12)(json.dumps)  # of urls: few, or each a few times in a row
    for key, reference in references.items():
        if reference.data is not None:
            value = json.dumps(_emit_inline(reference.data))
        elif reference.length is None:
            value = f"[{quoted(reference.url)}]"
        else:
            value = f"[{quoted(reference.url)}, {reference.offset}, {reference.length}]"
        pieces.append(f"{json.dumps(key)}: {value}")
        size += len(pieces[-1])
        if size > _PIECE:
            yield ",\n".join(pieces).encode("ascii")
            pieces, size = [], 0
    if pieces:
        yield ",\n".join(pieces).encode("ascii")


def _emit_inline(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _BASE64
    if text.startswith(_BASE64):
        return _BASE64 + base64.b64encode(data).decode("ascii")
    return text


class _VersionFoundError(Exception):
    """A document read as version 0 has a ``version`` after all."""


class _Reader:
    """Walks one document; holds what its parts share."""

    def __init__(self, text: str, source: str, overrides: Mapping[str, str]) -> None:
        self._text = text
        self._source = source
        self._overrides = overrides
        self._builder = ReferenceBuilder(source)
        self._is_flat = False
        self._unreachable = list[str]()

    def read(self) -> ReferenceSet:
        """Return the set; nothing may follow the object."""
        start = _skip(self._text, 0)
        if self._text[start : start + 1] != "{":
            raise self._error("document", self._text[start : start + 40], "a JSON object")
        # what comes first decides in what way it is tried first; only odd documents are read twice
        is_flat = _VERSION_1.match(self._text, start + 1) is None
        try:
            end = self._read_flat(start + 1) if is_flat else self._read_version_1(start + 1)
        except _VersionFoundError:
            end = self._read_version_1(start + 1)
        if end is None:
            end = self._read_flat(start + 1)
        if _skip(self._text, end) != len(self._text):
            raise self._error("document", self._text[end : end + 40], "nothing after the JSON object")
        if self._unreachable:
            text = f"{self._source}: references without a chunk number are left out, their arrays read as fill values: "
            warnings.warn(text + ", ".join(map(repr, self._unreachable[:5])), UserWarning, stacklevel=2)
        return self._builder.build()

    def _read_flat(self, start: int) -> int:
        self._builder, self._is_flat, self._unreachable = ReferenceBuilder(self._source), True, []
        return self._read_entries(start)

    def _read_version_1(self, start: int) -> int | None:
        """Read the members in any order; ``None`` when none of them is the version."""
        self._builder, self._is_flat, self._unreachable = ReferenceBuilder(self._source), False, []
        found: dict[str, JSON] = {}
        at = _skip(self._text, start)
        is_last = False
        while not is_last:
            name, at = _name(self._text, at)
            if name == "refs" and self._text[at : at + 1] == "{":
                if "refs" in found:
                    raise self._error("refs", "a second one", "one object")
                found["refs"], at = {}, self._read_entries(at + 1)
            else:
                found[name], at = _scan(self._text, at)
            at, is_last = _comma(self._text, at)
        if "version" not in found:
            return None
        version = found["version"]
        if isinstance(version, bool) or version != 1:
            raise self._error("version", version, "1, or no version at all (version 0)")
        if found.get("refs", {}) != {}:
            raise self._error("refs", found["refs"], "an object")
        # rendering waits until here because templates may come after what uses them; each url is rendered once
        templates = self._parse_templates(found.get("templates", {}))
        if templates:  # without templates braces in urls mean themselves
            self._builder.map_urls(
                lambda url: render(parse_template(url), templates) if url is not None and "{{" in url else url
            )
        # after refs, since generated references replace them
        add_generated(self._builder, found.get("gen", []), templates, self._source)
        return at

    def _read_entries(self, start: int) -> int:
        """Turn the members of the object into references; return where it ends."""
        end = start
        for entries, end in self._pieces(start):  # noqa: B007 - the last one counts
            if isinstance(entries, ByteRanges):
                self._take_byte_ranges(entries)
            else:
                self._take(entries)
        return end

    def _pieces(self, at: int) -> Iterator[tuple[dict[str, JSON] | ByteRanges, int]]:
        """Yield the members of an object some at a time, each with the place after them.

        A piece is cut where an entry seems to end. If that was inside a string, or deeper, the piece is not JSON on
        its own; then its entries are read one by one.
        """
        text = self._text
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            yield {}, at + 1
            return
        while True:
            boundary = _BOUNDARY.search(text, at + _PIECE, at + 2 * _PIECE)
            if boundary is not None:
                inside = text[at : boundary.end() - 1].strip(_SPACES)
                entries: dict[str, JSON] | ByteRanges | None = None if '/":' in inside else byte_ranges(inside)
                if entries is None:
                    with suppress(ValueError):
                        entries = json.loads("{" + inside + "}")
                if entries is not None:
                    at = boundary.end()
                    yield entries, at
                    continue
            entries, at, is_last = self._one_by_one(at)
            yield entries, at
            if is_last:
                return

    def _one_by_one(self, at: int) -> tuple[dict[str, JSON], int, bool]:
        text, entries, stop = self._text, dict[str, JSON](), at + _PIECE
        at = _skip(text, at)
        while True:
            name, at = _name(text, at)
            entries[name], at = _scan(text, at)
            at, is_last = _comma(text, at)
            if is_last or at > stop:
                return entries, at, is_last

    def _parse_templates(self, templates: JSON) -> dict[str, str | TemplateText]:
        if not isinstance(templates, dict):
            raise self._error("templates", templates, "an object")
        parsed: dict[str, str | TemplateText] = {}
        for name, text in {**templates, **self._overrides}.items():
            if not isinstance(text, str):
                raise self._error(f"templates[{name!r}]", text, "a string")
            # with braces it has parameters and is called; without, it is the string itself
            parsed[name] = parse_template(text) if "{{" in text else text
        return parsed

    def _take(self, entries: dict[str, Any]) -> None:
        """Add some entries: together where all are byte ranges, as most entries of a large set are."""
        if self._is_flat and "version" in entries:
            raise _VersionFoundError
        # kerchunk writes "x/" for scalars of GRIB files, with inline_threshold=0; no reader asks for such a key
        if unreachable := {key for key in entries if key.endswith("/") and key[:-1].strip("./")}:
            self._unreachable += sorted(unreachable)
            entries = {key: value for key, value in entries.items() if key not in unreachable}
        values = list(entries.values())
        if values and set(map(type, values)) == {list} and set(map(len, values)) == {3}:
            self._take_ranges(list(entries), values)
            return
        ranges = {k: v for k, v in entries.items() if isinstance(v, list) and len(v) == 3}  # noqa: PLR2004
        whole = {k: v for k, v in entries.items() if isinstance(v, list) and len(v) == 1}
        inline = {k: self._inline(k, v) for k, v in entries.items() if k not in ranges and k not in whole}
        if ranges:
            self._take_ranges(list(ranges), list(ranges.values()))
        if whole:
            self._take_whole(list(whole), [value[0] for value in whole.values()])
        self._builder.add_many_data(list(inline), list(inline.values()))

    def _take_byte_ranges(self, found: ByteRanges) -> None:
        if self._is_flat and "version" in found.keys:
            raise _VersionFoundError
        self._builder.add_many(found.keys, self._url_ids(found.keys, found.urls), found.offsets, found.lengths)

    def _take_ranges(self, keys: list[str], ranges: list[list[Any]]) -> None:
        urls, offsets, lengths = zip(*ranges, strict=True)
        if set(map(type, offsets + lengths)) != {int} or min(offsets + lengths) < 0 or max(offsets + lengths) >= 2**63:
            for key, value in zip(keys, ranges, strict=True):
                if not all(type(number) is int and 0 <= number < 2**63 for number in value[1:]):
                    raise self._bad_entry(key, value)
        self._builder.add_many(keys, self._url_ids(keys, urls), np.array(offsets), np.array(lengths))

    def _take_whole(self, keys: list[str], urls: list[Any]) -> None:
        n = len(keys)
        self._builder.add_many(keys, self._url_ids(keys, urls), np.zeros(n, np.int8), np.full(n, WHOLE))

    def _url_ids(self, keys: list[str], urls: Sequence[Any]) -> NDArray[np.int64]:
        if not set(map(type, urls)) <= {str, NoneType}:
            for key, url in zip(keys, urls, strict=True):
                if url is not None and not isinstance(url, str):
                    raise self._bad_entry(key, [url])
        ids = {url: self._builder.url_id(url) for url in dict.fromkeys(urls)}  # in their order, in every process
        return np.fromiter(map(ids.__getitem__, urls), dtype=np.int64, count=len(urls))

    def _inline(self, key: str, value: Any) -> bytes:
        if isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False).encode("utf-8")
        if not isinstance(value, str):
            raise self._bad_entry(key, value)
        try:
            if value.startswith(_BASE64):
                return base64.b64decode(value[len(_BASE64) :], validate=True)
            return value.encode("utf-8")
        except ValueError as error:  # binascii.Error and, for lone surrogates, UnicodeEncodeError are ValueErrors
            raise self._error(f"reference {key!r}", str(error), "text, or base64 after 'base64:'") from None

    def _bad_entry(self, key: str, value: object) -> MetadataError:
        expected = "text, an object, [url], or [url, offset, length] with integers in 0..2**63-1"
        return self._error(f"reference {key!r}", value, expected)

    def _error(self, field: str, got: object, expected: str) -> MetadataError:
        return MetadataError(key=self._source, field=field[:300], got=got, expected=expected)


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr] # it matches the empty string


def _comma(text: str, at: int) -> tuple[int, bool]:
    """Return where the next member starts; or where the object ended, and that it did."""
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return at + 1, True
    if text[at : at + 1] != ",":
        raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":  # which GDAL reads, and fsspec does not
        raise json.JSONDecodeError("A comma after the last member, which JSON does not allow", text, at)
    return at, False


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the name of a member and where its value starts."""
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, at = _scan(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, _skip(text, at + 1)
