"""Measure a system on judged queries with the measures of ir_measures."""

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ir_measures
import numpy as np

from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.evaluation import runs, systems
from lsr_prod.search.query.sparse_query import MAX_K

_DEPTH = 1000  # hits per query for a measure without cutoff
_REMEDY = "use names of ir_measures, e.g. nDCG@10"
_FOREIGN = re.compile(
    r"(?:cosine_|dot_)?(?:([A-Za-z][A-Za-z_]*?)(?:_cut)?(@|_at_|[_.])(\d+(?:\.\d+)?)|([A-Za-z][A-Za-z_]*))"
)
_ALIASES = {name.lower(): str(measure) for name, measure in ir_measures.measures.registry.items()} | {
    "accuracy": "Success",  # of sentence-transformers; Accuracy is another measure of ir_measures
    "hit": "Success",
    "hit_rate": "Success",
    "iprec_at_recall": "IPrec",
    "ndcg_burges": "nDCG(dcg='exp-log2')",
    "r_precision": "Rprec",
    "reciprocal_rank": "RR",
    "recip_rank": "RR",
    "set_f": "SetF",
    "set_map": "SetAP",
    "set_p": "SetP",
    "set_recall": "SetR",
    "set_relative_p": "SetRelP",
}
"""Names of trec_eval, BEIR, MTEB, ranx and sentence-transformers in lower case -> names of ir_measures."""
# Numbers as ids: the program of ERR reads no others.
_EXAMPLE = ([ir_measures.Qrel("1", "1", 1), ir_measures.Qrel("1", "2", 0)], [ir_measures.ScoredDoc("1", "2", 1.0)])


@dataclass(frozen=True, slots=True)
class Values:
    """Answers of a system to the queries of a collection, and the values of their measures."""

    answers: Sequence[systems.Answer]  # one per query
    by_query: dict[
        str, np.typing.NDArray[np.float64]
    ]  # name of the measure -> float64 [Q], in the order of the queries

    @property
    def means(self) -> dict[str, float]:
        """Mean of every measure over the queries."""
        return {name: float(values.mean()) for name, values in self.by_query.items()}


def measure(
    system: systems.System,
    queries: Sequence[systems.EncodedQuery],
    qrels: Sequence[ir_measures.Qrel],
    measures: Mapping[str, Any],
    *,
    threads: int = 1,
) -> Values:
    """Answer all queries with a system, and measure the rankings.

    With one thread the queries are answered in turn by the calling thread, as timed answers need it.
    """
    if threads == 1:
        answers = [system.answer(query) for query in queries]
    else:
        with ThreadPoolExecutor(threads) as pool:
            answers = list(pool.map(system.answer, queries))
    rankings = {query.query_id: answer.ranking for query, answer in zip(queries, answers, strict=True)}
    return Values(answers, measure_by_query(measures, qrels, rankings, list(rankings)))


def depth_of(measures: Mapping[str, Any]) -> int:
    """Return the number of hits per query that the measures look at."""
    return max(int(one.params.get("cutoff", _DEPTH)) for one in measures.values())


