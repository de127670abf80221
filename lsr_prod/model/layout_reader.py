"""Settings of an encoder in a folder of sentence-transformers' SparseEncoder, in the layouts of versions 5 and 6.

Only JSON files are read; the package sentence-transformers is not needed. A setting that changes vectors is honored, or
the folder is refused: no setting is ignored in silence.

A folder has a transformer and ``SpladePooling``, a transformer, ``Pooling`` and ``SparseAutoEncoder`` (CSR), or a
``Router``: with the first two for documents, and for queries with those of another encoder, or with one weight per
token, ``SparseStaticEmbedding``.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log

log = get_log(__name__)

DOCUMENT_FOLDER = "document_0_Transformer"
"""Folder of weights and tokenizer in a model directory with other modules for queries."""
ROUTER_FILE = "router_config.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
TRANSFORMER: dict[str, Any] = {
    "transformer_task": "fill-mask",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "token_embeddings",
}
"""Settings of a transformer that returns the logits of its vocabulary head."""
DENSE_TRANSFORMER: dict[str, Any] = {
    **TRANSFORMER,
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}
"""Settings of a transformer that returns the states of its tokens."""
POOLED_STATES: dict[str, Literal["mean", "first"]] = {"mean": "mean", "cls": "first"}
"""Mode of Pooling -> ``pooled_states`` of the encoder card."""
ACTIVATIONS: dict[str, Literal["log1p_relu", "l0"]] = {"relu": "log1p_relu", "log1p_relu": "l0"}
"""Activation of SpladePooling -> activation of the encoder card."""

_FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
# Arguments of the library that loads a model; in them, only settings of speed are honored, because there is no other.
_ARGUMENTS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
_DENSE = ("Transformer", "Pooling")
_DEFAULT_K = 8  # of a SparseAutoEncoder
_SPEED = {"attn_implementation", "dtype", "torch_dtype", "trust_remote_code"}


Modules: TypeAlias = list[tuple[str, str]]
"""Class names of modules and their folders."""


def parts_folder(folder: Path) -> Path:
    """Return the folder of weights and tokenizer of a model directory, or of another folder of a model."""
    inner = folder / DOCUMENT_FOLDER
    return inner if inner.is_dir() else folder


@dataclass(frozen=True, slots=True)
class SentenceTransformersFolder:
    """A SparseEncoder as sentence-transformers stores it."""

    weights: str  # folder of weights and tokenizer, relative to the whole folder
    query_max_length: int | None  # tokens of a query; None: the tokenizer's maximum
    document_max_length: int | None  # tokens of a document; None: the tokenizer's maximum
    lowercase: bool  # whether texts are lowercased before the tokenizer's own normalizer
    query_prompt: str  # text before a query
    document_prompt: str  # text before a document
    head: Mapping[str, Any]  # fields of the encoder card
    autoencoder: str | None = None  # folder of the weights of a SparseAutoEncoder, relative
    # folder of the weights of query terms, relative; or another encoder; None: the model encodes queries
    queries: "str | SentenceTransformersFolder | None" = None


def read_sentence_transformers(folder: Path) -> SentenceTransformersFolder | None:
    """Read ``modules.json`` and the files that it names; None if the folder has none."""
    if not (folder / "modules.json").is_file():
        return None
    listed = read_json(folder, "modules.json", list)
    if not all(isinstance(module, dict) and {"type", "path"} <= module.keys() for module in listed):
        raise _refuse(folder, "modules.json is not a list of modules with type and path")
    modules = [_module(folder, module["type"], module["path"]) for module in listed]
    if [kind for kind, _ in modules] not in (["Router"], ["Asym"]):
        return _read_encoder(folder, modules)
    queries, documents = _read_routes(folder, modules[0][1])
    encoder = _read_encoder(folder, documents)
    if encoder.autoencoder is not None:
        raise _refuse(folder, "a route of its router has a SparseAutoEncoder")
    if [kind for kind, _ in queries] == ["SparseStaticEmbedding"]:
        if encoder.head["max_terms"] is not None:
            raise _refuse(folder, "its max_active_dims applies to a SparseStaticEmbedding, too")
        return replace(encoder, queries=queries[0][1])
    return encoder if queries == documents else replace(encoder, queries=_read_encoder(folder, queries))


def _read_encoder(folder: Path, modules: Modules) -> SentenceTransformersFolder:
    """Read the settings of a transformer and the modules after it."""
    kinds = [kind for kind, _ in modules]
    dense = kinds in (["Transformer", "Pooling", "SparseAutoEncoder"], [*_DENSE, "Normalize", "SparseAutoEncoder"])
    if not dense and kinds not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        raise _refuse(folder, f"its modules are {', '.join(kinds)}")
    standard = DENSE_TRANSFORMER if dense else TRANSFORMER
    task = None if kinds == ["Transformer", "SpladePooling"] else standard["transformer_task"]
    transformer = _read_transformer(folder, modules[0][1], standard, task)
    head = _read_latents(folder, modules) if dense else _read_pooling(folder, modules[1][1])
    query_prompt, document_prompt, max_terms = _read_settings(folder)
    length = _number(folder, transformer, "max_seq_length")
    return SentenceTransformersFolder(
        weights=modules[0][1],
        query_max_length=_number(folder, transformer, "query_length") or length,
        document_max_length=_number(folder, transformer, "document_length") or length,
        lowercase=bool(transformer.get("do_lower_case", False)),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        head={**head, "max_terms": max_terms or head.get("max_terms")},
        autoencoder=modules[-1][1] if dense else None,
    )


def _read_pooling(folder: Path, path: str) -> dict[str, Any]:
    """Return the fields of the card that ``SpladePooling`` sets."""
    settings = read_json(folder / path, "config.json")
    strategy, activation = settings.get("pooling_strategy", "max"), settings.get("activation_function", "relu")
    if strategy != "max" or activation not in ACTIVATIONS:
        raise _refuse(folder, f"it pools by {strategy} of {activation}")
    sizes = ("pooling_strategy", "activation_function", "embedding_dimension", "word_embedding_dimension")
    _refuse_others(folder, f"{path}/config.json", settings, sizes)
    return {"activation": ACTIVATIONS[activation]}


def _read_latents(folder: Path, modules: Modules) -> dict[str, Any]:
    """Return the fields of the card that ``Pooling``, ``Normalize`` and ``SparseAutoEncoder`` set."""
    (_, pooling), *normalize, (_, autoencoder) = modules[1:]
    settings = read_json(folder / pooling, "config.json")
    mode = pooling_mode(settings) or "mean"
    if mode not in POOLED_STATES or settings.get("include_prompt") is False:
        raise _refuse(folder, f"it pools by {mode}{'' if mode not in POOLED_STATES else ' without the prompt'}")
    known = ["include_prompt", "embedding_dimension", "word_embedding_dimension"]
    known += [name for name in settings if name.startswith("pooling_mode")]
    _refuse_others(folder, f"{pooling}/config.json", settings, known)
    for _, path in normalize:
        usual = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
        found = read_json(folder / path, "config.json")
        _refuse_others(folder, f"{path}/config.json", found, [one for one in usual if found.get(one) == usual[one]])
    layer = read_json(folder / autoencoder, "config.json")
    known = ["input_dim", "hidden_dim", "k", "normalize", "k_aux", "dead_threshold"]
    _refuse_others(folder, f"{autoencoder}/config.json", layer, known)
    lengths = ("length", "both") if normalize else ("none", "variance")
    return {
        "activation": "relu",
        "head": "autoencoder",
        "output_vocabulary": "words",
        "pooled_states": POOLED_STATES[mode],
        "state_scaling": lengths[bool(layer.get("normalize", False))],
        "max_terms": _number(folder, layer, "k") or _DEFAULT_K,
    }


def pick_prompt(prompts: dict[str, str], names: tuple[str | None, ...]) -> str:
    """Return the prompt with the first of some names; "" without any of them."""
    return next((prompts[name] for name in names if name in prompts), "")


def pooling_mode(settings: Mapping[str, Any]) -> str:
    """Return the mode of ``Pooling``; several are joined by commas. Older versions have one setting per mode."""
    older = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    modes = [older.get(name, name) for name, on in settings.items() if name.startswith("pooling_mode_") and on]
    given = settings.get("pooling_mode", [])
    return ", ".join(map(str, [*modes, *(given if isinstance(given, list) else [given])]))


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


def _module(folder: Path, kind: Any, path: Any) -> tuple[str, str]:
    """Return the class name of a module and its folder, which is "" for the whole folder."""
    if not isinstance(path, str) or path.startswith("/") or ".." in path.split("/") or "\\" in path or "\0" in path:
        raise _refuse(folder, "a module is outside the folder")
    return str(kind).rsplit(".", 1)[-1], path


def _read_routes(folder: Path, path: str) -> list[Modules]:
    """Return the modules of queries, and those of documents."""
    config = read_json(folder / path, ROUTER_FILE) or read_json(folder / path, "config.json")
    types, structure, parameters = (config.get(name) for name in ("types", "structure", "parameters"))
    if not isinstance(types, dict) or not isinstance(structure, dict) or not isinstance(parameters, dict | None):
        raise _refuse(folder, f"{ROUTER_FILE} has no types and structure")
    if structure.keys() != {"query", "document"}:
        raise _refuse(folder, f"its routes are {', '.join(sorted(structure))}, not query and document")
    if mappings := (parameters or {}).get("route_mappings"):
        raise _refuse(folder, f"its router maps other tasks to routes ({_short(mappings)})")
    routes = []
    for name in ("query", "document"):
        if not isinstance(structure[name], list) or not all(
            isinstance(one, str) and one in types for one in structure[name]
        ):
            raise _refuse(folder, f"the route {name} has modules without a type")
        found = [_module(folder, types[one], one) for one in structure[name]]
        routes.append([(kind, f"{path}/{one}" if path else one) for kind, one in found])
    return routes


def _read_transformer(folder: Path, path: str, standard: Mapping[str, Any], task: str | None) -> dict[str, Any]:
    """Return the settings of the transformer, which are in a file that may be named after a family of models."""
    names = [f"sentence_{family}_config.json" for family in _FAMILIES]
    name = next((one for one in names if (folder / path / one).is_file()), TRANSFORMER_FILE)
    settings: dict[str, Any] = read_json(folder / path, name)
    if settings.get("transformer_task", task) != standard["transformer_task"]:
        raise _refuse(folder, f"its transformer_task is {_short(settings.get('transformer_task'))}")
    known = ["max_seq_length", "do_lower_case", "query_length", "document_length", "unpad_inputs"]
    known += [one for one in (*standard, "processing_kwargs") if settings.get(one) in ({}, standard.get(one))]
    given = {one: settings[one] for one in _ARGUMENTS if isinstance(settings.get(one), dict)}
    known += [one for one, arguments in given.items() if arguments.keys() <= _SPEED]
    _refuse_others(folder, name, settings, known)
    return settings


def _read_settings(folder: Path) -> tuple[str, str, int | None]:
    """Return the prompts of encode_query and of encode_document, and the most terms of a vector."""
    settings = read_json(folder, SETTINGS_FILE)
    for name, usual in (("model_type", "SparseEncoder"), ("similarity_fn_name", "dot")):
        if settings.get(name) not in (None, usual):
            raise _refuse(folder, f"its {name} is {_short(settings[name])}")
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise _refuse(folder, f"the prompts of {SETTINGS_FILE} are not texts by name")
    unused = {name: text for name, text in prompts.items() if text and name not in ("query", "document")}
    if unused:
        log.warning("prompts of other names than query and document are not used", extra={"fields": unused})
    return prompts.get("query") or "", prompts.get("document") or "", _number(folder, settings, "max_active_dims")


def _number(folder: Path, settings: Mapping[str, Any], name: str) -> int | None:
    number = settings.get(name)
    if number is not None and (type(number) is not int or number < 1):
        raise _refuse(folder, f"its {name} is {_short(number)}")
    return number


def _refuse_others(folder: Path, file: str, settings: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a setting that is not one of the known ones; null is the same as none."""
    for name, value in settings.items():
        if value is not None and name not in known:
            raise _refuse(folder, f"{file} sets {name} to {_short(value)}, which is not supported")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _refuse(folder: Path, reason: str) -> ConfigError:
    return ConfigError(
        "source",
        f"{folder} is a sentence-transformers model, but {reason}",
        "give a SparseEncoder with max pooling or a SparseAutoEncoder, or a Router of those that docs/formats.md lists",
    )
