"""One opened shard: postings, forward copy, documents and words from its mapped files."""

import bisect
from pathlib import Path

from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import ImpactArrays, array_name, is_mapped
from lsr_prod.search.shard.documents import Documents
from lsr_prod.search.shard.forward_copy import ForwardCopy
from lsr_prod.search.shard.lexical_terms import LexicalTerms
from lsr_prod.search.shard.postings import Postings


class OpenShard:
    """The mapped files of a shard; see ``formats.shard`` for the layout. Safe to share between threads.

    Attributes:
        folder: folder of the shard.
        manifest: its manifest.
        files: its mapped files.
        arrays: its impact arrays.
        documents: ids, stored fields and attributes.
        words: words that have postings; None if the shard was built without BM25.
        vocabulary_size: V; ids of the encoder's terms lie below it, words follow.
        postings: the impact postings.
        forward: the forward copy.
    """

    def __init__(self, folder: Path, manifest: ShardManifest, *, lazy: bool) -> None:
        """Map the shard; only headers are read."""
        self.folder = folder
        self.manifest = manifest
        mapped = [file.path for file in manifest.files if is_mapped(file.path)]
        self.files = files = MappedFiles(folder, manifest.files, mapped, lazy=lazy)
        documents, block_size = manifest.documents, manifest.block_size
        self.arrays = arrays = ImpactArrays.open(files, documents=documents, block_size=block_size)
        self.documents = Documents(files, documents)
        terms = len(arrays.term_runs) - 1
        self.words = LexicalTerms.open(files, terms)
        self.vocabulary_size = terms if self.words is None else self.words.first
        self.postings = Postings(files, arrays, documents=documents, block_size=block_size)
        self._verified_order = False
        self.forward = ForwardCopy(files, arrays, vocabulary_size=self.vocabulary_size)

    def ordinal(self, doc_id: str) -> int | None:
        """Return the ordinal of a document, or None if it is not in this shard."""
        order = self.arrays.id_order
        if not self._verified_order:
            self.files.verify_items(order, array_name("id_order"), 0, len(order))
            self._verified_order = True
        place = bisect.bisect_left(order, doc_id, key=lambda ordinal: self.documents.doc_id(int(ordinal)))
        if place == len(order):
            return None
        ordinal = int(order[place])
        return ordinal if self.documents.doc_id(ordinal) == doc_id else None
