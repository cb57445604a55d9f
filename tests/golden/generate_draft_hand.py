"""Write by hand the golden stores of the Zarr v3 draft of 25 May 2022, from its text. Command: zarr_v3_draft/PROVENANCE.md.

Needs numpy, and numcodecs for blosc. Metadata goes through ``json``, chunks through ``numpy.tobytes``: no Zarr library.
"""

import gzip
import json

import n5_cases
import numcodecs
import numpy as np
from generate_hand import corrupt, put

CORE = "https://purl.org/zarr/spec/core/3.0"
CODECS = "https://purl.org/zarr/spec/codecs/"
DATETIME = "https://purl.org/zarr/spec/extensions/data-types/datetime/1.0"
PAD = 99  # outside the array: no value of it
JSON = {"type": "json", "metadata_key_suffix": ".json"}
ENTRY = {"zarr_format": CORE, "metadata_encoding": JSON, "extensions": []}


def gz(data):
    return gzip.compress(data, 1, mtime=0)


def blosc(shuffle, itemsize):
    return lambda data: bytes(numcodecs.Blosc("lz4", 5, shuffle).encode(np.frombuffer(data, "V%d" % itemsize)))


def put_json(store, key, value):
    put(store, key, json.dumps(value, indent=4, ensure_ascii=False).encode())


def meta_key(path, kind, suffix=".json"):
    """`meta/<P>.array.json`; `meta/array.json` for the root."""
    return "meta/%s.%s%s" % (path, kind, suffix) if path else "meta/%s%s" % (kind, suffix)


def chunk_key(path, coords, separator):
    return ("data/%s/c" % path if path else "data/c") + separator.join(map(str, coords))


def group(store, path, attributes, **more):
    put_json(store, meta_key(path, "group"), {"attributes": dict(attributes), **more})


def json_fill(case, dtype):
    value = np.asarray(case.fill_value).astype(dtype)[()]
    if dtype.kind == "c":
        return [float(value.real), float(value.imag)]
    if dtype.kind == "V":
        return "0x" + "00" * dtype.itemsize
    return value.item()


def array(
    store, case, document={}, order="C", byte_order="<", encode=bytes, separator="/", suffix=".json", change=bytes
):
    """An array; `document` overrides members (`...` drops one), `change(coords, data)` damages encoded chunks."""
    data = case.expected()
    native = data.dtype
    members = {
        "shape": list(data.shape),
        "data_type": "r%d" % (8 * native.itemsize) if native.kind == "V" else native.name,
        "chunk_grid": {"type": "regular", "chunk_shape": list(case.chunks), "separator": separator},
        "chunk_memory_layout": order,
        "fill_value": json_fill(case, native),
        "extensions": [],
        "attributes": dict(case.attributes),
        **document,
    }
    members = {name: value for name, value in members.items() if value is not ...}
    put_json(store, meta_key(case.path, "array", suffix), members)
    stored = native if native.kind in "Vb" else native.newbyteorder(byte_order)
    for coords in case.indices() if data.size else ():
        chunk = np.full(case.chunks, bytes(native.itemsize) if native.kind == "V" else PAD, stored)
        part = data[case.region(coords)]
        chunk[tuple(slice(n) for n in part.shape)] = part
        # reversed axes written in C order are the F layout
        out = encode((chunk.T if order == "F" else chunk).tobytes("C"))
        put(store, chunk_key(case.path, coords, separator), out if any(coords) else change(out))


def codec(name, **configuration):
    return {"type": CODECS + name + "/1.0", "configuration": configuration}


def document(**members):
    return {"document": members}


def codecs(*list_of, **more):
    return {"document": {"codecs": list(list_of)}, **more}


def extension_dtype(uri, type, fallback=..., fill=0):
    about = {"extension": uri, "type": type, "fallback": fallback}
    return document(data_type={name: value for name, value in about.items() if value is not ...}, fill_value=fill)


def grid(**more):
    return document(chunk_grid={"type": "regular", "chunk_shape": [4, 3], "separator": "/", **more})


