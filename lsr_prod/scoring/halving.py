"""Calls of a model in batches; a batch that fails is halved until the texts are found on which the model fails."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from lsr_prod.corpus.rows import shorten
from lsr_prod.errors import EncoderBrokenError, LsrError
from lsr_prod.inference.encoder import token_batches

Values = npt.NDArray[np.float32]


def call_in_halves(
    lengths: Sequence[int], batch_tokens: int, call: Callable[[Sequence[int]], Values], probe: Callable[[], object]
) -> tuple[dict[int, Values], dict[int, str]]:
    """Call a model with batches of positions of similar length, each of at most ``batch_tokens`` or of one input.

    Returns:
        The values by position; and, by position, why an input has none: the model raised an exception for it alone, or
        a value is not finite.
    """
    values: dict[int, Values] = {}
    failed: dict[int, str] = {}
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for batch in token_batches(order, lengths, batch_tokens):
        todo = [batch]
        while todo:
            rows = todo.pop()
            try:
                found = call(rows)
            except LsrError:
                raise
            except Exception as error:  # noqa: BLE001 (torch and tokenizers raise bare Exceptions)
                if len(rows) == 1:
                    failed[rows[0]] = shorten(f"{type(error).__name__}: {' '.join(str(error).split())}")
                    _check_alive(probe, error)
                else:
                    todo += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
                continue
            for i, row in zip(rows, found, strict=True):
                if np.isfinite(row).all():
                    values[i] = row
                else:
                    failed[i] = "the model returned NaN or an infinite value"
    return values, failed


def _check_alive(probe: Callable[[], object], error: Exception) -> None:
    try:
        probe()
    except Exception as found:
        raise EncoderBrokenError(
            f"the teacher failed ({error}), and then on a plain text ({found}); the model or its device is broken, not "
            "the rows: look at the log, then run the job again"
        ) from found
