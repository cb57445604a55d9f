"""Golden stores of every format, mutated: nothing but `ChunkmillError` comes out, soon and in little memory.

Every case has its own seed, so that a failure names the store, the number of the case and the mutation, and comes again.
`CHUNKMILL_FUZZ` says how many mutations each store gets: more every night.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from interop.corpus import BY_FORMAT, BY_NAME, Golden
from support.mutations import mutate_bytes, mutate_json

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*read as:UserWarning"),  # the draft's extension types
    pytest.mark.filterwarnings("ignore:.*which are not read, since:UserWarning"),  # a mutated separator of chunk keys
]

N_MUTATIONS = int(os.environ.get("CHUNKMILL_FUZZ", "3"))
MAX_SECONDS = 5.0  # of the processor; a case takes a millisecond
MAX_BYTES = 64 << 20
MAX_READ_BYTES = 4 << 20
MAX_READ_CHUNKS = 2000
MAX_BLOCKS = 100_000  # of an axis: dask keeps the length of each, and takes its time
MAX_TEXT = 5000
MAX_STORE_BYTES = 200_000  # the few larger goldens hold nothing that the others do not

DOCUMENTS = (".json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


def contents(golden: Golden) -> dict[str, bytes]:
    files = sorted(file for file in golden.source.rglob("*") if file.is_file())
    return {str(file.relative_to(golden.source)): file.read_bytes() for file in files}


SOURCES = {
    name: (found[0], values)
    for name, found in BY_NAME.items()
    if 0 < sum(map(len, (values := contents(found[0])).values())) <= MAX_STORE_BYTES
}
"""Of each case and format one, and what is in it by key."""


def test_the_corpus_is_there():
    assert len(SOURCES) > 480


# ----------------------------------------------------------------------------------------------------------------------
# Mutations


def mutate(values: dict[str, bytes], rng: random.Random) -> tuple[dict[str, bytes], str]:
    """Return the store with one value changed, and what was done to it."""
    documents = [key for key in values if key.endswith(DOCUMENTS)]
    chunks = [key for key in values if not key.endswith(DOCUMENTS)]
    key = rng.choice(documents if documents and (not chunks or rng.random() < 0.5) else chunks)
    change = mutate_json if key in documents and rng.random() < 0.85 else mutate_bytes
    return {**values, key: change(values[key], rng)}, f"{change.__name__} of {key}"


# ----------------------------------------------------------------------------------------------------------------------
# What is done with a mutated store


def read(node: cm.Array | cm.Group) -> None:
    repr(node)
    if isinstance(node, cm.Group):
        for child in node.children().values():
            read(child)
        node.tree()
        return
    if max(node.write_layout.grid.grid_shape, default=0) <= MAX_BLOCKS:
        attempt(lambda: node.to_dask().chunks)
    if node.nbytes <= MAX_READ_BYTES and node.nchunks <= MAX_READ_CHUNKS:
        attempt(lambda: node[...])
    ends = tuple(-1 for _ in node.shape)
    for index in ((0,) * len(ends), ends):
        if 0 not in node.shape:
            attempt(lambda index=index: node[index])


def attempt(what: Callable[[], Any]) -> None:
    """Do it; a failure must be ours, and say so in few words."""
    text = ""
    try:
        what()
    except cm.ChunkmillError as error:
        text = str(error)
    assert len(text) < MAX_TEXT, "a hostile document must not make a hostile message"


def run(name: str, n: int) -> None:
    rng = random.Random(f"{name}#{n}")
    golden, values = SOURCES[name]
    values, what = mutate(values, rng)
    store = MemoryStore()
    for key, value in values.items():
        store.set(key, value)
    started = time.process_time()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        # the format is given where the store's own root does not tell it any more
        attempt(lambda: read(cm.open(store, golden.case.path, format=golden.format if n % 3 == 0 else None)))
    except BaseException as error:
        error.add_note(f"{name}#{n}: {what}")
        raise
    took = time.process_time() - started
    assert took < MAX_SECONDS, f"{name}#{n}: {what} took {took:.1f} s"
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak < MAX_BYTES, f"{name}#{n}: {what} took {peak >> 20} MiB"


@pytest.fixture
def traced():
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("names", BY_FORMAT.values(), ids=BY_FORMAT)
def test_mutated_stores(names):
    for name in SOURCES.keys() & names:
        for n in range(N_MUTATIONS):
            run(name, n)
