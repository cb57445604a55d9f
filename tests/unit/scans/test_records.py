"""Records of the files of a scan: what is parsed again, what is kept, and the sets that are joined of them."""

import threading
from pathlib import Path

import pytest
from numcodecs.zstd import compress
from support.cases import cases

import chunkmill as cm
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.files import in_memory
from chunkmill.scans import scan


def parse(url):
    """Return references of a file that says how many times it has: v(time, x) with gaps."""
    n, number = int(Path(url).read_text()), int(Path(url).stem)
    about = {"zarr_format": 2, "dtype": "<i4", "fill_value": 0, "filters": None, "compressor": None, "order": "C"}
    return {
        ".zgroup": {"zarr_format": 2},
        "v/.zarray": about | {"shape": [n, 3], "chunks": [1, 1]},
        "v/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "x"]},
        **{f"v/{i}.{j}": [url, 100 * i + j, 4] for i in range(n) for j in range(3) if (i + j + number) % 4},
        "v/0.1": "base64:AAECAw==",
    }


def items(target):
    return {
        key: (each.url, each.offset, each.length, each.data)
        for key, each in in_memory(open_reference_store(target).references).items()
    }


def urls_of(folder, *lengths):
    for number, n in enumerate(lengths):
        (folder / f"{number}.txt-file").write_text(str(n))
    return sorted(str(each) for each in folder.glob("*.txt-file"))


OPTIONS = {"concat_dim": "time", "parser": parse, "order": "names"}


def test_files_without_a_version_have_no_record(tmp_path, monkeypatch):
    """A web server may tell neither an ETag nor a time."""
    pytest.importorskip("pyarrow")
    urls = urls_of(tmp_path, 5, 3, 4)
    cm.scan(urls, tmp_path / "whole.parquet", **OPTIONS)
    known = scan.version_of
    monkeypatch.setattr(scan, "version_of", lambda file: None if "1.txt" in file.url else known(file))
    for _ in range(2):
        report = cm.scan(urls, tmp_path / "some.parquet", overwrite=True, **OPTIONS)
    assert report.n_parsed == 1
    assert items(str(tmp_path / "some.parquet")) == items(str(tmp_path / "whole.parquet"))


def test_a_plan_tells_the_order_of_the_files(tmp_path):
    urls = urls_of(tmp_path, 2, 2)
    for listed, order in ((urls, "names"), ([[urls[0]], [urls[1]]], "the lists")):
        plan = cm.plan_scan(listed, tmp_path / "all.json", **OPTIONS | {"concat_dim": ["time", "x"]})
        shown = " ".join(str(plan).split())
        assert f"from {urls[0]} … {urls[-1]} to " in shown
        assert f"along time, x, in the order of {order} on record 0" in shown


def test_what_else_is_in_the_folder_of_records_stays(tmp_path):
    urls = urls_of(tmp_path, 2, 2)
    for folder in ("all.json.scan", "mine"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "precious").write_text("not a record")
    cm.scan(urls, tmp_path / "all.json", **OPTIONS)
    cm.scan(urls, tmp_path / "mine.json", records=tmp_path / "mine", **OPTIONS)
    cm.scan(urls[:1], tmp_path / "one.json", records=tmp_path / "mine", **OPTIONS)
    assert len(list((tmp_path / "mine").iterdir())) == 3  # of another scan
    cm.scan(urls[:1], tmp_path / "all.json", overwrite=True, **OPTIONS)
    assert len(list((tmp_path / "all.json.scan").iterdir())) == 2
    assert all((tmp_path / folder / "precious").exists() for folder in ("all.json.scan", "mine"))


@cases(
    "document",
    [
        None,  # half of a record, as a power loss leaves it
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
        record.write_bytes(record.read_bytes()[:40] if document is None else bytes(compress(document, 1)))
    assert cm.scan(urls, tmp_path / "all.json", overwrite=True, **OPTIONS).n_parsed == 2


def test_a_parser_that_was_typed_has_records(tmp_path):
    """Its source is in no file; another function of its name has other records."""
    urls = urls_of(tmp_path, 2, 2)

    def scanned(text):
        names = {"parse": parse}
        exec(f"def own(url):\n    return {text}", names)
        return cm.scan(urls, tmp_path / "all.json", overwrite=True, **OPTIONS | {"parser": names["own"]}).n_parsed

    assert [scanned("parse(url)"), scanned("dict(parse(url))")] == [2, 2]


def test_files_that_do_not_agree_keep_their_records_for_the_next_call(tmp_path):
    urls = urls_of(tmp_path, 2, 2)

    def shorter(url):
        return {**parse(url), **({"v/.zattrs": {}} if "1.txt" in url else {})}

    options = OPTIONS | {"parser": shorter}
    with pytest.raises(cm.ChunkmillError, match="'v' in "):
        cm.scan(urls, tmp_path / "all.json", **options)
    with pytest.raises(cm.ChunkmillError, match="'v' in "):
        cm.scan(urls, tmp_path / "all.json", **options)
    assert cm.scan(urls[:1], tmp_path / "all.json", **options).n_parsed == 0
    assert len(list((tmp_path / "all.json.scan").iterdir())) == 1


def test_a_parser_that_cannot_be_compared_parses_again(tmp_path):
    urls = urls_of(tmp_path, 2, 2)
    lock = threading.Lock()

    def locked(url):
        with lock:
            return parse(url)

    for _ in range(2):
        assert cm.scan(urls, tmp_path / "all.json", overwrite=True, **OPTIONS | {"parser": locked}).n_parsed == 2
    assert len(list((tmp_path / "all.json.scan").iterdir())) == 2
