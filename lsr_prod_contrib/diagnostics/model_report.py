"""Diagnosis of a model: its head, the logits of its tokens, and the vectors of a sample of texts."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from lsr_prod.corpus.source_rows import is_visible
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.cost import postings_curve
from lsr_prod.extras import contrib
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.card_update import check_vocabulary_head
from lsr_prod.training.vocabulary.head import head_norms
from lsr_prod_contrib.diagnostics.logits import logit_statistics
from lsr_prod_contrib.diagnostics.unexplained import diagnose_vectors
from lsr_prod_contrib.diagnostics.vectors import TextTerms, dead_terms, term_scores

T = TypeVar("T")

_LOGIT_TEXTS = 200  # whose logits are looked at: [tokens, V] per text
_OCCURRENCES = (100, 10)  # documents in which a term has to occur for table 8


def diagnose_model(encoder: SparseEncoder, texts: Sequence[str]) -> dict[str, Any]:
    """Return all figures of a model on some documents, as plain values.

    Returns:
        ``head`` (``HeadNorms``), ``logits`` (``LogitStatistics``, of the first 200 texts), ``casing`` (counts by casing
        of input token and output term), ``postings`` (of all V terms), ``term_scores`` by number of documents,
        ``dead``, and the keys of ``diagnose_vectors``. A figure that the model cannot have is None, and
        ``missing`` says why, by key.
    """
    if not texts or not all(map(is_visible, texts)):
        raise ConfigError("--texts", "there is no text, or one is empty", "give texts with at least one word each")
    size, missing = encoder.card.vocabulary_size, dict[str, str]()
    vectors = encoder.encode(texts)
    frequencies = np.bincount(vectors.terms, minlength=size).astype(np.int64)
    contained = _or_missing("expansion", missing, lambda: _contained(encoder, texts))
    return {
        "kind": "model",
        "terms": size,
        "texts": len(texts),
        "head": _or_missing("head", missing, lambda: asdict(_head(encoder, head_norms))),
        "logits": _or_missing("logits", missing, lambda: _logits(encoder, texts[:_LOGIT_TEXTS])),
        "casing": _or_missing("casing", missing, lambda: _casing(encoder, texts)),
        "postings": asdict(postings_curve(frequencies)),
        "term_scores": {str(n): asdict(term_scores(vectors, min_documents=n)) for n in _OCCURRENCES},
        "dead": {
            **dead_terms(frequencies, encoder.vocabulary),
            "rows": _or_missing("dead.rows", missing, lambda: _dead_rows(encoder, frequencies == 0)),
        },
        **diagnose_vectors(vectors, contained, encoder.vocabulary),
        "missing": missing,
    }


def _or_missing(name: str, missing: dict[str, str], compute: Callable[[], T]) -> T | None:
    """Return a figure; None with an entry in ``missing`` if the model cannot have it."""
    try:
        return compute()
    except ConfigError as error:
        missing[name] = error.problem
        return None


def _head(encoder: SparseEncoder, compute: Callable[[SparseEncoder], T]) -> T:
    check_vocabulary_head(encoder.card)
    return compute(encoder)


def _logits(encoder: SparseEncoder, texts: Sequence[str]) -> dict[str, Any]:
    if encoder.card.pooled_states == "mean":
        raise ConfigError(
            "model", "it averages its hidden states, so no token has logits", "use a model that pools tokens"
        )
    if encoder.heads is not None:
        raise ConfigError("model", "it pools appended tokens only", "use a model that pools the tokens of the text")
    found = asdict(_head(encoder, lambda one: logit_statistics(one, texts)))
    for name in ("document_mean", "document_std"):
        found[name] = {str(k) if k else "all": value for k, value in found[name].items()}
    return found


def _casing(encoder: SparseEncoder, texts: Sequence[str]) -> dict[str, dict[str, int]]:
    count = contrib("vocabularies.casing_matrix").casing_matrix
    found: dict[str, dict[str, int]] = _head(encoder, lambda one: count(one, texts, "document")).by_class()
    return found


def _contained(encoder: SparseEncoder, texts: Sequence[str]) -> TextTerms:
    reader = TermReader(encoder.tokenizer.backend_tokenizer.to_str(), encoder.card, encoder.vocabulary)
    return TextTerms.of(reader.documents(texts))


def _dead_rows(encoder: SparseEncoder, dead: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, float | None]:
    """Return mean norms and biases of the head's rows of dead and of active terms: a low bias can explain a death."""
    matrix, bias = _head(encoder, lambda one: output_layer(one.model))
    if len(matrix) != len(dead):
        raise ConfigError("model", "its rows are folded into other output terms", "use output_casing all")
    norms = matrix.detach().float().norm(dim=1).cpu().numpy()
    biases = None if bias is None else bias.detach().float().cpu().numpy()

    def mean(values: Any, rows: Any) -> float | None:
        return None if values is None or not rows.any() else float(values[rows].mean(dtype=np.float64))

    return {
        "norm_dead": mean(norms, dead),
        "norm_active": mean(norms, ~dead),
        "bias_dead": mean(biases, dead),
        "bias_active": mean(biases, ~dead),
    }
