"""Common ground of formats: pure functions between documents and the model.

Bytes in, dataclasses out. A format never sees a store, a codec object or dask. Documents are keyed by full store key.
"""

from __future__ import annotations

import json
import re
import reprlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, GroupMetadata

T = TypeVar("T")

FormatName: TypeAlias = Literal["zarr2", "zarr3", "zarr3-draft", "zarr3-experimental", "n5"]
"""Name of a format, for type checkers; `chunkmill.formats.registry.get_format` takes any text, and knows a few more."""

WritableFormatName: TypeAlias = Literal["zarr2", "zarr3", "zarr3-draft", "n5"]
"""Name of a format that is written."""

MAX_RANK = 64
"""Most axes of an array: numpy's limit."""

MAX_SIZE = 2**63 - 1
"""Longest axis, and longest chunk: what every peer's integers hold."""


class Format(ABC):
    """One storage format, perhaps configured by documents at the root of a store.

    An instance is immutable and picklable. What most formats have in common is said here; one that is not written says
    nothing of emitting.
    """

    __slots__ = ()

    name: ClassVar[str]
    """Name of the format for users: ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"``, ``"n5"``."""

    default_codecs: ClassVar[str] = "default"
    """Meaning of ``codecs="default"``: a compressor that every reader of the format has."""

    masks_fill_value: ClassVar[bool] = False
    """Whether xarray takes the fill value for netCDF's ``_FillValue``, that of missing elements, by default."""

    group_documents: ClassVar[frozenset[str]] = frozenset()
    """Names of documents that a group has among its nodes, which no node can have then."""

    has_xarray_engine: ClassVar[bool] = False
    """``engine="zarr"``, which xarray brings, opens it."""

    has_numcodecs: ClassVar[bool] = False
    """Codecs are stored as numcodecs' configurations, filters and one compressor."""

    names_in_axes: ClassVar[bool] = False
    """Dimension names are read from the attribute ``axes``, fastest axis first."""

    has_bool: ClassVar[bool] = True
    """There is a data type for booleans; else xarray's netCDF convention (int8 and an attribute) stores them."""

    has_fill_value: ClassVar[bool] = True
    """Absent chunks have a fill value of the array's own; else they are zeros."""

    level_metadata: ClassVar[str | None] = None
    """Convention by which multiscale images are described: a version of OME-Zarr, ``"n5-viewer"``, or ``None``."""

    node_keys_known: ClassVar[bool] = True
    """The keys of nodes are known before the documents at the root were read."""

    implicit_groups: ClassVar[bool] = False
    """A prefix with anything below it is a group without any document."""

    empty_groups: ClassVar[bool] = False
    """An empty folder is a group too, where groups need no document."""

    document_names: ClassVar[frozenset[str]] = frozenset()
    """Last segments of the keys that are documents: what consolidated metadata answer for."""

    default_chunk_keys: ClassVar[ChunkKeyEncoding]
    """Chunk key encoding of new arrays."""

    def normalize_path(self, path: str) -> str:
        """Return the canonical form of a node's path (no slashes at the ends), or raise `MetadataError`."""
        return normalize_path(path, documents=self.group_documents)

    def root_keys(self) -> tuple[str, ...]:
        """Keys of documents at the root of a store that configure the format; none for most."""
        return ()

    def configured(self, documents: Mapping[str, bytes]) -> Format | None:  # noqa: ARG002 - of others
        """Return this format as the root documents want it; ``None`` when they say the store is of another one."""
        return self

    def emit_root(self) -> dict[str, bytes]:
        """Return the documents that a new store of this format needs at its root, besides a group's own."""
        return {}

    @abstractmethod
    def array_keys(self, path: str) -> tuple[str, ...]:
        """Keys of an array's documents, the required one first."""

    def group_keys(self, path: str) -> tuple[str, ...]:
        """Keys of a group's documents, the required one first."""
        return self.array_keys(path)

    def chunk_prefix(self, path: str) -> str:
        """Return what stands before the chunk key in the store keys of an array: ``"path/"``, ``"data/path/"``."""
        return f"{path}/" if path else ""

    def list_prefixes(self, path: str) -> tuple[str, ...]:
        """Prefixes below which the names of the children of the group at `path` are listed."""
        return (self.chunk_prefix(path),)

    def child_name(self, path: str, prefix: str, name: str) -> str | None:  # noqa: ARG002 - of others
        """Return the child that `name`, listed below `prefix`, may be of; ``None`` when it is none."""
        child = name.removesuffix("/")
        return None if child in {name, "", ".", "..", *self.group_documents} else child

    @abstractmethod
    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse the array at `path`; ``None`` when the documents there describe no array.

        Raises `MetadataError` where they describe one wrongly.
        """

    @abstractmethod
    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse the group at `path`; ``None`` when there is none by its documents."""

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:  # noqa: ARG002
        """Return the documents of an array; `UnsupportedFeature` for what the format cannot hold."""
        raise self._read_only()

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:  # noqa: ARG002
        """Return the documents of a group."""
        raise self._read_only()

    def adapt(self, metadata: ArrayMetadata, path: str = "") -> ArrayMetadata:  # noqa: ARG002
        """Return a description as this format makes it: its chunk keys, its way to store edges, its codecs.

        `metadata` may come from users or from another format, and goes to `path`, which errors name. What would be
        lost raises `UnsupportedFeature`.
        """
        raise self._read_only()

    def _read_only(self) -> UnsupportedFeature:
        hint = "it is read only: write 'zarr3', or 'zarr3-draft'"
        return UnsupportedFeature(format=self.name, feature="writing", hint=hint)

    def consolidated_key(self, path: str) -> str | None:  # noqa: ARG002 - of others
        """Return the key of consolidated metadata at the group at `path`; ``None``: the format has none."""
        return None

    def parse_consolidated(self, path: str, value: bytes) -> dict[str, bytes] | None:  # noqa: ARG002 - of others
        """Return the documents in the consolidated metadata at `path`, by full store key; ``None`` without any.

        Raises `MetadataError` where they are malformed or lead out of the group.
        """
        return None

    def emit_consolidated(self, path: str, documents: Mapping[str, bytes]) -> dict[str, bytes]:  # noqa: ARG002
        """Return the documents that hold `documents`, those of the group at `path` and below, consolidated."""
        raise UnsupportedFeature(format=self.name, feature="consolidated metadata")


