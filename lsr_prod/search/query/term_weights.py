"""Term weights of inference-free queries.

They are the inverse document frequencies of an index version (``formats.idf``), or the learned weights of its bundle
(``formats.query_weights``).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.digest import FileDigest, read_file
from lsr_prod.formats.idf import TermCounts
from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.query_weights import QUERY_WEIGHTS_FILE, weights_from_bytes
from lsr_prod.formats.shard import TEXT_TERMS_FILE
from lsr_prod.search.query.sparse_query import SparseQuery, Vocabulary


class TermWeights:
    """Weight of every output term. Safe to share between threads."""

    def __init__(self, weights: npt.NDArray[np.float32], names: Sequence[str], *, unknown: float) -> None:
        self._names = names
        self._weights = weights
        self._unknown = float(np.float32(unknown))
        # Rank of every term in the order of a query: heaviest first, ties by rising id.
        ranks = np.empty(len(names), np.int64)
        ranks[np.argsort(-self._weights, kind="stable")] = np.arange(len(names))
        self._ranks: list[int] = ranks.tolist()

    @classmethod
    def of_counts(cls, counts: TermCounts, names: Sequence[str]) -> "TermWeights":
        """Return the inverse document frequencies of a version's documents."""
        return cls(counts.weights(), names, unknown=counts.unseen)

    @classmethod
    def learned(cls, weights: npt.NDArray[np.float32], names: Sequence[str]) -> "TermWeights":
        """Return learned weights, float32 [V]; a word that is not an output term has the largest of them."""
        return cls(weights, names, unknown=float(weights.max()))

    def weigh(self, ids: Iterable[int], unknown: Sequence[str] = ()) -> SparseQuery:
        """Return the vector of a query."""
        found = np.array(sorted(ids, key=self._ranks.__getitem__), np.int32)
        terms = tuple([self._names[number] for number in found.tolist()])
        weights = self._weights[found]
        if not unknown:
            return SparseQuery(found, weights, terms)
        # No term is heavier than an unknown word, and -1 is below every id.
        absent = len(unknown)
        return SparseQuery(
            np.concatenate([np.full(absent, -1, np.int32), found]),
            np.concatenate([np.full(absent, self._unknown, np.float32), weights]),
            (*sorted(unknown), *terms),
        )


def read_weights(index: Path, shards: Sequence[ShardManifest], vocabulary: Vocabulary, *, verify: bool) -> TermWeights:
    """Compute the weights of a version from the sum of the counts of its shards.

    Deleted and replaced documents count until their shard is merged, as for BM25; ``index.max_delta`` limits their
    share.
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
        path = folder / TEXT_TERMS_FILE
        data = read_file(folder, files[0]) if verify else path.read_bytes()
        counts += TermCounts.from_bytes(data, size, str(path))
    return TermWeights.of_counts(counts, vocabulary.names)


def read_learned_weights(
    bundle: Path, files: Iterable[FileDigest], vocabulary: Vocabulary, *, verify: bool
) -> TermWeights:
    """Read the learned weights of a bundle."""
    found = [file for file in files if file.path == QUERY_WEIGHTS_FILE]
    if not found:
        raise ArtifactError(f"{bundle} has no {QUERY_WEIGHTS_FILE}, which its queries need; export the model again")
    path = bundle / QUERY_WEIGHTS_FILE
    data = read_file(bundle, found[0]) if verify else path.read_bytes()
    return TermWeights.learned(weights_from_bytes(data, len(vocabulary.names), str(path)), vocabulary.names)
