"""Places and url pipelines: which store, path and format they name."""

from __future__ import annotations

import pytest
from support.cases import cases

from chunkmill.errors import StoreError
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.stores.places import UrlPipeline, is_zarr_python_node, parse_url_pipeline, place_of

zarr = pytest.importorskip("zarr")
pytest.importorskip("zarr.storage")


@cases(
    ("given", "expected"),
    [
        (("s3://b/x",), ("s3://b/x", "", None, None)),
        (("s3://b/x", "a", "n5"), ("s3://b/x", "a", "n5", None)),
        (("/data/a|b", "c"), ("/data/a|b", "c", None, None)),
        (("s3://b/x|zarr3:", "a"), ("s3://b/x", "a", "zarr3", "zarr3")),
        (("s3://b/x|zarr3:a", "/a/", "zarr3"), ("s3://b/x", "a", "zarr3", "zarr3")),
        (("s3://b/x|zarr:a", "", "zarr2"), ("s3://b/x", "a", "zarr2", "zarr")),
        (("s3://b/x.zip|zip:", "a", "n5"), ("zip://::s3://b/x.zip", "a", "n5", None)),
        (("s3://b/r|icechunk://tag.v1/a",), ("s3://b/r|icechunk://tag.v1", "a", None, None)),
    ],
)
def test_what_is_named(given, expected):
    assert place_of(*given) == expected


@cases(
    ("given", "reason"),
    [
        (("s3://b/x|zarr3:a", "b"), "names the path 'a', and path='b'"),
        (("s3://b/x|zarr3:a", "", "zarr2"), "of format 'zarr3', and format='zarr2'"),
        (("s3://b/x|zarr:a", "", "n5"), "of format 'zarr', and format='n5'"),
        (("s3://b/\ud800",), "lone surrogate"),
        (("s3://b/x|zarr3:a", "", ZarrV2("/")), "of format 'zarr3', and format='zarr2'"),
    ],
)
def test_what_disagrees_is_one_error(given, reason):
    with pytest.raises(ValueError, match=reason):
        place_of(*given)


def test_a_format_with_options_agrees_by_its_name():
    own = ZarrV2("/")
    assert place_of("x|zarr2:a", "", own).format is own


@pytest.mark.parametrize("version", [2, 3])
def test_nodes_of_zarr_python(version):
    store = zarr.storage.MemoryStore()
    group = zarr.open_group(store, mode="w", path="g", zarr_format=version)
    array = group.create_array("a", shape=(4,), dtype="i4")
    assert place_of(group, "a") == (store, "g/a", f"zarr{version}", None)
    assert place_of(array) == (store, "g/a", f"zarr{version}", None)
    assert place_of(zarr.storage.StorePath(store, "g"), "a") == (store, "g/a", None, None)
    with pytest.raises(TypeError, match="has no nodes below it"):
        place_of(array, "b")
    assert not is_zarr_python_node(store)


MAIN = ("branch", "main")


@cases(
    ("text", "expected"),
    [
        ("s3://b/x.zarr|zarr3:", UrlPipeline("s3://b/x.zarr", "", "zarr3")),
        ("s3://b/x.zarr|zarr3:a/b/", UrlPipeline("s3://b/x.zarr", "a/b", "zarr3")),
        ("file:///x|zarr2:a%20b", UrlPipeline("file:///x", "a b", "zarr2")),
        ("/data/x.n5|n5:volume/s0", UrlPipeline("/data/x.n5", "volume/s0", "n5")),
        ("s3://b/x|zarr:a", UrlPipeline("s3://b/x", "a", "zarr")),
        ("s3://b/x.zip|zip:", UrlPipeline("zip://::s3://b/x.zip")),
        ("s3://b/x.zip|ZIP:in/side|zarr3:a", UrlPipeline("zip://in/side::s3://b/x.zip", "a", "zarr3")),
        ("x.zip|zip:y.zip|zip:z", UrlPipeline("zip://z::zip://y.zip::x.zip")),
        ("https://host/archive.zip|zip", UrlPipeline("zip://::https://host/archive.zip")),
        ("archive.zip|zip|zarr3", UrlPipeline("zip://::archive.zip", "", "zarr3")),
        ("file:/path/archive.zip|zip:/inner", UrlPipeline("zip://inner::file:///path/archive.zip")),
        ("file://LOCALHOST/path|n5", UrlPipeline("file:///path", "", "n5")),
        ("file:///a%7Cb%20c|zarr3:", UrlPipeline("file:///a|b c", "", "zarr3")),
        ("memory:x|zarr3", UrlPipeline("memory://x", "", "zarr3")),
        ("memory:/x|zarr3", UrlPipeline("memory://x", "", "zarr3")),
        ("C:/x|zarr3:a", UrlPipeline("C:/x", "a", "zarr3")),
        ("s3://b/r|icechunk:", UrlPipeline("s3://b/r", "", None, MAIN)),
        ("s3://b/r|icechunk:/a/b", UrlPipeline("s3://b/r", "a/b", None, MAIN)),
        ("s3://b/r|icechunk://branch.main/", UrlPipeline("s3://b/r", "", None, MAIN)),
        ("s3://b/r|icechunk://branch.my%2Fbranch/a/", UrlPipeline("s3://b/r", "a", None, ("branch", "my/branch"))),
        ("s3://b/r|icechunk://tag.v5", UrlPipeline("s3://b/r", "", None, ("tag", "v5"))),
        ("s3://b/r|icechunk://1CECHNKREP0F1RSTCMT0/a", UrlPipeline("s3://b/r", "a", None, ("snapshot", "1CECHNKREP0F1RSTCMT0"))),
        ("s3://b/r|icechunk:@branch.dev/a", UrlPipeline("s3://b/r", "a", None, ("branch", "dev"))),
        ("s3://b/r|icechunk:@tag.v1.0|zarr3:a", UrlPipeline("s3://b/r", "a", "zarr3", ("tag", "v1.0"))),
        ("s3://b/r|icechunk:@1CECHNKREP0F1RSTCMT0/a", UrlPipeline("s3://b/r", "a", None, ("snapshot", "1CECHNKREP0F1RSTCMT0"))),
    ],
)  # fmt: skip
def test_what_a_url_pipeline_names(text, expected):
    assert parse_url_pipeline(text) == expected


@cases(
    "text",
    ["/data/x.zarr", "s3://b/x", "zip://a::s3://b/x.zip", "/data/a|b", "/data/a|b|c:", "/data/a|", r"C:\a|b", ""],
)
def test_other_urls_are_no_pipelines(text):
    assert parse_url_pipeline(text) is None


@cases(
    ("text", "reason"),
    [
        ("s3://b/x|ocdbt:a", "no adapter for 'ocdbt:'; those for icechunk, n5, zarr, zarr2, zarr3, zip"),
        ("s3://b/x|ocdbt", "no adapter for 'ocdbt:'"), ("/data/x|zarr4:a", "no adapter for 'zarr4:'"),
        ("s3://b/x|", "no adapter for ':'"), ("s3://b/x|zarr:|zip:", "'zip:' stands after the format 'zarr'"),
        ("s3://b/x|zarr3:a?b=c", "'zarr3:a[?]b=c': zarr3: has no queries"),
        ("s3://b/r|icechunk:///a", "'//' is followed by"),
        ("s3://b/r|icechunk:a|zip:", "'zip:' stands after an adapter"), ("s3://b/r|icechunk:@", "'@' is followed by"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(text, reason):
    with pytest.raises(StoreError, match=reason):
        parse_url_pipeline(text)
