"""Translate urls and storage options of fsspec's filesystems into those of obstore, where both mean the same.

The mapping is closed: one option that is not in it, or credentials that only the fsspec filesystem would find (profiles
and files of AWS, Google's default accounts), and the url is opened by fsspec as it always was.

============================  =====================================================================================
protocol                      options with an equivalent
============================  =====================================================================================
``s3``, ``s3a``               ``key``, ``secret``, ``token``, ``anon``, ``endpoint_url``, ``requester_pays``; of
                              ``client_kwargs``: ``endpoint_url``, ``region_name``, ``aws_access_key_id``,
                              ``aws_secret_access_key``, ``aws_session_token``
``gs``, ``gcs``               ``token`` (``"anon"``, a path to a key file, a dict), ``project``, ``endpoint_url``
``az``, ``abfs``, ``abfss``   ``account_name``, ``account_key``, ``sas_token``, ``anon``, ``tenant_id``,
                              ``client_id``, ``client_secret``, ``connection_string``
all                           options of fsspec's caches, which obstore does not have
============================  =====================================================================================
"""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

from chunkmill.config import setting

__all__ = ["Location", "allows_http", "is_container_missing", "kind_and_url", "location_of", "open_client", "reason_of"]

Options: TypeAlias = Mapping[str, Any]

_WITHOUT_MEANING = frozenset(
    {"asynchronous", "default_block_size", "default_cache_type", "default_fill_cache", "listings_expiry_time"}
    | {"max_paths", "skip_instance_cache", "use_listings_cache"}
)


@dataclass(frozen=True)
class Location:
    """A prefix of a bucket or container, and how obstore opens it.

    Attributes
    ----------
    kind
        ``"s3"``, ``"gs"`` or ``"az"``.
    bucket
        Or container.
    config
        Options of the service by obstore's names. They hold secrets.
    """

    kind: str
    bucket: str
    prefix: str
    config: Mapping[str, Any] = field(repr=False)

    @property
    def url(self) -> str:
        """Canonical url."""
        return f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def server(self) -> str:
        """Url of the server that is asked."""
        if endpoint := self.config.get("endpoint") or self.config.get("base_url"):
            return str(endpoint)
        hosts = {"s3": f"s3.{self.config.get('region')}.amazonaws.com", "gs": "storage.googleapis.com"}
        return f"https://{hosts.get(self.kind) or self.config.get('account_name', '') + '.blob.core.windows.net'}"


def location_of(url: str, options: Options | None = None) -> Location | None:
    """Return where obstore finds a url; ``None`` where it is not installed or might mean something else by it.

    Examples
    --------
    >>> location_of("s3://bucket/x.zarr", {"anon": True, "client_kwargs": {"region_name": "eu-west-1"}}).url
    's3://bucket/x.zarr'
    >>> location_of("s3://bucket/x.zarr", {"profile": "work"}) is None
    True
    """
    protocol, _, path = url.partition("://")
    translate = _TRANSLATIONS.get(protocol)
    bucket, _, prefix = path.partition("?")[0].partition("/")
    if translate is None or "::" in url or "?" in path or not bucket or ":" in bucket or find_spec("obstore") is None:
        return None
    meant = {name: value for name, value in (options or {}).items() if name not in _WITHOUT_MEANING}
    if protocol != "s3" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        meant.setdefault("account_name", host.partition(".")[0])
    config = translate({name: value for name, value in meant.items() if value is not None})
    if config is None:
        return None
    return Location(_KINDS.get(protocol, protocol), bucket, prefix.strip("/"), config)


def _renamed(options: Options, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the options by obstore's names; ``None`` when there is one without an equivalent."""
    return {names[name]: value for name, value in options.items()} if names.keys() >= options.keys() else None


_S3 = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "requester_pays": "request_payer",
}
_S3_CLIENT = {
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_S3_ROLES = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def _s3(options: Options) -> dict[str, Any] | None:
    own = _renamed({name: value for name, value in options.items() if name != "client_kwargs"}, _S3)
    client = _renamed(options.get("client_kwargs") or {}, _S3_CLIENT)
    if own is None or client is None:
        return None
    config = {**client, **own}
    environment = os.environ
    keys_in_environment = "AWS_ACCESS_KEY_ID" in environment and "AWS_PROFILE" not in environment
    is_known = (
        bool(config.get("skip_signature"))
        or {"access_key_id", "secret_access_key"} <= config.keys()
        or (not own.keys() & {"access_key_id", "secret_access_key"} and keys_in_environment)
        or any(name in environment for name in _S3_ROLES)
    )
    endpoint = config.get("endpoint") or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = config.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if find_spec("s3fs") is not None and not (is_known and (endpoint or region)):
        return None
    # of servers that are not Amazon's any region does
    config |= {"region": region or "us-east-1"} | ({"endpoint": endpoint} if endpoint else {})
    return config


def _gs(options: Options) -> dict[str, Any] | None:
    token = options.get("token")
    config = _renamed({k: v for k, v in options.items() if k not in {"token", "project"}}, {"endpoint_url": "base_url"})
    if config is None:
        return None
    if token == "anon":  # noqa: S105 - the word for no credentials
        return config | {"skip_signature": True}
    if isinstance(token, Mapping):
        return config | {"service_account_key": json.dumps(dict(token))}
    if isinstance(token, (str, os.PathLike)) and os.fspath(token).endswith(".json"):
        return config | {"application_credentials": os.fspath(token)}
    is_known = token is None and "GOOGLE_APPLICATION_CREDENTIALS" in os.environ
    return config if is_known or (token is None and find_spec("gcsfs") is None) else None


_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_key",
    "anon": "skip_signature",
    "tenant_id": "tenant_id",
    "client_id": "client_id",
    "client_secret": "client_secret",
}
_AZURE_CONNECTION = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_key",
    "blobendpoint": "endpoint",
}


