from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.encoding import table_digest
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import bucket_of, content_hash, quantize
from lsr_prod_contrib.vectors import as_rows, batch_of_decoded
from lsr_prod_contrib.vectors import table_import as module
from lsr_prod_contrib.vectors.table_import import ImportQuarantine, Source, import_vectors
from lsr_prod_contrib.vectors.vector import Rules, row_of_tokens
from tests.contrib.vectors.conftest import TERMS
from tests.encoding.made_tables import read

PLAN = "a" * 64


def rows_of(vocabulary, vectors, contents=None):
    return [row_of_tokens(doc_id, vector, contents, Rules(vocabulary)) for doc_id, vector in vectors]


def run(folder, vocabulary, rows, refused=(), **layout):
    """Import rows of two sources; return the result, the rows of the table by id, and the bad rows."""
    half = len(rows) // 2
    parts = [rows[:half], rows[half:]]
    sources = [Source(f"s{i}", i - 1, list(enumerate(part))) for i, part in enumerate(parts)]
    store, path = Store(str(folder / "table")), folder / "q"
    defaults = {"action": "import", "table": store.uri, "bundle": "b", "buckets": 3, "max_impact_error": None}
    made = VectorsSettings(**{**defaults, **layout})
    done = import_vectors(sources, store, vocabulary, made, ImportQuarantine(Store(str(path)), PLAN, refused), PLAN)
    return (
        done,
        {row["doc_id"]: row for row in read(store)},
        pq.read_table(path).to_pylist() if path.exists() else [],
    )


