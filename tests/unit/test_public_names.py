"""Names of the package are imported when they are used, and are the same for type checkers and at run time."""

import ast
from importlib.metadata import version
from pathlib import Path

import pytest
from support.scripts import run_script

import chunkmill as cm


def test_nothing_but_errors_is_imported_at_first():
    script = "import sys, chunkmill\nprint({'numpy', 'dask', 'xarray', 'pandas', 'distributed'} & set(sys.modules))"
    assert run_script(script) == "set()"


def test_type_checkers_see_what_is_imported():
    tree = ast.parse(Path(cm.__file__).read_text("utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING")
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == cm._MODULES
    assert {*seen, "errors"} == set(cm.__all__)
    assert dir(cm) == sorted([*cm.__all__, "__version__"])


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'chunkmill' has no attribute 'opne'"):
        cm.opne  # noqa: B018
    assert not hasattr(cm, "_opne")


def test_star():
    names = {}
    exec("from chunkmill import *", names)
    assert set(cm.__all__) <= set(names)


def test_the_version_is_that_of_the_installed_package():
    assert cm.__version__ == version("chunkmill")


def test_no_room_has_the_name_of_a_function():
    """An import of the room would replace the function: ``chunkmill.scan`` was a module then; ``jobs`` is imported first."""
    rooms = {path.stem for path in Path(cm.__file__).parent.iterdir()}
    assert rooms & {name for name in cm.__all__ if name != "errors"} == {"jobs"}


def test_the_room_of_jobs_does_not_take_the_place_of_the_function():
    script = "import chunkmill\nfrom chunkmill.jobs import stored_jobs\nprint(chunkmill.jobs.__wrapped__ is stored_jobs.jobs)"
    assert run_script(script) == "True"
