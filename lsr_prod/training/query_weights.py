"""Inference-free queries in training: query vectors that need no model.

Their terms are weighted by inverse document frequencies (``formats.term_weights``) of the training documents or of a
corpus, to which no gradient is propagated, or by learned weights (``QueryTable``) that start from them. Losses, masks
and document regularizers are the usual ones, including FLOPS with ``l0_mask`` (arXiv 2504.14839 excludes documents that
are sparse enough).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from lsr_prod.config import objective, section
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError
from lsr_prod.evaluation import vector_evaluation
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.model import SparseEncoder
from lsr_prod.search.query.sparse_query import TermWeights
from lsr_prod.storage import Store
from lsr_prod.storage.formats import bundle_format, digests, sparse, term_weights
from lsr_prod.training.batches import TokenBatch
from lsr_prod.training.data import layouts, schemas, training_rows

_FORMAT = 1

Encode = Callable[[Sequence[str], bundle_format.Kind], sparse.SparseBatch]


def reader_of(encoder: SparseEncoder) -> TermReader:
    """Return the reader of output terms of texts, equal to that of the exported bundle."""
    return TermReader(encoder.tokenizer.backend_tokenizer.to_str(), encoder.card, encoder.vocabulary)


def count_terms(
    data: Sequence[section.TrainingDataSettings], encoder: SparseEncoder, work: Store, options: dict[str, str]
) -> digests.FileDigest:
    """Count the documents with each output term, unless the counts exist; each distinct document once, untruncated."""
    named = ("vocabulary_sha256", "output_casing", *layouts.special_fields(encoder.card))
    made_from = {
        "format": _FORMAT,
        **(_source(data[0], options) if len(data) == 1 else {"sets": [_source(one, options) for one in data]}),
        "tokenizer": encoder.tokenizer.backend_tokenizer.to_str(),
        "card": {name: getattr(encoder.card, name) for name in named},
    }
    name = f"term_counts/{digests.digest_json(made_from)}.npy"
    found = work.get(name)
    if found is None:
        texts = _distinct(
            text for one in data for row in training_rows.read_good_rows(one, options) for text in row.documents
        )
        counts = reader_of(encoder).count(texts)
        if not counts.documents:
            problem = "no document contains an output term of the model"
            raise ConfigError("data.paths", problem, "use documents in its language")
        work.put_new(name, counts.to_bytes())
        found = work.get(name)
        assert found is not None
    return digests.FileDigest(name, hashlib.sha256(found).hexdigest(), len(found))


def _source(data: section.TrainingDataSettings, options: dict[str, str]) -> dict[str, Any]:
    return {
        "data": schemas.pin_data(data, options),
        "kind": data.kind,
        "columns": {field: data.column(field) for field in data.fields},
        "max_text_bytes": data.max_text_bytes,
    }


def query_weights(file: digests.FileDigest, work: Store, vocabulary_size: int) -> torch.Tensor:
    """Return the weight of every query term, float32 [V]."""
    data = work.get(file.path)
    if data is None:
        raise ArtifactError(f"{work.uri}/{file.path} was deleted; run the job again")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise DigestMismatchError(f"{work.uri}/{file.path} has changed; delete it and run the job again")
    return torch.from_numpy(term_weights.TermCounts.from_bytes(data, vocabulary_size, file.path).weights())


def weigh_queries(queries: TokenBatch, weights: torch.Tensor) -> torch.Tensor:
    """Return query vectors [n, V]: the weight of each present term. A gradient of ``weights`` is deterministic."""
    device = weights.device
    present = queries.attention_mask.to(device)
    ids = queries.input_ids.to(device) * present  # the padding token may not be an output term
    rows = weights.new_zeros(len(ids), len(weights))
    # The backward pass of index_select on a CPU adds in a fixed order; that of an index does not.
    return rows.scatter_add_(1, ids, weights.index_select(0, ids.flatten()).view_as(ids) * present)


def needs_term_counts(encoder: SparseEncoder, settings: objective.QueryWeightsSettings | None) -> bool:
    """Return whether training weighs queries by IDF, or starts from IDF."""
    if encoder.card.query_encoder != "learned":
        return encoder.card.query_encoder == "idf"
    return encoder.query_weights is None and (settings or objective.QueryWeightsSettings()).initialization == "idf"


def initial_weights(encoder: SparseEncoder, counts: digests.FileDigest | None, work: Store) -> torch.Tensor | None:
    """Return the weights of query terms at the first step, float32 [V]; None: the model encodes queries."""
    if not encoder.card.inference_free:
        return None
    if encoder.card.query_encoder == "learned" and encoder.query_weights is not None:
        return encoder.query_weights
    size = encoder.card.vocabulary_size
    return torch.ones(size) if counts is None else query_weights(counts, work, size)


def query_weighing(encoder: SparseEncoder, documents: Iterable[str]) -> Callable[[SparseEncoder], Encode]:
    """Return a function from the current encoder to one that encodes the queries and documents of a collection.

    Inference-free queries have the current learned weights, or are weighted by the documents, as in their index.
    """
    if not encoder.card.inference_free:
        return lambda model: model.encode
    reader = reader_of(encoder)
    if encoder.card.query_encoder == "idf":
        weights = TermWeights.of_counts(reader.count(documents), encoder.vocabulary)
        return lambda model: partial(_encode, model, reader, weights)

    def of(model: SparseEncoder) -> Encode:
        assert model.query_weights is not None
        return partial(_encode, model, reader, TermWeights.learned(model.query_weights.numpy(), model.vocabulary))

    return of


def _encode(
    model: SparseEncoder, reader: TermReader, weights: TermWeights, texts: Sequence[str], kind: bundle_format.Kind
) -> sparse.SparseBatch:
    if kind == "document":
        return model.encode(texts, kind)
    return vector_evaluation.weigh_queries(texts, reader, weights, len(model.vocabulary))


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    """Yield every distinct text once: a document can occur in several rows."""
    seen: set[bytes] = set()
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            yield text
