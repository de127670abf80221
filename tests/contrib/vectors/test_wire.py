import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod_contrib.vectors.wire import decode_varints, encode_varints, signed32, varint, varint_lengths

NUMBERS = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)))


@settings(max_examples=60, deadline=None)
@given(NUMBERS)
def test_arrays_of_varints_equal_single_ones(numbers):
    array = np.array(numbers, np.uint64)
    expected = b"".join(map(varint, numbers))
    lengths = varint_lengths(array)
    assert lengths.tolist() == [len(varint(number)) for number in numbers]
    out = np.zeros(len(expected), np.uint8)
    encode_varints(out, np.cumsum(lengths) - lengths, array)
    assert out.tobytes() == expected
    decoded = decode_varints(out)
    assert decoded is not None
    assert decoded.tolist() == numbers


def test_bytes_that_are_no_varints_are_none():
    assert decode_varints(np.array([0x80], np.uint8)) is None
    assert decode_varints(np.array([0x80] * 10 + [1], np.uint8)) is None


def test_negative_numbers_are_sign_extended():
    assert [signed32(number) for number in (5, 2**64 - 1, 2**31 - 1, 2**32 - 7)] == [5, -1, 2**31 - 1, -7]
