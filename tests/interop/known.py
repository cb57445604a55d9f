"""What peers are known not to read, by name and with the reason. Everything else they must read bit for bit.

A name is ``<format>:<case>``, with ``:<path>`` behind it for an array of a group; patterns are those of `fnmatch`. A peer that
reads a case which is listed here fails the test too: strike it off then.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.metadata import version

__all__ = ["KNOWN", "listed", "reason"]

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


def _of(fmt: str, *names: str) -> list[str]:
    return [f"{fmt}:{name}" for text in names for name in text.split()]


_ANY_ZARR_PYTHON = {
    "zarr-python 3 has no such data type": [
        *_of("zarr2", _OBJECTS, "categorize struct-subarray bfloat16"),
        # zarr-python alone calls r24 raw_bytes
        *_of("zarr3", "r24 void-3 bfloat16 float8-e4m3fn int4 type-*"),
    ],
    "zarr-python has no such codec": _of(
        "zarr3", "codec-reshape codec-squeeze codec-packbits-* codec-zfp codec-n5-default"
    ),
    "zarr-python divides the shard before it is transposed": _of("zarr3", "shard-outer-transpose*"),
    "zarr-python passes a float16 fill value through a float, which makes it a quiet NaN": _of(
        "zarr3", "fill-nan-payload-f2"
    ),
}
_ZARR_PYTHON = {
    **_ANY_ZARR_PYTHON,
    "zarr-python 3.1 has no such data type or codec; 3.4 has": [
        "zarr2:struct-nested",
        *_of("zarr3", "codec-cast-value codec-scale-offset"),
    ],
    "zarr-python 3.1 knows structured types by its own name and bytes; from 3.2 on it reads the registered one": _of(
        "zarr3", "struct*"
    ),
    "zarr-python 3.1 has no rectilinear grids": _of("zarr3", "rectilinear*"),
}

# of these, what the zarr-python that is installed reads: another on each Python
_READ_BY_NEWER = {
    "3.2": [
        "zarr2:struct-nested",
        *_of("zarr3", "struct struct-nested struct-zero-fill struct-legacy struct-legacy-big"),
    ],
    "3.4": _of("zarr3", "codec-cast-value codec-scale-offset"),
}


def _installed(since: str) -> bool:
    return [int(n) for n in version("zarr").split(".")[:2]] >= [int(n) for n in since.split(".")]


KNOWN: dict[str, dict[str, list[str]]] = {
    "zarr-python": _ZARR_PYTHON,
    "zarr-python 3.4": {
        **_ANY_ZARR_PYTHON,
        "zarr-python 3.4 holds every chunk length of a rectilinear grid at once": _of("zarr3", "rectilinear-huge-run"),
    },
    "zarrs": {
        **_ZARR_PYTHON,
        "zarrs 0.2 has no such data type": [
            *_of("zarr2", _STRINGS, _TEXT, _TIMES, _FIELDS, "void-3"),
            *_of("zarr3", _STRINGS, _TEXT, _TIMES),
        ],
        "zarrs 0.2 has no such codec": [
            *_of("zarr2", _FILTERS, _CHECKSUMS, _RARE, "codec-crc32c* codec-zstd-checksum"),
            *_of("zarr3", _FILTERS, _CHECKSUMS, _RARE, "codec-zfpy"),
        ],
        "zarrs 0.2 does not turn bytes round in Zarr v2": _of("zarr2", "*-big >*"),
        "zarrs 0.2 turns a complex number round as one, so that its parts change places": _of("zarr3", "complex*-big"),
        "zarrs 0.2 is handed C order only by zarr-python in Zarr v2": _of("zarr2", "order-f order-f-3d"),
        "the fill value reaches zarrs through zarr-python, as a NaN of no payload": _of(
            "zarr3", "fill-nan-payload-* fill-complex-hex"
        ),
    },
    "tensorstore": {
        "tensorstore has no such data type": [
            *_of("zarr2", _STRINGS, "unicode-* fill-null-string *:sub/deeper/c U3", _TIMES, _OBJECTS),
            *_of("zarr3", _STRINGS, _TEXT, _TIMES, _FIELDS, "r24 void-3"),
            *_of("zarr3", "type-complex-* type-float6-* type-float8-e4m3-* type-uint*"),
        ],
        "tensorstore gives bytes as one more axis": _of("zarr2", "bytes-6 fill-short-base64 void-3 S5 V4"),
        "tensorstore reads one field at a time": _of("zarr2", _FIELDS),
        "tensorstore has no such codec": [
            *_of(
                "zarr2", _FILTERS, _CHECKSUMS, _RARE, "codec-crc32c* codec-shuffle codec-zstd-checksum zlib-in-filters"
            ),
            *_of("zarr3", _FILTERS, _CHECKSUMS, _RARE, "codec-zfpy codec-pcodec codec-bz2 codec-zlib codec-shuffle"),
            *_of("zarr3", _REGISTERED, "type-*-packbits"),
            *_of("n5", _LZ4),
        ],
        "tensorstore has no rectilinear grids": _of("zarr3", "rectilinear*"),
        "tensorstore wants nothing behind sharding": _of("zarr3", "shard-outer-crc32c shard-outer-gzip"),
    },
    "zarr-python 2": {
        "zarr-python 2 has no such data type": _of("zarr2", "bfloat16"),
        "zarr-python 2 gives the fill value of bytes as it stands in JSON": _of("zarr2", "vlen-bytes vlen-bytes-fill"),
        "zarr-python 2 has an lz4 of its own in N5, without the member blockSize": _of("n5", _LZ4),
    },
    "pyn5": {
        "pyn5's wheel has no such compression": _of(
            "n5",
            _LZ4,
            "compression_xz:* compression_blosc:* compression_zstd:* spec_xz:*",
            "absent_parameters:xz absent_parameters:blosc absent_parameters:zstd",
            "blosc_java:* zstd_no_content_size:*",
        ),
        "pyn5 does not look at useZlib": _of("n5", "gzip_zlib_zarr_python:* gzip_use_zlib:*"),
        "pyn5 makes no array of the root": _of("n5", "root_dataset"),
    },
    "z5py": {
        "z5 takes lz4 for a bare block, where N5 for Java writes its stream": _of("n5", _LZ4),
        "z5py makes no array of the root": _of("n5", "root_dataset"),
    },
}


def reason(peer: str, name: str) -> str:
    """Why `peer` cannot read the case, or ``""``."""
    if peer == "zarr-python" and any(name in names and _installed(since) for since, names in _READ_BY_NEWER.items()):
        return ""
    return listed(peer, name)


def listed(peer: str, name: str) -> str:
    """Why `peer` cannot read the case in one of its versions, or ``""``."""
    for why, patterns in KNOWN.get(peer, {}).items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return why
    return ""
