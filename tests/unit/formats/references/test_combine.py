"""Joining sets: what fits is joined without data, what does not is listed before anything is made."""

import json

import pytest
from support.cases import cases

from chunkmill.errors import MetadataError
from chunkmill.formats.references.combine import concat_references, join_references, listed_lines
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.model.references import Reference


def day(name, n=4, *, chunk=2, units="days since 2000-01-01", scale=0.5, filters=None, dtype="<i2", lat=3, extra=None):
    """A set of one file: air(time, lat), time(time), lat(lat), a scalar."""

    def zarray(shape, chunks, dtype=dtype):
        members = {"shape": shape, "chunks": chunks, "dtype": dtype, "filters": filters, "fill_value": None}
        return {"zarr_format": 2} | members

    document = {
        ".zgroup": {"zarr_format": 2}, ".zattrs": {"title": name},
        ".zmetadata": {"metadata": {}, "zarr_consolidated_format": 1}, "air/.zarray": zarray([n, lat], [chunk, 2]),
        "air/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "lat"], "scale_factor": scale, "history": name},
        "time/.zarray": zarray([n], [chunk], "<f8"), "time/.zattrs": {"_ARRAY_DIMENSIONS": ["time"], "units": units},
        "lat/.zarray": zarray([lat], [lat]), "lat/.zattrs": {"_ARRAY_DIMENSIONS": ["lat"]}, "lat/0": [name, 1, 6],
        "crs/.zarray": zarray([], []), "crs/.zattrs": {"_ARRAY_DIMENSIONS": []}, "crs/0": "base64:AAE=",
        **{f"time/{i}": f"{name} {i}" for i in range(-(-n // chunk))},
        **{f"air/{i}.{j}": [name, 100 * i + j, 8] for i in range(-(-n // chunk)) for j in range(2)}, **(extra or {}),
    }  # fmt: skip
    return parse_reference_json(json.dumps(document).encode())


def test_concat():
    joined = concat_references([day("a"), day("b", 6), day("c", 3)], "time")
    assert json.loads(joined.locate("air/.zarray").data)["shape"] == [13, 3]
    assert json.loads(joined.locate("time/.zarray").data)["shape"] == [13]
    assert json.loads(joined.locate(".zattrs").data) == {"title": "a"}
    assert ".zmetadata" not in joined  # it says the old shapes
    files = "aabbbcc"
    local = [0, 1, 0, 1, 2, 0, 1]
    for i in range(7):
        assert joined.locate(f"time/{i}").data == f"{files[i]} {local[i]}".encode()
        for j in range(2):
            assert joined.locate(f"air/{i}.{j}") == Reference(files[i], 100 * local[i] + j, 8)
    assert joined.locate("air/7.0") is None
    assert joined.locate("lat/0") == Reference("a", 1, 6)
    assert joined.locate("crs/0").data == b"\0\1"
    assert len(joined) == len(day("a")) - 1 - 2 - 4 + 7 + 14


def month(name, n, chunk=None):
    """A set of Zarr v3 of one file: x(time), in one chunk, as contiguous storage is described."""
    chunk = chunk or n
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [n, 2], "data_type": "int16", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk, 1]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "dimension_names": ["time", "x"],
    }  # fmt: skip
    group = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"metadata": {"x": document}}}
    coords = [(i, j) for i in range(-(-n // chunk)) for j in range(2)]
    chunks = {f"x/c/{i}/{j}": [name, 100 * i + j, 8] for i, j in coords}
    return parse_reference_json(json.dumps({"zarr.json": group, "x/zarr.json": document, **chunks}).encode())


def test_chunks_of_other_lengths_become_a_rectilinear_grid():
    joined = concat_references([month("a", 31), month("b", 28), month("c", 28), month("d", 30, 10)], "time")
    document = json.loads(joined.locate("x/zarr.json").data)
    assert document["shape"] == [117, 2]
    lengths = {"kind": "inline", "chunk_shapes": [[[31, 1], [28, 1], [28, 1], [10, 3]], 1]}
    assert document["chunk_grid"] == {"name": "rectilinear", "configuration": lengths}
    assert "consolidated_metadata" not in json.loads(joined.locate("zarr.json").data)
    assert joined.locate("x/c/2/1") == Reference("c", 1, 8)
    assert joined.locate("x/c/5/0") == Reference("d", 200, 8)
    # a chunk that is stored longer than what is left of its file cannot be in the middle
    with pytest.raises(MetadataError, match="'x' in set 1: its 28 elements are no multiple of the chunk length 31"):
        concat_references([month("a", 31), month("b", 28, 31), month("c", 31)], "time")


def test_gaps_stay_gaps():
    array = {"x/.zarray": {"shape": [6], "chunks": [2]}, "x/.zattrs": {"_ARRAY_DIMENSIONS": ["t"]}}
    sparse = parse_reference_json(json.dumps(array | {"x/1": ["u", 0, 1]}).encode())
    joined = concat_references([sparse, sparse], "t")
    assert sorted(joined.keys()) == ["x/.zarray", "x/.zattrs", "x/1", "x/4"]


OFFENDERS = {
    "chunk shape": (day("b", chunk=1), "'air' in b.nc: chunks is [1, 2], not [2, 2]"),
    "dtype": (day("b", dtype="<i4"), '\'air\' in b.nc: dtype is "<i4", not "<i2"'),
    "codecs": (day("b", filters=[{"id": "zlib"}]), '\'air\' in b.nc: filters is [{"id": "zlib"}], not null'),
    "scale": (day("b", scale=0.25), "'air' in b.nc: attribute 'scale_factor' is 0.25, not 0.5"),
    "units of time": (day("b", units="days since 2000-01-05"), "'time' in b.nc: attribute 'units'"),
    "other lengths": (day("b", lat=4), "'air' in b.nc: shape is [4, 4], not [4, 3]"),
    "missing": (parse_reference_json(b'{"air/.zarray": {"shape": [4, 3], "chunks": [2, 2]}}'),
     "'time' is missing in b.nc"),
    "another array": (day("b", extra={"new/.zarray": {"shape": [], "chunks": []}}), "'new' is only in b.nc"),
}  # fmt: skip


@cases(("other", "words"), OFFENDERS.values())
def test_what_does_not_fit_is_listed(other, words):
    with pytest.raises(MetadataError) as caught:
        concat_references([day("a"), other], "time", names=["a.nc", "b.nc"])
    assert words in str(caught.value)
    assert "decode and rewrite" in str(caught.value)


def test_all_offenders_are_listed_at_once():
    lines = "(?s)'air' in set 1: attribute.*'air' in set 0: its 3 elements are no multiple.*'lat' in set 2: shape"
    with pytest.raises(MetadataError, match=lines):
        concat_references([day("a", 3), day("b", scale=1.0), day("c", lat=9)], "time")


def test_sets_at_one_place_are_of_one_length():
    with pytest.raises(MetadataError, match="'air' in set 1: it is 6 long in chunks of 2, not 4 in chunks of 2"):
        join_references([day("a"), day("b", 6)], ("time", "lat"), [(0, 0), (0, 1)])


def test_a_dimension_that_is_nowhere():
    with pytest.raises(MetadataError, match="no array of set 0 has a dimension 'level'"):
        concat_references([day("a")], "level")
    with pytest.raises(MetadataError, match="one or more"):
        concat_references([], "time")


def test_of_many_lines_the_first_are_shown():
    assert "more" not in listed_lines(["x"] * 50)
    assert listed_lines(["x"] * 52).endswith("x\n  and 2 more")
