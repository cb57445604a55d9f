"""Write the N5 golden stores with lz4 as Java writes it (lz4-java). Environment and command: n5/PROVENANCE.md.

The blocks are written, and read back, by ``generate_n5_lz4_java.java``; this script makes headers, metadata and the damaged variants.
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import n5_cases

JAR = Path(sys.argv.pop(1))
HERE = Path(__file__).parent
BLOCK_SIZES = {"lz4_small_blocks": 1024, "lz4_mixed_tokens": 1024}  # else 65536
FLUSHED = ("lz4_flushed", "lz4_bad_magic", "lz4_no_end_mark")
EXTRA_VALUES = {"lz4_short": -1, "lz4_long": 1}
MAGIC = b"LZ4Block"
END_BYTES = 21  # an LZ4Block of length 0


def patched(data, offset, new):
    return data[:offset] + new + data[offset + len(new) :]


def damage(name, data, header):
    raw_length, checksum, payload = header + 13, header + 17, header + 21
    assert data[header:].startswith(MAGIC) and data[-END_BYTES:].startswith(MAGIC)
    if name == "lz4_bad_checksum":
        return patched(data, checksum, bytes([data[checksum] ^ 1]))
    if name == "lz4_bad_payload":
        assert data[header + 8] >> 4 == 1, "token must be raw"
        return patched(data, payload + 50, bytes([data[payload + 50] ^ 1]))
    if name == "lz4_truncated":
        return data[: payload + 100]
    if name == "lz4_huge_length":
        return patched(data, raw_length, struct.pack("<i", 2**31 - 1))
    if name == "lz4_bad_magic":
        return patched(data, data.index(MAGIC, payload), b"LZ4Klotz")
    if name == "lz4_no_end_mark":
        return data[:-END_BYTES]
    return data


def main():
    written, lines = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for case, store in n5_cases.fresh("n5", "lz4_java", JAR.resolve().stem.rpartition("-")[2]):
            data = case.expected()
            block_size = BLOCK_SIZES.get(case.name, 65536)
            (store / case.path).mkdir(parents=True)
            (store / "attributes.json").write_text('{"n5":"4.0.0"}')
            document = {"dimensions": data.shape[::-1], "blockSize": case.chunks[::-1], "dataType": data.dtype.name,
                "compression": {"type": "lz4", "blockSize": block_size}}  # fmt: skip
            (store / case.path / "attributes.json").write_text(json.dumps(document))
            for coords in case.indices():
                block = data[case.region(coords)]  # truncated at the end, as in Java
                header = struct.pack(">HH%dI" % block.ndim, 0, block.ndim, *block.shape[::-1])
                payload = block.astype(block.dtype.newbyteorder(">")).tobytes()
                extra = EXTRA_VALUES.get(case.name, 0) * block.itemsize
                payload = payload[:extra] if extra < 0 else payload + bytes(extra)
                source, target = Path(temporary) / str(len(lines)), store.joinpath(case.path, *map(str, coords[::-1]))
                source.write_bytes(header + payload)
                target.parent.mkdir(parents=True, exist_ok=True)
                lines.append(
                    "\t".join(map(str, (source, target, len(header), block_size, 100 if case.name in FLUSHED else 0)))
                )
                written.append((case.name, target, len(header)))
        manifest = Path(temporary) / "manifest"
        manifest.write_text("\n".join(lines))
        subprocess.run(["java", "-cp", str(JAR), str(HERE / "generate_n5_lz4_java.java"), str(manifest)], check=True)
    for name, target, header in written:
        target.write_bytes(damage(name, target.read_bytes(), header))


main()
