"""Names of formats: those of users, aliases, and what is none."""

import pytest
from support.cases import cases

from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.registry import FORMATS, get_format


@cases("known", FORMATS)
def test_a_format_is_found_by_its_name(known):
    assert get_format(known.name) is known
    assert get_format(known.name.upper()) is known


@cases(
    ("alias", "name"), [("zarr", "zarr3"), ("Zarr_v2", "zarr2"), ("zarr-v3", "zarr3"), ("zarr_v3_draft", "zarr3-draft")]
)
def test_aliases(alias, name):
    assert get_format(alias) is get_format(name)


def test_the_error_names_those_that_there_are():
    with pytest.raises(UnsupportedFeature, match="format 'hdf5'") as refused:
        get_format("hdf5")
    assert all(repr(known.name) in str(refused.value) for known in FORMATS)
