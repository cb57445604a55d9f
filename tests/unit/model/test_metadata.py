from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from chunkmill.model.metadata import ChunkKeyEncoding

CASES = [
    (ChunkKeyEncoding("", ".", "0"), (1, 0, 2), "1.0.2"),  # Zarr v2
    (ChunkKeyEncoding("", "/", "0"), (10,), "10"), (ChunkKeyEncoding("", "/", "0"), (), "0"),
    (ChunkKeyEncoding("c/", "/", "c"), (1, 0), "c/1/0"),  # Zarr v3
    (ChunkKeyEncoding("c.", ".", "c"), (1, 0), "c.1.0"), (ChunkKeyEncoding("c/", "/", "c"), (), "c"),
    (ChunkKeyEncoding("c", "/", "c"), (1, 0), "c1/0"),  # the draft of 2022
    (ChunkKeyEncoding("", "/", "0", reverse=True), (1, 0, 2), "2/0/1"),  # N5
]  # fmt: skip


@cases(("encoding", "coords", "key"), CASES)
def test_keys(encoding, coords, key):
    assert encoding.encode(coords) == key
    assert encoding.decode(key, len(coords)) == coords


@cases(
    "key",
    [
        "", "1", "1.2.3", "01.2", "+1.2", " 1.2", "1_0.2", "-1.2", "1..2", "1.", "a.b", "1/2", ".zarray", "\u0661.2",
        "1.2\n",
    ],
)  # fmt: skip
def test_what_is_no_key(key):
    assert ChunkKeyEncoding("", ".", "0").decode(key, 2) is None


def test_prefix_and_scalar():
    assert ChunkKeyEncoding("c/", "/", "c").decode("1/2", 2) is None
    assert ChunkKeyEncoding("c/", "/", "c").decode("0", 0) is None


@given(
    st.sampled_from(["", "c", "c/", "c."]),
    st.sampled_from("./"),
    st.booleans(),
    st.lists(st.integers(0, 10**20), max_size=4),
)
def test_keys_round_trip(prefix, separator, reverse, coords):
    encoding = ChunkKeyEncoding(prefix, separator, "0", reverse=reverse)
    assert encoding.decode(encoding.encode(tuple(coords)), len(coords)) == tuple(coords)
