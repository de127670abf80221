"""Validation of one vector of another tool: the result is a row over the vocabulary, or a reason.

Output of sentence-transformers' SparseEncoder, torch tensors and decoded terms, is validated alike; torch is never
imported.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.corpus.source_rows import BadRow, control_character
from lsr_prod.errors import ArtifactError, SourceError
from lsr_prod.storage.formats.bundle_format import Bundle, EncoderCard, read_vocabulary
from lsr_prod.storage.formats.sparse import SparseBatch

Problem = tuple[str, str]
"""(reason, a sentence for people)."""

_NUMBERS = {int, float}  # bool is a number in Python but not in JSON


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The output vocabulary of a bundle.

    Attributes:
        terms: term id -> term.
        ids: term -> term id.
        sha256: digest of the vocabulary in the encoder card.
        bundle_digest: digest of the bundle.
    """

    terms: tuple[str, ...]
    ids: Mapping[str, int]
    sha256: str
    bundle_digest: str

    def __len__(self) -> int:
        """Return the number of terms V."""
        return len(self.terms)

    @classmethod
    def load(cls, bundle: Path) -> "Vocabulary":
        """Read the vocabulary of a bundle and verify all files of the bundle.

        Raises:
            ArtifactError: the folder is not a bundle, is damaged, or has a term twice.
        """
        digest = Bundle.load(bundle, verify=True).digest
        terms = tuple(read_vocabulary(bundle))
        ids = {term: i for i, term in enumerate(terms)}
        if len(ids) < len(terms):
            repeated = next(term for i, term in enumerate(terms) if ids[term] != i)
            raise ArtifactError(
                f"the vocabulary of {bundle} has {repeated!r} twice; vectors by term would be ambiguous"
            )
        return cls(terms, ids, EncoderCard.load(bundle).vocabulary_sha256, digest)


@dataclass(frozen=True, slots=True)
class Rules:
    """Requirements on a vector.

    Attributes:
        vocabulary: vocabulary of the terms.
        drop_unknown: drop and count terms outside the vocabulary; False: such a vector is bad.
        largest_impact: weights are impacts, integers from 1 to this; None: any number above zero.
    """

    vocabulary: Vocabulary
    drop_unknown: bool = False
    largest_impact: int | None = None


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A valid vector.

    Attributes:
        doc_id: its id.
        terms: int32 [n], distinct, by decreasing weight, ties by increasing id.
        weights: float32 [n], finite and above zero; terms of weight zero in the input are omitted.
        contents: the text, if the input has it.
        unknown: number of dropped terms outside the vocabulary.
    """

    doc_id: str
    terms: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    contents: str | None = None
    unknown: int = 0


ValidatedVector = VectorRow | BadRow


def id_problem(doc_id: object) -> Problem | None:
    """Return why a value cannot be a document id, or None."""
    if doc_id is None or doc_id == "":
        return "missing_id", "the id is absent or empty"
    if not isinstance(doc_id, str):
        return "wrong_type", f"the id is {type(doc_id).__name__}, not a string"
    if (problem := text_problem("the id", doc_id)) is not None:
        return problem
    control = control_character(doc_id)
    return None if control is None else ("control_characters", f"the id holds {control}")


def text_problem(name: str, text: str) -> Problem | None:
    """Return why a string cannot be stored, or None: JSON escapes can make strings that UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return "invalid_utf8", f"{name}: {error.reason} at character {error.start}"
    return None


def row_of_tokens(doc_id: str, vector: Mapping[str, object], contents: str | None, rules: Rules) -> VectorRow | Problem:
    """Validate a vector whose terms are strings."""
    if not {*map(type, vector.values())} <= _NUMBERS:
        term, weight = next(item for item in vector.items() if type(item[1]) not in _NUMBERS)
        return "bad_weight", f"{term!r} has a weight of type {type(weight).__name__}"
    try:
        weights = np.array(list(vector.values()), dtype=np.float64)
    except OverflowError:
        return "bad_weight", "a weight is an integer beyond every float"
    terms = np.fromiter(map(rules.vocabulary.ids.get, vector, repeat(-1)), np.int32, len(vector))
    unknown = np.flatnonzero(terms < 0)
    if len(unknown) and not rules.drop_unknown:
        first = list(vector)[unknown[0]]
        return "unknown_term", f"{first!r} is not in the vocabulary, and {len(unknown) - 1} terms more"
    return _row(doc_id, terms, weights, contents, rules)


def row_of_ids(
    doc_id: str, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], rules: Rules
) -> VectorRow | Problem:
    """Validate a vector whose terms are ids."""
    outside = (terms < 0) | (terms >= len(rules.vocabulary))
    if outside.any() and not rules.drop_unknown:
        return "unknown_term", f"term {terms[outside][0]} is not below {len(rules.vocabulary)}"
    inside = np.where(outside, -1, terms).astype(np.int32)
    known = inside[inside >= 0]
    if len(np.unique(known)) < len(known):
        return "repeated_term", "the vector has a term twice"
    return _row(doc_id, inside, weights, None, rules)


