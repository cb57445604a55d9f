"""Write by hand the N5 golden stores that no peer writes, from the text of the specification. Command: n5/PROVENANCE.md.

Needs numpy, and numcodecs for blosc, zstandard for zstd.
"""

import bz2
import gzip
import lzma
import struct
import zlib

import n5_cases
import numcodecs
import numpy as np
import zstandard
from generate_hand import corrupt, put


def gz(data):
    return gzip.compress(data, 5, mtime=0)


def stream_zstd(data):
    """A frame without content size."""
    out = zstandard.ZstdCompressor(level=3, write_content_size=False).compress(data)
    assert zstandard.get_frame_parameters(out).content_size == zstandard.CONTENTSIZE_UNKNOWN
    return out


ENCODERS = {"raw": bytes, "gzip": gz, "bzip2": bz2.compress, "xz": lzma.compress,
    "blosc": lambda data: bytes(numcodecs.Blosc("lz4", 5, 1).encode(np.frombuffer(data, "u2"))),
    "zstd": lambda data: zstandard.ZstdCompressor(level=3).compress(data)}  # fmt: skip
PARAMETERS = {"raw": {}, "gzip": {"level": -1}, "bzip2": {"blockSize": 9}, "xz": {"preset": 6},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0, "typesize": 2, "nthreads": 1},
    "zstd": {"level": 3}}  # fmt: skip


def header(part, mode=0):
    """Mode, number of dimensions, dimensions in N5's order, which may be given alone."""
    size = part if isinstance(part, tuple) else part.shape[::-1]
    return struct.pack(">HH%dI" % len(size), mode, len(size), *size)


def payload(block):
    return np.ascontiguousarray(block).astype(block.dtype.newbyteorder(">")).tobytes()


def dataset(store, case, compression="raw", encode=None, block=None, metadata={}, files={}):
    """A dataset; `metadata` changes the document, `block(coords, data)` may return other bytes than the right ones."""
    data = case.expected()
    document = {
        "dimensions": data.shape[::-1],
        "blockSize": case.chunks[::-1],
        "dataType": data.dtype.name,
        "compression": {"type": compression, **PARAMETERS.get(compression, {})},
        **case.attributes,
        **metadata,
    }
    put(store / case.path, "attributes.json", {k: v for k, v in document.items() if v is not Ellipsis})
    encode = encode or ENCODERS[compression]
    for coords in case.indices():
        part = data[case.region(coords)]
        out = block(coords, part) if block else None
        key = "/".join(map(str, coords[::-1]))
        put(store / case.path, key, header(part) + encode(payload(part)) if out is None else out)
    for key, value in files.items():
        put(store, key, value)


def first(change):
    """Give the changed bytes for the first block only."""
    return {"block": lambda coords, part: change(part) if not any(coords) else None}


def padded(part, shape):
    full = np.full(shape, 77, part.dtype)
    full[tuple(slice(n) for n in part.shape)] = part
    return header(full) + payload(full)


# bytes as printed in the specification, header 00000000..0000000f, then the payload
SPEC_HEADER = bytes.fromhex("0000 0003 00000001 00000002 00000003")
SPEC = {
    "raw": "0001 0002 0003 0004 0005 0006",
    "bzip2": "425a6839 31415926 5359023e 0dd20000 0040007f 00200031 0c010d31 a8739433 7c5dc914 e1424008 f83748",
    "gzip": "1f8b0800 00000000 00006360 64606260 66606160 65600300 aaea6dbf 0c000000",
    "xz": "fd377a58 5a000004 e6d6b446 02002101 16000000 742fe5a3 01000b00 01000200 03000400 05000600 0d0309ca 34ec15a7 "
    "0001240c a618d8d8 1fb6f37d 01000000 0004595a",
}


def raw_block(change_header=header, extra=b"", cut=None):
    return first(lambda part: change_header(part) + (payload(part) + extra)[:cut])


def gzip_block(change):
    return {"compression": "gzip", **first(lambda part: header(part) + change(payload(part)))}


def mode1(part, encode=bytes, wrong=0):
    return header(part, 1) + struct.pack(">I", part.size + wrong) + encode(payload(part))


def set_compression(encode=None, **compression):
    return {"metadata": {"compression": compression}, "encode": encode}


def spec(name):
    return {"compression": name, **first(lambda part: SPEC_HEADER + bytes.fromhex(SPEC[name]))}


