"""List the formats, in the order in which a node is looked for.

A module of its own: in `base`, which the formats import, it would make a circle.
"""

from __future__ import annotations

from typing import Any

from chunkmill.config import registered
from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.n5 import N5
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.formats.zarr_v3 import ZarrV3
from chunkmill.formats.zarr_v3_draft import ZarrV3Draft
from chunkmill.formats.zarr_v3_experimental import ZarrV3Experimental
from chunkmill.model.metadata import ArrayMetadata

# Zarr v3 before v2, since both may be in one folder after a migration; N5 last, since any folder may be an N5 group
FORMATS: tuple[Format, ...] = (ZarrV3(), ZarrV2(), ZarrV3Draft(), ZarrV3Experimental(), N5())

READ_ONLY = {"zarr3-experimental": "zarr3"}
"""Formats that are not written, and what is written in their place."""

_BY_NAME = {known.name: known for known in FORMATS}
_ALIASES = {"zarr": "zarr3", "zarr-v2": "zarr2", "zarr-v3": "zarr3", "zarr-v3-draft": "zarr3-draft"}


def get_format(name: Any) -> Format:
    """Return the format that users call `name`.

    Examples
    --------
    >>> get_format("n5").name
    'n5'
    """
    wanted = str(name).lower().replace("_", "-")
    wanted = _ALIASES.get(wanted, wanted)
    if (known := _BY_NAME.get(wanted)) is not None:
        return known
    if (package := registered("formats", wanted)) is not None:
        try:
            return _BY_NAME.setdefault(wanted, package.load())
        except Exception as error:
            raise UnsupportedFeature(format=wanted, feature=f"{package.value}: {error}") from error
    names = ", ".join(repr(known.name) for known in FORMATS)
    raise UnsupportedFeature(format="chunkmill", feature=f"format {name!r}", hint=f"the formats are {names}")


def format_as_opened(name: str, metadata: ArrayMetadata) -> Format:
    """Return the format with which an array was opened: Zarr v2 with the separator that its document may leave out.

    Examples
    --------
    >>> import chunkmill as cm
    >>> nested = cm.create_array("memory://doc-as-opened", shape=4, dtype="i4", format="zarr2", chunk_key_encoding="/")
    >>> format_as_opened("zarr2", nested.metadata)
    ZarrV2(separator_override='/')
    """
    documents_format = get_format(name)
    return ZarrV2(metadata.chunk_keys.separator) if isinstance(documents_format, ZarrV2) else documents_format
