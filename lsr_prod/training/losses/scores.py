"""Scores of queries with documents, computed once and shared by all losses."""

from collections.abc import Sequence
from functools import cached_property

import torch

from lsr_prod.config.objective import LossSettings
from lsr_prod.training import block_dot, kept_terms, process_group


class Scores:
    """Scores of queries with documents; dot products and norms are computed on first use, then shared by all losses."""

    def __init__(
        self,
        losses: Sequence[LossSettings],
        queries: kept_terms.Vectors,
        documents: kept_terms.Vectors,
        extra_documents: kept_terms.Vectors | None,
        shares: process_group.Shares | None,
        present: torch.Tensor | None = None,
        excluded: torch.Tensor | None = None,
    ) -> None:
        n = len(queries)
        shares = shares or process_group.Shares([n], [len(documents)])
        self.c = shares.documents_of_a_query  # the positive and its hard negatives
        self._queries, self._documents, self._extra_documents = queries, documents, extra_documents
        self._excluded, self._all_documents = excluded, sum(shares.documents)
        in_batch = any(loss.loss == "info_nce" and loss.in_batch for loss in losses)
        # Without info_nce only positives are scored with all queries.
        self._pool_step = 1 if in_batch else self.c
        self._pool_counts = shares.documents if in_batch else shares.queries
        self._present = present
        # int64 [n], the position of each query's positive among all positives of the batch
        self.own = shares.queries_before + torch.arange(n, device=kept_terms.weights_of(queries).device)

    def all(self, *, cosine: bool) -> torch.Tensor:
        """Return scores with the documents of all queries, then the extra documents, [n, N * c + m].

        The score of an excluded or missing document is -inf.
        """
        scores = self._pool(cosine)
        if self._extra_documents is not None and len(self._extra_documents):
            scores = torch.cat([scores, self._extra(cosine)], dim=1)
        missing = self._missing()
        masked = missing if self._excluded is None else self._excluded if missing is None else self._excluded | missing
        return scores if masked is None else scores.masked_fill(masked, -torch.inf)

    def positives(self, *, cosine: bool) -> torch.Tensor:
        """Return scores with the positives of all queries, [n, N]; the score of an excluded document is -inf."""
        scores = self._pool(cosine)[:, :: self.c // self._pool_step]
        if self._excluded is None:
            return scores
        return scores.masked_fill(self._excluded[:, : self._all_documents : self.c], -torch.inf)

    def candidates(self, *, cosine: bool) -> torch.Tensor:
        """Return scores with each query's own documents, [n, c]; the score of an excluded document is -inf."""
        scores = self.pairs(cosine=cosine)
        if self._excluded is None:
            return scores
        columns = self.own[:, None] * self.c + torch.arange(scores.shape[1], device=scores.device)
        return scores.masked_fill(self._excluded.gather(1, columns), -torch.inf)

    def pairs(self, *, cosine: bool) -> torch.Tensor:
        """Return scores with each query's own documents, [n, c]."""
        dots = self._pair_dots
        if not cosine:
            return dots
        return block_dot.cosine(dots, self._query_norms, self._document_norms.view(dots.shape))

    def excluded_pairs(self) -> torch.Tensor | None:
        """Return the places of ``pairs`` that have no document, bool [n, c]; None: every place has one."""
        return None if self._present is None else ~self._present

    def _missing(self) -> torch.Tensor | None:
        """Return the columns of ``all`` without a document, bool [1, N * c + m]; None: there are none."""
        if self._present is None:
            return None
        pool = self._present.flatten()
        if len(self._pool_counts) > 1:
            pool = process_group.all_rows(pool, self._pool_counts)
        extra = 0 if self._extra_documents is None else len(self._extra_documents)
        return ~torch.cat([pool, pool.new_ones(extra)])[None]

    def _pool(self, cosine: bool) -> torch.Tensor:
        if not cosine:
            return self._pool_dots
        pool_norms = self._document_norms[:: self._pool_step]
        if len(self._pool_counts) > 1:
            pool_norms = process_group.all_rows(pool_norms, self._pool_counts)
        return block_dot.cosine(self._pool_dots, self._query_norms, pool_norms)

    def _extra(self, cosine: bool) -> torch.Tensor:
        assert self._extra_documents is not None
        dots = block_dot.dot(self._queries, self._extra_documents)
        if not cosine:
            return dots
        return block_dot.cosine(dots, self._query_norms, block_dot.norms(self._extra_documents))

    @cached_property
    def _pool_dots(self) -> torch.Tensor:
        pool = self._documents if self._pool_step == 1 else self._documents[:: self._pool_step]
        if len(self._pool_counts) > 1:
            pool = kept_terms.all_vectors(pool, self._pool_counts)
        return block_dot.dot(self._queries, pool)

    @cached_property
    def _pair_dots(self) -> torch.Tensor:
        return block_dot.pair_dot(self._queries, self._documents)

    @cached_property
    def _query_norms(self) -> torch.Tensor:
        return block_dot.norms(self._queries)

    @cached_property
    def _document_norms(self) -> torch.Tensor:
        return block_dot.norms(self._documents)
