"""Sparse vectors of texts as a teacher: of a model in torch, or of a bundle in ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config import TeacherModelSettings
from lsr_prod.encoding.cells.batches import encode_batches
from lsr_prod.errors import ConfigError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.card import EncoderCard, Kind
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.scoring.transformer import PRECISIONS

Vector = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]


class SparseVectors:
    """An opened sparse encoder."""

    def __init__(
        self,
        folder: Path,
        settings: TeacherModelSettings,
        *,
        device: str,
        batch_tokens: int,
        threads: int,
        field: str,
    ) -> None:
        """Open the model or the bundle."""
        self._batch_tokens = batch_tokens
        self._encoder: SparseEncoder | BundleEncoder
        if (folder / BUNDLE_FILE).is_file():
            if settings.precision != "fp32":
                raise ConfigError(
                    f"{field}.precision", f"{folder} is a bundle, with its own number format", "remove it"
                )
            self._encoder = BundleEncoder(
                folder, threads=threads, verify=True, provider="cuda" if device == "cuda" else "cpu"
            )
        else:
            self._encoder = _load(folder, field).to(device=device, dtype=PRECISIONS[settings.precision])
        card: EncoderCard = self._encoder.card
        if card.query_encoder != "model":
            raise ConfigError(
                f"{field}.model",
                f"queries of {folder} are inference-free, their weights are those of an index",
                "give a model that encodes queries",
            )

    def encode(self, texts: Sequence[str], kind: Kind) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the vectors, as ``two_encoder.TextVectors`` defines it: (int32 [n], ascending; float32 [n])."""
        found, failures = encode_batches(_OfKind(self._encoder, kind, self._batch_tokens), texts)
        good = [i for i in range(len(texts)) if i not in failures]
        return (
            {i: _by_term(*found.row(place)) for place, i in enumerate(good)},
            {i: failure.detail for i, failure in failures.items()},
        )

    def dot(self, query: Vector, document: Vector) -> float:
        """Return the dot product of two vectors."""
        _, left, right = np.intersect1d(query[0], document[0], assume_unique=True, return_indices=True)
        return float(query[1][left] @ document[1][right])


class _OfKind:
    """A ``TextEncoder`` of queries or of documents."""

    def __init__(self, encoder: SparseEncoder | BundleEncoder, kind: Kind, batch_tokens: int) -> None:
        self._encoder, self._kind, self._tokens = encoder, kind, batch_tokens

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        if isinstance(self._encoder, BundleEncoder):
            return self._encoder.encode(texts, kind=self._kind, batch_tokens=self._tokens)
        rows = max(1, self._tokens // self._encoder.card.max_length(self._kind))
        return self._encoder.encode(texts, self._kind, batch_size=rows)


def _by_term(terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]) -> Vector:
    order = np.argsort(terms)
    return terms[order], weights[order]


def _load(folder: Path, field: str) -> SparseEncoder:
    try:
        return SparseEncoder.load(folder)
    except ConfigError as error:
        raise ConfigError(f"{field}.model", error.problem, error.remedy) from error
