"""Padded batches of a step, with negatives sampled for this step.

False negatives of a batch: documents that are positives of a query, in the place of its negatives.

A document is a positive of a query if a row of the training set has both, or if it equals such a document. Among the
documents of other rows, of all workers and of the momentum queue, these documents are not negatives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lsr_prod.storage.formats.digests import field_values
from lsr_prod.training import process_group, twins
from lsr_prod.training.data.training_set import Example, text_keys


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """Keys of the texts of one worker's batch; equal texts have equal keys."""

    queries: Tensor  # int64 [n]
    documents: Tensor  # int64 [n * c]; those of query i are i * c to i * c + c - 1, its positive first; 0: missing
    owners: Tensor  # int64 [t], the query, from 0 to n - 1, of each positive that the training set has in addition
    positives: Tensor  # int64 [t], the keys of these positives

    def on(self, device: torch.device) -> "BatchKeys":
        """Return the keys on a device."""
        return BatchKeys(**{name: keys.to(device, non_blocking=True) for name, keys in field_values(self).items()})


def false_negatives(keys: BatchKeys, extra: Tensor | None, shares: process_group.Shares) -> Tensor:
    """Return which documents are positives of a query other than its own; a collective operation of all workers.

    The positives of a query are those of all rows of the global batch with the same query, and ``keys.positives``. The
    columns of bool [n, N * c + m] are the documents of all N queries, then the further documents.
    """
    queries, documents = keys.queries, keys.documents
    if len(shares.queries) > 1:
        queries = process_group.all_rows(queries, shares.queries)
        documents = process_group.all_rows(documents, shares.documents)
    columns = documents if extra is None else torch.cat([documents, extra])
    n, width, c = len(keys.queries), len(columns), shares.documents_of_a_query
    if not n:
        return columns.new_empty(0, width, dtype=torch.bool)
    # Equal documents have one number, the place of the first of them in sorted order; no shape depends on the keys.
    ordered = columns.sort().values
    number = torch.searchsorted(ordered, columns)
    hits = torch.zeros(n, width + 1, dtype=torch.int32, device=columns.device)
    hits.index_add_(1, number[: len(documents) : c], (keys.queries[:, None] == queries).to(torch.int32))
    found = torch.searchsorted(ordered, keys.positives).clamp_max(width - 1)
    found = torch.where(ordered[found] == keys.positives, found, width)
    hits[keys.owners, found] = 1
    excluded = hits.index_select(1, number) > 0
    rows = torch.arange(n, device=columns.device)
    excluded[rows, (shares.queries_before + rows) * c] = False
    return excluded


