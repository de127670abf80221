"""Does a batch of ESPLADE's recipe fit? One step of 3,072 queries and as many titles over 100,000 terms.

    python -m benchmarks.train.large_batch [--queries 3072] [--vocabulary 100000] [--chunk 128]

A 6 x 384 encoder with random weights whose bias leaves about 1 % of the terms active, titles of 8 to 32 tokens, other
titles as negatives, joint FLOPS, masks 1000 and 2000, by the gradient cache (papers/esplade-pretraining, appendix C.3).
Prints seconds and peak memory of a step, and ``RESULT {json}``.
"""

import argparse
import resource
import sys
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from lsr_prod.config.training import FinetuneSettings
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.training.data.training_set import Example
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer

SHARE_ACTIVE = 0.01


class Titles:
    """Random rows in the place of a training set."""

    def __init__(self, rows: int, vocabulary: int) -> None:
        draw = np.random.default_rng(0)
        self.rows = rows
        self._texts = [_text(draw, vocabulary) for _ in range(2 * rows)]
        self.lengths = np.array([len(text) for text in self._texts[rows:]], np.int32)

    def examples(self, rows: npt.NDArray[np.int64]) -> list[Example]:
        """A query and its title."""
        return [Example(self._texts[row][:16], (self._texts[self.rows + row],), None) for row in rows]


def _text(draw: np.random.Generator, vocabulary: int) -> npt.NDArray[np.int32]:
    return draw.integers(5, vocabulary, draw.integers(8, 33)).astype(np.int32)


def encoder(vocabulary: int) -> SparseEncoder:
    """A 6 x 384 encoder with random weights."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    words = {f"t{i}": i for i in range(vocabulary)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="t0")))
    card = EncoderCard(architecture="BertForMaskedLM", vocabulary_size=vocabulary, vocabulary_sha256="")
    return SparseEncoder(BertForMaskedLM(config), tokenizer, card)


@torch.no_grad()
def settle_bias(model: SparseEncoder, titles: Titles) -> None:
    """Lower the bias until about 1 % of the terms of a title are active, as after training."""
    ids = torch.tensor(np.stack([np.resize(one.documents[0], 24) for one in titles.examples(np.arange(16))])).long()
    model.model.cls.predictions.bias.fill_(100.0)  # every maximum above 0, so that it can be read back
    maxima = torch.expm1(model.eval()(ids, torch.ones_like(ids))) - 100.0
    model.model.cls.predictions.bias.fill_(-float(maxima.flatten()[::97].quantile(1 - SHARE_ACTIVE)))


def main(argv: Sequence[str]) -> int:
    """Train a step and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=3072)
    parser.add_argument("--vocabulary", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--steps", type=int, default=2)
    asked = parser.parse_args(argv)
    model, titles = encoder(asked.vocabulary), Titles(asked.queries, asked.vocabulary)
    settle_bias(model, titles)
    settings = FinetuneSettings.model_validate(
        {
            "data": {"paths": ["none"], "kind": "pairs"},
            "batch": {"queries": asked.queries, "chunk": asked.chunk},
            "steps": asked.steps,
            "objective": {
                "losses": [{"loss": "n_pair"}],
                "sparsity": {
                    "regularizers": [{"regularizer": "joint_flops", "joint": 5, "ramp": "none"}],
                    "keep_query": 1000,
                    "keep_document": 2000,
                },
            },
        }
    )
    loaded = _peak_bytes()
    trainer = Trainer(model, titles, settings, Group(0, 1, torch.device("cpu")))  # type: ignore[arg-type]
    seconds, result = [], None
    for _ in range(asked.steps):
        start = time.perf_counter()
        result = trainer.train_step()
        seconds.append(time.perf_counter() - start)
    assert result is not None
    documents = result.vectors()[1]
    values = {
        "queries": asked.queries,
        "vocabulary": asked.vocabulary,
        "chunk": asked.chunk,
        "seconds_a_step": round(min(seconds), 1),
        "texts_per_s": round(2 * asked.queries / min(seconds), 1),
        "peak_gib": round(_peak_bytes() / 2**30, 2),
        "peak_gib_loaded": round(loaded / 2**30, 2),
        "l0_document": round(float((documents > 0).sum(dim=1).float().mean()), 1),
    }
    print_table("a step of a large batch", values)
    print_result(values)
    return 0


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
