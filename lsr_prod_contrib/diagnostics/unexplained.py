"""Unexplained terms: expansion terms that the texts give no reason for.

Learned sparse models give weight to terms that have no visible relation to the text ("wacky weights", Mackenzie et al.,
arXiv 2110.11540): stop words, punctuation, and terms that serve as latent dimensions. There is no agreed definition.
The one here (ours): the expansion of text d by term t is explained if some term s of d is associated with t in the
sample, that is, at least ``min_together`` texts contain both, and their pointwise mutual information (Church and Hanks,
1990) is ``min_pmi`` bits or more:

    PMI(s, t) = log2(n * n(s, t) / (n(s) * n(t)))

with n texts, of which n(s) contain s. Text d does not contain t, so the evidence always comes from other texts. A term
is judged if ``min_texts`` texts contain it and a share ``min_share`` of the texts are expanded by it, and it is
unexplained if more than half of its expansions are.

Limits. Co-occurrence inside documents misses synonyms that authors do not use together, so a term can be unexplained
and still be a good expansion; a term in more than 2 ** -min_pmi of the texts cannot be associated with anything, so the
expansions by a stop word are never explained; and a sample of a few hundred texts has too little evidence for rare
terms, which are therefore not judged. The list says where to look, and is no measure of quality.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod_contrib.diagnostics.vectors import (
    TextTerms,
    activated_terms,
    count_expansion,
    find_expanded,
    most_expanded,
)

_TOP = 100  # terms of a list


@dataclass(frozen=True, slots=True)
class UnexplainedRule:
    """Limits of the definition above."""

    min_pmi: float = 1.0  # bits of pointwise mutual information from which two terms are associated
    min_together: int = 2  # texts that must contain both
    min_texts: int = 5  # texts that must contain a term, or it is not judged
    min_share: float = 0.01  # share of the texts that must be expanded by a term, or it is not judged


class UnexplainedTerm(NamedTuple):
    """A term most of whose expansions are unexplained."""

    term: str  # the output term
    unexplained: int  # texts that it expands without explanation
    expanded: int  # texts that it expands
    contained: int  # texts that contain it
    mean_weight: float  # its mean weight where it is unexplained


@dataclass(frozen=True, slots=True, eq=False)
class Unexplained:
    """Counts per output term over n texts."""

    rule: UnexplainedRule  # the limits
    judged: npt.NDArray[np.bool_]  # bool [V], whether the term was judged
    expanded: npt.NDArray[np.int64]  # int64 [V], texts that the term expands
    contained: npt.NDArray[np.int64]  # int64 [V], texts that contain it
    # int64 [V], texts that it expands without explanation; 0 for terms that were not judged
    unexplained: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]  # float64 [V], sum of its weights in those texts
    weight_share: float  # share of the sum of all weights that unexplained expansions have
    too_rare: int  # terms that expand enough texts but occur in too few to be judged


def find_unexplained(
    vectors: SparseBatch, contained: TextTerms, vocabulary_size: int, rule: UnexplainedRule | None = None
) -> Unexplained:
    """Judge the expansions of n texts; time grows with the texts times the terms per text squared."""
    rule = rule or UnexplainedRule()
    new = np.flatnonzero(find_expanded(vectors, contained, vocabulary_size))
    expanded = np.bincount(vectors.terms[new], minlength=vocabulary_size).astype(np.int64)
    frequencies = contained.frequencies(vocabulary_size)
    frequent = expanded >= max(1.0, rule.min_share * len(contained))
    judged = frequent & (frequencies >= rule.min_texts)
    unexplained = np.zeros(vocabulary_size, np.int64)
    weight = np.zeros(vocabulary_size)
    # Pairs (text, term) by term: those of the expansions, and those of the texts.
    new = new[np.argsort(vectors.terms[new], kind="stable")]
    text_of = np.repeat(np.arange(len(vectors)), np.diff(vectors.offsets))
    new_ends = np.cumsum(expanded)
    holders = np.repeat(np.arange(len(contained)), np.diff(contained.offsets))
    holders = holders[np.argsort(contained.terms, kind="stable")]
    holder_ends = np.cumsum(frequencies)
    for term in np.flatnonzero(judged).tolist():
        of_term = holders[holder_ends[term] - frequencies[term] : holder_ends[term]]
        associated = _associated(contained, of_term, frequencies, rule)
        pairs = new[new_ends[term] - expanded[term] : new_ends[term]]
        left = pairs[~_has_any(contained, text_of[pairs], associated)]
        unexplained[term] = len(left)
        weight[term] = vectors.weights[left].sum(dtype=np.float64)
    total = float(vectors.weights.sum(dtype=np.float64))
    return Unexplained(
        rule, judged, expanded, frequencies, unexplained, weight,
        weight_share=float(weight.sum()) / total if total else 0.0,
        too_rare=int((frequent & ~judged).sum()),
    )  # fmt: skip


def most_unexplained(found: Unexplained, vocabulary: Sequence[str], top: int) -> list[UnexplainedTerm]:
    """Return the unexplained terms, those of most unexplained expansions first, ties by ascending id."""
    order = np.argsort(-found.unexplained, kind="stable")
    order = order[2 * found.unexplained[order] > found.expanded[order]][:top]
    return [
        UnexplainedTerm(
            vocabulary[term],
            int(found.unexplained[term]),
            int(found.expanded[term]),
            int(found.contained[term]),
            float(found.weight[term] / found.unexplained[term]),
        )
        for term in order.tolist()
    ]


def _associated(
    contained: TextTerms, texts: npt.NDArray[np.int64], frequencies: npt.NDArray[np.int64], rule: UnexplainedRule
) -> npt.NDArray[np.bool_]:
    """Return bool [V]: the terms that are associated with a term, given all texts that contain it."""
    ids, _ = _terms_of(contained, texts)
    together = np.bincount(ids, minlength=len(frequencies))
    chance = frequencies * (len(texts) / len(contained))  # expected without association
    found: npt.NDArray[np.bool_] = (together >= rule.min_together) & (together >= 2.0**rule.min_pmi * chance)
    return found


def _has_any(
    contained: TextTerms, texts: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return bool [texts]: whether each text contains a wanted term."""
    ids, offsets = _terms_of(contained, texts)
    before = np.concatenate([[0], np.cumsum(wanted[ids])])
    found: npt.NDArray[np.bool_] = before[offsets[1:]] > before[offsets[:-1]]
    return found


