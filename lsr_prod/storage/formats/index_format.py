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
      publications/000001.json     Publication; created only if absent: one writer wins each number
      pins/000001.json             PublicationPin; keeps a publication and its version from retention
      builds/<time>.json           record of a build, for people (``indexing.build``)

Each publication names the sha256 of the one before it, so the signature of the newest covers the history.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa

from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError
from lsr_prod.storage.formats import digests, stored_values

INDEX_FORMAT = 5
"""Attributes have no text column besides their own since format 5."""
PUBLICATION_FORMAT = 3
SHARD_FILE = "shard.json"
_PREFIX = "attribute."

ShardRole = Literal["base", "delta"]
Analyzer = Literal[
    "english", "simple", "bigrams", "arabic", "danish", "dutch", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
]  # fmt: skip
_UNKNOWN_ANALYZER = "analyzer {!r} is unknown; install the release that built the index, or build it again"


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """Manifest of one shard."""

    sha: str  # name of the shard: sha256 of its inputs (parts of the table) and layout
    documents: int  # number of documents
    postings: int  # number of (document, term) pairs
    role: ShardRole  # ``base``: all documents of its buckets; ``delta``: documents inserted or changed later
    bytes_by_part: dict[str, int]  # size in bytes of ``impacts``, ``forward``, ``tantivy`` and ``docs``
    files: tuple[digests.FileDigest, ...]  # every file of the shard but ``shard.json``

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {**digests.field_values(self), "files": [file.to_json() for file in self.files]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ShardManifest":
        """Read the form of ``to_json``."""
        if not digests.is_sha256(str(value["sha"])):
            raise ArtifactError(
                f"shard name {value['sha']!r} is no sha256; the version cannot be trusted: publish another version"
            )
        return cls(
            sha=value["sha"],
            documents=int(value["documents"]),
            postings=int(value["postings"]),
            role=_known(value["role"], ShardRole, "shard role {!r} is unknown; build the index again"),
            bytes_by_part={str(k): int(v) for k, v in value["bytes_by_part"].items()},
            files=tuple(digests.FileDigest.from_json(file) for file in value["files"]),
        )


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Documents of a shard that are deleted, taken down, or superseded by a document of a later shard."""

    file: digests.FileDigest  # ``tombstones/<sha256>.npy``, uint32, ascending ordinals
    documents: int  # number of ordinals

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Tombstones":
        """Read the form of ``to_json``."""
        return cls(digests.FileDigest.from_json(value["file"]), int(value["documents"]))


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
    attributes: Mapping[str, stored_values.AttributeType] = field(default_factory=dict)
    # tombstones of every shard, in the order of the shards; None: the shard has none
    tombstones: tuple[Tombstones | None, ...] = ()
    takedowns: digests.FileDigest | None = None  # list of the ids that were taken down; None: no id
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
        return digests.digest_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {
            **digests.field_values(self),
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
            takedowns=digests.FileDigest.from_json(value["takedowns"]) if value["takedowns"] else None,
            table_parts=str(value["table_parts"]),
            layout=str(value["layout"]),
            average_length=None if value["average_length"] is None else float(value["average_length"]),
            analyzer=_known(value["analyzer"], Analyzer, _UNKNOWN_ANALYZER),
        )


@dataclass(frozen=True, slots=True)
class Forced:
    """A gate that refused the version, but was overruled."""

    gate: str  # its name
    sentence: str  # what the gate has found
    reason: str  # why it was overruled, for people


@dataclass(frozen=True, slots=True)
class Signature:
    """An ed25519 signature of a publication."""

    key: str  # sha256 of the public key (32 bytes), its first 16 hexadecimal digits
    value: str  # the signature of ``Publication.signed_bytes``, base64


@dataclass(frozen=True, slots=True)
class Publication:
    """One entry in the history of an index: the version that readers use from then on."""

    number: int  # 1, 2, 3 …; readers use the largest
    version: str  # sha256 of the version
    published_at: str  # UTC, ISO 8601
    note: str = ""  # reason, for people, such as "rollback to 41"
    by: str = ""  # who published it: user and host
    forced: tuple[Forced, ...] = ()  # gates that were overruled
    report: str = ""  # sha256 of the report of the gates, ``reports/<sha256>.json``; "": they have written none
    previous: str = ""  # sha256 of publication ``number - 1``; "" for the first
    signature: Signature | None = None  # signature of the publisher; None: it is not signed

    @property
    def sha(self) -> str:
        """Sha256 of all fields except the signature."""
        return digests.digest_json(self._fields())

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that a signature signs: their purpose and ``sha``."""
        return b"lsr_prod publication " + self.sha.encode()

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk; ``sha256`` is the digest of the other fields except the signature."""
        signature = {"signature": asdict(self.signature)} if self.signature is not None else {}
        return {**self._fields(), "sha256": self.sha, **signature}

    def _fields(self) -> dict[str, Any]:
        value = {"format": PUBLICATION_FORMAT, **asdict(self), "forced": [asdict(one) for one in self.forced]}
        del value["signature"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Publication":
        """Read the form of ``to_json``."""
        if value.get("format") != PUBLICATION_FORMAT:
            raise FormatVersionError(
                f"publication {value['number']} has format {value.get('format')}, this release reads "
                f"{PUBLICATION_FORMAT}; install the release that wrote it"
            )
        signature = value.get("signature")
        names = ("number", "version", "published_at", "note", "by", "report", "previous")
        publication = cls(
            **{name: value[name] for name in names},
            forced=tuple(Forced(one["gate"], one["sentence"], one["reason"]) for one in value["forced"]),
            signature=Signature(str(signature["key"]), str(signature["value"])) if signature is not None else None,
        )
        if publication.to_json() != value:
            raise DigestMismatchError("the publication differs from its recorded sha256; publish the version again")
        return publication


@dataclass(frozen=True, slots=True)
class PublicationPin:
    """A publication that retention does not delete."""

    number: int  # number of the publication
    version: str  # sha256 of its version
    pinned_at: str  # UTC, ISO 8601
    by: str  # who pinned it
    reason: str  # why, for people

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk; ``sha256`` is the digest of the other fields."""
        value = asdict(self)
        return {**value, "sha256": digests.digest_json(value)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "PublicationPin":
        """Read the form of ``to_json``."""
        pin = cls(value["number"], value["version"], value["pinned_at"], value["by"], value["reason"])
        if pin.to_json() != value:
            raise DigestMismatchError("the pin differs from its recorded sha256; remove it and pin again")
        return pin


def publication_name(number: int) -> str:
    """Return the file name of publication ``number``: six digits or more."""
    return f"{number:06d}.json"


def attribute_column(name: str) -> str:
    """Return the name of the column of ``docs.arrow`` with an attribute."""
    return _PREFIX + name


def attribute_types(schema: pa.Schema) -> dict[str, stored_values.AttributeType]:
    """Return the type of each attribute, by name, in the schema of ``docs.arrow``."""
    found: dict[str, stored_values.AttributeType] = {}
    for column in schema:
        if column.name.startswith(_PREFIX):
            kind = stored_values.kind_of(column.type)
            if kind is None or stored_values.arrow_type(kind) != column.type:
                raise ArtifactError(f"column {column.name!r} has type {column.type}; build the index again")
            found[column.name.removeprefix(_PREFIX)] = kind
    return found


def _attributes(value: dict[str, Any]) -> dict[str, stored_values.AttributeType]:
    for name, kind in value.items():
        if not stored_values.is_type(kind):
            raise ArtifactError(f"attribute {name!r} has the unknown type {kind!r}; build the index again")
    return value


def _known(value: Any, kind: Any, problem: str) -> Any:
    if value not in get_args(kind):
        raise ArtifactError(problem.format(value))
    return value
