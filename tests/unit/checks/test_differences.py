"""Values differ in any bit."""

import numpy as np
from support.cases import cases

from chunkmill.codecs.elements import differing


@cases(
    ("dtype", "values", "other"),
    [
        ("u1", [1, 2, 3], [1, 9, 3]), ("c16", [1, 2j, 3], [1, 3j, 3]), ("S3", [b"a", b"b", b"c"], [b"a", b"x", b"c"]),
        ("S5", [b"a", b"b", b"c"], [b"a", b"bbbbb", b"c"]), ("U2", ["a", "b", "c"], ["a", "bb", "c"]),
        ("i4,f8", [(1, 2.0), (1, 2.0), (1, 2.0)], [(1, 2.0), (1, 3.0), (1, 2.0)]),
        ("T", ["a", "b", "c"], ["a", "", "c"]), ("O", ["a", "1", "c"], ["a", 1, "c"]),
    ],
)  # fmt: skip
def test_elements_that_differ(dtype, values, other):
    dtype = np.dtypes.StringDType() if dtype == "T" else np.dtype(dtype)
    a, b = np.array(values, dtype), np.array(other, dtype)
    assert differing(a, b).tolist() == [False, True, False]
    assert not differing(a, a).any()
