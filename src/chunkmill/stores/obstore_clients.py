"""Translate urls and storage options of fsspec's filesystems into those of obstore.

An option that obstore does not know is an error that names it: nothing is opened by another client instead.

============================  =====================================================================================
protocol                      options that are understood, and obstore's own names of them
============================  =====================================================================================
``s3``, ``s3a``               ``key``, ``secret``, ``token``, ``anon``, ``profile``, ``endpoint_url``,
                              ``requester_pays``; of ``client_kwargs``: ``endpoint_url``, ``region_name``,
                              ``aws_access_key_id``, ``aws_secret_access_key``, ``aws_session_token``
``gs``, ``gcs``               ``token`` (``"anon"``, a path to a key file, a dict), ``project``, ``endpoint_url``
``az``, ``abfs``, ``abfss``   ``account_name``, ``account_key``, ``sas_token``, ``anon``, ``tenant_id``,
                              ``client_id``, ``client_secret``, ``connection_string``
``http``, ``https``           ``headers``, also of ``client_kwargs``
all                           options of fsspec's caches, which obstore does not have
============================  =====================================================================================
"""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

from chunkmill.config import setting
from chunkmill.errors import StoreError
from chunkmill.stores.base import max_requests

PIECE = 8 * 2**20
"""Bytes of one request: one connection carries 50 to 90 MB/s."""

Options: TypeAlias = Mapping[str, Any]

_WITHOUT_MEANING = frozenset(
    {"asynchronous", "block_size", "default_block_size", "default_cache_type", "default_fill_cache", "max_concurrency"}
    | {"listings_expiry_time", "max_paths", "skip_instance_cache", "use_listings_cache", "use_ssl"}
)


@dataclass(frozen=True)
class Location:
    """A prefix of a bucket, a container or a web server, and how obstore opens it.

    Attributes
    ----------
    kind
        ``"s3"``, ``"gs"``, ``"az"`` or ``"http"``.
    bucket
        Or container; the url of a web server's folder.
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
        if self.kind == "http":
            split = urlsplit(self.bucket)
            return f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}".rstrip("/")
        return f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def server(self) -> str:
        """Url of the server that is asked."""
        if self.kind == "http":
            return self.bucket
        if endpoint := self.config.get("endpoint") or self.config.get("base_url"):
            return str(endpoint)
        hosts = {"s3": "s3.amazonaws.com", "gs": "storage.googleapis.com"}
        return f"https://{hosts.get(self.kind) or self.config.get('account_name', '') + '.blob.core.windows.net'}"


def location_of(url: str, options: Options | None = None) -> Location | None:
    """Return where obstore finds a url; ``None`` where the url is of another service, or obstore is not installed.

    Raises
    ------
    ValueError
        There is an option that obstore does not know.

    Examples
    --------
    >>> location_of("s3://bucket/x.zarr", {"anon": True, "client_kwargs": {"region_name": "eu-west-1"}}).url
    's3://bucket/x.zarr'
    >>> location_of("memory://x.zarr") is None
    True
    """
    protocol, _, path = url.partition("://")
    kind = _KIND_OF.get(protocol)
    bucket, _, prefix = path.partition("/")
    if kind is None or "::" in url or not bucket:
        return None
    if find_spec("obstore") is None:
        _warn(protocol)
        return None
    meant = {k: v for k, v in (options or {}).items() if k not in _WITHOUT_MEANING and v is not None}
    if kind == "http":
        of_client = meant.pop("client_kwargs", None) or {}
        headers = [_renamed(protocol, each, {}, ["headers"]).get("headers") or {} for each in (of_client, meant)]
        return Location(kind, url, "", {"headers": {**headers[0], **headers[1]}})
    if protocol != "s3" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        meant.setdefault("account_name", host.partition(".")[0])
    return Location(kind, bucket, prefix.strip("/"), _TRANSLATIONS[kind](protocol, meant))


@cache  # once a process
def _warn(protocol: str) -> None:
    warnings.warn(
        f"{protocol}:// is opened by fsspec, slowly, and guarded by a lock alone: pip install 'chunkmill[cloud]'",
        UserWarning,
        stacklevel=4,
    )


def _renamed(
    protocol: str, options: Options, names: Mapping[str, str], own_names: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the options by obstore's names, which are taken as well."""
    known = {**{name: name for name in (*names.values(), *own_names)}, **names}
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.7)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}."
            way = f"fsspec.filesystem({protocol!r}, …).get_mapper(…) in place of the url takes all options of fsspec"
            raise ValueError(
                f"storage_options: obstore, which opens {protocol}://, has no option {name!r}; {hint} {way}"
            )
    return {known[name]: value for name, value in options.items()}