def _terms_of(
    contained: TextTerms, texts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the terms of some texts, one text after the other, and where each begins; ends with their number."""
    starts, lengths = contained.offsets[texts], np.diff(contained.offsets)[texts]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return contained.terms[places], offsets


def diagnose_vectors(vectors: SparseBatch, contained: TextTerms | None, vocabulary: Sequence[str]) -> dict[str, Any]:
    """Return all statistics of the vectors of some documents, as plain values; lists have up to 100 terms.

    Returns:
        ``activated`` (``ActivatedTerms``); ``expansion``, the terms that documents do not contain, and ``unexplained``,
        those of them without evidence: None if the texts are not known.
    """
    return {
        "activated": asdict(activated_terms(vectors, len(vocabulary))),
        "expansion": None if contained is None else _expansion(vectors, contained, vocabulary),
        "unexplained": None if contained is None else _unexplained(vectors, contained, vocabulary),
    }


def _expansion(vectors: SparseBatch, contained: TextTerms, vocabulary: Sequence[str]) -> dict[str, Any]:
    found = count_expansion(vectors, contained, len(vocabulary))
    return {
        "texts": found.texts,
        "terms": int(np.count_nonzero(found.expanded)),
        "term_share": found.term_share,
        "weight_share": found.weight_share,
        "most": [term._asdict() for term in most_expanded(found, vocabulary, _TOP)],
    }


def _unexplained(vectors: SparseBatch, contained: TextTerms, vocabulary: Sequence[str]) -> dict[str, Any]:
    found = find_unexplained(vectors, contained, len(vocabulary))
    return {
        "rule": asdict(found.rule),
        "judged": int(found.judged.sum()),
        "too_rare": found.too_rare,
        "terms": int((2 * found.unexplained > found.expanded).sum()),
        "weight_share": found.weight_share,
        "most": [term._asdict() for term in most_unexplained(found, vocabulary, _TOP)],
    }
