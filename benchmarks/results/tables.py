"""Tables 3 and 6 to 9 of papers/esplade-pretraining for the models of a family, from the first seed."""

from collections.abc import Sequence

import numpy as np

from benchmarks.results.claims import Family
from benchmarks.results.page import table
from benchmarks.results.runs import Workshop
from benchmarks.train.pruning_models import encode
from lsr_prod import SparseEncoder
from lsr_prod.evaluation.cost import postings_curve
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod_contrib.diagnostics.logits import logit_statistics
from lsr_prod_contrib.diagnostics.vectors import activated_terms, term_scores

TOKENS_OF = 200  # documents whose logits are looked at
PRUNED = (0, 20, 10, 5)  # dk; 0: all
OCCURRENCES = (100, 10)  # documents that a term has to occur in


def diagnostics(family: Family, workshop: Workshop) -> str:
    """The tables in Markdown: logits of tokens, postings lists, spread of weights, terms per text."""
    models = [workshop.model(chain, 0) for chain in family.rows.values()]
    return workshop.kept("tables", models, lambda: _made(family, workshop))


def _made(family: Family, workshop: Workshop) -> str:
    logits, vectors = [], []
    collection = workshop.material.collections["tldr"]
    for label, chain in family.rows.items():
        encoder = SparseEncoder.load(workshop.model(chain, 0))
        documents = encode(encoder, list(collection.documents.values()), "document")
        queries = encode(encoder, list(collection.queries.values()), "query")
        logits.append(_logits(label, encoder, list(collection.documents.values())[:TOKENS_OF]))
        vectors += [_vectors(label, documents, queries, dk, encoder.card.vocabulary_size) for dk in PRUNED]
    head = [
        "model",
        "logit std",
        "terms >= 0, mean",
        "std",
        "score of the best 10",
        "100",
        "all",
        "std of 10",
        "100",
        "all",
    ]
    first = "Logits of single tokens (tables 6 and 7):\n\n" + table(head, logits)
    head = [
        "model",
        "dk",
        "postings mean",
        "variance",
        "std",
        "std of weights, 100 documents",
        "terms",
        "10 documents",
        "terms",
    ]
    head += ["std of L0 query", "std of L0 document"]
    title = "Vectors (tables 3, 8 and 9; a term counts where it occurs in that many documents):"
    return f"{first}\n\n{title}\n\n{table(head, vectors)}"


def _logits(label: str, encoder: SparseEncoder, texts: Sequence[str]) -> list[str]:
    found = logit_statistics(encoder, texts)
    values = [found.logit_std, found.non_negative_mean, found.non_negative_std]
    values += [found.document_mean[k] for k in (10, 100, 0)] + [found.document_std[k] for k in (10, 100, 0)]
    return [label, *(f"{value:,.2f}" for value in values)]


def _vectors(label: str, documents: SparseBatch, queries: SparseBatch, dk: int, size: int) -> list[str]:
    kept = documents.top(dk) if dk else documents
    lengths = postings_curve(np.bincount(kept.terms, minlength=size))
    row = [label, str(dk or "all"), f"{lengths.mean:.2f}", f"{lengths.variance:.4g}", f"{lengths.std:.2f}"]
    for count in OCCURRENCES:
        scores = term_scores(kept, min_documents=count)
        row += [f"{scores.std:.3f}", f"{scores.terms:,}"]
    return [*row, *(f"{activated_terms(vectors, size).std:.2f}" for vectors in (queries, kept))]
