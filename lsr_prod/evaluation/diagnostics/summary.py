"""All statistics of the vectors of a sample of documents, as plain values for tables, JSON and pages."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lsr_prod.evaluation.diagnostics.expansion import Expansion, TextTerms, count_expansion, most_expanded
from lsr_prod.evaluation.diagnostics.unexplained import (
    Unexplained,
    UnexplainedRule,
    find_unexplained,
    most_unexplained,
)
from lsr_prod.evaluation.diagnostics.vectors import ActivatedTerms, activated_terms
from lsr_prod.formats.sparse import SparseBatch

_TOP = 100  # terms of a list


@dataclass(frozen=True, slots=True, eq=False)
class VectorDiagnosis:
    """Statistics of the vectors of n documents.

    Attributes:
        vocabulary: the V output terms.
        activated: terms per document.
        expansion: terms that documents do not contain; None: their texts are not known.
        unexplained: those of them without evidence; None: the texts are not known.
    """

    vocabulary: Sequence[str]
    activated: ActivatedTerms
    expansion: Expansion | None
    unexplained: Unexplained | None

    def result(self) -> dict[str, Any]:
        """Return plain values; lists have up to 100 terms."""
        return {
            "activated": asdict(self.activated),
            "expansion": None if self.expansion is None else _expansion(self.expansion, self.vocabulary),
            "unexplained": None if self.unexplained is None else _unexplained(self.unexplained, self.vocabulary),
        }


def diagnose_vectors(
    vectors: SparseBatch,
    contained: TextTerms | None,
    vocabulary: Sequence[str],
    rule: UnexplainedRule | None = None,
) -> VectorDiagnosis:
    """Compute all statistics of the vectors of some documents."""
    size = len(vocabulary)
    return VectorDiagnosis(
        vocabulary,
        activated_terms(vectors, size),
        None if contained is None else count_expansion(vectors, contained, size),
        None if contained is None else find_unexplained(vectors, contained, size, rule),
    )


def _expansion(found: Expansion, vocabulary: Sequence[str]) -> dict[str, Any]:
    return {
        "texts": found.texts,
        "terms": int(np.count_nonzero(found.expanded)),
        "term_share": found.term_share,
        "weight_share": found.weight_share,
        "most": [term._asdict() for term in most_expanded(found, vocabulary, _TOP)],
    }


def _unexplained(found: Unexplained, vocabulary: Sequence[str]) -> Mapping[str, Any]:
    return {
        "rule": asdict(found.rule),
        "judged": int(found.judged.sum()),
        "too_rare": found.too_rare,
        "terms": int((2 * found.unexplained > found.expanded).sum()),
        "weight_share": found.weight_share,
        "most": [term._asdict() for term in most_unexplained(found, vocabulary, _TOP)],
    }
