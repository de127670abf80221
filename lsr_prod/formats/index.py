"""The index: content-addressed shards, immutable versions, numbered publications.

::

    <index>/
      bundles/<digest>/            the encoder of queries, so that the index needs no other artifact
      shards/<sha>/shard.json      ShardManifest; <sha> names the shard's input and layout
                   impacts/*.npy   postings in document blocks, and the document-ordered copy
                   tantivy/        Boolean index of record, text for BM25
                   docs.arrow      ids, stored fields and attributes, in document order
                   page_digests.bin  sha256 of every page of the arrays and of docs.arrow
      tombstones/<sha256>.npy      ordinals of a shard's documents that are deleted or replaced
      takedowns/<sha256>.json      ids of documents that are hidden on request, even if the table has them
      versions/<sha>.json          IndexVersion; <sha> is the sha256 of its canonical JSON
      publications/000001.json     ``publication.Publication``; created only if absent: one writer wins each number
      pins/000001.json             ``pin.PublicationPin``; keeps a publication and its version from retention
      builds/<time>.json           record of a build, for people (``indexing.build_records``)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.formats.attributes import ATTRIBUTE_TYPES, AttributeType
from lsr_prod.formats.digest import FileDigest, digest_json

INDEX_FORMAT = 3
"""Format 2 has a CRC-32 of every page, which whoever can write to an index can keep while he changes the page."""
SHARD_FILE = "shard.json"
_SHA = re.compile(r"^[0-9a-f]{64}$")


ShardRole = Literal["base", "delta"]


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """Manifest of one shard.

    Attributes:
        sha: name of the shard: sha256 of its inputs (parts of the table) and layout.
        documents: number of documents.
        postings: number of (document, term) pairs.
        block_size: documents in a block of the impact arrays.
        role: ``base``: all documents of its buckets; ``delta``: documents inserted or changed later.
        bytes_by_part: size in bytes of ``impacts``, ``forward``, ``tantivy`` and ``docs``.
        files: every file of the shard but ``shard.json``.
    """

    sha: str
    documents: int
    postings: int
    block_size: int
    role: ShardRole
    bytes_by_part: dict[str, int]
    files: tuple[FileDigest, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {
            "sha": self.sha,
            "documents": self.documents,
            "postings": self.postings,
            "block_size": self.block_size,
            "role": self.role,
            "bytes_by_part": self.bytes_by_part,
            "files": [file.to_json() for file in self.files],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ShardManifest":
        """Read the form of ``to_json``."""
        if not _SHA.match(str(value["sha"])):
            raise ArtifactError(
                f"shard name {value['sha']!r} is no sha256; the version cannot be trusted: publish another version"
            )
        return cls(
            sha=value["sha"],
            documents=int(value["documents"]),
            postings=int(value["postings"]),
            block_size=int(value["block_size"]),
            role=_role(value["role"]),
            bytes_by_part={str(k): int(v) for k, v in value["bytes_by_part"].items()},
            files=tuple(FileDigest.from_json(file) for file in value["files"]),
        )


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Documents of a shard that are deleted, taken down, or superseded by a document of a later shard.

    Attributes:
        file: ``tombstones/<sha256>.npy``, uint32, ascending ordinals.
        documents: number of ordinals.
    """

    file: FileDigest
    documents: int

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        return {"file": self.file.to_json(), "documents": self.documents}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Tombstones":
        """Read the form of ``to_json``."""
        return cls(FileDigest.from_json(value["file"]), int(value["documents"]))


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """An immutable version: the shards that are searched together, and their lineage.

    Attributes:
        shards: every shard with the digest of every file.
        bundle_digest: bundle that must encode queries.
        vocabulary_sha256: digest of its output vocabulary.
        impact_step: weight of one impact unit.
        dk: maximum number of terms per document in the postings.
        table_uri: the sparse table from which the version was built (without credentials).
        table_version: Delta version of that table.
        stored_fields: columns of ``docs.arrow`` besides ``doc_id``.
        text_fields: stored fields that are indexed for BM25.
        attributes: type of every attribute that filters can use.
        tombstones: tombstones of every shard, in the order of the shards; None: the shard has none.
        takedowns: list of the ids that were taken down; None: no id.
        table_parts: sha256 of the names and sizes of the table's parts at that version; "": unknown.
        layout: sha256 of the settings of the base shards; "": unknown.
        average_length: words of an average document, for BM25 impacts; None: the shards have no BM25 impacts.
    """

    shards: tuple[ShardManifest, ...]
    bundle_digest: str
    vocabulary_sha256: str
    impact_step: float
    dk: int
    table_uri: str
    table_version: int
    stored_fields: tuple[str, ...]
    text_fields: tuple[str, ...]
    attributes: Mapping[str, AttributeType] = field(default_factory=dict)
    tombstones: tuple[Tombstones | None, ...] = ()
    takedowns: FileDigest | None = None
    table_parts: str = ""
    layout: str = ""
    average_length: float | None = None
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
            "format": self.format,
            "shards": [shard.to_json() for shard in self.shards],
            "bundle_digest": self.bundle_digest,
            "vocabulary_sha256": self.vocabulary_sha256,
            "impact_step": float(self.impact_step).hex(),
            "dk": self.dk,
            "table_uri": self.table_uri,
            "table_version": self.table_version,
            "stored_fields": list(self.stored_fields),
            "text_fields": list(self.text_fields),
            "attributes": dict(self.attributes),
            "tombstones": [one.to_json() if one else None for one in self.tombstones],
            "takedowns": self.takedowns.to_json() if self.takedowns else None,
            "table_parts": self.table_parts,
            "layout": self.layout,
            "average_length": self.average_length,
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
        )


def _attributes(value: dict[str, Any]) -> dict[str, AttributeType]:
    for name, kind in value.items():
        if kind not in ATTRIBUTE_TYPES:
            raise ArtifactError(f"attribute {name!r} has the unknown type {kind!r}; build the index again")
    return value


def _role(value: str) -> ShardRole:
    if value == "base":
        return "base"
    if value == "delta":
        return "delta"
    raise ArtifactError(f"shard role {value!r} is unknown; build the index again")
