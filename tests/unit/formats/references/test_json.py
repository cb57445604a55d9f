"""Reference sets in JSON: the specification's examples, every spelling of a value, and what must be refused."""

import json
import time

import pytest
from support.cases import cases, refusals

import chunkmill.formats.references.json as module
import chunkmill.formats.references.template as gen_module
from chunkmill.errors import MetadataError
from chunkmill.formats.references.json import emit_reference_json, is_reference_json, parse_reference_json
from chunkmill.model.references import Reference

# references.txt, "Version 1"
GEN = {
    "key": "gen_key{{i}}", "url": "http://{{u}}_{{i}}", "offset": "{{(i + 1) * 1000}}", "length": "1000",
    "dimensions": {"i": {"stop": 5}},
}  # fmt: skip
EXAMPLE = {
    "version": 1, "templates": {"u": "server.domain/path", "f": "{{c}}"}, "gen": [GEN],
    "refs": {
        "key0": "data", "key1": ["http://target_url", 10000, 100], "key2": ["http://{{u}}", 10000, 100],
        "key3": ["http://{{f(c='text')}}", 10000, 100],
    },
}  # fmt: skip
EXPANDED = {
    "key0": "data", "key1": ["http://target_url", 10000, 100], "key2": ["http://server.domain/path", 10000, 100],
    "key3": ["http://text", 10000, 100], "gen_key0": ["http://server.domain/path_0", 1000, 1000],
    "gen_key1": ["http://server.domain/path_1", 2000, 1000], "gen_key2": ["http://server.domain/path_2", 3000, 1000],
    "gen_key3": ["http://server.domain/path_3", 4000, 1000], "gen_key4": ["http://server.domain/path_4", 5000, 1000],
}  # fmt: skip


def parsed(document):
    return parse_reference_json(document if isinstance(document, bytes) else json.dumps(document).encode())


def flat(references):
    """The entries of the set as they are written."""
    return json.loads(emit_reference_json(references))["refs"]


def test_the_specification_s_example():
    assert flat(parsed(EXAMPLE)) == EXPANDED


VALUES = [  # and what `tests/properties/test_references.py` draws
    ({"zarr_format": 2, "a": 2**60 + 1}, Reference(None, data=b'{"zarr_format": 2, "a": 1152921504606846977}')),
    ("hello ", Reference(None, data=b"hello ")), ("base64:AAH/", Reference(None, data=b"\x00\x01\xff")),
    ("é\u0000", Reference(None, data=b"\xc3\xa9\x00")), (["u", 0, 0], Reference("u", 0, 0)),
    ([None, 10, 5], Reference(None, 10, 5)), ([None], Reference(None)),
    (["http://x/{{u}}"], Reference("http://x/{{u}}")), (["u", 2**63 - 1, 2**40], Reference("u", 2**63 - 1, 2**40)),
]  # fmt: skip


@cases("version", [0, 1])
@cases(("value", "expected"), VALUES)
def test_values(value, expected, version):
    document = {"x/0": value, ".zgroup": {}}
    references = parsed(document if version == 0 else {"version": 1, "refs": document})
    assert references.locate("x/0") == expected
    again = parsed(emit_reference_json(references))
    assert dict(again.items()) == dict(references.items())


BAD_VALUES = [
    ["u", 1], ["u", 1, 2, 3], [], [1, 2, 3], [["u"], 2, 3], [{}], ["u", -1, 5], ["u", 1, -5], ["u", 1.0, 5],
    ["u", "1", 5], ["u", True, 5], ["u", None, 5], ["u", 2**63, 5], ["u", 10**400, 5], ["u", 1, 1e300], 5, None, True,
    "base64:!!", "base64:AAA", "\ud800",
]  # fmt: skip


@cases("many", [False, True])
@cases("value", BAD_VALUES)
def test_bad_values_are_refused_by_name(value, many):
    others = {f"x/{i}.0": ["u", i, 1] for i in range(500)} if many else {}
    with pytest.raises(MetadataError, match="bad/0"):
        parsed(others | {"bad/0": value})