KnownPositives = Callable[
    [np.typing.NDArray[np.int64]], tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]
]
"""Keys of n queries -> the queries, int64 [t] from 0 to n - 1, and the keys of their further positives, int64 [t]."""
_MULTIPLE = 8  # suits tensor cores, and leaves fewer shapes to compile
_NEGATIVES = 3  # purpose of random numbers
_MISSING = -1  # place without a document


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Padded texts."""

    input_ids: Tensor  # int64 [B, L]
    attention_mask: Tensor  # int64 [B, L], 0 at padding

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return token ids and attention mask on a device."""
        return self.input_ids.to(device, non_blocking=True), self.attention_mask.to(device, non_blocking=True)

    def split(self, size: int) -> "list[TokenBatch]":
        """Split into chunks of ``size`` texts, each as wide as its longest text."""
        chunks = zip(torch.split(self.input_ids, size), torch.split(self.attention_mask, size), strict=True)
        widths = ((ids, mask, max(1, int(mask.sum(dim=1).max()))) for ids, mask in chunks)
        return [TokenBatch(ids[:, :width], mask[:, :width]) for ids, mask, width in widths]


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Batch of one worker for one part of a step."""

    queries: TokenBatch  # n texts
    # n * c texts; those of query i are i*c .. i*c+c-1, its positive first. Where hard negatives are missing, only the
    # texts that ``present`` marks, in the same order
    documents: TokenBatch
    scores: Tensor | None  # float32 [n, c], teacher's scores; None if the training set has none
    present: Tensor | None = None  # bool [n, c], False at places of missing hard negatives; None: nothing is missing
    keys: BatchKeys | None = None  # keys of the texts, to exclude false negatives; None: nothing is excluded


def make_batch(
    examples: Sequence[Example],
    rows: np.typing.NDArray[np.int64],
    *,
    negatives: int,
    seed: int,
    step: int,
    pad_id: int,
    known_positives: KnownPositives | None = None,
) -> TrainBatch:
    """Sample negatives and pad; the sample of a row depends only on seed, step and row number."""
    if len(examples) != len(rows):
        raise ValueError(f"{len(examples)} examples for {len(rows)} rows")
    drawn = _drawn_documents([len(example.documents) for example in examples], rows, negatives, seed, step)
    documents = [
        example.documents[place]
        for example, places in zip(examples, drawn.tolist(), strict=True)
        for place in places
        if place != _MISSING
    ]
    scores = [
        np.where(places == _MISSING, np.float32(0), example.scores[places])
        for example, places in zip(examples, drawn, strict=True)
        if example.scores is not None
    ]
    present = drawn != _MISSING
    queries = [example.query for example in examples]
    return TrainBatch(
        queries=pad(queries, pad_id),
        documents=pad(documents, pad_id),
        scores=torch.from_numpy(np.stack(scores)) if scores else None,
        present=None if present.all() else torch.from_numpy(present),
        keys=None if known_positives is None else _keys(queries, documents, present, known_positives),
    )


def spread(documents: Tensor, present: Tensor | None) -> Tensor:
    """Put zero vectors at the places of missing hard negatives: [n * c, V]."""
    if present is None:
        return documents
    places = present.flatten().nonzero().squeeze(1).to(documents.device)
    return documents.new_zeros(present.numel(), documents.shape[1]).index_copy(0, places, documents)


def pad(texts: Sequence[np.typing.NDArray[np.int32]], pad_id: int) -> TokenBatch:
    """Pad token lists, one per text, to a common width that is a multiple of 8."""
    lengths = np.array([len(text) for text in texts], np.int64)
    present = np.arange(-(-int(lengths.max(initial=1)) // _MULTIPLE) * _MULTIPLE) < lengths[:, None]  # [B, L]
    ids = np.full(present.shape, pad_id, np.int64)
    ids[present] = np.concatenate([*texts, np.empty(0, np.int32)])
    return TokenBatch(torch.from_numpy(ids), torch.from_numpy(present.astype(np.int64)))


def _keys(
    queries: Sequence[np.typing.NDArray[np.int32]],
    documents: Sequence[np.typing.NDArray[np.int32]],
    present: np.typing.NDArray[np.bool_],
    known_positives: KnownPositives,
) -> BatchKeys:
    of_queries, of_documents = text_keys(queries), np.zeros(present.size, np.int64)  # a missing document has key 0
    of_documents[present.flatten()] = text_keys(documents)
    return BatchKeys(*map(torch.from_numpy, (of_queries, of_documents, *known_positives(of_queries))))


def _drawn_documents(
    counts: list[int], rows: np.typing.NDArray[np.int64], negatives: int, seed: int, step: int
) -> np.typing.NDArray[np.int64]:
    """Return positions in the documents of a row, [n, 1 + negatives]: 0, the sample, then ``_MISSING``."""
    drawn = np.zeros((len(rows), 1 + negatives), np.int64)
    if not negatives or not len(rows):
        return drawn
    available = np.array(counts, np.int64) - 1  # [n] negatives of each row
    starts = np.cumsum(available) - available
    owners = np.repeat(np.arange(len(rows)), available)
    places = np.arange(int(available.sum())) - starts[owners]
    # Permute the negatives of each row and take the first ones.
    order = np.lexsort((twins.draw(seed, _NEGATIVES, step, rows[owners], places), owners))
    sampled = np.arange(negatives) < available[:, None]  # [n, negatives]
    picks = (starts[:, None] + np.arange(negatives))[sampled]
    drawn[:, 1:] = _MISSING
    drawn[:, 1:][sampled] = 1 + places[order][picks]
    return drawn
