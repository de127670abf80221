"""Reading an encoder: a model directory, a sentence-transformers folder, a plain masked language model, or an id.

Weights come from safetensors only and no code of a source is ever run: a pickle in a folder stays closed.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from tokenizers import Tokenizer, normalizers
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from lsr_prod.errors import ConfigError
from lsr_prod.formats.card import CARD_FILE, EncoderCard
from lsr_prod.formats.digest import digest_json
from lsr_prod.model.backbone import check_architecture
from lsr_prod.model.directory import model_digest
from lsr_prod.model.peer import PeerFolder, read_peer_folder

__all__ = ["output_vocabulary", "read_source"]

log = logging.getLogger(__name__)

# What an encoder can be made of; above all no pickle.
_FETCHED = ["*.json", "*.txt", "*.model", "*.safetensors"]
_SETTABLE = (
    "casing",
    "query_max_length",
    "document_max_length",
    "query_prompt",
    "document_prompt",
    "activation",
    "pooled_tokens",
)
_CHOICES = {
    "casing": ("none", "lowercase"),
    "activation": ("log1p_relu", "l0"),
    "pooled_tokens": ("all", "not_bos"),
}
_QUERY_LENGTH, _DOCUMENT_LENGTH = 64, 256
_REMEDY = "give a masked language model with its vocabulary head"


def read_source(
    source: str | Path, overrides: Mapping[str, Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, EncoderCard]:
    """Read model, tokenizer and card.

    Args:
        source: folder or Hugging Face id, see ``SparseEncoder.load``.
        overrides: fields of the encoder card to set.

    Raises:
        ConfigError: nothing loadable is there, it has no trained vocabulary head, or an override is impossible.
    """
    folder = _local_folder(source)
    peer = read_peer_folder(folder)
    weights = folder / peer.weights if peer else folder
    model = _read_model(weights)
    tokenizer = _read_tokenizer(weights)
    longest = _longest_input(model.config)
    if (folder / CARD_FILE).is_file():
        card = EncoderCard.load(folder)
        if card.vocabulary_sha256 != digest_json(output_vocabulary(tokenizer, card.vocabulary_size)):
            raise ConfigError(
                "source", f"the tokenizer of {folder} is not its card's output vocabulary", "save it again"
            )
    else:
        card = _new_card(model.config, tokenizer, peer, longest, parent=model_digest(folder))
    card = _override(card, overrides, tokenizer, longest)
    return model, tokenizer, card


def output_vocabulary(tokenizer: PreTrainedTokenizerFast, size: int) -> list[str]:
    """The ``size`` output terms; an output without a token (a padded matrix) is called ``[no token i]``."""
    terms = [f"[no token {i}]" for i in range(size)]
    for token, i in tokenizer.get_vocab().items():
        if i < size:
            terms[i] = token
    return terms


def _local_folder(source: str | Path) -> Path:
    path = Path(source)
    if path.is_dir():
        return path
    text = str(source)
    if isinstance(source, Path) or path.exists() or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise ConfigError("source", f"there is no folder at {source}", "give a folder of a masked language model")
    try:
        return Path(snapshot_download(text, allow_patterns=_FETCHED))
    except (HFValidationError, RepositoryNotFoundError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            "source",
            f"{text} is neither a folder nor a Hugging Face id that can be fetched ({type(error).__name__})",
            "give a folder, or an id whose files are cached or reachable",
        ) from error


def _read_model(folder: Path) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError("source", f"{folder} has no config.json that transformers reads", _REMEDY) from error
    check_architecture(_architecture(config), field="source")
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            folder,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except OSError as error:
        raise ConfigError(
            "source", f"{folder} has no model.safetensors", "convert its weights to safetensors"
        ) from error
    if report["missing_keys"]:
        raise ConfigError(
            "source",
            f"{folder} has no weights for {', '.join(sorted(report['missing_keys'])[:3])}: its head is not trained",
            _REMEDY,
        )
    assert isinstance(model, PreTrainedModel)
    return model


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError("source", f"{folder} has no tokenizer", "add its tokenizer.json") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError("source", f"the tokenizer of {folder} has no tokenizer.json", "convert it to a fast one")
    return tokenizer


def _architecture(config: PreTrainedConfig) -> str:
    """Class name of the masked language model that a configuration belongs to, or its model type if it has none."""
    known: Any = MODEL_FOR_MASKED_LM_MAPPING
    return str(known[type(config)].__name__) if type(config) in known else f"the model type {config.model_type}"


def _longest_input(config: PreTrainedConfig) -> int:
    positions = int(config.max_position_embeddings)
    if config.model_type == "roberta":
        positions -= config.pad_token_id + 1  # its positions start behind the padding index
    return positions


def _new_card(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, peer: PeerFolder | None, longest: int, parent: str
) -> EncoderCard:
    size = int(config.vocab_size)
    card = EncoderCard(
        architecture=_architecture(config),
        vocabulary_size=size,
        vocabulary_sha256=digest_json(output_vocabulary(tokenizer, size)),
        casing="lowercase" if _lowercases(tokenizer.backend_tokenizer) else "none",
        query_max_length=min(_QUERY_LENGTH, longest),
        document_max_length=min(_DOCUMENT_LENGTH, longest),
        parents=(parent,),
    )
    if peer is None:
        return card
    length = min(peer.max_length or tokenizer.model_max_length, longest)
    if peer.lowercase and card.casing == "none":
        _add_lowercase(tokenizer.backend_tokenizer)
    return replace(
        card,
        casing="lowercase" if peer.lowercase else card.casing,
        query_max_length=length,
        document_max_length=length,
        query_prompt=peer.query_prompt,
        document_prompt=peer.document_prompt,
        activation=peer.activation,
    )


def _override(
    card: EncoderCard, overrides: Mapping[str, Any], tokenizer: PreTrainedTokenizerFast, longest: int
) -> EncoderCard:
    for name in overrides:
        if name not in _SETTABLE:
            raise ConfigError(name, "this field of the encoder card cannot be set", f"set {', '.join(_SETTABLE)}")
        if name in _CHOICES and overrides[name] not in _CHOICES[name]:
            raise ConfigError(name, f"{overrides[name]!r} is unknown", f"use one of {', '.join(_CHOICES[name])}")
    changed = replace(card, **overrides)
    shortest = tokenizer.num_special_tokens_to_add() + 1
    for name in ("query_max_length", "document_max_length"):
        if not shortest <= getattr(changed, name) <= longest:
            raise ConfigError(
                name, f"{getattr(changed, name)} is no length of this model", f"give {shortest} to {longest} tokens"
            )
    if changed.casing != card.casing:
        if changed.casing == "none":
            raise ConfigError("casing", "the tokenizer lowercases already", "leave the field out")
        _add_lowercase(tokenizer.backend_tokenizer)
    return changed


def _lowercases(backend: Tokenizer) -> bool:
    normalizer = json.loads(backend.to_str())["normalizer"]
    steps = [normalizer, *((normalizer or {}).get("normalizers", []))]
    return any(step and (step["type"] == "Lowercase" or step.get("lowercase") is True) for step in steps)


def _add_lowercase(backend: Tokenizer) -> None:
    steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
    backend.normalizer = normalizers.Sequence(steps)
