"""Small random teachers, one of them with poisonous words, and rows to score."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from lsr_prod.config import ScoreSettings, TeacherModelSettings

WORDS = [f"w{i}" for i in range(40)]
RAISES, NOT_A_NUMBER = "raises", "nan"  # a word without an embedding; a word whose embedding is NaN


def write_lines(path: Path, rows: Sequence[dict[str, Any] | str]) -> Path:
    """Write rows as JSONL; a string is written unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words; the last word has no embedding."""
    terms = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, NOT_A_NUMBER, RAISES]
    backend = Tokenizer(models.WordLevel({term: i for i, term in enumerate(terms)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep")}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=48,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **roles,
    )


def config(**changes: Any) -> BertConfig:
    """Return the configuration of a small BERT without a row for the last token."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertConfig(vocab_size=len(tokenizer()) - 1, max_position_embeddings=48, **sizes, **changes)


def save(model: Any, folder: Path) -> Path:
    """Save a model with NaN as the embedding of one word, and its tokenizer."""
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer().convert_tokens_to_ids(NOT_A_NUMBER)] = float("nan")
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def large_weights(model: Any) -> Any:
    """Multiply all matrices, so that scores of random texts differ clearly."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(15)
    return model


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random cross-encoder with one output."""
    torch.manual_seed(0)
    model = large_weights(BertForSequenceClassification(config(num_labels=1)))
    return save(model, tmp_path_factory.mktemp("cross") / "model")


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random dense encoder."""
    torch.manual_seed(1)
    return save(large_weights(BertModel(config())), tmp_path_factory.mktemp("dense") / "model")


def text(draw: random.Random, longest: int = 30) -> str:
    """Return a random text."""
    return " ".join(draw.choices(WORDS, k=draw.randint(1, longest)))


def random_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return pairs of texts of different lengths, some longer than the models read."""
    draw = random.Random(seed)
    return [(text(draw, 8), text(draw, 60)) for _ in range(count)]


def random_rows(count: int, seed: int = 0, negatives: int = 3) -> list[dict[str, Any]]:
    """Return rows of kind negatives."""
    draw = random.Random(seed)
    return [
        {"query": text(draw, 8), "positive": f"{text(draw)} p", "negatives": [text(draw) for _ in range(negatives)]}
        for _ in range(count)
    ]


def teacher(folder: Path | str, kind: str = "cross_encoder", **changes: Any) -> TeacherModelSettings:
    """Return the settings of a teacher."""
    return TeacherModelSettings.model_validate({"kind": kind, "model": str(folder), **changes})


def section(folder: Path | str, rows: Path | str, output: Path | str, **changes: Any) -> dict[str, Any]:
    """Return the section ``score`` for rows of kind negatives, as YAML has it."""
    values: dict[str, Any] = {
        "data": {"paths": [str(rows)], "kind": "negatives", **changes.pop("data", {})},
        "teacher": {"model": str(folder), **changes.pop("teacher", {})},
        "output": str(output),
        "batch_tokens": 512,
    }
    return values | changes


def settings(folder: Path | str, rows: Path | str, output: Path | str, **changes: Any) -> ScoreSettings:
    """Return the section ``score``."""
    return ScoreSettings.model_validate(section(folder, rows, output, **changes))
