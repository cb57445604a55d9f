"""Reasons of errors of obstore, with the way out where the service's words imply one."""

from __future__ import annotations

import re

__all__ = ["is_container_missing", "reason_of"]

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
        "no credentials were found: give some, or storage_options={'anon': True}",
    ),
    (
        ("403 Forbidden", "AccessDenied", "PermissionDenied"),
        (
            "the credentials do not allow it; services answer so for absent keys too, unless the bucket may be listed, "
            "and where the requester pays: storage_options={'requester_pays': True}"
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
