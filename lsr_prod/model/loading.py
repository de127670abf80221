"""Loading of an encoder from a model directory, a sentence-transformers folder, a language model, or an id.

Weights are read from safetensors only and no code of the model is run: pickle files are never opened.
"""

import logging
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import lowercases
from lsr_prod.logs import get_log
from lsr_prod.model import appended_heads, card_update, layout_reader, model_card, static_queries, tokenizer_files
from lsr_prod.model.autoencoder import add_autoencoder, autoencoder_of, latent_terms
from lsr_prod.model.backbone import ARCHITECTURES, HEADLESS, check_architecture, is_causal, output_layer, rename_head
from lsr_prod.model.directory import ModelParts, model_digest
from lsr_prod.model.output_layer import OUTPUT_LAYER_FILE, load_output_layer, output_layer_names, read_output_vocabulary
from lsr_prod.model.token_weights import has_sparse_linear, read_backbone
from lsr_prod.storage.formats import digests, term_weights
from lsr_prod.storage.formats.bundle_format import CARD_FILE, QUERY_FOLDER, TOKENIZER_FILE, EncoderCard, longest_input

log = get_log(__name__)

# The files of a Hugging Face repository that are fetched; no pickle files, except those of BGE-M3.
_FETCHED = ["*.json", "*.txt", "*.model", "*.safetensors", "README.md", "sparse_linear.pt"]
_QUERY_LENGTH, _DOCUMENT_LENGTH = 64, 256
_TOKEN_WEIGHTS_LENGTH = 512  # FlagEmbedding's default for queries and passages
_REMEDY = "give a language model with its vocabulary head"
_UNREAD = "copy it again if it is damaged, else it needs code of its folder, which is not run, or a newer transformers"


def read_query_parts(folder: Path, overrides: Mapping[str, Any]) -> ModelParts | None:
    """Read the parts of a separate query encoder; None: the folder has none."""
    if (folder / QUERY_FOLDER / CARD_FILE).is_file():
        return read_parts(folder / QUERY_FOLDER, overrides)
    if (folder / CARD_FILE).is_file() or has_sparse_linear(folder):
        return None
    settings = layout_reader.read_sentence_transformers(folder)
    if settings is None or not isinstance(settings.queries, layout_reader.SentenceTransformersFolder):
        return None
    return read_parts(folder, overrides, settings.queries)


def read_parts(
    folder: Path, overrides: Mapping[str, Any], route: layout_reader.SentenceTransformersFolder | None = None
) -> ModelParts:
    """Read the parts of an encoder: that of the whole folder, or the one that ``route`` describes."""
    card = EncoderCard.load(folder) if route is None and (folder / CARD_FILE).is_file() else None
    token_weights = has_sparse_linear(folder) if card is None else card.head == "token_weights"
    # Without its folder, a separate query encoder is reported missing by ``SparseEncoder``.
    alone = card is not None and card.query_encoder == "separate" and not (folder / QUERY_FOLDER).is_dir()
    settings = None if token_weights or alone else route or layout_reader.read_sentence_transformers(folder)
    weights = folder / settings.weights if settings else layout_reader.parts_folder(folder)
    autoencoder = settings.autoencoder if settings else None
    if token_weights:
        model = read_backbone(folder, _read_config(folder))
    else:
        model = _read_model(weights, dense=autoencoder is not None)
    words = query_weights = heads = None
    if autoencoder is not None:
        add_autoencoder(model, folder / autoencoder)
        words = latent_terms(len(autoencoder_of(model).bias))
    # FlagEmbedding uses tokenizer.json as it is; the class of XLM-RoBERTa in transformers would rebuild its rules.
    as_it_is = token_weights and (folder / TOKENIZER_FILE).is_file()
    tokenizer = tokenizer_files.read_tokenizer(weights, PreTrainedTokenizerFast if as_it_is else None)
    if card is not None:
        query_weights = _read_query_weights(folder, card)
        if card.output_vocabulary == "words":
            words = read_output_vocabulary(folder)
        rows = int(model.config.vocab_size) if token_weights or words else len(output_layer(model)[0])
        terms = words or output_vocabulary(tokenizer, rows)
        if card.appended_tokens:
            heads = appended_heads.load_appended_heads(folder, len(terms), card.appended_tokens)
        if card.vocabulary_sha256 != digests.digest_json(card_update.output_terms(terms, card.output_casing)):
            raise ConfigError(
                "source", f"the tokenizer of {folder} does not match the output vocabulary of its card", "save it again"
            )
        if settings is not None:
            _check_unchanged(folder, ModelParts(model, tokenizer, card, words, query_weights), settings)
    else:
        if is_causal(type(model).__name__):
            tokenizer_files.prepend_start_token(tokenizer, model.config)
        terms = words or output_vocabulary(tokenizer, int(model.config.vocab_size))
        card = _new_card(model, tokenizer, terms, parent=model_digest(folder))
        _keep_license(model.config, folder)
        if token_weights:
            card = _with_token_weights(card, model.config)
        elif settings is not None:
            card = _with_settings(card, model.config, tokenizer, settings)
            if isinstance(settings.queries, str):
                card, query_weights = static_queries.read_static_queries(folder / settings.queries, card, tokenizer)
        else:
            _log_lengths(card, overrides, longest_input(model.config.to_dict()))
    changed = card_update.update_card(card, overrides, model.config, tokenizer, terms)
    return ModelParts(model, tokenizer, changed, words, kept_query_weights(query_weights, card, changed), heads)


