"""CSPLADE on a real decoder: SmolLM2-135M, fine-tuned on pairs of tldr by low-rank updates, in several variants.

    python -m benchmarks.train.decoder SHARED_DATA [--variants NAME ...] [--steps 600] [--pairs 24] [--quick]

Every variant begins with the same weights. ``constant`` lowers all biases by one constant to .5 % active terms,
``term`` every bias by its own (``calibrate`` with ``per: term``). The held-out queries belong to pages whose queries
were not trained on; all pages are documents. Prints the loss (ln of the number of pairs is chance), the active terms
and RR@10 before and after; then ``RESULT {json}``, whose ``curves`` have the loss and the active terms of every tenth
step. On a machine without a GPU 600 steps take an hour.
"""

import argparse
import copy
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.training import device
from benchmarks.results.runs import modeled
from benchmarks.stand_ins import wikitext
from benchmarks.train.pruning_data import Split, few_documents, split_tldr
from benchmarks.vocabulary.transfer import smollm2
from lsr_prod import SparseEncoder
from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import TrainingCollapsedError
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.jobs.terminal.tables import print_columns
from lsr_prod.model.pooling import pad_rows
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.training.data.layouts import TextForm, TokenSettings
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.observers.activity import CollapseGuard, measure_activity
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.vocabulary.head import pooled_maxima, shift_bias, shift_for_rate, shifts_for_rate

RATE = 0.005  # of active terms after the calibration
LENGTH = 64
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Variant:
    """A recipe; the defaults are those of the paper where it has one."""

    attention: str = "bidirectional"
    calibration: str = "term"
    temperature: float = 1.0
    rate: float = 1e-4
    flops: float = 0.003
    adapt: int = 0  # steps of the adaptation to the causal objective with ReLU
    guarded: bool = True
    keep: int | None = None
    seed: int = 0


VARIANTS: dict[str, Variant] = {
    "constant": Variant(calibration="constant", temperature=5.0),
    "constant, not stopped": Variant(calibration="constant", temperature=5.0, guarded=False),
    "term": Variant(),
    "term, causal": Variant(attention="causal"),
    "term, echo": Variant(attention="echo"),
    "term, temperature 5": Variant(temperature=5.0),
    "term, rate 5e-4": Variant(rate=5e-4),
    "term, no FLOPS": Variant(flops=0.0),
    "term, 64 terms kept": Variant(keep=64),
    "term, adapted": Variant(adapt=200),
    "term, seed 1": Variant(seed=1),
}


def main(argv: Sequence[str]) -> int:
    """Train every variant and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with tldr_en/ and wikitext2/")
    parser.add_argument("--model", type=Path, default=None, help="folder of a decoder; default: SmolLM2-135M")
    parser.add_argument("--work", type=Path, default=None, help="keeps the converted model")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--pages", type=int, default=400, help="pages whose queries are held out")
    parser.add_argument("--documents", type=int, default=100_000, help="evaluate on at most so many pages")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no variant is begun after them")
    parser.add_argument("--quick", action="store_true", help="a few steps: does it work at all?")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures here, after each variant")
    asked = parser.parse_args(argv)
    log_to_stderr()
    if asked.quick:
        asked.steps, asked.pairs, asked.pages, asked.documents = 3, 4, 2, 32
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        model = asked.model or smollm2((asked.work or Path(scratch)) / "smollm2")
        plain = SparseEncoder.load(model, document_max_length=LENGTH, query_max_length=LENGTH)
    split = split_tldr(asked.data / "tldr_en", test_pages=asked.pages, development_pages=0)
    split = replace(split, test=few_documents(split.test, asked.documents))
    values: dict[str, Any] = {"pairs": asked.pairs, "steps": asked.steps, "chance": round(math.log(asked.pairs), 3)}
    values["variants"] = rows = {}
    for name in asked.variants:
        if time.perf_counter() - began > asked.seconds:
            break
        rows[name] = run(copy.deepcopy(plain), VARIANTS[name], split, asked)
        sys.stderr.write(f"{name}: { {key: value for key, value in rows[name].items() if key != 'curves'} }\n")
        if asked.out:
            asked.out.write_text(json.dumps(values, indent=1))
    shown = [key for key in next(iter(rows.values())) if key != "curves"]
    print_columns("decoder", ["variant", *shown], [[name, *(row[key] for key in shown)] for name, row in rows.items()])
    print_result(values)
    return 0


def run(encoder: SparseEncoder, variant: Variant, split: Split, asked: argparse.Namespace) -> dict[str, Any]:
    """Calibrate, train and evaluate one variant."""
    where = device()
    encoder = encoder.with_card(attention=variant.attention).to(where)
    if variant.adapt:
        stage = adaptation(2 if asked.quick else variant.adapt, variant.seed)
        encoder = modeled(encoder, stage, wikitext(asked.data / "wikitext2"), (), None)
    calibrate(encoder, variant.calibration, [document for _, document in split.train[:: len(split.train) // 256]][:256])
    before = evaluated(encoder, split)
    found = train(encoder, variant, split, asked)
    return {"start": before, "end": evaluated(encoder, split), **found}


def adaptation(steps: int, seed: int) -> AdaptCausalSettings:
    """Causal language modeling with ReLU of 16 blocks of 128 tokens a step (papers/csplade, 3.1)."""
    return AdaptCausalSettings.model_validate(
        {
            "stage": "adapt_causal",
            "data": {"paths": ["none"], "kind": "texts"},
            "batch": {"texts": 16},
            "steps": steps,
            "max_length": 128,
            "relu_weight": 1.0,
            "optimizer": {"learning_rate": 5e-5, "schedule": "cosine", "warmup_share": 0.1},
            "seed": seed,
        }
    )


def calibrate(encoder: SparseEncoder, kind: str, texts: Sequence[str]) -> None:
    """Leave ``RATE`` of the terms of a text active."""
    maxima = pooled_maxima(encoder, texts, 1 - 1e-6 if kind == "term" else RATE, max_length=LENGTH)
    shift = shifts_for_rate(maxima, RATE) if kind == "term" else np.float32(shift_for_rate(maxima, RATE))
    shift_bias(encoder, torch.from_numpy(np.asarray(shift)))


def stage_of(variant: Variant, asked: argparse.Namespace) -> FinetuneSettings:
    """InfoNCE, FLOPS and low-rank updates of rank 64 (papers/csplade, table 3)."""
    flops = {"regularizer": "flops", "ramp": "quadratic", "query": variant.flops, "document": variant.flops}
    kept = {"keep_query": variant.keep, "keep_document": variant.keep} if variant.keep else {}
    return FinetuneSettings.model_validate(
        {
            "data": {"paths": ["none"], "kind": "pairs"},
            "batch": {"queries": asked.pairs},
            "steps": asked.steps,
            "objective": {
                "losses": [{"loss": "info_nce", "temperature": variant.temperature}],
                "sparsity": {"regularizers": [flops] if variant.flops else [], **kept},
            },
            "optimizer": {"learning_rate": variant.rate, "schedule": "cosine", "warmup_share": 0.05},
            "scale": {"lora": {"rank": 64, "alpha": 64}, "precision": "auto"},
            "watch": {"every": 1, "patience": 10},
            "seed": variant.seed,
        }
    )


def train(encoder: SparseEncoder, variant: Variant, split: Split, asked: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune in place; losses and active terms."""
    stage = stage_of(variant, asked)
    trainer = Trainer(encoder, examples(encoder, split), stage, Group(0, 1, device()))
    guard, stopped = CollapseGuard(stage.watch, 0), ""
    curves: list[list[float]] = []
    began = time.perf_counter()
    while trainer.step < trainer.steps:
        result = trainer.train_step()
        loss = result.losses["info_nce"]
        activity = measure_activity(*result.vectors())
        if trainer.step % 10 == 1 or trainer.step == trainer.steps:
            curves.append(
                [trainer.step, round(loss, 3), round(activity["l0_query"], 1), round(activity["l0_document"], 1)]
            )
        if variant.guarded and not stopped:
            try:
                guard.check(trainer.step, {"loss_info_nce": loss, **activity, **trainer.figures()})
            except TrainingCollapsedError as error:
                stopped = str(error)
                break
    encoder.eval()
    last = np.mean([row[1] for row in curves[-5:]])
    step = round((time.perf_counter() - began) / trainer.step, 3)
    return {"loss": round(float(last), 3), "s_per_step": step, "stopped": stopped, "curves": curves}


