"""BM25 over the word pieces of a tokenizer: the fair lexical peer of a model whose terms are word pieces."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer

K1, B = 1.2, 0.75  # those of Tantivy, which ranks by words


class WordPieceBm25:
    """BM25 with idf ln(1 + (N - df + .5) / (df + .5)), over all pieces of a text."""

    def __init__(self, tokenizer: Path, documents: Mapping[str, str]) -> None:
        """Count the pieces of the documents.

        Args:
            tokenizer: ``tokenizer.json``.
            documents: id to text.
        """
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._ids = list(documents)
        pieces = [self._pieces(text) for text in documents.values()]
        rows = np.repeat(np.arange(len(pieces)), [len(one) for one in pieces])
        shape = (len(pieces), self._tokenizer.get_vocab_size())
        columns = np.concatenate(pieces)
        counts = csr_matrix((np.ones(len(columns)), (rows, columns)), shape=shape)
        counts.sum_duplicates()
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        frequency = np.bincount(counts.indices, minlength=shape[1])
        idf = np.log1p((len(pieces) - frequency + 0.5) / (frequency + 0.5))
        norm = np.repeat(K1 * (1 - B + B * lengths / lengths.mean()), np.diff(counts.indptr))
        counts.data = idf[counts.indices] * counts.data * (K1 + 1) / (counts.data + norm)
        self._weights = counts.tocsc()

    def answer(self, text: str, k: int = 100) -> list[tuple[str, float]]:
        """The best documents that hold a piece of a text; equal scores in the order of the documents."""
        scores = np.asarray(self._weights[:, self._pieces(text)].sum(axis=1)).ravel()
        best = np.argsort(-scores, kind="stable")[:k]
        return [(self._ids[place], float(scores[place])) for place in best if scores[place] > 0]

    def _pieces(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids
