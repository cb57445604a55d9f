"""Members of zip files copied as they are stored."""

import io
import zipfile

import pytest

from chunkmill.stores.zip_archive import copy_member


class Unseekable(io.BytesIO):
    """Sizes follow the members that are written to it."""

    def seekable(self):
        return False

    def tell(self):
        raise io.UnsupportedOperation


@pytest.mark.parametrize("kind", [io.BytesIO, Unseekable])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_copies_under_another_name(kind, compression):
    file, copied = kind(), io.BytesIO()
    values = {"a/ä": b"1" * 3000, "empty": b"", "large": bytes(2**20 + 1)}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, value in values.items():
            archive.writestr(name, value)
    with zipfile.ZipFile(io.BytesIO(file.getvalue())) as source, zipfile.ZipFile(copied, "w") as target:
        for info in source.infolist():
            copy_member(source, info, target, f"new/{info.filename}")
        target.writestr("last", b"2")
    with zipfile.ZipFile(copied) as found:
        assert found.testzip() is None
        assert {name: found.read(name) for name in found.namelist()} == {
            **{f"new/{name}": value for name, value in values.items()},
            "last": b"2",
        }
        assert found.getinfo("new/large").compress_type == compression


def test_a_file_that_is_cut_short():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"1" * 3000)
    source = zipfile.ZipFile(file)
    source.fp.truncate(100)
    with zipfile.ZipFile(io.BytesIO(), "w") as target, pytest.raises(OSError, match="truncated"):
        copy_member(source, source.getinfo("a"), target, "a")