_S3 = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "anon": "skip_signature",
    "endpoint_url": "endpoint",
    "requester_pays": "request_payer",
    # of `client_kwargs`
    "region_name": "region",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_S3_OWN = ("region", "virtual_hosted_style_request", "server_side_encryption", "sse_kms_key_id", "profile")
_S3_ROLES = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def _s3(protocol: str, options: Options) -> dict[str, Any]:
    own = dict(options)
    of_client = own.pop("client_kwargs", None) or {}
    config = _renamed(protocol, of_client, _S3, _S3_OWN) | _renamed(protocol, own, _S3, _S3_OWN)
    environment = os.environ
    endpoint = config.get("endpoint") or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = config.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if endpoint and not region:
        region = "us-east-1"  # of servers that are not Amazon's any region does
    return config | ({"region": region} if region else {}) | ({"endpoint": endpoint} if endpoint else {})


def _gs(protocol: str, options: Options) -> dict[str, Any]:
    token = options.get("token")
    others = {name: value for name, value in options.items() if name not in {"token", "project"}}
    config = _renamed(protocol, others, {"endpoint_url": "base_url"})
    if token == "anon":  # noqa: S105 - the word for no credentials
        return config | {"skip_signature": True}
    if isinstance(token, Mapping):
        return config | {"service_account_key": json.dumps(dict(token))}
    if token in {None, "google_default", "cloud"}:
        return config
    if isinstance(token, (str, os.PathLike)) and os.fspath(token).endswith(".json"):
        return config | {"application_credentials": os.fspath(token)}
    raise ValueError("storage_options: token= of Google is 'anon', the path of a .json file, or its content as a dict")


_AZURE = {"sas_token": "sas_key", "anon": "skip_signature"}
_AZURE_OWN = ("account_name", "account_key", "tenant_id", "client_id", "client_secret")
_AZURE_CONNECTION = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_key",
    "blobendpoint": "endpoint",
}
_AZURE_NOT_USED = {"defaultendpointsprotocol", "endpointsuffix", "queueendpoint", "tableendpoint", "fileendpoint"}


def _az(protocol: str, options: Options) -> dict[str, Any]:
    own = {name: value for name, value in options.items() if name != "connection_string"}
    config = _renamed(protocol, own, _AZURE, _AZURE_OWN)
    for pair in filter(None, str(options.get("connection_string", "")).split(";")):
        name, _, value = pair.partition("=")
        if name.lower() in _AZURE_CONNECTION:
            config.setdefault(_AZURE_CONNECTION[name.lower()], value)
        elif name.lower() not in _AZURE_NOT_USED:
            raise ValueError(f"storage_options: connection_string= has a part {name!r}, which obstore does not know")
    return {name: value for name, value in config.items() if value is not False}


_KIND_OF = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_KIND_OF |= {"http": "http", "https": "http"}
_TRANSLATIONS: dict[str, Callable[[str, Options], dict[str, Any]]] = {"s3": _s3, "gs": _gs, "az": _az}


_NO_CREDENTIALS = (
    "no credentials were found: give storage_options={'anon': True} for a public bucket, or key= and secret=, a "
    "profile, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
)
_MISSING = "NoSuchBucket|ContainerNotFound|The specified bucket does not exist|specified container does not"
_HINTS = {
    "TimedOut|timed out": "the server sent nothing for too long (chunkmill.retry-seconds)",
    "Content-Length Header missing": (
        "the web server does not say how long a value is, which obstore wants to know: "
        "fsspec.filesystem('http').get_mapper(url) in place of the url reads it"
    ),
    _MISSING: "there is no such bucket or container: create it, or correct the url",
    "ExpiredToken|token has expired|RequestExpired|InvalidToken": "the credentials have expired: renew them",
    (
        "InvalidAccessKeyId|SignatureDoesNotMatch|UnauthenticatedError|401 Unauthorized|UnrecognizedClient|"
        "AuthenticationFailed"
    ): "the credentials are missing or wrong",
    "AuthorizationHeaderMalformed|PermanentRedirect|without LOCATION|IllegalLocationConstraint": (
        "the bucket is in another region: storage_options={'client_kwargs': {'region_name': …}}"
    ),
    r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal": _NO_CREDENTIALS,
    "403 Forbidden|AccessDenied|PermissionDenied": (
        "the credentials do not allow it; services answer so for absent keys too, unless the bucket may be listed "
        "(give format=), and where the requester pays: storage_options={'requester_pays': True}"
    ),
}


