"""What users give as a place: which store, path and format it names."""

import subprocess
import sys

import pytest
import zarr
import zarr.storage

from chunkmill.errors import StoreError
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.stores.places import is_zarr_python_node, place_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("s3://b/x",), ("s3://b/x", "", None, None)),
        (("s3://b/x", "a", "n5"), ("s3://b/x", "a", "n5", None)),
        (("/data/a|b", "c"), ("/data/a|b", "c", None, None)),
        (("s3://b/x|zarr3:a",), ("s3://b/x", "a", "zarr3", "zarr3")),
        (("s3://b/x|zarr3:", "a"), ("s3://b/x", "a", "zarr3", "zarr3")),
        (("s3://b/x|zarr3:a", "/a/", "zarr3"), ("s3://b/x", "a", "zarr3", "zarr3")),
        (("s3://b/x|zarr:a",), ("s3://b/x", "a", None, "zarr")),
        (("s3://b/x|zarr:a", "", "zarr2"), ("s3://b/x", "a", "zarr2", "zarr")),
        (("s3://b/x.zip|zip:", "a", "n5"), ("zip://::s3://b/x.zip", "a", "n5", None)),
        (("s3://b/r|icechunk://tag.v1/a",), ("s3://b/r|icechunk://tag.v1", "a", None, None)),
    ],
)
def test_what_is_named(given, expected):
    assert place_of(*given) == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("s3://b/x|zarr3:a", "b"), "names the path 'a', and path='b'"),
        (("s3://b/x|zarr3:a", "", "zarr2"), "of format 'zarr3', and format='zarr2'"),
        (("s3://b/x|zarr:a", "", "n5"), "of format 'zarr', and format='n5'"),
        (("s3://b/x|zarr3:a", "", ZarrV2("/")), "of format 'zarr3', and format='zarr2'"),
    ],
)
def test_what_disagrees_is_one_error(given, reason):
    with pytest.raises(ValueError, match=reason):
        place_of(*given)


def test_a_format_with_options_agrees_by_its_name():
    own = ZarrV2("/")
    assert place_of("x|zarr2:a", "", own).format is own


def test_an_unknown_adapter_is_named():
    with pytest.raises(StoreError, match="no adapter for 'ocdbt:'"):
        place_of("s3://b/x|ocdbt:a")


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


def test_zarr_python_is_not_imported():
    code = "import sys, chunkmill as cm; s = {}; cm.create_array(s, 'a', shape=(2,), dtype='i4'); cm.open(s, 'a')[...]"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; print('zarr' in sys.modules)"], check=False, capture_output=True, text=True
    )
    assert run.stdout.strip() == "False", run.stderr
