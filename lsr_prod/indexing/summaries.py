"""Summaries that the functions of this package return to jobs; ``result`` gives the keys of the line ``RESULT``."""

from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod.formats.publication import Publication


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """Summary of an index job.

    Attributes:
        documents: documents that can be found.
        shards: shards of the version.
        shards_reused: shards that this run did not build.
        postings: postings of all shards.
        bytes_per_doc: bytes of all shards per document.
        bytes_per_doc_impacts: of these, the posting arrays.
        bytes_per_doc_forward: of these, the document-ordered arrays.
        bytes_per_doc_tantivy: of these, the Tantivy index.
        bytes_per_doc_docs: of these, ids, stored fields and attributes.
        mode: ``full``, ``delta``, ``merge`` or ``unchanged``; see ``derive.DerivedVersion``.
        reason: why all shards were built; "" in the other modes.
        upserts: documents that are new or changed since the version that was current.
        deletes: documents that were deleted since then.
        tombstones: documents of the shards that are hidden.
        documents_rebuilt: documents of the shards that this run built, in all attempts.
        bytes_written: bytes of shards and tombstones that this run wrote, in all attempts.
        unreadable_attributes: values that became null in the shards that this run built.
        seconds: wall time.
        seconds_impacts: spent on document order and arrays, summed over shards.
        seconds_tantivy: spent on Tantivy indexes, summed over shards.
        version: sha256 of the version.
        publication: number of the publication; 0 if the version was not published.
    """

    documents: int
    shards: int
    shards_reused: int
    postings: int
    bytes_per_doc: float
    bytes_per_doc_impacts: float
    bytes_per_doc_forward: float
    bytes_per_doc_tantivy: float
    bytes_per_doc_docs: float
    mode: str
    reason: str
    upserts: int
    deletes: int
    tombstones: int
    documents_rebuilt: int
    bytes_written: int
    unreadable_attributes: int
    seconds: float
    seconds_impacts: float
    seconds_tantivy: float
    version: str
    publication: int

    def result(self) -> dict[str, Any]:
        """Return the flat summary of a job."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TakedownSummary:
    """Summary of a takedown or of a restoration.

    Attributes:
        publication: the publication that makes the change visible; the current one if nothing changed.
        documents: documents that can be found.
        changed: documents that the change hid or restored.
        takedowns: ids on the list of takedowns.
    """

    publication: Publication
    documents: int
    changed: int
    takedowns: int


@dataclass(frozen=True, slots=True)
class GarbageSummary:
    """Summary of a garbage collection.

    Attributes:
        publications: publications that were deleted.
        objects: other files and folders that were deleted.
        size: bytes of these files and folders.
    """

    publications: int
    objects: int
    size: int

    def result(self) -> dict[str, int]:
        """Return the flat summary of a job."""
        return {"publications": self.publications, "objects": self.objects, "bytes": self.size}
