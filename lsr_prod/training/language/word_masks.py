"""Masks of expanded masked language modeling (papers/esplade-pretraining, appendix B.2).

A fixed number of words is chosen per text: 15 % of those that are output terms, at least one. All sub-tokens of a
chosen word are masked and predict the word. All sub-tokens of a word are replaced in the same way (mask token, random
token, unchanged); this is our choice.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from lsr_prod.training.language.token_masks import Masked, hide
from lsr_prod.training.rng import draw

_WORD = 14  # purpose of random numbers

Words = npt.NDArray[np.int32]
"""int32 [w, 3]: start, end (exclusive) and output term of each word of a text that is an output term."""

Which = Literal["all", "first", "later"]


def masked_count(words: int, share: float) -> int:
    """Return the number of masked words of a text: ``share`` of them, rounded, at least one."""
    return max(1, int(share * words + 0.5))


def mask_words(
    input_ids: npt.NDArray[np.int64],
    words: Sequence[Words],
    rows: npt.NDArray[np.int64],
    *,
    share: float,
    seed: int,
    step: int,
    mask_id: int,
    ordinary: npt.NDArray[np.int64],
    masked: Which = "all",
    labelled: Literal["all", "first"] = "all",
    always: bool = False,
) -> Masked:
    """Choose words and mask their sub-tokens.

    Returns:
        The masked batch; labels are output terms.
    """
    groups = np.full(input_ids.shape, -1, np.int64)
    places: list[int] = []
    labels: list[int] = []
    for text, (spans, row) in enumerate(zip(words, rows.tolist(), strict=True)):
        for word in _chosen(len(spans), share, seed, step, row):
            first, end, term = spans[word].tolist()
            start, stop = _masked_span(first, end, masked)
            groups[text, start:stop] = word
            last = min(start + 1, stop) if labelled == "first" else stop
            places += range(text * input_ids.shape[1] + start, text * input_ids.shape[1] + last)
            labels += [term] * (last - start)
    chosen = groups >= 0
    if always:
        hidden = np.where(chosen, mask_id, input_ids)
    else:
        hidden = hide(
            input_ids, chosen, rows, seed=seed, step=step, mask_id=mask_id, ordinary=ordinary, groups=groups
        )  # fmt: skip
    return Masked(hidden, np.array(places, np.int64), np.array(labels, np.int64))


def _chosen(words: int, share: float, seed: int, step: int, row: int) -> list[int]:
    """Return a random choice of a text's words, in increasing order."""
    if not words:
        return []
    order = np.argsort(draw(seed, _WORD, step, row, np.arange(words)), kind="stable")
    return sorted(order[: masked_count(words, share)].tolist())


def _masked_span(first: int, end: int, masked: Which) -> tuple[int, int]:
    if masked == "first":
        return first, first + 1
    return (first + 1, end) if masked == "later" else (first, end)
