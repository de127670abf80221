"""The index: content-addressed shards, immutable versions, numbered publications.

::

    <index>/
      bundles/<digest>/            the encoder of queries, so that the index needs no other artifact
      shards/<sha>/shard.json      ShardManifest; <sha> names the shard's input and layout
                   impacts/*.npy   postings in windows of documents, and the forward copy
                   tantivy/        text for BM25 and Boolean queries
                   docs.arrow      ids, stored fields and attributes, in document order
                   page_digests.bin  sha256 of every page of the arrays and of docs.arrow
      tombstones/<sha256>.npy      ordinals of a shard's documents that are deleted or replaced
      takedowns/<sha256>.json      ids of documents that are hidden on request, even if the table has them
      versions/<sha>.json          IndexVersion; <sha> is the sha256 of its canonical JSON
      publications/000001.json     ``publication.Publication``; created only if absent: one writer wins each number
      pins/000001.json             ``publication.PublicationPin``; keeps a publication and its version from retention
      builds/<time>.json           record of a build, for people (``indexing.build``)
"""

import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.formats.digest import FileDigest, digest_json, field_values, is_sha256

AttributeType = Literal["string", "int64", "float64", "bool", "timestamp"]
AttributeValue = str | int | float | bool | dt.datetime
ATTRIBUTE_TYPES: dict[AttributeType, pa.DataType] = {
    "string": pa.large_string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
Analyzer = Literal[
    "english", "simple", "bigrams", "arabic", "danish", "dutch", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
]  # fmt: skip
MAX_STRING_BYTES = 65_530  # of UTF-8; Tantivy silently drops a longer term
_PREFIX = "attribute."
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOL = {"true": True, "1": True, "false": False, "0": False}
INDEX_FORMAT = 4
"""Format 2 has a CRC-32 of every page, which whoever can write to an index can keep while he changes the page."""
SHARD_FILE = "shard.json"
ShardRole = Literal["base", "delta"]


def attribute_column(name: str) -> str:
    """Return the name of the column of ``docs.arrow`` and of the Tantivy field with an attribute."""
    return _PREFIX + name


def attribute_types(schema: pa.Schema) -> dict[str, AttributeType]:
    """Return the type of each attribute, by name, in the schema of ``docs.arrow``."""
    names = {arrow: name for name, arrow in ATTRIBUTE_TYPES.items()}
    found: dict[str, AttributeType] = {}
    for column in schema:
        if column.name.startswith(_PREFIX):
            if column.type not in names:
                raise ArtifactError(f"column {column.name!r} has type {column.type}; build the index again")
            found[column.name.removeprefix(_PREFIX)] = names[column.type]
    return found


def parse_value(text: str, kind: AttributeType) -> AttributeValue:
    """Parse a value of an attribute; spaces around it are part of strings only.

    int64: decimal digits with an optional sign. float64: decimal or scientific, finite; -0 becomes 0. bool: true,
    false, 1 or 0. timestamp: ISO 8601 with a date at least, in UTC if it has no offset; digits below a microsecond are
    dropped. string: up to 65,530 bytes of UTF-8.

    Returns:
        str, int, float, bool, or a datetime in UTC.
    """
    if kind == "string":
        if len(text) > MAX_STRING_BYTES // 4 and len(text.encode()) > MAX_STRING_BYTES:
            raise ValueError(f"longer than {MAX_STRING_BYTES} bytes")
        return text
    text = text.strip()
    match kind:
        case "int64" if _INTEGER.fullmatch(text) and -(1 << 63) <= (number := int(text)) < 1 << 63:
            return number
        case "float64" if _FLOAT.fullmatch(text) and math.isfinite(real := float(text)):
            return real + 0.0
        case "bool" if text.lower() in _BOOL:
            return _BOOL[text.lower()]
        case "timestamp":
            return _parse_timestamp(text)
    raise ValueError(f"{text[:80]!r} is no {kind}")


def value_text(value: Any) -> Any:
    """Return a number, a boolean or a time as the text that ``parse_value`` reads, NaN as None; others unchanged."""
    match value:
        case bool():
            return str(value).lower()
        case float() | np.floating() if math.isnan(value):
            return None
        case int() | float() | np.integer() | np.floating():
            return str(value)
        case dt.datetime() | dt.date():
            return value.isoformat()
    return value


def _parse_timestamp(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=dt.UTC)
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError as error:
        raise ValueError(f"{text[:80]!r} is outside the years 1 to 9999") from error


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """Manifest of one shard."""

    sha: str  # name of the shard: sha256 of its inputs (parts of the table) and layout
    documents: int  # number of documents
    postings: int  # number of (document, term) pairs
    role: ShardRole  # ``base``: all documents of its buckets; ``delta``: documents inserted or changed later
    bytes_by_part: dict[str, int]  # size in bytes of ``impacts``, ``forward``, ``tantivy`` and ``docs``
    files: tuple[FileDigest, ...]  # every file of the shard but ``shard.json``

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {**field_values(self), "files": [file.to_json() for file in self.files]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ShardManifest":
        """Read the form of ``to_json``."""
        if not is_sha256(str(value["sha"])):
            raise ArtifactError(
                f"shard name {value['sha']!r} is no sha256; the version cannot be trusted: publish another version"
            )
        return cls(
            sha=value["sha"],
            documents=int(value["documents"]),
            postings=int(value["postings"]),
            role=_role(value["role"]),
            bytes_by_part={str(k): int(v) for k, v in value["bytes_by_part"].items()},
            files=tuple(FileDigest.from_json(file) for file in value["files"]),
        )


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Documents of a shard that are deleted, taken down, or superseded by a document of a later shard."""

    file: FileDigest  # ``tombstones/<sha256>.npy``, uint32, ascending ordinals
    documents: int  # number of ordinals

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Tombstones":
        """Read the form of ``to_json``."""
        return cls(FileDigest.from_json(value["file"]), int(value["documents"]))


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """An immutable version: the shards that are searched together, and their lineage."""

    shards: tuple[ShardManifest, ...]  # every shard with the digest of every file
    bundle_digest: str  # bundle that must encode queries
    vocabulary_sha256: str  # digest of its output vocabulary
    impact_step: float  # weight of one impact unit
    dk: int  # maximum number of terms per document in the postings
    table_uri: str  # the sparse table from which the version was built (without credentials)
    table_version: int  # Delta version of that table
    stored_fields: tuple[str, ...]  # columns of ``docs.arrow`` besides ``doc_id``
    text_fields: tuple[str, ...]  # stored fields that are indexed for BM25
    # type of every attribute that filters can use
    attributes: Mapping[str, AttributeType] = field(default_factory=dict)
    # tombstones of every shard, in the order of the shards; None: the shard has none
    tombstones: tuple[Tombstones | None, ...] = ()
    takedowns: FileDigest | None = None  # list of the ids that were taken down; None: no id
    table_parts: str = ""  # sha256 of the names and sizes of the table's parts at that version; "": unknown
    layout: str = ""  # sha256 of the settings of the base shards; "": unknown
    # words of an average document, for BM25 impacts; None: the shards have no BM25 impacts
    average_length: float | None = None
    analyzer: Analyzer = "english"  # splits texts and queries into words (``inference.terms.analysis``)
    format: int = INDEX_FORMAT

    def __post_init__(self) -> None:
        """Replace a missing list of tombstones by one None per shard."""
        if not self.tombstones:
            object.__setattr__(self, "tombstones", (None,) * len(self.shards))
        if len(self.tombstones) != len(self.shards):
            raise ArtifactError(
                f"the version has {len(self.tombstones)} tombstones for {len(self.shards)} shards; "
                "publish another version"
            )

    @property
    def documents(self) -> int:
        """Number of documents that can be found, over all shards."""
        return sum(shard.documents for shard in self.shards) - self.deleted

    @property
    def deleted(self) -> int:
        """Number of documents that are in a shard but hidden by tombstones."""
        return sum(one.documents for one in self.tombstones if one)

    @property
    def sha(self) -> str:
        """Name of this version: sha256 (hex)."""
        return digest_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {
            **field_values(self),
            "shards": [shard.to_json() for shard in self.shards],
            "impact_step": float(self.impact_step).hex(),
            "tombstones": [asdict(one) if one else None for one in self.tombstones],
            "takedowns": self.takedowns.to_json() if self.takedowns else None,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "IndexVersion":
        """Read the form of ``to_json``."""
        if value.get("format") != INDEX_FORMAT:
            raise FormatVersionError(
                f"index version has format {value.get('format')}, not {INDEX_FORMAT}; build the index again"
            )
        return cls(
            shards=tuple(ShardManifest.from_json(shard) for shard in value["shards"]),
            bundle_digest=value["bundle_digest"],
            vocabulary_sha256=value["vocabulary_sha256"],
            impact_step=float.fromhex(value["impact_step"]),
            dk=int(value["dk"]),
            table_uri=value["table_uri"],
            table_version=int(value["table_version"]),
            stored_fields=tuple(value["stored_fields"]),
            text_fields=tuple(value["text_fields"]),
            attributes=_attributes(value["attributes"]),
            tombstones=tuple(Tombstones.from_json(one) if one else None for one in value["tombstones"]),
            takedowns=FileDigest.from_json(value["takedowns"]) if value["takedowns"] else None,
            table_parts=str(value["table_parts"]),
            layout=str(value["layout"]),
            average_length=None if value["average_length"] is None else float(value["average_length"]),
            analyzer=_analyzer(value["analyzer"]),
        )


def _attributes(value: dict[str, Any]) -> dict[str, AttributeType]:
    for name, kind in value.items():
        if kind not in ATTRIBUTE_TYPES:
            raise ArtifactError(f"attribute {name!r} has the unknown type {kind!r}; build the index again")
    return value


def _analyzer(value: Analyzer) -> Analyzer:
    if value not in get_args(Analyzer):
        raise ArtifactError(
            f"analyzer {value!r} is unknown; install the release that built the index, or build it again"
        )
    return value


def _role(value: ShardRole) -> ShardRole:
    if value not in get_args(ShardRole):
        raise ArtifactError(f"shard role {value!r} is unknown; build the index again")
    return value
