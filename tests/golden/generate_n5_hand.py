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
from generate_hand import put


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


def header(size, mode=0):
    """Mode, number of dimensions, dimensions in N5's order."""
    return struct.pack(">HH%dI" % len(size), mode, len(size), *size)


def payload(block):
    return np.ascontiguousarray(block).astype(block.dtype.newbyteorder(">")).tobytes()


def dataset(store, case, compression="raw", encode=None, block=None, metadata=None, only=None):
    """A dataset; `metadata` changes the document, `block(coords, data, raw)` may return other bytes than the right ones."""
    data = case.expected()
    document = {
        "dimensions": data.shape[::-1],
        "blockSize": case.chunks[::-1],
        "dataType": data.dtype.name,
        "compression": {"type": compression, **PARAMETERS.get(compression, {})},
        **case.attributes,
        **(metadata or {}),
    }
    put(store / case.path, "attributes.json", {k: v for k, v in document.items() if v is not Ellipsis})
    encode = encode or ENCODERS[compression]
    for coords in case.indices():
        part = data[case.region(coords)]
        out = block(coords, part) if block else None
        if out is None:
            out = header(part.shape[::-1]) + encode(payload(part))
        put(store / case.path, "/".join(map(str, coords[::-1])), out)


def first(change):
    """Give the changed bytes for the first block only."""
    return lambda coords, part: change(part) if not any(coords) else None


def padded(case, size=None, pad=77):
    """A block padded to `size` (else to the whole block)."""

    def block(coords, part):
        full = np.full(size or case.chunks, pad, part.dtype)
        full[tuple(slice(n) for n in part.shape)] = part
        return header(full.shape[::-1]) + payload(full)

    return block


def root(store, **attributes):
    put(store, "attributes.json", {"n5": "4.0.0", **attributes})


# bytes as printed in the specification, header 00000000..0000000f, then the payload
SPEC_HEADER = bytes.fromhex("0000 0003 00000001 00000002 00000003")
SPEC = {
    "raw": "0001 0002 0003 0004 0005 0006",
    "bzip2": "425a6839 31415926 5359023e 0dd20000 0040007f 00200031 0c010d31 a8739433 7c5dc914 e1424008 f83748",
    "gzip": "1f8b0800 00000000 00006360 64606260 66606160 65600300 aaea6dbf 0c000000",
    "xz": "fd377a58 5a000004 e6d6b446 02002101 16000000 742fe5a3 01000b00 01000200 03000400 05000600 0d0309ca 34ec15a7 "
    "0001240c a618d8d8 1fb6f37d 01000000 0004595a",
}


def raw_block(change_header=None, extra=b"", cut=None):
    def change(part):
        return (header(part.shape[::-1]) if change_header is None else change_header(part)) + (payload(part) + extra)[
            :cut
        ]

    return {"block": first(change)}


def gzip_block(change):
    return {"compression": "gzip", "block": first(lambda part: header(part.shape[::-1]) + change(payload(part)))}


def mode1(part, encode=bytes, wrong=0):
    return header(part.shape[::-1], 1) + struct.pack(">I", part.size + wrong) + encode(payload(part))


def set_compression(**compression):
    return {"metadata": {"compression": compression}}


def corrupt(data):
    """The last byte but five: inside the checksum."""
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def mixed_padding(case):
    pad = padded(case)
    return lambda coords, part: pad(coords, part) if sum(coords) % 2 else None


def partly_padded(case):
    def block(coords, part):
        if coords == (1, 1):  # rows 3..4 of 5, columns 4..6 of 7; stored as 3 rows, 3 columns
            return padded(case, (3, 3))(coords, part)
        return None

    return block


def short_inner(part):
    return header((2, 2)) + payload(part[:, :2])


