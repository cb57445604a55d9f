"""Stores as other programs write them: read as their own readers do, and converted into what every peer reads.

Each case says who writes so. What no tool at hand writes is laid out by hand, from what that tool's stores hold.
"""

import json

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from interop.peers import READERS, WARNINGS, read_tensorstore, read_z5py, read_zarr_python, read_zarrs
from numcodecs import Delta, GZip, Zlib
from support.arrays import filled
from support.hostile import v2

import chunkmill as cm
from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.zarr_v2 import ZarrV2

pytestmark = WARNINGS

VALUES = np.arange(24, dtype="f4").reshape(4, 6)


def write_v2(folder, values, chunks, **members):
    """Write an array of Zarr v2 by zarr-python, then change members of its document."""
    codecs = {name: members.pop(name) for name in ("filters", "compressor") if name in members}
    array = zarr.create_array(
        str(folder), shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=2,
        filters=codecs.get("filters"), compressors=codecs.get("compressor"), overwrite=True,
    )  # fmt: skip
    array[...] = values
    document = json.loads((folder / ".zarray").read_text())
    (folder / ".zarray").write_text(json.dumps({**document, **members}))


def read_by_all(folder, path, names=("zarr-python", "tensorstore", "zarrs")):
    return {name: READERS[name][0](folder, path, "zarr3").values for name in names}


# --------------------------------------------------------------------------------------------------------------------
# gzip of level -1: N5 for Java's default, also in the Zarr v2 of MoBIE and Paintera (document changed by hand)


@pytest.mark.parametrize("codec", [GZip(6), Zlib(6)], ids=["gzip", "zlib"])
def test_deflate_of_the_default_level_becomes_one_that_the_registry_has(codec, tmp_path):
    write_v2(tmp_path / "s", VALUES, (2, 6), compressor=codec)
    document = json.loads((tmp_path / "s" / ".zarray").read_text())
    document["compressor"]["level"] = -1
    (tmp_path / "s" / ".zarray").write_text(json.dumps(document))
    cm.convert(tmp_path / "s", tmp_path / "t", format="zarr3")
    cm.rechunk(tmp_path / "s", tmp_path / "u", format="zarr3", chunks=(2, 3), shards=(4, 6))
    names = ("zarr-python", "tensorstore", "zarrs") if isinstance(codec, GZip) else ("zarr-python",)
    for target in ("t", "u"):
        for values in read_by_all(tmp_path / target, "", names).values():
            np.testing.assert_array_equal(values, VALUES)
    assert json.loads((tmp_path / "t" / "zarr.json").read_text())["codecs"][-1]["configuration"]["level"] == 6


COMPRESSORS = st.one_of(
    st.fixed_dictionaries({"id": st.just("gzip"), "level": st.integers(-1, 9)}),
    st.fixed_dictionaries({"id": st.just("zstd"), "level": st.integers(-7, 22)}, optional={"checksum": st.booleans()}),
    st.fixed_dictionaries(
        {"id": st.just("blosc")},
        optional={
            "cname": st.sampled_from(["lz4", "zstd", "zlib", "blosclz", "lz4hc"]),
            "clevel": st.integers(0, 9),
            "shuffle": st.integers(-1, 2),
            "blocksize": st.integers(0, 1 << 20),
            "typesize": st.none() | st.integers(1, 400),
        },
    ),
    st.just({"id": "crc32c"}),
)


@settings(max_examples=60, deadline=None)
@given(compressor=COMPRESSORS, dtype=st.sampled_from(["<f4", ">i2", "|u1"]), shards=st.booleans())
def test_what_becomes_of_any_compressor_is_valid_for_other_implementations(compressor, dtype, shards, tmp_path_factory):
    """TensorStore and zarr-python validate configurations when they open an array; zarrs when it is read."""
    found = ZarrV2().parse_array("", v2(shape=[4], chunks=[2], dtype=dtype, compressor=compressor))
    folder = tmp_path_factory.mktemp("any")
    cm.create_array(
        folder / "a", shape=4, chunks=2, shards=4 if shards else None, dtype=found.dtype, format="zarr3",
        codecs=[{"name": codec.name, "configuration": dict(codec.configuration)} for codec in found.codecs],
    )  # fmt: skip
    for read in (read_zarr_python, read_zarrs, read_tensorstore):
        np.testing.assert_array_equal(read(folder / "a", "", "zarr3").values, np.zeros(4))


# --------------------------------------------------------------------------------------------------------------------
# Byte orders of filters


