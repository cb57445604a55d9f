"""Golden stores of anndata, GDAL, spatialdata and xarray: read, converted and compared with what zarr-python reads.

Made by ``tests/golden/generate_other_writers.py``; see PROVENANCE.md there.
"""

import warnings
from pathlib import Path

import pytest
import tensorstore
import xarray as xr
import zarr
from interop.peers import WARNINGS
from interop.verdict import same_as_peer

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import UnsupportedFeature
from chunkmill.nodes.opening import walk

pytestmark = [*WARNINGS, pytest.mark.filterwarnings("ignore:the name of a node begins with '__'")]

FOLDER = Path(__file__).parents[1] / "golden" / "other_writers"
STORES = sorted(path.name for path in FOLDER.iterdir())


def arrays_of(store):
    return {n: a for n, a in zarr.open_group(str(store), mode="r").members(max_depth=None) if isinstance(a, zarr.Array)}


@pytest.mark.parametrize("name", STORES)
def test_all_arrays_are_listed_and_read_as_by_zarr_python(name):
    wanted = arrays_of(FOLDER / name)
    root = cm.open_group(FOLDER / name)
    found = {node.path: cm.Array(node) for node in walk(root.stored) if isinstance(node, StoredArray)}
    assert found.keys() == wanted.keys() != set()
    assert all(same_as_peer(found[path][...], wanted[path][...]) for path in wanted)


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
@pytest.mark.parametrize("name", STORES)
def test_copies_are_equal_for_zarr_python(name, fmt, tmp_path):
    codecs = "keep"
    if name.startswith("gdal") and fmt == "zarr3":
        with pytest.raises(UnsupportedFeature, match=r"numcodecs\.delta of"):
            cm.convert(FOLDER / name, tmp_path / "copy", format=fmt)
        codecs = "zstd"
    cm.convert(FOLDER / name, tmp_path / "copy", format=fmt, codecs=codecs)
    assert cm.verify(FOLDER / name, tmp_path / "copy").equal
    wanted, found = arrays_of(FOLDER / name), arrays_of(tmp_path / "copy")
    assert found.keys() == wanted.keys()
    assert all(same_as_peer(found[path][...], wanted[path][...]) for path in wanted)


def test_xarray_without_a_name(tmp_path):
    (name,) = [each for each in STORES if each.startswith("xarray")]
    with xr.open_dataset(FOLDER / name, engine="chunkmill") as found, xr.open_zarr(FOLDER / name) as wanted:
        xr.testing.assert_identical(found.compute(), wanted.compute())
        assert list(found) == ["__xarray_dataarray_variable__"]
        found.to_zarr(tmp_path / "again.zarr", zarr_format=3, consolidated=False)
    cm.convert(FOLDER / name, tmp_path / "copy", format="zarr3")
    with xr.open_zarr(tmp_path / "copy", consolidated=False) as copy:
        xr.testing.assert_identical(copy.compute(), wanted.compute())
    assert cm.check(tmp_path / "copy").ok
    spec = {"driver": "file", "path": f"{tmp_path / 'copy'}/__xarray_dataarray_variable__/"}
    array = tensorstore.open({"driver": "zarr3", "kvstore": spec}).result()
    assert array.read().result().tolist() == [[0, 1, 2], [3, 4, 5]]


def image(name):
    (store,) = [each for each in STORES if each.startswith("spatialdata")]
    return cm.open_group(FOLDER / store, f"images/{name}").multiscales[0]


def test_coordinate_systems_of_spatialdata_are_alternatives():
    """As spatialdata 0.7.3 gives them: get_transformation(image, "global") and "other"."""
    two = image("two")
    assert (two.system, list(two.systems)) == ("global", ["global", "other"])
    assert [level.scale for level in two] == [(1.0, 0.17, 0.17), (1.0, 0.34, 0.34)]
    assert [level.scale for level in two.within("other")] == [(1.0, 0.05, 0.05), (1.0, 0.1, 0.1)]
    with pytest.raises(KeyError, match="the coordinate systems of this image are 'global', 'other'"):
        two.within("aligned")


def test_an_affine_among_them_is_left_out():
    affine = image("affine")
    assert affine.system == "global"
    assert [(level.scale, level.translation) for level in affine] == [
        ((1.0, 0.5, 0.25), (0.0, 10.0, 20.0)),
        ((1.0, 1.0, 0.5), (0.0, 10.0, 20.0)),
    ]


def test_an_affine_alone_leaves_the_levels_in_voxels():
    with pytest.warns(UserWarning, match="are aligned, those that scale and translation reach: none"):
        only = image("only")
    assert (only.system, [level.scale for level in only]) == (None, [(1.0, 1.0, 1.0), (1.0, 2.0, 2.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert image("only").systems == {}
