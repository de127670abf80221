"""Bundles as sparse models of mteb (``pip install 'lsr_prod[mteb,jobs]'``), which needs no index."""

from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np

from lsr_prod import errors, extras
from lsr_prod.integrations.mteb import describe, texts_of
from lsr_prod.storage.folders import open_bundle
from lsr_prod.storage.formats.bundle_format import EncoderCard, Kind

try:
    import torch
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.types import PromptType

    from lsr_prod.evaluation.vector_evaluation import encode_with_bundle
except ModuleNotFoundError as error:
    raise extras.missing_extra(error) from error

__all__ = ["BundleModel"]


class BundleModel(AbsEncoder):
    """A bundle as a sparse encoder of mteb, which multiplies all vectors of a task.

    mteb opens a model folder itself, as a ``SparseEncoder`` of sentence-transformers.

    Examples:
        >>> from lsr_prod.integrations.mteb_model import BundleModel
        >>> model = BundleModel("bundle", name="mine/splade-tiny")  # mteb.evaluate(model, mteb.get_tasks(["SciFact"]))
        >>> model.mteb_model_meta.name
        'mine/splade-tiny'

    Attributes:
        mteb_model_meta: name and digest, by which mteb caches results.
    """

    def __init__(self, bundle: str | Path, *, name: str = "lsr_prod/bundle") -> None:
        """Open a bundle.

        Args:
            bundle: folder or URI.
            name: name in the results, ``organization/name``.

        Raises:
            ConfigError: queries have IDF weights, which depend on the documents.
        """
        self._folder, manifest = open_bundle(str(bundle))
        card = EncoderCard.load(self._folder)
        if card.query_encoder == "idf":
            raise errors.ConfigError("bundle", "queries have IDF weights, which an index has", "use IndexSearch")
        self._terms = card.vocabulary_size
        self.mteb_model_meta = describe(name, manifest.digest, {})

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: PromptType | None = None, **_: Any) -> Any:
        """Encode texts: a sparse tensor [n, V], or a dense one for tasks other than retrieval."""
        texts = texts_of(inputs)
        kind: Kind = "query" if prompt_type == PromptType.query else "document"
        vectors = encode_with_bundle(self._folder, texts, kind, [])
        known = vectors.terms < self._terms  # a query word outside an output vocabulary of words matches nothing
        rows = np.repeat(np.arange(len(texts)), np.diff(vectors.offsets))
        places = torch.from_numpy(np.stack([rows, vectors.terms])[:, known])
        weights = torch.from_numpy(vectors.weights[known])
        matrix = torch.sparse_coo_tensor(places, weights, (len(texts), self._terms), check_invariants=True).coalesce()
        sparse = task_metadata.simplified_task_type == "retrieval" and "Reranking" not in task_metadata.type
        return matrix if sparse else matrix.to_dense()

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the scores of all pairs: float32 [n, m]."""
        with catch_warnings(action="ignore", category=UserWarning):  # torch's CSR tensors are beta
            return torch.mm(embeddings1, embeddings2.T).to_dense()
