"""Reading an encoder: a model directory, a sentence-transformers folder, a plain language model, or an id.

Weights come from safetensors only and no code of a source is ever run: a pickle in a folder stays closed.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from lsr_prod.errors import ConfigError
from lsr_prod.formats.bundle import TOKENIZER_FILE
from lsr_prod.formats.card import CARD_FILE, EncoderCard
from lsr_prod.formats.digest import digest_json
from lsr_prod.model.backbone import check_architecture, is_causal, output_layer
from lsr_prod.model.card_changes import add_lowercase, change_card, longest_input, output_terms
from lsr_prod.model.directory import model_digest
from lsr_prod.model.first_token import prepend_first_token
from lsr_prod.model.output_layer import (
    OUTPUT_LAYER_FILE,
    load_output_layer,
    output_layer_names,
    read_output_vocabulary,
)
from lsr_prod.model.peer import PeerFolder, read_peer_folder
from lsr_prod.terms.words import lowercases

__all__ = ["output_vocabulary", "read_source", "tokenizer_reader"]

log = logging.getLogger(__name__)

# What an encoder can be made of; above all no pickle.
_FETCHED = ["*.json", "*.txt", "*.model", "*.safetensors"]
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_QUERY_LENGTH, _DOCUMENT_LENGTH = 64, 256
_REMEDY = "give a language model with its vocabulary head"


def read_source(
    source: str | Path, overrides: Mapping[str, Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, EncoderCard, list[str] | None]:
    """Read model, tokenizer, card, and the terms of the head's rows where they are not the tokenizer's tokens.

    Args:
        source: folder or Hugging Face id, see ``SparseEncoder.load``.
        overrides: fields of the encoder card to set.

    Raises:
        ConfigError: nothing loadable is there, it has no trained vocabulary head, or an override is impossible.
        ArtifactError: it is a model directory that lacks a part.
    """
    folder = _local_folder(source)
    peer = read_peer_folder(folder)
    weights = folder / peer.weights if peer else folder
    model = _read_model(weights)
    tokenizer = _read_tokenizer(weights)
    words = None
    if (folder / CARD_FILE).is_file():
        card = EncoderCard.load(folder)
        words = read_output_vocabulary(folder) if card.output_vocabulary == "words" else None
        terms = output_vocabulary(tokenizer, len(output_layer(model)[0])) if words is None else words
        if card.vocabulary_sha256 != digest_json(output_terms(terms, card.output_casing)):
            raise ConfigError(
                "source", f"the tokenizer of {folder} is not its card's output vocabulary", "save it again"
            )
    else:
        if is_causal(type(model).__name__):
            prepend_first_token(tokenizer, model.config)
        card = _new_card(model.config, tokenizer, peer, parent=model_digest(folder))
        terms = output_vocabulary(tokenizer, card.vocabulary_size)
    return model, tokenizer, change_card(card, overrides, model.config, tokenizer, terms), words


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
        raise ConfigError("source", f"there is no folder at {source}", "give a folder of a language model")
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
    name = _architecture(config)
    check_architecture(name, field="source")
    _repair_padding(config)
    own = (folder / OUTPUT_LAYER_FILE).is_file()
    config.tie_word_embeddings |= own  # the architecture's own layer is replaced; until then it needs no memory
    loader: Any = AutoModelForCausalLM if is_causal(name) else AutoModelForMaskedLM
    try:
        with _without_load_report():
            model, report = loader.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except OSError as error:
        raise ConfigError(
            "source", f"{folder} has no model.safetensors", "convert its weights to safetensors"
        ) from error
    except SafetensorError as error:
        raise ConfigError("source", f"the weights of {folder} are damaged ({error})", "copy them again") from error
    assert isinstance(model, PreTrainedModel)
    missing = set(report["missing_keys"]) - (output_layer_names(model) if own else set())
    if missing:
        raise ConfigError(
            "source", f"{folder} has no weights for {', '.join(sorted(missing)[:3])}: its head is not trained", _REMEDY
        )
    if own:
        load_output_layer(folder, model)
    if is_causal(name):
        # Nothing is generated, and some published settings of it cannot be saved.
        model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return model


def _repair_padding(config: PreTrainedConfig) -> None:
    """Some decoders name a padding token that they have no embedding for; padding is masked, any other will do."""
    padding = config.pad_token_id
    if padding is not None and not 0 <= padding < config.vocab_size:
        config.pad_token_id = None


@contextmanager
def _without_load_report() -> Iterator[None]:
    """transformers lists missing weights as a warning; here they are an error, or come from another file."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    try:
        tokenizer = tokenizer_reader(folder).from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError("source", f"{folder} has no tokenizer", "add its tokenizer.json") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError("source", f"the tokenizer of {folder} has no tokenizer.json", "convert it to a fast one")
    return tokenizer


def tokenizer_reader(folder: Path) -> Any:
    """The class that reads a folder's tokenizer: the plain one where ``tokenizer.json`` is all there is to it.

    So it is in every model directory. transformers would build a Qwen2 model's tokenizer by the rules of Qwen2 whatever
    its own files say.
    """
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_bytes()) if path.is_file() else {}
    is_generic = settings.get("tokenizer_class") in _GENERIC and (folder / TOKENIZER_FILE).is_file()
    return PreTrainedTokenizerFast if is_generic else AutoTokenizer


def _architecture(config: PreTrainedConfig) -> str:
    """Class name of the language model that a configuration belongs to, or its model type if it has none."""
    masked: Any = MODEL_FOR_MASKED_LM_MAPPING
    causal: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    for known in (masked, causal):
        if type(config) in known:
            return str(known[type(config)].__name__)
    return f"the model type {config.model_type}"


def _new_card(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, peer: PeerFolder | None, parent: str
) -> EncoderCard:
    size, longest, name = int(config.vocab_size), longest_input(config), _architecture(config)
    card = EncoderCard(
        architecture=name,
        vocabulary_size=size,
        vocabulary_sha256=digest_json(output_vocabulary(tokenizer, size)),
        casing="lowercase" if lowercases(tokenizer.backend_tokenizer) else "none",
        query_max_length=min(_QUERY_LENGTH, longest),
        document_max_length=min(_DOCUMENT_LENGTH, longest),
        pooled_tokens="not_bos" if is_causal(name) else "all",
        attention="causal" if is_causal(name) else "bidirectional",
        parents=(parent,),
    )
    if peer is None:
        return card
    length = min(peer.max_length or tokenizer.model_max_length, longest)
    if peer.lowercase and card.casing == "none":
        add_lowercase(tokenizer)
    return replace(
        card,
        casing="lowercase" if peer.lowercase else card.casing,
        query_max_length=length,
        document_max_length=length,
        query_prompt=peer.query_prompt,
        document_prompt=peer.document_prompt,
        activation=peer.activation,
    )
