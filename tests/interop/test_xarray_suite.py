"""xarray's own tests of its zarr backend, run on our engine and our writer.

``Dataset.to_zarr`` is `write_dataset`, and ``engine="zarr"`` is ours. What differs on purpose is listed, with the reason,
and has to fail: a difference that goes away is to be struck off.
"""

import asyncio
import contextlib
import os

import pytest
import xarray as xr
from xarray.backends.zarr import _default
from xarray.tests import test_backends as backends
from xarray.tests import test_backends_datatree as trees
from xarray.tests.conftest import create_test_datatree, simple_datatree  # noqa: F401 - fixtures
from xarray.tests.test_backends_datatree import unaligned_datatree_zarr_factory  # noqa: F401 - a fixture

from chunkmill.errors import StoreError
from chunkmill.xarray.write import write_dataset

try:
    from xarray.tests.conftest import time_unit, use_dask  # noqa: F401 - fixtures
except ImportError:
    pytest.skip("the lists below are of the tests of a newer xarray", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

REGROUPED = "blocks that cut through chunks are regrouped, not refused"
DIFFERENT = {  # tests by the reason
    "an append compares index coordinates with those that are stored, and never overwrites them": (
        "test_append_with_append_dim_no_overwrite"
    ),
    "our lazy array is none of those that are listed there": "test_array_type_after_indexing test_dropna",
    "a DatasetError, which is a ValueError, where xarray raises TypeError, KeyError or NotImplementedError": (
        "test_attributes test_encoding_kwarg test_invalid_dataarray_names_raise test_multiindex_not_implemented "
        "test_roundtrip_string_with_fill_value_nchar test_write_region_errors test_zarr_region_auto_noncontiguous"
    ),
    "an encoding that was not given for this write, and does not apply, is left out": "test_chunk_encoding",
    REGROUPED: (
        "test_chunk_encoding_with_dask test_shard_encoding_with_dask test_zarr_append_chunk_partial "
        "test_zarr_region_chunk_partial test_zarr_region_chunk_partial_offset test_zarr_safe_chunk_append_dim "
        "test_zarr_safe_chunk_region"
    ),
    "not consolidated is no reason to warn: documents are fetched together": (
        "test_read_non_consolidated_warning test_to_zarr_not_consolidated"
    ),
    "variables have names": "test_roundtrip_None_variable",
    "missing texts are refused where no encoding says by which text they are stored": (
        "test_roundtrip_object_dtype test_roundtrip_stringdtype_nulls"
    ),
    "Dask arrays of objects are not loaded to learn their type: there is nothing to warn of": (
        "test_string_object_warning test_to_zarr_append_compute_false_roundtrip"
    ),
    "no such option: the root has what it inherits, groups below do not": "test_write_inherited_coords_true",
    "region= and append_dim= exclude each other: a ValueError before labels are looked up": "test_zarr_region_append",
}
ONLY_IN = {  # differences in one of the formats
    ("test_compressor_encoding", 3): "codecs are data, not zarr-python's objects",
    ("test_dimension_names", 2): "not of this format: xarray skips it there",
    ("test_hidden_zarr_keys", 3): "asks zarr-python's objects, which there are none of",
    ("test_shard_encoding", 3): REGROUPED,
    ("test_to_zarr_compute_false", 2): "a zero is stored: Zarr v2 would take it for missing",
    ("test_zarr_encoding", 3): "codecs are data, not zarr-python's objects",
    ("test_zarr_fill_value_in_encoding_on_read", 2): "not of this format: xarray skips it there",
    ("test_zarr_fill_value_setting", 2): "use_zarr_fill_value_as_mask=False is heeded",
}
OTHER_WORDS = (  # errors of the same type are raised, with other messages: any message will do
    "test_append_string_length_mismatch_raises test_append_with_append_dim_not_set_raises "
    "test_append_with_existing_encoding_raises test_append_with_invalid_dim_raises "
    "test_append_with_mode_not_a_raises test_append_with_mode_rplus_fails test_append_with_no_dims_raises "
    "test_non_existent_store test_zarr_encoding"
)
_KNOWN = ("mode", "consolidated", "append_dim", "region", "encoding", "compute", "storage_options",
    "write_empty_chunks")  # fmt: skip


def url_of(target):
    return str(target) if isinstance(target, str | os.PathLike) else target


def to_store(data, target, *, group=None, zarr_format=None, **kwargs):
    import zarr

    version = zarr_format or zarr.config.get("default_zarr_format")
    known = {name: kwargs[name] for name in _KNOWN if kwargs.get(name) is not None}
    return write_dataset(data, url_of(target), (group or "").strip("/"), format=f"zarr{version}", **known)


def ours(opens):
    """Return a function of xarray that opens stores, with our engine in place of zarr's."""

    def opened(url, *args, **kwargs):
        kwargs = {**kwargs.pop("backend_kwargs", {}), **kwargs}
        if kwargs.get("engine", "zarr") == "zarr":
            kwargs["engine"] = "chunkmill"
        for name in ("zarr_format", "cache_members"):
            kwargs.pop(name, None)
        return opens(url_of(url), *args, **kwargs)

    return opened


@pytest.fixture(params=[2, 3])
def default_zarr_format(request):
    import zarr

    with zarr.config.set(default_zarr_format=request.param):
        yield request.param


@pytest.fixture(autouse=True)
def engine(request, monkeypatch):
    name = request.node.originalname
    version = next((request.getfixturevalue(v) for v in _VERSIONS if v in request.fixturenames), None)
    different = (why for why, names in DIFFERENT.items() if name in names.split())
    reason = next(different, None) or ONLY_IN.get((name, version))
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    opened = {name: ours(getattr(xr, name)) for name in _OPENS}

    def open_zarr(url, chunks=_default, **kwargs):
        return opened["open_dataset"](url, chunks={} if chunks is _default else chunks, **kwargs)

    for module in (xr, backends, trees):
        for each, function in {**opened, "open_zarr": open_zarr}.items():
            monkeypatch.setattr(module, each, function, raising=False)
    monkeypatch.setattr(xr.Dataset, "to_zarr", to_store)
    monkeypatch.setattr(xr.DataTree, "to_zarr", to_store)
    monkeypatch.setattr(xr.DataArray, "to_zarr", to_store)
    if name in OTHER_WORDS.split():
        monkeypatch.setattr(pytest, "raises", lambda expected, **_: raises(expected))


raises = pytest.raises
_OPENS = ("open_dataset", "open_dataarray", "open_datatree", "open_groups")
_VERSIONS = ("default_zarr_format", "zarr_format")


class TestDatasets(backends.ZarrBase):
    @contextlib.contextmanager
    def create_zarr_target(self):
        with backends.create_tmp_file(suffix=".zarr") as path:
            yield path

    def test_load_async(self):
        asyncio.run(super().test_load_async())

    def save(self, dataset, store_target, **kwargs):
        return to_store(dataset, store_target, **kwargs)

    @contextlib.contextmanager
    def open(self, path, **kwargs):
        with xr.open_dataset(path, engine="chunkmill", **kwargs) as ds:
            yield ds

    @contextlib.contextmanager
    def roundtrip(self, data, save_kwargs=None, open_kwargs=None, allow_cleanup_failure=False):
        with self.create_zarr_target() as path:
            self.save(data, path, **(save_kwargs or {}))
            with self.open(path, **(open_kwargs or {})) as ds:
                yield ds


for _name in ("temp_dir", "roundtrip_dir", "test_default_zarr_fill_value", "test_write_empty"):
    setattr(TestDatasets, _name, vars(backends.TestZarrWriteEmpty)[_name])


class TestDataArrays(backends.TestDataArrayToZarr):
    @pytest.fixture(params=["tmp_path", "dict"])  # the ZipStore of xarray's own fixture is opened for reading only
    def tmp_store(self, request, tmp_path):
        return {} if request.param == "dict" else tmp_path


class TestRegions(backends.TestZarrRegionAuto):
    test_dataset_to_zarr_align_chunks_true = None  # asks for a fixture of xarray's own test run


class TestTrees(trees.TestZarrDatatreeIO):
    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_to_zarr_zip_store(self, tmpdir, simple_datatree, zarr_format):  # noqa: F811
        """A zip file that zarr-python is writing keeps what is deleted, leases too; xarray's own engine fails as well."""
        with pytest.raises(StoreError, match="deletes nothing"):
            super().test_to_zarr_zip_store(tmpdir, simple_datatree, zarr_format)
