"""Casing of output terms by the casing of the input tokens that activate them (papers/casing.txt, 5.2 and figure 2).

As in the authors' code, every pair of an input token and a term with a logit above 0 is counted, before pooling, and
special input tokens are skipped. The paper has two classes of output terms; special terms, which it counts as uncased,
are a class of their own here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, one_hot

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import cased_terms, surfaces
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.pooling import pad_rows
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.training.data.layouts import TextForm, TokenSettings

CLASSES = ("uncased", "cased", "special")
"""Classes of output terms; the first two are those of input tokens."""

_INPUTS = CLASSES[:2]
_BATCH = 32
_LOGITS = 1 << 22  # logits that are computed at once


@dataclass(frozen=True, slots=True)
class CasingMatrix:
    """Counts of pairs of an input token and an output term that it activates, by the casing of both."""

    counts: NDArray[np.int64]  # int64 [2, 3], input token x output term, in the order of ``CLASSES``
    texts: int  # texts that were encoded

    def by_class(self) -> dict[str, dict[str, int]]:
        """Return ``{input: {output: count}}``."""
        return {
            source: dict(zip(CLASSES, counts, strict=True))
            for source, counts in zip(_INPUTS, self.counts.tolist(), strict=True)
        }

    def save(self, path: Path) -> None:
        """Write ``{"texts": ..., "counts": {input: {output: count}}}``."""
        content = json.dumps({"texts": self.texts, "counts": self.by_class()}, indent=2)
        write_file(path, f"{content}\n".encode())

    def draw(self, path: Path, title: str = "") -> None:
        """Draw the absolute counts, as in the paper; the class ``special`` is left out if it has no counts."""
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise ConfigError(
                "picture", "matplotlib is not installed", "install it with: pip install matplotlib"
            ) from error
        figure = Figure(figsize=(1.6 * len(self.terms) + 1.5, 1.2 * len(_INPUTS) + 1.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        self.draw_on(axes, self.terms)
        axes.set_xlabel("output term")
        axes.set_ylabel("input token")
        axes.set_title(title)
        figure.savefig(path, dpi=150)

    @property
    def terms(self) -> Sequence[str]:
        """Classes of output terms that have counts; ``special`` rarely has."""
        return CLASSES if self.counts[:, 2].any() else CLASSES[:2]

    def draw_on(self, axes: Any, terms: Sequence[str] = CLASSES[:2]) -> None:
        """Draw the absolute counts on axes of matplotlib, colored by their logarithm."""
        counts = self.counts[:, : len(terms)]
        axes.imshow(np.log10(counts + 1), cmap="Blues", vmin=0)
        axes.set_xticks(range(len(terms)), terms)
        axes.set_yticks(range(len(_INPUTS)), _INPUTS)
        darkest = np.log10(counts.max() + 1)
        for (row, column), count in np.ndenumerate(counts):
            dark = np.log10(count + 1) > 0.6 * darkest
            axes.text(column, row, f"{count:,}", ha="center", va="center", color="white" if dark else "black")


@torch.inference_mode()
def casing_matrix(encoder: SparseEncoder, texts: Sequence[str], kind: Kind = "query") -> CasingMatrix:
    """Count the terms that every token of the texts activates, before pooling; special tokens are skipped."""
    if encoder.card.pooled_states == "mean":
        raise ConfigError(
            "model",
            "it averages its hidden states, so no term comes from a single token",
            "use a model that pools tokens",
        )
    if encoder.heads is not None:
        raise ConfigError("model", "it pools appended tokens only", "use a model that pools the tokens of the text")
    if encoder.card.output_casing == "uncased":
        raise ConfigError("model", "its output is always uncased", "use the model with output_casing all")
    tokenizer = encoder.tokenizer
    special = set(tokenizer.all_special_tokens)
    tokens = torch.from_numpy(_classes(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))), special))
    terms = torch.from_numpy(_classes(encoder.vocabulary, special))
    form = TextForm(encoder.card.prompt(kind), encoder.card.max_length(kind))
    rows = TokenSettings(tokenizer.backend_tokenizer.to_str(), form, form).token_ids(texts, form)
    counts = torch.zeros(len(_INPUTS), len(CLASSES), dtype=torch.int64)
    encoder.eval()
    for start in range(0, len(rows), _BATCH):
        ids, mask = pad_rows(rows[start : start + _BATCH], encoder.model.config.pad_token_id or 0)
        states, pooled = encoder.pooled_states(ids, mask)
        counted = pooled & (tokens[ids] != CLASSES.index("special"))
        counts.index_add_(0, tokens[ids[counted]], _active_terms(encoder, states[counted], terms))
    return CasingMatrix(counts.numpy(), len(texts))


def _active_terms(encoder: SparseEncoder, states: Tensor, terms: Tensor) -> Tensor:
    """Return the number of terms of each class that every token activates.

    Returns:
        int64 [n, 3].
    """
    matrix, bias = output_layer(encoder.model)
    classes = one_hot(terms, len(CLASSES)).float()  # [V, 3]; float32 counts V terms exactly
    rows = max(1, _LOGITS // len(matrix))
    blocks = (states[start : start + rows] for start in range(0, len(states), rows))
    active = [(linear(block, matrix, bias) > 0).float() @ classes for block in blocks]
    return torch.cat([classes[:0], *active]).long()


def _classes(terms: Sequence[str], special: set[str]) -> NDArray[np.int64]:
    """Return the position of each term's class in ``CLASSES``."""
    places = (surface.place for surface in surfaces(terms))
    return np.array(
        [
            2 if place == "special" or term in special else int(is_cased)
            for term, place, is_cased in zip(terms, places, cased_terms(terms), strict=True)
        ]
    )