def parse_measures(field: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the measures by name: those of ir_measures, or their names in trec_eval, BEIR, MTEB, ranx and others."""
    try:
        measures: dict[str, Any] = {name: _parse(name) for name in names}
    except (ValueError, SyntaxError) as error:
        raise ConfigError(field, f"a measure is unknown ({error})", _REMEDY) from error
    pipeline: Any = ir_measures.DefaultPipeline
    for name, measure in measures.items():
        if not isinstance(measure.aggregator(), ir_measures.measures.base.MeanAgg):
            raise ConfigError(field, f"{name!r} is a count over all queries, not a mean", _REMEDY)
        try:
            measure.validate_params()
            supported = pipeline.supports(measure)
        except AssertionError as error:
            raise ConfigError(field, f"{name!r} is not possible ({error})", _REMEDY) from error
        if not 1 <= measure.params.get("cutoff", 1) <= MAX_K:  # below 1 trec_eval would abort the process
            raise ConfigError(field, f"no search returns the hits of {name!r}", f"give a cutoff from 1 to {MAX_K:,}")
        if not supported:
            raise ConfigError(field, f"no installed package computes {name!r}", _REMEDY)
        try:
            list(pipeline.iter_calc([measure], *_EXAMPLE))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(field, f"the package that computes {name!r} fails here ({why})", _REMEDY) from error
    return measures


def _own_name(name: str) -> str:
    """Return the name that ir_measures has for a measure of another tool; other names as they are."""
    match = _FOREIGN.fullmatch(name)
    if match is None:
        return name
    base, separator, cutoff = match[1] or match[4], match[2], match[3]
    if base.lower() == "rbp" and separator == ".":  # ranx: the persistence follows
        return f"RBP(p=0.{cutoff})"
    return f"{_known(base)}@{cutoff}" if cutoff else _known(base)


def _known(base: str) -> str:
    return base if base in ir_measures.measures.registry else _ALIASES.get(base.lower(), base)


def _parse(name: str) -> Any:
    """Return the measure of a name like ``nDCG(dcg='exp-log2')@10``.

    ``parse_measure`` of ir_measures (0.4.3) reads the same names, but with classes of ``ast`` that Python 3.14 has no
    longer.
    """
    node: ast.expr = ast.parse(_own_name(name), mode="eval").body
    arguments: dict[str, Any] = {}
    cutoff = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        cutoff = ast.literal_eval(node.right)
        node = node.left
    if isinstance(node, ast.Call) and not node.args:
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        node = node.func
    if not isinstance(node, ast.Name):
        raise ValueError(f"{name!r} is not of the form Name(option=value)@cutoff")
    measures: Mapping[str, Any] = ir_measures.measures.registry
    if (known := _known(node.id)) not in measures:
        near = dict.fromkeys(_ALIASES[one] for one in difflib.get_close_matches(node.id.lower(), _ALIASES))
        raise ValueError(f"no measure is called {node.id}{', did you mean ' + ' or '.join(near) if near else ''}")
    measure = measures[known]
    if cutoff is not None:
        arguments[measure.AT_PARAM] = cutoff
    return measure(**arguments)


def measure_by_query(
    measures: Mapping[str, Any],
    qrels: Sequence[ir_measures.Qrel],
    rankings: Mapping[str, runs.Ranking],
    query_ids: Sequence[str],
) -> dict[str, np.typing.NDArray[np.float64]]:
    """Return the value of every measure for every query.

    Whichever package computes a measure, hits are ranked as trec_eval ranks a run file of the rankings: scores are
    compared in float32, and those that are equal are ordered by falling id.

    Returns:
        Name of the measure -> float64 [Q], in the order of ``query_ids``; 0 for queries without hits.
    """
    rising = {name: sorted((np.float32(score), id_) for id_, score in rankings.get(name, ())) for name in query_ids}
    run = [
        ir_measures.ScoredDoc(query_id, doc_id, float(rank))
        for query_id, hits in rising.items()
        for rank, (_, doc_id) in enumerate(hits)
    ]
    place = {query_id: i for i, query_id in enumerate(query_ids)}
    values = {name: np.zeros(len(query_ids)) for name in measures}
    judged = [qrel for qrel in qrels if qrel.query_id in place]
    names: dict[Any, list[str]] = {}
    for name, measure in measures.items():
        names.setdefault(measure, []).append(name)
    try:
        for metric in ir_measures.iter_calc(list(names), judged, run):
            for name in names[metric.measure]:
                values[name][place[metric.query_id]] = metric.value
    except Exception as error:  # as in `parse_measures`; some providers write files that cannot name every id
        why = f"{type(error).__name__}: {error}"
        raise SourceError(
            f"{', '.join(measures)} cannot be computed ({why}); leave the measure that fails out"
        ) from error
    return values