BEYOND = header((3, 4)) + payload(np.full((4, 3), 99, "i2"))
DATASETS = {
    # varlength with the right number of elements
    "mode1": {"block": lambda coords, part: mode1(part)},
    # varlength with the right number of elements, gzip after the count
    "mode1_gzip": {"compression": "gzip", "block": lambda coords, part: mode1(part, gz)},
    # varlength: element count is not the product of the block's dimensions
    "mode1_wrong_count": first(lambda part: mode1(part, wrong=-1)),
    # mode 2 (object): mode and element count, no dimensions
    "mode2": first(lambda part: struct.pack(">HI", 2, part.size) + payload(part)),
    # mode 2 (object) in the specification's spelling, with dimensions
    "mode2_with_dimensions": first(lambda part: header(part, 2) + struct.pack(">I", part.size) + payload(part)),
    "mode3": raw_block(lambda part: header(part, 3)),
    # header says 3 dimensions, the dataset has 2
    "header_ndim": raw_block(lambda part: header((*part.shape[::-1], 1))),
    # header says 65535 dimensions
    "header_ndim_huge": raw_block(lambda part: struct.pack(">HHII", 0, 65535, *part.shape[::-1])),
    # block dimensions exceed blockSize
    "header_block_too_large": first(lambda part: header((4, 4)) + payload(np.zeros((4, 4), "i2"))),
    # block dimension 2**32 - 1
    "header_dimension_huge": raw_block(lambda part: header((2**32 - 1, 4))),
    # 3 bytes: not even a header
    "header_truncated": first(lambda part: b"\0\0\0"),
    "header_only": raw_block(cut=0),
    # 0 bytes: present, so not a missing block
    "empty_file": first(lambda part: b""),
    # raw payload one value short
    "payload_short": raw_block(cut=-2),
    # raw payload one value long
    "payload_long": raw_block(extra=b"\0\0"),
    # decompressed payload one value short
    "gzip_payload_short": gzip_block(lambda data: gz(data[:-2])),
    # decompressed payload one value long
    "gzip_payload_long": gzip_block(lambda data: gz(data + b"\0\0")),
    # gzip stream with a wrong checksum
    "gzip_corrupt": gzip_block(lambda data: corrupt(gz(data))),
    "gzip_truncated": gzip_block(lambda data: gz(data)[:-9]),
    # decompressed payload of 16 MB for a block of 24 bytes
    "gzip_bomb": gzip_block(lambda data: gz(data + bytes(16_000_000))),
    # useZlib true: zlib container
    "gzip_use_zlib": set_compression(lambda data: zlib.compress(data, 5), type="gzip", level=5, useZlib=True),
    "gzip_use_zlib_false": set_compression(gz, type="gzip", level=5, useZlib=False),
    "gzip_no_level": set_compression(gz, type="gzip"),
    "gzip_level_minus_1": {"compression": "gzip"},
    "gzip_members": {"compression": "gzip", "encode": lambda data: gz(data[:5]) + gz(data[5:])},
    # compressionType of N5 before 2.0
    "old_compression_type_gzip": {"metadata": {"compression": ..., "compressionType": "gzip"}, "encode": gz},
    # compressionType of N5 before 2.0
    "old_compression_type_raw": {"metadata": {"compression": ..., "compressionType": "raw"}},
    # unknown member of compression
    "unknown_parameters": set_compression(gz, type="gzip", level=5, useZlib=False, strategy="default", window=15),
    # as n5-blosc writes: typesize 1, shuffle as an integer, nthreads
    "blosc_java": set_compression(
        lambda data: bytes(numcodecs.Blosc("blosclz", 6, 0).encode(np.frombuffer(data, "u1"))),
        type="blosc",
        **{**PARAMETERS["blosc"], "cname": "blosclz", "clevel": 6, "shuffle": 0, "typesize": 1},
    ),
    "zstd_no_content_size": {"compression": "zstd", "encode": stream_zstd},
    "compression_jpeg": set_compression(type="jpeg", quality=90),
    "compression_unknown": set_compression(type="webp"),
    "compression_absent": {"metadata": {"compression": ...}},
    "dtype_string": {"metadata": {"dataType": "string"}},
    "dtype_object": {"metadata": {"dataType": "object"}},
    "dtype_unknown": {"metadata": {"dataType": "float16"}},
    # blockSize and dimensions differ in length
    "metadata_rank_mismatch": {"metadata": {"blockSize": [3, 2, 1]}},
    "metadata_block_size_zero": {"metadata": {"blockSize": [3, 0]}},
    "metadata_negative_dimension": {"metadata": {"dimensions": [6, -4]}},
    "metadata_fraction": {"metadata": {"dimensions": [6.5, 4]}},
    **{"spec_" + name: spec(name) for name in SPEC},
    # end blocks padded to blockSize and truncated ones in one dataset
    "padded_and_truncated": {"block": lambda coords, part: padded(part, (3, 4, 2)) if sum(coords) % 2 else None},
    # end blocks longer than the dataset, rows 3..4 of 5, columns 4..6 of 7, but shorter than blockSize
    "padded_in_part": {"block": lambda coords, part: padded(part, (3, 3)) if coords == (1, 1) else None},
    # an inner block truncated as only end blocks may be: the rest is 0, or refused
    "short_inner_block": first(lambda part: header((2, 2)) + payload(part[:, :2])),
    "block_larger_than_array": first(lambda part: padded(part, (5, 4))),
    "metadata_not_json": {"files": {"data/attributes.json": b'{"dimensions": [6, 4], "blockSize": [3, 2]'}},
    "metadata_not_object": {"files": {"data/attributes.json": ["dimensions", "blockSize"]}},
    "metadata_deep": {"files": {"data/attributes.json": b"[" * 100_000 + b"]" * 100_000}},
    # root attributes without n5
    "version_absent_attributes": {"files": {"attributes.json": {"title": "golden"}}},
    "version_snapshot": {"files": {"attributes.json": {"n5": "2.1.0-SNAPSHOT"}}},
    "version_minor": {"files": {"attributes.json": {"n5": "4.9.1"}}},
    "version_5": {"files": {"attributes.json": {"n5": "5.0.0"}}},
    # outside the grid: ignored
    "beyond_dataset": {"files": dict.fromkeys(("data/2/0", "data/0/2", "data/7/7"), BEYOND)},
    "root_dataset": {"compression": "gzip", "metadata": {"n5": "4.0.0"}},
}


def absent_parameters(name):
    """Compression is only {type}, and cname for blosc."""
    return {"compression": name, **set_compression(type=name, **({"cname": "lz4"} if name == "blosc" else {}))}


for case, store in n5_cases.fresh("n5", "hand", "1"):
    if case.name != "version_absent":
        put(store, "attributes.json", {"n5": "4.0.0"})
    for path, attributes in case.groups.items():
        if attributes:
            put(store / path, "attributes.json", attributes)
    for path, array in case.arrays.items():
        options = DATASETS.get(case.name, {"compression": array.compression})
        dataset(store, array, **(absent_parameters(path) if case.name == "absent_parameters" else options))
