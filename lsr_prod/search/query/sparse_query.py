"""Query vectors: terms in a fixed order with weights, and the number of terms that a document must share.

Term weights of inference-free queries.

They are the inverse document frequencies of an index version, or the learned weights of its bundle
(``formats.term_weights``).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from numbers import Integral, Rational, Real
from pathlib import Path

import numpy as np

from lsr_prod.errors import ArtifactError, QueryError
from lsr_prod.search.kernels import native
from lsr_prod.search.query.filters import shorten
from lsr_prod.storage.formats import digests, shard_format, sparse
from lsr_prod.storage.formats.index_format import ShardManifest
from lsr_prod.storage.formats.term_weights import QUERY_WEIGHTS_FILE, TermCounts, weights_from_bytes

MAX_K = 10_000
MAX_TERMS = (1 << 16) - 1  # overlaps are counted in 16 bits
_LARGEST = float(np.finfo(np.float32).max)
MAX_SCORE = _LARGEST / 2  # keeps rounded float32 sums, and the bounds above them, finite


class Vocabulary:
    """The output vocabulary of an encoder."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of every term."""
        return {term: i for i, term in enumerate(self.names)}


@dataclass(frozen=True, slots=True)
class SparseQuery:
    """Vector of a query, heaviest term first, ties by rising id. Scores are summed in this order."""

    # int32 [q], output-vocabulary ids; -1 for a term outside the vocabulary, which no document has
    ids: np.typing.NDArray[np.int32]
    weights: np.typing.NDArray[np.float32]  # float32 [q], finite and above zero
    terms: tuple[str, ...]  # the q terms as strings

    @classmethod
    def from_vector(cls, vector: Mapping[str | int, float], vocabulary: "Vocabulary") -> "SparseQuery":
        """Validate and sort the vector of a caller."""
        if not isinstance(vector, Mapping):
            raise QueryError(f"the query {shorten(vector)} is not a vector; give a mapping from terms to weights")
        plain = native.read_vector(vector, vocabulary.ids, vocabulary.names)
        if plain is not None:
            return cls(np.frombuffer(plain[0], np.int32), np.frombuffer(plain[1], np.float32), plain[2])
        weights: dict[str, float] = {}
        ids: list[int] = []
        for term, weight in vector.items():
            name, term_id = _resolve(term, vocabulary)
            if name in weights:
                raise QueryError(f"term {shorten(name)} is given twice, as a string and as an id; give it once")
            if not isinstance(weight, Real) or not 0 <= weight <= _LARGEST:  # NaN too
                raise QueryError(
                    f"the weight {shorten(weight)} of term {shorten(name)} is not possible; give a finite number, "
                    "0 or more"
                )
            weights[name] = float(weight)
            ids.append(term_id)
        single = np.array(list(weights.values()), np.float32).tolist()  # weights that are equal in float32 are ties
        kept = sorted([(-weight, i, name) for weight, i, name in zip(single, ids, weights, strict=True) if weight > 0])
        if len(kept) > MAX_TERMS:
            raise QueryError(f"the query has {len(kept)} terms; give at most {MAX_TERMS}")
        return cls(
            np.array([i for _, i, _ in kept], dtype=np.int32),
            np.array([-weight for weight, _, _ in kept], dtype=np.float32),
            tuple(name for _, _, name in kept),
        )

    @classmethod
    def empty(cls) -> "SparseQuery":
        """Return a query without terms, which matches nothing."""
        return cls(np.empty(0, np.int32), np.empty(0, np.float32), ())

    def top(self, qk: int | None, mass: float = 1.0) -> "SparseQuery":
        """Return the ``qk`` heaviest terms, None: all; and of these the fewest that hold a share of their weight."""
        if check_qk(qk) is None and mass == 1:
            return self
        if mass < 1:
            qk = sparse.terms_of_mass(self.weights[:qk], mass)
        return SparseQuery(self.ids[:qk], self.weights[:qk], self.terms[:qk])

    def scaled(self, impact_step: float) -> np.typing.NDArray[np.float32]:
        """Return float32 [q]: score per impact unit of each term."""
        if float(self.weights.sum(dtype=np.float64)) * impact_step * 255 > MAX_SCORE:
            raise QueryError(
                "the query's weights are so large that a score would not fit into float32; scale them down"
            )
        return self.weights * np.float32(impact_step)


def required_terms(size: int, *, overlap_threshold: float, min_terms: int) -> int:
    """Return max(1, min_terms, ceil(overlap_threshold * size)), the number of terms that a document must share.

    The threshold counts as the decimal number that it prints as, without float rounding: ceil(0.28 * 25) is 7, not 8.
    """
    # Types first, here and below: a check against an abstract class takes ten times as long.
    plain = type(min_terms) is int or (isinstance(min_terms, Integral) and not isinstance(min_terms, bool))
    if not plain or min_terms < 1:
        raise QueryError(f"min_terms={shorten(min_terms)} is not possible; give an integer, 1 or more")
    plain = type(overlap_threshold) is float or isinstance(overlap_threshold, Real)
    if not plain or isinstance(overlap_threshold, bool):
        raise QueryError(
            f"overlap_threshold={shorten(overlap_threshold)} is not a number; give a share of the terms, 0..1"
        )
    if not 0 <= overlap_threshold <= 1:  # NaN too
        raise QueryError(
            f"overlap_threshold={shorten(overlap_threshold)} is not possible; give a share of the terms, 0..1"
        )
    if not overlap_threshold:
        return int(min_terms)
    exact = overlap_threshold if isinstance(overlap_threshold, Rational) else str(overlap_threshold)
    return max(1, int(min_terms), _share(exact, size))


