"""Settings of evaluation sets from click logs."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.section import Header, Location, Section, SourceLocation


class ClickColumns(Section):
    """Columns of a click log."""

    query: str = Field("query", min_length=1)
    """text of the query"""
    document: str = Field("doc_id", min_length=1)
    """id of the document: strings, or integers of a typed column"""
    title: str | None = Field("title", min_length=1)
    """title of the document; null: there is none"""
    text: str | None = Field(None, min_length=1)
    """further text of the document; null: there is none"""
    clicks: str | None = Field(None, min_length=1)
    """number of clicks that a row stands for; null: every row is one click"""
    impressions: str | None = Field(None, min_length=1)
    """number of times that the document was shown; null: unknown"""
    position: str | None = Field(None, min_length=1)
    """position of the document in the results, from 1; null: unknown"""
    cluster: str | None = Field(None, min_length=1)
    """cluster of the query, a string or an integer, from a clustering of embeddings; null: queries are clustered by the
    documents that they share"""


class ClickTestSettings(Section):
    """The test set."""

    queries: int = Field(30, ge=1)
    """candidate queries per cluster, at most"""
    distractors: int = Field(90, ge=0)
    """further queries per cluster, at most, whose documents are added to the corpus"""
    drawn: int | None = Field(None, ge=3)
    """queries of the set, at most: the same number from each third of the matched-term ratio; default: as many as there
    are"""


class ClickValidationSettings(ClickTestSettings):
    """The validation set."""

    queries: int = Field(1, ge=1)
    """candidate queries per cluster, at most"""
    distractors: int = Field(3, ge=0)
    """further queries per cluster, at most, whose documents are added to the corpus"""


class ClickSetSettings(Section):
    """Test set, validation set and training pairs from a click log."""

    paths: list[SourceLocation] = Field(min_length=1)
    """files, folders, globs or URIs of the log"""
    format: Literal["auto", "parquet", "jsonl", "csv", "tsv"] = "auto"
    """auto: by the file extension (.parquet, .jsonl, .ndjson, .json, .csv, .tsv, text also compressed)"""
    columns: ClickColumns = ClickColumns()
    """columns of the log"""
    header: Header | None = None
    """column names of CSV and TSV files without a header row"""
    quotes: bool = True
    """fields of CSV and TSV may be enclosed in double quotes"""
    output: Location = Field(min_length=1)
    """new folder or URI of the sets"""
    quarantine: Location | None = None
    """folder or URI of the bad rows (Parquet); default: <output>_quarantine"""
    seed: int = Field(0, ge=0, lt=2**63)
    """seed of every draw; the same log and seed give the same bytes"""
    min_clicks: int = Field(2, ge=1)
    """clicks of a query on a document from which on it counts as relevant"""
    min_documents: int = Field(2, ge=1)
    """relevant documents from which on a query is used"""
    max_position: int | None = Field(None, ge=1)
    """rows with a lower position in the results are skipped and counted; needs columns.position"""
    label_score: Literal["clicks", "rate"] = "clicks"
    """order of the relevant documents of a query: by clicks, or by clicks per impression; needs columns.impressions"""
    max_document_queries: int = Field(100, ge=2)
    """a document that more queries have clicked does not connect them to one cluster"""
    max_cluster_queries: int = Field(10_000, ge=2)
    """clusters with more queries are split: the bound max_document_queries is halved inside them until they are small
    enough"""
    clusters: int = Field(10_000, ge=1)
    """clusters that queries are drawn from, at most"""
    min_cluster_queries: int = Field(2, ge=1)
    """queries of a cluster from which on it is drawn"""
    max_cluster_share: float = Field(0.5, gt=0, le=1)
    """largest share of the queries of a cluster that leave the training data"""
    test: ClickTestSettings = ClickTestSettings()
    """test set"""
    validation: ClickValidationSettings = ClickValidationSettings()
    """validation set"""
    positives: int = Field(3, ge=1)
    """relevant documents per query of a set, at most"""
    negatives: int = Field(10, ge=1)
    """hard lexical negatives per query of a set, at most"""
    negative_ratio: float = Field(0.5, ge=0, lt=1)
    """a negative has a matched-term ratio above this share of the words of the query"""
    max_text_bytes: int = Field(100_000, ge=1)
    """maximum bytes of a query and of a document; rows with longer ones are quarantined"""
    max_bad_fraction: float = Field(0.05, ge=0, le=1)
    """maximum share of quarantined rows; the job fails above it"""

    @field_validator("max_position")
    def _has_position(cls, position: int | None, info: ValidationInfo) -> int | None:
        columns = info.data.get("columns")
        if position is not None and columns is not None and columns.position is None:
            raise ValueError("the column of the position is unknown; name it in click_set.columns.position")
        return position

    @field_validator("label_score")
    def _has_impressions(cls, score: str, info: ValidationInfo) -> str:
        columns = info.data.get("columns")
        if score == "rate" and columns is not None and columns.impressions is None:
            raise ValueError("a rate needs impressions; name their column in click_set.columns.impressions")
        return score

    @field_validator("columns")
    def _has_text(cls, columns: ClickColumns) -> ClickColumns:
        if columns.title is None and columns.text is None:
            raise ValueError("a document needs a title or a text; name one of the two columns")
        return columns
