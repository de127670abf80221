"""Settings of sweeps over models, prunings, thresholds and hybrid weights, and of tuners."""

from typing import Literal

from pydantic import Field, field_validator

from lsr_prod.config.section import JudgedCollection, Location, Problems, Section, Thresholds

Cost = Literal["flops", "match_p50_ms", "bytes"]

_NAME = "^[A-Za-z0-9][A-Za-z0-9._-]*$"
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 1e6  # the range of Hybrid.words


class SweepModelSettings(Section):
    """One model of a sweep."""

    name: str = Field(min_length=1, pattern=_NAME)
    """name of the model in the report"""
    bundle: Location = Field(min_length=1)
    """folder or URI of the bundle"""


class CollectionSettings(JudgedCollection):
    """One collection: documents, queries and relevance judgments, which may come from clicks."""

    name: str = Field(min_length=1, pattern=_NAME)
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
