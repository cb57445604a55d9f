"""Sets in parquet that tasks join: the same as those that the client joins, and nothing of them comes to the client."""

import json
import tracemalloc
from pathlib import Path

import dask
import pytest

import chunkmill as cm
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.files import in_memory
from chunkmill.scans import partitions

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
    assert items(str(tmp_path / "ours.parquet")) == items(str(tmp_path / "theirs.parquet"))
    assert (tmp_path / "ours.parquet" / ".zmetadata").read_bytes() == (
        tmp_path / "theirs.parquet" / ".zmetadata"
    ).read_bytes()
    assert ours.n_references + ours.n_inline == theirs.n_references + theirs.n_inline


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
