"""Dense vectors of texts: a transformer whose hidden states are pooled, in torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from transformers import AutoModel, PreTrainedTokenizerFast

from lsr_prod.config import TeacherModelSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model.card_update import add_lowercase
from lsr_prod.model.layout_reader import pick_prompt, pooling_mode, read_json
from lsr_prod.model.tokenizer_files import read_tokenizer
from lsr_prod.storage.formats.card import Kind
from lsr_prod.training.scoring.cross_encoder import PRECISIONS, call_in_halves, input_tensors, longest_text, read_model


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
        self._tokenizer: PreTrainedTokenizerFast = read_tokenizer(weights)
        if form.lowercase:
            add_lowercase(self._tokenizer)
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

    def dot(self, query: npt.NDArray[np.float32], document: npt.NDArray[np.float32]) -> float:
        """Return the dot product of two vectors."""
        return float(query @ document)

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        options: dict[str, Any] = {"truncation": True, "max_length": self.max_length, "return_attention_mask": False}
        ids: list[list[int]] = self._tokenizer(list(texts), **options)["input_ids"]
        return ids

    @torch.inference_mode()
    def _vectors(self, rows: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        tensors = input_tensors(rows, self._model.config.pad_token_id or 0, self._model.device)
        hidden = self._model(**tensors).last_hidden_state.float()  # [n, L, d]
        if self.form.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            mask = tensors["attention_mask"].unsqueeze(2).float()
            pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        if self.form.normalize:
            pooled = functional.normalize(pooled, dim=1)
        vectors: npt.NDArray[np.float32] = pooled.cpu().numpy()
        return vectors


def read_form(folder: Path, settings: TeacherModelSettings, *, field: str) -> DenseForm:
    """Return what the files of sentence-transformers say, changed by the settings."""
    stored = _stored_form(folder, field) if (folder / "modules.json").is_file() else DenseForm()
    given = {name: getattr(settings, name) for name in ("pooling", "normalize", "query_prompt", "document_prompt")}
    return replace(stored, **{name: value for name, value in given.items() if value is not None})


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
