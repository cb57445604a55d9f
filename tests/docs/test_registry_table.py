"""``docs/formats.md`` says of each name of the registry of Zarr v3 whether it is read and written, as it is."""

from docs.registry_table import BEGIN, CODECS, DATA_TYPES, DOCUMENT, END, GRIDS, KEYS, sections, table

# github.com/zarr-developers/zarr-extensions, 14 July 2026
REGISTRY = {
    "codecs": """
        bitround blosc bytes cast_value conditional crc32c gzip n5_default packbits reshape scale_offset sharding_indexed transpose vlen-bytes vlen-utf8 zfp zstd
    """,
    "data-types": """
        bfloat16 bool bytes complex128 complex64 complex_bfloat16 complex_float16 complex_float32 complex_float4_e2m1fn complex_float64 complex_float6_e2m3fn
        complex_float6_e3m2fn complex_float8_e3m4 complex_float8_e4m3 complex_float8_e4m3b11fnuz complex_float8_e4m3fnuz complex_float8_e5m2 complex_float8_e5m2fnuz
        complex_float8_e8m0fnu fixed_length_utf32 float16 float32 float4_e2m1fn float64 float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz
        float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu int16 int2 int32 int4 int64 int8 numpy.datetime64 numpy.timedelta64 r* string struct structured
        uint16 uint2 uint32 uint4 uint64 uint8
    """,
    "chunk-grids": "rectilinear regular",
    "chunk-key-encodings": "default v2",
}


def test_the_tables_have_the_whole_registry():
    tables = {"codecs": CODECS, "data-types": DATA_TYPES, "chunk-grids": GRIDS, "chunk-key-encodings": KEYS}
    for kind, names in REGISTRY.items():
        assert set(names.split()) == set(tables[kind]), kind


def test_the_page_is_what_the_code_does():
    text = DOCUMENT.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip() == table()


def test_what_is_refused_is_what_nothing_decodes():
    refused = {
        name.strip("`")
        for title, rows in sections()
        if title.endswith("of the registry")
        for name, read, *_ in rows
        if read == "no"
    }
    assert refused == {"conditional"} | {
        name for name in DATA_TYPES if name.startswith(("complex_float4", "complex_float6_", "complex_float8"))
    }
