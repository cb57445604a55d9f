"""Read many spans of a store whose requests cost latency: several requests under way, neighbouring ranges in one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf

from chunkmill.stores.base import ByteRange, ByteSpan, check_key, range_bounds

_MAX_AHEAD_BYTES = 64 * 2**20  # fetched before they are asked for, of one `get_many`, by the mean size so far
_MIN_AHEAD, _FIRST_AHEAD, _MAX_AHEAD = 4, 16, 128
_MAX_GAP = 64 * 2**10  # bytes read in vain that cost less than one more request
_MAX_MERGED = 8 * 2**20
_MAX_SPANS = 512  # looked at together, for neighbours among them


@dataclass(frozen=True, slots=True)
class _Request:
    span: ByteSpan
    future: Future[bytes | None]


def get_ahead(
    spans: Iterable[ByteSpan | None],
    begin: Callable[[ByteSpan, bool], Future[bytes | None]],
    result: Callable[[str, Future[bytes | None]], bytes | None],
    *,
    url: str,
) -> Iterator[bytes | None]:
    """Yield the bytes of each span in order (``None`` for ``None``), as many ahead of the caller as memory allows.

    Parameters
    ----------
    spans
        Taken as they are needed.
    begin
        Begins a request; called with a span, and whether its bytes must be as many as it says.
    result
        Waits for a request, and raises the store's error; called with the key.
    url
        Of the store: what errors name.
    """
    todo = iter(spans)
    ahead: deque[tuple[ByteSpan, _Request] | None] = deque()
    n_bytes = n_values = 0
    try:
        while True:
            if len(ahead) <= (limit := _ahead(n_bytes, n_values) if n_values else _FIRST_AHEAD) // 2:
                ahead.extend(_begin(begin, todo, limit - len(ahead)))
            if not ahead:
                return
            if (asked := ahead.popleft()) is None:
                yield None
                continue
            span, request = asked
            value = _cut(url, span, request.span, result(span.key, request.future))
            n_values += 1
            n_bytes += 0 if value is None else len(value)
            yield value
    finally:
        for waiting in ahead:
            if waiting is not None:
                waiting[1].future.cancel()


def _begin(
    begin: Callable[[ByteSpan, bool], Future[bytes | None]], todo: Iterator[ByteSpan | None], n_spans: int
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
        request = _Request(merged, begin(merged, len(contained) == 1))
        requests.update(dict.fromkeys(contained, request))
    return (None if span is None else (span, requests[span]) for span in spans)


def _cut(url: str, span: ByteSpan, merged_span: ByteSpan, data: bytes | None) -> bytes | None:
    """Return the bytes of a span out of those of the request that contains it."""
    wanted, merged = span.byte_range, merged_span.byte_range
    if data is None or wanted is None or merged is None or wanted == merged:
        return data
    relative = ByteRange(wanted.start - merged.start, wanted.length)
    start, stop = range_bounds(relative, len(data), url=url, key=span.key)
    return data[start:stop]


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
        sorted_ranges.sort(key=lambda item: item[:2])
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
