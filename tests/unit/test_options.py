"""Every option of a job that is given and cannot be used is an error of ours, before anything is stored.

The tables are walked over the signatures of the functions: an option without values here fails the test.
"""

import inspect
import traceback
from functools import cache, partial
from pathlib import Path

import dask
import dask.array as da
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import ChunkmillError
from chunkmill.stores.memory import MemoryStore

_TRUTH = ["yes", 5, None]

UNUSABLE = {
    "allow": [{"everything"}, "fill_value", 5, [5]],
    "attributes": [5, "x", [1], {"a": object()}, {1: 2}],
    "chunk_key_encoding": ["-", 5, {"name": "nope"}, {"a": 1}],
    "chunks": [(2,), {"nope": 2}, "big", {"t": "all"}, (0, 2), (2.5, 2), (-3, 2), ((4, 5), 3), {"v": (2, 2)}, 3.5],
    "codecs": ["nope", 5, [{"name": "nope"}], {"a": 1}, [5]],
    "compute": _TRUTH,
    "concat_dim": ["t", 5],
    "dimension_names": [("a",), {"nope": ("a", "b")}, "abc", 5, (1, 2)],
    "fill_value": ["text", {"nope": 1}, 1e300, 1.5, [1, 2], float("nan")],
    "format": ["zarr9", 3, "zarr3-experimental"],
    "include": ["nope", 5, "v"],
    "lock": ["nope", 5],
    "max_mem": ["lots", -1, 0, "5 parsecs", [1]],
    "mode": ["q", None, 5, "r"],
    "ome": ["0.3", "0.5", 5],
    "overwrite": _TRUTH,
    "region": [
        {"nope": slice(2)}, (slice(0, 8, 2),), (slice(0, 100),), {"t": slice(0, 100)}, {"t": 5}, 5, "x", (slice(2),) * 3, {}
    ],
    "resume": _TRUTH,
    "shards": [(4,), {"nope": 4}, (0, 4), "big"],
    "storage_options": [5, "x", {"anon": True}],
    "strategy": ["fast", 1],
    "temp": [5, object()],
}  # fmt: skip
"""For each option, values that can be used by no job on the array that `source` returns."""

JOBS = {"convert": {}, "rechunk": {"chunks": (2, 3)}, "to_store": {}}
"""Names of public functions, with the options that they need."""


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set({"scheduler": "sync", "chunkmill.progress": False}):
        yield


def stored(**options):
    options = {"shape": (8, 6), "dtype": "i4", "chunks": (4, 3), "dimension_names": ("t", "x")} | options
    array = cm.create_array(MemoryStore(), "v", **options)
    array[...] = 1
    return cm.open_array(array.store, "v", mode="r+")


@cache
def source(job):
    return da.ones((8, 6), chunks=(4, 3), dtype="i4") if job == "to_store" else stored()


def options_of(job):
    parameters = inspect.signature(getattr(cm, job)).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


def raised(function):
    """Return the error of ours that a call raises; fail where there is none, or where another library raised it."""
    with pytest.raises((ChunkmillError, ValueError, TypeError)) as caught:
        function()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert Path(cm.__file__).parent in Path(last.filename).parents, f"{last.filename}: {caught.value!r}"
    return caught.value


@cases(("job", "option"), [(job, option) for job in JOBS for option in options_of(job)])
def test_an_option_that_cannot_be_used_is_an_error_and_nothing_is_stored(job, option):
    for value in UNUSABLE[option]:
        store = MemoryStore()
        raised(partial(getattr(cm, job), source(job), (store, "o"), **JOBS[job] | {option: value}))
        assert not list(store.list_prefix("")), (option, value)


OTHERS = {"attributes": {"a": 1}, "chunk_key_encoding": ".", "chunks": (2, 2), "codecs": "gzip",
    "dimension_names": ("a", "b"), "fill_value": 3, "format": "n5", "shards": (8, 6)}  # fmt: skip
"""Options of a new array that an array which is there has otherwise."""


@cases("option", OTHERS)
@cases("into", [{"region": (slice(0, 8),)}, {"mode": "a"}, {"mode": "r+"}])
def test_options_of_a_new_array_are_refused_where_an_array_is_written_into(option, into):
    array = stored()
    store = array.store
    error = raised(lambda: cm.to_store(source("to_store") + 1, store, "v", **into, **{option: OTHERS[option]}))
    assert option in str(error)
    assert int(array[...].sum()) == 48