GZIP, BIG = codec("gzip", level=1), codec("endian", endian="big")
BLOSC = [codec("blosc", shuffle=shuffle, cname="lz4", clevel=5, blocksize=0) for shuffle in range(3)]
CODEC_NODES = {
    "absent": {},
    "empty": codecs(),
    "gzip": codecs(GZIP, encode=gz),
    "gzip_no_configuration": codecs({"type": CODECS + "gzip/1.0"}, encode=gz),
    "blosc": codecs(BLOSC[1], encode=blosc(1, 2)),
    "blosc_noshuffle": codecs(BLOSC[0], encode=blosc(0, 2)),
    "blosc_bitshuffle": codecs(BLOSC[2], encode=blosc(2, 2)),
    "endian_big": codecs(BIG, byte_order=">"),
    "endian_little": codecs(codec("endian", endian="little")),
    "endian_big_gzip": codecs(BIG, GZIP, byte_order=">", encode=gz),
    "endian_big_blosc": codecs(BIG, BLOSC[1], byte_order=">", encode=blosc(1, 2)),
    "gzip_gzip": codecs(GZIP, codec("gzip", level=9), encode=lambda data: gzip.compress(gz(data), 9, mtime=0)),
    "gzip_members": codecs(GZIP, encode=lambda data: gz(data[:7]) + gz(data[7:])),
    "endian_complex": codecs(BIG, byte_order=">"),
    "endian_int8": codecs(BIG),
}
UNKNOWN = "https://example.org/zarr/extension/foo"
EXTENSIONS = {
    "ignored": {"extensions": [{"extension": UNKNOWN, "must_understand": False, "configuration": {"foo": "bar"}}]},
    "required": {"extensions": [{"extension": UNKNOWN, "must_understand": True}]},
    "unsaid": {"extensions": [{"extension": UNKNOWN}]},
}
ARRAYS = {
    "extension_fallback": extension_dtype(UNKNOWN, {"anything": [1]}, "int64"),
    "extension_fallback_numpy": extension_dtype(DATETIME, "<M8[ns]", "<i8"),
    "extension_fallback_list": extension_dtype(UNKNOWN, "decimal", ["float128", "float32", "r32"]),
    # unknown data type extension without fallback
    "extension_no_fallback": extension_dtype(UNKNOWN, "decimal"),
    # unknown data type extension, unknown fallback
    "extension_unknown_fallback": extension_dtype(UNKNOWN, "decimal", ["float128", "decimal16"]),
    "dtype_unknown": document(data_type="float128"),
    # r12 is no multiple of 8
    "dtype_r12": document(data_type="r12", fill_value="0x000"),
    "layout_f": {"order": "F"},
    "layout_f_endian_gzip": codecs(BIG, GZIP, order="F", byte_order=">", encode=gz),
    "codec_unknown": codecs({"type": "https://example.org/codecs/rot13/1.0"}),
    # a gzip of somebody else: the URI, not its last word, names a codec
    "codec_not_purl": codecs({"type": "https://example.org/codecs/gzip/1.0", "configuration": {"level": 1}}, encode=gz),
    "fill_null": document(fill_value=None),
    "fill_absent": document(fill_value=...),
    # 0x1 is not padded to the type's size
    "fill_short_hex": document(fill_value="0x1"),
    # 1.5 for an integer
    "fill_fraction": document(fill_value=1.5),
    # 40000 for int16
    "fill_range": document(fill_value=40000),
    # the draft's datetime example as printed
    "fill_null_datetime": extension_dtype(DATETIME, "<M8[ns]", "<i8", fill=None),
    "separator_dash": grid(separator="-"),
    # chunk_shape and shape differ in length
    "rank_mismatch": grid(chunk_shape=[4, 3, 1]),
    # chunk length 0 on an axis that is not empty
    "chunk_zero": grid(chunk_shape=[4, 0]),
    "suffix_meta": {"suffix": ".meta"},
    # metadata_key_suffix is empty: meta/foo/baz.array
    "suffix_empty": {"suffix": ""},
    **{"extension_array_" + name: document(**members) for name, members in EXTENSIONS.items()},
    # unknown member of the array document
    "unknown_array_member": document(dimension_names=["y", "x"]),
    # unknown member with must_understand false: the draft knows no such way out
    "unknown_array_member_lenient": document(foo={"must_understand": False}),
    "storage_transformers_empty": document(storage_transformers=[]),
    "storage_transformers": document(storage_transformers=[{"extension": UNKNOWN, "type": "foo", "configuration": {}}]),
    "chunk_grid_extension": document(chunk_grid={"extension": UNKNOWN, "type": "rectilinear", "separator": "/"}),
    "memory_layout_extension": document(chunk_memory_layout={"extension": UNKNOWN, "type": "morton"}),
    "chunk_short": {"change": lambda data: data[:-2]},
    "chunk_long": {"change": lambda data: data + b"\0\0"},
    # chunk of 0 bytes: present, so not missing
    "chunk_empty": {"change": lambda data: b""},
    # gzip chunk with a wrong checksum
    "chunk_gzip_corrupt": codecs(GZIP, encode=gz, change=corrupt),
}
ENTRIES = {
    "suffix_meta": {"metadata_encoding": {**JSON, "metadata_key_suffix": ".meta"}},
    "suffix_empty": {"metadata_encoding": {**JSON, "metadata_key_suffix": ""}},
    "metadata_encoding_extension": {"metadata_encoding": {"extension": UNKNOWN, **JSON}},
    "metadata_encoding_type": {"metadata_encoding": {**JSON, "type": "cbor"}},
    **{"extension_entry_" + name: members for name, members in EXTENSIONS.items()},
    "version_3_1": {"zarr_format": "https://purl.org/zarr/spec/core/3.1"},
    # 3.1 entry point with an unknown member: the draft says both ignore and fail
    "version_3_1_member": {"zarr_format": "https://purl.org/zarr/spec/core/3.1", "foo": 1},
    "version_4": {"zarr_format": "https://purl.org/zarr/spec/core/4.0"},
    # zarr_format is another URI
    "version_foreign": {"zarr_format": "https://example.org/zarr/spec/core/3.0"},
}
FILES = {
    "array_not_json": {"meta/foo/baz.array.json": b'{"shape": [7, 5]'},
    "array_not_object": {"meta/foo/baz.array.json": b'[\n    "shape"\n]'},
    "entry_not_json": {"zarr.json": b'{"zarr_format": "%s"' % CORE.encode()},
}


