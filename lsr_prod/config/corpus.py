"""Settings of the corpus, of its encoding, and of the maintenance of the sparse table."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from lsr_prod.config.section import Header, ImpactBits, Location, Section, SourceLocation, TableLocation, check_type
from lsr_prod.storage.formats.stored_values import EPOCHS, AttributeType, read_zone


def _time_zone(name: str) -> str:
    read_zone(name)
    return name


ReadType = Annotated[AttributeType, AfterValidator(lambda kind: kind if kind in EPOCHS else check_type(kind))]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"(?:[A-Za-z0-9.-]{{1,253}}/)?{_WORD}")
_CONDITION = re.compile(rf"!?(?:{_WORD}|in\({_WORD}(?:, ?{_WORD})*\))")


_ASCII = bytes(range(128))


def is_line_encoding(encoding: str) -> bool:
    """Return whether a byte below 128 is the ASCII character, wherever it is: lines can be found before decoding."""
    try:
        # ISO-2022 and the escapes of Python write other characters in bytes below 128, too.
        escaped = ("\u3042".encode(encoding, "ignore") or b"\xff").isascii()
        return _ASCII.decode(encoding) == _ASCII.decode() and not escaped
    except UnicodeError:
        return False


class CsvSettings(Section):
    """The dialect of CSV and TSV files."""

    delimiter: str | None = Field(None, pattern='^[^"\r\n\\x80-\U0010ffff]$')
    """character between two fields, for example ';' or '|'; default: a comma, in TSV files a tab"""
    header: Header | None = None
    """column names of files without a header row; default: the files have one"""
    quotes: bool = True
    """fields may be enclosed in quotes (two of them inside are one, and line ends are allowed inside); false: a quote
    is an ordinary character, and large files are split into byte ranges"""
    quote: str = Field('"', pattern="^[^\r\n\\x80-\U0010ffff]$")
    """character that encloses a field"""
    escape: str | None = Field(None, pattern="^[^\r\n\\x80-\U0010ffff]$")
    """character before a quote, a delimiter or itself that makes it ordinary, for example '\\' (MySQL, PostgreSQL,
    Spark); before anything else it is ordinary itself; default: none"""
    encoding: str = "utf-8"
    """encoding of the text, a name that Python knows, for example cp1252, latin-1, shift_jis or utf-16; a large file
    in utf-16, utf-32 or another encoding that is no superset of ASCII is not split"""

    @field_validator("escape")
    def _distinct(cls, escape: str | None, info: ValidationInfo) -> str | None:
        quotes, quote, delimiter = (info.data.get(name) for name in ("quotes", "quote", "delimiter"))
        if quotes is False and (escape is not None or quote != '"'):
            raise ValueError("source.csv.quotes is false; leave quote and escape out, or set quotes: true")
        if not {quote, escape}.isdisjoint({delimiter} if delimiter else {",", "\t"}):
            raise ValueError("the delimiter has to differ from quote and escape")
        return None if escape == quote else escape  # a quote that escapes a quote: two are one

    @field_validator("encoding")
    def _text_encoding(cls, encoding: str) -> str:
        try:
            known = "a,b\n".encode(encoding).decode(encoding) == "a,b\n"
        except (LookupError, ValueError):  # unknown or not of text; a NUL in the name
            known = False
        if not known:
            raise ValueError(f"{encoding} is not an encoding that Python reads; try utf-8, cp1252, latin-1 or utf-16")
        return encoding


class SourceSettings(Section):
    """The documents to encode: files or a table, and their columns."""

    paths: list[SourceLocation] = Field(min_length=1)
    """files, folders (links to folders are followed), globs or URIs; a Delta source is one table; an Iceberg table is
    named by its newest metadata file"""
    format: Literal["auto", "parquet", "jsonl", "json", "csv", "tsv", "beir", "delta", "iceberg", "datasets"] = "auto"
    """auto: by the file extension (.parquet, .jsonl, .ndjson, .json, .csv, .tsv, text formats also .gz, .zst, .bz2,
    .xz, .lz4 or .zip) or by the contents of a folder: corpus.jsonl (BEIR), _delta_log, state.json (saved by Hugging
    Face datasets), or by the path metadata/*.metadata.json (Iceberg); json: an array of objects, or objects one after
    the other"""
    version: int | None = Field(None, ge=0)
    """version of a Delta source, id of a snapshot of an Iceberg source; default: the newest"""
    id_field: str = Field("_id", min_length=1)
    """column of the document id: strings, integers, which are written as decimal text, and of a typed column (Parquet,
    Delta, datasets) also decimals of scale 0 and UUIDs; ids of other types are quarantined as wrong_type"""
    text_fields: list[str] = Field(["title", "text"], min_length=1)
    """columns that are joined into the encoded text; nulls are skipped, and columns that some records lack"""
    separator: str = " "
    """text between two text fields, for all gaps"""
    separators: list[str] | None = None
    """one text per gap between two text_fields, in their order, on the command line as JSON: '[" - "]'; default:
    separator"""
    stored_fields: list[str] = Field(["title", "text"])
    """columns that are stored in the table with their types, for BM25, filters and display"""
    types: dict[str, ReadType] = Field(default_factory=dict)
    """types of stored fields that are not in text_fields: string, strings (a list), int64, float64, bool, date,
    timestamp, epoch_s or epoch_ms (a timestamp as a number of seconds or milliseconds since 1970), or decimal(S) with S
    digits after the point; default: the type of the table if there is one, then that of a typed column, else by the
    first 1,000 records: JSON values that are all booleans, integers, numbers or lists of strings, and CSV values that
    all read true or false, or are integers without leading zeros, other numbers, dates or times, have that type, and
    other fields are strings; a value of another type makes a bad row, NaN is null"""
    timezone: TimeZone = "UTC"
    """time zone of timestamps without an offset, for example Europe/Berlin; they are stored in UTC"""
    columns: dict[str, str] = Field(default_factory=dict)
    """column of the corpus per field name, where they differ, for example {_id: docno, text: body}"""
    csv: CsvSettings = CsvSettings()
    """the dialect of CSV and TSV files"""
    max_text_bytes: int = Field(1_000_000, ge=1)
    """maximum bytes of the text of a document; longer texts are quarantined"""
    max_id_bytes: int = Field(1024, ge=1, le=65_536)
    """maximum bytes of the id of a document; rows with longer ids are quarantined"""
    on_damage: Literal["fail", "skip"] = "fail"
    """bytes that do not decode (a cut or corrupt file, a quote that is not closed): fail: the job ends before it
    commits their wave; skip: quarantine them, and count them in the bad share of encode.max_bad_fraction"""

    @field_validator("separators")
    def _one_per_gap(cls, separators: list[str] | None, info: ValidationInfo) -> list[str] | None:
        gaps = len(info.data.get("text_fields", [])) - 1
        if separators is not None and len(separators) != gaps:
            raise ValueError(f"text_fields need {gaps}, one per gap between two of them")
        return separators

    @field_validator("types")
    def _types_of_stored_fields(cls, types: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        texts = [info.data.get("id_field"), *info.data.get("text_fields", [])]
        for name, kind in types.items():
            if name not in info.data.get("stored_fields", [name]):
                raise ValueError(f"{name} is not in stored_fields; add it there")
            if name in texts and kind != "string":
                raise ValueError(f"{name} is the id or a text field, which is a string; leave it out")
        return types

    @field_validator("columns")
    def _columns_of_fields(cls, columns: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if not {"id_field", "text_fields", "stored_fields"} <= info.data.keys():
            return columns  # one of these fields is invalid itself
        fields = [info.data["id_field"], *info.data["text_fields"], *info.data["stored_fields"]]
        for ours, theirs in columns.items():
            if ours not in fields:
                raise ValueError(f"{ours} is not in id_field, text_fields or stored_fields")
            if not theirs:
                raise ValueError(f"give the name of the column of the corpus that holds {ours}")
        return columns

    @property
    def fields(self) -> list[str]:
        """Field names of all columns that are read, each once: the id, the text fields, the stored fields."""
        return list(dict.fromkeys([self.id_field, *self.text_fields, *self.stored_fields]))

    def column(self, field: str) -> str:
        """Return the column of the corpus for a field name."""
        return self.columns.get(field, field)


class EncodeSettings(Section):
    """Encoding of a corpus into a sparse table."""

    bundle: Location = Field(min_length=1)
    """folder or URI of the ONNX bundle; a folder has to be visible to every node"""
    table: TableLocation = Field(min_length=1)
    """folder or URI of the sparse table; created if absent"""
    quarantine: TableLocation | None = None
    """folder or URI of the quarantine table; default: <table>_quarantine"""
    wave_megabytes: int | None = Field(None, ge=1)
    """source bytes per wave, MB; a wave is committed as a whole; default: 256, and with many actors enough for a cell
    each"""
    cell_megabytes: int | None = Field(None, ge=1, le=1024)
    """maximum source bytes per cell, MB; an actor encodes one cell at a time and writes its rows as one part; a wave
    has at least one cell per bucket; default: 8 to 128, by corpus and actors"""
    slice_megabytes: int | None = Field(None, ge=1)
    """source bytes per slice (one read task), MB; default: 32 to 512, by the size of a wave"""
    batch_tokens: int | None = Field(None, ge=1)
    """tokens per batch, padding included; default: 512 on a CPU, 16,384 on a GPU"""
    actors: int | None = Field(None, ge=1)
    """number of encoder actors: min_actors and max_actors in one; default: one per core, or actors_per_gpu per GPU,
    of the nodes that the cluster has at the time"""
    min_actors: int | None = Field(None, ge=1)
    """encoder actors that the job asks Ray's autoscaler for at any time; with it, a job waits for nodes if the cluster
    has no room for an actor; default: 1"""
    max_actors: int | None = Field(None, ge=1, validate_default=True)
    """maximum number of encoder actors; while blocks wait, the job asks Ray's autoscaler for so many; with it, a job
    waits for nodes if the cluster has no room for an actor; default: what the cluster has room for at the time"""
    node_wait_seconds: int = Field(600, ge=30)
    """a job ends with an error if the cluster has had no node for an encoder actor for so long; without min_actors and
    max_actors it does not wait for the first one"""
    actor_memory_megabytes: int | None = Field(None, ge=1)
    """memory that each encoder actor reserves on its node, MB; default: none"""
    labels: dict[str, str] = Field(default_factory=dict)
    """label selector of Ray for the nodes of encoder actors, for example {market: spot}, {region: in(a, b)} or {disk:
    '!hdd'}"""
    actors_per_gpu: int = Field(4, ge=1, le=64)
    """encoder actors that share a GPU: it computes for one of them while others tokenize and write"""
    threads_per_actor: int = Field(1, ge=1)
    """ONNX Runtime threads per actor"""
    provider: Literal["auto", "cpu", "cuda", "tensorrt"] = "auto"
    """ONNX Runtime execution provider; auto: cuda, else tensorrt, on the GPUs of the cluster, and cpu on a cluster
    without GPUs"""
    batch_timeout_s: float = Field(900, ge=0.1, le=86_400)
    """maximum seconds of one model call (at most 2,048 documents); after that the process of the actor is killed, and
    its documents are tried again in a separate process"""
    document_timeout_s: float = Field(60, ge=0.1, le=86_400)
    """maximum seconds for one document in that separate process; slower documents are quarantined; at most
    batch_timeout_s"""
    store_k: int = Field(256, ge=1)
    """terms stored per document, heaviest first"""
    store_mass: float | None = Field(None, gt=0, le=1)
    """share of the weight of these terms to store: of them, only the fewest that hold it, heaviest first; default: all
    of them"""
    max_length: int | None = Field(None, ge=1)
    """maximum tokens of a document or passage, special tokens included; default: from the encoder card"""
    passage_stride: int | None = Field(None, ge=1)
    """split long documents into passages of max_length tokens that start this many tokens apart; the vector of a
    document is the maximum over its passages; default: cut documents at max_length"""
    max_passages: int = Field(64, ge=1)
    """maximum passages per document; the remaining text is ignored"""
    impact_bits: ImpactBits = 8
    """bits per impact: 4, 8 or 16; an index supports 4 and 8"""
    impact_step: float | None = Field(None, gt=0)
    """weight of one impact unit; set it if several tables must share it; default: measured on the probe documents"""
    probe_documents: int = Field(512, ge=1)
    """documents sampled from the whole corpus to determine the impact scale; again by later plans, as long as the table
    has fewer"""
    buckets: int | None = Field(None, ge=1, le=65536)
    """number of hash buckets (partitions) of the table; default: that of the table, or for a new one 16 to 4,096, by
    corpus and actors"""
    on_duplicate: Literal["first", "last", "error"] = "first"
    """row that becomes the document if several rows of the corpus have its id, in the order of the source's files:
    first or last (the others are quarantined), or error: the job fails"""
    max_bad_fraction: float = Field(0.05, ge=0, le=1)
    """maximum bad share u + (1 - u) * r: u is the share of source bytes that were not read, r the share of quarantined
    rows among those that were; the job fails above it"""
    bad_fraction_min_rows: int = Field(100, ge=0)
    """rows from which on max_bad_fraction applies to an increment without unread bytes, so that one bad row in a night
    of ten does not stop the chain"""

    @field_validator("max_actors")
    def _agreeing_numbers(cls, most: int | None, info: ValidationInfo) -> int | None:
        actors, fewest = info.data.get("actors"), info.data.get("min_actors")
        if actors is not None and (most is not None or fewest is not None):
            raise ValueError("encode.actors sets min_actors and max_actors; give either actors or these")
        if most is not None and fewest is not None and most < fewest:
            raise ValueError(f"{most} is less than encode.min_actors ({fewest}); raise it")
        return most

    @field_validator("labels")
    def _label_selector(cls, labels: dict[str, str]) -> dict[str, str]:
        for key, condition in labels.items():
            if not _LABEL.fullmatch(key) or not _CONDITION.fullmatch(condition):
                raise ValueError(f"{key}: {condition} is not a condition; give value, !value, in(a, b) or !in(a, b)")
        return labels

    @field_validator("document_timeout_s")
    def _within_a_call(cls, seconds: float, info: ValidationInfo) -> float:
        call = info.data.get("batch_timeout_s", seconds)
        if seconds > call:
            raise ValueError(
                f"one document cannot have more time than a batch; set it to encode.batch_timeout_s ({call:g}) or less"
            )
        return seconds


class MaintainSettings(Section):
    """Maintenance of a sparse table and its quarantine: merge small parts, and delete files that nothing needs."""

    table: TableLocation = Field(min_length=1)
    """folder or URI of the sparse table"""
    quarantine: TableLocation | None = None
    """folder or URI of the quarantine table; default: <table>_quarantine"""
    compact: bool = True
    """merge small parts"""
    target_megabytes: int = Field(256, ge=1, le=1024)
    """size of a merged part, MB; parts larger than half of it are not merged"""
    purge: bool = False
    """write every part with deleted rows again, so that the newest version has no file with them; by default only parts
    of which half of the rows are deleted"""
    retention_hours: float = Field(168, ge=1)
    """files younger than this are never deleted, and every version that was current in this period is kept; longer than
    a wave takes, a reader uses a version, or a stalled job may wake up"""
    keep_versions: list[int] = Field([])
    """versions of the table to keep regardless of age"""
    indexes: list[Location] = Field([])
    """folders or URIs of indexes of this table; the table versions that their publications refer to are kept"""
    dry_run: bool = False
    """count merges and list garbage without merging or deleting anything"""

    @field_validator("purge")
    def _with_compact(cls, purge: bool, info: ValidationInfo) -> bool:
        if purge and not info.data.get("compact", True):
            raise ValueError("deleted rows are purged by compaction; set maintain.compact to true, or purge to false")
        return purge

    @field_validator("keep_versions")
    def _versions(cls, versions: list[int]) -> list[int]:
        for version in versions:
            if version < 0:
                raise ValueError(f"{version} is not a table version; give 0 or more")
        return versions
