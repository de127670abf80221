"""Does a decoder need to be adapted before it is fine-tuned? Terms that never activate, and the loss, over 200 steps.

    python -m benchmarks.train.causal_adaptation SHARED_DATA [--quick] [--model FOLDER] [--seeds 3]

A decoder is fine-tuned twice on pairs of tldr and SciFact, as it is and after ``adapt_causal`` on wikitext2
(papers/csplade, 3.1 and 3.2). The decoder is a small Llama that this program first trains on wikitext2 by plain
next-token prediction, or one of the disk (``--model``, with ``--rank`` by low-rank updates). Of every seed it prints
the share of the output terms that no text of the run activated, the share that none of the last 50 steps activated,
and the losses; then ``RESULT {json}``, whose ``dead_ratio`` is the adapted share over the other one.
"""

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.train.pruning_data import scifact_pairs, split_tldr
from lsr_prod import SparseEncoder
from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.training.data.layouts import PackedLayout, pack
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.language.trainer import LanguageTrainer, make_objective
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer

ALONE = Group(0, 1, torch.device("cpu"))
NOTHING = np.empty(0, np.int32)
LAST = 50  # steps over which a term that was silent counts as dead at the end


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large everything is.

    Attributes:
        pretrain: steps of plain modelling that make the small decoder.
        adapt: steps of the adaptation.
        finetune: steps of the fine-tuning.
        blocks: of a step of modelling.
        block: tokens of a block.
        pairs: of a step of fine-tuning.
        length: tokens of a text.
        vocabulary: tokens of the small decoder.
        width: of the small decoder.
    """

    pretrain: int = 150  # a decoder of 600 steps activates most of its terms at once, and none dies
    adapt: int = 150
    finetune: int = 200
    blocks: int = 16
    block: int = 128
    pairs: int = 32
    length: int = 48
    vocabulary: int = 8000
    width: int = 256


QUICK = Sizes(pretrain=20, adapt=10, finetune=10, blocks=4, block=64, pairs=8, vocabulary=1000, width=64)


@dataclass
class Run:
    """What a fine-tuning showed.

    Attributes:
        losses: of every step.
        active: share of the terms that a document activates, of every step.
        dead: share of the terms that no text of the run activated.
        dead_at_end: share that none of the last steps activated.
    """

    losses: list[float] = field(default_factory=list)
    active: list[float] = field(default_factory=list)
    dead: float = 0.0
    dead_at_end: float = 0.0

    def figures(self) -> dict[str, float]:
        """The figures of the report; losses are means over a tenth of the run."""
        tenth = max(1, len(self.losses) // 10)
        return {
            "dead": round(self.dead, 4),
            "dead_at_end": round(self.dead_at_end, 4),
            "active_at_start": round(self.active[0], 4),
            "active_at_end": round(float(np.mean(self.active[-tenth:])), 4),
            "loss_at_start": round(float(np.mean(self.losses[:tenth])), 3),
            "loss_at_end": round(float(np.mean(self.losses[-tenth:])), 3),
            "worst_loss": round(max(self.losses), 3),
        }


def main(argv: Sequence[str]) -> int:
    """Make, adapt, fine-tune and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with wikitext2/, tldr_en/ and scifact/")
    parser.add_argument("--quick", action="store_true", help="a few steps of tiny models: does it work at all?")
    parser.add_argument("--model", type=Path, default=None, help="folder of a decoder; unset: a small one is made")
    parser.add_argument("--rank", type=int, default=None, help="fine-tune by low-rank updates of this rank")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind")
    parser.add_argument("--pretrain", type=int, default=None, help="steps that make the small decoder")
    parser.add_argument("--adapt", type=int, default=None, help="steps of the adaptation")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="of the fine-tuning")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="dot products of the fine-tuning are divided by it"
    )
    asked = parser.parse_args(argv)
    log_to_stderr()
    start, sizes = time.perf_counter(), QUICK if asked.quick else Sizes()
    changes = {name: value for name in ("pretrain", "adapt") if (value := getattr(asked, name)) is not None}
    sizes = replace(sizes, **changes)
    texts = wikitext(asked.data / "wikitext2")
    plain = SparseEncoder.load(asked.model) if asked.model else small_decoder(texts, sizes)
    found: dict[str, list[dict[str, float]]] = {"as it is": [], "adapted": []}
    for seed in range(asked.seeds):
        adapted = modelled(copy.deepcopy(plain), texts, sizes, steps=sizes.adapt, relu_weight=1.0, seed=seed)
        for name, encoder in (("as it is", plain), ("adapted", adapted)):
            pairs = contrastive_rows(asked.data, encoder, sizes.length)
            stage = contrastive_stage(sizes, asked.learning_rate, asked.temperature, asked.rank, seed)
            run = finetuned(copy.deepcopy(encoder), pairs, stage)
            found[name].append({"seed": seed, **run.figures()})
    print_runs(found)
    print_result({**summary(found), "runs": found, "seconds": round(time.perf_counter() - start)})
    return 0


def wikitext(folder: Path) -> list[str]:
    """Paragraphs, headings left out."""
    lines = (folder / "wiki.train.tokens").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if len(line) > 80 and not line.startswith(" =")]


def small_decoder(texts: list[str], sizes: Sizes) -> SparseEncoder:
    """A Llama of four layers that has learnt to predict the next token, and nothing else."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=sizes.vocabulary, special_tokens=["<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=sizes.width, intermediate_size=2 * sizes.width,
        num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=512, bos_token_id=0, eos_token_id=1,
        tie_word_embeddings=True,
    )  # fmt: skip
    encoder = saved_and_loaded(LlamaForCausalLM(config), fast)
    return modelled(encoder, texts, sizes, steps=sizes.pretrain, relu_weight=0.0, seed=100)


def saved_and_loaded(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> SparseEncoder:
    """The encoder that is made of a folder of transformers, whose card and first token are the usual ones."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return SparseEncoder.load(folder)


