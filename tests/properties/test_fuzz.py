"""Golden stores of every format, mutated: nothing but `ChunkmillError` comes out, soon and in little memory.

Every case has its own seed, so that a failure names the store, the number of the case and the mutation, and comes again.
`CHUNKMILL_FUZZ` says how many mutations each store gets; the slow test gives more.
"""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import cases, n5_cases

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*read as:UserWarning"),  # the draft's extension types
]

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = ("zarr_v2", "zarr_v3", "n5", "zarr_v3_draft")

N_MUTATIONS = int(os.environ.get("CHUNKMILL_FUZZ", "3"))
MAX_SECONDS = 5.0  # of the processor; a case takes a millisecond
MAX_BYTES = 64 << 20
MAX_READ_BYTES = 4 << 20
MAX_READ_CHUNKS = 2000
MAX_BLOCKS = 100_000  # of an axis: dask keeps the length of each, and takes its time
MAX_TEXT = 5000
MAX_STORE_BYTES = 200_000  # the few larger goldens hold nothing that the others do not

DOCUMENTS = (
    "zarr.json",
    ".zarray",
    ".zgroup",
    ".zattrs",
    ".zmetadata",
    "attributes.json",
    ".array.json",
    ".group.json",
)


def sources() -> dict[str, dict[str, bytes]]:
    """Every golden folder once a case and format, whichever writer comes first: what is in it by key."""
    found = {}
    for folder in FOLDERS:
        seen = set()
        for path in sorted((GOLDEN / folder).glob("*/*")):
            if path.is_dir() and path.stem not in seen:
                seen.add(path.stem)
                values = {
                    str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
                }
                if sum(map(len, values.values())) <= MAX_STORE_BYTES:
                    found[f"{folder}/{path.stem}"] = values
    return found


SOURCES = sources()


def test_the_corpus_is_there():
    assert len(SOURCES) > 480
    assert {name.split("/")[0] for name in SOURCES} == set(FOLDERS)


# ----------------------------------------------------------------------------------------------------------------------
# Mutations

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 2, 7, 255, 256, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, -(10**18),
    0.5, -0.0, 1e308, float("nan"), float("inf"), "", ".", "..", "../../x", "/etc/passwd", "a" * 300, "\0", "\ud800", "NaN", "-Infinity", "0x", "0xff", "0b1",
    "AAAA", "====", "é", "<i4", ">f8", "|O", "|V0", "<U0", "<M8[99999999999s]", "<i3", "<f1", "r0", "r7", "r99999999999", "int32", "float64", "string", "bytes",
    "C", "F", "gzip", "blosc", "zstd", "pickle", "numcodecs.pickle", "vlen-utf8", "sharding_indexed", "transpose", "crc32c",
    "bitround", "cast_value", "conditional", "n5_default", "packbits", "reshape", "scale_offset", "zfp", "bfloat16", "float4_e2m1fn", "int2", "complex_float16", "reversible",
    "expert", "fixed_rate", "wrap", "clamp", "first_byte", "last_byte", {"name": "zfp", "configuration": {"mode": "fixed_rate", "rate": 1e300}},
    {"name": "reshape", "configuration": {"shape": [-1]}}, {"name": "conditional", "configuration": {"codecs": ["conditional"] * 9}},
    {"name": "cast_value", "configuration": {"data_type": "int2", "out_of_range": "wrap"}}, {"name": "packbits", "configuration": {"last_bit": 0}},
    [], {}, [[]], [None], [0], [1] * 100, [10**18], [-1, -1], [[1, 10**12]], [[[1]]], ["x", "x"], {"name": None}, {"name": "bytes", "configuration": []},
    {"name": "sharding_indexed", "configuration": {}}, {"id": "blosc"}, {"id": "delta", "dtype": "O"}, {"id": "pickle"}, {"type": "gzip", "level": 10**9},
    {"name": "transpose", "configuration": {"order": [0, 0]}}, {"must_understand": False},
    [["a", "<i4"], ["a", "<i4"]], [["a", "<i4", [10**9, 10**9]]], [["a", [["b", "|O"]]]],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from places(item, (*path, name))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng)
    everywhere = list(places(document))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        *above, name = rng.choice(everywhere) or (None,)
        try:
            parent = at(document, tuple(above))
            operation = rng.randrange(6)
            if name is None:
                document = rng.choice(HOSTILE) if rng.random() < 0.1 else document
            elif operation == 0:
                del parent[name]
            elif operation == 1 and isinstance(parent, dict):
                parent[rng.choice(("x", "must_understand", "name", "configuration", "dtype", "codecs", ""))] = (
                    rng.choice(HOSTILE)
                )
            elif operation == 2:
                parent[name] = json.loads(json.dumps(at(document, rng.choice(everywhere))))
            elif operation == 3 and isinstance(parent[name], int):
                parent[name] += rng.choice((-1, 1, 7, 10**6, 2**31, 10**15))
            elif operation == 4 and isinstance(parent, list):
                parent.insert(rng.randrange(len(parent) + 1), parent[name])
            else:
                parent[name] = rng.choice(HOSTILE)
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    return json.dumps(document).encode("utf-8")


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(9):
            case 0 | 1 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 2:
                del changed[place:]
            case 3:
                del changed[place : place + rng.randrange(1, 9)]
            case 4:
                changed[place:place] = rng.randbytes(rng.randrange(1, 9))
            case 5:
                changed[place : place + rng.choice((1, 2, 4, 8))] = rng.choice((b"\xff", b"\0", b"\x7f")) * rng.choice(
                    (1, 2, 4, 8)
                )
            case 6:
                start = rng.randrange(min(len(changed), 32) + 1)  # where headers are
                changed[start : start + 4] = rng.choice((2**31 - 1, 2**32 - 1, 2**24, 0, 1)).to_bytes(
                    4, rng.choice(("little", "big"))
                )
            case 7 if len(changed) >= 20:
                start = len(changed) - 4 - 8 * rng.randrange(1, 3)  # where indexes of shards are
                changed[start : start + 8] = rng.choice((2**64 - 1, 2**63, len(changed), 2**40)).to_bytes(8, "little")
            case _:
                changed[:] = rng.choice((b"", rng.randbytes(len(changed)), changed * 2))
    return bytes(changed)


