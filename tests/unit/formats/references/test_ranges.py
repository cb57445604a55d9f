"""Byte ranges that are read without a JSON parser are those that one finds."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkmill.formats.references.json import parse_reference_json
from chunkmill.formats.references.ranges import byte_ranges

TEXT = '"x/0": ["a.nc", 8, 100], "x/1": ["é b.nc", 108, 0], "x/2": ["", 0, 7]'


def as_dict(found):
    columns = zip(found.keys, found.urls, found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return {key: list(rest) for key, *rest in columns}


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_both_spacings(separators):
    entries = json.loads(f"{{{TEXT}}}")
    text = json.dumps(entries, separators=separators, ensure_ascii=False)[1:-1]
    found = byte_ranges(text)
    assert as_dict(found) == entries
    assert found.offsets.dtype == np.int64


def test_slashes_that_ujson_escapes():
    found = byte_ranges(r'"x\/0":["s3:\/\/b\/a.nc",8,100],"x\/1":["",108,0]')
    assert as_dict(found) == {"x/0": ["s3://b/a.nc", 8, 100], "x/1": ["", 108, 0]}


@given(
    st.dictionaries(st.text(max_size=6), st.tuples(st.text(max_size=6), *[st.integers(0, 2**63 + 5)] * 2), min_size=1),
    st.booleans(),
)
def test_what_is_found_is_what_json_says(entries, is_compact):
    text = json.dumps(entries, separators=(",", ":") if is_compact else None, ensure_ascii=False)[1:-1]
    if "\\" not in text and max(n for _, *numbers in entries.values() for n in numbers) < 2**63 - 1:
        assert as_dict(byte_ranges(text)) == json.loads(f"{{{text}}}")
    else:
        assert byte_ranges(text) is None


def test_mutations_are_left_to_json_or_are_what_it_says():
    choose = random.Random(5)
    taken = 0
    for _ in range(20_000):
        text = choose.choice([TEXT, TEXT.replace("/", r"\/")])
        for _ in range(choose.randint(1, 2)):
            at = choose.randrange(len(text))
            with_what = choose.choice(
                [
                    '"',
                    ",",
                    " ",
                    "]",
                    "[",
                    ":",
                    "0",
                    "7",
                    "-",
                    ".",
                    "e",
                    "\\",
                    "/",
                    "\n",
                    "\t",
                    "x",
                    "",
                    "null",
                    "é",
                    "\x00",
                    "[1]",
                    ", ,",
                ]
            )
            text = text[:at] + with_what + text[at + choose.randint(0, 2) :]
        found = byte_ranges(text)
        if found is not None:
            taken += 1
            assert as_dict(found) == json.loads(f"{{{text}}}"), text
    assert taken > 1000


@pytest.mark.parametrize(
    "entries",
    [
        '"a": ["u", 1, 2], "a": ["v", 3, 4]', '"a": ["u", 01, 2]', '"a": ["u", 1, 002]', '"a": ["u", 1, 9223372036854775808]', '"a": ["u", 1, -2]', '"a": ["u", 1.0, 2]',
        '"a": ["u", , 2]', '"a": ["u", 1, ]', '"a": ["u", 1, 2, 3]', '"a": ["u", 1]', '"a": ["u"]', '"a": "u"', '"a": {"u": 1}', '"a" : ["u", 1, 2]', '"a": ["u",1, 2]',
        r'"a\\/": ["u", 1, 2]', r'"a\\\/": ["u", 1, 2]', r'"a\/\u00e9": ["u", 1, 2]', r'"a": ["u", 1\/, 2]',
        '"a": ["u\\u0041", 1, 2]', '"a": [null, 1, 2]', '"a": ["u", 1, 2] ', '"a": ["u", 1, 2],', "", '"a', '"a": ["u", true, 2]', '"a": ["u\x01", 1, 2]',
    ],
)  # fmt: skip
def test_other_entries_are_left_to_json(entries):
    assert byte_ranges(entries) is None


@pytest.mark.parametrize("escaped", ["/", r"\/"])
def test_a_large_set_is_the_same_either_way(monkeypatch, escaped):
    refs = {f"a/{i}.{j}": [f"s3://b/f{i}.nc", 1000 * j, 1000] for i in range(100) for j in range(100)}
    refs |= {"a/5.5": ["s3://b/other.nc"], "a/7.7": "base64:AAE=", "version": ["s3://b/x.nc", 1, 2]}
    document = json.dumps({"version": 1, "refs": refs}).replace("/", escaped).encode()
    fast = parse_reference_json(document)
    monkeypatch.setattr("chunkmill.formats.references.json.byte_ranges", lambda _: None)
    slow = parse_reference_json(document)
    assert list(fast.items()) == list(slow.items())
    assert len(list(fast.items())) == len(refs)
