"""Dead terms and postings lists as plain values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.diagnostics.vectors import dead_terms
from lsr_prod.evaluation.efficiency import postings_curve


def describe_postings(frequencies: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return moments and curve of the postings lists: int64 [V], documents per term."""
    return asdict(postings_curve(frequencies))


def describe_dead(frequencies: npt.NDArray[np.int64], vocabulary: Sequence[str]) -> dict[str, Any]:
    """Return number, share and list of the terms without documents: int64 [V], documents per term."""
    found = dead_terms(frequencies, vocabulary)
    return {
        "terms": len(found.ids),
        "share": found.share,
        "special": found.special,
        "list": [vocabulary[term] for term in found.ids.tolist()],
    }
