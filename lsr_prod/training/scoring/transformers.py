"""Teachers in torch: cross-encoders, which read query and document together, and dense encoders of single texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.config import TeacherModelSettings
from lsr_prod.corpus.source_rows import shorten
from lsr_prod.errors import ConfigError, EncoderBrokenError, LsrError
from lsr_prod.inference.encoder import token_batches
from lsr_prod.model import card_update, loading, tokenizer_files
from lsr_prod.model.layout_reader import pick_prompt, pooling_mode, read_json
from lsr_prod.model.pooling import pad_rows
from lsr_prod.storage.formats.bundle_format import Kind, longest_input

PRECISIONS: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Value of the setting ``precision`` -> torch's type of the weights."""
_LONGEST = 1_000_000  # tokenizers without a maximum have a number far above it
Values = np.typing.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DenseForm:
    """How a text becomes a vector."""

    weights: str = ""  # folder of weights and tokenizer, relative to the whole folder
    max_length: int | None = None  # tokens of a text; None: the maximum of the tokenizer
    lowercase: bool = False  # whether texts are lowercased before the tokenizer's own normalizer
    # mean of the hidden states, or that of the first token; None: not stored
    pooling: Literal["mean", "cls"] | None = None
    normalize: bool = False  # whether vectors are divided by their length
    query_prompt: str = ""  # text before a query
    document_prompt: str = ""  # text before a document


