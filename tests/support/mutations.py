"""Changes by chance of what is stored: of JSON documents, and of bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 2, 7, 255, 256, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, -(10**18),
    0.5, -0.0, 1e308, float("nan"), float("inf"), "", ".", "..", "../../x", "/etc/passwd", "a" * 300, "\0", "\ud800", "NaN", "-Infinity", "0x", "0xff", "0b1",
    "AAAA", "====", "é", "<i4", ">f8", "|O", "|V0", "<U0", "<M8[99999999999s]", "<i3", "<f1", "r0", "r7", "r99999999999", "int32", "float64", "string", "bytes",
    "C", "F", "gzip", "blosc", "zstd", "pickle", "numcodecs.pickle", "vlen-utf8", "sharding_indexed", "transpose", "crc32c",
    "bitround", "cast_value", "n5_default", "packbits", "reshape", "scale_offset", "zfp", "bfloat16", "float4_e2m1fn", "int2", "complex_float16", "reversible",
    "expert", "fixed_rate", "wrap", "clamp", "first_byte", "last_byte", {"name": "zfp", "configuration": {"mode": "fixed_rate", "rate": 1e300}},
    {"name": "reshape", "configuration": {"shape": [-1]}},
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
