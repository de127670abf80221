"""Teachers: models that score a document for a query."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from lsr_prod.config import TeacherModelSettings
from lsr_prod.encoding.cells.cell import encode_batches
from lsr_prod.errors import ArtifactError, ConfigError, EncoderBrokenError, LineageError
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder, loading, model_digest
from lsr_prod.storage import folders, is_remote
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE, EncoderCard, Kind
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.training.scoring.transformers import PRECISIONS, CrossEncoder, DenseEncoder

_PROBE = ("word", "word")


class PairScorer:
    """A teacher with the activation and the scale of the settings."""

    def __init__(self, teacher: "CrossEncoder | TwoEncoder", settings: TeacherModelSettings) -> None:
        self._teacher, self._settings = teacher, settings

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[np.typing.NDArray[np.float32], dict[int, str]]:
        """Return the scores, NaN for a pair on which the model fails; and, by position, why it fails.

        Equal pairs in the same order give the same bits.
        """
        scores, failed = self._teacher.score(pairs)
        values = scores.astype(np.float64)
        if self._settings.activation == "sigmoid":
            values = 0.5 * (1 + np.tanh(values / 2))  # the sigmoid, without an overflow
        values *= self._settings.scale
        too_large = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)  # NaN of a failed pair compares as false
        return values.astype(np.float32), failed | {int(i): "the score exceeds 32 bits" for i in too_large}

    def forget(self) -> None:
        """Drop what is kept of earlier pairs."""
        self._teacher.forget()


def validate_teacher(folder: Path, settings: TeacherModelSettings, *, field: str) -> None:
    """Open the teacher on this machine's CPU and drop it."""
    if settings.precision == "fp16":  # few operations of CPUs have it
        settings = settings.model_copy(update={"precision": "fp32"})
    open_teacher(folder, settings, batch_tokens=1, field=field)


def open_teacher(
    folder: Path,
    settings: TeacherModelSettings,
    *,
    batch_tokens: int,
    field: str,
    use_gpu: bool = False,
    threads: int | None = None,
) -> PairScorer:
    """Open the teacher in a folder, and score one pair with it; ``threads``: the cores that an actor reserves."""
    if threads is not None:
        torch.set_num_threads(threads)
    device: Literal["cpu", "cuda"] = "cuda" if use_gpu else "cpu"
    teacher: CrossEncoder | TwoEncoder
    if settings.kind == "cross_encoder":
        teacher = CrossEncoder(folder, settings, device=device, batch_tokens=batch_tokens, field=field)
    elif settings.kind == "dense":
        teacher = TwoEncoder(DenseEncoder(folder, settings, device=device, batch_tokens=batch_tokens, field=field))
    else:
        sparse = SparseVectors(
            folder, settings, device=device, batch_tokens=batch_tokens, threads=threads or 1, field=field
        )
        teacher = TwoEncoder(sparse)
    scorer = PairScorer(teacher, settings)
    try:
        problem = scorer.score([_PROBE])[1].get(0)
    except EncoderBrokenError as error:
        problem = str(error)
    scorer.forget()
    if problem:
        raise ConfigError(f"{field}.model", f"{folder} cannot score a plain word ({problem})", "give another model")
    return scorer


_KEPT = 200_000  # vectors; of texts that occur again in the same part


