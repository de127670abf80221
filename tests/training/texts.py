"""A training on plain text that takes seconds: a model of 97 words, and texts of them."""

import json
from pathlib import Path
from typing import Any

from lsr_prod.model import SparseEncoder
from lsr_prod.model.output_layer import replace_output_layer
from tests.model.tiny import WORDS, tiny_checkpoint

Settings = dict[str, Any]


def causal_start(folder: Path) -> Path:
    """A decoder to start from."""
    return tiny_checkpoint(folder, "llama")


def worded_start(folder: Path) -> Path:
    """A model directory of a masked language model whose output terms are words: those of its tokens in lowercase."""
    plain = SparseEncoder.load(tiny_checkpoint(folder.with_name("plain"), "bert"))
    return give_words(plain, sorted({word.lower() for word in WORDS}), folder)


def give_words(encoder: SparseEncoder, words: list[str], folder: Path) -> Path:
    """The model directory of an encoder with words as output terms, each with the row of some token."""
    from dataclasses import replace

    from lsr_prod.storage.formats.digests import digest_json

    weight = encoder.model.get_input_embeddings().weight.detach()[: len(words)]
    replace_output_layer(encoder.model, weight, weight[:, 0])
    card = replace(
        encoder.card, vocabulary_size=len(words), vocabulary_sha256=digest_json(words), output_vocabulary="words"
    )
    SparseEncoder(encoder.model, encoder.tokenizer, card, words).save(folder)
    return folder


def write_texts(path: Path, count: int = 48) -> Path:
    """Texts of 3 to 8 words that follow each other in a fixed order, as JSONL."""
    texts = [" ".join(WORDS[(i * 5 + j) % 92] for j in range(3 + i % 6)) for i in range(count)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def text_training(folder: Path, start: Path, kind: str, *, workers: int = 1, **stage: Any) -> Settings:
    """A deployment with one stage on 48 texts.

    Args:
        folder: an existing folder for the data, the work and the output.
        start: the model.
        kind: of the stage.
        workers: training processes.
        **stage: settings of the stage in place of those below.
    """
    path = write_texts(folder / "texts.jsonl")
    settings: Settings = {
        "stage": kind,
        "data": {"paths": [str(path)], "kind": "texts"},
        "batch": {"texts": 8},
        "steps": 12,
        "optimizer": {"learning_rate": 1e-2},
        "checkpoint_every": 4,
        "watch": {"every": 1},
    }
    train = {"model": str(start), "work": str(folder / "work"), "output": str(folder / "out"), "workers": workers}
    train |= {"cpus_per_worker": 1, "use_gpu": False}
    return {"train": {**train, "stages": [{**settings, **stage}]}}
