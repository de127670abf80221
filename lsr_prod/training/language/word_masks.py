"""Masks of expanded masked language modelling (papers/esplade-pretraining, appendix B.2).

A fixed count of a text's words is chosen, 15 % of those that are output terms and one at least. All sub-tokens of a
chosen word are masked, and what they have to predict is the word. The fate of a word (masked, random, unchanged) is one
for all its sub-tokens (ours).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from lsr_prod.training.language.token_masks import Masked, hide
from lsr_prod.training.rng import draw

__all__ = ["Words", "mask_words", "masked_count"]

_WORD = 14  # what a number is drawn for

Words = npt.NDArray[np.int32]
"""int32 [w, 3]: first position, the one behind the last, and output term of each word of a text that is one."""

Which = Literal["all", "first", "later"]


def masked_count(words: int, share: float) -> int:
    """How many of a text's words are masked: ``share`` of them, rounded, and one at least."""
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

    Args:
        input_ids: int64 [B, L].
        words: of each text, in their order.
        rows: int64 [B], number of each text in the training set.
        share: of a text's words that is chosen.
        seed: of the draw.
        step: the step.
        mask_id: the mask token.
        ordinary: int64 [n], tokens that a random one is drawn from.
        masked: sub-tokens of a chosen word that are masked: all, the first, or all but the first (3.2).
        labelled: masked sub-tokens that have to predict the word: all, or the first of a word.
        always: what is masked becomes the mask token always, as in a validation.

    Returns:
        The batch; labels are output terms.
    """
    groups = np.full(input_ids.shape, -1, np.int64)
    places: list[int] = []
    labels: list[int] = []
    for text, (spans, row) in enumerate(zip(words, rows.tolist(), strict=True)):
        for word in _chosen(len(spans), share, seed, step, row):
            first, behind, term = spans[word].tolist()
            start, stop = _masked_span(first, behind, masked)
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
    """The first of a text's words in a random order of their own, by rising place."""
    if not words:
        return []
    order = np.argsort(draw(seed, _WORD, step, row, np.arange(words)), kind="stable")
    return sorted(order[: masked_count(words, share)].tolist())


def _masked_span(first: int, behind: int, masked: Which) -> tuple[int, int]:
    if masked == "first":
        return first, first + 1
    return (first + 1, behind) if masked == "later" else (first, behind)
