import numpy as np
from contracts.codec_contract import LITTLE, NUMBERS, codec, fixed, spec_of
from support.codecs import chunks_of, not_built, not_decoded

DIGITS = np.frombuffer(b"123456789", "u1")


# RFC 3720, B.4, and the check value of the polynomial
FROZEN = [(DIGITS, "313233343536373839 839206e3"), (np.zeros(32, "u1"), "00" * 32 + "aa36918a")]
TestCrc32c = fixed([LITTLE, "crc32c"], NUMBERS, [*FROZEN, (np.zeros(0, "u1"), "00000000")])


def test_message():
    reason = "checksum mismatch: stored 0xe3069283, computed 0x"
    not_decoded(["bytes", "crc32c"], b"023456789\x83\x92\x06\xe3", spec_of(DIGITS), reason)


def test_it_has_nothing_to_configure():
    not_built(["bytes", codec("crc32c", level=1)], chunks_of("u1", 1), "level")