class CrossEncoder:
    """An opened cross-encoder; ``max_length``: maximum tokens of query and document, special tokens included."""

    def __init__(
        self, folder: Path, settings: TeacherModelSettings, *, device: str, batch_tokens: int, field: str
    ) -> None:
        transformer = _check_folder(folder, field)
        self._model = read_model(folder, AutoModelForSequenceClassification, field=f"{field}.model")
        self.label = _label(self._model.config.num_labels, settings.label, folder, field)
        self._tokenizer: PreTrainedTokenizerFast = tokenizer_files.read_tokenizer(folder)
        if transformer.get("do_lower_case"):
            card_update.add_lowercase(self._tokenizer)
        if self._model.config.pad_token_id is None:
            self._model.config.pad_token_id = self._tokenizer.pad_token_id
        if self._model.config.pad_token_id is None:
            problem = f"neither model nor tokenizer of {folder} has a padding token"
            raise ConfigError(f"{field}.model", problem, "add one to its files")
        limits = (settings.max_length, transformer.get("max_seq_length"))
        self.max_length = longest_text(self._model.config, self._tokenizer, *limits, field=f"{field}.max_length")
        self._types = "token_type_ids" in self._tokenizer.model_input_names
        self._model = self._model.to(device=device, dtype=PRECISIONS[settings.precision]).eval()
        self._batch_tokens = batch_tokens

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[np.typing.NDArray[np.float32], dict[int, str]]:
        """Return the raw logits of pairs, as ``PairScorer.score`` does."""
        rows = self._tokenized(pairs)
        values, failed = call_in_halves(
            [len(ids) for ids, _ in rows],
            self._batch_tokens,
            lambda batch: self._logits([rows[i] for i in batch]),
            lambda: self._logits(self._tokenized([("word", "word")])),
        )
        return np.array([values[i][0] if i in values else np.nan for i in range(len(pairs))], np.float32), failed

    def forget(self) -> None:
        """Do nothing: a pair is scored once."""

    def _tokenized(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        found: Any = self._tokenizer(
            [query for query, _ in pairs],
            [document for _, document in pairs],
            truncation="longest_first",
            max_length=self.max_length,
            return_token_type_ids=self._types,
            return_attention_mask=False,
        )
        return list(zip(found["input_ids"], found["token_type_ids"] if self._types else [[]] * len(pairs), strict=True))

    @torch.inference_mode()
    def _logits(self, rows: Sequence[tuple[list[int], list[int]]]) -> np.typing.NDArray[np.float32]:
        tensors = input_tensors([ids for ids, _ in rows], self._model.config.pad_token_id, self._model.device)
        if self._types:
            types = input_tensors([types for _, types in rows], 0, self._model.device)["input_ids"]
            tensors["token_type_ids"] = types
        logits = self._model(**tensors).logits.float().cpu().numpy()  # [n, 1 or 2]
        scores: np.typing.NDArray[np.float32] = logits[:, self.label : self.label + 1]
        return scores


class DenseEncoder:
    """An opened dense encoder; ``max_length``: maximum tokens of a text, special tokens and prompt included."""

    def __init__(
        self, folder: Path, settings: TeacherModelSettings, *, device: str, batch_tokens: int, field: str
    ) -> None:
        self.form = form = read_form(folder, settings, field=field)
        if form.pooling is None:
            raise ConfigError(f"{field}.pooling", f"{folder} does not say how it pools", "set it to mean or cls")
        weights = folder / form.weights
        self._model = read_model(weights, AutoModel, field=f"{field}.model", optional=("pooler.",))
        self._tokenizer: PreTrainedTokenizerFast = tokenizer_files.read_tokenizer(weights)
        if form.lowercase:
            card_update.add_lowercase(self._tokenizer)
        limits = (settings.max_length, form.max_length)
        self.max_length = longest_text(self._model.config, self._tokenizer, *limits, field=f"{field}.max_length")
        self._model = self._model.to(device=device, dtype=PRECISIONS[settings.precision]).eval()
        self._batch_tokens = batch_tokens

    def encode(self, texts: Sequence[str], kind: Kind) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the vectors by position, float32 [d]; and, by position, why a text has none."""
        prompt = self.form.query_prompt if kind == "query" else self.form.document_prompt
        rows = self._token_ids([prompt + text for text in texts])
        return call_in_halves(
            [len(row) for row in rows],
            self._batch_tokens,
            lambda batch: self._vectors([rows[i] for i in batch]),
            lambda: self._vectors(self._token_ids(["word"])),
        )

    def dot(self, query: np.typing.NDArray[np.float32], document: np.typing.NDArray[np.float32]) -> float:
        """Return the dot product of two vectors."""
        return float(query @ document)

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        options: dict[str, Any] = {"truncation": True, "max_length": self.max_length, "return_attention_mask": False}
        ids: list[list[int]] = self._tokenizer(list(texts), **options)["input_ids"]
        return ids

    @torch.inference_mode()
    def _vectors(self, rows: Sequence[Sequence[int]]) -> np.typing.NDArray[np.float32]:
        tensors = input_tensors(rows, self._model.config.pad_token_id or 0, self._model.device)
        hidden = self._model(**tensors).last_hidden_state.float()  # [n, L, d]
        if self.form.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            mask = tensors["attention_mask"].unsqueeze(2).float()
            pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        if self.form.normalize:
            pooled = torch.nn.functional.normalize(pooled, dim=1)
        vectors: np.typing.NDArray[np.float32] = pooled.cpu().numpy()
        return vectors


def read_form(folder: Path, settings: TeacherModelSettings, *, field: str) -> DenseForm:
    """Return what the files of sentence-transformers say, changed by the settings."""
    stored = _stored_form(folder, field) if (folder / "modules.json").is_file() else DenseForm()
    given = {name: getattr(settings, name) for name in ("pooling", "normalize", "query_prompt", "document_prompt")}
    return replace(stored, **{name: value for name, value in given.items() if value is not None})


def read_model(folder: Path, loader: Any, *, field: str, optional: tuple[str, ...] = ()) -> Any:
    """Read a transformer in float32 on the CPU; weights are read from safetensors only, no code of the model is run."""
    try:
        with loading.without_load_report():
            model, report = loader.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
            )
    except SafetensorError as error:
        raise ConfigError(field, f"the weights of {folder} are damaged ({error})", "copy them again") from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"transformers cannot read {folder} ({reason})"
        raise ConfigError(field, problem, "give a folder with config.json and safetensors") from error
    if missing := [name for name in sorted(report["missing_keys"]) if not name.startswith(optional)]:
        problem = f"{folder} has no weights for {', '.join(missing[:3])}: it is not trained for this"
        raise ConfigError(field, problem, "give a trained model of the kind that teacher.kind names")
    return model


def longest_text(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, wanted: int | None, stored: int | None, *, field: str
) -> int:
    """Return the maximum number of tokens of an input."""
    positions = longest_input(config.to_dict()) if getattr(config, "max_position_embeddings", None) else _LONGEST
    if wanted is not None and wanted > positions:
        problem = f"{wanted} is more than the {positions} tokens of the model"
        raise ConfigError(field, problem, f"set it to {positions} or less")
    longest = wanted or min(positions, stored or tokenizer.model_max_length)
    if longest >= _LONGEST:
        raise ConfigError(field, "neither the model nor its tokenizer has a maximum number of tokens", "set it")
    return longest


def input_tensors(rows: Sequence[Sequence[int]], padding: int, device: torch.device) -> dict[str, torch.Tensor]:
    """Return ``input_ids`` and ``attention_mask``, int64 [n, longest row], padded at the end."""
    input_ids, attention_mask = pad_rows(rows, padding)
    return {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}


def call_in_halves(
    lengths: Sequence[int], batch_tokens: int, call: Callable[[Sequence[int]], Values], probe: Callable[[], object]
) -> tuple[dict[int, Values], dict[int, str]]:
    """Call a model with batches of positions of similar length, each of at most ``batch_tokens`` or of one input.

    Returned are the values by position; and, by position, why an input has none: the model raised an exception for it
    alone, or a value is not finite.
    """
    values: dict[int, Values] = {}
    failed: dict[int, str] = {}
    for batch in token_batches(sorted(range(len(lengths)), key=lambda i: lengths[i]), lengths, batch_tokens):
        todo = [batch]
        while todo:
            rows = todo.pop()
            try:
                found = call(rows)
            except LsrError:
                raise
            except Exception as error:  # noqa: BLE001 (torch and tokenizers raise bare Exceptions)
                if len(rows) == 1:
                    failed[rows[0]] = shorten(f"{type(error).__name__}: {' '.join(str(error).split())}")
                    _check_alive(probe, error)
                else:
                    todo += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
                continue
            for i, row in zip(rows, found, strict=True):
                if np.isfinite(row).all():
                    values[i] = row
                else:
                    failed[i] = "the model returned NaN or an infinite value"
    return values, failed


def _check_folder(folder: Path, field: str) -> dict[str, Any]:
    """Refuse a sentence-transformers folder of another kind; return the settings of its transformer, {} without any."""
    modules = [str(module["type"]).rsplit(".", 1)[-1] for module in read_json(folder, "modules.json", list)]
    transformer: dict[str, Any] = read_json(folder, "sentence_bert_config.json")
    task = transformer.get("transformer_task", "sequence-classification")
    if modules not in ([], ["Transformer"]) or (modules and task != "sequence-classification"):
        problem = f"{folder} is a sentence-transformers model of {', '.join(modules)} for {task}"
        remedy = "give a CrossEncoder of sequence classification, or set kind to dense or sparse"
        raise ConfigError(f"{field}.model", problem, remedy)
    if read_json(folder, "config_sentence_transformers.json").get("default_prompt_name"):
        raise ConfigError(f"{field}.model", f"{folder} has a prompt", "give a cross-encoder without prompts")
    return transformer if modules else {}


def _label(outputs: int, label: int | None, folder: Path, field: str) -> int:
    if outputs not in (1, 2):
        problem = f"{folder} has {outputs} outputs"
        raise ConfigError(f"{field}.model", problem, "give a cross-encoder with one or two outputs")
    if outputs == 1 and label:
        raise ConfigError(f"{field}.label", f"{folder} has one output, and label is {label}", "remove it")
    return 0 if outputs == 1 else 1 if label is None else label


def _stored_form(folder: Path, field: str) -> DenseForm:
    modules = read_json(folder, "modules.json", list)
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    paths = [str(module["path"]) for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _refuse(folder, f"its modules are {', '.join(kinds)}", field)
    if any(path.startswith("/") or ".." in path.split("/") for path in paths):
        raise _refuse(folder, "a module is outside the folder", field)
    transformer = read_json(folder / paths[0], "sentence_bert_config.json")
    head = read_json(folder, f"{paths[1]}/config.json")
    mode: Any = pooling_mode(head)
    if mode not in ("mean", "cls") or not head.get("include_prompt", True):
        raise _refuse(folder, f"it pools by {mode or 'nothing'}", field)
    settings = read_json(folder, "config_sentence_transformers.json")
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    return DenseForm(
        weights=paths[0],
        max_length=transformer.get("max_seq_length"),
        lowercase=bool(transformer.get("do_lower_case", False)),
        pooling=mode,
        normalize=kinds[-1] == "Normalize",
        query_prompt=pick_prompt(prompts, ("query", default)),
        document_prompt=pick_prompt(prompts, ("document", "passage", "corpus", default)),
    )


def _refuse(folder: Path, reason: str, field: str) -> ConfigError:
    return ConfigError(
        f"{field}.model",
        f"{folder} is a sentence-transformers model, but {reason}",
        "give a SentenceTransformer with mean or cls pooling, or the folder of its transformer",
    )


def _check_alive(probe: Callable[[], object], error: Exception) -> None:
    try:
        probe()
    except Exception as found:
        raise EncoderBrokenError(
            f"the teacher failed ({error}), and then on a plain text ({found}); the model or its device is broken, not "
            "the rows: look at the log, then run the job again"
        ) from found
