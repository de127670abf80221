"""Values of candidates, measured on an index with the searches of the product."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from lsr_prod.config import TuneSettings
from lsr_prod.evaluation.collection import JudgedQueries
from lsr_prod.evaluation.measures import measure_by_query, parse_measures
from lsr_prod.evaluation.tuning.candidates import Candidate
from lsr_prod.interchange.runs import Ranking
from lsr_prod.logs import get_log
from lsr_prod.search import Hybrid, Searcher

log = get_log(__name__)

_DEPTH = 1000  # hits per query for a measure without cutoff
_RRF_DEPTH = 100
_PROGRESS_S = 10.0


class CandidateValues:
    """Measures candidates on an index, each once.

    Attributes:
        measured: values of every query by candidate, float64 [Q].
        queries: number of queries.
    """

    def __init__(self, searcher: Searcher, judged: JudgedQueries, settings: TuneSettings) -> None:
        """Encode the queries."""
        self.measured: dict[Candidate, npt.NDArray[np.float64]] = {}
        self.queries = len(judged.queries)
        self._searcher, self._judged, self._settings = searcher, judged, settings
        self._measures = parse_measures("tune.measure", [settings.measure])
        self._depth = int(self._measures[settings.measure].params.get("cutoff", _DEPTH))
        encoded = searcher.encode(list(judged.queries.values()))
        self._vectors = [dict(zip(one.terms, one.weights.tolist(), strict=True)) for one in encoded]
        self._began = self._logged = time.monotonic()

    def __call__(self, candidate: Candidate) -> npt.NDArray[np.float64]:
        """Return the value of every query, float64 [Q]."""
        if candidate not in self.measured:
            weight, settings = candidate.hybrid_weight, self._settings
            depth = {"depth": max(_RRF_DEPTH, self._depth)} if settings.fusion == "rrf" else {}
            hybrid = None if weight is None else Hybrid(fusion=settings.fusion, words=weight, **depth)

            def search(vector: dict[str | int, float], text: str) -> list[tuple[str, float]]:
                words = None if hybrid is None else text
                found = self._searcher.search_vector(
                    vector,
                    self._depth,
                    text=words,
                    hybrid=hybrid,
                    overlap_threshold=candidate.threshold,
                    qk=settings.qk,
                )
                return [(hit.doc_id, hit.score) for hit in found.hits]

            with ThreadPoolExecutor(settings.threads) as pool:
                rankings = list(pool.map(search, self._vectors, self._judged.queries.values()))
            self.measured[candidate] = self._values(rankings)
            self._log()
        return self.measured[candidate]

    def bm25(self) -> npt.NDArray[np.float64]:
        """Return the value of every query for BM25 alone, float64 [Q]."""
        results = [self._searcher.bm25(text, self._depth) for text in self._judged.queries.values()]
        return self._values([[(hit.doc_id, hit.score) for hit in result.hits] for result in results])

    def _values(self, rankings: Sequence[Ranking]) -> npt.NDArray[np.float64]:
        ids = list(self._judged.queries)
        by_query = dict(zip(ids, rankings, strict=True))
        return measure_by_query(self._measures, self._judged.qrels, by_query, ids)[self._settings.measure]

    def _log(self) -> None:
        now = time.monotonic()
        if now - self._logged >= _PROGRESS_S:
            self._logged = now
            fields = {"candidates": len(self.measured), "seconds": round(now - self._began, 1)}
            log.info("measured", extra={"fields": fields})
