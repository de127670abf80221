"""Snapshot of an index: one opened version. A query uses the same snapshot from start to end."""

import heapq
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lsr_prod.errors import LineageError, QueryError
from lsr_prod.search import candidates, search_result
from lsr_prod.search.kernels import native
from lsr_prod.search.query import query_text, search_request, sparse_query
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.shard import mask_cache, open_shard, postings, shard_reader
from lsr_prod.search.shard.documents import damaged_id
from lsr_prod.storage.formats import bundle_format, digests, index_format, shard_format
from lsr_prod.storage.index_versions import read_version, verify_shard

if TYPE_CHECKING:
    from lsr_prod.search.query.filter_types import CheckedFilter
    from lsr_prod.search.query.filters import Filter
    from lsr_prod.storage.formats.stored_values import AttributeType

_ALL_TERMS = 1 << 30
_FILTERS = 64  # number of recently checked filters to keep
_FILTER_BYTES = 1 << 16  # of the JSON of such a filter
_MASK_BYTES = 256 << 20  # of the masks of filters, or _MASKS whole masks if they are larger
_MASKS = 4

Verify = bool | Literal["lazy"]


class Snapshot:
    """Opened index version with memory-mapped files. Immutable and safe to share between threads."""

    missing_groups: tuple[int, ...] = ()

    def __init__(
        self,
        index: Path,
        publication: index_format.Publication,
        *,
        verify: Verify = "lazy",
        before: "Snapshot | None" = None,
        shards: Collection[int] | None = None,
    ) -> None:
        """Open a version."""
        self.index = index
        self.publication = publication
        self._verify = verify
        self._filters: tuple[tuple[Filter, CheckedFilter], ...] = ()
        self.version = version = read_version(index, publication.version)
        self._check_files(verify is True)
        opened = {reader.shard.manifest.sha: reader.shard for reader in before.readers.values()} if before else {}
        chosen = [number for number in range(len(version.shards)) if shards is None or number in shards]
        documents = sum(version.shards[number].documents for number in chosen)
        self.masks = mask_cache.MaskCache(max(_MASK_BYTES, _MASKS * documents))
        self.readers: Mapping[int, shard_reader.ShardReader] = {number: self._open(number, opened) for number in chosen}

    def _open(self, number: int, opened: Mapping[str, open_shard.OpenShard]) -> shard_reader.ShardReader:
        manifest, tombstones = self.version.shards[number], self.version.tombstones[number]
        shard = opened.get(manifest.sha)
        if shard is None or shard.manifest != manifest:
            shard = open_shard.OpenShard(self.index / "shards" / manifest.sha, manifest, lazy=self._verify is not False)
            if shard.vocabulary_size != len(self.vocabulary.names):
                raise LineageError(f"{shard.folder} has another vocabulary size than the bundle; build the index again")
        alive = shard_reader.read_alive(self.index, tombstones, manifest.documents) if tombstones else None
        return shard_reader.ShardReader(shard, alive, dk=self.version.dk, masks=self.masks)

    def _check_files(self, verify: bool) -> None:
        version = self.version
        bundle = bundle_format.Bundle.load(self.bundle, verify=verify)
        if bundle.digest != version.bundle_digest:
            raise LineageError(f"the bundle in {self.index} did not encode the index; build the index again")
        self._bundle_files = bundle.files
        if verify:
            for shard in version.shards:
                verify_shard(self.index, shard)
            digests.verify_files(self.index, [version.takedowns] if version.takedowns else [])

    @property
    def bundle(self) -> Path:
        """Folder of the bundle that must encode queries."""
        return self.index / "bundles" / self.version.bundle_digest

    @property
    def attributes(self) -> "Mapping[str, AttributeType]":
        """Type of every attribute that filters can use."""
        return self.version.attributes

    @cached_property
    def vocabulary(self) -> sparse_query.Vocabulary:
        """Output vocabulary: V terms."""
        vocabulary = bundle_format.read_vocabulary(self.bundle)
        if digests.digest_json(vocabulary) != self.version.vocabulary_sha256:
            raise LineageError(f"{self.bundle} does not have the vocabulary of the index; build the index again")
        return sparse_query.Vocabulary(vocabulary)

    @cached_property
    def card(self) -> bundle_format.EncoderCard:
        """Encoder card of the bundle; it says whether a model encodes queries."""
        if self._verify is not False:
            digests.verify_files(
                self.bundle, [file for file in self._bundle_files if file.path == bundle_format.CARD_FILE]
            )
        return bundle_format.EncoderCard.load(self.bundle)

    @cached_property
    def term_weights(self) -> sparse_query.TermWeights:
        """Term weights of inference-free queries: learned ones, or IDF from all shards of the version, open or not."""
        verify = self._verify is not False
        if self.card.query_encoder == "learned":
            return sparse_query.read_learned_weights(self.bundle, self._bundle_files, self.vocabulary, verify=verify)
        return sparse_query.read_weights(self.index, self.version.shards, self.vocabulary, verify=verify)

    @cached_property
    def native(self) -> object:
        """All open shards, as the kernels search them in one call."""
        members = []
        for number, reader in self.readers.items():
            batches, verified = reader.shard.documents.native
            flags = None if self._verify is False else verified
            members.append((reader.shard.postings.native, number, reader.alive, batches, flags))
        return native.Version(tuple(members), shard_format.BATCH_ROWS)

    @cached_property
    def starts(self) -> np.typing.NDArray[np.int64]:
        """int64 [open shards]: number of the first document of each, in the order of all documents of the version."""
        return np.cumsum([0, *(shard.documents for shard in self.version.shards)])[list(self.readers)].astype(np.int64)

    def search(
        self, query: sparse_query.SparseQuery, request: search_request.Request, required: int, deadline: float | None
    ) -> tuple[tuple[search_result.Hit, ...], int, bool, tuple[search_result.QueryTerm, ...]]:
        """Search all open shards for a query of terms alone: in one call of the kernels, from its vector to its hits.

        Returns:
            The hits of the page, the number of matches, whether the deadline passed, and the query's terms.
        """
        step = self.version.impact_step
        if deadline is not None and time.monotonic() >= deadline:
            query.scaled(step)  # raises
            return (), 0, True, tuple(map(search_result.QueryTerm, query.terms, query.weights.tolist()))
        while True:
            try:
                state, number, found, terms = native.search(
                    self.native,
                    query.ids,
                    query.weights,
                    query.terms,
                    min(required, len(query.ids) + 1),  # no document shares more terms
                    request.reach,
                    request.skipped,
                    self.version.dk,
                    request.min_score,
                    request.scan_share,
                    step,
                    sparse_query.MAX_SCORE,
                    deadline or 0.0,
                    search_result.Hit,
                    search_result.QueryTerm,
                )
            except UnicodeDecodeError as error:
                raise damaged_id(self.index) from error
            if state == postings.UNVERIFIED:
                self.readers[number].verify(query.ids, found)
            elif state == postings.DAMAGED:
                raise postings.damaged_arrays(self.readers[number].shard.files)
            else:
                break
        if found is None:
            query.scaled(step)  # raises
        return found, number, state == postings.PARTIAL, terms

    def match(self, query: postings.ShardQuery) -> candidates.Candidates:
        """Return the best documents of every open shard, one shard after another; see ``Shards``."""
        done: list[candidates.Candidates] = []
        best: list[float] = []
        floor = query.floor
        for number in self.readers:
            if query.deadline is not None and time.monotonic() >= query.deadline:
                done.append(candidates.Candidates([], 0, False, True))
                break
            done.append(self.match_one(number, query, floor))
            if len(self.readers) > 1 and query.k:
                # In the next shards, a document below the k-th best score so far cannot be a hit.
                best = heapq.nlargest(query.k, [*best, *(-row[0] for row in done[-1].ranked)])
                floor = max(query.floor, best[-1]) if len(best) == query.k else query.floor
        return candidates.Candidates.join(done)

    def match_one(self, number: int, query: postings.ShardQuery, floor: float) -> candidates.Candidates:
        """Return the best documents of one open shard that score at least ``floor``."""
        reader = self.readers[number]
        hits = reader.match(query, floor)
        ids = reader.shard.documents.doc_ids(hits.ordinals)
        ranked = [
            (-score, doc_id, number, ordinal, overlap)
            for score, doc_id, ordinal, overlap in zip(hits.scores, ids, hits.ordinals, hits.overlaps, strict=True)
        ]
        return candidates.Candidates(ranked, hits.matched, not hits.partial, hits.partial)

    def bm25(self, tokens: Sequence[str], k: int) -> candidates.Candidates:
        """Return the best ``k`` documents by Tantivy; deleted ones count in ``matched`` until their shard is merged."""
        matched, ranked = 0, []
        for number, reader in self.readers.items():
            found, best = reader.bm25(tokens, k)
            matched += found
            ranked += [(-score, reader.shard.documents.doc_id(o), number, o, 0) for score, o in best]
        return candidates.Candidates(sorted(ranked)[:k], matched, self.version.deleted == 0, False)

    def match_terms(self, terms: Sequence[int], required: int) -> set[str]:
        """Return the ids of all documents with at least ``required`` of some distinct terms."""
        ids, ones = np.array(terms, np.int32), np.ones(len(terms), np.uint8)
        query = postings.ShardQuery(ids, ones.astype(np.float32), ones, required, 0)
        return self._marked(lambda reader: reader.shard.postings.mark(query, allowed=reader.alive)[0])

    def match_filter(self, expression: "Filter") -> set[str]:
        """Return the ids of all documents for which a checked filter is true."""
        return self._marked(lambda reader: reader.allowed(expression))

    def _marked(self, mark: Callable[[shard_reader.ShardReader], np.typing.NDArray[np.uint8] | None]) -> set[str]:
        found: set[str] = set()
        for reader in self.readers.values():
            marks = mark(reader)
            assert marks is not None
            found.update(reader.shard.documents.doc_ids(np.flatnonzero(marks).tolist()))
        return found

    def collect(self, query: postings.ShardQuery, plan: candidates.CollectPlan) -> candidates.Collected:
        """Enumerate all matches in the open shards; see ``Shards``."""
        return candidates.collect_shards(self.readers, query, plan)

    def word_frequencies(self, names: Sequence[str], deadline: float | None = None) -> np.typing.NDArray[np.int64]:
        """Return int64 [t]: documents of the open shards that contain each word; see ``Shards``."""
        total = np.zeros(len(names), np.int64)
        for reader in self.readers.values():
            ids = reader.word_ids(names, deadline)
            held = ids >= 0
            total[held] += reader.shard.postings.frequencies(ids[held])
        return total

    def rescore(
        self,
        ranked: Sequence[candidates.Ranked],
        ids: np.typing.NDArray[np.int32],
        weights: np.typing.NDArray[np.float32],
    ) -> list[candidates.Ranked]:
        """Return the documents scored by all their stored terms; overlaps do not change. See ``Shards``."""
        result: list[candidates.Ranked] = []
        for number, reader in self.readers.items():
            mine = [row for row in ranked if row[2] == number]
            if mine:
                ordinals = np.array([row[3] for row in mine], dtype=np.int64)
                scores, _ = reader.shard.forward.score(ordinals, ids, weights, dk=_ALL_TERMS)
                result += [
                    (-score, doc_id, number, ordinal, overlap)
                    for score, (_, doc_id, _, ordinal, overlap) in zip(scores.tolist(), mine, strict=True)
                ]
        return result

    def fields(self, ranked: Sequence[candidates.Ranked], names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the stored fields and attributes of documents, attributes as values of their type; see ``Shards``."""
        typed = self.version.attributes
        columns = {name: index_format.attribute_column(name) if name in typed else name for name in names}
        return [self.readers[number].shard.documents.fields(ordinal, columns) for _, _, number, ordinal, _ in ranked]

    def find(self, doc_id: str) -> tuple[int, int]:
        """Return the number of the shard and the ordinal of a document."""
        if not isinstance(doc_id, str):
            raise QueryError(f"doc_id={shorten(doc_id)} is not a string; give the id of a document")
        found = self.place(doc_id)
        if found is None:
            raise QueryError(f"there is no document {shorten(doc_id)} in this version; give an id of the index")
        return found

    def place(self, doc_id: str) -> tuple[int, int] | None:
        """Return the number of the shard and the ordinal of a document; None if no open shard has it."""
        for number, reader in self.readers.items():
            ordinal = reader.ordinal(doc_id)
            if ordinal is not None:
                return number, ordinal
        return None

    def check_fields(self, names: Sequence[str]) -> None:
        """Check that all names are stored fields or attributes."""
        known = (*self.version.stored_fields, *self.version.attributes)
        for name in names:
            if name not in known:
                raise QueryError(
                    f"the index does not store the field {shorten(name)}; it stores: {', '.join(known) or 'none'}"
                )

    def check_attributes(self, names: Sequence[str]) -> None:
        """Check that all names are attributes."""
        for name in names:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise QueryError(f"the index has no attribute {shorten(name)}; it has: {known}")

    def check_sort(self, name: str) -> None:
        """Check that a name is an attribute that orders documents."""
        self.check_attributes([name])
        if self.attributes[name] == "strings":
            raise QueryError(f"attribute {shorten(name)} is a list of strings, which has no order; choose another one")

    def check_filter(self, expression: "Filter") -> "CheckedFilter":
        """Return the filter with its values converted to the types of the attributes, and with its key."""
        from lsr_prod.search.query.filter_types import CheckedFilter, check_filter

        # Compared by identity, because 1 equals True. The tuple is replaced, never changed, so other threads may read
        # it; a thread that writes at the same time can only lose its own entry.
        for known, checked in self._filters:
            if known is expression:
                return checked
        checked = CheckedFilter.of(self._parse_texts(check_filter(expression, self.attributes)))
        if checked.size <= _FILTER_BYTES:
            self._filters = ((expression, checked), *self._filters[: _FILTERS - 1])
        return checked

    def _parse_texts(self, expression: "Filter") -> "Filter":
        """Return a checked filter with its text queries parsed."""
        if not query_text.has_text_query(expression):
            return expression
        from lsr_prod.inference.terms.analysis import (
            distinct_words,  # Tantivy is imported by the first query that needs it
        )
        from lsr_prod.search.boolean_query import parse_text_queries

        if not self.version.text_fields:
            raise QueryError("this index has no text for text queries; build it with index.text_fields")
        return parse_text_queries(expression, self.attributes, lambda text: distinct_words(text, self.version.analyzer))

    @cached_property
    def document_frequencies(self) -> np.typing.NDArray[np.int64]:
        """int64 [V]: documents whose postings contain each term, deleted ones included."""
        total = np.zeros(len(self.vocabulary.names), np.int64)
        for reader in self.readers.values():
            total += reader.shard.postings.document_frequencies()[: len(total)]
        return total
