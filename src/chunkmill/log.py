"""The logger ``chunkmill``: what jobs do (``INFO``), and what one should know of (``WARNING``).

``INFO``: a job begins, resumes, begins and ends a stage, ends. ``WARNING``: a job is interrupted or fails; a lock of
a cluster is waited for; a store guards writes by a lock alone. Nothing is shown unless the program adds a handler.
Names and passwords, and queries such as signatures, are left out of urls.
"""

from __future__ import annotations

import logging
import re

_ACCOUNT = re.compile(r"(?<=://)[^/@\s'\"]*@")
_QUERY = re.compile(r"(://[^\s'\"?]*)\?[^\s'\",;:]*")


def without_secrets(text: str) -> str:
    """Return a text without what its urls say before ``@`` and after ``?``.

    Examples
    --------
    >>> without_secrets("convert to 'a' in https://me:word@host/x.zarr?sig=abc: begun")
    "convert to 'a' in https://***@host/x.zarr?***: begun"
    """
    return _QUERY.sub(r"\1?***", _ACCOUNT.sub("***@", text))


class _WithoutSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = without_secrets(record.getMessage()), None
        return True


LOG = logging.getLogger("chunkmill")
LOG.addHandler(logging.NullHandler())
LOG.addFilter(_WithoutSecrets())