@pytest.mark.parametrize("stored", ["<f4", ">f4"])
@pytest.mark.parametrize("filtered", ["<f4", ">f4"])
def test_filters_of_either_byte_order(filtered, stored, tmp_path):
    """Zarr v2 has no codec that says the byte order after a filter: the filter does."""
    values = VALUES.astype(stored)
    for fmt in ("zarr2", "zarr3"):
        cm.to_store(values, tmp_path / fmt, format=fmt, chunks=(2, 6), codecs=[Delta(filtered)])
        np.testing.assert_array_equal(cm.open_array(tmp_path / fmt)[...], VALUES)
    np.testing.assert_array_equal(read_zarr_python(tmp_path / "zarr2", "", "zarr2").values, VALUES)
    for source, target in (("zarr2", "zarr3"), ("zarr3", "zarr2")):
        cm.convert(tmp_path / source, tmp_path / "t" / target, format=target)
        np.testing.assert_array_equal(cm.open_array(tmp_path / "t" / target)[...], VALUES)
    np.testing.assert_array_equal(read_zarr_python(tmp_path / "t" / "zarr2", "", "zarr2").values, VALUES)


# --------------------------------------------------------------------------------------------------------------------
# Names, versions, comments


def test_a_dimension_name_that_occurs_twice_leaves_the_array_readable_for_tensorstore(tmp_path):
    """A covariance matrix as xarray writes it to Zarr v2."""
    write_v2(tmp_path / "s" / "cov", VALUES[:, :4], (2, 4), compressor=None)
    zarr.open_array(str(tmp_path / "s" / "cov"), zarr_format=2).attrs["_ARRAY_DIMENSIONS"] = ["x", "x"]
    with pytest.warns(UserWarning, match="a dimension name occurs twice"):
        cm.convert(tmp_path / "s" / "cov", tmp_path / "t", format="zarr3")
    again = cm.open_array(tmp_path / "t")
    assert (again.dimension_names, "_ARRAY_DIMENSIONS" in again.attrs) == (("x", "x"), False)
    for values in read_by_all(tmp_path / "t", "").values():
        np.testing.assert_array_equal(values, VALUES[:, :4])


@pytest.mark.filterwarnings("ignore:zarr_format is the text")
def test_webknossos_groups_of_version_two_as_text(tmp_path):
    write_v2(tmp_path / "color", VALUES, (2, 6), compressor=None)
    (tmp_path / ".zgroup").write_text('{"zarr_format": "2"}')
    with pytest.warns(UserWarning, match="zarr_format is the text '2'"):
        group = cm.open_group(tmp_path)
    np.testing.assert_array_equal(group["color"][...], VALUES)
    with pytest.raises(MetadataError, match="zarr_format"):
        ZarrV2().parse_group("", {".zgroup": b'{"zarr_format": "3"}'})


@pytest.mark.filterwarnings("ignore:attributes of N5 hold comments")
def test_comments_in_attributes_of_n5(tmp_path):
    """Gson, which reads them in Java, is lenient: MoBIE's stores have comments (laid out by hand)."""
    cm.create_group(tmp_path / "s", format="n5")
    cm.to_store(VALUES, tmp_path / "s" / "a", format="n5", chunks=(2, 6))
    plain = (tmp_path / "s" / "a" / "attributes.json").read_text()
    np.testing.assert_array_equal(read_z5py(tmp_path / "s", "a", "n5").values, VALUES)
    text = plain.replace("{", '{ // made by a converter\n /* "dimensions": [1], */ "url": "http://a/b#c", # x\n', 1)
    (tmp_path / "s" / "a" / "attributes.json").write_text(text)
    with pytest.warns(UserWarning, match="attributes of N5 hold comments"):
        array = cm.open_array(tmp_path / "s" / "a")
    np.testing.assert_array_equal(array[...], VALUES)
    assert array.attrs["url"] == "http://a/b#c"
    (tmp_path / "s" / "a" / "attributes.json").write_text(text + "}")
    with pytest.raises(MetadataError, match=r"attributes\.json"):
        cm.open_array(tmp_path / "s" / "a")


def test_paintera_label_multisets_are_refused_by_name(tmp_path):
    """Blocks of variable length that no reader of N5 but Paintera's takes apart (laid out by hand)."""
    document = {
        "dimensions": [4, 4], "blockSize": [2, 2], "dataType": "uint8", "compression": {"type": "gzip", "level": -1},
        "isLabelMultiset": True, "maxNumEntries": -1,
    }  # fmt: skip
    (tmp_path / "attributes.json").write_text(json.dumps(document))
    with pytest.raises(UnsupportedFeature, match="isLabelMultiset"):
        cm.open_array(tmp_path)
    (tmp_path / "attributes.json").write_text(json.dumps({**document, "isLabelMultiset": False}))
    assert cm.open_array(tmp_path).shape == (4, 4)


# --------------------------------------------------------------------------------------------------------------------
# Indexes and values


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_byte_strings_from_read_only_memory(fmt, tmp_path):
    values = np.array([b"a", b"bb", b"", b"\0d"], dtype=object)
    values.setflags(write=False)
    codecs = [{"id": "vlen-bytes"}] if fmt == "zarr2" else ["vlen-bytes"]
    array = filled(values, tmp_path / "a", chunks=2, codecs=codecs, format=fmt)
    assert array[...].tolist() == values.tolist()
    assert read_zarr_python(tmp_path / "a", "", fmt).values.tolist() == values.tolist()
