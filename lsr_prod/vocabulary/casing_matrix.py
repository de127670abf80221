"""Casing of output terms by the casing of the input tokens that activate them (papers/casing.txt, 5.2 and figure 2)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lsr_prod.errors import ConfigError
from lsr_prod.formats.card import Kind
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.drafts import write_file
from lsr_prod.terms.casing import cased_terms
from lsr_prod.terms.surfaces import surfaces
from lsr_prod.training_data.tokens import TextForm, TokenSettings

__all__ = ["CLASSES", "CasingMatrix", "casing_matrix"]

CLASSES = ("uncased", "cased", "special")
_BATCH = 32


@dataclass(frozen=True, slots=True)
class CasingMatrix:
    """Counts of active output terms by the casing of the input token with their maximum and by their own casing.

    Attributes:
        counts: int64 [3, 3], input token x output term, in the order of ``CLASSES``.
        texts: texts that were encoded.
    """

    counts: NDArray[np.int64]
    texts: int

    def save(self, path: Path) -> None:
        """Write ``{"texts": ..., "counts": {input: {output: count}}}``."""
        rows = {
            source: {output: int(self.counts[i, j]) for j, output in enumerate(CLASSES)}
            for i, source in enumerate(CLASSES)
        }
        content = json.dumps({"texts": self.texts, "counts": rows}, indent=2)
        write_file(path, f"{content}\n".encode())

    def draw(self, path: Path, title: str = "") -> None:
        """Draw the absolute counts, as in the paper; the class ``special`` is left out if it has no counts.

        Raises:
            ConfigError: matplotlib is not installed.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise ConfigError(
                "picture", "matplotlib is not installed", "install it with: pip install matplotlib"
            ) from error
        shown = [i for i in range(len(CLASSES)) if i < 2 or self.counts[i].any() or self.counts[:, i].any()]
        names = [CLASSES[i] for i in shown]
        counts = self.counts[np.ix_(shown, shown)]
        figure = Figure(figsize=(1.6 * len(shown) + 1.5, 1.2 * len(shown) + 1.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.imshow(np.log10(counts + 1), cmap="Blues", vmin=0)
        axes.set_xticks(range(len(shown)), names)
        axes.set_yticks(range(len(shown)), names)
        axes.set_xlabel("output term")
        axes.set_ylabel("input token")
        axes.set_title(title)
        darkest = np.log10(counts.max() + 1)
        for (row, column), count in np.ndenumerate(counts):
            dark = np.log10(count + 1) > 0.6 * darkest
            axes.text(column, row, f"{count:,}", ha="center", va="center", color="white" if dark else "black")
        figure.savefig(path, dpi=150)


@torch.inference_mode()
def casing_matrix(encoder: SparseEncoder, texts: Sequence[str], kind: Kind = "query") -> CasingMatrix:
    """Count the active terms of texts; each term is attributed to the token that has its maximum.

    Args:
        encoder: any encoder that pools its tokens.
        texts: each with a visible character.
        kind: selects prompt and length; the paper uses queries.

    Raises:
        ConfigError: the encoder averages hidden states, so no term comes from a single token, or has no cased terms.
    """
    if encoder.card.pooled_states == "mean":
        raise ConfigError(
            "model",
            "it averages its hidden states, so no term comes from a single token",
            "use a model that pools tokens",
        )
    if encoder.card.output_casing == "uncased":
        raise ConfigError("model", "its output is always uncased", "use the model with output_casing all")
    tokenizer = encoder.tokenizer
    tokens = _classes(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))), set(tokenizer.all_special_tokens))
    terms = _classes(encoder.vocabulary, set(tokenizer.all_special_tokens))
    form = TextForm(encoder.card.prompt(kind), encoder.card.max_length(kind))
    rows = TokenSettings(tokenizer.backend_tokenizer.to_str(), form, form).token_ids(texts, form)
    counts = np.zeros((3, 3), dtype=np.int64)
    encoder.eval()
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        ids = np.full((len(some), max(map(len, some))), encoder.model.config.pad_token_id or 0)
        mask = np.zeros_like(ids)
        for i, row in enumerate(some):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        found = encoder.find_argmax(torch.from_numpy(ids), torch.from_numpy(mask))
        text, term = (part.numpy() for part in found.weights.nonzero(as_tuple=True))
        places = found.positions.numpy()[text, term].astype(np.int64)
        np.add.at(counts, (tokens[ids[text, places]], terms[term]), 1)
    return CasingMatrix(counts, len(texts))


def _classes(terms: Sequence[str], special: set[str]) -> NDArray[np.int64]:
    """Return the position of each term's class in ``CLASSES``."""
    places = (surface.place for surface in surfaces(terms))
    return np.array(
        [
            2 if place == "special" or term in special else int(is_cased)
            for term, place, is_cased in zip(terms, places, cased_terms(terms), strict=True)
        ]
    )
