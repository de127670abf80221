"""Queries without a model, in a training: vectors that are fixed, against which documents are trained.

Their terms are weighed by inverse document frequencies (``formats.idf``), of the documents that are trained on or of a
corpus. No gradient reaches them; losses, masks and the regularisers of documents are those of any training, and FLOPS
with or without ``l0_mask`` (arXiv 2504.14839, which masks documents that are sparse enough) among them.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError
from lsr_prod.formats.card import Kind
from lsr_prod.formats.digest import FileDigest, digest_json
from lsr_prod.formats.idf import TermCounts
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.model import SparseEncoder
from lsr_prod.search.query.term_weights import TermWeights
from lsr_prod.storage import Store
from lsr_prod.terms.reader import TermReader
from lsr_prod.training.batches import TokenBatch
from lsr_prod.training_data.pins import pin_data
from lsr_prod.training_data.texts import read_good_rows

__all__ = ["count_terms", "idf_encoder", "query_weights", "reader_of", "weigh_queries"]

_FORMAT = 1

Encode = Callable[[Sequence[str], Kind], SparseBatch]


def reader_of(encoder: SparseEncoder) -> TermReader:
    """What finds the output terms of texts, as the encoder's bundle will."""
    return TermReader(encoder.tokenizer.backend_tokenizer.to_str(), encoder.card, encoder.vocabulary)


def count_terms(data: TrainingDataSettings, encoder: SparseEncoder, work: Store, options: dict[str, str]) -> FileDigest:
    """Count how many documents have each output term, unless that was done; each document once, all of its text.

    Args:
        data: rows whose documents are counted.
        encoder: whose terms.
        work: the work store, which keeps the counts.
        options: options of the object stores of ``data.paths``.

    Raises:
        ConfigError: a path points nowhere, or no document has a term.
        QuarantineOverflowError: more bad rows than ``data.max_bad_fraction`` allows.
    """
    made_from = {
        "format": _FORMAT,
        "data": pin_data(data, options),
        "kind": data.kind,
        "columns": {field: data.column(field) for field in data.fields},
        "max_text_bytes": data.max_text_bytes,
        "tokenizer": encoder.tokenizer.backend_tokenizer.to_str(),
        "card": {name: getattr(encoder.card, name) for name in ("vocabulary_sha256", "output_casing")},
    }
    name = f"term_counts/{digest_json(made_from)}.npy"
    found = work.get(name)
    if found is None:
        texts = _distinct(text for row in read_good_rows(data, options) for text in row.documents)
        counts = reader_of(encoder).count(texts)
        if not counts.documents:
            raise ConfigError("data.paths", "no document has an output term", "give documents of the model's language")
        work.put_new(name, counts.to_bytes())
        found = work.get(name)
        assert found is not None
    return FileDigest(name, hashlib.sha256(found).hexdigest(), len(found))


def query_weights(file: FileDigest, work: Store, vocabulary_size: int) -> Tensor:
    """The weight of every term in a query, float32 [V].

    Args:
        file: what ``count_terms`` returned.
        work: the work store.
        vocabulary_size: V.

    Raises:
        ArtifactError: the counts are gone or damaged.
    """
    data = work.get(file.path)
    if data is None:
        raise ArtifactError(f"{work.uri}/{file.path} is gone; run the job again")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise DigestMismatchError(f"{work.uri}/{file.path} has changed; delete it and run the job again")
    return torch.from_numpy(TermCounts.from_bytes(data, vocabulary_size, file.path).weights())


def weigh_queries(queries: TokenBatch, weights: Tensor) -> Tensor:
    """Vectors of queries: presence times weight.

    Args:
        queries: output terms, each once in a row.
        weights: float32 [V].

    Returns:
        [n, V].
    """
    device = weights.device
    present = queries.attention_mask.to(device)
    ids = queries.input_ids.to(device) * present  # what pads a row may be no output term
    rows = weights.new_zeros(len(ids), len(weights))
    return rows.scatter_add_(1, ids, weights[ids] * present)


def idf_encoder(encoder: SparseEncoder, documents: Iterable[str]) -> Callable[[SparseEncoder], Encode]:
    """What encodes a collection whose queries are weighed by its documents, as those of its index would be.

    Args:
        encoder: with the tokenizer and the output terms.
        documents: all texts of the collection. Words that are no output terms are left out of queries.

    Returns:
        A function: the encoder of documents, in whatever state, to one of both kinds of texts.
    """
    reader = reader_of(encoder)
    weights = TermWeights(reader.count(documents), encoder.vocabulary)

    def encode(model: SparseEncoder, texts: Sequence[str], kind: Kind) -> SparseBatch:
        if kind == "document":
            return model.encode(texts, kind)
        queries = (weights.weigh(reader.query(text).ids) for text in texts)
        return SparseBatch.concatenate(
            [SparseBatch(np.array([0, len(query.ids)]), query.ids, query.weights) for query in queries]
        )

    return lambda model: partial(encode, model)


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    """Every text once: a document stands in as many rows as have it."""
    seen: set[bytes] = set()
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            yield text
