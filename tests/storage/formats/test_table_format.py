import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.errors import FormatVersionError
from lsr_prod.storage.formats.table_format import (
    CORE_COLUMNS,
    TableProperties,
    bucket_of,
    cell_of,
    content_hash,
    quantize,
    sparse_schema,
)

PROPERTIES = TableProperties(
    "b" * 64, "v" * 64, 0.1 + 0.2, 8, 256, 16, ("title", "text"), 30_522, 0.1 / 3, 0.7 / 3, 1e-5 / 3, 512
)


def test_table_properties_round_trip_bit_exact(tmp_path: Path) -> None:
    assert TableProperties.from_delta(PROPERTIES.to_delta()) == PROPERTIES
    DeltaTable.create(
        str(tmp_path), sparse_schema(["title"]), configuration=PROPERTIES.to_delta(), raise_if_key_not_exists=False
    )
    assert TableProperties.from_delta(dict(DeltaTable(str(tmp_path)).metadata().configuration)) == PROPERTIES
    plain = replace(PROPERTIES, stored_fields=())
    assert TableProperties.from_delta(plain.to_delta()) == plain


def test_every_property_is_stored() -> None:
    stored = {key.removeprefix("lsr_prod.") for key in PROPERTIES.to_delta()}
    assert stored == set(TableProperties.__slots__)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"lsr_prod.format": "1"}, "format 1, this release reads and writes 4; encode the corpus again"),
        ({"lsr_prod.format": "5"}, "format 5, this release"),
        (None, "not written by lsr_prod; give one that"),
    ],
)
def test_table_of_another_format_raises_with_remedy(change: dict[str, str] | None, remedy: str) -> None:
    with pytest.raises(FormatVersionError, match=remedy):
        TableProperties.from_delta({} if change is None else PROPERTIES.to_delta() | change)


def test_bucket_and_content_hash_follow_the_documented_formulas() -> None:
    digest = hashlib.sha256("ä".encode()).hexdigest()
    assert bucket_of("ä", 16) == int(digest[:16], 16) % 16
    assert content_hash("ä") == digest[:32]


@given(st.text(), st.integers(1, 64), st.integers(1, 16))
def test_cell_is_inside_one_bucket(doc_id: str, buckets: int, splits: int) -> None:
    cell = cell_of(doc_id, buckets * splits)
    assert 0 <= cell < buckets * splits
    assert cell % buckets == bucket_of(doc_id, buckets)


@given(st.lists(st.floats(2**-10, 10, width=32)), st.floats(1e-5, 1.0), st.sampled_from([4, 8, 16]))
def test_quantize_rounds_and_counts_clipped_weights(weights: list[float], step: float, bits: int) -> None:
    impacts, clipped = quantize(np.asarray(weights, np.float32), step, bits)
    exact = [round(float(np.float32(weight)) / step) for weight in weights]
    assert impacts.tolist() == [min(2**bits - 1, max(1, value)) for value in exact]
    assert clipped == sum(value > 2**bits - 1 for value in exact)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_impacts_fit_the_column_type_of_their_width(bits: int) -> None:
    impacts, clipped = quantize(np.float32([1e9, 1e-9]), 0.5, bits)
    assert impacts.tolist() == [2**bits - 1, 1]
    assert clipped == 1
    element = sparse_schema([], bits).field("impacts").type.value_type
    assert pa.array(impacts).type == element
    assert element == (pa.int16() if bits <= 8 else pa.int32())


def test_schema_has_no_unsigned_type_and_has_source_file() -> None:
    schema = sparse_schema(["title"])
    assert "uint" not in str(schema)
    assert schema.names == [*CORE_COLUMNS, "title"]
    assert schema.field("source_file").type == pa.int64()
    assert not any(schema.field(name).nullable for name in CORE_COLUMNS)
