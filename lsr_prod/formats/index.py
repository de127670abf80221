"""The index: content-addressed shards, immutable versions, numbered publications.

::

    <index>/
      bundles/<digest>/            the encoder that queries need, so that the index is whole by itself
      shards/<sha>/shard.json      ShardManifest; <sha> names the shard's input and layout
                   impacts/*.npy   postings in document blocks, and the document-ordered copy
                   tantivy/        Boolean index of record, text for BM25
                   docs.arrow      ids and stored fields, in document order
      versions/<sha>.json          IndexVersion; <sha> is the sha256 of its canonical JSON
      publications/000001.json     Publication; created only if absent, so that one writer wins each number
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtefactError, DigestMismatchError, FormatVersionError, PublicationError
from lsr_prod.formats.digest import FileDigest, digest_json

__all__ = [
    "IndexVersion",
    "Publication",
    "ShardManifest",
    "latest_publication",
    "load_publication",
    "load_shard",
    "load_version",
    "publication_name",
]

INDEX_FORMAT = 1
SHARD_FILE = "shard.json"
_PUBLICATION = re.compile(r"^(\d{6,})\.json$")
_SHA = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """One shard.

    Attributes:
        sha: names the shard: sha256 of its inputs (parts of the table) and layout.
        documents: number of documents.
        postings: number of (document, term) pairs.
        block_size: documents in a block of the impact arrays.
        bytes_by_part: size in bytes of ``impacts``, ``forward``, ``tantivy`` and ``docs``.
        files: every file of the shard but ``shard.json``.
    """

    sha: str
    documents: int
    postings: int
    block_size: int
    bytes_by_part: dict[str, int]
    files: tuple[FileDigest, ...]

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
        return {
            "sha": self.sha,
            "documents": self.documents,
            "postings": self.postings,
            "block_size": self.block_size,
            "bytes_by_part": self.bytes_by_part,
            "files": [file.to_json() for file in self.files],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ShardManifest":
        """Read what ``to_json`` wrote; a name that is no sha256 is refused, it becomes a path."""
        if not _SHA.match(str(value["sha"])):
            raise ArtefactError(f"shard name {value['sha']!r} is no sha256; the version file is not to be trusted")
        return cls(
            sha=value["sha"],
            documents=int(value["documents"]),
            postings=int(value["postings"]),
            block_size=int(value["block_size"]),
            bytes_by_part={str(k): int(v) for k, v in value["bytes_by_part"].items()},
            files=tuple(FileDigest.from_json(file) for file in value["files"]),
        )


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
        text_fields: stored fields that Tantivy indexes for BM25.
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
    format: int = INDEX_FORMAT

    @property
    def documents(self) -> int:
        """Documents over all shards."""
        return sum(shard.documents for shard in self.shards)

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
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "IndexVersion":
        """Read what ``to_json`` wrote.

        Raises:
            FormatVersionError: written in another format.
        """
        if value.get("format") != INDEX_FORMAT:
            raise FormatVersionError(
                f"index version has format {value.get('format')}; this release reads {INDEX_FORMAT}"
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
        )


@dataclass(frozen=True, slots=True)
class Publication:
    """One entry of the index's history: the version that readers use from now on.

    Attributes:
        number: 1, 2, 3 …; readers follow the largest.
        version: sha256 of the version.
        published_at: UTC, ISO 8601.
        note: why, for people ("rollback to 41").
    """

    number: int
    version: str
    published_at: str
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
        return {"number": self.number, "version": self.version, "published_at": self.published_at, "note": self.note}


def publication_name(number: int) -> str:
    """File name of publication ``number``: six digits or more."""
    return f"{number:06d}.json"


def latest_publication(index: Path) -> Publication:
    """The publication with the largest number.

    Raises:
        PublicationError: the folder is no index, or nothing is published yet.
    """
    folder = index / "publications"
    numbers = [int(match[1]) for path in folder.glob("*.json") if (match := _PUBLICATION.match(path.name))]
    if not numbers:
        raise PublicationError(f"{index} has no publication; build one with jobs/index.py")
    return load_publication(index, max(numbers))


def load_publication(index: Path, number: int) -> Publication:
    """Publication ``number``.

    Raises:
        PublicationError: there is none of that number.
    """
    path = index / "publications" / publication_name(number)
    if not path.is_file():
        raise PublicationError(f"{index} has no publication {number}")
    value = json.loads(path.read_bytes())
    return Publication(number, value["version"], value["published_at"], value.get("note", ""))


def load_shard(folder: Path) -> ShardManifest:
    """Read the manifest in a shard's folder.

    Raises:
        ArtefactError: it is missing, or the folder has another name.
    """
    path = folder / SHARD_FILE
    if not path.is_file():
        raise ArtefactError(f"{path} is missing; remove {folder} and build the index again")
    manifest = ShardManifest.from_json(json.loads(path.read_bytes()))
    if manifest.sha != folder.name:
        raise ArtefactError(f"{path} belongs to shard {manifest.sha}; remove {folder} and build the index again")
    return manifest


def load_version(index: Path, sha: str) -> IndexVersion:
    """Read ``versions/<sha>.json`` and hold it against its name.

    Raises:
        ArtefactError: it is missing, or ``sha`` is no sha256.
        DigestMismatchError: its content does not have that digest.
    """
    if not _SHA.match(sha):
        raise ArtefactError(f"version name {sha!r} is no sha256; the publication is not to be trusted")
    path = index / "versions" / f"{sha}.json"
    if not path.is_file():
        raise ArtefactError(f"{path} is missing; publish another version")
    value = json.loads(path.read_bytes())
    if digest_json(value) != sha:
        raise DigestMismatchError(f"{path} does not have the digest of its name; publish another version")
    return IndexVersion.from_json(value)
