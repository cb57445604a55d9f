import numpy as np
import pytest
from contracts.codec_contract import LITTLE, NUMBERS, codec, fixed, pipeline_of, spec_of

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import CodecError, MetadataError

DIGITS = np.frombuffer(b"123456789", "u1")


# RFC 3720, B.4, and the check value of the polynomial
FROZEN = [(DIGITS, "313233343536373839 839206e3"), (np.zeros(32, "u1"), "00" * 32 + "aa36918a")]
TestCrc32c = fixed([LITTLE, "crc32c"], NUMBERS, [*FROZEN, (np.zeros(0, "u1"), "00000000")])


def test_message():
    spec = spec_of(DIGITS)
    with pytest.raises(CodecError, match="checksum mismatch: stored 0xe3069283, computed 0x"):
        pipeline_of(["bytes", "crc32c"], spec).decode(b"023456789\x83\x92\x06\xe3", spec)


def test_it_has_nothing_to_configure():
    with pytest.raises(MetadataError):
        pipeline_of(["bytes", codec("crc32c", level=1)], ChunkSpec((1,), np.dtype("u1"), None))
