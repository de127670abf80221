"""Teacher that reads query and document together: a sequence classification model with one score, in torch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.config import TeacherModelSettings
from lsr_prod.corpus.rows import shorten
from lsr_prod.errors import ConfigError, EncoderBrokenError, LsrError
from lsr_prod.inference.encoder import token_batches
from lsr_prod.model.card_update import add_lowercase
from lsr_prod.model.layout_reader import read_json
from lsr_prod.model.loading import without_load_report
from lsr_prod.model.pooling import pad_rows
from lsr_prod.model.tokenizer_files import read_tokenizer
from lsr_prod.storage.formats.card import longest_input

PRECISIONS: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Value of the setting ``precision`` -> torch's type of the weights."""
_LONGEST = 1_000_000  # tokenizers without a maximum have a number far above it


def read_model(folder: Path, loader: Any, *, field: str, optional: tuple[str, ...] = ()) -> Any:
    """Read a transformer in float32 on the CPU; weights are read from safetensors only, no code of the model is run."""
    try:
        with without_load_report():
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


def input_tensors(rows: Sequence[Sequence[int]], padding: int, device: torch.device) -> dict[str, Tensor]:
    """Return ``input_ids`` and ``attention_mask``, int64 [n, longest row], padded at the end."""
    input_ids, attention_mask = pad_rows(rows, padding)
    return {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}


Values = npt.NDArray[np.float32]


def call_in_halves(
    lengths: Sequence[int], batch_tokens: int, call: Callable[[Sequence[int]], Values], probe: Callable[[], object]
) -> tuple[dict[int, Values], dict[int, str]]:
    """Call a model with batches of positions of similar length, each of at most ``batch_tokens`` or of one input.

    Returned are the values by position; and, by position, why an input has none: the model raised an exception for it
    alone, or a value is not finite.
    """
    values: dict[int, Values] = {}
    failed: dict[int, str] = {}
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for batch in token_batches(order, lengths, batch_tokens):
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


def _check_alive(probe: Callable[[], object], error: Exception) -> None:
    try:
        probe()
    except Exception as found:
        raise EncoderBrokenError(
            f"the teacher failed ({error}), and then on a plain text ({found}); the model or its device is broken, not "
            "the rows: look at the log, then run the job again"
        ) from found


class CrossEncoder:
    """An opened cross-encoder; ``max_length``: maximum tokens of query and document, special tokens included."""

    def __init__(
        self, folder: Path, settings: TeacherModelSettings, *, device: str, batch_tokens: int, field: str
    ) -> None:
        transformer = _check_folder(folder, field)
        self._model = read_model(folder, AutoModelForSequenceClassification, field=f"{field}.model")
        self.label = _label(self._model.config.num_labels, settings.label, folder, field)
        self._tokenizer: PreTrainedTokenizerFast = read_tokenizer(folder)
        if transformer.get("do_lower_case"):
            add_lowercase(self._tokenizer)
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

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
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
        types = found["token_type_ids"] if self._types else [[]] * len(pairs)
        return list(zip(found["input_ids"], types, strict=True))

    @torch.inference_mode()
    def _logits(self, rows: Sequence[tuple[list[int], list[int]]]) -> npt.NDArray[np.float32]:
        tensors = input_tensors([ids for ids, _ in rows], self._model.config.pad_token_id, self._model.device)
        if self._types:
            types = input_tensors([types for _, types in rows], 0, self._model.device)["input_ids"]
            tensors["token_type_ids"] = types
        logits = self._model(**tensors).logits.float().cpu().numpy()  # [n, 1 or 2]
        scores: npt.NDArray[np.float32] = logits[:, self.label : self.label + 1]
        return scores


def _label(outputs: int, label: int | None, folder: Path, field: str) -> int:
    if outputs not in (1, 2):
        problem = f"{folder} has {outputs} outputs"
        raise ConfigError(f"{field}.model", problem, "give a cross-encoder with one or two outputs")
    if outputs == 1 and label:
        raise ConfigError(f"{field}.label", f"{folder} has one output, and label is {label}", "remove it")
    return 0 if outputs == 1 else 1 if label is None else label


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
