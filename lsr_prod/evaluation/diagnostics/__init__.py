"""Diagnostics of a model and of an encoded collection (esplade-pretraining, tables 3 and 6 to 9, and what users ask).

``vectors`` describes sparse vectors as they are indexed, ``expansion`` the terms that texts do not contain,
``unexplained`` those of them without evidence in the texts, ``summary`` all of these together; ``logits`` needs torch
and describes the head before pooling.
"""

from lsr_prod.evaluation.diagnostics.vectors import (
    ActivatedTerms,
    PostingsLengths,
    TermScores,
    activated_terms,
    postings_lengths,
    term_count_std,
    term_scores,
)

__all__ = [
    "ActivatedTerms",
    "PostingsLengths",
    "TermScores",
    "activated_terms",
    "postings_lengths",
    "term_count_std",
    "term_scores",
]
