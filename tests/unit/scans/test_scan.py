"""Which files a scan takes, by list, glob and text file."""

import pytest
from support.cases import cases

from chunkmill.errors import ScanError
from chunkmill.scans.scan import ScanReport, _files, _Parsing, _placed, _shown, scan


def test_a_glob_is_sorted_and_a_list_keeps_its_order(tmp_path):
    for name in ("b.nc", "a.nc", "c.txt"):
        (tmp_path / name).touch()
    assert _files(str(tmp_path / "*.nc"), None) == [f"{tmp_path}/a.nc", f"{tmp_path}/b.nc"]
    assert _files([tmp_path / "b.nc", "s3://bucket/a.nc"], None) == [f"{tmp_path}/b.nc", "s3://bucket/a.nc"]


def test_a_text_file_has_a_url_in_each_line(tmp_path):
    (tmp_path / "files.txt").write_text("/x/b.nc\n\n  s3://bucket/a.nc\n")
    assert _files(tmp_path / "files.txt", None) == ["/x/b.nc", "s3://bucket/a.nc"]
    (tmp_path / "files.txt").write_text("\n")
    with pytest.raises(ScanError, match="the list of files is empty"):
        _files(tmp_path / "files.txt", None)


@pytest.mark.parametrize("option", [{"order": "size"}, {"on_error": "ignore"}])
def test_options_are_checked_first(tmp_path, option):
    with pytest.raises(ValueError, match=f"{next(iter(option))}="):
        scan("x.nc", tmp_path / "x.json", **option)


@cases(
    ("urls", "options", "error", "said"),
    [
        (["a.nc", "b.nc"], {}, TypeError, "there are 2 files: concat_dim names the dimension"),
        (["a.nc", 5], {"concat_dim": "t"}, TypeError, "5 is not a url or path"),
        ("a.zarr|zarr3:v", {}, ScanError, "the url names a node in it"),
        ([["a.nc"], ["b.nc"]], {"concat_dim": "t"}, TypeError, "a level for each dimension of concat_dim: 1"),
        ([["a.nc"], "b.nc"], {"concat_dim": ["t", "x"]}, TypeError, "a level for each dimension of concat_dim: 2"),
        ([["a.nc"]], {"concat_dim": ["t", "x", "y"]}, TypeError, "a level for each dimension of concat_dim: 3"),
        (["none.nc"], {"on_error": "skip"}, ScanError, "no file is left: there is no such file"),
    ],
)
def test_files_that_cannot_be_taken(tmp_path, urls, options, error, said):
    with pytest.raises(error, match=said):
        scan(urls, tmp_path / "x.json", **options)


def test_nested_lists_say_the_place_of_each_file():
    found = _placed([["/a", "/b"], ["/c"]], ["t", "x"], None)
    assert found == (["/a", "/b", "/c"], {"/a": (0, 0), "/b": (0, 1), "/c": (1, 0)})


def test_a_task_is_shown_by_its_files():
    parsing = _Parsing(["/a", "/b", "/c"], (), {})
    assert (_shown(parsing, range(1, 2)), _shown(parsing, range(3))) == ("/b", "/a … /c")


def test_the_report_lists_what_was_left_out():
    report = ScanReport("all.json", 2, 1, 3, 4, 1, {"bad.nc": "no such kind"}, (), "all.json.scan", 0.5)
    assert "bad.nc: no such kind" in str(report)
    assert report.to_dict()["n_files"] == 2
