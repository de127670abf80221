from typing import Any

import ir_measures
import pytest

from lsr_prod import Index
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.search import Hybrid
from lsr_prod_contrib.sweeps.tuning import Candidate, CandidateValues
from tests.contrib.sweeps.tuning.settings import deployment


@pytest.mark.parametrize("fusion", ["sum", "rrf"])
def test_values_of_a_candidate_equal_the_public_search(fusion: Any, index: Index, places: dict[str, str]) -> None:
    settings = deployment(index, places, fusion=fusion, qk=6).tune
    assert settings is not None
    judged = read_judged(places["queries"], places["qrels"])
    found = CandidateValues(index, judged, settings)(Candidate(0.4, 2.0))
    hybrid = Hybrid(fusion=fusion, words=2.0)
    run = [
        ir_measures.ScoredDoc(query_id, hit.doc_id, hit.score)
        for query_id, text in judged.queries.items()
        for hit in index.search(text, k=10, hybrid=hybrid, overlap_threshold=0.4, qk=6).hits
    ]
    expected = {one.query_id: one.value for one in ir_measures.iter_calc([ir_measures.RR @ 10], judged.qrels, run)}
    assert found.tolist() == pytest.approx([expected[query_id] for query_id in judged.queries])
