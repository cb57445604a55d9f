"""Tasks over reference sets in other processes: a set is opened there by its url, one in memory is sent."""

import json
import pickle

import dask
import numpy as np
import pytest
from support.servers import FORK_WARNING

import chunkmill as cm
from chunkmill.formats.references.json import emit_reference_json
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.write import to_references
from chunkmill.stores.reference import ReferenceStore

pytestmark = [FORK_WARNING, pytest.mark.slow]


def ranges(path, n):
    """A set of one array of `n` chunks of 4 bytes of a file; chunk 1 is absent."""
    builder = ReferenceBuilder()
    document = {"zarr_format": 2, "shape": [4 * n], "chunks": [4], "dtype": "|u1", "order": "C"}
    builder.add_data(
        "a/.zarray", json.dumps(document | dict.fromkeys(["filters", "compressor", "fill_value"])).encode()
    )
    builder.add_data(".zgroup", b'{"zarr_format": 2}')
    numbers = np.array([i for i in range(n) if i != 1])
    ids = np.full(len(numbers), builder.url_id(str(path)))
    builder.add_table("a/", ".", numbers.reshape(-1, 1), ids, 4 * numbers, np.full(len(numbers), 4))
    return builder.build()


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "memory"])
def test_every_job(is_file, tmp_path, request):
    """In processes, or on a cluster: convert, rechunk both ways, verify, make references, compute."""
    (tmp_path / "all.bin").write_bytes(bytes(range(200)) * 20)
    references = ranges(tmp_path / "all.bin", 1000)
    (tmp_path / "set.json").write_bytes(emit_reference_json(references))
    store = open_reference_store(tmp_path / "set.json") if is_file else ReferenceStore(references)
    if not is_file:
        with dask.config.set(scheduler="processes", num_workers=2):
            cm.convert(store, tmp_path / "by-processes.zarr", format="zarr3", shards=lambda _: (40,))
        assert cm.verify(store, tmp_path / "by-processes.zarr").equal
    request.getfixturevalue("client")
    jobs = {
        "copy.zarr": lambda url: cm.convert(store, url, format="zarr3", shards=lambda _: (40,)),
        "direct.zarr": lambda url: cm.rechunk(store, url, chunks=(100,)),
        "spill.zarr": lambda url: cm.rechunk(store, url, chunks=(100,), strategy="spill"),
        "refs.json": lambda url: to_references(store, url),
    }
    for name, make in jobs.items() if is_file else [("copy.zarr", jobs["copy.zarr"])]:
        make(tmp_path / name)
        assert cm.verify(store, tmp_path / name).equal
    array = cm.open_array(store, "a")
    x = array.to_dask(chunks=40)
    np.testing.assert_array_equal(x.compute(), array[...])
    assert int((x + 1)[::3].sum().compute()) == int((array[...] + 1)[::3].sum(dtype="u8"))
    assert (len(pickle.dumps(store)) < 1_000) is is_file
