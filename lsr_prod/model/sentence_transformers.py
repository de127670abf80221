"""Settings of an encoder in a folder of sentence-transformers' SparseEncoder.

Only JSON files are read; the package sentence-transformers is not needed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lsr_prod.errors import ConfigError

_ACTIVATIONS: dict[str, Literal["log1p_relu", "l0"]] = {"relu": "log1p_relu", "log1p_relu": "l0"}


@dataclass(frozen=True, slots=True)
class SentenceTransformersFolder:
    """A SparseEncoder as sentence-transformers stores it.

    Attributes:
        weights: folder of weights and tokenizer, relative to the whole folder.
        max_length: tokens of a query or document; None: the tokenizer's maximum.
        lowercase: whether texts are lowercased before the tokenizer's own normalizer.
        query_prompt: text before a query.
        document_prompt: text before a document.
        activation: as in the encoder card.
    """

    weights: str
    max_length: int | None
    lowercase: bool
    query_prompt: str
    document_prompt: str
    activation: Literal["log1p_relu", "l0"]


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
