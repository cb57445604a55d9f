"""Every error that chunkmill raises on purpose.

    ChunkmillError
    ├── NodeNotFound(KeyError,            no such array or group
    │   │            FileNotFoundError)
    ├── NodeExists(FileExistsError)       a node is there already
    ├── MetadataError(ValueError)         a document violates its format
    │   └── UnsupportedFeature            a feature that chunkmill or the format does not have
    ├── UnknownCodec(ValueError)          no codec of that name
    ├── CodecError(ValueError)            one codec failed on one chunk (raised without a store)
    ├── ChunkError(RuntimeError)          the same, with store, key and chunk coords
    ├── StoreError(OSError)               a store failed, or does not support an operation
    ├── RegionError(IndexError)           an index or a chunk shape that is invalid for the array
    ├── AlignmentError(ValueError)        blocks or a region that cut through store keys
    ├── DatasetError(ValueError)          a labelled dataset that does not fit what is stored
    ├── ScanError(ValueError)             a file that references cannot describe
    ├── TransformError(RuntimeError)      the user's function failed for a block of a transform
    └── JobError(RuntimeError)            a whole-store job that cannot begin or resume
    NoWorkers(UserWarning)                tasks wait for a worker; a warning
    KeysLeft(UserWarning)                 keys that belong to no node were not deleted; a warning

Each is also the builtin error that users of such libraries catch. All fields go through ``__init__`` and pickle, so
that an error raised in a worker reaches the client complete.
"""

from __future__ import annotations

import re
from typing import Any

from chunkmill.hints import Hint, Renderer


def _rebuild(cls: type[ChunkmillError], fields: dict[str, Any]) -> ChunkmillError:
    return cls(**fields)


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _printable(text: str) -> str:
    """Return a message whose codes a terminal would obey, or cannot show, are escaped: it repeats urls and paths."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class ChunkmillError(Exception):
    """Root of every error that chunkmill raises on purpose.

    Parameters
    ----------
    **fields
        Contents of the message; each becomes an attribute.

    Attributes
    ----------
    reason
        Cause and way out, of errors that have one.

    Examples
    --------
    >>> issubclass(MetadataError, ValueError)
    True
    """

    def __init__(self, **fields: Any) -> None:
        self._fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.message())

    def message(self) -> str:
        """Assemble the text from the fields."""
        return ", ".join(f"{name}={value!r}" for name, value in self._fields.items())

    def extend_reason(self, text: str) -> None:
        """Add a text, such as a way out, to the reason of an error that has one."""
        self.reason = self._fields["reason"] = f"{self._fields['reason']}{text}"

    def rendered(self, renderer: Renderer) -> str:
        """Return the message with the arguments that its hints name as `renderer` writes them."""
        fields = {
            name: value.rendered(renderer) if isinstance(value, Hint) else value for name, value in self._fields.items()
        }
        return _printable(_rebuild(type(self), fields).message())

    def __str__(self) -> str:  # KeyError would show the repr of its argument
        return _printable(self.message())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._fields)


class NodeNotFound(ChunkmillError, KeyError, FileNotFoundError):
    """No node, or a node of the other kind, at ``path`` of the store at ``url``.

    ``found`` is ``"array"``, ``"group"`` or ``None``; ``hint`` names the way out.
    """

    url: str
    path: str
    found: str | None
    wanted: str
    hint: str

    def __init__(
        self, *, url: str, path: str, found: str | None = None, wanted: str = "array or group", hint: str = ""
    ) -> None:
        super().__init__(url=url, path=path, found=found, wanted=wanted, hint=hint)

    def message(self) -> str:
        """Return what was looked for, where, and what was found instead."""
        instead = f"there is {_ARTICLES[self.found]}" if self.found else "there is none"
        hint = f"; {self.hint}" if self.hint else ""
        return f"no {self.wanted} at path {self.path!r} of {self.url}: {instead}{hint}"


_ARTICLES = {"array": "an array", "group": "a group", "node": "a node"}


_REPLACE = (
    Hint("to change its attributes (update_attributes) or values, open it with {}", ("mode", "r+"))
    .also("{} replaces it and everything below it", ("overwrite", True))
    .also("so does {} in to_store and write_dataset, and {} writes into it", ("mode", "w"), ("region", ...))
)


class NodeExists(ChunkmillError, FileExistsError):
    """A node is there already and the mode does not allow replacing it; ``hint`` names the way out."""

    url: str
    path: str
    found: str
    hint: str

    def __init__(self, *, url: str, path: str, found: str, hint: str = _REPLACE) -> None:
        super().__init__(url=url, path=path, found=found, hint=hint)

    def message(self) -> str:
        """Return what is there and how to replace it."""
        return f"cannot create {self.path!r} in {self.url}: there is {_ARTICLES[self.found]} already; {self.hint}"


class MetadataError(ChunkmillError, ValueError):
    """A metadata document violates its format.

    ``key`` is the document's store key, ``field`` the member, ``got`` its value, ``expected`` a valid one; ``hint``
    names the way out.
    """

    key: str
    field: str
    got: Any
    expected: str
    hint: str

    def __init__(self, *, key: str, field: str, got: Any, expected: str, hint: str = "") -> None:
        if len(shown := repr(got)) > _MAX_SHOWN:
            got = _shortened(shown)
        if len(expected) > _MAX_EXPECTED:  # it may quote a codec's error, and that its input
            expected = expected[:_MAX_EXPECTED] + "..."
        super().__init__(key=key, field=field, got=got, expected=expected, hint=hint)

    def message(self) -> str:
        """Return which member of which document is wrong."""
        hint = f"; {self.hint}" if self.hint else ""
        return f"bad metadata in {self.key!r}, {self.field}: got {self.got!r}, expected {self.expected}{hint}"


_MAX_SHOWN = 200
_MAX_EXPECTED = 1000


def _shortened(text: str) -> str:
    """Return at most the beginning of `text`: a hostile document must not flood the message."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


