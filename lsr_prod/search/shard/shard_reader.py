"""Reader of one shard of an index version, without the documents that the version has deleted."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import ArtifactError
from lsr_prod.search.query import filter_types, filters, query_text
from lsr_prod.search.shard import mask_cache, open_shard
from lsr_prod.search.shard.postings import ShardHits, ShardQuery
from lsr_prod.storage.formats import digests, index_format, pages

# Share of a shard below which scoring the allowed documents one by one is faster than the scan.
_FEW = 1 / 200
_WORDS = 256  # words that are looked up between two checks of the deadline
_MASK_BYTES = 64 << 20  # of the masks of a reader without a version
_PER_ID = 1_000  # documents whose ids are compared in the time of one search in the order of ids
_COMPARE = {"eq": pc.equal, "gt": pc.greater, "ge": pc.greater_equal, "lt": pc.less, "le": pc.less_equal}

Allowed = np.typing.NDArray[np.uint8]
FindTokens = Callable[[Sequence[str]], Allowed]


def read_alive(index: Path, tombstones: index_format.Tombstones, documents: int) -> np.typing.NDArray[np.uint8]:
    """Return uint8 [documents]: 0 for deleted documents, else 1."""
    path = str(index / tombstones.file.path)
    ordinals = pages.parse_npy(digests.read_file(index, tombstones.file), path, "publish another version")
    if ordinals.dtype != np.uint32 or len(ordinals) != tombstones.documents or (ordinals >= documents).any():
        raise ArtifactError(f"{path} does not fit its shard; publish another version")
    alive = np.ones(documents, np.uint8)
    alive[ordinals] = 0
    alive.flags.writeable = False
    return alive


class ShardReader:
    """One shard of an open version. Safe to share between threads.

    Attributes:
        shard: its files.
        alive: uint8 [N], 0 for deleted documents; None: no document is deleted.
        dk: terms per document in the postings.
    """

    def __init__(
        self,
        shard: open_shard.OpenShard,
        alive: np.typing.NDArray[np.uint8] | None,
        *,
        dk: int,
        masks: mask_cache.MaskCache | None = None,
    ) -> None:
        """Combine a shard with its tombstones."""
        self.shard = shard
        self.dk = dk
        self.alive = alive
        self._masks = mask_cache.MaskCache(_MASK_BYTES) if masks is None else masks

    def match(self, query: ShardQuery, floor: float) -> ShardHits:
        """Find the best documents of this shard."""
        query = self.with_words(query)
        allowed = self.alive
        if query.filter is not None:
            mask = self._mask(query.filter)
            only_terms = query.words is None and query.counted.all()  # the forward copy has no words
            if only_terms and mask.ordinals is not None:
                return self._score_allowed(mask, mask.ordinals, query)
            allowed = mask.allowed
        return self.shard.postings.match(query, floor, self.dk, allowed)

    def allowed(self, expression: filters.Filter | None) -> np.typing.NDArray[np.uint8] | None:
        """Return uint8 [N], 1 for documents that can be found and pass a filter; None: all."""
        return self.alive if expression is None else self._mask(expression).allowed

    def with_words(self, query: ShardQuery) -> ShardQuery:
        """Append the words of a query that this shard holds to its terms."""
        words = query.words
        if words is None:
            return query
        found = self.word_ids(words.names, query.deadline)
        held = found >= 0
        return replace(
            query,
            ids=np.concatenate([query.ids, found[held]]),
            weights=np.concatenate([query.weights, words.weights[held]]),
            counted=np.concatenate([query.counted, np.full(int(held.sum()), words.counted, np.uint8)]),
        )

    def word_ids(self, names: Sequence[str], deadline: float | None = None) -> np.typing.NDArray[np.int32]:
        """Return int32 [t]: ids of words in the postings of this shard, -1 for words that no document of it holds.

        Words that are not found by the deadline, a ``time.monotonic()``, get -1 too.
        """
        if self.shard.words is None:
            raise ArtifactError(f"{self.shard.folder} has no words, though its version has; build the index again")
        if deadline is None:
            return self.shard.words.ids(names)
        found = np.full(len(names), -1, np.int32)
        for start in range(0, len(names), _WORDS):
            if time.monotonic() >= deadline:
                break
            found[start : start + _WORDS] = self.shard.words.ids(names[start : start + _WORDS])
        return found

    def _score_allowed(
        self, mask: mask_cache.Mask, ordinals: np.typing.NDArray[np.int64], query: ShardQuery
    ) -> ShardHits:
        """Score the allowed documents one by one: the same hits as those of the scan."""
        scores, overlaps = self.shard.forward.score(
            ordinals, query.ids, query.weights, dk=self.dk, vectors=mask.vectors
        )
        found = overlaps >= query.required
        matched = int(found.sum())
        found &= scores >= np.float32(query.floor)
        ordinals, scores, overlaps = ordinals[found], scores[found], overlaps[found]
        order = np.argsort(-scores, kind="stable")[: query.k]  # ordinals rise
        return ShardHits(matched, False, 0, ordinals[order].tolist(), scores[order].tolist(), overlaps[order].tolist())

    def score(
        self, query: ShardQuery, ordinals: np.typing.NDArray[np.int64]
    ) -> tuple[np.typing.NDArray[np.float32], np.typing.NDArray[np.uint16]]:
        """Score documents by a query with its words, in the query's order.

        Returns:
            Scores float32 [n] and shared terms that count uint16 [n].
        """
        terms = query.ids < self.shard.vocabulary_size
        scores, overlaps = self.shard.forward.score(ordinals, query.ids[terms], query.weights[terms], dk=self.dk)
        for place in np.flatnonzero(~terms).tolist():  # words follow the terms
            impacts = self.shard.postings.impacts(int(query.ids[place]), ordinals)
            scores += query.weights[place] * impacts.astype(np.float32)
            overlaps += (impacts > 0) & (query.counted[place] > 0)
        return scores, overlaps

    def bm25(self, tokens: Sequence[str], k: int) -> tuple[int, list[tuple[float, int]]]:
        """Ask Tantivy for more hits until ``k`` of them are not deleted: Tantivy does not know the tombstones.

        Tantivy breaks ties in its own order, so of documents with equal scores any may be among the best ``k``.
        """
        limit = k
        while True:
            found, best = self.shard.boolean.bm25(tokens, limit)
            alive = [row for row in best if self.is_alive(row[1])]
            if len(alive) >= k or limit >= found:
                return found, alive[:k]
            limit *= 2

    def verify(self, ids: np.typing.NDArray[np.int32], ordinals: Sequence[int]) -> None:
        """Verify what the kernels read of some terms and documents: postings, vectors and ids."""
        self.shard.postings.verify(ids, ordinals)
        self.shard.documents.doc_ids(ordinals)

    def is_alive(self, ordinal: int) -> bool:
        """Return whether a document of the shard can be found."""
        return self.alive is None or bool(self.alive[ordinal])

    def ordinal(self, doc_id: str) -> int | None:
        """Return the ordinal of a document that can be found, or None."""
        ordinal = self.shard.ordinal(doc_id)
        return ordinal if ordinal is not None and self.is_alive(ordinal) else None

    def _mask(self, expression: filters.Filter) -> mask_cache.Mask:
        return self._masks.get((self.shard.manifest.sha, expression.key), lambda: self._evaluate(expression))

    def _evaluate(self, expression: filters.Filter) -> mask_cache.Mask:
        shard, documents = self.shard, self.shard.documents
        allowed = evaluate(
            expression, documents.batches, shard.match_tokens, ordinal=shard.ordinal, verify=documents.verify_columns
        )
        mask = mask_cache.Mask.of(allowed if self.alive is None else allowed & self.alive, _FEW * len(allowed))
        return mask if mask.ordinals is None else replace(mask, vectors=shard.forward.gather(mask.ordinals, self.dk))


def evaluate(
    expression: filters.Filter,
    batches: Sequence[pa.RecordBatch],
    find: FindTokens | None = None,
    *,
    ordinal: Callable[[str], int | None] | None = None,
    verify: Callable[[Sequence[str]], None] | None = None,
) -> Allowed:
    """Return the documents for which a filter is true.

    Returns:
        uint8 [N], read-only: 1 where the document may be returned.
    """
    if not batches:
        return _seal(np.zeros(0, np.uint8))
    if isinstance(expression, filter_types.CheckedFilter):
        checked = expression.expression
    else:
        checked = filter_types.check_filter(expression, index_format.attribute_types(batches[0].schema))
    truth = _truth(checked, lambda condition: _decide(condition, batches, ordinal, verify), find)
    return _seal(truth.fill_null(False).cast(pa.uint8()).to_numpy())


def _truth(
    expression: filters.Filter, decide: Callable[[filters.Condition], pa.ChunkedArray], find: FindTokens | None
) -> pa.ChunkedArray:
    """Return bool [N]: true, false, or null for unknown."""
    match expression:
        case filters.Combination(operator, parts):
            combine = pc.and_kleene if operator == "and" else pc.or_kleene
            return functools.reduce(combine, (_truth(part, decide, find) for part in parts))
        case filters.Negation(part):
            return pc.invert(_truth(part, decide, find))
        case filters.Condition():
            return decide(expression)
        case query_text.TextQuery(_, filters.Filter() as parsed):
            return _truth(parsed, decide, find)
        case query_text.TextTokens(tokens) if find is not None:
            return pa.chunked_array([pa.array(find(tokens).astype(bool))])
    raise AssertionError(f"unknown filter {type(expression)}")


def _decide(
    condition: filters.Condition,
    batches: Sequence[pa.RecordBatch],
    ordinal: Callable[[str], int | None] | None,
    verify: Callable[[Sequence[str]], None] | None,
) -> pa.ChunkedArray:
    column = filters.DOC_ID if condition.name == filters.DOC_ID else index_format.attribute_column(condition.name)
    if condition.name == filters.DOC_ID and ordinal is not None and condition.operator in ("eq", "in"):
        documents = sum(batch.num_rows for batch in batches)
        ids = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        if len(ids) <= max(1, documents // _PER_ID):
            places = {ordinal(str(doc_id)) for doc_id in ids} - {None}
            found = np.zeros(documents, bool)
            found[np.array([*places], np.int64)] = True
            return pa.chunked_array([pa.array(found)])
    if verify is not None:
        verify([column])
    return _compare(condition, pa.chunked_array([batch.column(column) for batch in batches]))


def _compare(condition: filters.Condition, column: pa.ChunkedArray) -> pa.ChunkedArray:
    match condition.operator:
        case "is_null":
            return pc.is_null(column)
        case _ if pa.types.is_list(column.type):
            return pa.chunked_array([_any_item(condition, lists) for lists in column.chunks], pa.bool_())
        case "in":
            found = pc.is_in(column, value_set=pa.array(condition.value, column.type))
            return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
        case "prefix":
            return pc.starts_with(column, pattern=condition.value)
    return _COMPARE[condition.operator](column, pa.scalar(condition.value, column.type))


def _any_item(condition: filters.Condition, lists: pa.Array) -> pa.Array:
    """Return which lists have an item for which the condition is true, bool [n]; null for a list that is null."""
    found = np.zeros(len(lists), bool)
    true = _compare(condition, pa.chunked_array([pc.list_flatten(lists)]))
    found[pc.list_parent_indices(lists).filter(pc.fill_null(true, False).combine_chunks()).to_numpy()] = True
    return pc.if_else(lists.is_valid(), pa.array(found), pa.scalar(None, pa.bool_()))


def _seal(mask: Allowed) -> Allowed:
    mask.flags.writeable = False
    return mask