DATASETS = {
    # varlength with the right number of elements
    "mode1": {"block": lambda coords, part: mode1(part)},
    # varlength with the right number of elements, gzip after the count
    "mode1_gzip": {"compression": "gzip", "block": lambda coords, part: mode1(part, gz)},
    # varlength: element count is not the product of the block's dimensions
    "mode1_wrong_count": {"block": first(lambda part: mode1(part, wrong=-1))},
    # mode 2 (object): mode and element count, no dimensions
    "mode2": {"block": first(lambda part: struct.pack(">HI", 2, part.size) + payload(part))},
    # mode 2 (object) in the specification's spelling, with dimensions
    "mode2_with_dimensions": {
        "block": first(lambda part: header(part.shape[::-1], 2) + struct.pack(">I", part.size) + payload(part))
    },
    "mode3": raw_block(lambda part: header(part.shape[::-1], 3)),
    # header says 3 dimensions, the dataset has 2
    "header_ndim": raw_block(lambda part: header((*part.shape[::-1], 1))),
    # header says 65535 dimensions
    "header_ndim_huge": raw_block(lambda part: struct.pack(">HHII", 0, 65535, *part.shape[::-1])),
    # block dimensions exceed blockSize
    "header_block_too_large": {"block": first(lambda part: header((4, 4)) + payload(np.zeros((4, 4), "i2")))},
    # block dimension 2**32 - 1
    "header_dimension_huge": raw_block(lambda part: header((2**32 - 1, 4))),
    # 3 bytes: not even a header
    "header_truncated": {"block": first(lambda part: b"\0\0\0")},
    "header_only": raw_block(cut=0),
    # 0 bytes: present, so not a missing block
    "empty_file": {"block": first(lambda part: b"")},
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
    "gzip_use_zlib": {
        **set_compression(type="gzip", level=5, useZlib=True),
        "encode": lambda data: zlib.compress(data, 5),
    },
    "gzip_use_zlib_false": {**set_compression(type="gzip", level=5, useZlib=False), "encode": gz},
    "gzip_no_level": {**set_compression(type="gzip"), "encode": gz},
    "gzip_level_minus_1": {"compression": "gzip"},
    "gzip_members": {"compression": "gzip", "encode": lambda data: gz(data[:5]) + gz(data[5:])},
    # compressionType of N5 before 2.0
    "old_compression_type_gzip": {"metadata": {"compression": ..., "compressionType": "gzip"}, "encode": gz},
    # compressionType of N5 before 2.0
    "old_compression_type_raw": {"metadata": {"compression": ..., "compressionType": "raw"}},
    # unknown member of compression
    "unknown_parameters": {
        **set_compression(type="gzip", level=5, useZlib=False, strategy="default", window=15),
        "encode": gz,
    },
    # as n5-blosc writes: typesize 1, shuffle as an integer, nthreads
    "blosc_java": {
        **set_compression(type="blosc", cname="blosclz", clevel=6, shuffle=0, blocksize=0, typesize=1, nthreads=1),
        "encode": lambda data: bytes(numcodecs.Blosc("blosclz", 6, 0).encode(np.frombuffer(data, "u1"))),
    },
    # as zstd-jni's stream writes: frame without content size
    "zstd_no_content_size": {"compression": "zstd", "encode": stream_zstd},
    "compression_jpeg": {**set_compression(type="jpeg", quality=90)},
    "compression_unknown": {**set_compression(type="webp")},
    "compression_absent": {"metadata": {"compression": ...}},
    "dtype_string": {"metadata": {"dataType": "string"}},
    "dtype_object": {"metadata": {"dataType": "object"}},
    "dtype_unknown": {"metadata": {"dataType": "float16"}},
    # blockSize and dimensions differ in length
    "metadata_rank_mismatch": {"metadata": {"blockSize": [3, 2, 1]}},
    "metadata_block_size_zero": {"metadata": {"blockSize": [3, 0]}},
    "metadata_negative_dimension": {"metadata": {"dimensions": [6, -4]}},
    "metadata_fraction": {"metadata": {"dimensions": [6.5, 4]}},
}


def also(files):
    """A dataset, and then other files of its store."""

    def make(store, case):
        dataset(store, case)
        for key, value in files.items():
            put(store, key, value)

    return make


def spec(store, case):
    compression = case.name[len("spec_") :]
    dataset(store, case, compression, block=lambda coords, part: SPEC_HEADER + bytes.fromhex(SPEC[compression]))


def absent_parameters(store, case):
    for name, array in case.arrays.items():
        parameters = {"cname": "lz4"} if name == "blosc" else {}
        dataset(store, array, name, metadata={"compression": {"type": name, **parameters}})


def groups(store, case):
    for array in case.arrays.values():
        dataset(store, array)
    for path, attributes in case.groups.items():
        if attributes:
            put(store / path, "attributes.json", attributes)


def version_absent(store, case):
    dataset(store, case)
    (store / "attributes.json").unlink()


BEYOND = header((3, 4)) + payload(np.full((4, 3), 99, "i2"))
OTHERS = {
    **{"spec_" + name: spec for name in SPEC},
    "padded_and_truncated": lambda store, case: dataset(store, case, block=mixed_padding(case)),
    # end blocks longer than the dataset but shorter than blockSize
    "padded_in_part": lambda store, case: dataset(store, case, block=partly_padded(case)),
    # an inner block truncated as only end blocks may be: the rest is 0, or refused
    "short_inner_block": lambda store, case: dataset(store, case, block=first(short_inner)),
    "block_larger_than_array": lambda store, case: dataset(store, case, block=padded(case)),
    "absent_parameters": absent_parameters,
    # attributes.json of the dataset is not JSON
    "metadata_not_json": also({"data/attributes.json": b'{"dimensions": [6, 4], "blockSize": [3, 2]'}),
    # attributes.json of the dataset is a JSON list
    "metadata_not_object": also({"data/attributes.json": ["dimensions", "blockSize"]}),
    # 100,000 nested brackets in attributes.json
    "metadata_deep": also({"data/attributes.json": b"[" * 100_000 + b"]" * 100_000}),
    # no attributes.json at the root
    "version_absent": version_absent,
    # root attributes without n5
    "version_absent_attributes": also({"attributes.json": {"title": "golden"}}),
    "version_snapshot": also({"attributes.json": {"n5": "2.1.0-SNAPSHOT"}}),
    "version_minor": also({"attributes.json": {"n5": "4.9.1"}}),
    "version_5": also({"attributes.json": {"n5": "5.0.0"}}),
    # blocks at 2/0, 0/2 and 7/7, outside the grid: ignored
    "beyond_dataset": also(dict.fromkeys(("data/2/0", "data/0/2", "data/7/7"), BEYOND)),
    "groups": groups,
    "root_dataset": lambda store, case: dataset(store, case, "gzip", metadata={"n5": "4.0.0"}),
}


for case, store in n5_cases.fresh("n5", "hand", "1"):
    root(store)
    if case.name in OTHERS:
        OTHERS[case.name](store, case)
    else:
        dataset(store, case, **DATASETS.get(case.name, {"compression": case.compression or "raw"}))
