"""Hard negatives are mined for training pairs."""

from typing import Literal

from pydantic import Field, model_validator

from lsr_prod.config.section import Section
from lsr_prod.config.training_data import TrainingDataSettings

__all__ = ["MineSettings", "TeacherScoresSettings"]


class TeacherScoresSettings(Section):
    """Scores of a better ranker, by which false negatives are told."""

    paths: list[str] = Field(
        min_length=1, description="JSONL files, folders, globs or URIs: query (text) or query_id, doc_id, score"
    )
    key: Literal["query", "query_id"] = Field(
        "query", description="what names the query in these files; query_id needs mine.query_id"
    )
    unscored: Literal["drop", "keep"] = Field(
        "drop", description="of a candidate without a score: drop it, as it may be relevant, or keep it"
    )


class MineSettings(Section):
    """Training pairs become training rows with hard negatives, found by a published index."""

    data: TrainingDataSettings = Field(
        description="the pairs: kind pairs, triples or negatives, of which query and positive are read"
    )
    positive_id: str | None = Field(
        None,
        min_length=1,
        description="column with the document id of the positive in the index; then the text may be absent",
    )
    query_id: str | None = Field(None, min_length=1, description="column with the id of the query, for a teacher")
    index: str = Field(min_length=1, description="folder or URI of the index; queries take the encoder in it")
    cache: str | None = Field(None, description="folder on a local disk for a remote index")
    text_fields: list[str] = Field(
        ["title", "text"], min_length=1, description="stored fields of the index, joined into the text of a document"
    )
    separator: str = Field(" ", description="text between two text fields")
    output: str = Field(min_length=1, description="folder or URI of the rows (Parquet), of this mining alone")
    depth: int = Field(100, ge=1, le=10_000, description="hits of a query that are looked at")
    skip: int = Field(0, ge=0, description="first hits that are never taken: the likeliest false negatives")
    negatives: int = Field(8, ge=1, description="negatives of a row at most")
    at_least: int = Field(1, ge=1, description="a row with fewer negatives is quarantined as too_few_negatives")
    sample: Literal["top", "random"] = Field(
        "top", description="the highest candidates, or any, as seed, row and document decide"
    )
    seed: int = Field(0, ge=0, description="of sample random")
    margin_ratio: float | None = Field(
        None,
        gt=0,
        le=1,
        description="a candidate that scores at least this share of the positive's score is a false negative (0.95 is "
        "common); unset: none is",
    )
    margin: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="the same for one that scores at least the positive's score - margin",
    )
    teacher: TeacherScoresSettings | None = Field(
        None, description="whose scores margin and margin_ratio compare; unset: the index's"
    )
    scores: bool = Field(
        False,
        description="write documents (the positive first) and scores too, for kind scores: the teacher's, else the "
        "index's",
    )
    batch: int = Field(64, ge=1, description="queries encoded and searched at once")
    slice_kilobytes: int = Field(256, ge=1, description="source bytes of one task and its part, kB")
    actors: int | None = Field(None, ge=1, description="processes that mine; unset: one for threads_per_actor cores")
    threads_per_actor: int = Field(1, ge=1, description="ONNX Runtime threads of an actor")

    @model_validator(mode="after")
    def _possible(self) -> "MineSettings":
        if self.data.kind not in ("pairs", "triples", "negatives"):
            raise ValueError("query and positive are read; data.kind has to be pairs, triples or negatives")
        if self.skip + self.negatives > self.depth:
            raise ValueError(
                f"{self.negatives} negatives after the first {self.skip} hits need a depth of "
                f"{self.skip + self.negatives} or more, not {self.depth}"
            )
        if self.at_least > self.negatives:
            raise ValueError(f"at_least {self.at_least} is more than negatives {self.negatives}")
        return self

    @model_validator(mode="after")
    def _consistent_teacher(self) -> "MineSettings":
        if self.teacher is None:
            return self
        if self.margin is None and self.margin_ratio is None and not self.scores:
            raise ValueError("a teacher's scores are read for margin, margin_ratio or scores; set one of them")
        if self.teacher.key == "query_id" and self.query_id is None:
            raise ValueError("name the column of the query's id in mine.query_id, or let teacher.key be query")
        if self.teacher.unscored == "keep" and self.scores:
            raise ValueError("a row with scores needs one of every document; let teacher.unscored be drop")
        return self