def _keep_license(config: PreTrainedConfig, folder: Path) -> None:
    """Keep the license of a model in its configuration, which every model that is made from it has too."""
    name = model_card.source_license(folder)
    if name is None:
        return
    setattr(config, model_card.LICENSE, name)
    if model_card.is_non_commercial(name):
        log.warning("the license of the model forbids commercial use", extra={"fields": {"license": name}})


def kept_query_weights(weights: torch.Tensor | None, card: EncoderCard, changed: EncoderCard) -> torch.Tensor | None:
    """Return the weights of query terms after a change of the card, float32 [V]; None: they belong to the old one."""
    same = (card.query_encoder, card.vocabulary_sha256) == (changed.query_encoder, changed.vocabulary_sha256)
    return weights if same else None


def _read_query_weights(folder: Path, card: EncoderCard) -> torch.Tensor | None:
    """Return the weights of query terms of a model directory, float32 [V]; None: there are none."""
    path = folder / term_weights.QUERY_WEIGHTS_FILE
    if not card.inference_free or not path.is_file():
        return None
    return torch.from_numpy(term_weights.weights_from_bytes(path.read_bytes(), card.vocabulary_size, str(path)))


def _check_unchanged(folder: Path, parts: ModelParts, settings: layout_reader.SentenceTransformersFolder) -> None:
    """Refuse a model directory in which sentence-transformers saved other settings or query weights than the card's."""
    model, tokenizer, card, _, query_weights, _ = parts
    saved, queries = _with_settings(card, model.config, tokenizer, settings), settings.queries
    names = ["casing", "document_max_length", "document_prompt", *settings.head]
    if card.query_encoder != "separate":
        names += ["query_prompt", "query_max_length"][: 1 if settings.query_max_length is None else 2]
    if isinstance(queries, str) and card.inference_free:
        saved, weights = static_queries.read_static_queries(folder / queries, saved, tokenizer)
        same = torch.equal(weights, static_queries.static_weights(card, tokenizer, query_weights))
        names.append("query_max_length")
    else:
        same = not (card.inference_free or isinstance(queries, str) or (queries and queries.weights != QUERY_FOLDER))
    changed = [name for name in names if getattr(saved, name) != getattr(card, name)] + ["query encoder"][same:]
    if changed:
        raise ConfigError(
            "source",
            f"sentence-transformers saved other values in {folder} than those of its card ({', '.join(changed)})",
            f"delete every {CARD_FILE} and {term_weights.QUERY_WEIGHTS_FILE} there to load them, or save with lsr_prod",
        )


def output_vocabulary(tokenizer: PreTrainedTokenizerFast, size: int) -> list[str]:
    """Return the ``size`` output terms; a row without a token (padding of the matrix) is named ``[no token i]``."""
    terms = [f"[no token {i}]" for i in range(size)]
    for token, i in tokenizer.get_vocab().items():
        if i < size:
            terms[i] = token
    return terms


def local_folder(source: str | Path) -> Path:
    """Return the folder at a path, or that of a Hugging Face id, which is fetched unless it is cached."""
    path = Path(source)
    if path.is_dir():
        return path
    text = str(source)
    if isinstance(source, Path) or path.exists() or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise ConfigError("source", f"there is no folder at {source}", "give a folder of a language model")
    try:
        fetched = Path(snapshot_download(text, allow_patterns=_FETCHED))
        if has_sparse_linear(fetched) and not (fetched / "model.safetensors").is_file():
            fetched = Path(snapshot_download(text, allow_patterns=[*_FETCHED, "pytorch_model.bin"]))
        return fetched
    except (HFValidationError, RepositoryNotFoundError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            "source",
            f"{text} is neither a folder nor a Hugging Face id that can be fetched ({type(error).__name__})",
            "give a folder, or an id whose files are cached or reachable",
        ) from error


def _read_model(folder: Path, *, dense: bool) -> PreTrainedModel:
    """Read a language model with its head, or with ``dense`` the backbone without head and pooling layer."""
    config = _read_config(folder)
    name = _architecture(config, dense=dense)
    check_architecture(name, field="source", allowed=HEADLESS if dense else ARCHITECTURES)
    _repair_padding(config)
    renamed = rename_head(config)
    own = (folder / OUTPUT_LAYER_FILE).is_file()
    config.tie_word_embeddings |= own  # the layer is replaced below; tied, it needs no memory until then
    loader: Any = AutoModel if dense else AutoModelForCausalLM if is_causal(name) else AutoModelForMaskedLM
    try:
        with without_load_report(), tokenizer_files.readable(folder, "the weights"):
            model, report = loader.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
                key_mapping=renamed,
            )
    except OSError as error:
        raise _without_safetensors(folder, loader.__name__) from error
    assert isinstance(model, PreTrainedModel)
    missing = set(report["missing_keys"]) - (output_layer_names(model) if own else set())
    if dense:
        missing = {key for key in missing if not key.startswith("pooler.")}
        if hasattr(model, "pooler"):
            setattr(model, "pooler", None)  # noqa: B010 - of no use here; often it has no trained weights
    if missing:
        raise ConfigError(
            "source", f"{folder} has no weights for {', '.join(sorted(missing)[:3])}: its head is not trained", _REMEDY
        )
    if own:
        load_output_layer(folder, model)
    if is_causal(name):
        # Generation settings are not used, and some published ones cannot be saved.
        model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return model


