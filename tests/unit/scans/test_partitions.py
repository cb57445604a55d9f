"""Sets in parquet that tasks join: the same as those that the client joins, and nothing of them comes to the client."""

import json
import tracemalloc
from pathlib import Path

import dask
import pytest
from numcodecs.zstd import compress

import chunkmill as cm
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.files import in_memory
from chunkmill.scans import partitions, scan

WIDTH = 3


def parse(url):
    """Return references of a file that says how many times it has: v(time, x) with gaps, w(time), static(x)."""
    n = int(Path(url).read_text())
    number = int(Path(url).stem)

    def zarray(shape, chunks):
        return {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i4", "fill_value": 0, "filters": None}

    found = {
        ".zgroup": {"zarr_format": 2},
        "v/.zarray": zarray([n, WIDTH], [1, 1]) | {"compressor": None, "order": "C"},
        "v/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "x"]},
        "w/.zarray": zarray([n, 2], [1, 2]) | {"compressor": None, "order": "C"},
        "w/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "y"]},
        "static/.zarray": zarray([WIDTH], [1]) | {"compressor": None, "order": "C"},
        "static/.zattrs": {"_ARRAY_DIMENSIONS": ["x"]},
        **{f"static/{i}": [url, i, 4] for i in range(WIDTH)},
        **{f"w/{i}.0": [url, 10 * i + number, 8] for i in range(n)},
        **{f"v/{i}.{j}": [url, 100 * i + j, 4] for i in range(n) for j in range(WIDTH) if (i + j + number) % 4},
        "v/0.1": "base64:AAECAw==",
    }
    return json.loads(json.dumps(found))


def parse_tile(url):
    """Return references of one tile: v(time, x, lat) with gaps, w(lat, x), z(y, time), static(x)."""
    n, m = map(int, Path(url).read_text().split())
    first = sum(map(ord, Path(url).stem))

    def array(shape, chunks, dims):
        about = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i4", "fill_value": 0, "filters": None}
        return about | {"compressor": None, "order": "C"}, {"_ARRAY_DIMENSIONS": dims}

    arrays = {
        "v": array([n, WIDTH, m], [1, 2, 1], ["time", "x", "lat"]),
        "w": array([m, WIDTH], [1, WIDTH], ["lat", "x"]),
        "z": array([2, n], [1, 1], ["y", "time"]),
        "static": array([WIDTH], [1], ["x"]),
    }
    found = {".zgroup": {"zarr_format": 2}}
    for name, (document, attributes) in arrays.items():
        found |= {f"{name}/.zarray": document, f"{name}/.zattrs": attributes}
    found |= {f"static/{i}": [url, i, 4] for i in range(WIDTH)}
    found |= {f"w/{i}.0": [url, 10 * i, 12] for i in range(m)}
    found |= {f"z/{j}.{i}": [url, 11 * i + j, 4] for i in range(n) for j in range(2)}
    cells = [(i, j, k) for i in range(n) for j in range(2) for k in range(m)]
    found |= {f"v/{i}.{j}.{k}": [url, 100 * i + 10 * j + k, 4] for i, j, k in cells if (i + j + k + first) % 4}
    return json.loads(json.dumps(found))


@pytest.mark.parametrize("target", ["parquet", "json"])
@pytest.mark.parametrize(("record_size", "chunks_a_task"), [(1, 1), (4, 20), (7, 1), (1000, 30), (5, 1 << 20)])
def test_tasks_join_along_several_dimensions(tmp_path, monkeypatch, target, record_size, chunks_a_task):
    """In a way of their own: nested lists say the places, and the client joins the judge along one after the other."""
    monkeypatch.setattr(partitions, "_CHUNKS_A_TASK", chunks_a_task)
    names = [[f"{row}{column}" for column in "ab"] for row in "xyz"]
    for row, n in zip(names, (3, 1, 4), strict=True):
        for name, m in zip(row, (2, 5), strict=True):
            (tmp_path / name).write_text(f"{n} {m}")
    urls = [[str(tmp_path / name) for name in row] for row in names]
    options = {"parser": parse_tile, "record_size": record_size}
    report = cm.scan(urls, tmp_path / f"ours.{target}", concat_dim=["time", "lat"], **options)
    rows = []
    for row, files in zip("xyz", urls, strict=True):
        for file in files:
            cm.scan(file, f"{file}.json", **options)
        rows.append(str(tmp_path / f"{row}.json"))
        cm.concat_references([f"{file}.json" for file in files], dim="lat", target=rows[-1])
    cm.concat_references(rows, dim="time", target=tmp_path / f"theirs.{target}", record_size=record_size)
    expected = items(str(tmp_path / f"theirs.{target}"))
    found = items(str(tmp_path / f"ours.{target}"))
    documents = {key for key in expected if key.endswith(("zarray", "zattrs", "zgroup"))}
    assert {key: found[key] for key in expected.keys() - documents} == {
        key: expected[key] for key in expected.keys() - documents
    }
    assert found.keys() == expected.keys()
    assert report.n_references == len(expected) - len(documents)
    assert not list((tmp_path / f"ours.{target}.scan").glob("join-*/**/*"))


def items(target):
    return {
        key: (each.url, each.offset, each.length, each.data)
        for key, each in in_memory(open_reference_store(target).references).items()
    }


@pytest.mark.parametrize("record_size", [1, 4, 7, 1000])
@pytest.mark.parametrize("chunks_a_task", [1, 20, 1 << 20])
def test_tasks_write_what_the_client_would(tmp_path, monkeypatch, record_size, chunks_a_task):
    monkeypatch.setattr(partitions, "_CHUNKS_A_TASK", chunks_a_task)
    for number, n in enumerate((5, 1, 12, 3, 7)):
        (tmp_path / f"{number}.txt-file").write_text(str(n))
    urls = sorted(str(each) for each in tmp_path.glob("*.txt-file"))
    options = {"concat_dim": "time", "parser": parse, "order": "names", "record_size": record_size}
    ours = cm.scan(urls, tmp_path / "ours.parquet", **options)
    theirs = cm.scan(urls, tmp_path / "theirs.parquet", records=False, **options)
    if record_size == 4:  # which sets in JSON do not have
        cm.scan(urls, tmp_path / "ours.json", **options)
        cm.scan(urls, tmp_path / "theirs.json", records=False, **options)
        assert items(str(tmp_path / "ours.json")) == items(str(tmp_path / "theirs.json"))
    assert items(str(tmp_path / "ours.parquet")) == items(str(tmp_path / "theirs.parquet"))
    assert (tmp_path / "ours.parquet" / ".zmetadata").read_bytes() == (
        tmp_path / "theirs.parquet" / ".zmetadata"
    ).read_bytes()
    assert ours.n_references + ours.n_inline == theirs.n_references + theirs.n_inline


def urls_of(folder, *lengths):
    for number, n in enumerate(lengths):
        (folder / f"{number}.txt-file").write_text(str(n))
    return sorted(str(each) for each in folder.glob("*.txt-file"))


OPTIONS = {"concat_dim": "time", "parser": parse, "order": "names"}


def test_files_without_a_version_are_joined_by_the_client(tmp_path, monkeypatch):
    """A web server may tell neither an ETag nor a time: such a file has no record."""
    urls = urls_of(tmp_path, 5, 3, 4)
    cm.scan(urls, tmp_path / "whole.parquet", **OPTIONS)
    known = scan.version_of
    monkeypatch.setattr(scan, "version_of", lambda url, file: None if "1.txt" in url else known(url, file=file))
    for _ in range(2):
        report = cm.scan(urls, tmp_path / "some.parquet", overwrite=True, **OPTIONS)
    assert report.n_parsed == 1
    assert items(str(tmp_path / "some.parquet")) == items(str(tmp_path / "whole.parquet"))


def test_what_else_is_in_the_folder_of_records_stays(tmp_path):
    urls = urls_of(tmp_path, 2, 2)
    for folder in ("all.json.scan", "mine"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "precious").write_text("not a record")
    cm.scan(urls, tmp_path / "all.json", **OPTIONS)
    cm.scan(urls, tmp_path / "mine.json", records=tmp_path / "mine", **OPTIONS)
    cm.scan(urls[:1], tmp_path / "one.json", records=tmp_path / "mine", **OPTIONS)
    assert len(list((tmp_path / "mine").glob("*.head"))) == 2  # of another scan
    cm.scan(urls[:1], tmp_path / "all.json", overwrite=True, **OPTIONS)
    assert len(list((tmp_path / "all.json.scan").glob("*.head"))) == 1
    assert all((tmp_path / folder / "precious").exists() for folder in ("all.json.scan", "mine"))


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b'{"loaded/zarr.json": {}}',
        b'{"loaded/zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {"paths": 3, "n_present": []}}}',
        b'{"loaded/zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {"paths": ["v"], "n_present": {}}}}',
    ],
)
def test_records_that_others_wrote_are_none(tmp_path, document):
    urls = urls_of(tmp_path, 2, 2)
    cm.scan(urls, tmp_path / "all.json", **OPTIONS)
    for record in (tmp_path / "all.json.scan").iterdir():
        record.write_bytes(bytes(compress(document, 1)))
    assert cm.scan(urls, tmp_path / "all.json", overwrite=True, **OPTIONS).n_parsed == 2


