from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.encoding.actor import DESCRIPTOR_SCHEMA, BucketEncoder, WaveTask, encode_texts
from lsr_prod.encoding.rows import RAW_LIMIT, row_schema
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import content_hash
from lsr_prod.inference import BundleEncoder
from tests.encoding.tables import PROPERTIES, make_tables


class Poisoned:
    """A real encoder that a text with the word POISON makes fail, as a broken graph would."""

    def __init__(self, encoder: BundleEncoder) -> None:
        self.encoder, self.calls = encoder, 0

    def encode(self, texts: Sequence[str], **settings) -> SparseBatch:
        self.calls += 1
        if any("POISON" in text for text in texts):
            raise RuntimeError("the graph failed")
        return self.encoder.encode(texts, **settings)


def test_a_poison_document_is_found_and_the_others_are_encoded(tiny_bundle: Path):
    texts = [f"fox {i}" if i not in (0, 7, 8, 19) else f"POISON {i}" for i in range(20)]
    encoder = Poisoned(BundleEncoder(tiny_bundle))
    vectors, failed = encode_texts(encoder, texts, top_k=16, batch_tokens=1024)
    assert failed == dict.fromkeys((0, 7, 8, 19), "RuntimeError: the graph failed")
    assert encoder.calls <= 2 * len(texts)
    good = [text for text in texts if "POISON" not in text]
    expected = encoder.encode(good, kind="document", top_k=16, batch_tokens=1024)
    assert len(vectors) == len(good)
    for i in range(len(good)):
        assert set(vectors.row(i)[0]) == set(expected.row(i)[0])


def test_no_text_is_no_vector(tiny_bundle: Path):
    vectors, failed = encode_texts(BundleEncoder(tiny_bundle), [], top_k=16, batch_tokens=1024)
    assert (len(vectors), failed) == (0, {})


class Numbered:
    """Encodes text ``i`` as term ``i``; raises for some texts and returns a weight that is no number for others."""

    def __init__(self, raising: set[int], broken: dict[int, float]) -> None:
        self.raising, self.broken, self.calls = raising, broken, 0

    def encode(self, texts: Sequence[str], **_: object) -> SparseBatch:
        self.calls += 1
        numbers = [int(text) for text in texts]
        if self.raising & set(numbers):
            raise ValueError("y" * 9999)
        weights = np.array([self.broken.get(number, 1.0) for number in numbers], np.float32)
        return SparseBatch(np.arange(len(numbers) + 1), np.array(numbers, np.int32), weights)


@settings(deadline=None)
@given(
    n=st.integers(0, 5000),
    raising=st.sets(st.integers(0, 4999), max_size=6),
    broken=st.dictionaries(st.integers(0, 4999), st.sampled_from([np.nan, np.inf]), max_size=4),
)
def test_whatever_fails_the_other_texts_are_encoded_in_order(n: int, raising: set[int], broken: dict[int, float]):
    encoder = Numbered(raising, broken)
    vectors, failed = encode_texts(encoder, [str(i) for i in range(n)], top_k=4, batch_tokens=8)
    expected = {i for i in raising | broken.keys() if i < n}
    assert failed.keys() == expected
    assert vectors.terms.tolist() == [i for i in range(n) if i not in expected]
    assert len(vectors) == n - len(expected)
    assert np.isfinite(vectors.weights).all()
    assert encoder.calls <= max(1, 2 * n)
    for i, error in failed.items():
        assert error.startswith("ValueError: yyy" if i in raising else "FloatingPointError: ")
        assert len(error) <= RAW_LIMIT


def test_a_bucket_keeps_the_first_row_of_an_id_and_none_that_the_table_has(tmp_path: Path, tiny_bundle: Path):
    table, quarantine = make_tables(tmp_path)

    def encode(wave: int, committed: dict[int, list[str]], *rows: tuple[int, int, str, str]) -> list[dict]:
        task = WaveTask(
            "p",
            wave,
            str(tiny_bundle),
            table,
            quarantine,
            PROPERTIES,
            committed,
            ["a", "b"],
            batch_tokens=64,
            threads=1,
        )
        fields = [
            {"bucket": 0, "file": file, "position": position, "doc_id": doc_id, "text": text}
            for file, position, doc_id, text in rows
        ]
        fields.append({"bucket": 1, "file": 0, "position": 99, "reason": "broken_json", "raw": "{"})
        described = BucketEncoder(task)(pa.Table.from_pylist(fields, schema=row_schema(())))
        assert described.schema == DESCRIPTOR_SCHEMA
        return described.to_pylist()

    first, bad = encode(0, {}, (1, 0, "x", "late"), (0, 9, "y", "fox"), (0, 7, "x", "early"), (0, 8, "x", "later"))
    assert (first["bucket"], first["rows_in"], first["reasons"]) == (0, 4, '{"duplicate_id": 2}')
    assert (bad["bucket"], bad["rows_in"], bad["part"], bad["reasons"]) == (1, 1, None, '{"broken_json": 1}')
    kept = pq.read_table(Path(table.uri) / first["part"]["path"], partitioning=None).to_pylist()
    assert [(row["doc_id"], row["content_hash"]) for row in kept] == [
        ("x", content_hash("early")),
        ("y", content_hash("fox")),
    ]
    assert all(0 < len(row["terms"]) <= PROPERTIES.store_k for row in kept)
    refused = pq.read_table(Path(quarantine.uri) / first["quarantine"]["path"], partitioning=None).to_pylist()
    assert [(row["source"], row["position"], row["raw"]) for row in refused] == [("a", 8, "later"), ("b", 0, "late")]

    committed = {0: [first["part"]["path"]]}
    second, _ = encode(1, committed, (0, 100, "y", "again"), (0, 101, "z", "new"))
    assert (second["part"]["rows"], second["reasons"]) == (1, '{"duplicate_id": 1}')
    third, _ = encode(2, committed, (0, 102, "x", "again"))
    assert (third["part"], third["quarantine"]["rows"]) == (None, 1)
