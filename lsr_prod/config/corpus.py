"""The corpus, the table that it becomes, and how that table is kept small."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.section import Section

__all__ = ["EncodeSettings", "MaintainSettings", "SourceSettings"]


class SourceSettings(Section):
    """The corpus."""

    paths: list[str] = Field(min_length=1, description="files, folders, globs or URIs; a Delta source is one table")
    format: str = Field(
        "auto",
        description="auto goes by the ending (.parquet, .jsonl, .ndjson, .csv, .tsv, a text format also .gz or .zst) "
        "or by what a folder holds: corpus.jsonl (BEIR), _delta_log, state.json (saved by Hugging Face datasets)",
    )
    version: int | None = Field(None, ge=0, description="version of a Delta source; unset: the newest")
    id_field: str = Field(
        "_id",
        min_length=1,
        description="column of the document id: strings, or integers of a typed column (Parquet, Delta, datasets), "
        "which become their decimal text; an id of another type is quarantined as wrong_type",
    )
    text_fields: list[str] = Field(
        ["title", "text"],
        min_length=1,
        description="columns joined into the encoded text; absent or null ones are left out",
    )
    separator: str = Field(" ", description="text between two text fields")
    separators: list[str] | None = Field(
        None, description="one text for each gap between text_fields, in their order; unset: separator for all"
    )
    stored_fields: list[str] = Field(
        ["title", "text"], description="columns kept in the table, for BM25 and for display"
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="names of ours -> columns of the corpus where they differ, e.g. {_id: docno, text: body}",
    )
    header: list[str] | None = Field(
        None, min_length=1, description="columns of CSV and TSV files that have no header row; unset: they have one"
    )
    quotes: bool = Field(
        True,
        description='whether a field of CSV and TSV may stand in double quotes ("" is a quote, line ends may stand '
        "inside); false: a quote is a character like any other, and files are cut into ranges of bytes",
    )
    max_text_bytes: int = Field(
        1_000_000, ge=1, description="longest text of a document in bytes; longer ones are quarantined"
    )

    @field_validator("header")
    @classmethod
    def _header_without_repeats(cls, header: list[str] | None) -> list[str] | None:
        if header is not None and len(set(header)) < len(header):
            raise ValueError("each column has to have a name of its own")
        return header

    @field_validator("separators")
    @classmethod
    def _one_a_gap(cls, separators: list[str] | None, info: ValidationInfo) -> list[str] | None:
        gaps = len(info.data.get("text_fields", [])) - 1
        if separators is not None and len(separators) != gaps:
            raise ValueError(f"text_fields need {gaps}, one for each gap between two of them")
        return separators

    @field_validator("columns")
    @classmethod
    def _columns_of_fields(cls, columns: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if not {"id_field", "text_fields", "stored_fields"} <= info.data.keys():
            return columns  # one of them is wrong itself
        fields = [info.data["id_field"], *info.data["text_fields"], *info.data["stored_fields"]]
        for ours, theirs in columns.items():
            if ours not in fields:
                raise ValueError(f"{ours} is none of id_field, text_fields and stored_fields, which name ours")
            if not theirs:
                raise ValueError(f"name the column of the corpus that is {ours}")
        return columns

    @property
    def fields(self) -> list[str]:
        """Our names of every column that is read: the id, the text fields, the stored fields; each once."""
        return list(dict.fromkeys([self.id_field, *self.text_fields, *self.stored_fields]))

    def column(self, field: str) -> str:
        """What the corpus calls one of our fields."""
        return self.columns.get(field, field)


class EncodeSettings(Section):
    """A corpus becomes a sparse table."""

    bundle: str = Field(min_length=1, description="folder of the ONNX bundle")
    table: str = Field(min_length=1, description="folder or URI of the sparse table; made if absent")
    sink: Literal["delta", "parquet"] = Field(
        "delta", description="delta, or plain Parquet files with a log of ours; of a new table and of its quarantine"
    )
    quarantine: str | None = Field(None, description="folder or URI of the quarantine table; unset: <table>_quarantine")
    wave_megabytes: int = Field(256, ge=1, description="source bytes of a wave, MB; a wave is committed as a whole")
    slice_megabytes: int = Field(32, ge=1, description="source bytes of one read task, MB")
    batch_tokens: int = Field(512, ge=1, description="tokens of a batch, padding included; a GPU takes many more")
    actors: int | None = Field(None, ge=1, description="encoder actors; unset: one a core")
    threads_per_actor: int = Field(1, ge=1, description="ONNX Runtime threads of an actor")
    provider: Literal["auto", "cpu", "cuda", "tensorrt"] = Field(
        "auto", description="what runs the graph; auto takes the first of cuda, tensorrt and cpu that is there"
    )
    batch_timeout_s: float = Field(
        900,
        ge=0.1,
        le=86_400,
        description="seconds of one model call (2,048 documents at most); after it the actor's process is ended, and "
        "its documents are tried in a process of their own",
    )
    document_timeout_s: float = Field(
        60,
        ge=0.1,
        le=86_400,
        description="seconds there for one document; a slower one is quarantined; batch_timeout_s at most",
    )
    store_k: int = Field(256, ge=1, description="terms kept of a document, heaviest first")
    max_length: int | None = Field(
        None, ge=1, description="tokens of a document or passage, special tokens included; unset: the encoder card's"
    )
    passage_stride: int | None = Field(
        None,
        ge=1,
        description="tokens by which a window of max_length tokens advances over a long document, whose vector is the "
        "maximum over its passages; unset: a document is cut at max_length",
    )
    max_passages: int = Field(64, ge=1, description="passages of a document at most; the text beyond is left out")
    impact_bits: int = Field(8, description="bits of an impact: 4, 8 or 16; an index takes 4 and 8")
    impact_step: float | None = Field(
        None,
        gt=0,
        description="weight of one impact unit, where several tables have to share it; unset: fixed by the probe",
    )
    probe_documents: int = Field(
        512, ge=1, description="documents, taken all over the corpus, that fix the impact scale"
    )
    buckets: int = Field(16, ge=1, le=65536, description="hash buckets (partitions) of the table")
    max_bad_fraction: float = Field(0.05, ge=0, le=1, description="share of quarantined rows above which the job stops")

    @field_validator("impact_bits")
    @classmethod
    def _known_width(cls, bits: int) -> int:
        if bits not in (4, 8, 16):
            raise ValueError("give 4, 8 or 16")
        return bits

    @field_validator("document_timeout_s")
    @classmethod
    def _within_a_call(cls, seconds: float, info: ValidationInfo) -> float:
        call = info.data.get("batch_timeout_s", seconds)
        if seconds > call:
            raise ValueError(
                f"a document cannot take longer than a call of many; give encode.batch_timeout_s, {call:g}, or less"
            )
        return seconds


class MaintainSettings(Section):
    """A sparse table is kept small: parts are merged, files that nothing names are deleted."""

    table: str = Field(min_length=1, description="folder or URI of the sparse table")
    quarantine: str | None = Field(None, description="folder or URI of the quarantine table; unset: <table>_quarantine")
    compact: bool = Field(True, description="merge small parts")
    target_megabytes: int = Field(
        256, ge=1, le=1024, description="size of a merged part, MB; parts above half of it are left"
    )
    retention_hours: float = Field(
        168, ge=1, description="nothing younger is deleted, and every version that was the newest since then is kept"
    )
    keep_versions: list[int] = Field([], description="versions of the table that are kept whatever their age")
    indexes: list[str] = Field([], description="index folders; the table versions that they publish are kept")
    dry_run: bool = Field(False, description="only list what would be deleted; nothing is merged either")

    @field_validator("keep_versions")
    @classmethod
    def _versions(cls, versions: list[int]) -> list[int]:
        for version in versions:
            if version < 0:
                raise ValueError(f"{version} is no version of a table; give 0 or more")
        return versions
