"""Store over a reference set: values come from bytes in the set, or from ranges of its targets.

Read-only. No event loop of its own, no ReferenceFileSystem: targets are ordinary stores
(`chunkmill.stores.reference_targets`), so that one set may mix local files, S3 and HTTP. Not here: parsing sets
(`chunkmill.formats`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NoReturn

from chunkmill.errors import StoreError
from chunkmill.model.references import Reference, References, ReferenceSet
from chunkmill.stores.base import ByteRange, ByteSpan, check_key, check_prefix, range_bounds
from chunkmill.stores.reference_targets import Targets

__all__ = ["ReferenceStore"]

_WINDOW = 512  # spans looked up before their bytes are asked for


class ReferenceStore:
    """The keys of a reference set.

    A key is absent only when the set does not have it. A target that is missing, too short, or that may not be opened
    raises `StoreError` naming url, offset and length.

    It pickles with the set when that is held in memory (`subset` cuts out what a task needs), and to what opens it
    again when it is lazy.

    Parameters
    ----------
    references
        The set.
    targets
        How its urls are opened; by default as a set at `url` may.
    url
        Of the set: what errors name.

    Examples
    --------
    >>> from chunkmill.model.reference_builder import ReferenceBuilder
    >>> builder = ReferenceBuilder()
    >>> builder.add_data("x/0", b"0123456789")
    >>> store = ReferenceStore(builder.build())
    >>> store.get("x/0", ByteRange(-3)), store.get("x/1"), store.list_dir("")
    (b'789', None, ['x/'])
    """

    replaces_atomically = False  # read-only
    compares_versions = False

    def __init__(self, references: References, targets: Targets | None = None, *, url: str = "") -> None:
        self.references = references
        self.targets = Targets(url) if targets is None else targets
        self.url = url or "reference://"
        # of a lazy set the targets are not known; several at once cost local files nothing
        self.is_remote = not isinstance(references, ReferenceSet) or self.targets.is_remote(references.urls)

    def __repr__(self) -> str:
        return f"ReferenceStore({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReferenceStore) and other.__dask_tokenize__() == self.__dask_tokenize__()

    def __hash__(self) -> int:
        return hash(self.url)

    def __dask_tokenize__(self) -> tuple[str | None, ...]:
        return "chunkmill.ReferenceStore", self.url, self.references.fingerprint, *self.targets.identity

    def subset(self, keys: Iterable[str]) -> ReferenceStore:
        """Return a store of only those of `keys` that there are: some tens of bytes a key when pickled.

        Sets held in memory are sent to tasks so; a lazy set is sent whole, since that is its url.
        """
        return ReferenceStore(self.references.subset(keys), self.targets, url=self.url)

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of a value are, by a url that means the same in another set, or the bytes."""
        reference = self.references.locate(check_key(key))
        if reference is None or reference.data is not None:
            return reference
        return replace(reference, url=self.targets.resolve(reference.url))

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        reference = self.references.locate(check_key(key))
        if reference is None:
            return None
        if reference.data is not None:
            return self._inline(key, reference.data, byte_range)
        root, span = self._target(key, reference, byte_range)
        if _is_empty(span):
            return b""
        try:
            data = self.targets.store(root).get(span.key, span.byte_range)
        except OSError as error:
            self._fail(key, reference, str(error), error)
        return self._checked(key, reference, span, data)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order.

        Requests to one host or bucket run at once, neighbouring ranges of one target in one request, as the target's
        store does it.
        """
        todo = iter(spans)
        while window := list(itertools.islice(todo, _WINDOW)):
            yield from self._get_window(window)

    def _get_window(self, spans: list[ByteSpan | None]) -> Iterator[bytes | None]:
        plan = [None if span is None else self._planned(span) for span in spans]
        wanted: dict[str, list[ByteSpan]] = {}
        for item in plan:
            if isinstance(item, tuple):
                wanted.setdefault(item[2], []).append(item[3])
        fetched: dict[str, Iterator[bytes | None]] = {}
        for item in plan:
            if not isinstance(item, tuple):
                yield item
                continue
            key, reference, root, span = item
            try:
                if root not in fetched:
                    fetched[root] = self.targets.store(root).get_many(wanted[root])
                data = next(fetched[root])
            except OSError as error:
                self._fail(key, reference, str(error), error)
            yield self._checked(key, reference, span, data)

    def _planned(self, span: ByteSpan) -> bytes | tuple[str, Reference, str, ByteSpan] | None:
        reference = self.references.locate(check_key(span.key))
        if reference is None:
            return None
        if reference.data is not None:
            return self._inline(span.key, reference.data, span.byte_range)
        root, target = self._target(span.key, reference, span.byte_range)
        return b"" if _is_empty(target) else (span.key, reference, root, target)

    def _inline(self, key: str, data: bytes, byte_range: ByteRange | None) -> bytes:
        if byte_range is None:
            return data
        start, stop = range_bounds(byte_range, len(data), url=self.url, key=key)
        return data[start:stop]

    def _target(self, key: str, reference: Reference, byte_range: ByteRange | None) -> tuple[str, ByteSpan]:
        """Return which bytes of which store answer a range of a reference."""
        try:
            root, target_key = self.targets.split(reference.url)
        except StoreError as error:
            self._fail(key, reference, error.reason, error)
        if reference.length is None:
            return root, ByteSpan(target_key, byte_range)
        start, length = reference.offset, reference.length
        if byte_range is not None:
            first, stop = range_bounds(byte_range, length, url=self.url, key=key)
            start, length = start + first, stop - first
        return root, ByteSpan(target_key, ByteRange(start, length))

    def _checked(self, key: str, reference: Reference, span: ByteSpan, data: bytes | None) -> bytes:
        if data is None:  # never None to the caller: that would read as fill value
            self._fail(key, reference, "there is no such target")
        wanted = span.byte_range
        if wanted is not None and wanted.start >= 0 and wanted.length not in {None, len(data)}:
            self._fail(key, reference, f"got {len(data)} bytes")
        return data

    def _fail(self, key: str, reference: Reference, reason: str, cause: BaseException | None = None) -> NoReturn:
        length = "all" if reference.length is None else reference.length
        where = f"{length} bytes at offset {reference.offset} of {self._shown(reference.url)}"
        failed = StoreError(url=self.url, key=key, reason=f"cannot read {where}: {reason}")
        failed.errno = getattr(cause, "errno", None)
        raise failed from cause

    def _shown(self, url: str | None) -> str:
        """Return a target as the set spells it, and what that means here."""
        try:
            resolved = self.targets.resolve(url)
        except StoreError:
            resolved = url or ""
        return repr(url) if resolved == url else f"{url!r}, here {resolved!r}"

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value, and as its version the set's digest: the set itself does not change."""
        data = self.get(key)
        return data, None if data is None else self.references.fingerprint

    def size(self, key: str) -> int | None:
        """Return the size of a value; of a whole target it costs a request."""
        reference = self.references.locate(check_key(key))
        if reference is None or reference.data is not None:
            return None if reference is None or reference.data is None else len(reference.data)
        if reference.length is not None:
            return reference.length
        root, span = self._target(key, reference, None)
        try:
            size = self.targets.store(root).size(span.key)
        except OSError as error:
            self._fail(key, reference, str(error), error)
        if size is None:
            self._fail(key, reference, "there is no such target")
        return size

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        return self.references.keys(check_prefix(prefix))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        return self.references.list_dir(check_prefix(prefix))

    # --- not writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:  # noqa: ARG002
        """Refuse: a reference set is read-only."""
        self._read_only(check_key(key))

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:  # noqa: ARG002
        """Refuse: a reference set is read-only."""
        self._read_only(check_key(key))

    def delete(self, key: str) -> None:
        """Refuse: a reference set is read-only."""
        self._read_only(check_key(key))

    def delete_prefix(self, prefix: str) -> None:
        """Refuse: a reference set is read-only."""
        self._read_only(check_prefix(prefix))

    def _read_only(self, key: str) -> NoReturn:
        reason = "reference sets are read-only: convert to a store of its own, or write a new set by to_references"
        raise StoreError(url=self.url, key=key, reason=reason)


def _is_empty(span: ByteSpan) -> bool:
    return span.byte_range is not None and span.byte_range.length == 0