BAD_DOCUMENTS = [
    ("in UTF-8", b""), ("in UTF-8", b"{"), ("in UTF-8", b'{"x/0": ["u"]} {}'), ("in UTF-8", b"\xff\xfe"),
    ("in UTF-8", b'{"x": "\xff"}'), ("in UTF-8", b"[" * 100_000), ("in UTF-8", b'{"x": ' * 100_000),
    ("document: got []", b"[]"), ("document: got 'x'", b'"x"'), ("version: got 2", b'{"version": 2, "refs": {}}'),
    ("version: got '1'", b'{"version": "1", "refs": {}}'), ("version: got True", b'{"version": true, "refs": {}}'),
    ("refs: got []", b'{"version": 1, "refs": []}'), ("templates: got []", b'{"version": 1, "templates": []}'),
    ("templates['u']: got 5", b'{"version": 1, "templates": {"u": 5}}'), ("gen: got {}", b'{"version": 1, "gen": {}}'),
    ("gen: got [5]", b'{"version": 1, "gen": [5]}'), ("'..' segments", b'{"../outside": "x"}'),
    ("'..' segments", b'{"x/../../0": ["u"]}'), ("'..' segments", b'{"": "x"}'),
]  # fmt: skip


test_bad_documents = refusals(BAD_DOCUMENTS, parsed)


def test_sets_in_memory_hold_what_json_can():
    with pytest.raises(MetadataError, match="texts, lists, dicts, numbers and bytes"):
        module.parse_reference_dict({"x/0": {1}}, None)


def test_errors_name_the_set():
    for document in (b"[]", b'{"version": 1, "templates": {"u": "{{"}, "refs": {}}', b'{"a/0": 5}'):
        with pytest.raises(MetadataError, match=r"s3://bucket/refs\.json"):
            parse_reference_json(document, source="s3://bucket/refs.json")


def test_a_byte_order_mark_is_skipped():
    assert parsed(b'\xef\xbb\xbf{"x/0": "a"}').locate("x/0").data == b"a"


def test_infinity_and_nan_inside_documents_are_kept():
    assert parsed(b'{"x": {"a": NaN, "b": -Infinity}}').locate("x").data == b'{"a": NaN, "b": -Infinity}'


@cases("order", ["refs templates version", "templates refs unknown version", "unknown version templates refs"])
def test_members_may_come_in_any_order(order):
    members = {"refs": {"x/0": ["{{u}}/a", 0, 1]}, "templates": {"u": "s3://b"}, "version": 1, "unknown": {"a": ["c"]}}
    references = parsed({name: members[name] for name in order.split()})
    assert {key: references.locate(key).url for key in references.keys()} == {"x/0": "s3://b/a"}  # noqa: SIM118


def test_without_a_version_refs_is_a_key():
    assert parsed({"refs": {"a": "1"}, "x/0": ["u"]}).locate("refs").data == b'{"a": "1"}'
    assert parsed({"gen": "text"}).locate("gen").data == b"text"


def test_every_process_gives_a_set_the_same_fingerprint():
    """It is in dask's names, by which a write that was cut off is known again: no order may depend on hashes."""
    refs = {f"x/{i}": [f"s3://b/{i % 7}.nc", i, 1] for i in range(40)} | {"y": ["a.nc"], "z/0": ["b.nc"]}
    assert parsed({"version": 1, "refs": refs}).fingerprint == "5f3e8507f50c20c19b9f20bfac082e49"


def test_overridden_templates():
    document = {"version": 1, "templates": {"u": "a"}, "refs": {"x/0": ["{{u}}/f"]}}
    references = parse_reference_json(json.dumps(document).encode(), template_overrides={"u": "b"})
    assert references.locate("x/0").url == "b/f"


def test_keys_are_no_templates():
    document = {"version": 1, "templates": {"u": "a"}, "refs": {"{{u}}": ["{{u}}"]}}
    assert parsed(document).locate("{{u}}").url == "a"


# --- blocks


def test_sets_of_several_blocks(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 7)
    document = {"a": "text"} | {f"x/{i}.{i}": [f"file {i % 7}", i, 5] for i in range(300)} | {"z": ["u"]}
    assert flat(parsed(document)) == document


# --- gen


def generated(**gen):
    templates, refs = {"u": "http://h", "f": "{{c}}.nc"}, {"x/0.0": ["old", 1, 1]}
    return parsed({"version": 1, "templates": templates, "gen": [gen], "refs": refs})


