"""Text files for stages that read texts."""

import json
from pathlib import Path

import numpy as np

from lsr_prod.config.section import TrainingDataSettings

__all__ = ["random_texts", "write_pairs", "write_texts"]


def write_texts(folder: Path, texts: list[str], *, files: int = 1) -> TrainingDataSettings:
    """Write texts as JSONL files."""
    for number in range(files):
        lines = [json.dumps({"text": text}) + "\n" for text in texts[number::files]]
        (folder / f"texts-{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    return TrainingDataSettings(paths=[str(folder / "texts-*.jsonl")], kind="texts")


def write_pairs(folder: Path, pairs: list[tuple[str, str]]) -> TrainingDataSettings:
    """Write queries and their positives as JSONL."""
    lines = [json.dumps({"query": query, "positive": positive}) + "\n" for query, positive in pairs]
    (folder / "pairs.jsonl").write_text("".join(lines), encoding="utf-8")
    return TrainingDataSettings(paths=[str(folder / "pairs.jsonl")], kind="pairs")


def random_texts(words: list[str], count: int, length: int) -> list[str]:
    """Return random texts of one length."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(words, length)) for _ in range(count)]
