"""Selection of the columns of the vocabulary head to compute: the terms that some text of a probe activates.

A column is *proven* dead if no hidden state can activate it: the input of the head is the output of a LayerNorm,
``gamma * z + beta`` with ``|z| <= sqrt(d)``, so the largest logit of term v is at most
``sqrt(d) * |gamma * w_v| + beta . w_v + b_v``. The other dead columns are only *observed* to be dead; the parity check
on other texts measures the loss of cutting them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lsr_prod.errors import ConfigError, ParityError
from lsr_prod.model import SparseEncoder, backbone
from lsr_prod.storage.formats import bundle_format, digests

_ROUNDING = 1e-3  # rounding error of float32 in a bound that holds for real numbers


def find_columns(encoder: SparseEncoder, texts: Sequence[str]) -> tuple[np.typing.NDArray[np.int64], bundle_format.Cut]:
    """Return the terms that the probe activates, as documents or as queries.

    Returns:
        The columns to keep, int64, sorted; and the record of the cut for the bundle.
    """
    active = _active(encoder, texts)
    if not active.any():
        raise ConfigError("export.probe_texts", "its texts activate no term", "give texts like those of the corpus")
    proven = int((_largest_logits(encoder) <= -_ROUNDING).sum())
    kept = np.flatnonzero(active)
    cut = len(active) - len(kept)
    return kept, bundle_format.Cut(
        kept=len(kept), cut=cut, proven=min(proven, cut), texts=len(texts), sha256=digests.digest_json(list(texts))
    )


def check_lost(
    encoder: SparseEncoder, texts: Sequence[str], columns: np.typing.NDArray[np.int64], *, most: float
) -> float:
    """Return the share of the terms of ``texts`` that a cut graph cannot return."""
    terms = np.concatenate([encoder.encode(texts, kind, batch_size=8).terms for kind in _kinds(encoder)])
    lost = float(np.mean(~np.isin(terms, columns))) if len(terms) else 0.0
    if lost > most:
        raise ParityError(
            f"{lost:.4f} of the active terms of {len(texts)} texts were active in none of export.probe_texts, more "
            f"than {most:.4f}; probe with more texts of the corpus, or export without a cut"
        )
    return lost


def _kinds(encoder: SparseEncoder) -> tuple[bundle_format.Kind, ...]:
    """Return the kinds of texts that the model encodes."""
    return ("document",) if encoder.card.inference_free else ("document", "query")


def _active(encoder: SparseEncoder, texts: Sequence[str]) -> np.typing.NDArray[np.bool_]:
    active = np.zeros(encoder.card.vocabulary_size, np.bool_)
    for kind in _kinds(encoder):
        for start in range(0, len(texts), 256):
            active[encoder.encode(texts[start : start + 256], kind, batch_size=8).terms] = True
    return active


@torch.inference_mode()
def _largest_logits(encoder: SparseEncoder) -> np.typing.NDArray[np.float64]:
    """Return an upper bound of every term's logit, [V]: the maximum over its rows in the head.

    The bounds are infinite if the input of the head is not the output of a LayerNorm.
    """
    model: Any = encoder.model
    head = model.get_output_embeddings()
    norm = _norm_before_output(encoder)
    if norm is None or norm.weight is None:
        return np.full(encoder.card.vocabulary_size, np.inf)
    weight = head.weight.double()  # [V, d]
    bound = weight.shape[1] ** 0.5 * (weight * norm.weight.double()).norm(dim=1)
    for bias, factor in ((norm.bias, weight), (head.bias, None)):
        if bias is not None:
            bound = bound + (bias.double() if factor is None else factor @ bias.double())
    result: np.typing.NDArray[np.float64] = encoder.fold(bound[None])[0].numpy()
    return result


def _norm_before_output(encoder: SparseEncoder) -> torch.nn.LayerNorm | None:
    """Return the LayerNorm whose output is the input of the output matrix, found by one forward pass."""
    outputs: list[tuple[torch.nn.LayerNorm, torch.Tensor]] = []

    def keep(module: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        assert isinstance(module, torch.nn.LayerNorm)
        outputs.append((module, output))

    hooks = [norm.register_forward_hook(keep) for norm in encoder.modules() if isinstance(norm, torch.nn.LayerNorm)]
    token = torch.zeros(1, 1, dtype=torch.int64, device=encoder.model.device)
    states = backbone.head_input(encoder.model, backbone.hidden_states(encoder.model, token, torch.ones_like(token)))
    for hook in hooks:
        hook.remove()
    return next((norm for norm, output in outputs if output is states), None)
