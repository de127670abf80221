"""Quality and cost of vectors at levels of pruning and overlap thresholds, measured with in-memory indexes."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.measures import measure_by_query, parse_measures
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.indexing.in_memory import InMemoryIndex, build_in_memory
from lsr_prod.interchange.runs import Ranking

__all__ = ["Encoded", "LevelReport", "evaluate"]

_DEPTH = 1000  # hits per query for measures without cutoff


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids and vectors of texts.

    Attributes:
        ids: distinct.
        vectors: one for each id, in that order, not pruned.
    """

    ids: Sequence[str]
    vectors: SparseBatch


@dataclass(frozen=True, slots=True)
class LevelReport:
    """Result for one level of pruning and one threshold.

    Attributes:
        qk: heaviest terms kept per query; 0: all.
        dk: heaviest terms kept per document; 0: all.
        threshold: share of the query terms that a document must have.
        measures: name of the measure -> mean over the judged queries.
        by_query: name of the measure -> value of every judged query, in the order of ``Encoded.ids``, for paired
            tests of two models or levels.
        l0_query: mean number of terms per query after pruning.
        l0_document: mean number of terms per document after pruning.
        flops: papers/esplade-pretraining, eq. 1, after pruning; independent of the threshold.
        matched: mean number of documents with the required terms per query.
    """

    qk: int
    dk: int
    threshold: float
    measures: dict[str, float]
    by_query: dict[str, npt.NDArray[np.float64]]
    l0_query: float
    l0_document: float
    flops: float
    matched: float


def evaluate(
    documents: Encoded,
    queries: Encoded,
    qrels: Sequence[ir_measures.Qrel],
    *,
    levels: Sequence[tuple[int, int]],
    thresholds: Sequence[float],
    measures: Sequence[str],
    scratch: Path | None = None,
) -> list[LevelReport]:
    """Run every query at every level and threshold, with one index per ``dk``.

    Args:
        documents: N documents.
        queries: at least one query; each has a judgment.
        qrels: judgments; those of other queries are ignored.
        levels: pairs (qk, dk) of terms to keep; 0: all.
        thresholds: shares of the query terms, 0..1.
        measures: names of ir_measures.
        scratch: folder for the indexes, which are deleted at the end; None: the system's temporary folder.

    Returns:
        One report per level and threshold, in the given order; thresholds vary fastest.

    Raises:
        ConfigError: a measure is unknown.
    """
    parsed = parse_measures("measures", measures)
    known = set(queries.ids)
    judged = [qrel for qrel in qrels if qrel.query_id in known]
    terms = 1 + max(int(batch.terms.max(initial=0)) for batch in (documents.vectors, queries.vectors))
    reports: dict[tuple[int, int, float], LevelReport] = {}
    for dk in dict.fromkeys(dk for _, dk in levels):
        with tempfile.TemporaryDirectory(prefix="lsr-scratch-", dir=scratch) as folder:
            index = build_in_memory(Path(folder), documents.ids, documents.vectors, vocabulary_size=terms, dk=dk)
            for qk in dict.fromkeys(qk for qk, other in levels if other == dk):
                pruned = Encoded(queries.ids, queries.vectors.top(qk) if qk else queries.vectors)
                for threshold in thresholds:
                    reports[qk, dk, threshold] = _report(index, pruned, judged, parsed, (qk, dk, threshold))
    return [reports[qk, dk, threshold] for qk, dk in levels for threshold in thresholds]


def _report(
    index: InMemoryIndex,
    queries: Encoded,
    qrels: Sequence[ir_measures.Qrel],
    measures: Mapping[str, Any],
    level: tuple[int, int, float],
) -> LevelReport:
    qk, dk, threshold = level
    depth = max(int(measure.params.get("cutoff", _DEPTH)) for measure in measures.values())
    rankings: dict[str, Ranking] = {}
    matched = 0
    for i, query_id in enumerate(queries.ids):
        found = index.search(*queries.vectors.row(i), threshold=threshold, k=depth)
        matched += found.matched
        rankings[query_id] = list(zip(found.ids, found.scores, strict=True))
    by_query = measure_by_query(measures, qrels, rankings, queries.ids)
    return LevelReport(
        qk=qk,
        dk=dk,
        threshold=threshold,
        measures={name: float(values.mean()) for name, values in by_query.items()},
        by_query=by_query,
        l0_query=len(queries.vectors.terms) / len(queries.ids),
        l0_document=float(index.lengths.mean()),
        flops=_flops(index, queries.vectors),
        matched=matched / len(queries.ids),
    )


def _flops(index: InMemoryIndex, queries: SparseBatch) -> float:
    touched = index.document_frequencies[queries.terms].sum(dtype=np.int64)
    return float(touched) / (len(queries) * len(index.lengths))