def _row(
    doc_id: str, terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float64], contents: str | None, rules: Rules
) -> VectorRow | Problem:
    """Validate weights and sort terms; ``terms`` below zero are unknown: omitted, but their weights are validated."""
    with np.errstate(over="ignore"):
        short = weights.astype(np.float32)
    bad = ~(short >= 0) | np.isinf(short)
    if bad.any():
        return "bad_weight", f"{weights[bad][0]} is no weight; give finite numbers of 0 or more"
    if rules.largest_impact is not None:
        odd = (weights != np.rint(weights)) | (weights > rules.largest_impact)
        if odd.any():
            return "bad_weight", f"{weights[odd][0]:g} is no impact; impacts are integers up to {rules.largest_impact}"
    keep = (terms >= 0) & (short > 0)
    kept_terms, kept_weights = terms[keep], short[keep]
    order = np.lexsort((kept_terms, -kept_weights))
    return VectorRow(doc_id, kept_terms[order], kept_weights[order], contents, int((terms < 0).sum()))


def as_batch(rows: Sequence[VectorRow]) -> SparseBatch:
    """Return the vectors of rows, in order."""
    lengths = [0, *(len(row.terms) for row in rows)]
    return SparseBatch(
        np.cumsum(lengths).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *(row.terms for row in rows)]),
        np.concatenate([np.zeros(0, np.float32), *(row.weights for row in rows)]),
    )


def as_rows(ids: Sequence[str], vectors: SparseBatch) -> list[VectorRow]:
    """Return the vectors of a batch with their ids.

    Raises:
        ValueError: the number of ids differs from the number of vectors.
    """
    if len(ids) != len(vectors):
        raise ValueError(f"{len(ids)} ids for {len(vectors)} vectors; give one for each")
    return [VectorRow(doc_id, *vectors.row(i)) for i, doc_id in enumerate(ids)]


def batch_of_tensor(embeddings: Any, vocabulary: Vocabulary) -> SparseBatch:
    """Convert vectors that ``encode_document`` or ``encode_query`` returned.

    Args:
        embeddings: torch tensor [n, V] or [V], sparse COO, sparse CSR or dense, on any device; or a list of
            tensors [V].
        vocabulary: vocabulary of the bundle of the same model.

    Raises:
        SourceError: the number of columns differs from the vocabulary, or a weight is negative, NaN or infinite.
    """
    if isinstance(embeddings, list | tuple):
        return SparseBatch.concatenate([batch_of_tensor(one, vocabulary) for one in embeddings])
    shape = tuple(embeddings.shape)
    if len(shape) not in (1, 2) or shape[-1] != len(vocabulary):
        raise SourceError(
            f"the tensor has shape {shape}, the vocabulary {len(vocabulary)} terms; give [n, V] of its model"
        )
    rows, terms, weights = _entries(embeddings)
    count = shape[0] if len(shape) == 2 else 1
    order = np.argsort(rows, kind="stable")
    bounds = np.searchsorted(rows[order], np.arange(count + 1))
    rules = Rules(vocabulary)
    return as_batch(
        [
            _valid(i, row_of_ids(str(i), terms[part], weights[part], rules))
            for i in range(count)
            for part in [order[bounds[i] : bounds[i + 1]]]
        ]
    )


def batch_of_decoded(decoded: Sequence[Any], vocabulary: Vocabulary) -> SparseBatch:
    """Convert vectors that ``decode`` returned.

    Args:
        decoded: pairs (term, weight) of each vector, or a mapping; wrap the result for one vector in a list.
        vocabulary: vocabulary of the bundle of the same model.

    Raises:
        SourceError: a term is unknown or repeated, or a weight is negative, NaN or infinite.
    """
    rules = Rules(vocabulary)
    return as_batch([_valid(i, row_of_tokens(str(i), _mapping(i, one), None, rules)) for i, one in enumerate(decoded)])


def _mapping(i: int, decoded: Mapping[str, float] | Iterable[tuple[str, float]]) -> dict[str, float]:
    pairs = list(decoded.items() if isinstance(decoded, Mapping) else decoded)
    made = {term: float(weight) for term, weight in pairs}
    if len(made) < len(pairs):
        raise SourceError(f"vector {i} has a term twice; give each once")
    return made


def _valid(i: int, row: VectorRow | Problem) -> VectorRow:
    if isinstance(row, VectorRow):
        return row
    raise SourceError(f"vector {i}: {row[1]}; give what the model of this vocabulary returns")


def _entries(tensor: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return row, column and value of every entry."""
    tensor = tensor.detach()
    layout = str(tensor.layout)
    if layout == "torch.sparse_csr":
        bounds = _numpy(tensor.crow_indices())
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        return rows, _numpy(tensor.col_indices()), _numpy(tensor.values().double())
    if layout == "torch.strided":
        tensor = tensor.to_sparse()
    elif layout != "torch.sparse_coo":
        raise SourceError(f"the tensor has layout {layout}; give sparse COO, sparse CSR or a dense one")
    tensor = tensor.coalesce()
    places = _numpy(tensor.indices())
    rows = places[0] if len(places) == 2 else np.zeros(places.shape[1], np.int64)
    return rows, places[-1], _numpy(tensor.values().double())


def _numpy(tensor: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.cpu().numpy()
    return array
