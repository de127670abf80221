"""Settings of an evaluation: queries, judgments, measures, the systems to compare, and tests of significance."""

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator

from lsr_prod.config.section import Location, Problems, Section, Thresholds

Correction = Literal["holm", "bonferroni", "none"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}")


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
    """hits per query"""
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