class UnsupportedFeature(MetadataError):
    """A feature that the format or chunkmill does not support; nothing is guessed or dropped.

    Without a `format`, ``feature`` says which value a data type does not hold.
    """

    format: str
    feature: str

    def __init__(self, *, format: str, feature: str, key: str = "", hint: str = "") -> None:  # noqa: A002
        ChunkmillError.__init__(self, format=format, feature=_shortened(feature), key=key, hint=hint)

    def message(self) -> str:
        """Return the format and the feature."""
        where = f" (in {self.key!r})" if self.key else ""
        hint = f"; {self.hint}" if self.hint else ""
        what = f"{self.format} does not support {self.feature}" if self.format else self.feature
        return f"{what}{where}{hint}"


class UnknownCodec(ChunkmillError, ValueError):
    """No codec of that name is known; ``known`` lists those that are."""

    name: str
    known: tuple[str, ...]

    def __init__(self, *, name: str, known: tuple[str, ...] = (), reason: str = "") -> None:
        super().__init__(name=_shortened(name), known=known, reason=reason)

    def message(self) -> str:
        """Return the codec and the known ones."""
        reason = self._fields["reason"]
        known = f"; known are {', '.join(self.known)}" if self.known else ""
        return f"unknown codec {self.name!r}{': ' + reason if reason else ''}{known}"


class CodecError(ChunkmillError, ValueError):
    """One codec failed on one chunk; the data path adds store, key and coords (`ChunkError`)."""

    codec: str
    reason: str

    def __init__(self, *, codec: str, reason: str, direction: str = "decode") -> None:
        super().__init__(codec=codec, reason=reason, direction=direction)

    def message(self) -> str:
        """Return the codec and the reason."""
        return f"codec {self.codec!r} cannot {self._fields['direction']}: {self.reason}"


class ChunkError(ChunkmillError, RuntimeError):
    """One chunk could not be read or written.

    ``url`` and ``key`` name the object, ``coords`` the chunk in the grid, ``step`` what failed: ``"get"``,
    ``"set"`` or the name of a codec.
    """

    url: str
    key: str
    coords: tuple[int, ...]
    step: str
    reason: str

    def __init__(self, *, url: str, key: str, coords: tuple[int, ...], step: str, reason: str) -> None:
        super().__init__(url=url, key=key, coords=coords, step=step, reason=reason)

    def message(self) -> str:
        """Return which chunk, under which key, failed at which step."""
        return f"chunk {self.coords} (key {self.key!r} in {self.url}) failed at step {self.step!r}: {self.reason}"


