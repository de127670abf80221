"""Teacher that reads query and document together: a sequence classification model with one score, in torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from lsr_prod.config import TeacherModelSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model.card_update import add_lowercase
from lsr_prod.model.loading import read_tokenizer
from lsr_prod.model.sentence_transformers import read_json
from lsr_prod.scoring.halving import call_in_halves
from lsr_prod.scoring.transformer import PRECISIONS, input_tensors, longest_text, read_model


class CrossEncoder:
    """An opened cross-encoder.

    Attributes:
        label: column of the logits that is the score.
        max_length: maximum tokens of query and document together, special tokens included.
    """

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
            raise ConfigError(
                f"{field}.model", f"neither model nor tokenizer of {folder} has a padding token", "add one to its files"
            )
        limits = (settings.max_length, transformer.get("max_seq_length"))
        self.max_length = longest_text(self._model.config, self._tokenizer, *limits, field=f"{field}.max_length")
        self._types = "token_type_ids" in self._tokenizer.model_input_names
        self._model = self._model.to(device=device, dtype=PRECISIONS[settings.precision]).eval()
        self._batch_tokens = batch_tokens

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Return the raw logits of pairs, as ``teacher.Teacher`` defines it."""
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
        raise ConfigError(
            f"{field}.model", f"{folder} has {outputs} outputs", "give a cross-encoder with one or two outputs"
        )
    if outputs == 1 and label:
        raise ConfigError(f"{field}.label", f"{folder} has one output, and label is {label}", "remove it")
    return 0 if outputs == 1 else 1 if label is None else label


def _check_folder(folder: Path, field: str) -> dict[str, Any]:
    """Refuse a sentence-transformers folder of another kind; return the settings of its transformer, {} without any."""
    modules = [str(module["type"]).rsplit(".", 1)[-1] for module in read_json(folder, "modules.json", list)]
    transformer: dict[str, Any] = read_json(folder, "sentence_bert_config.json")
    task = transformer.get("transformer_task", "sequence-classification")
    if modules not in ([], ["Transformer"]) or (modules and task != "sequence-classification"):
        raise ConfigError(
            f"{field}.model",
            f"{folder} is a sentence-transformers model of {', '.join(modules)} for {task}",
            "give a CrossEncoder of sequence classification, or set kind to dense or sparse",
        )
    if read_json(folder, "config_sentence_transformers.json").get("default_prompt_name"):
        raise ConfigError(f"{field}.model", f"{folder} has a prompt", "give a cross-encoder without prompts")
    return transformer if modules else {}