def examples(encoder: SparseEncoder, split: Split) -> SampleRows:
    """The training pairs as token ids."""
    sides = [tokens(encoder, texts, kind) for texts, kind in zip(zip(*split.train, strict=True), KINDS, strict=True)]
    return SampleRows([Example(query, (document,), None) for query, document in zip(*sides, strict=True)])


KINDS: tuple[Kind, Kind] = ("query", "document")


def tokens(encoder: SparseEncoder, texts: Sequence[str], kind: Kind) -> list[Any]:
    """Ids of texts, int32."""
    form = TextForm(encoder.card.query_prompt if kind == "query" else encoder.card.document_prompt, LENGTH)
    rows = TokenSettings(encoder.tokenizer.backend_tokenizer.to_str(), form, form).token_ids(texts, form)
    return [np.asarray(row, np.int32) for row in rows]


@torch.inference_mode()
def vectors(encoder: SparseEncoder, texts: Sequence[str], kind: Kind) -> Tensor:
    """Weights [n, V] in 16 bits, on the device."""
    encoder.eval()
    where, found = device(), []
    rows = tokens(encoder, texts, kind)
    for start in range(0, len(rows), _BATCH):
        ids, mask = pad_rows(rows[start : start + _BATCH], encoder.model.config.pad_token_id or 0)
        with torch.autocast(where.type, dtype=torch.bfloat16):
            found.append(encoder(ids.to(where), mask.to(where)).to(torch.bfloat16))
    return torch.cat(found)


def evaluated(encoder: SparseEncoder, split: Split) -> dict[str, float]:
    """RR@10 of the held-out queries over all pages, and active terms."""
    ids = list(split.test.documents)
    places = {one: place for place, one in enumerate(ids)}
    owners = torch.tensor([places[qrel.doc_id] for qrel in split.test.qrels], device=device())
    queries = vectors(encoder, [split.test.queries[qrel.query_id] for qrel in split.test.qrels], "query").float()
    scores = torch.zeros(len(queries), len(ids), device=device())
    active = 0
    for start in range(0, len(ids), 512):
        documents = vectors(encoder, [split.test.documents[one] for one in ids[start : start + 512]], "document")
        active += int((documents > 0).sum())
        scores[:, start : start + 512] = queries @ documents.float().t()
    own = scores.gather(1, owners[:, None])
    # Documents of equal scores share their places: half of them are before the own page.
    rank = 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
    return {
        "RR@10": round(float(torch.where(rank <= 10, 1 / rank, 0).mean()), 4),
        "l0_query": round(float((queries > 0).sum(1).float().mean()), 1),
        "l0_document": round(active / len(ids), 1),
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
