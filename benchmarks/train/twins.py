"""Twins in batches: share of rows whose batch has another row with the same positive, by kind of batch.

    python -m benchmarks.train.twins PAIRS.jsonl MODEL [--positive pos] [--queries 128] [--epochs 3] [--max-length 128]

Reads pairs, tokenizes them with the tokenizer of a model directory, and runs the sampler of training over whole epochs:
rows in random order, rows grouped by length alone, grouped with twins spread (``batch.group_by_length``, the default),
and ``batch.unique``, with and without length. *Padding* is the share of the tokens of padded batches of positives that
are padding.

Prints a table and ``RESULT {json}``: ``twins`` and ``padding`` of each kind.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.storage.formats.bundle_format import TOKENIZER_FILE
from lsr_prod.training.batch_sampler import BatchSampler
from lsr_prod.training.data.training_set import text_keys


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path, help="JSON lines with a query and a positive")
    parser.add_argument("model", type=Path, help="a model directory, for its tokenizer")
    parser.add_argument("--positive", default="pos", help="field of the positive")
    parser.add_argument("--queries", type=int, default=128, help="rows of a batch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=128)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.pairs.read_text(encoding="utf-8").splitlines()]
    tokenizer = Tokenizer.from_file(str(arguments.model / TOKENIZER_FILE))
    tokenizer.no_padding()
    tokenizer.enable_truncation(arguments.max_length)
    queries, positives = (_token_ids(tokenizer, [row[name] for row in rows]) for name in ("query", arguments.positive))
    keys = text_keys(queries), text_keys(positives)
    lengths = np.array([max(len(q), len(p)) for q, p in zip(queries, positives, strict=True)], np.int32)

    def keys_of(some: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return keys[0][some], keys[1][some]

    kinds: dict[str, dict[str, Any]] = {
        "random": {},
        "by length alone": {"lengths": lengths},
        "by length, twins spread": {"lengths": lengths, "keys": keys_of},
        "unique": {"keys": keys_of, "unique": True},
        "unique, by length": {"lengths": lengths, "keys": keys_of, "unique": True},
    }
    table = Table("batches", "rows with a twin, %", "padding, %")
    found: dict[str, dict[str, float]] = {}
    for kind, options in kinds.items():
        sampler = BatchSampler(len(rows), arguments.queries, 0, **options)
        batches = np.stack([sampler.rows_of(step) for step in range(arguments.epochs * sampler.steps_per_epoch)])
        twins = np.mean([_twins(keys[1][batch]) for batch in batches])
        widths = lengths[batches].max(axis=1).sum() * arguments.queries
        found[kind] = {"twins": float(twins), "padding": float(1 - lengths[batches].sum() / widths)}
        table.add_row(kind, f"{100 * twins:.2f}", f"{100 * found[kind]['padding']:.1f}")
    Console().print(f"{len(rows):,} pairs, {len(np.unique(keys[1])):,} different positives", table)
    print_result({kind: found[kind] for kind in kinds})


def _token_ids(tokenizer: Tokenizer, texts: list[str]) -> list[npt.NDArray[np.int32]]:
    return [np.array(encoding.ids, np.int32) for encoding in tokenizer.encode_batch_fast(texts)]


def _twins(positives: npt.NDArray[np.int64]) -> float:
    """Return the share of rows whose positive another row of the batch has."""
    _, inverse, counts = np.unique(positives, return_inverse=True, return_counts=True)
    return float((counts[inverse] > 1).mean())


if __name__ == "__main__":
    main()