def test_options_that_an_array_has_already_may_be_repeated():
    array = stored(fill_value=7, attributes={"a": 1}, codecs="gzip", shards=(8, 6))
    same = {
        "attributes": {"a": 1}, "chunks": (4, 3), "codecs": "gzip", "dimension_names": ("t", "x"), "fill_value": 7,
        "format": "zarr3", "shards": (8, 6),
    }  # fmt: skip
    cm.to_store(source("to_store") + 1, array.store, "v", mode="a", **same)
    assert int(cm.open_array(array.store, "v")[...].sum()) == 96


@cases("options", [{"codecs": "gzip"}, {"format": "n5"}, {"shards": (8, 6)}, {"overwrite": True}])
def test_rechunk_into_an_array_refuses_what_that_has_otherwise(options):
    error = raised(lambda: cm.rechunk(stored(), stored(), chunks=None, **options))
    assert next(iter(options)) in str(error)


def test_a_region_is_not_replaced():
    array = stored()
    error = raised(lambda: cm.to_store(source("to_store"), array.store, "v", region=(slice(0, 8),), mode="w"))
    assert "mode='w' replaces" in str(error)


def test_progress_is_one_of_its_values():
    for value in (5, [1], "nope"):
        target = MemoryStore()
        raised(lambda value=value, target=target: cm.plan_convert(stored(), target, format="n5").run(progress=value))
        assert not list(target.list_prefix(""))
        raised(lambda value=value: cm.verify(stored(), stored(), progress=value))
        raised(lambda value=value: cm.check(stored().store, progress=value))


@cases("job", ["convert", "rechunk", "pyramid", "transform"])
@cases("option", ["resume", "progress"])
def test_how_a_job_runs_is_said_to_its_plan(job, option):
    error = raised(lambda: getattr(cm, job)(stored(), MemoryStore(), **{option: True}))
    assert f"plan_{job}(...).run({option}=...)" in str(error)


OPTIONS = {"storage_options": {"anon": True}}


@cases(
    "call",
    [
        lambda a: cm.open(a.store, **OPTIONS),
        lambda a: cm.open_array(a.store, "v", **OPTIONS),
        lambda a: cm.from_store(a, **OPTIONS),
        lambda a: cm.from_store(a.store, "v", **OPTIONS),
        lambda a: cm.create_array(a.store, "n", shape=(1,), dtype="i4", **OPTIONS),
        lambda a: cm.create_group(a.store, "n", **OPTIONS),
        lambda a: cm.to_store(source("to_store"), a, mode="a", **OPTIONS),
        lambda a: cm.to_store(source("to_store"), cm.open_group(a.store), "n", **OPTIONS),
        lambda a: cm.delete(a.store, "v", **OPTIONS),
        lambda a: cm.check(a.store, **OPTIONS),
        lambda a: cm.verify(a, a, **OPTIONS),
        lambda a: cm.verify("memory://none", a, target_storage_options={"anon": True}),
        lambda a: cm.suggest_chunks(a, access={0: 1}, **OPTIONS),
        lambda a: cm.to_references(a, (a.store, "r.json"), **OPTIONS),
        lambda a: cm.convert(a, (a.store, "w"), format="zarr3", **OPTIONS),
        lambda a: cm.rechunk(a, (a.store, "w"), chunks=(2, 2), **OPTIONS),
        lambda a: cm.pyramid(a, (a.store, "w"), **OPTIONS),
        lambda a: cm.transform(abs, a, (a.store, "w"), **OPTIONS),
        lambda a: cm.write_dataset(xr.Dataset(), a.store, "n", **OPTIONS),
    ],
)
def test_options_of_a_filesystem_are_refused_where_there_is_no_url(call):
    array = stored()
    before = sorted(array.store.list_prefix(""))
    error = raised(lambda: call(array))
    assert "storage_options" in str(error)
    assert sorted(array.store.list_prefix("")) == before


def test_options_of_a_filesystem_are_for_the_url_next_to_a_node(tmp_path):
    cm.convert(stored(), tmp_path / "a", format="zarr3", storage_options={"anon": True})
    cm.convert(tmp_path / "a", MemoryStore(), format="n5", storage_options={"anon": True})


def test_intermediate_files_are_of_a_strategy_that_has_them():
    error = raised(lambda: cm.rechunk(stored(), MemoryStore(), chunks=(2, 2), strategy="direct", temp=MemoryStore()))
    assert "has no intermediate files" in str(error)


def test_regions_that_name_nothing_are_refused():
    for call in (cm.plan_convert, cm.plan_pyramid, cm.verify):
        raised(lambda call=call: call(stored(), stored(), region={}))