def _az(options: Options) -> dict[str, Any] | None:
    config = _renamed({name: value for name, value in options.items() if name != "connection_string"}, _AZURE)
    if config is None:
        return None
    for pair in filter(None, str(options.get("connection_string", "")).split(";")):
        name, _, value = pair.partition("=")
        if name.lower() in _AZURE_CONNECTION:
            config.setdefault(_AZURE_CONNECTION[name.lower()], value)
        elif name.lower() not in {"defaultendpointsprotocol", "endpointsuffix"} | _OTHER_ENDPOINTS:
            return None
    config = {name: value for name, value in config.items() if value is not False}
    principal = {"tenant_id", "client_id", "client_secret"}
    is_known = "account_name" in config and (
        config.keys() & {"account_key", "sas_key", "skip_signature"} or principal <= config.keys()
    )
    return config if is_known or find_spec("adlfs") is None else None


_OTHER_ENDPOINTS = {"queueendpoint", "tableendpoint", "fileendpoint"}
_KINDS = {"s3a": "s3", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_TRANSLATIONS: dict[str, Callable[[Options], dict[str, Any] | None]] = {
    "s3": _s3,
    "s3a": _s3,
    "gs": _gs,
    "gcs": _gs,
    "az": _az,
    "abfs": _az,
    "abfss": _az,
}


def allows_http(place: Location) -> bool:
    """Return whether the service is reached without TLS: a server on this machine or network."""
    return urlsplit(place.server).scheme == "http"


_MISSING = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist", "specified container does not")
_HINTS = [
    (_MISSING, "there is no such bucket or container: create it, or correct the url"),
    (
        ("ExpiredToken", "token has expired", "RequestExpired", "InvalidToken"),
        "the credentials have expired: renew them",
    ),
    (
        (
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "UnauthenticatedError",
            "401 Unauthorized",
            "AuthenticationFailed",
        ),
        "the credentials are missing or wrong",
    ),
    (
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "without LOCATION", "IllegalLocationConstraint"),
        "the bucket is in another region: storage_options={'client_kwargs': {'region_name': …}}",
    ),
    (
        ("169.254.169.254", "169.254.170.2", "metadata.google.internal"),
        "no credentials were found (s3fs reads profiles): give some, or storage_options={'anon': True}",
    ),
    (
        ("403 Forbidden", "AccessDenied", "PermissionDenied"),
        (
            "the credentials do not allow it; services answer so for absent keys too, unless the bucket may be listed "
            "(give format=), and where the requester pays: storage_options={'requester_pays': True}"
        ),
    ),
]


def is_container_missing(error: BaseException) -> bool:
    """Return whether an error means that the bucket is missing: then nothing is known of the key."""
    return any(words in str(error) for words in _MISSING)


def reason_of(error: BaseException) -> str:
    """Return what obstore says, without what its developers want to know, and the way out.

    Examples
    --------
    >>> reason_of(OSError("404 <Code>NoSuchBucket</Code>"))
    'OSError: 404 <Code>NoSuchBucket</Code>; there is no such bucket or container: create it, or correct the url'
    """
    text = f"{type(error).__name__}: {error}".partition("\n\nDebug source")[0]
    text = re.sub(r"<\?xml[^>]*\?>|\s+", " ", text).strip()[:1000]
    hints = [hint for words, hint in _HINTS if any(word in text for word in words)]
    return f"{text}; {hints[0]}" if hints else text


_MOST = 32
_clients: OrderedDict[tuple[int, str], Any] = OrderedDict()  # by process, and what the client is made of


def open_client(place: Location, *, repeats: bool = True) -> Any:
    """Return the client of a place, as the settings and the environment are now; `repeats`: requests that failed."""
    seconds = float(setting("retry-seconds")) if repeats else 0.0
    environment = {name: value for name, value in os.environ.items() if name.upper().endswith(_FOR_CLIENTS[0])}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(_FOR_CLIENTS[1])}
    import fsspec.utils  # noqa: PLC0415 - takes 50 ms

    known = os.getpid(), fsspec.utils.tokenize(place.kind, place.url, dict(place.config), seconds, environment)
    client = _clients.pop(known, None)
    _clients[known] = client = _new_client(place, seconds) if client is None else client
    while len(_clients) > _MOST:
        _clients.popitem(last=False)
    return client


_FOR_CLIENTS = ("_PROXY", ("AWS_", "AZURE_", "GOOGLE_", "SSL_"))  # ends and beginnings of variables that they read


def _new_client(place: Location, seconds: float) -> Any:
    from obstore import store as obstore_stores  # noqa: PLC0415 - an extra

    retry: Any = {"max_retries": 100, "retry_timeout": timedelta(seconds=seconds)} if seconds else {"max_retries": 0}
    client: Any = {"allow_http": allows_http(place), "timeout": "120s"}
    prefix = place.prefix or None
    made_by: Any = {"s3": obstore_stores.S3Store, "gs": obstore_stores.GCSStore, "az": obstore_stores.AzureStore}
    return made_by[place.kind](place.bucket, prefix=prefix, client_options=client, retry_config=retry, **place.config)


_KINDS = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az", "MemoryStore": "memory"}


def kind_and_url(place: Location | Any) -> tuple[str, str]:
    """Return the kind of service, and the canonical url, of a place or of one of obstore's own store objects."""
    if isinstance(place, Location):
        return place.kind, place.url
    kind = _KINDS[type(place).__name__]
    if kind == "memory":
        return kind, f"memory-store://{uuid4().hex}"
    bucket = place.config.get("bucket") or place.config.get("container_name")
    return kind, f"{kind}://{bucket}/{place.prefix or ''}".rstrip("/")
