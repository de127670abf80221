"""The index: content-addressed shards, immutable versions, numbered publications.

::

    <index>/
      bundles/<digest>/            the encoder that queries need, so that the index is whole by itself
      shards/<sha>/shard.json      ShardManifest; <sha> names the shard's input and layout
                   impacts/*.npy   postings in document blocks, and the document-ordered copy
                   tantivy/        Boolean index of record, text for BM25
                   docs.arrow      ids, stored fields and attributes, in document order
                   checksums.npy   CRC-32 of every page of the arrays and of docs.arrow
      tombstones/<sha256>.npy      ordinals of a shard's documents that are deleted or replaced
      takedowns/<sha256>.json      ids that must never be found, whatever the table holds
      versions/<sha>.json          IndexVersion; <sha> is the sha256 of its canonical JSON
      publications/000001.json     Publication; created only if absent, so that one writer wins each number
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.formats.attributes import ATTRIBUTE_TYPES, AttributeType
from lsr_prod.formats.digest import FileDigest, digest_json

__all__ = ["INDEX_FORMAT", "SHARD_FILE", "IndexVersion", "ShardManifest", "ShardRole", "Tombstones"]

INDEX_FORMAT = 2
SHARD_FILE = "shard.json"
_SHA = re.compile(r"^[0-9a-f]{64}$")


ShardRole = Literal["base", "delta"]


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """One shard.

    Attributes:
        sha: names the shard: sha256 of its inputs (parts of the table) and layout.
        documents: number of documents.
        postings: number of (document, term) pairs.
        block_size: documents in a block of the impact arrays.
        role: ``base``: all documents of its buckets; ``delta``: documents that were inserted or changed since.
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
        """The form stored on disk."""
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
        """Read what ``to_json`` wrote; a name that is no sha256 is refused, it becomes a path."""
        if not _SHA.match(str(value["sha"])):
            raise ArtifactError(f"shard name {value['sha']!r} is no sha256; the version file cannot be trusted")
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
    """Documents of a shard that are deleted, taken down, or replaced by a document of a later shard.

    Attributes:
        file: ``tombstones/<sha256>.npy``, uint32, rising ordinals.
        documents: how many.
    """

    file: FileDigest
    documents: int

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
        return {"file": self.file.to_json(), "documents": self.documents}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Tombstones":
        """Read what ``to_json`` wrote."""
        return cls(FileDigest.from_json(value["file"]), int(value["documents"]))


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """An immutable version: the shards that are searched together, and where they came from.

    Attributes:
        shards: every shard with the digest of every file.
        bundle_digest: the encoder that queries must use.
        vocabulary_sha256: of its output vocabulary.
        impact_step: weight of one impact unit.
        dk: most terms of a document in the postings.
        table_uri: the sparse table it was built from (no credentials).
        table_version: Delta version of that table.
        stored_fields: columns of ``docs.arrow`` besides ``doc_id``.
        text_fields: stored fields that are indexed for BM25.
        attributes: type of every attribute that filters can ask for.
        tombstones: of every shard, in the shards' order; None where nothing is deleted.
        takedowns: the list of ids that must never be found; None: there are none.
        table_parts: sha256 of the names and sizes of the table's parts at that version; "" where it is not known.
        layout: sha256 of what the base shards were built with; "" where it is not known.
        average_length: words of an average document, by which BM25 impacts were made; None: there are none.
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
        """No list of tombstones is one without any."""
        if not self.tombstones:
            object.__setattr__(self, "tombstones", (None,) * len(self.shards))
        if len(self.tombstones) != len(self.shards):
            raise ArtifactError("the version has not as many tombstones as shards; publish another version")

    @property
    def documents(self) -> int:
        """Documents that can be found, over all shards."""
        return sum(shard.documents for shard in self.shards) - self.deleted

    @property
    def deleted(self) -> int:
        """Documents that stand in a shard and cannot be found."""
        return sum(one.documents for one in self.tombstones if one)

    @property
    def sha(self) -> str:
        """sha256 (hex) that names this version."""
        return digest_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
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
        """Read what ``to_json`` wrote.

        Raises:
            FormatVersionError: written in another format.
        """
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