def modelled(
    encoder: SparseEncoder,
    texts: list[str],
    sizes: Sizes,
    *,
    steps: int,
    relu_weight: float,
    seed: int,
    learning_rate: float = 1e-3,
) -> SparseEncoder:
    """The encoder after some steps of next-token prediction, in place."""
    end = encoder.tokenizer.eos_token_id
    layout = PackedLayout(sizes.block, int(end))
    used = texts[: 40 * sizes.blocks * (sizes.block // 32) * max(1, steps // 20)]
    ids = [np.array(one, np.int32) for one in encoder.tokenizer(used)["input_ids"]]
    rows = SampleRows([Example(NOTHING, (block,), None) for block in pack(ids, layout)])
    stage = AdaptCausalSettings.model_validate(
        {
            "stage": "adapt_causal",
            "data": {"paths": ["none"], "kind": "texts"},
            "batch": {"texts": sizes.blocks},
            "steps": steps,
            "relu_weight": relu_weight,
            "optimizer": {"learning_rate": learning_rate, "schedule": "cosine", "warmup_share": 0.1},
            "seed": seed,
        }
    )
    alone = Group(0, 1, encoder.model.device)
    trainer = LanguageTrainer(encoder, rows, stage, alone, make_objective(stage, encoder))  # type: ignore[arg-type]
    last: dict[str, float] = {}
    while trainer.step < trainer.steps:
        last = trainer.train_step().losses
        if trainer.step % 50 == 0:
            sys.stderr.write(f"modelling, step {trainer.step}: {last}\n")
    return encoder


def contrastive_rows(data: Path, encoder: SparseEncoder, length: int) -> SampleRows:
    """Pairs of tldr and SciFact as token ids."""
    pairs = [*split_tldr(data / "tldr_en", test_pages=10, development_pages=10).train, *scifact_pairs(data / "scifact")]
    queries, documents = (
        encoder.tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
        for texts in zip(*pairs, strict=True)
    )
    return SampleRows(
        [
            Example(np.array(query, np.int32), (np.array(document, np.int32),), None)
            for query, document in zip(queries, documents, strict=True)
        ]
    )


def contrastive_stage(
    sizes: Sizes, learning_rate: float, temperature: float, rank: int | None, seed: int
) -> FinetuneSettings:
    """InfoNCE over the batch and FLOPS."""
    scale: dict[str, Any] = {} if rank is None else {"lora": {"rank": rank, "alpha": 2 * rank}}
    weights = {"query": 0.003, "document": 0.003}  # papers/csplade, table 3
    return FinetuneSettings.model_validate(
        {
            "data": {"paths": ["none"], "kind": "pairs"},
            "batch": {"queries": sizes.pairs},
            "steps": sizes.finetune,
            "objective": {
                "losses": [{"loss": "info_nce", "temperature": temperature}],
                "sparsity": {"regularizers": [{"regularizer": "flops", "ramp": "quadratic", **weights}]},
            },
            "optimizer": {"learning_rate": learning_rate, "schedule": "cosine", "warmup_share": 0.05},
            "scale": scale,
            "seed": seed,
        }
    )


def finetuned(encoder: SparseEncoder, rows: SampleRows, stage: FinetuneSettings) -> Run:
    """Fine-tune, and watch which terms are active."""
    trainer, run = Trainer(encoder, rows, stage, ALONE), Run()  # type: ignore[arg-type]
    last = torch.full((encoder.card.vocabulary_size,), -1)
    while trainer.step < trainer.steps:
        result = trainer.train_step()
        vectors = torch.cat(result.vectors())
        last[vectors.amax(dim=0) > 0] = trainer.step
        run.losses.append(result.losses["info_nce"])
        run.active.append(float((result.vectors()[1] > 0).float().mean()))
    run.dead = float((last < 0).float().mean())
    run.dead_at_end = float((last <= trainer.step - LAST).float().mean())
    return run


def summary(found: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Means over seeds, and how many of the dead terms are left."""
    dead = {name: float(np.mean([one["dead"] for one in runs])) for name, runs in found.items()}
    end = {name: float(np.mean([one["dead_at_end"] for one in runs])) for name, runs in found.items()}
    loss = {name: float(np.mean([one["loss_at_end"] for one in runs])) for name, runs in found.items()}
    return {
        "dead": round(dead["as it is"], 4),
        "dead_adapted": round(dead["adapted"], 4),
        "dead_ratio": round(dead["adapted"] / max(dead["as it is"], 1e-9), 3),
        "dead_at_end": round(end["as it is"], 4),
        "dead_at_end_adapted": round(end["adapted"], 4),
        "loss_at_end": round(loss["as it is"], 3),
        "loss_at_end_adapted": round(loss["adapted"], 3),
    }


def print_runs(found: dict[str, list[dict[str, float]]]) -> None:
    """One row a fine-tuning."""
    table = Table(title="fine-tuning of a decoder", title_justify="left")
    headings = list(next(iter(found.values()))[0])
    for heading in ("decoder", *headings):
        table.add_column(heading, justify="left" if heading == "decoder" else "right")
    for name, runs in found.items():
        for one in runs:
            table.add_row(name, *(f"{one[heading]:g}" for heading in headings))
    Console(width=max(120, Console().width)).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