def is_container_missing(error: BaseException) -> bool:
    """Return whether an error means that the bucket is missing: then nothing is known of the key."""
    return re.search(_MISSING, str(error)) is not None


def reason_of(error: BaseException) -> str:
    """Return what obstore says, without what its developers want to know, and the way out.

    Examples
    --------
    >>> reason_of(OSError("404 <Code>NoSuchBucket</Code>"))
    'OSError: 404 <Code>NoSuchBucket</Code>; there is no such bucket or container: create it, or correct the url'
    """
    text = f"{type(error).__name__}: {error}".partition("\n\nDebug source")[0]
    text = re.sub(r"<\?xml[^>]*\?>|\s+", " ", text).strip()[:1000]
    hint = next((hint for words, hint in _HINTS.items() if re.search(words, str(error))), None)
    return text if hint is None else f"{text}; {hint}"


_clients: dict[str, Any] = {}  # by what the client is made of
_FOR_CLIENTS = re.compile("(?i).*_PROXY|(AWS|AZURE|GOOGLE|SSL)_.*")  # variables of the environment that they read


def open_client(place: Location, *, repeats: bool = True) -> Any:
    """Return the client of a place, as the settings and the environment are now; `repeats`: requests that failed."""
    seconds = float(setting("retry-seconds")) if repeats else 0.0
    environment = {name: value for name, value in os.environ.items() if _FOR_CLIENTS.fullmatch(name)}
    import fsspec.utils  # noqa: PLC0415 - takes 50 ms

    known = fsspec.utils.tokenize(place.kind, place.url, dict(place.config), seconds, environment)
    if known not in _clients:
        _clients[known] = _new_client(place, seconds)
    return _clients[known]


def _new_client(place: Location, seconds: float) -> Any:
    from obstore import store as obstore_stores  # noqa: PLC0415 - an extra

    config = dict(place.config)
    if place.kind == "s3":
        config |= _credentials(place, config.pop("profile", None))
        place = replace(place, config=config)
    _check_reachable(place)
    retry: Any = {"max_retries": 100, "retry_timeout": timedelta(seconds=seconds)} if seconds else {"max_retries": 0}
    allows_http = urlsplit(place.server).scheme == "http"
    client: Any = {"allow_http": allows_http, "timeout": "120s", "read_timeout": f"{max(1, min(seconds, 60))}s"}
    if place.kind == "http":
        client["default_headers"] = {name: str(value) for name, value in place.config.get("headers", {}).items()}
        return obstore_stores.HTTPStore(place.bucket, client_options=client, retry_config=retry)
    if place.kind == "s3" and "region" not in config:
        config["region"] = _region_of(place.bucket)
    made_by: Any = {"s3": obstore_stores.S3Store, "gs": obstore_stores.GCSStore, "az": obstore_stores.AzureStore}
    prefix = place.prefix or None
    return made_by[place.kind](place.bucket, prefix=prefix, client_options=client, retry_config=retry, **config)


def _credentials(place: Location, profile: str | None) -> dict[str, Any]:
    """Return what boto3 finds in profiles, where neither options nor environment name credentials."""
    config, environment = place.config, os.environ
    if config.get("skip_signature") or {"access_key_id", "secret_access_key"} <= config.keys():
        return {}
    profile = profile or environment.get("AWS_PROFILE")
    if profile is None and any(name in environment for name in ("AWS_ACCESS_KEY_ID", *_S3_ROLES)):
        return {}
    if find_spec("boto3") is None:
        if profile is None:
            return {}
        raise StoreError(url=place.url, key="", reason="profiles of AWS need boto3: pip install 'chunkmill[cloud]'")
    try:
        session = import_module("boto3").Session(profile_name=profile)
        found = session.get_credentials()
    except Exception as error:
        reason = f"boto3 finds no credentials: {type(error).__name__}: {error}"
        raise StoreError(url=place.url, key="", reason=reason) from error
    if found is None:
        raise StoreError(url=place.url, key="", reason=_NO_CREDENTIALS)
    known: dict[str, Any] = {
        "credential_provider": import_module("obstore.auth.boto3").Boto3CredentialProvider(session)
    }
    endpoint = session._session.get_scoped_config().get("endpoint_url")  # noqa: SLF001 - boto3 hides it
    if endpoint and "endpoint" not in config:
        known["endpoint"] = endpoint
    region = session.region_name or ("us-east-1" if endpoint else None)
    if region and "region" not in config:
        known["region"] = region
    return known