def test_impacts_are_kept_exactly(vocabulary, tmp_path):
    vectors = [(f"d{i}", {term: 1 + (i * j) % 255 for j, term in enumerate(TERMS[: i % 15])}) for i in range(60)]
    done, rows, bad = run(tmp_path, vocabulary, rows_of(vocabulary, vectors, "née"), quantized=True, impact_step=0.01)
    assert bad == []
    for doc_id, vector in vectors:
        row = rows[doc_id]
        assert {TERMS[t]: i for t, i in zip(row["terms"], row["impacts"], strict=True)} == vector
        assert row["impacts"] == sorted(row["impacts"], reverse=True)
        assert (row["text"], row["content_hash"]) == ("née", content_hash("née"))
    table = open_table(Store(str(tmp_path / "table")))
    properties = table.sparse_properties
    assert (properties.impact_step, properties.store_k, properties.impact_error) == (0.01, 14, 0.0)
    assert (properties.bundle_digest, properties.vocabulary_sha256) == (vocabulary.bundle_digest, vocabulary.sha256)
    assert {file.partition["bucket"] for file in table.files()} == {str(bucket_of(d, 3)) for d, _ in vectors}
    assert (done.documents, done.read, done.postings) == (60, 60, sum(len(v) for _, v in vectors))
    assert Counter(row["source_file"] for row in rows.values()) == {-1: 30, 0: 30}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    vectors=st.lists(
        st.dictionaries(st.sampled_from(TERMS), st.floats(2**-6, 2**12, width=32), max_size=9), max_size=12
    ),
    bits=st.sampled_from([4, 8, 16]),
    step=st.none() | st.sampled_from([0.5, 3.0]),
    part_rows=st.sampled_from([1, 3, 1000]),
)
def test_weights_are_quantized_as_the_format_defines(vocabulary, tmp_path_factory, vectors, bits, step, part_rows):
    named = [(f"d{i}", vector) for i, vector in enumerate(vectors)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART_ROWS", part_rows)
        done, rows, _ = run(
            tmp_path_factory.mktemp("t"), vocabulary, rows_of(vocabulary, named), impact_bits=bits, impact_step=step
        )
    scale = done.properties.impact_step
    weights = np.array([weight for vector in vectors for weight in vector.values()], np.float32)
    impacts, clipped = quantize(weights, scale, bits)
    assert done.clipped == clipped
    assert (clipped == 0) or step is not None
    errors = np.abs(weights.astype(float) - impacts * scale)
    if len(weights):
        assert done.properties.impact_error == pytest.approx(errors.mean() / weights.astype(float).mean(), abs=1e-6)
        assert done.properties.impact_error_max == pytest.approx(errors.max(), abs=1e-6)
    for doc_id, vector in named:
        wanted, _ = quantize(np.array(list(vector.values()), np.float32), scale, bits)
        found = {TERMS[t]: i for t, i in zip(rows[doc_id]["terms"], rows[doc_id]["impacts"], strict=True)}
        assert found == dict(zip(vector, wanted.tolist(), strict=True))


def test_first_row_of_a_repeated_id_is_kept(vocabulary, tmp_path):
    rows = rows_of(vocabulary, [("a", {"lock": 1}), ("b", {"lock": 2}), ("a", {"lock": 3}), ("a", {"lock": 4})])
    done, table, bad = run(tmp_path, vocabulary, rows, quantized=True, impact_step=1)
    assert table["a"]["impacts"] == [1]
    assert [(one["source"], one["position"], one["reason"], one["doc_id"]) for one in bad] == [
        ("s1", 0, "duplicate_id", "a"),
        ("s1", 1, "duplicate_id", "a"),
    ]
    assert (done.documents, done.read) == (2, 4)


def test_store_k_keeps_the_heaviest_terms(vocabulary, tmp_path):
    rows = rows_of(vocabulary, [("a", {"lock": 1, "Ω": 9, "0": 5})])
    done, table, _ = run(tmp_path, vocabulary, rows, quantized=True, impact_step=1, store_k=2, contents=None)
    assert table["a"]["impacts"] == [9, 5]
    assert (done.properties.store_k, done.properties.stored_fields, "text" in table["a"]) == (2, (), False)


def test_refused_reason_leaves_no_table(vocabulary, tmp_path):
    rows = [*rows_of(vocabulary, [("a", {"lock": 1})]), BadRow("unknown_term", "'x' is not", "b", "")]
    with pytest.raises(SourceError, match="unknown_term"):
        run(tmp_path, vocabulary, rows, refused=["unknown_term"])
    assert list(tmp_path.iterdir()) == []


def test_import_without_vectors_writes_an_empty_table(vocabulary, tmp_path):
    done, rows, _ = run(tmp_path, vocabulary, [])
    assert (rows, done.documents, done.properties.store_k) == ({}, 0, 1)


def test_interrupted_import_is_completed_by_the_next(vocabulary, tmp_path, monkeypatch):
    rows = rows_of(vocabulary, [(f"d{i}", {"lock": i + 1, "Ω": 0.5}) for i in range(30)])
    writes = []

    def write_some(store, folder, table, origin):
        writes.append(folder)
        if len(writes) == 2:
            raise KeyboardInterrupt
        return write_part(store, folder, table, origin)

    write_part = module.write_part
    monkeypatch.setattr(module, "write_part", write_some)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, vocabulary, rows)
    assert open_table(Store(str(tmp_path / "table"))).files() == []
    monkeypatch.undo()
    _, found, _ = run(tmp_path, vocabulary, rows)
    run(tmp_path / "other", vocabulary, rows)
    assert len(found) == 30
    assert table_digest(str(tmp_path / "table")) == table_digest(str(tmp_path / "other" / "table"))


def test_vectors_in_memory_are_imported_like_files(vocabulary, tmp_path):
    batch = batch_of_decoded([{"lock": 2.0, "Ω": 1.0}, {}], vocabulary)
    _, rows, _ = run(tmp_path, vocabulary, as_rows(["a", "b"], batch), impact_step=1.0)
    assert [(row["terms"], row["impacts"]) for row in rows.values()] in (
        [([0, TERMS.index("Ω")], [2, 1]), ([], [])],
        [([], []), ([0, TERMS.index("Ω")], [2, 1])],
    )
