"""Queries of one stored weight per token, ``SparseStaticEmbedding`` of sentence-transformers: here, learned weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from lsr_prod import errors, logs
from lsr_prod.inference.terms.words import special_tokens
from lsr_prod.model import layout_reader, tokenizer_files
from lsr_prod.storage.formats.bundle_format import LONGEST, EncoderCard

log = logs.get_log(__name__)


def read_static_queries(
    folder: Path, card: EncoderCard, tokenizer: PreTrainedTokenizerFast
) -> tuple[EncoderCard, torch.Tensor]:
    """Return the card with the settings of ``SparseStaticEmbedding``, and its weights of query terms, float32 [V].

    Args:
        folder: folder of the module, with a tokenizer.
        card: card of the document encoder.
        tokenizer: tokenizer of documents.
    """
    settings = layout_reader.read_json(folder, "config.json")
    if others := settings.keys() - {"frozen"}:
        problem = f"{folder / 'config.json'} sets {', '.join(sorted(others))}"
        raise errors.ConfigError("source", problem, "load the model with sentence-transformers, and save it again")
    if settings.get("frozen"):
        log.warning("a finetune stage trains the frozen query weights unless query_weights.learning_rate_factor is 0")
    own = tokenizer_files.read_tokenizer(folder)
    if _rules(own) != _rules(tokenizer):
        raise errors.ConfigError(
            "source", f"{folder} has another tokenizer than the document encoder", "give a model with one tokenizer"
        )
    if not (folder / "model.safetensors").is_file():
        raise errors.ConfigError("source", f"{folder} has no model.safetensors", "copy it again")
    with tokenizer_files.readable(folder, "the weights"):
        weights = load_file(folder / "model.safetensors")["weight"].to(torch.float32)
    size = len(own.get_vocab())
    if weights.shape != (size,) or size > card.vocabulary_size or not (weights.isfinite() & (weights >= 0)).all():
        problem = f"the query weights of {folder} are not {size} finite numbers of 0 or more"
        raise errors.ConfigError("source", problem, "train or copy it again")
    backend = own.backend_tokenizer
    changed = replace(
        card,
        query_encoder="learned",
        query_special_tokens="weighted" if weights[sorted(special_tokens(backend))].any() else "skipped",
        # sentence-transformers cuts these queries without special tokens
        query_max_length=min(own.model_max_length + backend.num_special_tokens_to_add(False), LONGEST),
    )
    return changed, torch.nn.functional.pad(weights, (0, card.vocabulary_size - size))


def static_weights(
    card: EncoderCard, tokenizer: PreTrainedTokenizerFast, query_weights: torch.Tensor | None
) -> torch.Tensor:
    """Return the weights of ``SparseStaticEmbedding``, float32 [V], which are all 1 before training."""
    weights = torch.ones(card.vocabulary_size) if query_weights is None else query_weights.clone()
    if card.query_special_tokens == "skipped":
        special = special_tokens(tokenizer.backend_tokenizer)
        weights[sorted(number for number in special if number < len(weights))] = 0
    return weights


def _rules(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Return what decides the tokens of a text, apart from the special tokens around it."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: rules[name] for name in ("added_tokens", "model", "normalizer", "pre_tokenizer")}
