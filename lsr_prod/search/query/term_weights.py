"""Term weights of inference-free queries: inverse document frequencies of an index version (``formats.idf``)."""

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
    """Weight of every output term. Safe to share between threads.

    Attributes:
        counts: the counts from which the weights are computed.
    """

    def __init__(self, counts: TermCounts, names: Sequence[str]) -> None:
        """Compute the weights of all terms.

        Args:
            counts: counts of a version's documents.
            names: the V output terms.
        """
        self.counts = counts
        self._names = names
        self._weights = counts.weights()
        self._unseen = float(np.float32(counts.unseen))
        # Rank of every term in the order of a query: heaviest first, ties by rising id.
        ranks = np.empty(len(names), np.int64)
        ranks[np.argsort(-self._weights, kind="stable")] = np.arange(len(names))
        self._ranks: list[int] = ranks.tolist()

    def weigh(self, ids: Iterable[int], unknown: Sequence[str] = ()) -> SparseQuery:
        """Return the vector of a query.

        Args:
            ids: ids of its distinct output terms.
            unknown: distinct words that are not output terms. They match nothing, and count in |q| with the weight of a
                term that no document has.
        """
        found = np.array(sorted(ids, key=self._ranks.__getitem__), np.int32)
        terms = tuple([self._names[number] for number in found.tolist()])
        weights = self._weights[found]
        if not unknown:
            return SparseQuery(found, weights, terms)
        # No term is heavier than one that no document has, and -1 is below every id.
        absent = len(unknown)
        return SparseQuery(
            np.concatenate([np.full(absent, -1, np.int32), found]),
            np.concatenate([np.full(absent, self._unseen, np.float32), weights]),
            (*sorted(unknown), *terms),
        )


def read_weights(index: Path, shards: Sequence[ShardManifest], vocabulary: Vocabulary, *, verify: bool) -> TermWeights:
    """Compute the weights of a version from the sum of the counts of its shards.

    Deleted and replaced documents count until their shard is merged, as for BM25; ``index.max_delta`` limits their
    share.

    Args:
        index: the index folder.
        shards: all shards of the version.
        vocabulary: the V output terms.
        verify: compare the files with their sha256.

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
                f"{folder} has no {TEXT_TERMS_FILE}, which inference-free queries need; build the index again"
            )
        if verify:
            verify_files(folder, files)
        path = folder / TEXT_TERMS_FILE
        counts += TermCounts.from_bytes(path.read_bytes(), size, str(path))
    return TermWeights(counts, vocabulary.names)
