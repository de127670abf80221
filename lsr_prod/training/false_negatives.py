"""False negatives of a batch: documents that are positives of a query, in the place of its negatives.

A document is a positive of a query if a row of the training set has both, or if it equals such a document. Among the
documents of other rows, of all workers and of the momentum queue, these documents are not negatives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.training.parallel import collective


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """Keys of the texts of one worker's batch; equal texts have equal keys."""

    queries: Tensor  # int64 [n]
    documents: Tensor  # int64 [n * c]; those of query i are i * c to i * c + c - 1, its positive first; 0: missing
    owners: Tensor  # int64 [t], the query, from 0 to n - 1, of each positive that the training set has in addition
    positives: Tensor  # int64 [t], the keys of these positives

    def on(self, device: torch.device) -> "BatchKeys":
        """Return the keys on a device."""
        return BatchKeys(
            self.queries.to(device, non_blocking=True),
            self.documents.to(device, non_blocking=True),
            self.owners.to(device, non_blocking=True),
            self.positives.to(device, non_blocking=True),
        )


def false_negatives(keys: BatchKeys, extra: Tensor | None, shares: collective.Shares) -> Tensor:
    """Return which documents are positives of a query other than its own; a collective operation of all workers.

    The positives of a query are those of all rows of the global batch with the same query, and ``keys.positives``.

    Returns:
        bool [n, N * c + m], for the documents of all N queries, then the further documents. The column of a query's
        own positive is False.
    """
    queries, documents = keys.queries, keys.documents
    if len(shares.queries) > 1:
        queries = collective.all_rows(queries, shares.queries)
        documents = collective.all_rows(documents, shares.documents)
    columns = documents if extra is None else torch.cat([documents, extra])
    n, width, c = len(keys.queries), len(columns), shares.documents_of_a_query
    if not n:
        return columns.new_empty(0, width, dtype=torch.bool)
    # Equal documents have one number, the place of the first of them in sorted order; no shape depends on the keys.
    ordered = columns.sort().values
    number = torch.searchsorted(ordered, columns)
    hits = torch.zeros(n, width + 1, dtype=torch.int32, device=columns.device)
    same_query = keys.queries[:, None] == queries
    hits.index_add_(1, number[: len(documents) : c], same_query.to(torch.int32))
    found = torch.searchsorted(ordered, keys.positives).clamp_max(width - 1)
    found = torch.where(ordered[found] == keys.positives, found, width)
    hits[keys.owners, found] = 1
    excluded = hits.index_select(1, number) > 0
    rows = torch.arange(n, device=columns.device)
    excluded[rows, (shares.queries_before + rows) * c] = False
    return excluded
