"""The page of formats, field by field: it has every field that is written, and what it says is read is read."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
SECTIONS = re.findall(r"^### Fields of ([^\n]*)\n(.*?)(?=^##|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)


def rows(text):
    """Return the field of each row and how it is written."""
    for line in re.findall(r"^\| `.*$", text, flags=re.MULTILINE):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(cells) == 4, line
        yield cells[0].strip("`"), cells[3]


TABLES = {title: dict(rows(text)) for title, text in SECTIONS}
FORMATS = {"`zarr.json`": "zarr3", "`.zarray`, `.zgroup`, `.zattrs`": "zarr2", "`attributes.json`": "n5"}
OWN = {"title", "_ARRAY_DIMENSIONS"}  # attributes, which are fields of documents in N5, and of .zattrs


def test_there_is_a_table_for_each_format():
    assert set(TABLES) == set(FORMATS)


@pytest.mark.parametrize("title", FORMATS)
def test_the_table_has_what_is_written_and_no_more(title):
    store = MemoryStore()
    cm.create_group(store, format=FORMATS[title], attributes={"title": "all"})
    cm.to_store(np.arange(12, dtype="i4").reshape(3, 4), store, "a", chunks=(2, 2), dimension_names=("y", "x"))
    if FORMATS[title] == "zarr3":
        cm.consolidate(store)
    documents = [
        json.loads(store.get(key)) for key in store.list_prefix("") if re.search(r"\.z(array|group|attrs)$|json$", key)
    ]
    written = {field for document in documents for field in document} - OWN
    never = {field for field, how in TABLES[title].items() if how == "never"}
    assert written == set(TABLES[title]) - never


def test_n5_from_before_version_2():
    store = MemoryStore()
    document = {"dimensions": [4, 3], "blockSize": [2, 2], "dataType": "uint8", "compressionType": "gzip"}
    store.set("attributes.json", json.dumps(document).encode())
    array = cm.open_array(store)
    assert (array.shape, array.chunks, array.fill_value) == ((3, 4), (2, 2), 0)
