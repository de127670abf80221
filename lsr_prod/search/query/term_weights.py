"""Queries that no model reads: their terms weighed by inverse document frequencies of the version (``formats.idf``)."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.digest import verify_files
from lsr_prod.formats.idf import TermCounts
from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.shard import TEXT_TERMS_FILE
from lsr_prod.search.query.sparse_query import SparseQuery, Vocabulary

__all__ = ["TermWeights", "read_weights"]


class TermWeights:
    """The weight of every output term. Safe to share between threads.

    Attributes:
        counts: that the weights were made of.
    """

    def __init__(self, counts: TermCounts, names: Sequence[str]) -> None:
        """Weigh all terms once.

        Args:
            counts: of the documents of a version.
            names: the V output terms.
        """
        self.counts = counts
        self._names = names
        self._weights = counts.weights()
        self._unseen = float(np.float32(counts.unseen))
        # The order of a query's terms, heaviest first and ties by rising id: one number for each term.
        ranks = np.empty(len(names), np.int64)
        ranks[np.argsort(-self._weights, kind="stable")] = np.arange(len(names))
        self._ranks: list[int] = ranks.tolist()

    def weigh(self, ids: Iterable[int], unknown: Sequence[str] = ()) -> SparseQuery:
        """The vector of a query.

        Args:
            ids: of its output terms, each once.
            unknown: words that are no output terms, each once. They match nothing, and count in |q| with the weight of
                a term that no document has.
        """
        found = np.array(sorted(ids, key=self._ranks.__getitem__), np.int32)
        terms = tuple([self._names[number] for number in found.tolist()])
        weights = self._weights[found]
        if not unknown:
            return SparseQuery(found, weights, terms)
        # No term is heavier than one that no document has, and -1 comes before every id.
        absent = len(unknown)
        return SparseQuery(
            np.concatenate([np.full(absent, -1, np.int32), found]),
            np.concatenate([np.full(absent, self._unseen, np.float32), weights]),
            (*sorted(unknown), *terms),
        )


def read_weights(index: Path, shards: Sequence[ShardManifest], vocabulary: Vocabulary, *, verify: bool) -> TermWeights:
    """The weights of a version: the counts of its shards, added up.

    Documents that are deleted or replaced count until their shard is merged, as they do for BM25; ``index.max_delta``
    bounds their share.

    Args:
        index: the index folder.
        shards: of the version.
        vocabulary: the V output terms.
        verify: hold the files against their sha256.

    Raises:
        ArtifactError: a file is missing.
        DigestMismatchError: a file is damaged.
    """
    size = len(vocabulary.names)
    counts = TermCounts.none(size)
    for shard in shards:
        folder = index / "shards" / shard.sha
        files = [file for file in shard.files if file.path == TEXT_TERMS_FILE]
        if not files:
            raise ArtifactError(
                f"{folder} has no {TEXT_TERMS_FILE}, which weighs queries without a model; build the index again"
            )
        if verify:
            verify_files(folder, files)
        path = folder / TEXT_TERMS_FILE
        counts += TermCounts.from_bytes(path.read_bytes(), size, str(path))
    return TermWeights(counts, vocabulary.names)
