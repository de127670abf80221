"""Quality and cost of vectors at levels of pruning and overlap thresholds, measured with real indexes."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.indexing.in_memory import InMemoryIndex, build_in_memory

__all__ = ["Encoded", "LevelReport", "evaluate", "parse_measures"]

_DEPTH = 1000  # hits a query where a measure has no cutoff


@dataclass(frozen=True, slots=True)
class Encoded:
    """Texts by id and their vectors.

    Attributes:
        ids: distinct.
        vectors: one for each id, in that order, not pruned.
    """

    ids: Sequence[str]
    vectors: SparseBatch


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level of pruning at one threshold.

    Attributes:
        qk: heaviest terms kept of a query; 0: all.
        dk: heaviest terms kept of a document; 0: all.
        threshold: share of a query's terms that a document has to hold.
        measures: name of the measure -> mean over the judged queries.
        by_query: name of the measure -> value of every judged query, in the order of ``Encoded.ids``: pairs of two
            models or levels can be tested.
        l0_query: terms of a query after pruning, the mean.
        l0_document: terms of a document after pruning, the mean.
        flops: papers/esplade-pretraining, eq. 1, after pruning; the threshold does not change it.
        matched: documents that share enough terms with a query, the mean.
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
    """Search for every query at every level and threshold; an index is built for each ``dk``.

    Args:
        documents: N of them.
        queries: at least one; each has a judgement.
        qrels: judgements; those of other queries are not read.
        levels: pairs (qk, dk) of terms kept; 0: all.
        thresholds: shares of the query's terms, 0..1.
        measures: in the names of ir_measures.
        scratch: folder for the indexes, which are deleted again; None: the system's.

    Returns:
        A report for each level and threshold, thresholds inside levels, in the order given.

    Raises:
        ConfigError: a measure is unknown.
    """
    parsed = parse_measures("measures", measures)
    asked = set(queries.ids)
    judged = [qrel for qrel in qrels if qrel.query_id in asked]
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


def parse_measures(field: str, names: Sequence[str]) -> dict[str, Any]:
    """Measures of ir_measures by name.

    Raises:
        ConfigError: one is unknown; ``field`` names the setting.
    """
    try:
        return {name: ir_measures.parse_measure(name) for name in names}
    except (NameError, ValueError, SyntaxError) as error:
        raise ConfigError(field, f"a measure is unknown ({error})", "use names of ir_measures, e.g. nDCG@10") from error


def _report(
    index: InMemoryIndex,
    queries: Encoded,
    qrels: Sequence[ir_measures.Qrel],
    measures: Mapping[str, Any],
    level: tuple[int, int, float],
) -> LevelReport:
    qk, dk, threshold = level
    depth = max(int(measure.params.get("cutoff", _DEPTH)) for measure in measures.values())
    run, matched = [], 0
    for i, query_id in enumerate(queries.ids):
        found = index.search(*queries.vectors.row(i), threshold=threshold, k=depth)
        matched += found.matched
        run += [
            ir_measures.ScoredDoc(query_id, doc_id, score)
            for doc_id, score in zip(found.ids, found.scores, strict=True)
        ]
    by_query = _by_query(measures, qrels, run, queries.ids)
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


def _by_query(
    measures: Mapping[str, Any],
    qrels: Sequence[ir_measures.Qrel],
    run: Sequence[ir_measures.ScoredDoc],
    query_ids: Sequence[str],
) -> dict[str, npt.NDArray[np.float64]]:
    """Values by measure and query; a query without hits has 0."""
    place = {query_id: i for i, query_id in enumerate(query_ids)}
    values = {name: np.zeros(len(query_ids)) for name in measures}
    names = {measure: name for name, measure in measures.items()}
    for metric in ir_measures.iter_calc(list(names), qrels, run):
        values[names[metric.measure]][place[metric.query_id]] = metric.value
    return values


def _flops(index: InMemoryIndex, queries: SparseBatch) -> float:
    touched = index.document_frequencies[queries.terms].sum(dtype=np.int64)
    return float(touched) / (len(queries) * len(index.lengths))
