"""The model directory: weights, tokenizer and encoder card in the layout of sentence-transformers' SparseEncoder.

::

    <model>/
      encoder_card.json                       the card: all that lsr_prod needs in addition to weights and tokenizer
      config.json  model.safetensors          as transformers writes them
      tokenizer.json  tokenizer_config.json
      modules.json  sentence_bert_config.json config_sentence_transformers.json  1_SpladePooling/config.json
      output_layer.safetensors  output_vocabulary.json   of a separate output layer, see ``output_layer``
      query/                                  a separate query encoder: the same files again
      sparse_linear.safetensors               of a head of token weights, see ``token_weights``
      query_weights.npy                       learned weights of query terms, see ``formats.term_weights``

The files of sentence-transformers are left out if it cannot express the settings of the card.
The directory is written as a draft in the same parent folder and renamed, so it is either complete or absent.

Settings of an encoder in a folder of sentence-transformers' SparseEncoder.

Only JSON files are read; the package sentence-transformers is not needed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.card import CARD_FILE, QUERY_FOLDER, EncoderCard
from lsr_prod.formats.digest import digest_folder, digest_json
from lsr_prod.formats.term_weights import QUERY_WEIGHTS_FILE, weights_to_bytes
from lsr_prod.logs import get_log
from lsr_prod.model.backbone import is_causal
from lsr_prod.model.output_layer import (
    has_own_output_layer,
    save_output_layer,
    weights_without_output_layer,
    write_output_vocabulary,
)
from lsr_prod.model.token_weights import save_sparse_linear, weights_of_backbone
from lsr_prod.storage import is_remote
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.drafts import Draft, write_file
from lsr_prod.storage.folders import save_folder

log = get_log(__name__)
_MODULES = [
    ("", "sentence_transformers.sparse_encoder.modules.mlm_transformer.MLMTransformer"),
    ("1_SpladePooling", "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"),
]
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ModelParts(NamedTuple):
    """Parts of an encoder that a model directory stores."""

    model: PreTrainedModel  # a language model
    tokenizer: PreTrainedTokenizerFast  # its tokenizer
    card: EncoderCard  # the encoder card
    words: list[str] | None = None  # the output terms if they are not the tokenizer's tokens
    query_weights: Tensor | None = None  # float32 [V], learned weights of query terms; None: there are none


def write_model_directory(folder: Path, parts: ModelParts, queries: ModelParts | None = None) -> str:
    """Write a model directory atomically.

    Returns:
        Its digest (hex).
    """
    with Draft(folder) as draft:
        _write_parts(draft.folder, parts)
        if queries is not None:
            _write_parts(draft.folder / QUERY_FOLDER, queries)
        digest = model_digest(draft.folder)
        seal_directory(draft, field="output")
    return digest


def _write_parts(made: Path, parts: ModelParts) -> None:
    model, tokenizer, card, words, query_weights = parts
    token_weights = card.head == "token_weights"
    own = not token_weights and has_own_output_layer(model)
    inexpressible = _inexpressible(card, own=own)
    if inexpressible:
        log.warning("sentence-transformers cannot open this model", extra={"fields": inexpressible})
    elif card.pooled_tokens != "all":
        log.warning("sentence-transformers pools every token", extra={"fields": {"pooled_tokens": card.pooled_tokens}})
    saved = weights_without_output_layer(model) if own else weights_of_backbone(model) if token_weights else None
    model.save_pretrained(made, state_dict=saved)
    # safetensors creates its file readable by the owner only; the other files follow the umask.
    (made / "model.safetensors").chmod((made / "config.json").stat().st_mode)
    write_tokenizer(made, tokenizer, card)
    if own:
        save_output_layer(made, model)
    if token_weights:
        save_sparse_linear(made, model)
    if words is not None:
        write_output_vocabulary(made, words)
    if query_weights is not None:
        write_file(made / QUERY_WEIGHTS_FILE, weights_to_bytes(query_weights.numpy()))
    if not inexpressible:
        _write_sentence_transformers(made, card)
    write_file(made / CARD_FILE, card.to_bytes())


def model_digest(folder: Path) -> str:
    """Return the sha256 (hex) that names a model directory: it covers path and bytes of every file."""
    return digest_json([file.to_json() for file in digest_folder(folder)])


@contextmanager
def folder_to_save(place: str, options: Mapping[str, str] | None = None, *, field: str) -> Iterator[Path]:
    """Yield an empty folder that is stored at a path or URI when the block ends without an error."""
    if not is_remote(place):
        with Draft(Path(place)) as draft:
            yield draft.folder
            seal_directory(draft, field=field)
        return
    with scratch_folder() as scratch:
        yield scratch
        try:
            save_folder(scratch, place, options)
        except ArtifactError as error:
            raise ConfigError(field, str(error), "name a folder that does not exist") from error


def seal_directory(draft: Draft, *, field: str) -> None:
    """Seal the draft of a folder; a folder that already has the same content is kept."""
    if not draft.seal() and model_digest(draft.target) != model_digest(draft.folder):
        raise ConfigError(field, f"{draft.target} has other content", "name a folder that does not exist")


def write_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerFast, card: EncoderCard) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` that transformers 4 and 5 read alike.

    Tokenizer classes of one architecture rebuild the normalizer from their own arguments and would drop a change of
    casing; the generic class named here uses ``tokenizer.json`` unchanged.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    backend.save(str(folder / "tokenizer.json"))
    special = {name: getattr(tokenizer, name, None) for name in _SPECIAL_TOKENS}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": card.document_max_length,
            "model_input_names": list(tokenizer.model_input_names),
            "clean_up_tokenization_spaces": False,
            **{name: str(token) for name, token in special.items() if token is not None},
        },
    )


def _inexpressible(card: EncoderCard, *, own: bool) -> dict[str, str]:
    """Return the fields that sentence-transformers cannot express: with them it would compute other vectors."""
    fields = {
        "architecture": card.architecture if is_causal(card.architecture) else "",
        "pooled_states": card.pooled_states if card.pooled_states != "tokens" else "",
        "output_layer": "its own" if own else "",
        "output_casing": card.output_casing if card.output_casing != "all" else "",
        "query_encoder": card.query_encoder if card.query_encoder != "model" else "",
        "head": card.head if card.head != "vocabulary" else "",
    }
    return {name: value for name, value in fields.items() if value}


def _write_sentence_transformers(folder: Path, card: EncoderCard) -> None:
    modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(_MODULES)]
    _write_json(folder / "modules.json", modules)
    _write_json(
        folder / "1_SpladePooling" / "config.json",
        {
            "pooling_strategy": "max",
            "activation_function": "relu" if card.activation == "log1p_relu" else "log1p_relu",
            "embedding_dimension": card.vocabulary_size,
        },
    )
    _write_json(
        folder / "sentence_bert_config.json",
        {
            "transformer_task": "fill-mask",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "module_output_name": "token_embeddings",
        },
    )
    _write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "SparseEncoder",
            "prompts": {"query": card.query_prompt, "document": card.document_prompt},
            "default_prompt_name": None,
            "similarity_fn_name": "dot",
        },
    )


def _write_json(path: Path, value: Any) -> None:
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


_ACTIVATIONS: dict[str, Literal["log1p_relu", "l0"]] = {"relu": "log1p_relu", "log1p_relu": "l0"}


@dataclass(frozen=True, slots=True)
class SentenceTransformersFolder:
    """A SparseEncoder as sentence-transformers stores it."""

    weights: str  # folder of weights and tokenizer, relative to the whole folder
    max_length: int | None  # tokens of a query or document; None: the tokenizer's maximum
    lowercase: bool  # whether texts are lowercased before the tokenizer's own normalizer
    query_prompt: str  # text before a query
    document_prompt: str  # text before a document
    activation: Literal["log1p_relu", "l0"]  # as in the encoder card


def read_sentence_transformers(folder: Path) -> SentenceTransformersFolder | None:
    """Read ``modules.json`` and the files that it names; None if the folder has none."""
    if not (folder / "modules.json").is_file():
        return None
    listed = read_json(folder, "modules.json", list)
    if not all(isinstance(module, dict) and {"type", "path"} <= module.keys() for module in listed):
        raise _refuse(folder, "modules.json is not a list of modules with type and path")
    modules = [(str(module["type"]).rsplit(".", 1)[-1], str(module["path"])) for module in listed]
    if [kind for kind, _ in modules] not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        raise _refuse(folder, f"its modules are {', '.join(kind for kind, _ in modules)}")
    (_, weights), (_, pooling) = modules
    if any(path.startswith("/") or ".." in path.split("/") for path in (weights, pooling)):
        raise _refuse(folder, "a module is outside the folder")
    transformer = read_json(folder, f"{weights}/sentence_bert_config.json")
    head = read_json(folder, f"{pooling}/config.json")
    if head.get("pooling_strategy") != "max" or head.get("activation_function", "relu") not in _ACTIVATIONS:
        raise _refuse(folder, f"it pools by {head.get('pooling_strategy')} of {head.get('activation_function')}")
    settings = read_json(folder, "config_sentence_transformers.json")
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise _refuse(folder, "the prompts of config_sentence_transformers.json are not texts by name")
    length = transformer.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise _refuse(folder, f"its max_seq_length is {length!r}")
    return SentenceTransformersFolder(
        weights=weights,
        max_length=length,
        lowercase=bool(transformer.get("do_lower_case", False)),
        query_prompt=pick_prompt(prompts, ("query", default)),
        document_prompt=pick_prompt(prompts, ("document", "passage", "corpus", default)),
        activation=_ACTIVATIONS[head.get("activation_function", "relu")],
    )


def pick_prompt(prompts: dict[str, str], names: tuple[str | None, ...]) -> str:
    """Return the prompt with the first of some names; "" without any of them."""
    return next((prompts[name] for name in names if name in prompts), "")


def read_json(folder: Path, name: str, kind: type = dict) -> Any:
    """Return the content of a JSON file of a folder; an empty one if there is no such file."""
    path = folder / name
    if not path.is_file():
        return kind()
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:  # bytes that are not Unicode are a ValueError, too
        raise ConfigError("source", f"{path} is not JSON ({error})", "copy the folder of the model again") from error
    if not isinstance(value, kind):
        problem = f"{path} holds no {'list' if kind is list else 'object'}"
        raise ConfigError("source", problem, "copy the folder of the model again")
    return value


def _refuse(folder: Path, reason: str) -> ConfigError:
    return ConfigError(
        "source", f"{folder} is a sentence-transformers model, but {reason}", "give a SparseEncoder with max pooling"
    )
