"""Fail soon where a server cannot be reached at all, and warn while requests to one that answered are only repeated."""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.request
from contextlib import AbstractContextManager
from types import TracebackType
from urllib.parse import urlsplit

from chunkmill.config import setting
from chunkmill.errors import StoreError
from chunkmill.log import LOG

__all__ = ["Waiting", "check_reachable"]

_FIRST_SECONDS = 8.0  # in which a process must have reached a server once
_SILENT_SECONDS = 30.0  # without an answer, before a warning
_SLOWEST = 2**20  # bytes a second: what is longer under way than that needs is waited for

_reached: set[tuple[int, str]] = set()


def check_reachable(server: str, store_url: str) -> None:
    """Connect to a server once a process; later outages are the clients' to bridge, for `retry-seconds`.

    Parameters
    ----------
    server
        Its url.

    Raises
    ------
    StoreError
        It has no address, or refuses connections, for 8 s.
    """
    token = os.getpid(), server
    if token in _reached:
        return
    split = urlsplit(server)
    host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    if host and not (split.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)):
        _connect(host, port, server, store_url)
    _reached.add(token)


def _connect(host: str, port: int, server: str, store_url: str) -> None:
    begun = time.monotonic()
    pause = 0.2
    while True:
        try:
            socket.create_connection((host, port), timeout=_FIRST_SECONDS / 2).close()
        except OSError as error:
            if time.monotonic() + pause - begun > _FIRST_SECONDS / 2:
                what = "has no address" if isinstance(error, socket.gaierror) else "accepts no connection"
                named = f"{urlsplit(server).scheme}://{host}:{port}"
                named += "" if host in store_url else " (the option endpoint_url, or AWS_ENDPOINT_URL)"
                reason = f"{named} {what}: {error}. Correct the url or the option, or try again when it is up"
                raise StoreError(url=store_url, key="", reason=reason) from error
        else:
            return
        time.sleep(pause)
        pause *= 2


class Waiting(AbstractContextManager[None]):
    """A request to a server that is under way; a warning is logged where nothing of the server answers for 30 s.

    Parameters
    ----------
    n_bytes
        That are sent, which takes its time.
    """

    __slots__ = ("began", "key", "n_bytes", "url")

    def __init__(self, url: str, key: str, n_bytes: int = 0) -> None:
        self.url, self.key, self.n_bytes = url, key, n_bytes
        self.began = 0.0

    def __enter__(self) -> None:
        self.began = time.monotonic()
        _WATCH.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _WATCH.remove(self)


class _Watch:
    """A thread that looks at the requests under way, while there are any."""

    def __init__(self) -> None:
        self.pid = 0
        self.under_way: dict[int, Waiting] = {}
        self.answered: dict[str, float] = {}  # when, by the store's url

    def add(self, request: Waiting) -> None:
        if self.pid != os.getpid():  # threads do not survive a fork
            self.pid, self.under_way = os.getpid(), {}
            threading.Thread(target=self._run, name="chunkmill-waiting", daemon=True).start()
        self.under_way[id(request)] = request

    def remove(self, request: Waiting) -> None:
        self.under_way.pop(id(request), None)
        self.answered[request.url] = time.monotonic()

    def _run(self) -> None:
        while True:
            time.sleep(_SILENT_SECONDS / 6)
            for url in {request.url for request in list(self.under_way.values())}:
                self._look(url)

    def _look(self, url: str) -> None:
        requests = [request for request in list(self.under_way.values()) if request.url == url]
        if not requests:
            return
        first = min(requests, key=lambda request: request.began + request.n_bytes / _SLOWEST)
        silent = time.monotonic() - max(first.began + first.n_bytes / _SLOWEST, self.answered.get(url, 0.0))
        if silent >= _SILENT_SECONDS:
            text = "store %s answers none of %d requests for %.0f s (the first is of key %r): they are repeated until "
            LOG.warning(
                text + "%s s are over (chunkmill.retry-seconds)",
                url,
                len(requests),
                silent,
                first.key,
                setting("retry-seconds"),
            )
            self.answered[url] = time.monotonic()


_WATCH = _Watch()
