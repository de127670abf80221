"""Batches of the actor class, and staged rows, without a dataset."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.ray_data.staging import DatasetWrite, SparseEncode, StagedKeys, document_keys
from lsr_prod.ray_data.write import _cell, _StagingSink
from lsr_prod.storage.formats.table_format import content_hash
from tests.encoding.made_tables import PROPERTIES
from tests.encoding.poison_encoder import poison_factory

pytestmark = pytest.mark.usefixtures("ray_local")


@pytest.fixture
def write(tmp_path: Path, tiny_bundle: Path) -> DatasetWrite:
    """A write whose encoder certain words make fail."""
    found = DatasetWrite.prepare(deployment(tiny_bundle, tmp_path))
    return replace(found, factory=poison_factory())


@pytest.fixture
def encode(write: DatasetWrite) -> Iterator[SparseEncode]:
    actor = SparseEncode(write, StagedKeys(write))
    yield actor
    actor._encoder.close()


def deployment(bundle: Path, folder: Path, source: Any = (), **encode: Any) -> Deployment:
    own = {"paths": ["corpus"], "stored_fields": []} | dict(source)
    given = {"bundle": str(bundle), "table": str(folder / "table"), "document_timeout_s": 5} | encode
    return Deployment.model_validate({"source": own, "encode": given})


def batch(**texts: str) -> pa.Table:
    return pa.table({"_id": list(texts), "text": list(texts.values())})


def staged(write: DatasetWrite, *rows: tuple[str, str, float]) -> pa.Table:
    """Return staged documents (id, text, weight)."""
    named = [{"doc_id": i, "content_hash": content_hash(t), "terms": [7], "weights": [w]} for i, t, w in rows]
    return pa.Table.from_pylist(named, schema=write.schema)


@pytest.mark.long
def test_document_that_crashes_the_model_is_one_bad_row(encode: SparseEncode) -> None:
    rows = encode(batch(a="a lock", b="SEGFAULT", c="RAISE", d="NAN", e="a date", f="  ")).to_pylist()
    reasons = {row["doc_id"]: row["reason"] for row in rows}
    failed = {"b": "encoder_crashed", "c": "encode_failed", "d": "encode_failed", "f": "empty_text"}
    assert reasons == {"a": None, "e": None} | failed
    assert [len(row["terms"]) for row in rows] == [1, 1, 0, 0, 0, 0]
    assert next(row["raw"] for row in rows if row["doc_id"] == "b") == "SEGFAULT"


@pytest.mark.long
def test_staged_documents_are_left_out_and_changed_ones_are_not(write: DatasetWrite, encode: SparseEncode) -> None:
    sink = _StagingSink(write)
    sink.write([encode(batch(a="a lock", b="RAISE", c="a date"))], None)
    sink.write([encode(batch(a="a lock"))], None)  # what a repeated task staged
    resumed = SparseEncode(write, StagedKeys(write))
    try:
        assert resumed(batch(a="a lock", b="RAISE", c="another date"))["doc_id"].to_pylist() == ["c", "b"]
    finally:
        resumed._encoder.close()


def test_columns_that_the_dataset_lacks_are_named(write: DatasetWrite, encode: SparseEncode) -> None:
    with pytest.raises(ConfigError, match=r"source\.id_field: the dataset has no column _id, only text; name"):
        encode(pa.table({"text": ["a lock"]}))
    with pytest.raises(SourceError, match="the dataset has no column content_hash; give the result of map_batches"):
        _StagingSink(write).write([batch(a="a lock")], None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wave_megabytes": 4}, r"encode\.wave_megabytes: a Ray dataset does not use it; leave it out"),
        ({"source": {"on_damage": "skip"}}, r"source\.on_damage: a Ray dataset does not use it; leave it out"),
        ({"on_duplicate": "last"}, r"encode\.on_duplicate: rows of a dataset have no order; give first or error"),
        ({"store_k": 100_000}, r"encode\.store_k: 100000 is more than"),
    ],
)
def test_settings_without_effect_are_refused(
    tmp_path: Path, tiny_bundle: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        DatasetWrite.prepare(deployment(tiny_bundle, tmp_path, **settings))
    assert not (tmp_path / "table").exists()


def test_rows_of_one_id_collapse_if_their_texts_are_equal(write: DatasetWrite) -> None:
    rows = staged(write, ("b", "x", 1.0), ("a", "x", 2.0), ("b", "x", 1.0), ("b", "y", 3.0))
    cell = _cell(write, PROPERTIES, 0, rows)
    assert cell.counts.rows_in == rows.num_rows - 1
    assert cell.counts.quarantined_by_reason == {"duplicate_id": 1}
    assert cell.counts.rows_out == 2
    strict = replace(write, encode=write.encode.model_copy(update={"on_duplicate": "error"}))
    with pytest.raises(SourceError, match="1 rows have the id of another row and another text, the first 'b'"):
        _cell(strict, PROPERTIES, 0, rows)


def test_failure_of_one_attempt_gives_way_to_the_vector_of_another(write: DatasetWrite) -> None:
    failed = {"doc_id": "a", "content_hash": content_hash("x"), "reason": "encoder_timeout", "detail": "", "raw": "x"}
    other = failed | {"doc_id": "b", "reason": "encode_failed"}
    bad = pa.Table.from_pylist([failed, failed, other, other | {"detail": "again"}], schema=write.schema)
    cell = _cell(write, PROPERTIES, 0, pa.concat_tables([staged(write, ("a", "x", 1.0)), bad]))
    assert (cell.counts.rows_out, cell.counts.quarantined_by_reason) == (1, {"encode_failed": 1})


@given(st.dictionaries(st.text(min_size=1), st.text()), st.dictionaries(st.text(min_size=1), st.text()))
def test_missing_documents_are_those_with_another_id_or_text(earlier: dict[str, str], now: dict[str, str]) -> None:
    keys, sorted_keys = object.__new__(StagedKeys), document_keys([*earlier], [*earlier.values()])
    keys._sorted = None
    if earlier:
        import ray

        keys._sorted = ray.put(sorted_keys[:, np.argsort(sorted_keys[0])])
    wanted = [earlier.get(doc_id) != text for doc_id, text in now.items()]
    assert keys.missing([*now], [*now.values()]).tolist() == wanted