def test_several_dimensions_the_first_slowest():
    ranges = {"offset": "{{(i * 3 + j) * 10}}", "length": "10", "dimensions": {"i": {"stop": 2}, "j": [5, 7, 6]}}
    references = generated(key="x/{{i}}.{{j}}", url="{{u}}/{{ f(c=i) }}", **ranges)
    made = {f"x/{i}.{j}": [f"http://h/{i}.nc", (i * 3 + j) * 10, 10] for i in range(2) for j in (5, 7, 6)}
    assert flat(references) == {"x/0.0": ["old", 1, 1]} | made


def test_generated_references_replace_others():
    references = generated(key="x/{{i}}.0", url="new", dimensions={"i": [0]})
    assert flat(references) == {"x/0.0": ["new"]}


GENS = {
    "start and step": ({"key": "y/{{i}}", "url": "a{{i}}", "dimensions": {"i": {"start": 4, "stop": 0, "step": -2}}},
     ["y/2", "y/4"]),
    "empty": ({"key": "y/{{i}}", "url": "a", "dimensions": {"i": {"stop": 0}}}, []),
    "no chunk coords": ({"key": "{{f(c=i)}}", "url": "a", "dimensions": {"i": [3]}}, ["3.nc"]),
    "coords beside text": ({"key": "y/a{{i}}.0", "url": "a", "dimensions": {"i": [3]}}, ["y/a3.0"]),
    "slashes": ({"key": "y/c/{{i}}/{{i + 1}}", "url": "a", "dimensions": {"i": [3]}}, ["y/c/3/4"]),
    "mixed": ({"key": "y/{{i}}/{{i}}.0", "url": "a", "dimensions": {"i": [3]}}, ["y/3/3.0"]),
    "adjacent": ({"key": "y/{{i}}{{i}}", "url": "a", "dimensions": {"i": [3]}}, ["y/33"]),
    "a variable hides a template": ({"key": "y/{{u}}", "url": "a", "dimensions": {"u": [3]}}, ["y/3"]),
}  # fmt: skip


@cases(("gen", "keys"), GENS.values())
def test_gen(gen, keys):
    assert sorted(set(generated(**gen).keys()) - {"x/0.0"}) == keys


@cases(("offset", "length", "both"), [("{{i}}{{i}}", "1{{i}}", [33, 13]), (" 5 ", "{{i + 2}}", [5, 5]), (7, 8, [7, 8])])
def test_offsets_are_rendered_and_then_integers(offset, length, both):
    found = generated(key="y/{{i}}", url="a", offset=offset, length=length, dimensions={"i": [3]}).locate("y/3")
    assert [found.offset, found.length] == both


ONE = {"key": "y/{{i}}", "url": "a", "dimensions": {"i": [1]}}
BAD_GENS = [
    ("key: got None, expected a string", ONE | {"key": None}), ("url: got None", ONE | {"url": None}),
    ("one or more variables", ONE | {"dimensions": None}), ("one or more variables", ONE | {"dimensions": {}}),
    ("integers 'stop' and", ONE | {"dimensions": {"i": {"start": 1}}}),
    ("integers 'stop' and", ONE | {"dimensions": {"i": {"stop": 1, "step": 0}}}),
    ("integers 'stop' and", ONE | {"dimensions": {"i": {"stop": 1.5}}}),
    ("or an object with", ONE | {"dimensions": {"i": ["a"]}}),
    ("integers 'stop' and", ONE | {"dimensions": {"i": {"stop": 2**62}}}),
    ("or an object with", ONE | {"dimensions": {"i": [2**62]}}),
    ("'offset' and 'length' both", ONE | {"offset": "1"}), ("'offset' and 'length' both", ONE | {"length": "1"}),
    ("length: got '-8', expected integers in", ONE | {"offset": "{{i - 9}}", "length": "1"}),
    ("got 'x', expected integers in", ONE | {"offset": "x", "length": "1"}),
    ("offset: got [1], ", ONE | {"offset": [1]}),
    ("9', expected integers in", ONE | {"offset": "9" * 25, "length": "1"}),
    ("no Getattr", ONE | {"key": "y/{{i.__class__}}"}),
    (f"{2**63}', expected integers in", ONE | {"offset": f"{2**63}", "length": "1"}),
    ("'..' segments", ONE | {"key": "../{{i}}"}),
    ("integers are below", ONE | {"offset": "{{i * 1000}}", "length": "1", "dimensions": {"i": [2**60]}}),
]  # fmt: skip


test_bad_gens = refusals(BAD_GENS, lambda gen: generated(**gen))