class TwoEncoder:
    """A teacher over an encoder; the vectors of texts are kept until ``forget``, so each is encoded once per part."""

    def __init__(self, encoder: "DenseEncoder | SparseVectors") -> None:
        self._encoder = encoder
        self._vectors: dict[tuple[Kind, str], Any] = {}
        self._failed: dict[tuple[Kind, str], str] = {}

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[np.typing.NDArray[np.float32], dict[int, str]]:
        """Return the dot products of pairs, as ``PairScorer.score`` does."""
        if len(self._vectors) > _KEPT:
            self.forget()
        self._encode([query for query, _ in pairs], "query")
        self._encode([document for _, document in pairs], "document")
        scores = np.full(len(pairs), np.nan, np.float32)
        failed: dict[int, str] = {}
        for i, (query, document) in enumerate(pairs):
            keys: list[tuple[Kind, str]] = [("query", query), ("document", document)]
            if problems := [f"{key[0]}: {self._failed[key]}" for key in keys if key in self._failed]:
                failed[i] = problems[0]
            else:
                scores[i] = self._encoder.dot(self._vectors[keys[0]], self._vectors[keys[1]])
        return scores, failed

    def forget(self) -> None:
        """Drop all vectors."""
        self._vectors.clear()
        self._failed.clear()

    def _encode(self, texts: Sequence[str], kind: Kind) -> None:
        keys = [(kind, text) for text in dict.fromkeys(texts)]
        new = [key for key in keys if key not in self._vectors and key not in self._failed]
        if not new:
            return
        vectors, failed = self._encoder.encode([text for _, text in new], kind)
        self._vectors.update({new[i]: vector for i, vector in vectors.items()})
        self._failed.update({new[i]: problem for i, problem in failed.items()})


Vector = tuple[np.typing.NDArray[np.int32], np.typing.NDArray[np.float32]]


class SparseVectors:
    """An opened sparse encoder."""

    def __init__(
        self,
        folder: Path,
        settings: TeacherModelSettings,
        *,
        device: Literal["cpu", "cuda"],
        batch_tokens: int,
        threads: int,
        field: str,
    ) -> None:
        self._batch_tokens = batch_tokens
        self._encoder: SparseEncoder | BundleEncoder
        if (folder / BUNDLE_FILE).is_file():
            if settings.precision != "fp32":
                problem = f"{folder} is a bundle, with its own number format"
                raise ConfigError(f"{field}.precision", problem, "remove it")
            self._encoder = BundleEncoder(folder, threads=threads, verify=True, provider=device)
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
        """Return the vectors by position (int32 [n], ascending; float32 [n]), and why the others have none."""
        found, failures = encode_batches(_OfKind(self._encoder, kind, self._batch_tokens), texts)
        good = [i for i in range(len(texts)) if i not in failures]
        vectors = {i: _by_term(*found.row(place)) for place, i in enumerate(good)}
        return vectors, {i: failure.detail for i, failure in failures.items()}

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


def _by_term(terms: np.typing.NDArray[np.int32], weights: np.typing.NDArray[np.float32]) -> Vector:
    order = np.argsort(terms)
    return terms[order], weights[order]


def _load(folder: Path, field: str) -> SparseEncoder:
    try:
        return SparseEncoder.load(folder)
    except ConfigError as error:
        raise ConfigError(f"{field}.model", error.problem, error.remedy) from error


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """Place and digest of a model."""

    place: str  # URI, Hugging Face id, or absolute path that every node sees
    digest: str  # sha256 over all files of the folder
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # options of the object store

    @classmethod
    def of(cls, place: str, options: Mapping[str, str], *, field: str) -> "PinnedModel":
        """Pin the model that is at a path, a URI or an id now."""
        try:
            folder = _folder(place, options)
        except ConfigError as error:
            raise ConfigError(field, error.problem, error.remedy) from error
        except ArtifactError as error:
            raise ConfigError(field, str(error), "give a folder, the URI of a stored folder, or an id") from error
        place = str(Path(place).absolute()) if Path(place).is_dir() else place
        return cls(place, model_digest(folder), dict(options))

    def open(self) -> Path:
        """Return the folder of the model on this node."""
        try:
            folder = _folder(self.place, self.options)
        except ConfigError as error:
            raise ArtifactError(
                f"the model {self.place} is not on node {socket.gethostname()}; give a URI (s3://...), or a folder "
                "that every node sees"
            ) from error
        if (found := model_digest(folder)) != self.digest:
            raise LineageError(
                f"the model {self.place} on node {socket.gethostname()} has the digest {found}, but the job was "
                f"planned with {self.digest}; restore that model, or start a job with another output"
            )
        return folder


def _folder(place: str, options: Mapping[str, str]) -> Path:
    return folders.open_folder(place, options) if is_remote(place) else loading.local_folder(place)