def _without_safetensors(folder: Path, loader: str) -> ConfigError:
    if (folder / "adapter_config.json").is_file():
        problem = f"{folder} has an adapter (adapter_config.json), which is not read"
        return ConfigError("source", problem, "merge it into its model first, or delete the file if it is not in use")
    place = made = str(folder)
    if folder.parent.name == "snapshots":  # of an id: its pickle files were not fetched
        place = folder.parents[1].name.removeprefix("models--").replace("--", "/")
        made = place.rpartition("/")[2]
    elif not any(folder.glob("pytorch_model*.bin")):
        return ConfigError("source", f"{folder} has no model.safetensors", "convert its weights to safetensors")
    code = f"from transformers import {loader} as M; M.from_pretrained({place!r}).save_pretrained({made!r})"
    return ConfigError(
        "source",
        f"{place} has no model.safetensors, and pickle files (pytorch_model.bin) are never loaded",
        f"if you trust them, convert them to safetensors with: python -c {shlex.quote(code)}",
    )


def _read_config(folder: Path) -> PreTrainedConfig:
    try:
        with tokenizer_files.readable(folder, "config.json", _UNREAD):
            config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except OSError as error:
        raise ConfigError("source", f"{folder} has no config.json that transformers can read", _REMEDY) from error
    return config


def _repair_padding(config: PreTrainedConfig) -> None:
    """Remove a padding token without an embedding, as some decoders have; padding is masked, so any token works."""
    padding = config.pad_token_id
    if padding is not None and not 0 <= padding < config.vocab_size:
        config.pad_token_id = None


@contextmanager
def without_load_report() -> Iterator[None]:
    """Silence the warning of transformers about missing weights: they raise an error here, or are in another file."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _architecture(config: PreTrainedConfig, *, dense: bool) -> str:
    """Return the class name of the language model of a configuration, or its model type if there is none."""
    with_head: tuple[Any, ...] = (MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING)
    backbone: Any = MODEL_MAPPING
    for known in (backbone,) if dense else with_head:
        if type(config) in known:
            return str(known[type(config)].__name__)
    return f"the model type {config.model_type}"


def _new_card(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, terms: list[str], parent: str) -> EncoderCard:
    longest, name = longest_input(model.config.to_dict()), type(model).__name__
    return EncoderCard(
        architecture=name,
        vocabulary_size=len(terms),
        vocabulary_sha256=digests.digest_json(terms),
        casing="lowercase" if lowercases(tokenizer.backend_tokenizer) else "none",
        query_max_length=min(_QUERY_LENGTH, longest),
        document_max_length=min(_DOCUMENT_LENGTH, longest),
        pooled_tokens="not_bos" if is_causal(name) else "all",
        attention="causal" if is_causal(name) else "bidirectional",
        parents=(parent,),
    )


def _log_lengths(card: EncoderCard, overrides: Mapping[str, Any], longest: int) -> None:
    lengths = {"query_max_length": card.query_max_length, "document_max_length": card.document_max_length}
    short = {name: length for name, length in lengths.items() if name not in overrides and length < longest}
    if short:
        log.warning(
            "the default lengths cut texts that the model takes", extra={"fields": {**short, "longest": longest}}
        )


def _with_token_weights(card: EncoderCard, config: PreTrainedConfig) -> EncoderCard:
    length = min(_TOKEN_WEIGHTS_LENGTH, longest_input(config.to_dict()))
    return replace(card, query_max_length=length, document_max_length=length, activation="relu", head="token_weights")


def _with_settings(
    card: EncoderCard,
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    settings: layout_reader.SentenceTransformersFolder,
) -> EncoderCard:
    """Return the card with the settings of sentence-transformers; lowercasing is added to the tokenizer, in place."""
    longest = longest_input(config.to_dict())
    most = min(tokenizer.model_max_length, longest)
    if settings.lowercase and card.casing == "none":
        card_update.add_lowercase(tokenizer)
    separate = isinstance(settings.queries, layout_reader.SentenceTransformersFolder)
    return replace(
        card,
        casing="lowercase" if settings.lowercase else card.casing,
        query_max_length=min(settings.query_max_length or most, longest),
        document_max_length=min(settings.document_max_length or most, longest),
        query_prompt="" if separate else settings.query_prompt,
        document_prompt=settings.document_prompt,
        query_encoder="separate" if separate else "model",
        **settings.head,
    )
