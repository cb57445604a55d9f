"""Parquet sets that are written, fsspec reads byte for byte."""

import json
from pathlib import Path

import fsspec
import pytest

from chunkmill.formats.references.json import parse_reference_json
from chunkmill.formats.references.parquet import emit_reference_parquet
from chunkmill.nodes.reference_sets import open_reference_store

pytest.importorskip("pyarrow")
from fsspec.implementations.reference import LazyReferenceMapper

GOLDEN = Path(__file__).parents[1] / "golden" / "references"


@pytest.mark.filterwarnings("ignore")  # of fsspec's own wrapper of synchronous filesystems
@pytest.mark.parametrize("name", ["kerchunk.json", "kerchunk-inlined.json"])
def test_parquet_byte_for_byte(name, tmp_path):
    """A set of kerchunk's, with absolute urls: peers know no base."""
    text = (GOLDEN / name).read_text().replace('"small.nc"', json.dumps(f"file://{GOLDEN}/small.nc"))
    for key, value in emit_reference_parquet(parse_reference_json(text.encode()), record_size=4):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    store = open_reference_store(tmp_path)
    mapper = LazyReferenceMapper(str(tmp_path), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=mapper, remote_protocol="file")
    for key in store.list_prefix(""):
        if not key.rsplit("/", 1)[-1].startswith("."):
            assert fs.cat_file(key) == store.get(key)
        else:
            assert json.loads(fs.cat_file(key)) == json.loads(store.get(key))