def test_a_product_of_ten_to_the_twelve_is_refused_before_it_exists():
    began = time.process_time()
    with pytest.raises(MetadataError, match=r"1000000000000 references', expected at most 10000000: write .* parquet"):
        generated(key="y/{{i}}.{{j}}", url="a", dimensions={"i": {"stop": 10**6}, "j": {"stop": 10**6}})
    with pytest.raises(MetadataError):
        generated(key="y/{{i}}", url="a", dimensions={"i": {"stop": 10**18}})
    assert time.process_time() - began < 1


def test_many_small_gens_count_together(monkeypatch):
    monkeypatch.setattr(gen_module, "MAX_GENERATED", 10)
    gens = [{"key": f"y{k}/{{{{i}}}}", "url": "a", "dimensions": {"i": {"stop": 6}}} for k in range(2)]
    with pytest.raises(MetadataError, match="12 references"):
        parsed({"version": 1, "gen": gens})


def test_expanded_texts_are_bounded_together(monkeypatch):
    monkeypatch.setattr(gen_module, "_MAX_EXPANDED", 1000)
    with pytest.raises(MetadataError, match="1000 of a set"):
        generated(key="y/a{{i}}", url="a", dimensions={"i": {"stop": 400}})
    refs = {f"y/{i}": ["{{u}}" + "x" * i] for i in range(60)}
    with pytest.raises(MetadataError, match="1000 of a set"):
        parsed({"version": 1, "templates": {"u": "v"}, "refs": refs})


def test_the_last_value_of_a_variable_without_a_place_in_the_key_counts():
    dimensions = {"i": [5, 6], "j": {"stop": 4}, "k": [7, 8], "my dim": [1]}
    references = generated(key="y/{{j // 2}}", url="{{k}}-{{i}}", dimensions=dimensions)
    assert flat(references) == {"x/0.0": ["old", 1, 1], "y/0": ["8-6"], "y/1": ["8-6"]}


# --- telling


@cases(
    ("document", "expected"),
    [
        (EXAMPLE, True), ({".zgroup": "{}", "x/0": ["a"]}, True),
        ({"zarr.json": {"zarr_format": 3}, "x/zarr.json": {}}, True), ({"air/.zarray": {}, "air/0": ["u"]}, True),
        ({"version": 1, "refs": {}}, True), ({"zarr_format": 2, "shape": [1]}, False),
        ({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"metadata": {}}}, False),
        ({"metadata": {".zgroup": {}}, "zarr_consolidated_format": 1}, False), ({"n5": "4.0.0"}, False),
        ({"version": 1, "name": "something else"}, False), ({"refs": {"x/0": ["a"]}, "version": 1}, True),
        ({"templates": {"u": "http://h"}, "gen": [], "version": 1}, True), ({"x/.zattrs": "{}"}, True),
        ({".zmetadata": "{}"}, True), ({"x/0": ["a.nc", 0, 10]}, True), ({"x/0": ["a.nc", "b.nc", "c.nc"]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_is_reference_set(document, expected):
    assert is_reference_json(json.dumps(document).encode()) is expected
    assert is_reference_json(json.dumps(document, indent=2).encode()[:4096]) is expected
    for head in (b'{"refs": {"x/0": ["a', b'{"templates": {"u": "http'):  # the version may come later
        assert is_reference_json(head)
    assert not is_reference_json(b'{"refs": {"x/0": ["a"]}, "name": "x", "mo')


def test_emitted_text_is_what_was_read():
    """Bytes that are no text, or a text that would be taken for base64, are written in base64."""
    refs = {"a": "text", "b": "base64:/wA=", "c": "base64:YmFzZTY0Ong="}
    assert flat(parsed(refs)) == refs


def test_keys_without_a_chunk_number_are_left_out():
    """kerchunk 0.2.10 writes them for scalars of GRIB files; fsspec finds no such keys."""
    document = json.dumps({key: ["a.grib", 0, 9] for key in ["f/", "e/", "d/", "y/", "x/", "z/", "x/0"]}).encode()
    with pytest.warns(UserWarning, match="<references>: references without a .*: 'd/', 'e/', 'f/', 'x/', 'y/'$"):
        references = parse_reference_json(document)
    assert list(references.keys()) == ["x/0"]
    for key in ("/", "../", "./"):
        with pytest.raises(MetadataError, match="without empty"):
            parse_reference_json(json.dumps({key: ["a.grib", 0, 9]}).encode())
