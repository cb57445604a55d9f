"""obstore's clients: one for all stores of this process that are at one place, so that they share connections.

A client takes 3 ms to make, and then a handshake for each of its connections.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from datetime import timedelta
from typing import Any
from uuid import uuid4

import fsspec.utils
from obstore import store as obstore_stores

from chunkmill.stores.obstore_options import Location, allows_http
from chunkmill.stores.settings import setting

__all__ = ["kind_and_url", "open_client"]

_MOST = 32
_clients: OrderedDict[tuple[int, str], Any] = OrderedDict()  # by process, and what the client is made of


def open_client(place: Location) -> Any:
    """Return the client of a place, as the settings and the environment are now."""
    seconds = float(setting("retry-seconds"))
    environment = {name: value for name, value in os.environ.items() if name.upper().endswith(_FOR_CLIENTS[0])}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(_FOR_CLIENTS[1])}
    known = os.getpid(), fsspec.utils.tokenize(place.kind, place.url, dict(place.config), seconds, environment)
    client = _clients.pop(known, None)
    _clients[known] = client = _new_client(place, seconds) if client is None else client
    while len(_clients) > _MOST:
        _clients.popitem(last=False)
    return client


_FOR_CLIENTS = ("_PROXY", ("AWS_", "AZURE_", "GOOGLE_", "SSL_"))  # ends and beginnings of variables that they read


def _new_client(place: Location, seconds: float) -> Any:
    retry: Any = {"max_retries": 100, "retry_timeout": timedelta(seconds=seconds)} if seconds else {"max_retries": 0}
    client: Any = {"allow_http": allows_http(place), "timeout": "120s"}
    if place.kind == "http":
        client["default_headers"] = {"Accept-Encoding": "identity", **place.config}  # ranges are of the bytes as stored
        return obstore_stores.HTTPStore.from_url(place.url, client_options=client, retry_config=retry)
    prefix = place.prefix or None
    made_by: Any = {"s3": obstore_stores.S3Store, "gs": obstore_stores.GCSStore, "az": obstore_stores.AzureStore}
    return made_by[place.kind](place.bucket, prefix=prefix, client_options=client, retry_config=retry, **place.config)


_KINDS = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az", "HTTPStore": "http", "MemoryStore": "memory"}


def kind_and_url(place: Location | Any) -> tuple[str, str]:
    """Return the kind of service, and the canonical url, of a place or of one of obstore's own store objects."""
    if isinstance(place, Location):
        return place.kind, place.url
    kind = _KINDS[type(place).__name__]
    if kind == "http":
        return kind, str(place.url).partition("?")[0].rstrip("/")
    if kind == "memory":
        return kind, f"memory-store://{uuid4().hex}"
    bucket = place.config.get("bucket") or place.config.get("container_name")
    return kind, f"{kind}://{bucket}/{place.prefix or ''}".rstrip("/")
