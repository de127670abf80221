"""Snapshot of an index: one opened version. A query uses the same snapshot from start to end."""

import heapq
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import LineageError, QueryError
from lsr_prod.formats.attributes import attribute_column
from lsr_prod.formats.bundle import Bundle, read_vocabulary
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import digest_json, verify_files
from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.publication import Publication
from lsr_prod.formats.shard import TANTIVY_FOLDER
from lsr_prod.search.candidates import Candidates, Ranked
from lsr_prod.search.kernel.workspace import Workspace
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.sparse_query import Vocabulary
from lsr_prod.search.query.term_weights import TermWeights, read_weights
from lsr_prod.search.shard.open_shard import OpenShard
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.search.shard.tombstones import read_alive
from lsr_prod.storage.index_versions import read_version, verify_shard

if TYPE_CHECKING:
    from lsr_prod.formats.attributes import AttributeType
    from lsr_prod.search.boolean_shard import BooleanShard
    from lsr_prod.search.query.filters import Filter

__all__ = ["Snapshot", "Verify"]

_ALL_TERMS = 1 << 30
_FILTERS = 64  # number of recently checked filters to keep

Verify = bool | Literal["lazy"]


class Snapshot:
    """Opened index version with memory-mapped files. Immutable and safe to share between threads.

    Attributes:
        index: the index folder.
        publication: the publication of the version.
        version: its manifest.
        readers: readers of its open shards, by the number of the shard in the version.
    """

    def __init__(
        self,
        index: Path,
        publication: Publication,
        *,
        verify: Verify = "lazy",
        before: "Snapshot | None" = None,
        shards: Collection[int] | None = None,
    ) -> None:
        """Open a version.

        Args:
            index: a local index folder.
            publication: a publication of the version.
            verify: "lazy": verify every page when it is read for the first time; True: every file now; False: nothing.
            before: an open snapshot of the same index, whose shards are reused.
            shards: numbers of the shards to open; None: all.

        Raises:
            ArtifactError: the version is incomplete, damaged or of another format.
            LineageError: the index was not encoded with the bundle in its folder.
        """
        self.index = index
        self.publication = publication
        self._verify = verify
        self._filters: tuple[tuple[Filter, Filter], ...] = ()
        self.version = version = read_version(index, publication.version)
        self._check_files(verify is True)
        opened = {reader.shard.manifest.sha: reader.shard for reader in before.readers.values()} if before else {}
        self.readers: Mapping[int, ShardReader] = {
            number: ShardReader(
                self._open(shard, opened.get(shard.sha)),
                read_alive(index, tombstones, shard.documents) if tombstones else None,
                dk=version.dk,
            )
            for number, (shard, tombstones) in enumerate(zip(version.shards, version.tombstones, strict=True))
            if shards is None or number in shards
        }

    def _open(self, manifest: ShardManifest, before: OpenShard | None) -> OpenShard:
        if before is not None and before.manifest == manifest:
            return before
        shard = OpenShard(self.index / "shards" / manifest.sha, manifest, lazy=self._verify is not False)
        if shard.vocabulary_size != len(self.vocabulary.names):
            raise LineageError(f"{shard.folder} has another vocabulary size than the bundle; build the index again")
        return shard

    def _check_files(self, verify: bool) -> None:
        version = self.version
        bundle = Bundle.load(self.bundle, verify=verify)
        if bundle.digest != version.bundle_digest:
            raise LineageError(f"the bundle in {self.index} did not encode the index; build the index again")
        if verify:
            for shard in version.shards:
                verify_shard(self.index, shard)
            verify_files(self.index, [version.takedowns] if version.takedowns else [])

    @property
    def bundle(self) -> Path:
        """Folder of the bundle that must encode queries."""
        return self.index / "bundles" / self.version.bundle_digest

    @property
    def attributes(self) -> "Mapping[str, AttributeType]":
        """Type of every attribute that filters can use."""
        return self.version.attributes

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Output vocabulary: V terms."""
        vocabulary = read_vocabulary(self.bundle)
        if digest_json(vocabulary) != self.version.vocabulary_sha256:
            raise LineageError(f"{self.bundle} does not have the vocabulary of the index; build the index again")
        return Vocabulary(vocabulary)

    @cached_property
    def card(self) -> EncoderCard:
        """Encoder card of the bundle; it says whether a model encodes queries."""
        return EncoderCard.load(self.bundle)

    @cached_property
    def term_weights(self) -> TermWeights:
        """Term weights of inference-free queries, from all shards of the version, open or not.

        Raises:
            ArtifactError: the term counts of a shard are missing or damaged.
        """
        return read_weights(self.index, self.version.shards, self.vocabulary, verify=self._verify is not False)

    def match(self, query: ShardQuery) -> Candidates:
        """Return the best documents of every open shard, one shard after another; see ``Shards``.

        Raises:
            QueryError: the filter does not fit the attributes.
            ArtifactError: a shard is damaged.
        """
        done: list[Candidates] = []
        best: list[float] = []
        floor = query.floor
        for number in self.readers:
            if query.deadline is not None and time.monotonic() >= query.deadline:
                done.append(Candidates([], 0, False, True))
                break
            done.append(self.match_one(number, query, floor))
            if len(self.readers) > 1 and query.k:
                # In the next shards, a document below the k-th best score so far cannot be a hit.
                best = heapq.nlargest(query.k, [*best, *(-row[0] for row in done[-1].ranked)])
                floor = max(query.floor, best[-1]) if len(best) == query.k else query.floor
        return Candidates.join(done)

    def match_one(self, number: int, query: ShardQuery, floor: float) -> Candidates:
        """Return the best documents of one open shard that score at least ``floor``."""
        reader = self.readers[number]
        hits = reader.match(query, Workspace.of_thread(), floor)
        doc_id = reader.shard.documents.doc_id
        ranked = [
            (-score, doc_id(ordinal), number, ordinal, overlap)
            for score, ordinal, overlap in zip(hits.scores, hits.ordinals, hits.overlaps, strict=True)
        ]
        return Candidates(ranked, hits.matched, hits.exact, hits.partial)

    def word_frequencies(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return int64 [t]: documents of the open shards that contain each word, deleted ones included."""
        total = np.zeros(len(names), np.int64)
        for reader in self.readers.values():
            ids = reader.word_ids(names)
            held = ids >= 0
            total[held] += reader.shard.postings.frequencies(ids[held])
        return total

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> list[Ranked]:
        """Return the documents scored by all their stored terms; overlaps do not change. See ``Shards``."""
        result: list[Ranked] = []
        for number, reader in self.readers.items():
            mine = [row for row in ranked if row[2] == number]
            if mine:
                ordinals = np.array([row[3] for row in mine], dtype=np.int64)
                scores, _ = reader.shard.forward.score(ordinals, ids, weights, Workspace.of_thread(), dk=_ALL_TERMS)
                result += [
                    (-score, doc_id, number, ordinal, overlap)
                    for score, (_, doc_id, _, ordinal, overlap) in zip(scores.tolist(), mine, strict=True)
                ]
        return result

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the stored fields and attributes of documents; see ``Shards``."""
        columns = {name: name if name in self.version.stored_fields else attribute_column(name) for name in names}
        return [self.readers[number].shard.documents.fields(ordinal, columns) for _, _, number, ordinal, _ in ranked]

    def find(self, doc_id: str) -> tuple[int, int]:
        """Return the number of the shard and the ordinal of a document.

        Raises:
            QueryError: there is no such document.
        """
        if not isinstance(doc_id, str):
            raise QueryError(f"doc_id={shorten(doc_id)} is not a string; give the id of a document")
        for number, reader in self.readers.items():
            ordinal = reader.ordinal(doc_id)
            if ordinal is not None:
                return number, ordinal
        raise QueryError(f"there is no document {shorten(doc_id)} in this version; give an id of the index")

    def check_fields(self, names: Sequence[str]) -> None:
        """Check that all names are stored fields or attributes.

        Raises:
            QueryError: there is no such field.
        """
        known = (*self.version.stored_fields, *self.version.attributes)
        for name in names:
            if name not in known:
                raise QueryError(
                    f"the index does not store the field {shorten(name)}; it stores: {', '.join(known) or 'none'}"
                )

    def check_filter(self, expression: "Filter") -> "Filter":
        """Return the filter with its values converted to the types of the attributes.

        Raises:
            QueryError: the filter does not fit the attributes.
        """
        from lsr_prod.search.query.filter_types import check_filter

        # Compared by identity, because 1 equals True. The tuple is replaced, never changed, so other threads may read
        # it; a thread that writes at the same time can only lose its own entry.
        for known, checked in self._filters:
            if known is expression:
                return checked
        checked = check_filter(expression, self.attributes)
        self._filters = ((expression, checked), *self._filters[: _FILTERS - 1])
        return checked

    @cached_property
    def document_frequencies(self) -> npt.NDArray[np.int64]:
        """int64 [V]: documents whose postings contain each term, deleted ones included."""
        total = np.zeros(len(self.vocabulary.names), np.int64)
        for reader in self.readers.values():
            total += reader.shard.postings.document_frequencies()[: len(total)]
        return total

    @cached_property
    def boolean(self) -> "dict[int, BooleanShard]":
        """The Tantivy index of every open shard."""
        from lsr_prod.search.boolean_shard import BooleanShard

        if self._verify is not False:
            for reader in self.readers.values():
                files = [file for file in reader.shard.manifest.files if file.path.startswith(f"{TANTIVY_FOLDER}/")]
                verify_files(reader.shard.folder, files)
        return {number: BooleanShard.open(reader.shard) for number, reader in self.readers.items()}
