"""Attributes of files as JSON."""

import json

import numpy as np
from support.cases import cases

from chunkmill.scans.hdf5 import text_or_numbers

ATTRIBUTES = {
    "Latin-1": ("\u00b0C".encode("latin-1"), "\u00b0C"),
    "UTF-8": ("\u00b0C".encode(), "\u00b0C"),
    "bytes that were decoded": ("\udcb0C", "\u00b0C"),
    "an empty text": (b"", ""),
    "a list of texts": (np.array([b"a", b"bc"]), ["a", "bc"]),
    "a list of one text": (np.array(["abc"], dtype=object), "abc"),
    "a number": (np.float32(0.5), 0.5),
    "a list of one number": (np.array([-40], ">i2"), -40),
    "a table": (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "nothing": (np.array([]), []),
    "a complex number": (np.complex64(1j), "1j"),
    "lists of other lengths": (np.array([np.arange(2), np.arange(3)], dtype=object), [[0, 1], [0, 1, 2]]),
    "fields": (np.array((1, b"a"), dtype="i4,S1")[()], [1, "a"]),
}


@cases("kind", ATTRIBUTES)
def test_attributes_become_json(kind):
    value, expected = ATTRIBUTES[kind]
    assert json.loads(json.dumps(text_or_numbers(value))) == expected
