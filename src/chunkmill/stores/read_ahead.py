"""Read many spans of a store whose requests cost latency: several requests under way, neighbouring ranges in one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from math import inf

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan, RecordVersion, Store, check_key, max_requests

_MAX_AHEAD_BYTES = 64 * 2**20  # fetched before they are asked for, of one `get_many`, by the mean size so far
_MIN_AHEAD, _FIRST_AHEAD, _MAX_AHEAD = 4, 16, 128
_MAX_GAP = 64 * 2**10  # bytes read in vain that cost less than one more request
_MAX_MERGED = 8 * 2**20
_MAX_SPANS = 512  # looked at together, for neighbours among them


_Request = tuple[ByteSpan, Future[bytes | None]]  # what is asked for, and its answer


class ReadsAhead(Store):
    """A store that reads many spans at once where requests cost latency: as many ahead of the caller as memory allows.

    Neighbouring ranges of a key are read in one request.
    """

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order, with the requests of the next ones under way."""
        return self._read_ahead(spans, None) if self.asks_at_once() else super().get_many(spans)

    def get_many_noting(self, spans: Iterable[ByteSpan | None], record: RecordVersion) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order, and record versions."""
        return self._read_ahead(spans, record) if self.asks_at_once() else super().get_many_noting(spans, record)

    def asks_at_once(self) -> bool:
        """Return whether requests cost latency, and the client stands many threads."""
        return self.is_remote

    def _submit(self, span: ByteSpan, record: RecordVersion | None) -> Future[bytes | None]:
        pool = _pool(os.getpid())
        if record is None:
            return pool.submit(self.get, span.key, span.byte_range)
        return pool.submit(self.get_noting, span.key, span.byte_range, record)

    def _read_ahead(self, spans: Iterable[ByteSpan | None], record: RecordVersion | None) -> Iterator[bytes | None]:
        todo = iter(spans)
        ahead: deque[tuple[ByteSpan, _Request] | None] = deque()
        n_bytes = n_values = 0
        try:
            while True:
                if len(ahead) <= (limit := _ahead(n_bytes, n_values) if n_values else _FIRST_AHEAD) // 2:
                    ahead.extend(self._begin(todo, limit - len(ahead), record))
                if not ahead:
                    return
                if (asked := ahead.popleft()) is None:
                    yield None
                    continue
                value = self._result(*asked, record)
                n_values += 1
                n_bytes += 0 if value is None else len(value)
                yield value
        finally:
            for waiting in ahead:
                if waiting is not None:
                    waiting[1][1].cancel()

    def _begin(
        self, todo: Iterator[ByteSpan | None], n_spans: int, record: RecordVersion | None
    ) -> Iterator[tuple[ByteSpan, _Request] | None]:
        """Begin the requests of the next `n_spans` spans, and of more of them whose sizes are known to be small."""
        spans = []
        n_bytes: float = 0
        for span in todo:
            spans.append(span)
            n_bytes += _known_bytes(span)
            if len(spans) >= n_spans and (n_bytes > _MAX_MERGED or len(spans) >= _MAX_SPANS):
                break
        requests: dict[ByteSpan, _Request] = {}
        for merged, contained in _merge(dict.fromkeys(span for span in spans if span is not None)):
            check_key(merged.key)
            requests.update(dict.fromkeys(contained, (merged, self._submit(merged, record))))
        return (None if span is None else (span, requests[span]) for span in spans)

    def _result(self, span: ByteSpan, request: _Request, record: RecordVersion | None) -> bytes | None:
        """Return the bytes of a span out of those of the request that contains it."""
        asked, future = request
        try:
            data = future.result()
        except StoreError:
            if asked == span:
                raise
            return self._submit(span, record).result()  # which of the neighbours fails
        wanted, merged = span.byte_range, asked.byte_range
        if data is None or wanted is None or merged is None or wanted == merged:
            return data
        return self.cut(span.key, data, ByteRange(wanted.start - merged.start, wanted.length))


@cache
def _pool(_: int) -> ThreadPoolExecutor:
    """Return the threads of a process that wait for requests."""
    return ThreadPoolExecutor(max_requests(), "chunkmill-requests")


def _ahead(n_bytes: int, n_values: int) -> int:
    """Return how many values to have on their way, by the mean size of those that came."""
    return max(_MIN_AHEAD, min(_MAX_AHEAD, _MAX_AHEAD_BYTES * n_values // max(1, n_bytes)))


def _known_bytes(span: ByteSpan | None) -> float:
    """Return how many bytes a span asks for; infinitely many where it does not say."""
    if span is None:
        return 0
    length = None if span.byte_range is None else span.byte_range.length
    return inf if length is None else length


def _merge(spans: Iterable[ByteSpan]) -> Iterator[tuple[ByteSpan, list[ByteSpan]]]:
    """Yield spans to request, each with the wanted spans that it contains."""
    ranges: dict[str, list[tuple[int, int, ByteSpan]]] = {}
    for span in spans:
        wanted = span.byte_range
        if wanted is None or wanted.start < 0 or not wanted.length:
            yield span, [span]
        else:
            ranges.setdefault(span.key, []).append((wanted.start, wanted.start + wanted.length, span))
    for key, sorted_ranges in ranges.items():
        sorted_ranges.sort()  # where both bounds are equal, so are the spans, which have no order
        start, stop, first = sorted_ranges[0]
        contained = [first]
        for begin, end, span in sorted_ranges[1:]:
            if begin - stop <= _MAX_GAP and max(stop, end) - start <= _MAX_MERGED:
                stop = max(stop, end)
                contained.append(span)
            else:
                yield ByteSpan(key, ByteRange(start, stop - start)), contained
                start, stop, contained = begin, end, [span]
        yield ByteSpan(key, ByteRange(start, stop - start)), contained
