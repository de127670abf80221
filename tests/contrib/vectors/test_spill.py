import numpy as np
import pytest

from lsr_prod.storage.formats.table_format import bucket_of
from lsr_prod_contrib.vectors import spill as module
from lsr_prod_contrib.vectors.spill import Spill, SpillTotals
from lsr_prod_contrib.vectors.vector import VectorRow


def row(doc_id: str, *weights: float, contents: str | None = None) -> VectorRow:
    return VectorRow(doc_id, np.arange(len(weights), dtype=np.int32), np.array(weights, np.float32), contents, 1)


@pytest.mark.parametrize("held", [1, 3, 1000])
def test_rows_are_read_by_bucket_in_insertion_order(tmp_path, monkeypatch, held):
    monkeypatch.setattr(module, "_BATCH_ROWS", held)
    rows = [row(f"d{i % 11}", *range(i % 4, 0, -1), contents=f"é{i}" if i % 2 else None) for i in range(40)]
    with Spill(tmp_path, 3, None) as spill:
        for i, one in enumerate(rows):
            spill.add(one, i % 2, i)
    found = {b: [one for batch in spill.read(b) for one in batch.to_pylist()] for b in range(3)}
    for bucket, some in found.items():
        wanted = [i for i, one in enumerate(rows) if bucket_of(one.doc_id, 3) == bucket]
        assert [one["position"] for one in some] == wanted
        for one in some:
            original = rows[one["position"]]
            assert (one["doc_id"], one["contents"]) == (original.doc_id, original.contents)
            assert one["terms"] == original.terms.tolist()
            assert one["weights"] == original.weights.tolist()
            assert one["file"] == one["position"] % 2


def test_totals_count_kept_terms_only(tmp_path):
    with Spill(tmp_path, 2, 2) as spill:
        for one in (row("a", 5, 2, 1), row("b"), row("c", 1)):
            spill.add(one, 0, 0)
    assert spill.totals == SpillTotals(rows=3, postings=3, longest=2, largest=5.0, largest_id="a", unknown=3)


def test_error_inside_with_block_closes_files(tmp_path):
    def fill() -> None:
        with Spill(tmp_path, 2, None) as spill:
            spill.add(row("a", 1), 0, 0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill()
