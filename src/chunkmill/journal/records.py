"""Records of the tasks of a job that are done, and whether the values that they name are as they were written.

A record names runs of keys, with the sum of the sizes of their values and one checksum: less than a byte a key, where
the keys of a task follow each other. Keys without a value are not named. Not here: where records
are kept (`chunkmill.journal.record_files`).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

import google_crc32c

from chunkmill.stores.base import ByteRange, Store, check_key
from chunkmill.stores.metered import Written

__all__ = ["Record", "WrittenKeys", "read_record"]

_FEW = 16  # keys of a record that have a checksum each: damage is then known by the key
_LARGE = 4096  # bytes of a record that is worth compressing
_MOST_BYTES, _MOST_KEYS = 64 << 20, 1 << 24  # of a record, and of a checksum in it: more was not written by a task
_PIECE = 16 << 20  # bytes that are read at once, to be compared
_NUMBER = re.compile(r"(\d+)")
_ENCODER = json.JSONEncoder(separators=(",", ":"))  # `json.dumps` makes one a call


class _Run(NamedTuple):
    """Keys that differ in one number, which counts up: ``prefix + str(first + i) + suffix``."""

    prefix: str
    first: int
    n_keys: int
    suffix: str

    def keys(self) -> Iterator[str]:
        return (f"{self.prefix}{number}{self.suffix}" for number in range(self.first, self.first + self.n_keys))


@dataclass(frozen=True, slots=True)
class WrittenKeys:
    """Keys of a store, and what was written there.

    Attributes
    ----------
    runs
        The keys: as they are, or runs of them.
    n_bytes
        Sum of the sizes of their values.
    checksum
        The value's crc32c; of several values, the crc32c of their keys, sizes and crc32c.
    """

    runs: tuple[str | _Run, ...]
    n_bytes: int
    checksum: int

    @classmethod
    def of(cls, writes: Mapping[str, Written]) -> Iterator[WrittenKeys]:
        """Yield what names the keys that were written: a few one by one, many together.

        Examples
        --------
        >>> list(WrittenKeys.of({"a/0": (3, 7), "a/1": None}))
        [WrittenKeys(runs=('a/0',), n_bytes=3, checksum=7)]
        >>> [each.runs for each in WrittenKeys.of({f"a/{i}/0": (1, 1) for i in range(99)})]
        [(_Run(prefix='a/', first=0, n_keys=99, suffix='/0'),)]
        """
        present = {key: known for key, known in writes.items() if known}
        if len(present) <= _FEW:
            yield from (cls((key,), *known) for key, known in present.items())
            return
        keys = sorted(present, key=_by_numbers)
        checksum = 0
        for key in keys:
            checksum = _with_key(checksum, key, *present[key])
        yield cls(tuple(_runs(keys)), sum(size for size, _ in present.values()), checksum)

    @property
    def n_keys(self) -> int:
        """Number of keys."""
        return sum(1 if isinstance(run, str) else run.n_keys for run in self.runs)

    def keys(self) -> Iterator[str]:
        """Yield the keys."""
        for run in self.runs:
            if isinstance(run, str):
                yield run
            else:
                yield from run.keys()

    def difference(self, store: Store) -> tuple[str, str] | None:
        """Return the first key whose value differs, or may, and a text on how; sizes are compared before bytes."""
        sizes: dict[str, int] = {}
        for key in self.keys():
            if (there := store.size(key)) is None:
                return key, f"absent, where {self._expected} were written"
            sizes[key] = there
        keys = [*sizes]
        if (n_bytes := sum(sizes.values())) != self.n_bytes:
            return keys[0], f"{n_bytes} bytes, where {self._expected} were written"
        checksum = 0
        for key, size in sizes.items():
            own = _stored_crc32c(store, key, size)
            checksum = own if len(keys) == 1 else _with_key(checksum, key, size, own)
        if checksum == self.checksum:
            return None
        others = f", or those of a key up to {keys[-1]!r}, {len(keys):,} in all," if len(keys) > 1 else ""
        return keys[0], f"its bytes{others} are not those that were written"

    @property
    def _expected(self) -> str:
        *others, last = self.keys()
        return f"{self.n_bytes} bytes" + (f" under {len(others) + 1:,} keys up to {last!r}" if others else "")


def _read_run(known: Any) -> str | _Run:
    """Return a key, or a run of keys, of a record; `TypeError` or `ValueError` where it is none."""
    if isinstance(known, str):
        return check_key(known)
    prefix, first, n_keys, suffix = known
    check_key(prefix + str(index(first)) + suffix)
    return _Run(prefix, first, index(n_keys), suffix)


def _stored_crc32c(store: Store, key: str, size: int) -> int:
    """Return the crc32c of a value, of which no more than `_PIECE` bytes are in memory."""
    checksum = 0
    for start in range(0, size, _PIECE):
        piece = store.get(key, None if size <= _PIECE else ByteRange(start, min(_PIECE, size - start)))
        checksum = google_crc32c.extend(checksum, piece or b"")
    return checksum


def _by_numbers(key: str) -> list[Any]:
    tokens: list[Any] = _NUMBER.split(key)
    tokens[1::2] = map(int, tokens[1::2])
    return tokens


def _with_key(checksum: int, key: str, size: int, own: int) -> int:
    extended: int = google_crc32c.extend(checksum, f"{key} {size} {own}\n".encode())
    return extended


def _runs(keys: Sequence[str]) -> Iterator[str | _Run]:
    """Yield runs of keys that follow each other, and the other keys as they are."""
    start = 0
    while start < len(keys):
        run = _begun(*keys[start : start + 2])
        if run is None:
            yield keys[start]
            start += 1
            continue
        stop, number = start + 2, run.first + 2
        while stop < len(keys) and keys[stop] == f"{run.prefix}{number}{run.suffix}":
            stop, number = stop + 1, number + 1
        yield run._replace(n_keys=stop - start)
        start = stop


def _inflated(value: bytes) -> bytes:
    inflate = zlib.decompressobj()
    inflated = inflate.decompress(value, _MOST_BYTES)
    if not inflate.eof:
        raise zlib.error
    return inflated


def _begun(key: str, after: str = "") -> _Run | None:
    """Return the run that two keys begin, if one number is all that they differ in and it counts up."""
    tokens, others = _NUMBER.split(key), _NUMBER.split(after)
    if len(tokens) != len(others):
        return None
    differ = [i for i, (a, b) in enumerate(zip(tokens, others, strict=True)) if a != b]
    if len(differ) != 1 or not differ[0] % 2:
        return None
    (at,) = differ
    first = int(tokens[at])
    if str(first) != tokens[at] or str(first + 1) != others[at]:
        return None
    return _Run("".join(tokens[:at]), first, 2, "".join(tokens[at + 1 :]))


@dataclass(frozen=True, slots=True)
class Record:
    """Record of one task.

    Attributes
    ----------
    counts
        Its counts.
    written
        What it wrote.
    upto
        The last spec that is done, where there are more to do; ``None``: all are.
    reads
        Digest of the versions of what it read (`chunkmill.journal.inputs`); ``None``: not known.
    elsewhere
        Whether it wrote to another store than the journal's: that of intermediate files.
    """

    counts: Mapping[str, int]
    written: Sequence[WrittenKeys]
    upto: tuple[int, ...] | None = None
    reads: int | None = None
    elsewhere: bool = False

    def pack(self) -> bytes:
        """Return the record as bytes.

        Examples
        --------
        >>> record = Record({"n_keys": 1}, (WrittenKeys(("a/c/0",), 3, 7),))
        >>> record.pack()
        b'{"counts":{"n_keys":1},"upto":null,"written":[[["a/c/0"],3,7]]}'
        >>> Record.unpack(record.pack()) == record
        True
        """
        written = [(each.runs, each.n_bytes, each.checksum) for each in self.written]
        record: dict[str, Any] = {"counts": self.counts, "upto": self.upto, "written": written}
        record |= {} if self.reads is None else {"reads": self.reads}
        record |= {"elsewhere": True} if self.elsewhere else {}
        value = _ENCODER.encode(record).encode()
        return value if len(value) < _LARGE else zlib.compress(value)

    @classmethod
    def unpack(cls, value: bytes) -> Record:
        """Return the record that `pack` made bytes of; `ValueError` for others."""
        try:
            parsed = json.loads(value if value[:1] == b"{" else _inflated(value))
            written = tuple(
                WrittenKeys(tuple(map(_read_run, runs)), int(n_bytes), int(checksum))
                for runs, n_bytes, checksum in parsed["written"]
            )
            if not all(0 < each.n_keys <= _MOST_KEYS for each in written):
                raise ValueError  # noqa: TRY301 - as for any other nonsense
            upto = None if parsed["upto"] is None else tuple(parsed["upto"])
            counts = {name: n + 0 for name, n in parsed["counts"].items()}  # numbers, or a TypeError
            return cls(counts, written, upto, parsed.get("reads"), "elsewhere" in parsed)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, zlib.error) as error:
            msg = "the record is damaged"
            raise ValueError(msg) from error

    def holds(self, store: Store) -> bool:
        """Return whether all values have the size and crc32c on record; ``False`` if they cannot be looked at."""
        try:
            return not any(each.difference(store) for each in self.written)
        except OSError:
            return False

    def has_read(self, reads: int | None) -> bool:
        """Return whether what it read has that digest, as far as both are known."""
        return None in {reads, self.reads} or reads == self.reads


def read_record(value: bytes) -> Record | None:
    """Return the record that `value` is; ``None`` where it is damaged."""
    try:
        return Record.unpack(value)
    except ValueError:
        return None
