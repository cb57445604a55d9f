"""Reference sets in parquet: every variation of the columns, laziness, and files that are damaged."""

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
from support.cases import cases, refusals

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.references import parquet
from chunkmill.formats.references.chunk_numbers import is_reference_root, parse_array_keys
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.formats.references.parquet import ParquetReferences, emit_reference_parquet, parse_records
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import Reference

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402


def file(columns, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue().to_pybytes()


def zarray(shape, chunks, **more):
    return {"zarr_format": 2, "shape": shape, "chunks": chunks, **more}


def zarr_json(shape, chunks, encoding):
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    return {"zarr_format": 3, "node_type": "array", "shape": shape, "chunk_grid": grid, "chunk_key_encoding": encoding}


FOUR_ROWS = file({"path": ["u"] * 4, "offset": [1] * 4, "size": [1] * 4})


def opened(metadata, files, record_size=4):
    root = json.dumps({"metadata": metadata, "record_size": record_size}).encode()
    log = []

    def read(name):
        log.append(name)
        return (files | {".zmetadata": root}).get(name)

    references = ParquetReferences(read, "memory://set")
    log.clear()
    return references, log


ROWS = [Reference("a.nc", 10, 5), None, Reference(None, data=b"raw"), Reference("b.nc")]
INT = pa.int64()
PLAIN = {
    "path": pa.array(["a.nc", None, None, "b.nc"]), "offset": pa.array([10, 0, 0, 0], INT),
    "size": pa.array([5, 0, 0, 0], INT), "raw": pa.array([None, None, b"raw", None], pa.binary()),
}  # fmt: skip
COLUMNS = [
    PLAIN,
    PLAIN | {"path": PLAIN["path"].dictionary_encode()},
    PLAIN | {"path": PLAIN["path"].cast(pa.large_string()), "raw": PLAIN["raw"].cast(pa.large_binary())},
    PLAIN | {"path": pa.array(["a.nc", None, "c.nc", "b.nc"])},  # raw wins over path
    PLAIN | {"raw": pa.array([None, None, "raw", None])},
    PLAIN | {"raw": pa.array([None, None, b"base64:cmF3", None])},
    PLAIN | {"offset": PLAIN["offset"].cast(pa.uint16()), "size": PLAIN["size"].cast(pa.int32())},
    PLAIN | {"offset": pa.array([10.0, None, None, 0.0]), "size": pa.array([5.0, None, None, None])},
    {"extra": pa.array([1, 2, 3, 4])} | dict(reversed(PLAIN.items())),
    {name: pa.concat_arrays([column, column.slice(1, 1)]) for name, column in PLAIN.items()},  # padded
]


@cases("row_group_size", [None, 2])
@cases("columns", COLUMNS)
def test_columns(columns, row_group_size):
    table = parse_records("refs.0.parq", file(columns, row_group_size=row_group_size))
    assert [table.reference(row) for row in range(4)] == ROWS
    assert table.present()[:4].tolist() == [True, False, True, True]


TWO = {"offset": pa.array([1, 0], INT), "size": pa.array([2, 0], INT)}
RAW, PATH = {"raw": pa.array([b"x", None], pa.binary())}, TWO | {"path": pa.array(["u", None])}
NOTHING = [
    (RAW, Reference(None, data=b"x")), (RAW | TWO | {"path": pa.nulls(2)}, Reference(None, data=b"x")),
    (PATH, Reference("u", 1, 2)), (PATH | {"raw": pa.nulls(2)}, Reference("u", 1, 2)),
]  # fmt: skip


@cases(("columns", "expected"), NOTHING)
def test_columns_that_hold_nothing(columns, expected):
    table = parse_records("refs.0.parq", file(columns))
    assert [table.reference(0), table.reference(1)] == [expected, None]
    assert table.present().tolist() == [True, False]


WHOLE = file(PLAIN, compression="zstd")
BAD_FILES = [
    ("a parquet file", b"PAR1 nothing PAR1"), ("a parquet file", b""), ("a parquet file", file(PLAIN)[:-30]),
    ("a parquet file", WHOLE[:20] + bytes(40) + WHOLE[60:]), ("'path' or 'raw'", file({"url": pa.array(["a"])})),
    ("'offset' and 'size' with 'path'", file({"path": pa.array(["a"])})),
    ("'offset' and 'size' with 'path'", file({"path": pa.array(["a"]), "size": pa.array([1])})),
    ("path: got 'int64', expected strings", file(PLAIN | {"path": pa.array([1, 2, 3, 4])})),
    ("offset: got -1", file(PLAIN | {"offset": pa.array([-1, 0, 0, 0], INT)})),
    ("values of int64", file(PLAIN | {"size": pa.array([0.5, 0, 0, 0])})),
    ("values of int64", file(PLAIN | {"size": pa.array([2**64 - 1, 0, 0, 0], pa.uint64())})),
    ("values of int64", file(PLAIN | {"offset": pa.array(["x", "0", "0", "0"])})),
    ("values of large_binary", file(PLAIN | {"raw": pa.array([1, 2, 3, 4])})),
    ("expected base64", file(PLAIN | {"raw": pa.array([b"base64:!", None, None, None], pa.binary())})),
    ("values of large_binary", file(PLAIN | {"raw": pa.array([[1], None, None, None])})),
    ("rows: got 2, expected 4", file({name: column.slice(0, 2) for name, column in PLAIN.items()})),
]  # fmt: skip


def locate_in(value):
    opened({"x/.zarray": zarray([4], [1])}, {"x/refs.0.parq": value})[0].locate("x/0")


test_damaged_files_are_errors_and_not_absent_chunks = refusals(BAD_FILES, locate_in, key="memory://set/x/refs.0.parq")


BAD_ROOTS = [
    ("got 'nothing'", None), ("got 'list'", b"[]"), ("record_size: got None", b'{"metadata": {}}'),
    ("in UTF-8", b"nope"), ("record_size: got '10'", b'{"metadata": {}, "record_size": "10"}'),
    ("metadata: got None", b'{"record_size": 10}'), ("record_size: got 0", b'{"metadata": {}, "record_size": 0}'),
    ("an object or its text", b'{"metadata": {"x/.zarray": 5}, "record_size": 10}'),
    ("'.' and '..' segments", b'{"metadata": {"../.zarray": {}}, "record_size": 10}'),
]  # fmt: skip


def open_root(root):
    ParquetReferences({".zmetadata": root}.get, "memory://set")


test_bad_roots = refusals(BAD_ROOTS, open_root, key="memory://set/.zmetadata")


def test_documents_are_objects_or_text():
    references, log = opened({".zgroup": {"zarr_format": 2}, ".zattrs": '{"a": 1}'}, {})
    assert references.locate(".zgroup").data == b'{"zarr_format": 2}'
    assert references.locate(".zattrs").data == b'{"a": 1}'
    assert references.locate(".zmetadata") is None  # no consolidated metadata: it has another content
    assert log == []


GRIDS = {
    # key of chunk n of a 3 x 4 grid, for n = 5
    "x/1.1": {"x/.zarray": zarray([5, 7], [2, 2])},
    "x/1/1": {"x/.zarray": zarray([5, 7], [2, 2], dimension_separator="/")},
    "x/c/1/1": {"x/zarr.json": zarr_json([5, 7], [2, 2], {"name": "default"})},
    "x/c.1.1": {"x/zarr.json": zarr_json([5, 7], [2, 2], {"name": "default", "configuration": {"separator": "."}})},
    "a/b/x/1.1": {"a/b/x/zarr.json": zarr_json([5, 7], [2, 2], {"name": "v2"})},
    "1.1": {".zarray": zarray([5, 7], [2, 2])},
    "c/1/1": {"zarr.json": zarr_json([5, 7], [2, 2], "default")},
}


@cases(("key", "metadata"), GRIDS.items())
def test_the_file_and_row_of_a_chunk(key, metadata, monkeypatch):
    monkeypatch.setattr(parquet, "_MAX_FILES", 3)
    prefix = next(iter(metadata)).rpartition("/")[0]
    prefix += "/" if prefix else ""
    rows = [{"path": [f"{name}-{i}" for i in range(4)], "offset": [1] * 4, "size": [1] * 4} for name in "abc"]
    references, log = opened(metadata, {f"{prefix}refs.{i}.parq": file(each) for i, each in enumerate(rows)})
    assert references.locate(key) == Reference("b-1", 1, 1)
    assert log == [f"{prefix}refs.1.parq"]  # that file and no other
    separator = "." if "." in key else "/"
    for outside in (key.replace(f"1{separator}1", f"3{separator}0"), key.replace(f"1{separator}1", f"0{separator}4")):
        assert references.locate(outside) is None
    for other in (key + ".0", key + "/0", key.replace("1", "01"), prefix + "0", prefix + "c", prefix + "refs.0.parq"):
        assert references.locate(other) is None
    assert log == [f"{prefix}refs.1.parq"]
    chunk_keys = [k for k in references.keys() if k not in metadata]  # noqa: SIM118
    assert len(chunk_keys) == 12
    assert chunk_keys[5] == key
    assert log == [f"{prefix}refs.{i}.parq" for i in (1, 0, 2)]


def test_a_scalar_and_an_empty_array():
    row = file({"raw": pa.array([b"7"], pa.binary())})
    metadata = {"s/.zarray": zarray([], []), "e/.zarray": zarray([0, 5], [0, 5])}
    metadata["t/zarr.json"] = zarr_json([], [], {"name": "default"})
    references, log = opened(metadata, {"s/refs.0.parq": row, "t/refs.0.parq": row})
    assert (references.locate("s/0").data, references.locate("t/c").data) == (b"7", b"7")
    assert references.locate("e/0.0") is None
    assert sorted(references.keys()) == ["e/.zarray", "s/.zarray", "s/0", "t/c", "t/zarr.json"]
    assert log == ["s/refs.0.parq", "t/refs.0.parq"]


def test_a_missing_file_means_missing_chunks():
    references, log = opened({"x/.zarray": zarray([8], [1])}, {})
    assert references.locate("x/5") is None
    assert references.locate("x/4") is None
    assert log == ["x/refs.1.parq"]  # asked once


def test_what_is_listed_reads_no_record_files():
    references, log = opened({".zgroup": {}, "a/x/.zarray": zarray([1], [1]), "a/.zgroup": {}}, {})
    assert references.list_dir("") == [".zgroup", "a/"]
    assert references.list_dir("a/") == [".zgroup", "x/"]
    assert log == []
    assert (references.list_dir("a/x/"), references.list_dir("b/")) == ([".zarray"], [])


@cases(
    "document",
    [
        zarray([4], [1, 1]), zarray([4], None), zarray([-4], [1]), zarray([4], [1], dimension_separator="-"),
        zarray([7, (2**63 - 1) // 7 + 1], [1, 1]),  # chunks are counted in 64 bits
    ],
)  # fmt: skip
def test_bad_arrays_in_v2(document):
    references, _ = opened({"x/.zarray": document}, {})
    with pytest.raises(MetadataError):
        references.locate("x/0")


def test_grids_that_are_not_regular_are_refused():
    document = zarr_json([4], [1], {"name": "default"}) | {"chunk_grid": {"name": "rectilinear", "configuration": {}}}
    with pytest.raises(UnsupportedFeature, match="rectilinear"):
        parse_array_keys("x", {"x/zarr.json": json.dumps(document).encode()})
    document = zarr_json([4], [1], {"name": "reversed"})
    with pytest.raises(UnsupportedFeature, match="reversed"):
        parse_array_keys("x", {"x/zarr.json": json.dumps(document).encode()})


def test_only_some_record_tables_stay_in_memory(monkeypatch):
    monkeypatch.setattr(parquet, "_MAX_ROWS", 10)
    references, log = opened({"x/.zarray": zarray([40], [1])}, {f"x/refs.{i}.parq": FOUR_ROWS for i in range(10)})
    for number in [*range(40), 35, 0]:
        assert references.locate(f"x/{number}") is not None
    assert log == [f"x/refs.{i}.parq" for i in (*range(10), 0)]


def test_tasks_beside_each_other_read_a_file_once():
    references, log = opened({"x/.zarray": zarray([4], [1])}, {"x/refs.0.parq": FOUR_ROWS})
    barrier = threading.Barrier(4)

    def task(number):
        barrier.wait()
        references.locate(f"x/{number}")

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(task, range(4)))
    assert log == ["x/refs.0.parq"]


class Files:
    """Picklable, and counts what is read."""

    files: ClassVar[dict] = {}
    log: ClassVar[list] = []

    def get(self, name):
        self.log.append(name)
        return self.files.get(name)


def test_it_pickles_to_what_opens_it():
    root = {"metadata": {"x/.zarray": zarray([4], [1])}, "record_size": 4}
    Files.files = {".zmetadata": json.dumps(root).encode(), "x/refs.0.parq": FOUR_ROWS}
    references = ParquetReferences(Files().get, "memory://pickled")
    references.locate("x/0")
    data = pickle.dumps(references)
    assert len(data) < 500
    Files.log.clear()
    copies = [pickle.loads(data) for _ in range(3)]  # three tasks of one worker
    assert all(copy.locate("x/1") == Reference("u", 1, 1) for copy in copies)
    assert Files.log == [".zmetadata", "x/refs.0.parq"]
    Files.files[".zmetadata"] = Files.files[".zmetadata"].replace(b"[4]", b"[3]")
    from chunkmill.model import references as sets

    sets._sets.clear()  # another worker
    with pytest.raises(MetadataError, match="no change since it was opened"):
        pickle.loads(data)


def test_pyarrow_is_an_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'chunkmill\[parquet\]'"):
        parse_records("refs.0.parq", b"")


def test_consolidated_metadata_is_no_reference_set():
    assert is_reference_root(b'{"metadata": {}, "record_size": 1}')
    assert not is_reference_root(b'{"metadata": {}, "zarr_consolidated_format": 1}')
    assert not is_reference_root(b'{"metadata": {"a/.zattrs": {"record_size": 1}}, "zarr_consolidated_format": 1}')
    assert not is_reference_root(b'{"record_size')


# --- writing

DOCUMENTS = {
    ".zgroup": {"zarr_format": 2}, "x/.zarray": zarray([5, 7], [2, 2]), "x/.zattrs": {"é": 1},
    "s/.zarray": zarray([], []), "l/0/.zarray": zarray([30], [1]),
    "l/1/.zarray": zarray([30, 2], [1, 1], dimension_separator="/"),
    "v/zarr.json": zarr_json([4, 6], [1, 1], {"name": "default"}),
}  # fmt: skip
CHUNKS = {
    "x/0.0": ["a.nc", 0, 10], "x/2.3": ["b.nc"], "x/1.2": "inline", "x/1.3": ["a.nc", 7, 0], "s/0": "base64:/w==",
    **{f"l/0/{i}": [f"l{i}.nc", i, 4] for i in range(0, 30, 2)},
    **{f"l/1/{i}/{i % 2}": ["l.nc", i, 4] for i in range(30)},
    **{f"v/c/{i}/{j}": ["v.nc", i * 10 + j, 4] for i in range(4) for j in range(6)},
}  # fmt: skip


def test_groups_of_zarr_v3_have_no_chunks():
    references, log = opened({"g/zarr.json": {"zarr_format": 3, "node_type": "group"}}, {})
    assert (list(references.keys()), list(references.keys("g/")), log) == (["g/zarr.json"], ["g/zarr.json"], [])


def test_what_is_written_is_read_again():
    references = parse_reference_json(json.dumps(DOCUMENTS | CHUNKS).encode())
    files = dict(emit_reference_parquet(references, record_size=5))
    assert list(files)[-1] == ".zmetadata"
    assert {name for name in files if name.startswith("x/")} == {"x/refs.0.parq", "x/refs.1.parq", "x/refs.2.parq"}
    again = ParquetReferences(files.get)
    expected = dict(references.items())
    expected["x/1.3"] = Reference(None, data=b"")  # no bytes of a.nc: written as no bytes, since 0 and 0 mean all of it
    assert {key: again.locate(key) for key in expected} == expected
    assert sorted(again.keys()) == sorted(expected)
    assert dict(again.load().items()) == expected
    assert not pq.read_metadata(pa.BufferReader(files["x/refs.0.parq"])).row_group(0).column(0).is_stats_set


@cases(
    ("extra", "key"),
    [
        ({"stray": "x"}, "stray"), ({"x/9.9": ["u"]}, "x/9.9"), ({"x/0.0.0": ["u"]}, "x/0.0.0"),
        ({"y/0": ["u"]}, "y/0"), ({"x/0.0": [None, 1, 2]}, ".zmetadata"), ({"x/.zattrs": ["u", 0, 1]}, "x/.zattrs"),
        ({f"x/{i}.0": ["u"] for i in range(100)}, "x/3.0"),
    ],
)  # fmt: skip
def test_what_parquet_cannot_hold_is_refused(extra, key):
    references = parse_reference_json(json.dumps(DOCUMENTS | extra).encode())
    with pytest.raises(MetadataError) as caught:
        list(emit_reference_parquet(references))
    assert caught.value.key == key


def test_rows_of_a_table_are_numbered_together():
    """Millions of keys are not spelled out; of another array, or another spelling, they are."""
    builder, coords = ReferenceBuilder(), np.argwhere(np.ones((6, 5)))
    builder.add_table("x/", ".", coords, *[np.zeros(30, int)] * 3)
    (table,) = builder.build().tables.values()

    def numbers(path="x", document=zarray([9, 7], [2, 2]), name=".zarray"):  # noqa: B008
        return parse_array_keys(path, {f"{path}/{name}": json.dumps(document).encode()}).numbers(table)

    assert numbers().tolist() == [4 * i + j if i < 5 and j < 4 else -1 for i, j in coords.tolist()]
    assert numbers("y") is numbers("x", zarray([9], [2])) is None
    assert numbers("x", zarray([9, 7], [2, 2], dimension_separator="/")) is None
    assert numbers("x", zarr_json([9, 7], [2, 2], "default"), "zarr.json") is None


def test_files_are_written_one_by_one():
    builder = ReferenceBuilder()
    builder.add_data("x/.zarray", json.dumps(zarray([41], [1])).encode())
    numbers = np.arange(41)
    ids = np.array([builder.url_id(f"s3://b/{i % 2}.nc") for i in numbers])
    builder.add_table("x/", "/", numbers.reshape(-1, 1), ids, numbers * 8, np.full(41, 8))
    files = emit_reference_parquet(builder.build(), record_size=21)
    name, value = next(files)
    assert name == "x/refs.0.parq"
    assert parse_records(name, value).reference(19) == Reference("s3://b/1.nc", 19 * 8, 8)
    (name, other), (last, _) = files
    assert (name, last) == ("x/refs.1.parq", ".zmetadata")
    # as fsspec has it: a dictionary of urls that occur more than ten times
    kinds = [pq.read_schema(pa.BufferReader(each)).field("path").type for each in (value, other)]
    assert [pa.types.is_string(kind) for kind in kinds] == [False, True]


def test_more_files_than_can_be_asked_for():
    """A few digits in a document can mean 10**18 of them: chunks are still found, and listing says why it does not."""
    references, _ = opened({"x/.zarray": zarray([2**63 - 1], [1])}, {})
    assert references.locate(f"x/{2**63 - 2}") is None
    for listing in (lambda: list(references.keys()), references.load):
        with pytest.raises(MetadataError, match="2305843009213693952 files to list"):
            listing()


def test_record_size_is_positive():
    with pytest.raises(MetadataError):
        list(emit_reference_parquet(ReferenceBuilder().build(), record_size=0))
