"""The page of arguments of other libraries: each of ours exists, and each of theirs where the library is installed."""

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import chunkmill as cm

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "from_other_libraries.md").read_text("utf-8")
SECTIONS = {
    function: re.findall(r"^\| (?!theirs|---)(.*?) \|(.*?)\|.*\|$", body, flags=re.MULTILINE)
    for function, body in re.findall(r"^## .*?: `(.*?)`\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
}
TABLES = {function: rows for function, rows in SECTIONS.items() if rows}
INSTALLED_APART = {"rechunker"}  # on zarr-python 2


def test_there_are_tables():
    libraries = {function.partition(".")[0] for function in TABLES}
    assert libraries == {"xarray", "dask", "rechunker", "zarr", "z5py"}
    assert sum(map(len, TABLES.values())) > 50


@pytest.mark.parametrize("function", TABLES)
def test_our_names_exist(function):
    for _, ours in TABLES[function]:
        for name, argument in re.findall(r"`(\w+)\((\w+)=\)`", ours):
            assert argument in inspect.signature(getattr(cm, name)).parameters, f"{name}({argument}=)"
        assert len(re.findall("`", ours)) == 2 * len(re.findall(r"`\w+\(\w+=\)`", ours)), ours


@pytest.mark.parametrize("function", [name for name in TABLES if name.partition(".")[0] not in INSTALLED_APART])
def test_their_names_exist(function):
    pytest.importorskip(function.partition(".")[0])
    parameters = inspect.signature(pkgutil.resolve_name(function)).parameters
    named = [name for theirs, _ in TABLES[function] for name in re.findall(r"`(\w+)=`", theirs)]
    assert len(named) == len(set(named)) >= len(TABLES[function])
    assert set(named) <= set(parameters)
