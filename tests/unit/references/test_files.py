"""Files and folders of reference sets: named, refused, written."""

import gzip
import json

import pytest

from chunkmill.errors import StoreError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.nodes.open_store import open_reference_store
from chunkmill.references.files import SetFile, in_memory

ARRAY = {
    "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "compressor": None, "fill_value": 0, "order": "C",
    "filters": None,
}  # fmt: skip
SET = {
    "version": 1,
    "refs": {".zgroup": '{"zarr_format": 2}', "x/.zarray": json.dumps(ARRAY), "x/0": ["s3://b/f", 1, 2]},
}


def file_at(url, *, kind=None, version=1, record_size=10):
    return SetFile.at(url, None, kind=kind, version=version, record_size=record_size)


def references():
    return parse_reference_json(json.dumps(SET).encode())


def test_the_name_says_the_kind(tmp_path):
    assert (file_at("memory://x/a.json").kind, file_at("memory://x/a.json").key) == ("json", "a.json")
    assert (file_at("memory://x/a.parq").kind, file_at("memory://x/a.parq").key) == ("parquet", "")
    assert file_at("memory://x/a.parq", kind="json").key == "a.parq"
    assert file_at(tmp_path / "a.json").url.endswith("/a.json")


@pytest.mark.parametrize(("name", "value"), [("kind", "csv"), ("version", 2), ("record_size", 0)])
def test_arguments_that_are_wrong(name, value, tmp_path):
    with pytest.raises(ValueError, match="expected"):
        file_at(tmp_path / "a.json", **{name: value})
    with pytest.raises(TypeError, match="written to a url"):
        file_at({"refs": {}})


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.zst", "a.parq"])
def test_written_and_read_back(name, tmp_path):
    file = file_at(tmp_path / name)
    file.check_free(overwrite=False)
    file.write(references(), overwrite=False)
    found = in_memory(open_reference_store(tmp_path / name).references)
    assert found.locate(".zgroup").data == b'{"zarr_format": 2}'
    assert (found.locate("x/0").url, found.locate("x/0").offset, found.locate("x/1")) == ("s3://b/f", 1, None)
    if name.endswith(".gz"):
        assert json.loads(gzip.decompress((tmp_path / name).read_bytes()))["version"] == 1


@pytest.mark.parametrize("name", ["a.json", "a.parq"])
def test_what_must_not_be_replaced(name, tmp_path):
    file = file_at(tmp_path / name)
    file.write(references(), overwrite=False)
    with pytest.raises(StoreError, match="overwrite=True"):
        file.check_free(overwrite=False)
    file.check_free(overwrite=True)
    with pytest.raises(StoreError, match="the target is the source"):
        file.check_free(overwrite=True, source=file.url)
    other = tmp_path / ("other.json" if name == "a.json" else "other")
    if name == "a.json":
        other.write_text("[1, 2]")
    else:
        other.mkdir()
        (other / "file").write_text("x")
    with pytest.raises(StoreError, match="not a reference set"):
        file_at(other).check_free(overwrite=True)
