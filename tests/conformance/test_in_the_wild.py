"""Stores as they are found in public projects, which a peer reads: each was refused here once."""

import json
import warnings

import dask.array as da
import numpy as np
import pytest
from support.arrays import filled

import chunkmill as cm
from chunkmill.errors import MetadataError
from chunkmill.stores.memory import MemoryStore


def stored(fmt, chunk=None, **members):
    """Return a store with an array of integers, of another document and first chunk."""
    store = MemoryStore()
    cm.create_array(store, shape=4, chunks=2, dtype="i4", fill_value=0, codecs="raw", format=fmt)
    document, key = (".zarray", "0") if fmt == "zarr2" else ("zarr.json", "c/0")
    store.set(document, json.dumps(json.loads(store.get(document)) | members).encode())
    if chunk is not None:
        store.set(key, chunk)
    return store


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("|b1", "0", False),
        ("|b1", "1", True),
        ("<i4", "0", 0),
        (">i2", "-3", -3),
        ("<u8", "18446744073709551615", 2**64 - 1),
        ("|u1", "2.0", 2),
        ("<f4", "0", 0),
        ("<f8", "-1.5e3", -1500),
        ("<f8", "NaN", np.nan),
        ("<c8", "0", 0),
        ("<c16", ["1", "-2.5"], 1 - 2.5j),
        ("<M8[s]", "7", np.datetime64(7, "s")),
        ("<m8[ms]", "7", np.timedelta64(7, "ms")),
        ("|S3", "0", b""),
        ("<U2", "0", "0"),  # text is what it says
    ],
)
def test_v2_fill_values_are_numbers_in_strings(dtype, value, expected):
    """n5-zarr wrote ``"fill_value": "0"`` to every store from 2019 to May 2024: those of Fiji and BigDataViewer."""
    array = cm.open_array(stored("zarr2", dtype=dtype, fill_value=value))
    np.testing.assert_array_equal(array[...], np.full(4, expected, np.dtype(dtype)))


@pytest.mark.parametrize("value", ["", "0y1", "1_0", " 1", "1 ", "+1", "²", "1" * 5000, "1e99999", "nan"])
def test_other_strings_are_no_numbers(value):
    for dtype in ("<i4", "<f8", "|b1", "<c8"):
        with pytest.raises(MetadataError, match="fill_value"):
            cm.open_array(stored("zarr2", dtype=dtype, fill_value=value))


@pytest.mark.parametrize("dtype", ["|i1", "<u2", ">i4", "<i8", "<M8[s]", "<f4"])
def test_bitround_leaves_integers_as_they_are(dtype):
    values = np.arange(100, 102).astype(dtype)
    array = cm.open_array(stored("zarr2", values.tobytes(), dtype=dtype, filters=[{"id": "bitround", "keepbits": 3}]))
    np.testing.assert_array_equal(array[:2], values)


def test_fixed_length_text_without_endian_is_little():
    values = np.array(["é", "bc"], "<U2")
    data_type = {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}
    store = stored("zarr3", values.tobytes(), data_type=data_type, fill_value="", codecs=["bytes"])
    with pytest.warns(UserWarning, match=r"'bytes' has no endian.* little"):
        array = cm.open_array(store)
    assert array[:2].tolist() == ["é", "bc"]
    with warnings.catch_warnings():  # what is said again says it in full
        warnings.simplefilter("error")
        filled(array[:2], chunks=(2,))


@pytest.mark.parametrize("value", [0, 1])
def test_v3_fill_values_of_booleans_are_numbers(value):
    array = cm.open_array(stored("zarr3", data_type="bool", fill_value=value, codecs=["bytes"]))
    assert array[...].tolist() == [bool(value)] * 4


@pytest.mark.parametrize("name", ["x.json.zarr", "x.json", "x.json.gz", "x.json.zip", ".json.n5"])
@pytest.mark.parametrize("fmt", ["zarr3", "zarr2"])
def test_stores_have_json_in_their_names(tmp_path, name, fmt):
    url = str(tmp_path / name)
    cm.to_store(da.arange(5, chunks=2), url, path="a", format=fmt)
    assert cm.from_store(url, "a").compute().tolist() == [0, 1, 2, 3, 4]
    cm.consolidate(url)
    assert list(cm.open_group(url)) == ["a"]


def rectilinear(*runs):
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [list(runs)]}}


@pytest.mark.parametrize("runs", [[[2, 2**62]], [4, [2**63 - 1, 1]], [2**61], [[2**62, 1], [2**62, 1]]])
def test_runs_that_no_store_can_hold_are_refused(runs):
    with pytest.raises(MetadataError, match="chunk_grid"):
        cm.open_array(stored("zarr3", chunk_grid=rectilinear(*runs)))
