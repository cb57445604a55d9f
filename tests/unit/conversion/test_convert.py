"""Arguments of the public functions: their signatures, options by array, the store of intermediate files."""

import inspect

import dask
import pytest

import chunkmill as cm
from chunkmill.conversion.convert import intermediate_store
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize(("plan", "run"), [(cm.plan_convert, cm.convert), (cm.plan_rechunk, cm.rechunk)])
def test_signatures_are_spelled_out_and_alike(plan, run):
    planned, ran = inspect.signature(plan).parameters, dict(inspect.signature(run).parameters)
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in ran.values())
    assert list(ran) == [*planned]
    for name, parameter in planned.items():
        assert (ran[name].default, ran[name].kind) == (parameter.default, parameter.kind)


def test_where_intermediate_files_are_stored(tmp_path):
    assert intermediate_store(None, None) is None
    own = MemoryStore()
    assert intermediate_store(own, None) is own
    with dask.config.set({"chunkmill.temp": str(tmp_path)}):
        assert intermediate_store(None, None).url == f"file://{tmp_path}"
        assert intermediate_store(own, None) is own