def mutate(values: dict[str, bytes], rng: random.Random) -> tuple[dict[str, bytes], str]:
    """Return the store with one value changed, and what was done to it."""
    documents = [key for key in values if key.endswith(DOCUMENTS)]
    chunks = [key for key in values if not key.endswith(DOCUMENTS)]
    key = rng.choice(documents if documents and (not chunks or rng.random() < 0.5) else chunks)
    change = mutate_json if key in documents and rng.random() < 0.85 else mutate_bytes
    return {**values, key: change(values[key], rng)}, f"{change.__name__} of {key}"


# ----------------------------------------------------------------------------------------------------------------------
# What is done with a mutated store


def use(store: MemoryStore, path: str, fmt: str | None) -> None:
    read(cm.open(store, path, format=fmt))


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


def name_of_format(name: str) -> str:
    return {"zarr_v2": "zarr2", "zarr_v3": "zarr3", "n5": "n5", "zarr_v3_draft": "zarr3-draft"}[
        name.split("/", maxsplit=1)[0]
    ]


def path_of(name: str) -> str:
    folder, _, stem = name.partition("/")
    if folder in {"n5", "zarr_v3_draft"}:
        case = n5_cases.CASES[f"{folder}/{stem}"]
        return case.path
    return cases.CASES[stem].path


def run(name: str, n: int) -> None:
    rng = random.Random(f"{name}#{n}")
    values, what = mutate(SOURCES[name], rng)
    store = MemoryStore()
    for key, value in values.items():
        store.set(key, value)
    started = time.process_time()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        # the format is given where the store's own root does not tell it any more
        attempt(lambda: use(store, path_of(name), name_of_format(name) if n % 3 == 0 else None))
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
@pytest.mark.parametrize("folder", FOLDERS)
def test_mutated_stores(folder):
    names = [name for name in SOURCES if name.startswith(f"{folder}/")]
    for name in names:
        for n in range(N_MUTATIONS):
            run(name, n)


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("folder", FOLDERS)
def test_many_mutated_stores(folder):
    for name in SOURCES:
        if name.startswith(f"{folder}/"):
            for n in range(N_MUTATIONS, 6 * N_MUTATIONS):
                run(name, n)
