"""Url pipelines: which store, path and format they name."""

import pytest

from chunkmill.errors import StoreError
from chunkmill.stores.url_pipeline import UrlPipeline, parse_url_pipeline

MAIN = ("branch", "main")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://b/x.zarr|zarr3:", UrlPipeline("s3://b/x.zarr", "", "zarr3")),
        ("s3://b/x.zarr|zarr3:a/b/", UrlPipeline("s3://b/x.zarr", "a/b", "zarr3")),
        ("file:///x|zarr2:a%20b", UrlPipeline("file:///x", "a b", "zarr2")),
        ("/data/x.n5|n5:volume/s0", UrlPipeline("/data/x.n5", "volume/s0", "n5")),
        ("s3://b/x|zarr:a", UrlPipeline("s3://b/x", "a", None)),
        ("s3://b/x.zip|zip:", UrlPipeline("zip://::s3://b/x.zip")),
        ("s3://b/x.zip|ZIP:in/side|zarr3:a", UrlPipeline("zip://in/side::s3://b/x.zip", "a", "zarr3")),
        ("x.zip|zip:y.zip|zip:z", UrlPipeline("zip://z::zip://y.zip::x.zip")),
        ("s3://b/r|icechunk:", UrlPipeline("s3://b/r", "", None, MAIN)),
        ("s3://b/r|icechunk:a/b", UrlPipeline("s3://b/r", "a/b", None, MAIN)),
        ("s3://b/r|icechunk:@branch.dev/a", UrlPipeline("s3://b/r", "a", None, ("branch", "dev"))),
        ("s3://b/r|icechunk:@tag.v1.0|zarr3:a", UrlPipeline("s3://b/r", "a", "zarr3", ("tag", "v1.0"))),
        ("s3://b/r|icechunk:@1CECHNKREP0F1RSTCMT0/a", UrlPipeline("s3://b/r", "a", None, ("snapshot", "1CECHNKREP0F1RSTCMT0"))),
    ],
)  # fmt: skip
def test_what_is_named(text, expected):
    assert parse_url_pipeline(text) == expected


@pytest.mark.parametrize("text", ["/data/x.zarr", "s3://b/x", "zip://a::s3://b/x.zip", "/data/a|b", "/data/a|b|c:", ""])
def test_other_urls_are_no_pipelines(text):
    assert parse_url_pipeline(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s3://b/x|ocdbt:a", "no adapter for 'ocdbt:'; those for icechunk, n5, zarr, zarr2, zarr3, zip"),
        ("s3://b/x|zarr3:a|zip:", "'zip:' stands after the format 'zarr3'"),
        ("s3://b/r|icechunk:a|zip:", "'zip:' stands after an adapter"),
        ("s3://b/r|icechunk:@", "'@' is followed by"),
    ],
)
def test_what_cannot_be_is_refused(text, reason):
    with pytest.raises(StoreError, match=reason):
        parse_url_pipeline(text)