def _region_of(bucket: str) -> str:
    """Return the region of a bucket at Amazon, which tells it to anybody."""
    request = urllib.request.Request(f"https://s3.amazonaws.com/{bucket}", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_CONNECT_SECONDS) as answer:  # noqa: S310
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    except OSError:
        return "us-east-1"
    return str(headers.get("x-amz-bucket-region") or "us-east-1")


_CONNECT_SECONDS = 4.0
_reached: set[str] = set()


def _check_reachable(place: Location) -> None:
    """Connect to a server once a process: obstore repeats for `retry-seconds` where there is none."""
    split = urlsplit(place.server)
    host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    token = f"{host}:{port}"
    if token in _reached or (split.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)):
        return
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        what = "has no address" if isinstance(error, socket.gaierror) else "accepts no connection"
        named = f"{split.scheme}://{host}:{port}"
        named += "" if host in place.url else " (the option endpoint_url, or AWS_ENDPOINT_URL)"
        reason = f"{named} {what}: {error}. Correct the url or the option, or try again when it is up"
        raise StoreError(url=place.url, key="", reason=reason) from error
    _reached.add(token)


_KINDS = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az", "MemoryStore": "memory"}


def kind_and_url(place: Location | Any) -> tuple[str, str]:
    """Return the kind of service, and the canonical url, of a place or of one of obstore's own store objects."""
    if isinstance(place, Location):
        return place.kind, place.url
    kind = _KINDS.get(type(place).__name__, "memory")
    if kind == "memory":
        return kind, f"memory-store://{uuid4().hex}"
    bucket = place.config.get("bucket") or place.config.get("container_name")
    return kind, f"{kind}://{bucket}/{place.prefix or ''}".rstrip("/")


def etag_from(version: str) -> str:
    """Return the ETag in what `version_of` returned, as responses and listings alike spell it; else the digest.

    Examples
    --------
    >>> etag_from('{"e_tag": "0x8D", "version": "7"}'), etag_from("digest")
    ('0x8D', 'digest')
    """
    known = json.loads(version) if version.startswith("{") else {}
    return str(known.get("e_tag") or version).removeprefix("W/").strip('"')


def may_be_outside(error: BaseException) -> bool:
    """Return whether an error may mean that there are no such bytes: each service says so in other words."""
    return any(words in str(error) for words in _OUTSIDE)


_OUTSIDE = ("416", "Invalid range", "Wanted range", "Range started at", "non-partial", "suffix")


FORKED = (
    "this process was forked from one that had used obstore, whose threads are not in it: start processes by spawn "
    "(multiprocessing.get_context('spawn'); multiprocessing_context='spawn' of a DataLoader)"
)


def condition_of(version: str | None) -> Any:
    """Return obstore's mode of a write; ``None`` for what is not a version of this store."""
    if version is None:
        return "create"
    try:
        known = json.loads(version)
    except ValueError:
        return None
    return known if isinstance(known, dict) else None


@cache
def process_of_threads() -> int:
    """Return the process that obstore's threads run in: the first that asks."""
    return os.getpid()


@cache
def pieces() -> ThreadPoolExecutor:
    """Return the threads that wait for pieces of large values: those that read ahead wait for these."""
    return ThreadPoolExecutor(max_requests(), "chunkmill-pieces")


@cache
def limit() -> threading.Semaphore:
    """Return the limit of requests under way: tasks on many threads make them outside of our pools."""
    return threading.Semaphore(max_requests())


def lacking(place: Any, methods: Iterable[str] = ("get", "list")) -> list[str]:
    """Return what an object lacks to be a store by obspec's methods.

    Examples
    --------
    >>> lacking({})
    ['list']
    """
    needed = [] if find_spec("obstore") else ["obstore: pip install 'chunkmill[cloud]'"]
    return [name for name in methods if not callable(getattr(place, name, None))] or needed
