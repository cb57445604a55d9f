"""Copy members of zip files as they are stored: compressed or encrypted ones are neither decoded nor encoded again.

Not here: the state of a file in a process (`chunkmill.stores.zip_archive`).
"""

from __future__ import annotations

import struct
import zipfile
from copy import copy
from typing import IO, cast

__all__ = ["HEADER", "copy_member", "header_length"]

HEADER = struct.Struct("<4s22xHH")  # of a member: its signature, the lengths of its name and of an extra field
_STEP = 2**20
_ENCRYPTED, _SIZES_FOLLOW = 1, 8  # bits of a member's flags


def header_length(header: bytes) -> int:
    """Return the length of what precedes a member's bytes, whose first `HEADER.size` bytes are given."""
    if len(header) != HEADER.size:
        raise OSError("the zip file is truncated")
    signature, name_length, extra_length = HEADER.unpack(header)
    if signature != b"PK\x03\x04":
        raise OSError("the zip file is damaged: there is no member where its directory says")
    return HEADER.size + int(name_length) + int(extra_length)


def copy_member(source: zipfile.ZipFile, member: zipfile.ZipInfo, target: zipfile.ZipFile, name: str) -> None:
    """Append a member of one open zip file to another one, under a name that is not in it."""
    new = copy(member)
    new.filename = new.orig_filename = name
    new.header_offset = target.start_dir
    if not new.flag_bits & _ENCRYPTED:  # else its password is checked by them
        new.flag_bits &= ~_SIZES_FOLLOW  # the directory has told them
    file, written = cast("IO[bytes]", source.fp), cast("IO[bytes]", target.fp)
    written.seek(target.start_dir)
    written.write(new.FileHeader())
    with source._lock:  # type: ignore[attr-defined]  # noqa: SLF001, readers seek in the same file
        file.seek(member.header_offset)
        file.seek(member.header_offset + header_length(file.read(HEADER.size)))
        n_left = member.compress_size
        while n_left:
            if not (part := file.read(min(_STEP, n_left))):
                raise OSError("the zip file is truncated")
            written.write(part)
            n_left -= len(part)
    target.start_dir = written.tell()
    target.filelist.append(new)
    target.NameToInfo[name] = new
    target._didModify = True  # type: ignore[attr-defined]  # noqa: SLF001, else close() writes no directory
