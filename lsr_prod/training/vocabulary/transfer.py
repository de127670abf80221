"""Transfer of a model to another vocabulary: new embeddings and head, all else stays (vocabulary-transfer, 4.2)."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import lowercases
from lsr_prod.model import SparseEncoder, backbone, loading, tokenizer_files
from lsr_prod.model.output_layer import add_output_bias, is_tied, output_layer_names, replace_output_layer
from lsr_prod.storage.formats import bundle_format, digests
from lsr_prod.training.vocabulary.initialization import Initialization

# Roles of special tokens in a model's configuration, and the special tokens that can fill them, in order.
_ROLES = {"pad": ("pad",), "bos": ("bos", "cls"), "eos": ("eos", "sep"), "cls": ("cls", "bos"), "sep": ("sep", "eos")}


def move_to_vocabulary(
    encoder: SparseEncoder, tokenizer: PreTrainedTokenizerFast, initialization: Initialization, bias: Tensor | None
) -> SparseEncoder:
    """Return the encoder with another tokenizer, whose tokens are its inputs and its output terms."""
    model, size = encoder.model, len(tokenizer)
    check_tokenizer(tokenizer)
    matrix, embeddings = backbone.output_layer(model)[0], _embeddings(model)
    moved: Any = _rebuilt(model, _config(model.config, tokenizer))
    with torch.no_grad():
        moved.get_input_embeddings().weight.copy_(initialization.rows(embeddings))
        if not is_tied(model):
            moved.get_output_embeddings().weight.copy_(initialization.rows(matrix))
    _set_bias(moved, bias)
    # The forward pass of a model without embeddings of token types refuses them.
    takes_types = int(getattr(moved.config, "type_vocab_size", 0) or 0) > 1
    tokenizer = copy.deepcopy(tokenizer)
    if backbone.is_causal(encoder.card.architecture):
        tokenizer_files.prepend_start_token(tokenizer, moved.config)
    if encoder.card.appended_tokens:
        tokenizer_files.append_tokens(tokenizer, moved.config, encoder.card.appended_tokens)
    tokenizer.model_input_names = ["input_ids", *(["token_type_ids"] if takes_types else []), "attention_mask"]
    card = replace(
        encoder.card,
        vocabulary_size=size,
        vocabulary_sha256=digests.digest_json(loading.output_vocabulary(tokenizer, size)),
        casing="lowercase" if lowercases(tokenizer.backend_tokenizer) else "none",
        output_vocabulary="tokenizer",
        output_casing="all",
    )
    return SparseEncoder(moved.eval(), tokenizer, card)


def replace_head(
    encoder: SparseEncoder, terms: Sequence[str], initialization: Initialization, bias: Tensor | None
) -> SparseEncoder:
    """Return the encoder with other output terms; tokenizer and input embeddings stay."""
    model: Any = copy.deepcopy(encoder.model)
    matrix, _ = backbone.output_layer(model)
    replace_output_layer(model, initialization.rows(matrix), bias)
    vocabulary = list(terms)
    card = replace(
        encoder.card,
        vocabulary_size=len(vocabulary),
        vocabulary_sha256=digests.digest_json(vocabulary),
        output_vocabulary="words",
        output_casing="all",
    )
    return SparseEncoder(model.eval(), encoder.tokenizer, card, vocabulary)


def check_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    """Refuse a tokenizer that cannot be the target of a transfer."""
    if tokenizer.pad_token_id is None:
        problem = "its tokenizer has no padding token"
        raise ConfigError("target", problem, "name one as pad_token in its tokenizer_config.json")
    if sorted(tokenizer.get_vocab().values()) != list(range(len(tokenizer))):
        raise ConfigError("target", "the ids of its tokens have gaps", "give a tokenizer that numbers them from 0")


def _embeddings(model: PreTrainedModel) -> Tensor:
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def _config(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
    """Return the configuration with the size and the special token ids of the new vocabulary."""
    config = copy.deepcopy(config)
    old_padding = config.pad_token_id
    config.vocab_size = len(tokenizer)
    for role, names in _ROLES.items():
        if hasattr(config, f"{role}_token_id"):
            ids = [getattr(tokenizer, f"{name}_token_id", None) for name in names]
            setattr(config, f"{role}_token_id", next((token for token in ids if token is not None), None))
    if config.model_type in bundle_format.POSITIONS_AFTER_PADDING:
        assert old_padding is not None
        config.max_position_embeddings += config.pad_token_id - old_padding
    return config


def _rebuilt(model: PreTrainedModel, config: PreTrainedConfig) -> PreTrainedModel:
    """Return a model of this configuration with the weights of ``model``, except those of the vocabulary."""
    with torch.random.fork_rng():
        fresh: Any = type(model)(config)
    old, new = model.state_dict(), fresh.state_dict()
    if config.model_type in bundle_format.POSITIONS_AFTER_PADDING:
        name = f"{model.base_model_prefix}.embeddings.position_embeddings.weight"
        old[name] = _shifted_positions(old[name], len(new[name]))
    vocabulary = _vocabulary_names(fresh)
    fresh.load_state_dict({name: old[name] for name in new if name not in vocabulary}, strict=False)
    fresh.tie_weights()
    found: PreTrainedModel = fresh
    return found


def _shifted_positions(positions: Tensor, size: int) -> Tensor:
    """Return the position embeddings with the last row at the new end: the first position follows the padding id."""
    moved = positions.new_zeros(size, positions.shape[1])
    kept = min(size, len(positions))
    moved[-kept:] = positions[-kept:]
    return moved


def _vocabulary_names(model: PreTrainedModel) -> set[str]:
    """Return the names of the parameters with one row per token, including second names of the same parameter."""
    weight = _embeddings(model)
    names = {name for name, value in model.named_parameters(remove_duplicate=False) if value is weight}
    return names | output_layer_names(model)


def _set_bias(model: PreTrainedModel, bias: Tensor | None) -> None:
    _, current = backbone.output_layer(model)
    if current is None and bias is not None:
        add_output_bias(model, bias)
    elif current is not None:
        with torch.no_grad():
            current.copy_(torch.zeros_like(current) if bias is None else bias)


def transfer_bias(source: Tensor, target: Tensor) -> Tensor:
    """Return the target's bias [V'], scaled to mean and deviation of the source's bias (eq. 10).

    It is the source's mean everywhere if all target values are equal.
    """
    wide, like = source.detach().double(), target.detach().double()
    spread = like.std(correction=0)
    scores = (like - like.mean()) / spread if spread > 0 else torch.zeros_like(like)
    return (wide.mean() + wide.std(correction=0) * scores).to(source.dtype)


def unigram_bias(counts: Sequence[int]) -> Tensor:
    """Return a bias for a vocabulary without one, float32 [V]: log of 1 + counts in texts, with mean 0 (ours)."""
    logs = torch.log1p(torch.tensor(counts, dtype=torch.float64))
    return (logs - logs.mean()).float()