class StoreError(ChunkmillError, OSError):
    """A store failed on ``key``, or does not support an operation."""

    url: str
    key: str
    reason: str

    def __init__(self, *, url: str, key: str, reason: str) -> None:
        super().__init__(url=url, key=key, reason=reason)

    def message(self) -> str:
        """Return which key of which store failed, and why."""
        return f"store {self.url}, key {self.key!r}: {self.reason}"


class RegionError(ChunkmillError, IndexError):
    """An index is outside the array, is of an unknown kind, or selects more than memory holds."""

    index: str
    shape: tuple[int, ...]
    reason: str

    def __init__(self, *, index: str, shape: tuple[int, ...], reason: str) -> None:
        super().__init__(index=index, shape=shape, reason=reason)

    def message(self) -> str:
        """Return which index (or argument: ``chunks=…``) failed on which shape, and why."""
        what = f"{self.index} for" if "=" in self.index else f"index {self.index} into"
        return f"{what} an array of shape {self.shape}: {self.reason}"


class AlignmentError(ChunkmillError, ValueError):
    """Blocks or a region cut through store keys where that cannot be done safely."""

    expected: Any
    got: Any
    fix: str

    def __init__(self, *, expected: Any, got: Any, fix: str) -> None:
        super().__init__(expected=expected, got=got, fix=fix)

    def message(self) -> str:
        """Return what was expected and how to correct the call."""
        return f"not aligned to store keys: got {self.got}, expected {self.expected}; {self.fix}"


class DatasetError(ChunkmillError, ValueError):
    """A variable of a labelled dataset cannot be stored, or does not fit what is stored already.

    Nothing was written. ``variable`` is its name (empty: the dataset itself), ``url`` the store, ``hint`` the way out.
    """

    variable: str
    url: str
    reason: str
    hint: str

    def __init__(self, *, variable: str, url: str, reason: str, hint: str = "") -> None:
        super().__init__(variable=variable, url=url, reason=reason, hint=hint)

    def message(self) -> str:
        """Return which variable of which store, why, and what to do."""
        what = f"variable {self.variable!r}" if self.variable else "dataset"
        return f"{what} in {self.url}: {self.reason}{'; ' + self.hint if self.hint else ''}"


class ScanError(ChunkmillError, ValueError):
    """A file cannot be described by references to its bytes, or does not fit the other files of a scan."""

    url: str
    reason: str

    def __init__(self, *, url: str, reason: str) -> None:
        super().__init__(url=url, reason=reason)

    def message(self) -> str:
        """Return which file, and why."""
        return f"cannot scan {self.url}: {self.reason}"


class TransformError(ChunkmillError, RuntimeError):
    """The user's function of a transform failed for one block, or returned what its target cannot hold.

    ``function`` is its name, ``url`` the store that the block would be written to, ``block`` its coords, ``region`` its
    elements as text, ``keys`` the first store keys of the sources that it was computed from. What the function raised
    is the cause, in the process where it was raised.
    """

    function: str
    url: str
    block: tuple[int, ...]
    region: str
    keys: tuple[str, ...]
    reason: str

    def __init__(
        self, *, function: str, url: str, block: tuple[int, ...], region: str, keys: tuple[str, ...], reason: str
    ) -> None:
        super().__init__(function=function, url=url, block=block, region=region, keys=keys, reason=reason)

    def message(self) -> str:
        """Return which block, of which region and source keys, and why."""
        shown = ", ".join(self.keys) or "no store keys"
        where = f"block {self.block}, region {self.region} of {self.url}, from {shown}"
        return f"{self.function} failed for {where}: {self.reason}"


class JobError(ChunkmillError, RuntimeError):
    """A whole-store job cannot begin or resume.

    ``job`` names it (``"convert to 'a' in file:///x"``), ``hint`` the way out.
    """

    job: str
    reason: str
    hint: str

    def __init__(self, *, job: str, reason: str, hint: str = "") -> None:
        super().__init__(job=job, reason=reason, hint=hint)

    def message(self) -> str:
        """Return which job, why, and what to do."""
        return f"{self.job}: {self.reason}{'; ' + self.hint if self.hint else ''}"


class JobCancelled(JobError):
    """A job was cancelled, by SIGTERM; the same plan resumes it."""


class KeysLeft(UserWarning):
    """A node was deleted, and keys stay below its path that belong to no node; a warning, which names them."""


class NoWorkers(UserWarning):
    """The cluster has no workers, so that tasks wait; a warning, since workers may join."""
