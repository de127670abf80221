import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.errors import FormatVersionError
from lsr_prod.formats.table import TableProperties, bucket_of, content_hash, quantise, sparse_schema

PROPERTIES = TableProperties("b" * 64, "v" * 64, 0.1 + 0.2, 8, 256, 16, ("title", "text"))


def test_properties_survive_delta_to_the_last_bit() -> None:
    assert TableProperties.from_delta(PROPERTIES.to_delta()) == PROPERTIES
    with pytest.raises(FormatVersionError):
        TableProperties.from_delta({})


def test_bucket_and_content_hash_are_the_documented_formulas() -> None:
    digest = hashlib.sha256("ä".encode()).hexdigest()
    assert bucket_of("ä", 16) == int(digest[:16], 16) % 16
    assert content_hash("ä") == digest[:32]


@given(st.lists(st.floats(2**-10, 10, width=32)), st.floats(1e-3, 1.0))
def test_quantise_is_rounding_with_counted_clipping(weights: list[float], step: float) -> None:
    impacts, clipped = quantise(np.asarray(weights, np.float32), step)
    exact = [round(float(np.float32(weight)) / step) for weight in weights]
    assert impacts.tolist() == [min(255, max(1, value)) for value in exact]
    assert clipped == sum(value > 255 for value in exact)


def test_the_schema_has_no_unsigned_type() -> None:
    assert "uint" not in str(sparse_schema(["title"]))
    assert sparse_schema(["title"]).names[-1] == "title"