def group_options(case, node):
    """How an array of a group case is written."""
    if case.name == "dtypes_numpy":
        spelling = n5_cases.NUMPY_SPELLINGS[node.path]
        return {"document": {"data_type": spelling}, "byte_order": spelling[0] if spelling[0] in "<>" else "<"}
    if case.name == "gzip_uris":
        return codecs({**GZIP, "type": n5_cases.GZIP_URIS[node.path]}, encode=gz)
    if case.name == "codecs":
        return CODEC_NODES[node.path]
    if case.name == "fills":
        return document(fill_value=n5_cases.FILLS[node.path][1])
    if node.path == "dot":
        return {"separator": "."}
    return {}


IMPLICIT = ("implicit", "implicit/deep", "a", "a/b", "foo", "foo/baz", "data", "meta")


for case, store in n5_cases.fresh("zarr_v3_draft", "hand", "1"):
    put_json(store, "zarr.json", {**ENTRY, **ENTRIES.get(case.name, {})})
    for path, attributes in case.groups.items():
        implicit = IMPLICIT if path else ("implicit_root", "specification_listing")
        if (path or case.name) not in implicit:
            group(store, path, attributes, **({"shape": [1]} if case.name == "unknown_group_member" else {}))
    for node in case.arrays.values():
        array(store, node, **(group_options(case, node) if case.is_group else ARRAYS.get(case.name, {})))
    if case.name == "array_and_prefix":
        array(store, n5_cases.hidden())
    for key, data in FILES.get(case.name, {}).items():
        put(store, key, data)