class ParsedDocument(bytes):
    """A document that was parsed as a part of another one, so that `parse_json` need not do it again."""

    parsed: dict[str, JSON]


def parse_json(key: str, value: bytes) -> dict[str, JSON]:
    """Parse one document that must be a JSON object; every way to fail is a `MetadataError`.

    Bare ``NaN`` and ``Infinity`` are read (xarray and netCDF-C write them) though never written.
    """
    if value.count(b"[") + value.count(b"{") > _MAX_DEPTH and _is_deep(value):
        got = f"lists or objects in one another, more than {_MAX_DEPTH} deep"
        hint = "take them out of the document by other means"
        raise MetadataError(key=key, field="document", got=got, expected="what Python can copy and send", hint=hint)
    if isinstance(value, ParsedDocument):
        return dict(value.parsed)
    try:
        document = json.loads(bytes(value).decode("utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        got = _what_is_met(bytes(value)) or str(error)
        raise MetadataError(key=key, field="document", got=got, expected="a JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise MetadataError(key=key, field="document", got=type(document).__name__, expected="a JSON object")
    return document


_MAX_DEPTH = 128  # where a document is read: pickle fails at some hundred (P13)
_BETWEEN_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^][{}]+')


def _is_deep(value: bytes) -> bool:
    """Return whether JSON text has more lists and objects in one another than are read."""
    brackets = _BETWEEN_BRACKETS.sub(b"", value)
    for _ in range(_MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return b"[]" in brackets or b"{}" in brackets  # not where all is closed, nor where it never will be


def is_blank(value: bytes) -> bool:
    """Return whether a document is empty, or of zeros, as a crash of the machine leaves files."""
    return not value.strip(b"\0 \n")


def _what_is_met(value: bytes) -> str | None:
    """Return what is stored in place of a document, where that is known by its first bytes."""
    if is_blank(value):
        way_out = "check with repair=True deletes it, then write the node again"
        return f"{len(value)} bytes without content: it is empty, as a crash of the machine leaves files; {way_out}"
    if value.lstrip()[:1] == b"<":
        return "a web page: the server answers so for absent keys; say what it is by format="
    return None


def described_once(document: Hashable, describe: Callable[[], T]) -> T:
    """Return what `describe` makes of a document, or made of an equal one before.

    The arrays of one dataset differ in little but names and attributes: what is remembered must not depend on those.

    Examples
    --------
    >>> described_once("document", lambda: [1]) is described_once("document", lambda: [1])
    True
    """
    if document not in _DESCRIBED:
        described = describe()
        if len(_DESCRIBED) >= _MAX_DESCRIBED:
            _DESCRIBED.clear()
        _DESCRIBED[document] = described
        return described
    return cast("T", _DESCRIBED[document])


_DESCRIBED: dict[Hashable, Any] = {}
_MAX_DESCRIBED = 256


def emit_json(key: str, document: Mapping[str, JSON], *, indent: int | None = 2) -> bytes:
    """Return a document as UTF-8 JSON.

    JSON has no NaN and no Infinity: where attributes of a source hold them (xarray and netCDF-C write them bare), they
    become the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` that Zarr uses for fill values, with a warning.
    """
    try:
        try:
            text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
        except ValueError:
            text = json.dumps(_spelled_out(document), indent=indent, ensure_ascii=False, allow_nan=False)
            msg = f"{key!r}: attributes hold NaN or infinities, which JSON has not: they are written as texts, 'NaN'"
            warnings.warn(msg, UserWarning, stacklevel=2)
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(key=key, field="document", got=str(error), expected="values that JSON can hold") from None


def check_attributes(path: str, attributes: Mapping[str, Any] | None) -> None:
    """Raise `MetadataError` where JSON cannot hold the attributes given for the node at `path`, else return nothing."""
    if not isinstance(attributes, (Mapping, type(None))):
        raise TypeError(f"attributes are a dict, not {type(attributes).__name__}")
    wrong = {name: value for name, value in (attributes or {}).items() if not is_json({name: value})}
    if wrong:
        expected = "finite numbers, text, true, false, null, and lists and dicts of them, at most 100 deep"
        hint = "give NaN and infinities as texts"
        # not `repr`, which fails for deep values
        raise MetadataError(key=path, field="attributes", got=reprlib.repr(wrong), expected=expected, hint=hint)


def is_json(value: Any, depth: int = 100) -> bool:
    """Return whether JSON holds `value` as it is, with lists and dicts in one another at most `depth` deep."""
    if isinstance(value, dict):
        return all(isinstance(name, str) for name in value) and is_json(list(value.values()), depth)
    if isinstance(value, (list, tuple)):
        return depth >= 0 and all(is_json(each, depth - 1) for each in value)
    return value is None or (isfinite(value) if isinstance(value, float) else isinstance(value, (str, int)))


def _spelled_out(value: JSON) -> JSON:
    """Return `value` with floats that JSON cannot hold as strings."""
    if isinstance(value, float) and not isfinite(value):
        return {inf: "Infinity", -inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Mapping):
        return {name: _spelled_out(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled_out(member) for member in value]
    return value


def normalize_path(path: str, *, backslash: bool = False, documents: Collection[str] = ()) -> str:
    r"""Return `path` without slashes at the ends or doubled; `MetadataError` for ``.`` and ``..`` segments.

    `backslash`: whether ``\\`` separates like ``/`` (Zarr v2). `documents`: further names that no node has.

    Examples
    --------
    >>> normalize_path("/a//b/")
    'a/b'
    """
    if not isinstance(path, str):
        raise TypeError(f"{path!r:.60} is not a path of a node: expected text, such as 'a/b'")
    if backslash:
        path = path.replace("\\", "/")
    segments = [segment for segment in path.split("/") if segment]
    for segment in segments:
        if segment in {".", ".."} or "\0" in segment:
            raise MetadataError(key=path, field="path", got=path, expected="a path without '.' and '..' segments")
        if segment in documents:
            raise MetadataError(key=path, field="path", got=path, expected=f"a path without the document {segment!r}")
    return "/".join(segments)


def get_member(key: str, document: Mapping[str, JSON], name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """Return a required member of a document, checked for its JSON type (a bool is not an integer)."""
    if name not in document:
        raise MetadataError(key=key, field=name, got="nothing", expected="a value: the member is required")
    value = document[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(k.__name__ for k in kinds)
        raise MetadataError(key=key, field=name, got=value, expected=expected)
    return value


def get_attributes(key: str, document: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the attributes in a document: none where the member is absent."""
    return dict(get_member(key, {"attributes": {}, **document}, "attributes", dict))


def check_shape(value: JSON, *, key: str, field: str = "shape") -> tuple[int, ...]:
    """Return the shape that a list in a document says: integers from 0 to `MAX_SIZE`, at most `MAX_RANK` of them.

    Examples
    --------
    >>> check_shape([3, 0], key=".zarray")
    (3, 0)
    """
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise MetadataError(key=key, field=field, got=value, expected=f"a list of at most {MAX_RANK} integers")
    if not all(type(n) is int and 0 <= n <= MAX_SIZE for n in value):  # a bool is not an int here
        raise MetadataError(key=key, field=field, got=value, expected="integers from 0 to 2**63-1")
    return tuple(value)


def check_chunk_shape(value: JSON, shape: Sequence[int], *, key: str, field: str = "chunks") -> tuple[int, ...]:
    """Return a chunk shape of the rank of `shape`: lengths of at least 1, or 0 on an axis without elements.

    Old zarr-python wrote that 0; it comes back as 1, so that nothing divides by it.

    Examples
    --------
    >>> check_chunk_shape([2, 0], (3, 0), key=".zarray")
    (2, 1)
    """
    chunks = check_shape(value, key=key, field=field)
    if len(chunks) != len(shape):
        raise MetadataError(key=key, field=field, got=value, expected=f"one length for each of {len(shape)} axes")
    if any(chunk == 0 and size != 0 for chunk, size in zip(chunks, shape, strict=True)):
        raise MetadataError(key=key, field=field, got=value, expected="chunk lengths of at least 1")
    return tuple(max(chunk, 1) for chunk in chunks)


def split_dimension_names(
    attributes: Mapping[str, JSON], ndim: int
) -> tuple[tuple[str | None, ...] | None, dict[str, JSON]]:
    """Take xarray's ``_ARRAY_DIMENSIONS`` out of `attributes`, if it names every axis; else it is an attribute.

    Examples
    --------
    >>> split_dimension_names({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"}, 2)
    (('y', 'x'), {'units': 'm'})
    """
    names = axis_names(attributes.get("_ARRAY_DIMENSIONS"), ndim)
    if names is None:
        return None, dict(attributes)
    return names, {name: value for name, value in attributes.items() if name != "_ARRAY_DIMENSIONS"}


def axis_names(value: JSON, ndim: int) -> tuple[str, ...] | None:
    """Return the names in a document, where they are a list of one for each axis.

    Examples
    --------
    >>> axis_names(["y", "x"], 2), axis_names(["y", None], 2)
    (('y', 'x'), None)
    """
    is_whole = isinstance(value, list) and len(value) == ndim and all(isinstance(name, str) for name in value)
    return tuple(value) if is_whole else None


def attributes_with_names(
    metadata: ArrayMetadata, attribute: str, *, is_reversed: bool, format_name: str, key: str
) -> dict[str, JSON]:
    """Return attributes and, as one of them, dimension names; `UnsupportedFeature` for names that it cannot say."""
    attributes = dict(metadata.attributes)
    names = list(metadata.dimension_names or ())
    if None in names:
        raise UnsupportedFeature(format=format_name, feature=f"dimension names {names}, some absent", key=key)
    stored = names[::-1] if is_reversed else names
    if metadata.dimension_names is not None and attributes.setdefault(attribute, stored) != stored:
        feature = f"dimension names {names} with an attribute {attribute!r} that says otherwise"
        hint = f"{attribute!r} is where the format keeps the names"
        raise UnsupportedFeature(format=format_name, feature=feature, key=key, hint=hint)
    return attributes