@lru_cache(4096)
def _share(threshold: Rational | str, size: int) -> int:
    return math.ceil(Fraction(threshold) * size)


def check_k(k: int, name: str = "k") -> int:
    """Return ``k`` as a plain integer."""
    if type(k) is int and 0 <= k <= MAX_K:
        return k
    if isinstance(k, bool) or not isinstance(k, Integral) or not 0 <= k <= MAX_K:
        raise QueryError(f"{name}={shorten(k)} is not possible; give an integer from 0 to {MAX_K}")
    return int(k)


def check_qk(qk: int | None) -> int | None:
    """Return ``qk`` as a plain integer or None."""
    if qk is not None and (isinstance(qk, bool) or not isinstance(qk, Integral) or qk < 1):
        raise QueryError(f"qk={shorten(qk)} is not possible; give an integer above 0, or None for all terms")
    return None if qk is None else int(qk)


def check_ids(doc_ids: Sequence[str]) -> None:
    """Validate a list of document ids."""
    if not isinstance(doc_ids, (list, tuple)) or not all(isinstance(each, str) for each in doc_ids):
        raise QueryError(f"doc_ids={shorten(doc_ids)} is not a list of strings; give a list of ids")
    if len(doc_ids) > MAX_K:
        raise QueryError(f"{len(doc_ids)} ids are too many; give at most {MAX_K} at once")


def check_term_ids(terms: Iterable[int], size: int) -> list[int]:
    """Return distinct ids of terms, sorted."""
    if not isinstance(terms, Iterable) or isinstance(terms, (str, bytes)):
        raise QueryError(f"terms={shorten(terms)} is not a list of ids; give a list")
    found: set[int] = set()
    for term in terms:
        if isinstance(term, bool) or not isinstance(term, Integral) or not 0 <= term < size:
            raise QueryError(f"term {shorten(term)} is not possible; give an id from 0 to {size - 1}")
        found.add(int(term))
    return sorted(found)


def check_text(text: str) -> None:
    """Validate the text of a query."""
    if not isinstance(text, str):
        raise QueryError(f"the query {shorten(text)} is not a string; give the text as a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError("the query is not valid Unicode; decode it with errors='replace'") from error


def check_texts(texts: object) -> None:
    """Validate the type of a list of texts."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise QueryError(f"texts={shorten(texts)} is not a list of strings; give a list")


def _resolve(term: str | int, vocabulary: Vocabulary) -> tuple[str, int]:
    if isinstance(term, str):
        return term, vocabulary.ids.get(term, -1)
    last = len(vocabulary.names) - 1
    if isinstance(term, bool) or not isinstance(term, Integral) or not 0 <= term <= last:
        raise QueryError(f"term {shorten(term)} is not possible; give a string, or an id from 0 to {last}")
    return vocabulary.names[term], int(term)


class TermWeights:
    """Weight of every output term. Safe to share between threads."""

    def __init__(self, weights: np.typing.NDArray[np.float32], names: Sequence[str], *, unknown: float) -> None:
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
    def learned(cls, weights: np.typing.NDArray[np.float32], names: Sequence[str]) -> "TermWeights":
        """Return learned weights, float32 [V]; a word that is not an output term has the largest of them."""
        return cls(weights, names, unknown=float(weights.max()))

    def weigh(self, ids: Iterable[int], unknown: Sequence[str] = ()) -> SparseQuery:
        """Return the vector of a query."""
        found = np.array(sorted(ids, key=self._ranks.__getitem__), np.int32)
        found = found[self._weights[found] > 0]
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
        problem = "which inference-free queries need; build the index again"
        data = _read_listed(folder, shard.files, shard_format.TEXT_TERMS_FILE, problem, verify)
        counts += TermCounts.from_bytes(data, size, str(folder / shard_format.TEXT_TERMS_FILE))
    return TermWeights.of_counts(counts, vocabulary.names)


def read_learned_weights(
    bundle: Path, files: Iterable[digests.FileDigest], vocabulary: Vocabulary, *, verify: bool
) -> TermWeights:
    """Read the learned weights of a bundle."""
    data = _read_listed(bundle, files, QUERY_WEIGHTS_FILE, "which its queries need; export the model again", verify)
    weights = weights_from_bytes(data, len(vocabulary.names), str(bundle / QUERY_WEIGHTS_FILE))
    return TermWeights.learned(weights, vocabulary.names)


def _read_listed(folder: Path, files: Iterable[digests.FileDigest], name: str, problem: str, verify: bool) -> bytes:
    """Return the content of a file that a manifest has to list."""
    found = [file for file in files if file.path == name]
    if not found:
        raise ArtifactError(f"{folder} has no {name}, {problem}")
    return digests.read_file(folder, found[0]) if verify else (folder / name).read_bytes()