def test_a_parser_that_was_typed_has_records(tmp_path):
    """Its source is in no file; another function of its name has other records."""
    urls = urls_of(tmp_path, 2, 2)

    def scanned(text):
        names = {"parse": parse}
        exec(f"def own(url):\n    return {text}", names)
        return cm.scan(urls, tmp_path / "all.json", overwrite=True, **OPTIONS | {"parser": names["own"]}).n_parsed

    assert [scanned("parse(url)"), scanned("dict(parse(url))")] == [2, 2]


def test_a_scan_whose_records_are_damaged_makes_them_again(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt-file").write_text("4")
    urls = sorted(str(each) for each in tmp_path.glob("*.txt-file"))
    options = {"concat_dim": "time", "parser": parse, "order": "names"}
    cm.scan(urls, tmp_path / "all.parquet", **options)
    before = items(str(tmp_path / "all.parquet"))
    for record in (tmp_path / "all.parquet.scan").iterdir():
        if record.suffix != ".head":
            record.write_bytes(b"")
    with pytest.raises(cm.ChunkmillError, match="damaged"):
        cm.scan(urls, tmp_path / "all.parquet", overwrite=True, **options)
    assert items(str(tmp_path / "all.parquet")) == before  # the old set stays until the new one is complete
    for _ in urls:
        try:
            report = cm.scan(urls, tmp_path / "all.parquet", overwrite=True, **options)
        except cm.ChunkmillError:
            continue
        break
    assert report.n_parsed >= 1
    assert items(str(tmp_path / "all.parquet")) == before


@pytest.mark.slow
def test_the_memory_of_the_client_does_not_grow_with_the_references(tmp_path):
    def peak(n_files):
        folder = tmp_path / str(n_files)
        folder.mkdir()
        for number in range(n_files):
            (folder / f"{number}.txt-file").write_text("400")
        urls = sorted(str(each) for each in folder.glob("*.txt-file"))
        with dask.config.set(scheduler="processes", num_workers=2):
            tracemalloc.start()
            report = cm.scan(urls, folder / "all.parquet", concat_dim="time", parser=parse, order="names")
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert report.n_references > 3 * 400 * n_files
        return found

    peak(1)  # imports
    small, large = peak(4), peak(24)
    # the references of 20 files more take 24 bytes each, 0.6 MB; what is kept of a file is its documents
    assert large - small < 20 * 10_000
