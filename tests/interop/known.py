"""What peers are known not to read, by name and with the reason. Everything else they must read bit for bit.

A name is ``<format>:<case>``, with ``:<path>`` behind it for an array of a group; patterns are those of `fnmatch`. A peer that
reads a case which is listed here fails the test too: strike it off then.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.metadata import version

# data types and codecs by the names of the cases
_STRINGS = "vlen-* scalar-string categorize* xarray*:label shard-vlen-utf8 shard-string-fill transpose-vlen-utf8 bytes-type* str-*"
_TEXT = "unicode-* bytes-6 fill-null-string fill-short-base64 *:sub/deeper/c S5 U3"
_TIMES = "datetime-* timedelta-* fill-nat* fill-date M8* m8*"
_FIELDS = "struct* order-f-struct fill-null-struct"
_OBJECTS = "json2 msgpack2 vlen-array"
_FILTERS = "codec-delta* codec-fixedscaleoffset* codec-quantize* codec-bitround codec-astype codec-packbits transpose-delta order-f-filters"
_CHECKSUMS = "codec-crc32 codec-crc32-end codec-adler32 codec-fletcher32 codec-jenkins-lookup3"
_RARE = "codec-lzma* codec-lz4"
_REGISTERED = (
    "codec-cast-value codec-scale-offset codec-reshape codec-squeeze codec-packbits-* codec-zfp codec-n5-default"
)
_LZ4 = "compression_lz4:* lz4_*"


_ANY_ZARR_PYTHON = {
    "zarr-python 3 has no such data type": {
        "zarr2": f"{_OBJECTS} categorize struct-subarray bfloat16",
        "zarr3": "r24 void-3 bfloat16 float8-e4m3fn int4 type-*",  # zarr-python alone calls r24 raw_bytes
    },
    "zarr-python has no such codec": {
        "zarr3": "codec-reshape codec-squeeze codec-packbits-* codec-zfp codec-n5-default",
    },
    "zarr-python divides the shard before it is transposed": {"zarr3": "shard-outer-transpose*"},
    "zarr-python passes a float16 fill value through a float, which makes it a quiet NaN": {
        "zarr3": "fill-nan-payload-f2",
    },
}
_ZARR_PYTHON = {
    **_ANY_ZARR_PYTHON,
    "zarr-python 3.1 has no such data type": {"zarr2": "struct-nested"},
    "zarr-python 3.1 has no such codec; 3.4 has": {"zarr3": "codec-cast-value codec-scale-offset"},
    "zarr-python 3.1 knows structured types by its own name and bytes; from 3.2 on it reads the registered one": {
        "zarr3": "struct*",
    },
    "zarr-python 3.1 has no rectilinear grids": {"zarr3": "rectilinear*"},
}

# of these, what the zarr-python that is installed reads: another on each Python
_READ_BY_NEWER = {
    "3.2": {"zarr2": "struct-nested", "zarr3": "struct struct-nested struct-zero-fill struct-legacy struct-legacy-big"},
    "3.4": {"zarr3": "codec-cast-value codec-scale-offset"},
}


def _installed(since: str) -> bool:
    return [int(n) for n in version("zarr").split(".")[:2]] >= [int(n) for n in since.split(".")]


KNOWN: dict[str, dict[str, dict[str, str]]] = {
    "zarr-python": _ZARR_PYTHON,
    "zarr-python 3.4": {
        **_ANY_ZARR_PYTHON,
        "zarr-python 3.4 holds every chunk length of a rectilinear grid at once": {"zarr3": "rectilinear-huge-run"},
    },
    "zarrs": {
        **_ZARR_PYTHON,
        "zarrs 0.2 has no such data type": {
            "zarr2": f"{_STRINGS} {_TEXT} {_TIMES} {_FIELDS} void-3",
            "zarr3": f"{_STRINGS} {_TEXT} {_TIMES}",
        },
        "zarrs 0.2 has no such codec": {
            "zarr2": f"{_FILTERS} {_CHECKSUMS} {_RARE} codec-crc32c* codec-zstd-checksum",
            "zarr3": f"{_FILTERS} {_CHECKSUMS} {_RARE} codec-zfpy",
        },
        "zarrs 0.2 does not turn bytes round in Zarr v2": {"zarr2": "*-big >*"},
        "zarrs 0.2 turns a complex number round as one, so that its parts change places": {"zarr3": "complex*-big"},
        "zarrs 0.2 is handed C order only by zarr-python in Zarr v2": {"zarr2": "order-f order-f-3d"},
        "the fill value reaches zarrs through zarr-python, as a NaN of no payload": {
            "zarr3": "fill-nan-payload-* fill-complex-hex",
        },
    },
    "tensorstore": {
        "tensorstore has no such data type": {
            "zarr2": f"{_STRINGS} unicode-* fill-null-string *:sub/deeper/c U3 {_TIMES} {_OBJECTS}",
            "zarr3": f"{_STRINGS} {_TEXT} {_TIMES} {_FIELDS} r24 void-3 type-complex-* type-float6-* type-float8-e4m3-* type-uint*",
        },
        "tensorstore gives bytes as one more axis": {"zarr2": "bytes-6 fill-short-base64 void-3 S5 V4"},
        "tensorstore reads one field at a time": {"zarr2": _FIELDS},
        "tensorstore has no such codec": {
            "zarr2": f"{_FILTERS} {_CHECKSUMS} {_RARE} codec-crc32c* codec-shuffle codec-zstd-checksum zlib-in-filters",
            "zarr3": f"{_FILTERS} {_CHECKSUMS} {_RARE} {_REGISTERED} codec-zfpy codec-pcodec codec-bz2 codec-zlib codec-shuffle type-*-packbits",
            "n5": _LZ4,
        },
        "tensorstore has no rectilinear grids": {"zarr3": "rectilinear*"},
        "tensorstore wants nothing behind sharding": {"zarr3": "shard-outer-crc32c shard-outer-gzip"},
    },
    "zarr-python 2": {
        "zarr-python 2 has no such data type": {"zarr2": "bfloat16"},
        "zarr-python 2 gives the fill value of bytes as it stands in JSON": {"zarr2": "vlen-bytes vlen-bytes-fill"},
        "zarr-python 2 has an lz4 of its own in N5, without the member blockSize": {"n5": _LZ4},
    },
    "pyn5": {
        "pyn5's wheel has no such compression": {
            "n5": f"{_LZ4} compression_xz:* compression_blosc:* compression_zstd:* spec_xz:* absent_parameters:xz "
            "absent_parameters:blosc absent_parameters:zstd blosc_java:* zstd_no_content_size:*",
        },
        "pyn5 does not look at useZlib": {"n5": "gzip_zlib_zarr_python:* gzip_use_zlib:*"},
        "pyn5 makes no array of the root": {"n5": "root_dataset"},
    },
    "z5py": {
        "z5 takes lz4 for a bare block, where N5 for Java writes its stream": {"n5": _LZ4},
        "z5py makes no array of the root": {"n5": "root_dataset"},
    },
}


def _in(names: dict[str, str], name: str) -> bool:
    fmt, _, case = name.partition(":")
    return any(fnmatchcase(case, pattern) for pattern in names.get(fmt, "").split())


def reason(peer: str, name: str) -> str:
    """Why `peer` cannot read the case, or ``""``."""
    newer = (names for since, names in _READ_BY_NEWER.items() if _installed(since))
    return "" if peer == "zarr-python" and any(_in(names, name) for names in newer) else listed(peer, name)


def listed(peer: str, name: str) -> str:
    """Why `peer` cannot read the case in one of its versions, or ``""``."""
    return next((why for why, names in KNOWN.get(peer, {}).items() if _in(names, name)), "")
