"""Documents that the model fails on are found by halving, and every other document is encoded."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lsr_prod.corpus.rows import shorten
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.errors import EncoderBrokenError, EncoderCrashedError, EncoderRaisedError, EncoderTimeoutError
from lsr_prod.formats.sparse import SparseBatch

__all__ = ["BATCH_SIZE", "ENCODER_REASONS", "Failure", "encode_batches"]

BATCH_SIZE = 2048
"""Documents whose tokens are in memory at once."""

ENCODER_REASONS = frozenset({"encode_failed", "encoder_crashed", "encoder_timeout"})
"""Reasons of rows that the model failed on."""

_SUSPICIOUS = 20  # single documents that fail in a row: is it they, or the model?


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a document has no vector.

    Attributes:
        reason: ``encode_failed``, ``encoder_crashed`` or ``encoder_timeout``.
        detail: a sentence for people, ``rows.RAW_LIMIT`` bytes at most.
    """

    reason: str
    detail: str


def encode_batches(
    encoder: TextEncoder, texts: Sequence[str], *, top_k: int, batch_tokens: int, chunk: int = BATCH_SIZE
) -> tuple[SparseBatch, dict[int, Failure]]:
    """Encode documents; one that makes the encoder fail is found by halving and left out.

    Args:
        encoder: an opened bundle, or one in a process of its own.
        texts: any number.
        top_k: terms kept of a vector.
        batch_tokens: tokens of a batch, padding included.
        chunk: texts of one call of the encoder at most.

    Returns:
        Vectors of the texts that could be encoded, in order, and why each other one could not, by position. ``n`` texts
        cost 2n calls of the encoder at most, ``p`` failing ones p * (log2(chunk) + 1) failed calls at most.

    Raises:
        EncoderBrokenError: the encoder fails whatever it is given.
    """
    parts: list[SparseBatch] = []
    failed: dict[int, Failure] = {}
    in_a_row = 0
    todo = [range(start, min(start + chunk, len(texts))) for start in range(0, len(texts), chunk)][::-1]
    while todo:
        rows = todo.pop()
        try:
            vectors = encoder.encode([texts[i] for i in rows], kind="document", top_k=top_k, batch_tokens=batch_tokens)
            if not np.isfinite(vectors.weights).all():
                raise FloatingPointError("the vector has weights that are no finite numbers")
        except EncoderBrokenError:
            raise
        except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
            if len(rows) == 1:
                failed[rows[0]] = _failure(error)
                in_a_row += 1
                if in_a_row % _SUSPICIOUS == 0:
                    _check_alive(encoder, in_a_row, error)
                continue
            middle = len(rows) // 2
            todo += [rows[middle:], rows[:middle]]
            continue
        parts.append(vectors)
        in_a_row = 0
    if in_a_row:  # nothing says yet that the model still works
        _check_alive(encoder, in_a_row, None)
    return SparseBatch.concatenate(parts), failed


def _check_alive(encoder: TextEncoder, in_a_row: int, error: Exception | None) -> None:
    """Encode a word, which every model can: a device in a bad state fails whatever it is given.

    Raises:
        EncoderBrokenError: it fails too.
    """
    try:
        vectors = encoder.encode(["word"], kind="document", top_k=1, batch_tokens=1)
        if np.isfinite(vectors.weights).all():
            return
        cause: Exception | None = error
    except Exception as found:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
        cause = found
    raise EncoderBrokenError(
        f"{in_a_row} documents in a row failed, and so did a plain word ({cause}); the model or its device is broken, "
        "not the documents: look into the log, then run the job again"
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
