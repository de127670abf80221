"""The main loop of encoding: documents in batches; a batch that fails is halved until its bad documents are found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lsr_prod.corpus.rows import shorten
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.errors import (
    ArtifactError,
    EncoderBrokenError,
    EncoderCrashedError,
    EncoderRaisedError,
    EncoderTimeoutError,
    StorageError,
)
from lsr_prod.formats.sparse import SparseBatch

BATCH_SIZE = 2048
"""Documents of one call of the encoder, whose tokens are in memory at once."""

ENCODER_REASONS = frozenset({"encode_failed", "encoder_crashed", "encoder_timeout"})
"""Quarantine reasons of documents that the model failed on."""

_OF_BUNDLE = (ArtifactError, StorageError)  # a child process could not open the bundle: no document is to blame
_SUSPICIOUS = 20  # consecutive single documents that fail: the model itself may be broken


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a document has no vector.

    Attributes:
        reason: ``encode_failed``, ``encoder_crashed`` or ``encoder_timeout``.
        detail: the error message, ``rows.RAW_LIMIT`` bytes at most.
    """

    reason: str
    detail: str


def encode_batches(
    encoder: TextEncoder, texts: Sequence[str], *, batch_size: int = BATCH_SIZE
) -> tuple[SparseBatch, dict[int, Failure]]:
    """Encode documents; leave out those that make the encoder fail.

    Returns:
        Vectors of the encoded texts, in order, and the failures of the other texts, by position. ``n`` texts cost at
        most 2n calls of the encoder, and ``p`` failing texts at most p * (log2(batch_size) + 1) failed calls.
    """
    parts: list[SparseBatch] = []
    failed: dict[int, Failure] = {}
    failed_in_a_row = 0
    todo = [range(start, min(start + batch_size, len(texts))) for start in range(0, len(texts), batch_size)][::-1]
    while todo:
        rows = todo.pop()
        try:
            vectors = encoder.encode([texts[i] for i in rows])
            if not np.isfinite(vectors.weights).all():
                raise FloatingPointError("a weight of the vector is NaN or infinite")
        except (EncoderBrokenError, *_OF_BUNDLE):
            raise
        except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
            if len(rows) == 1:
                failed[rows[0]] = _failure(error)
                failed_in_a_row += 1
                if failed_in_a_row % _SUSPICIOUS == 0:
                    _check_alive(encoder, failed_in_a_row, error)
                continue
            middle = len(rows) // 2
            todo += [rows[middle:], rows[:middle]]
            continue
        parts.append(vectors)
        failed_in_a_row = 0
    if failed_in_a_row:  # the last call failed, so the model may have broken
        _check_alive(encoder, failed_in_a_row, None)
    return SparseBatch.concatenate(parts), failed


def _check_alive(encoder: TextEncoder, failed_in_a_row: int, error: Exception | None) -> None:
    """Encode a single word, which every working model can; a device in a bad state fails on every input."""
    try:
        vectors = encoder.encode(["word"])
        if np.isfinite(vectors.weights).all():
            return
        cause: Exception | None = error
    except _OF_BUNDLE:
        raise
    except Exception as found:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
        cause = found
    raise EncoderBrokenError(
        f"{failed_in_a_row} documents in a row failed, and so did a plain word ({cause}); the model or its device is "
        "broken, not the documents: look at the log, then run the job again"
    ) from cause


def _failure(error: Exception) -> Failure:
    match error:
        case EncoderCrashedError():
            return Failure("encoder_crashed", shorten(str(error)))
        case EncoderTimeoutError():
            return Failure("encoder_timeout", shorten(str(error)))
        case EncoderRaisedError():
            return Failure("encode_failed", shorten(str(error)))
    return Failure("encode_failed", shorten(f"{type(error).__name__}: {error}"))
