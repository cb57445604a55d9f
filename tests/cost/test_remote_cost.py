"""Requests of small calls to a service that is far away: how many, and how many one after the other."""

import dask
import dask.array as da
import numpy as np
import pytest
from support import servers

import chunkmill as cm
from benchmarks.far_s3 import far_s3

pytest.importorskip("obstore")
pytestmark = servers.WARNINGS

LATENCY = 0.04
SLACK = 2  # requests that a loaded machine made later than those they belong to


@pytest.fixture(scope="module")
def service():
    with far_s3(0.0) as service, dask.config.set(scheduler="threads", num_workers=2):
        to_store("warm", service)  # whether versions are compared is found out once
        to_store("a", service)
        cm.create_group(f"{service.url}/g", storage_options=service.storage_options)
        to_store("g/a", service)
        cm.consolidate(f"{service.url}/g", storage_options=service.storage_options)
        service.wait(LATENCY)
        yield service


def to_store(path, service, **options):
    x = da.from_array(np.arange(1000, dtype="u2"), chunks=1000)
    cm.to_store(x, f"{service.url}/{path}", storage_options=service.storage_options, **options)


def to_store_zarr2(path, service):
    """Into a document beside the one that makes a node, which is written before it and after it."""
    to_store(path, service, format="zarr2")


def convert(path, service):
    options = service.storage_options
    cm.convert(f"{service.url}/a", f"{service.url}/{path}", format="zarr3", storage_options=options)


def rechunk(path, service):
    cm.rechunk(f"{service.url}/a", f"{service.url}/{path}", chunks=(500,), storage_options=service.storage_options)


def open_array(path, service):
    cm.open_array(f"{service.url}/{path}", storage_options=service.storage_options)


def open_below_consolidated(path, service):
    group = cm.open_group(f"{service.url}/{path}", storage_options=service.storage_options)
    assert list(group.keys()) == ["a"]
    assert group.array("a").shape == (1000,)


@pytest.mark.parametrize(
    ("call", "path", "most", "most_in_turn"),
    [
        (open_array, "a", 6, 1),
        (open_below_consolidated, "g", 6, 1),
        (to_store, "new", 14, 7),
        (to_store_zarr2, "zarr2", 20, 11),
        (convert, "converted", 43, 18),
        (rechunk, "rechunked", 43, 18),
    ],
)
def test_requests(call, path, most, most_in_turn, service):
    service.requests()
    call(path, service)
    made = service.requests()
    assert len(made) <= most
    assert in_turn(made) <= most_in_turn + SLACK
    assert not [each for each in made if each.status == 412]  # a condition that was bound to fail


def in_turn(requests):
    """Return how many requests began when the one before, counted so, had ended."""
    n, end = 0, 0.0
    for each in requests:
        if each.begin >= end:
            n, end = n + 1, each.end
    return n
