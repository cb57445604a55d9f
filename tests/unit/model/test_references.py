"""Reference sets in columns: every spelling of a key comes back, what is large stays small."""

import pickle
import re
from collections import OrderedDict
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from chunkmill.errors import MetadataError
from chunkmill.model import reference_builder
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import Reference, one_in_process, split_key

SPLITS = [
    ("x/0", ("x/", "/", "0")), ("x/0.1.2", ("x/", ".", "0.1.2")), ("x/c/0/1", ("x/c/", "/", "0/1")),  # v3
    ("c/0/1", ("c/", "/", "0/1")),  # v3 at the root
    ("0.0", ("", ".", "0.0")),  # v2 at the root
    ("5", ("", "/", "5")), ("temp2/0.0", ("temp2/", ".", "0.0")),  # a name that ends with a digit
    ("0/0.1", ("0/", ".", "0.1")),  # a multiscale level that is a digit
    ("a/0/1/2", ("a/", "/", "0/1/2")),  # the same, not to be told from coords: only spelling matters
    ("temp2", None), ("x/.zarray", None), ("x/c", None), ("", None),
]  # fmt: skip


@cases(("key", "expected"), SPLITS)
def test_split(key, expected):
    assert split_key(key) == expected


@contextmanager
def forms(few, loose):
    """Let so few keys of one form make a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_builder, "_FEW", few)
        patch.setattr(reference_builder, "_LOOSE", loose)
        yield


def built(entries):
    builder = ReferenceBuilder()
    for key, value in entries.items():
        if isinstance(value, bytes):
            builder.add_data(key, value)
        else:
            builder.add(key, *value)
    references = builder.build()
    assert len(builder.build()) == 0  # it is empty afterwards
    return references


@cases("few", [1, 100])
def test_locate_says_what_was_added(few):
    with forms(few, 0):
        references = built({".zgroup": b"{}", "x/0.0": ("a.nc", 8, 100), "x/0.1": ("b.nc",), "x/1.0": (None, 0, 5)})
    assert references.locate(".zgroup") == Reference(None, data=b"{}")
    assert references.locate("x/0.0") == Reference("a.nc", 8, 100)
    assert references.locate("x/0.1") == Reference("b.nc", 0, None)
    assert references.locate("x/1.0") == Reference(None, 0, 5)
    for absent in ("x/1.1", "x/0", "x/0.0.0", "x/00.0", "x/+0.0", "y/0.0", "x", "", "x/0/0", "x/0.\u0661"):
        assert references.locate(absent) is None
    assert len(references) == 4
    assert "x/0.0" in references
    assert "x/9.9" not in references


def test_keys_that_wait_become_arrays_from_time_to_time(monkeypatch):
    monkeypatch.setattr(reference_builder, "_MOST_WAITING", 2)
    builder, sizes = ReferenceBuilder(), []
    for i in range(5):
        builder.add(f"{'xyz'[i % 3]}/{i}", "u", i)
        sizes.append(len(builder._keys))
    assert sizes == [1, 0, 1, 0, 1]
    assert builder.build().locate("x/3") == Reference("u", 3)


def built_at_once(keys):
    builder = ReferenceBuilder()
    builder.url_id("u")
    builder.add_many(keys, [0] * len(keys), range(len(keys)), [1] * len(keys))
    return builder.build()


segments = st.sampled_from(["a", "b2", "c", "0", "12", "x.y", "é", "a\nb", "%d"])
coords = st.lists(st.integers(0, 40), min_size=1, max_size=3)
tails = st.one_of(
    coords.map(lambda c: ".".join(map(str, c))),
    coords.map(lambda c: "/".join(map(str, c))),
    st.sampled_from([".zarray", "01", "1.02", "1_0", "+1", "-1", "1..2", "٣", "9" * 30, "1." * 40 + "1", ".5", "5."]),
)
keys = st.builds(lambda head, tail: "/".join([*head, tail]), st.lists(segments, max_size=3), tails)
entries = st.one_of(
    st.binary(max_size=5),
    st.tuples(st.sampled_from(["u", "v", None]), st.integers(0, 2**62), st.one_of(st.none(), st.integers(0, 2**40))),
)


@given(st.dictionaries(keys, entries, max_size=60), st.integers(1, 50))
def test_every_key_comes_back(wanted, few):
    """Whatever the keys look like, and however many of them share a form, the set is a dict."""
    with forms(min(few, 3), few):
        references = built(wanted)
    expected = {key: Reference(None, data=v) if isinstance(v, bytes) else Reference(*v) for key, v in wanted.items()}
    assert {key: references.locate(key) for key in wanted} == expected
    assert sorted(references.keys()) == sorted(wanted)
    assert dict(references.items()) == expected
    for prefix in {"", *(key[: i + 1] for key in wanted for i, c in enumerate(key) if c == "/")}:
        below = [key[len(prefix) :] for key in wanted if key.startswith(prefix)]
        names = {name.partition("/")[0] + name.partition("/")[1] for name in below}
        assert references.list_dir(prefix) == sorted(names)
        assert sorted(references.keys(prefix)) == sorted(key for key in wanted if key.startswith(prefix))
    copy = pickle.loads(pickle.dumps(references))
    assert dict(copy.items()) == expected
    assert copy.fingerprint == references.fingerprint


@given(st.lists(st.tuples(keys, st.integers(0, 100)), max_size=80), st.integers(1, 20))
def test_the_last_of_equal_keys_counts(added, few):
    with forms(2, few):
        builder = ReferenceBuilder()
        for key, offset in added:
            builder.add(key, "u", offset, 1)
        references = builder.build()
        expected = dict(added)
        rows = [(key, ("u", offset, 1)) for key, offset in expected.items()]
        assert built(dict(rows)).fingerprint == built(dict(rows[::-1])).fingerprint
    assert {key: references.locate(key).offset for key in expected} == expected
    assert len(references) == len(expected)


@given(st.lists(keys, min_size=1, max_size=300))
def test_many_at_once_is_one_by_one(added):
    one, many = ReferenceBuilder(), ReferenceBuilder()
    for i, key in enumerate(added):
        one.add(key, "u", i, 1)
    many.add_many(added, np.full(len(added), many.url_id("u")), np.arange(len(added)), np.ones(len(added), int))
    assert dict(one.build().items()) == dict(many.build().items())


@cases("key", ["", "/", "a//0", "../x/0", "a/../0", "./0", "a/.", "x/0/", "a\0b", "..", "/x/0"])
def test_keys_that_leave_the_store_are_refused(key):
    said = f"in '<references>', reference {key!r}: got {key!r}, expected a key without empty"
    with pytest.raises(MetadataError, match=re.escape(said)):
        built({key: b"", **{f"y/{i}": b"" for i in range(300)}})
    with pytest.raises(MetadataError, match="segments"):
        built_at_once([key] * 300)


NO_NUMBERS = [(0, -1, 1), (0, 0, -2), (0, 2**63, 1), (0, 0, 2**63), (-2, 0, 0), (2**63, 0, 0)]


@cases(("url_id", "offset", "length"), NO_NUMBERS)
def test_numbers_that_are_none(url_id, offset, length):
    wrong = {"url id": url_id, "offset": offset, "length": length}
    name, got = next(item for item in wrong.items() if not 0 <= item[1] < 2**63)
    said = rf"in 's3://b', reference '{{}}, expected {name} in 0\.\.2\*\*63-1"
    with pytest.raises(MetadataError, match=said.format(rf"\*': got \({got}, {got}\)")):
        ReferenceBuilder("s3://b").add_many(["x/0"], [url_id], [offset], [length])
    one_by_one = said.format(rf"(x/0|\*)': got \(?{got}.*")
    with pytest.raises(MetadataError, match=one_by_one) if url_id == 0 else nullcontext():
        ReferenceBuilder("s3://b").add("x/0", "u", offset, length)


@cases(("offsets", "dtype"), [([1.0], "float64"), ([[1], [2, 3]], "object"), ([2**70], "object")])
def test_floats_are_no_offsets(offsets, dtype):
    with pytest.raises(MetadataError, match=dtype):
        ReferenceBuilder().add_many(["x/0"], [0], offsets, [1])


def test_ten_million_of_one_array_take_little_memory():
    """Held below 400 MB (here: a tenth of them below a tenth), without a dict and without strings."""
    n = 1_000_000
    builder = ReferenceBuilder()
    numbers = np.arange(n)
    coords = np.stack(np.unravel_index(numbers, (1000, 10, 100)), axis=-1)
    ids = np.array([builder.url_id(f"s3://bucket/{i}.nc") for i in range(1000)])[numbers // 1000]
    builder.add_table("air/", ".", coords, ids, numbers * 123_456, numbers % 77 + 100_000)
    references = builder.build()
    assert len(pickle.dumps(references)) < 40_000_000 / 2
    assert references.locate("air/999.9.99") == Reference(
        "s3://bucket/999.nc", 123_456 * (n - 1), 100_000 + (n - 1) % 77
    )
    assert references.list_dir("") == ["air/"]


def test_a_table_whose_prefix_ends_in_digits_is_found():
    coords = np.stack(np.unravel_index(np.arange(400), (20, 20)), axis=-1)
    for prefix in ("level/0/", "level/"):
        builder = ReferenceBuilder()
        builder.add(f"{prefix}3/4", "u", 1000, 1)  # the table has it too, and is added later
        builder.add_table(prefix, "/", coords, np.zeros(400, int), np.arange(400), np.ones(400, int))
        assert builder.build().locate(f"{prefix}3/4").offset == 64


def test_hostile_coords_do_not_overflow():
    keys = [f"x/{10**17 + i}.{10**17 - i}" for i in range(300)]
    references = built_at_once(keys)
    assert [references.locate(key).offset for key in keys] == list(range(300))


@pytest.mark.parametrize("n", [20, 300])
def test_a_table_has_as_many_coords_as_numpy_has_axes(n):
    for n_coords in (32, 33):
        keys = ["x/" + ".".join(["0"] * (n_coords - 1) + [str(i)]) for i in range(n)]
        references = built_at_once(keys)
        assert [references.locate(key).offset for key in keys] == list(range(n))
        assert list(references.tables) == ([("x/", ".", 32)] if n_coords == 32 else [])


def test_many_small_arrays_do_not_cost_a_table_each():
    references = built({f"v{i}/0": ("u", i, 1) for i in range(2000)})
    assert not references.tables
    assert references.locate("v1999/0").offset == 1999


def test_sets_that_differ_in_anything_differ_in_their_fingerprints():
    def made(url="u", data=b"x", name="d", prefix="x/", step=2, **columns):
        builder = ReferenceBuilder()
        builder.add_data(name, data)
        ids = builder.url_id(url), builder.url_id("other")
        lengths, offsets, last = columns.get("lengths", 1), columns.get("offsets", 0), columns.get("last", 0)
        urls = [ids[0]] * 19 + [ids[last]]
        coords, numbers = np.arange(20)[:, None] * step, np.arange(20)
        builder.add_table(prefix, ".", coords, urls, numbers + offsets, numbers + lengths)
        return builder.build()

    others = [{"url": "v"}, {"data": b"y"}, {"name": "e"}, {"prefix": "y/"}]
    others += [{"step": 1}, {"step": 3}, {"lengths": 2}, {"offsets": 1}, {"last": 1}]
    assert len({made(**each).fingerprint for each in [{}, *others]}) == 10
    assert made().fingerprint == made().fingerprint


def test_one_set_is_kept_in_a_process(monkeypatch):
    """However often it arrives, and a few of them; one that was replaced is told."""
    monkeypatch.setattr("chunkmill.model.references._sets", OrderedDict())
    sets = [built({"x/0": ("u", i, 1)}) for i in range(9)]
    copies = [pickle.loads(pickle.dumps(each)) for each in sets]
    again = [pickle.loads(pickle.dumps(each)) for each in sets[1:]]
    assert all(one is other for one, other in zip(copies[1:], again, strict=True))
    assert pickle.loads(pickle.dumps(sets[0])) is not copies[0]  # the oldest is given up
    for read, got in ((lambda: None, "nothing"), (lambda: sets[1], "another set")):
        said = f"in 'f.json', document: got '{got}', expected no change since it was opened"
        with pytest.raises(MetadataError, match=said):
            one_in_process("?", "f.json", read)


def test_a_subset_has_only_its_keys():
    references = built(
        {f"x/{i}.0": (f"s3://bucket/{i}.nc", i, 10) for i in range(5000)}
        | {"x/.zarray": b"{}" * 1000, "y/0": b"inline"}
    )
    part = references.subset(["x/7.0", "x/8.0", "y/0", "absent/0"])
    assert dict(part.items()) == {key: references.locate(key) for key in ("x/7.0", "x/8.0", "y/0")}


def test_urls_can_be_mapped_afterwards():
    builder = ReferenceBuilder()
    builder.add("x/0", "{{u}}", 0, 1)
    builder.map_urls(lambda url: url.replace("{{u}}", "s3://b/f"))
    builder.add("x/1", "{{u}}", 0, 1)
    builder.add("x/2", "s3://b/f", 0, 1)
    references = builder.build()
    assert [references.locate(f"x/{i}").url for i in range(3)] == ["s3://b/f", "{{u}}", "s3://b/f"]
    assert not any(key in references for key in ("x/01", "x/3", "x/11", "x/", "x//1", "x/1.0", "x/."))


def test_columns_are_as_long_as_there_are_keys():
    with pytest.raises(MetadataError, match="as many as keys"):
        ReferenceBuilder().add_many(["x/0", "x/1"], [0], [0], [0])
    with pytest.raises(MetadataError, match="as many as keys"):
        ReferenceBuilder().add_table("x/", "/", np.zeros((2, 1), int), [0], [0], [0])
    with pytest.raises(MetadataError, match="not negative"):
        ReferenceBuilder().add_table("x/", "/", np.array([[0], [-1]]), [0, 0], [0, 0], [0, 0])
    builder = ReferenceBuilder()
    builder.add_table("x/", "/", np.zeros((0, 1), int), [], [], [])
    builder.add_many([], [], [], [])
    assert len(builder.build()) == 0
