"""Typed settings: one YAML file describes a deployment, every job reads its sections.

Any field can be overridden on the command line as ``--section.field value``. What decides a vector (casing, lengths,
prompts, pooled tokens) is not here: it belongs to the encoder card. Credentials are not here either: they come from the
environment, as the object store's own tools read them.
"""

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lsr_prod.errors import ConfigError

__all__ = [
    "Deployment",
    "EncodeSettings",
    "EvaluateSettings",
    "ExportSettings",
    "IndexSettings",
    "MaintainSettings",
    "RaySettings",
    "SourceSettings",
    "StorageSettings",
    "load_deployment",
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class RaySettings(_Section):
    """Where jobs run."""

    address: str | None = Field(
        None, description="Ray cluster; unset: RAY_ADDRESS if set, else a local one on loopback"
    )
    num_cpus: int | None = Field(None, ge=1, description="cores of the local cluster; unset: all of the machine")


class StorageSettings(_Section):
    """How s3://, gs:// and az:// are reached."""

    options: dict[str, str] = Field(
        default_factory=dict,
        description="options of the object store, e.g. aws_endpoint, aws_region; credentials come from the environment",
    )

    @field_validator("options")
    @classmethod
    def _no_credentials(cls, options: dict[str, str]) -> dict[str, str]:
        for key in options:
            if any(word in key.lower() for word in ("secret", "token", "password", "access_key", "account_key")):
                raise ValueError(f"{key} is a credential; put it into the environment, not into a file")
        return options


class SourceSettings(_Section):
    """The corpus."""

    paths: list[str] = Field(min_length=1, description="files, folders, globs or URIs; a Delta source is one table")
    format: Literal["auto", "parquet", "jsonl", "csv", "tsv", "beir", "delta", "datasets"] = Field(
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


class ExportSettings(_Section):
    """A model becomes an ONNX bundle."""

    model: str = Field(min_length=1, description="model directory, or a Hugging Face id of a masked language model")
    output: str = Field(min_length=1, description="folder of the bundle; must not exist, or hold the same bundle")
    precision: Literal["fp32", "int8"] = Field("fp32", description="number format of the weights")
    top_k: int = Field(512, ge=1, description="terms of a vector at most (the TopK inside the graph)")
    parity_texts: str | None = Field(
        None, description="JSONL with field text, read for the parity check; unset: built-in sentences"
    )
    probe_texts: str | None = Field(
        None,
        description="JSONL with field text: terms that none of them activates are cut from the graph; unset: none are",
    )
    min_overlap: float = Field(
        0.999, ge=0, le=1, description="parity: least mean top-k overlap with torch, fp32; int8 see int8_min_overlap"
    )
    int8_min_overlap: float = Field(0.9, ge=0, le=1, description="parity: least mean top-k overlap with torch, int8")


class EncodeSettings(_Section):
    """A corpus becomes a sparse table."""

    bundle: str = Field(min_length=1, description="folder of the ONNX bundle")
    table: str = Field(min_length=1, description="folder or URI of the sparse table; made if absent")
    sink: Literal["delta", "parquet"] = Field(
        "delta", description="delta, or plain Parquet files with a log of ours; of a new table and of its quarantine"
    )
    quarantine: str | None = Field(None, description="folder or URI of the quarantine table; unset: <table>_quarantine")
    wave_megabytes: int = Field(256, ge=1, description="source bytes of a wave, MB; a wave is committed as a whole")
    slice_megabytes: int = Field(32, ge=1, description="source bytes of one read task, MB")
    batch_tokens: int = Field(1024, ge=1, description="tokens of a batch, padding included")
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


class IndexSettings(_Section):
    """A sparse table becomes an index version and is published."""

    table: str = Field(min_length=1, description="folder or URI of the sparse table")
    bundle: str = Field(min_length=1, description="folder of the bundle that made the table; copied into the index")
    output: str = Field(min_length=1, description="folder of the index")
    table_version: int | None = Field(None, ge=0, description="version of the table; unset: the newest")
    shards: int = Field(1, ge=1, description="shards; at most the table's buckets")
    dk: int | None = Field(
        None, ge=1, description="terms of a document in the postings, heaviest first; unset: all stored"
    )
    block_size: int = Field(16384, ge=256, le=65536, description="documents in a block of the impact arrays")
    text_fields: list[str] = Field(["title", "text"], description="stored fields that Tantivy indexes for BM25")
    max_shrink: float = Field(
        0.5, ge=0, le=1, description="gate: refuse to publish if this share of documents would vanish"
    )
    publish: bool = Field(True, description="publish the version after its gates")


class MaintainSettings(_Section):
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


class EvaluateSettings(_Section):
    """Queries and judgements measure a published index."""

    index: str = Field(min_length=1, description="folder of the index")
    queries: str = Field(min_length=1, description="queries.jsonl with _id and text")
    qrels: str = Field(min_length=1, description="judgements: BEIR .tsv (query-id, corpus-id, score) or TREC qrels")
    measures: list[str] = Field(
        ["nDCG@10", "RR@10", "R@10", "R@100", "P@10"], min_length=1, description="names of ir_measures"
    )
    thresholds: list[float] = Field(
        [0.0, 0.2, 0.4, 0.6], min_length=1, description="overlap thresholds, shares of |q| in 0..1"
    )
    k: int = Field(1000, ge=1, le=10_000, description="hits a query")
    qk: int | None = Field(None, ge=1, description="terms of a query, heaviest first; unset: all")
    bm25: bool = Field(True, description="measure Tantivy's BM25 beside it")
    runs: str | None = Field(None, description="folder for TREC run files; unset: none are written")

    @field_validator("thresholds")
    @classmethod
    def _shares(cls, thresholds: list[float]) -> list[float]:
        for threshold in thresholds:
            if not 0 <= threshold <= 1:
                raise ValueError(f"{threshold} is no share of the query's terms; give values from 0 to 1")
        return thresholds


class Deployment(_Section):
    """All sections; a job demands those it reads."""

    ray: RaySettings = Field(RaySettings(), description="where jobs run")
    storage: StorageSettings = Field(StorageSettings(), description="object stores")
    source: SourceSettings | None = Field(None, description="the corpus")
    export: ExportSettings | None = Field(None, description="model -> bundle")
    encode: EncodeSettings | None = Field(None, description="corpus -> sparse table")
    index: IndexSettings | None = Field(None, description="sparse table -> index")
    evaluate: EvaluateSettings | None = Field(None, description="index -> measures")
    maintain: MaintainSettings | None = Field(None, description="small parts merged, garbage deleted")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def load_deployment(argv: Sequence[str], *, job: str, description: str, needs: Sequence[str]) -> Deployment:
    """Read ``--config FILE`` and the overrides, and validate both before any work.

    Args:
        argv: the command line without the program's name.
        job: the program's name for ``--help``.
        description: first lines of ``--help``.
        needs: sections that the job reads.

    Raises:
        ConfigError: an unknown key, an impossible value, a section that is missing; its text names field and remedy.
    """
    parser = _Parser(
        prog=job, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", metavar="FILE", type=Path, default=None, help="YAML file of the deployment")
    known = _Parser(add_help=False, allow_abbrev=False)
    known.add_argument("--config", type=Path, default=None)

    class _Sources(BaseSettings, Deployment):
        model_config = SettingsConfigDict(
            cli_exit_on_error=False,
            cli_avoid_json=True,
            cli_hide_none_type=True,
            nested_model_default_partial_update=True,
        )

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: Any, **__: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            command_line: CliSettingsSource[Any] = CliSettingsSource(
                settings_cls, cli_parse_args=list(argv), root_parser=parser
            )
            return command_line, InitSettingsSource(settings_cls, _read_yaml(path))

    try:
        path: Path | None = known.parse_known_args(argv)[0].config
        deployment = _Sources()
    except SettingsError as error:
        raise _unknown_argument(str(error)) from error
    except ValidationError as error:
        raise _first_problem(error) from error
    for section in needs:
        if getattr(deployment, section) is None:
            raise ConfigError(
                section, "this section is missing", f"{job} reads it; add it to the file given with --config"
            )
    return deployment


def _read_yaml(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    if not path.is_file():
        raise ConfigError("--config", f"{path} is not a file", "give the YAML file of the deployment")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            "--config", f"{path} is not YAML ({' '.join(str(error).split())})", "mend the file"
        ) from error
    if not isinstance(value, dict):
        raise ConfigError(
            "--config", f"{path} holds no sections", f"it needs some of: {', '.join(Deployment.model_fields)}"
        )
    return value


def _unknown_argument(message: str) -> ConfigError:
    names = message.rpartition("unrecognized arguments:")[2].split() if "unrecognized" in message else []
    if not names:
        return ConfigError("command line", " ".join(message.split()), "see --help")
    return ConfigError(names[0].lstrip("-"), "there is no such setting", _suggest(names[0].lstrip("-").split(".")))


def _first_problem(error: ValidationError) -> ConfigError:
    problem = error.errors(include_url=False)[0]
    location = [str(part) for part in problem["loc"]]
    field = ".".join(location)
    if problem["type"] == "extra_forbidden":
        return ConfigError(field, "there is no such setting", _suggest(location))
    if problem["type"] == "missing":
        return ConfigError(field, "it is required and was not given", f"set it in the file or as --{field} VALUE")
    message = problem["msg"].removeprefix("Value error, ")
    # A credential may stand in this value by mistake: it is never repeated.
    value = "the value" if field.startswith("storage") else repr(problem["input"])
    return ConfigError(field, f"{value} is not possible", message[0].lower() + message[1:])


def _suggest(location: Sequence[str]) -> str:
    names = list(Deployment.model_fields)
    if len(location) > 1 and location[0] in names:
        names = list(_section_model(location[0]).model_fields)
    close = difflib.get_close_matches(location[1] if len(location) > 1 else location[0], names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"


def _section_model(section: str) -> type[BaseModel]:
    annotation: Any = Deployment.model_fields[section].annotation
    if isinstance(annotation, type):
        return annotation
    models: list[type[BaseModel]] = [arg for arg in annotation.__args__ if arg is not type(None)]
    return models[0]
