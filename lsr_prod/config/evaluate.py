"""Settings of evaluations, of sweeps over models, prunings, thresholds and hybrid weights, and of the tuner."""

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator

from lsr_prod.config.section import JudgedCollection, Location, Problems, Section, Thresholds

Correction = Literal["holm", "bonferroni", "none"]

Cost = Literal["flops", "match_p50_ms", "bytes"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")
_MODEL_NAME = "^[A-Za-z0-9][A-Za-z0-9._-]*$"
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 1e6  # the range of ``HybridSystem.words``


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("give up to 64 letters, digits, spaces and . _ + -, the first a letter or a digit")
    return value


Name = Annotated[str, AfterValidator(_name)]
"""Name of a system in tables, and of its run file."""

Share = Annotated[float, Field(ge=0, le=1)]


class Bm25System(Section):
    """BM25 over the text fields of the index."""

    kind: Literal["bm25"]
    name: Name = "bm25"
    """name in tables"""


class TermSystem(Section):
    """Settings of all searches by the encoder's terms."""

    overlap_threshold: Share = 0.0
    """share of the query's terms that a document must share, 0 to 1"""
    min_terms: int = Field(1, ge=1)
    """number of the query's terms that a document must share"""
    qk: int | None = Field(None, ge=1)
    """maximum terms of a query, heaviest first; default: evaluate.qk"""


class SparseSystem(TermSystem):
    """Search by the encoder's terms, with a threshold by ratio, count or weight of the shared terms."""

    kind: Literal["sparse"]
    name: Name
    """name in tables"""
    weight_threshold: Share = 0.0
    """share of the query's weight that the shared terms must have, 0 to 1; it filters the best 10,000 documents of a
    search without a threshold, so it measures quality, not speed"""

    def _problems(self) -> Problems:
        if self.weight_threshold and (self.overlap_threshold or self.min_terms > 1):
            yield "weight_threshold excludes overlap_threshold and min_terms; make it a system of its own"


class HybridSystem(TermSystem):
    """Search by the encoder's terms and the words of the text; the index needs ``index.bm25``."""

    kind: Literal["hybrid"]
    name: Name = "hybrid"
    """name in tables"""
    fusion: Literal["sum", "rrf"] = "sum"
    """sum of weighted scores, or reciprocal rank fusion"""
    terms: float = Field(1.0, ge=1e-6, le=1e6)
    """weight of the encoder's score"""
    words: float = Field(1.0, ge=1e-6, le=1e6)
    """weight of the BM25 score"""
    constant: float = Field(60.0, ge=0, le=1e6)
    """constant of rrf"""
    depth: int | None = Field(None, ge=1, le=10_000)
    """length of the two lists of rrf; default: evaluate.k"""

    def _problems(self) -> Problems:
        if self.fusion == "sum" and (self.constant != 60.0 or self.depth is not None):
            yield "constant and depth are settings of fusion: rrf; leave them out, or set fusion"


class TwoStepSystem(TermSystem):
    """Search with the heaviest terms, then rank what was found by the whole query and all stored terms."""

    kind: Literal["two-step"]
    name: Name
    """name in tables"""
    qk: int = Field(ge=1)
    """terms of the query in the first step, heaviest first"""
    rescore: int | None = Field(None, ge=1, le=10_000)
    """documents that the second step ranks; default: evaluate.k"""


class RunSystem(Section):
    """Rankings of another engine; latency and matched documents are unknown."""

    kind: Literal["run"]
    name: Name
    """name in tables"""
    path: Location = Field(min_length=1)
    """run, file or URI, in a format of docs/evaluation.md"""


SystemSettings = Bm25System | SparseSystem | HybridSystem | TwoStepSystem | RunSystem
SYSTEMS = {get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(SystemSettings)}
"""Settings of a system by kind."""


class EvaluateSettings(Section):
    """Evaluation of a published index with queries and relevance judgments."""

    index: Location = Field(min_length=1)
    """folder or URI of the index"""
    queries: Location = Field(min_length=1)
    """queries, file or URI, in a format of BEIR, MS MARCO or TREC (docs/evaluation.md)"""
    qrels: Location = Field(min_length=1)
    """relevance judgments, file or URI, in a format of BEIR, MS MARCO or TREC (docs/evaluation.md)"""
    measures: list[str] = Field(["nDCG@10", "RR@10", "R@10", "R@100", "P@10"], min_length=1)
    """measures, as named by ir_measures, trec_eval or BEIR"""
    systems: list[Annotated[SystemSettings, Field(discriminator="kind")]] | None = Field(None, min_length=1)
    """systems to compare, each with a name and a kind: bm25, sparse, hybrid, two-step or run; default: those of bm25,
    thresholds and hybrid"""
    thresholds: Thresholds = Field([0.0, 0.2, 0.4, 0.6])
    """overlap thresholds to evaluate: shares of the query terms, 0 to 1"""
    k: int = Field(1000, ge=1, le=10_000)
    """hits per query; no measure may look at more"""
    qk: int | None = Field(None, ge=1)
    """maximum terms of a query, heaviest first; default: all"""
    bm25: bool = True
    """also evaluate BM25: by the impact postings of words if the index has them, else by Tantivy"""
    hybrid: bool = True
    """also evaluate the sum of encoder and BM25 scores, if the index was built with index.bm25"""
    baseline: str | None = None
    """name of the system that the others are compared with; default: BM25, else the first system"""
    significance: float = Field(0.05, gt=0, lt=1)
    """level of the paired tests; intervals hold 1 minus this share"""
    correction: Correction = "holm"
    """correction of the p values of one measure for the number of compared systems"""
    resamples: int = Field(10_000, ge=100, le=1_000_000)
    """samples of the randomization test and of the bootstrap"""
    seed: int = Field(0, ge=0)
    """seed of these samples"""
    cost_queries: int = Field(200, ge=0)
    """number of queries, evenly spread over all, for which matching documents per threshold are counted; 0: none"""
    runs: Location | None = None
    """folder or URI for TREC run files, or JSON lines where an id has white space; default: none are written"""
    output: Location | None = None
    """folder or URI for evaluation.json, the whole result with values per query; default: none"""

    @field_validator("systems")
    def _distinct(cls, systems: list[SystemSettings] | None) -> list[SystemSettings] | None:
        names = [system.name.replace(" ", "-") for system in systems or []]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two systems are called {name}; give each a name of its own")
        return systems

    def _problems(self) -> Problems:
        for name in ("thresholds", "bm25", "hybrid"):
            if self.systems is not None and name in self.model_fields_set:
                yield f"systems and {name} are both given; add a system instead of {name}"


class SweepModelSettings(Section):
    """One model of a sweep."""

    name: str = Field(min_length=1, pattern=_MODEL_NAME)
    """name of the model in the report"""
    bundle: Location = Field(min_length=1)
    """folder or URI of the bundle"""


class CollectionSettings(JudgedCollection):
    """One collection: documents, queries and relevance judgments, which may come from clicks."""

    name: str = Field(min_length=1, pattern=_MODEL_NAME)
    """name of the collection in the report"""


class SweepSettings(Section):
    """Sweep over models, prunings, thresholds and hybrid weights on one or more collections."""

    models: list[SweepModelSettings] = Field(min_length=1)
    """the models to compare"""
    collections: list[CollectionSettings] = Field(min_length=1)
    """the collections to measure on; each must fit into the memory of a task"""
    qk: list[int] = Field([0], min_length=1)
    """maximum terms per query, heaviest first; 0: all"""
    dk: list[int] = Field([0], min_length=1)
    """maximum terms per document, heaviest first; 0: all"""
    prunings: list[tuple[int, int]] = Field([])
    """pairs [qk, dk] to measure instead of every combination of sweep.qk and sweep.dk"""
    thresholds: Thresholds = Field([0.0])
    """overlap thresholds: shares of the query terms, 0 to 1"""
    hybrid_weights: list[float] = Field([])
    """weights of the BM25 score of words, added to the encoder's score; searches without words are measured in any
    case"""
    measures: list[str] = Field(["nDCG@10", "RR@10", "R@100"], min_length=1)
    """measures, as named by ir_measures, trec_eval or BEIR"""
    measure: str | None = None
    """one of the measures, which the Pareto fronts and the choice use; default: the first"""
    cost: Cost = "flops"
    """cost that the choice minimizes: flops, match_p50_ms or bytes"""
    within: float = Field(0.01, ge=0, lt=1)
    """share of the best value of the measure that the chosen setting may lose"""
    significance: float = Field(0.05, gt=0, lt=1)
    """a setting is not chosen if a paired t-test finds it worse at this level"""
    output: Location = Field(min_length=1)
    """folder or URI of the vectors, the measured points, sweep.json and patch.yaml; a folder must be visible to all
    nodes"""
    slice_documents: int = Field(2000, ge=1, le=1_000_000)
    """texts that one task encodes"""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Distinct pairs (qk, dk)."""
        return list(dict.fromkeys(self.prunings or [(qk, dk) for dk in self.dk for qk in self.qk]))

    @property
    def weights(self) -> list[float | None]:
        """None for searches without words, then the distinct hybrid weights."""
        return [None, *dict.fromkeys(self.hybrid_weights)]

    @property
    def main(self) -> str:
        """Measure of the Pareto fronts and of the choice."""
        return self.measure or self.measures[0]

    @field_validator("models", "collections")
    def _distinct(cls, rows: list[SweepModelSettings] | list[CollectionSettings]) -> object:
        names = [row.name for row in rows]
        if len(set(names)) < len(names):
            raise ValueError("two entries have one name; give each its own")
        return rows

    @field_validator("qk", "dk", "prunings")
    def _not_negative(cls, values: list[int] | list[tuple[int, int]]) -> object:
        if any(min(value if isinstance(value, tuple) else (value,)) < 0 for value in values):
            raise ValueError("a number of terms is negative; give 1 or more, or 0 for all terms")
        return values

    @field_validator("hybrid_weights")
    def _possible(cls, weights: list[float]) -> list[float]:
        for weight in weights:
            if not _MIN_WEIGHT <= weight <= _MAX_WEIGHT:
                raise ValueError(
                    f"{weight} is not a weight of words; give values from {_MIN_WEIGHT:g} to {_MAX_WEIGHT:g}"
                )
        return weights

    def _problems(self) -> Problems:
        if self.measure is not None and self.measure not in self.measures:
            yield f"measure has to be one of the measures, {', '.join(self.measures)}"


class TuneSettings(Section):
    """Tuner of the hybrid weight and the overlap threshold of a published index."""

    index: Location = Field(min_length=1)
    """folder or URI of the index, built with index.bm25: true"""
    queries: Location = Field(min_length=1)
    """file or URI, queries as in evaluate"""
    qrels: Location = Field(min_length=1)
    """file or URI, relevance judgments as in evaluate, which may come from clicks"""
    measure: str = Field("nDCG@10", min_length=1)
    """measure to maximize, as named by ir_measures, trec_eval or BEIR"""
    fusion: Literal["sum", "rrf"] = "sum"
    """fusion of hybrid searches: sum of the scores, or reciprocal ranks"""
    lowest_weight: float = Field(1 / 64, ge=_MIN_WEIGHT, le=_MAX_WEIGHT)
    """smallest weight of the words"""
    highest_weight: float = Field(64, ge=_MIN_WEIGHT, le=_MAX_WEIGHT)
    """largest weight of the words"""
    steps_per_octave: int = Field(4, ge=1, le=64)
    """weights between one and its double; the encoder's terms have the weight 1"""
    thresholds: Thresholds = Field([0.0])
    """overlap thresholds to choose from: shares of the query terms, 0 to 1"""
    qk: int | None = Field(None, ge=1)
    """maximum terms of a query, heaviest first; default: all"""
    search: Literal["refine", "exhaustive"] = "refine"
    """refine: measure some weights, then those around the best; exhaustive: measure every weight"""
    folds: int = Field(5, ge=2, le=100)
    """folds of the cross-validation, by query"""
    seed: int = Field(0, ge=0)
    """seed of the folds and of the interval"""
    threads: int = Field(1, ge=1)
    """queries that are searched concurrently"""
    max_queries: int | None = Field(None, ge=2)
    """maximum number of queries; default: all with judgments"""
    output: Location | None = Field(None, min_length=1)
    """folder or URI for tune.json and patch.yaml; default: none are written"""

    def _problems(self) -> Problems:
        if self.lowest_weight > self.highest_weight:
            yield f"lowest_weight {self.lowest_weight:g} is above highest_weight {self.highest_weight:g}; exchange them"
