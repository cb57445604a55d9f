"""Records of the files of a scan, one for each: a scan that is repeated parses only what has none (P7).

A record is named after the url of its file, the file's version (ETag, or size and time of change), and how it was
parsed: of a file that was written again there is none. It is a reference set in JSON, with the arrays that were read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from numcodecs.zstd import compress, decompress

from chunkmill.errors import ChunkmillError
from chunkmill.formats.references.json import emit_reference_json, parse_reference_json
from chunkmill.jobs.call import function_fingerprint
from chunkmill.nodes.api import create_group, open_group
from chunkmill.runtime.preflight import package_version
from chunkmill.scans.hdf5 import stored_whole
from chunkmill.scans.join import LoadedArray, ParsedFile, with_data
from chunkmill.scans.parse import ScannedFile
from chunkmill.stores.base import Store
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.reference import ReferenceStore

_LOADED = "loaded"  # group of the arrays that were read, next to the documents of the set
_NAME = re.compile(r"[0-9a-f]{32}")
_LEVEL = 3
_OF_VERSION = ("ETag", "etag", "e_tag", "md5Hash", "mtime", "LastModified", "last_modified", "Last-Modified", "created")
_PARSERS = ("virtualizarr", "kerchunk")


@dataclass(frozen=True)
class Records:
    """The records of a scan.

    Attributes
    ----------
    store
        Where they are kept.
    parsed_as
        By `fingerprint_of`: what else than its file a record depends on.
    """

    store: Store
    parsed_as: str

    def name(self, url: str, file_version: str) -> str:
        """Return the key of the record of a file."""
        return sha256(json.dumps([url, file_version, self.parsed_as]).encode()).hexdigest()[:32]

    def get(self, name: str, url: str) -> ParsedFile | None:
        """Return a file that was parsed before; ``None`` where no record says so, or one is damaged."""
        if (value := self.store.get(name)) is None:
            return None
        try:
            found = parse_reference_json(bytes(decompress(value)), source=url)
            group = open_group(ReferenceStore(found), _LOADED)
            arrays = {str(path): group.arrays()[str(number)] for number, path in enumerate(group.attributes["paths"])}
            loaded = {
                path: LoadedArray(
                    tuple(map(str, array.dimension_names)), array[...], dict(array.attributes["of"]), array.fill_value
                )
                for path, array in arrays.items()
                if array.dimension_names
            }
            digests = {str(path): str(digest) for path, digest in group.attributes["digests"].items()}
        # half a record, after a power loss, or what others have stored there
        except (ChunkmillError, RuntimeError, ValueError, TypeError, KeyError, AttributeError):
            return None
        kept = found.subset(key for key, _ in found.items() if not key.startswith(f"{_LOADED}/"))
        return ParsedFile(url, kept, loaded, digests)

    def put(self, name: str, parsed: ParsedFile) -> None:
        """Store the record of a file."""
        group = MemoryStore()
        about = {"paths": list(parsed.loaded), "digests": {**parsed.digests}}
        create_group(group, _LOADED, attributes=about)
        added = {key: group.get(key) or b"" for key in group.list_prefix(f"{_LOADED}/")}
        for number, array in enumerate(parsed.loaded.values()):
            own = {"attributes": {"of": dict(array.attributes)}, "fill_value": array.fill_value}
            added |= stored_whole(f"{_LOADED}/{number}", array.values, dims=array.dims, **own)
        document = emit_reference_json(with_data(parsed.references, added))
        self.store.set(name, bytes(compress(document, _LEVEL)))

    def keep(self, names: Collection[str | None]) -> None:
        """Delete the records of other files, and of what these were before; what else is there stays."""
        for name in self.store.list_dir(""):
            if is_record(name) and name not in names:
                self.store.delete(name)


def is_record(name: str) -> bool:
    """Return whether a key may be that of a record."""
    return _NAME.fullmatch(name) is not None


def fingerprint_of(parser: Any, dims: Sequence[str], dropped: tuple[str, ...]) -> str:
    """Return what a record depends on besides its file: parser, its version, the options that it was given."""
    try:
        how = function_fingerprint(parser) if callable(parser) else parser
    except ValueError:  # what it uses cannot be compared: its records are of this call
        how = uuid4().hex
    return json.dumps([5, how, [package_version(name) for name in _PARSERS], list(dims), dropped])


def version_of(file: ScannedFile) -> str | None:
    """Return the version of a file, in one request; ``None`` where its filesystem tells none.

    Examples
    --------
    >>> import fsspec
    >>> with fsspec.open("memory://doc-version/x.nc", "wb") as file:
    ...     _ = file.write(b"CDF")
    >>> version_of(ScannedFile("memory://doc-version/x.nc")) is None
    False
    """
    info = file.info()
    known = [f"{name}={info[name]}" for name in _OF_VERSION if info.get(name) is not None]
    return " ".join([*known, f"ino={info.get('ino')}", f"size={info.get('size')}"]) if known else None
