"""What a transfer of the vocabulary is worth before and after a little training of the embeddings.

    python -m benchmarks.vocabulary.transfer SHARED_DATA [--quick] [--work FOLDER] [--seeds 3] [--steps 100]
    python -m benchmarks.vocabulary.transfer SHARED_DATA --scale

SmolLM2-135M, a cased byte-level model, is moved onto the vocabulary of bert-base-uncased, with MiniLM's embeddings as
the target's space. Next-token loss on wikitext2's validation text at step 0 and after the steps, which train the
embeddings only, 256 tokens each; every initialization, every seed (of drawn rows and of the order of texts). Required:
``semantic`` and ``subtoken`` below ``random_new`` at both, every seed of them. Needs the package gguf. ``--scale``
instead moves 30,000 terms onto 100,000 (random embeddings of width 768), and prints seconds and memory.
"""

import argparse
import gc
import math
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from lsr_prod import SparseEncoder
from lsr_prod.inference.terms.surfaces import overlap_share
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.vocabulary.initialization import Initialization, initialize, semantic
from lsr_prod.training.vocabulary.target import read_embeddings, read_target, target_terms
from lsr_prod.training.vocabulary.transfer import move_to_vocabulary
from quickstart.models import model_folder

STRATEGIES = ("semantic", "subtoken", "mean", "random_new", "random_all")
LENGTH = 256
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(argv: Sequence[str]) -> int:
    """Move, train a little, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with wikitext2/")
    parser.add_argument("--quick", action="store_true", help="two steps, one seed: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps the converted model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of 256 tokens that the loss is measured on")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--scale", action="store_true", help="seconds and memory of a large transfer")
    asked = parser.parse_args(argv)
    log_to_stderr()
    if asked.scale:
        print_result(scale())
        return 0
    if asked.quick:
        asked.seeds, asked.steps, asked.blocks = 1, 2, 1
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vocabulary-transfer-")))
        values = experiment(asked.data, work, asked)
    print_result(values)
    return 0 if asked.quick or values["required"] else 1


def experiment(data: Path, work: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Every initialization and seed; returns the figures of ``RESULT``."""
    started = time.perf_counter()
    source = SparseEncoder.load(smollm2(work / "smollm2"))
    minilm = str(model_folder("minilm"))
    tokenizer = read_target(minilm)
    known = read_embeddings(minilm, target_terms(tokenizer), bias=False)
    texts = blocks(data / "wikitext2" / "wiki.valid.tokens", tokenizer, asked.blocks)
    train = blocks(data / "wikitext2" / "wiki.train.tokens", tokenizer, 4 * asked.steps)
    losses: dict[str, list[tuple[float, float]]] = {}
    for strategy in STRATEGIES:
        for seed in range(asked.seeds):
            aligned, initialization = initialize(source, tokenizer, strategy, known, seed=seed)
            moved = move_to_vocabulary(source, tokenizer, initialization, None)
            before = loss(moved, texts)
            adapt(moved, train, steps=asked.steps, learning_rate=asked.learning_rate, seed=seed)
            losses.setdefault(strategy, []).append((before, loss(moved, texts)))
            print(f"{strategy} seed {seed}: {before:.3f} -> {losses[strategy][-1][1]:.3f}", flush=True)
            del moved
            gc.collect()
    print(f"{'initialization':14s} {'step 0':>18s} {'step ' + str(asked.steps):>18s}   (mean and range over the seeds)")
    for strategy, found in losses.items():
        print(f"{strategy:14s} {_spread([a for a, _ in found]):>18s} {_spread([b for _, b in found]):>18s}")
    required = all(
        max(one[i] for one in losses[strategy]) < min(one[i] for one in losses["random_new"])
        for strategy in ("semantic", "subtoken")
        for i in (0, 1)
    )
    print(f"semantic and subtoken below random_new at both: {'yes' if required else 'NO'}")
    return {
        "overlap": overlap_share(aligned),
        "losses": losses,
        "uniform_loss": math.log(len(tokenizer)),
        "steps": asked.steps,
        "required": required,
        "seconds": round(time.perf_counter() - started),
    }


def smollm2(folder: Path) -> Path:
    """The GGUF file as a folder of transformers."""
    if not (folder / "model.safetensors").exists():
        packed = model_folder("smollm2")
        quantized: Any = AutoModelForCausalLM.from_pretrained(packed, gguf_file=GGUF, dtype=torch.float32)
        model = LlamaForCausalLM(quantized.config)  # what was quantized is not saved
        model.load_state_dict(quantized.state_dict())
        model.config.quantization_config = None
        del model.config.quantization_config
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(packed, gguf_file=GGUF).save_pretrained(folder)
    return folder


def blocks(file: Path, tokenizer: PreTrainedTokenizerFast, count: int) -> torch.Tensor:
    """The first blocks of a text, int64 [count, 256], each beginning with the tokenizer's first token."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").split("\n"))
    found: list[int] = []
    for line in lines:
        if line and not line.startswith("="):
            found += tokenizer(line.replace(" @-@ ", "-").replace("<unk>", ""), add_special_tokens=False)["input_ids"]
        if len(found) >= count * (LENGTH - 1):
            break
    rows = torch.tensor(found[: count * (LENGTH - 1)]).view(count, LENGTH - 1)
    return torch.cat([torch.full((count, 1), tokenizer.cls_token_id), rows], dim=1)


@torch.no_grad()
def loss(encoder: SparseEncoder, texts: torch.Tensor) -> float:
    """Mean cross entropy of the next token."""
    model: Any = encoder.model.eval()
    return float(np.mean([float(model(input_ids=row[None], labels=row[None]).loss) for row in texts]))


def adapt(encoder: SparseEncoder, texts: torch.Tensor, *, steps: int, learning_rate: float, seed: int) -> None:
    """Train the embeddings, which are the head too; all else is frozen."""
    model: Any = encoder.model
    model.requires_grad_(False)
    weight = output_layer(model)[0]
    weight.requires_grad_(True)
    optimizer = torch.optim.AdamW([weight], lr=learning_rate, weight_decay=0.0)
    for row in _order(texts, steps, seed):
        model(input_ids=row[None], labels=row[None]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def scale() -> dict[str, Any]:
    """A semantic transfer of 30,000 terms onto 100,000, 25,000 of them shared."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(rows, 768, generator=generator) for rows in (30_000, 100_000))
    target += 3 * torch.randn(200, 768, generator=generator)[torch.arange(100_000) % 200]  # groups of related words
    aligned = np.where(np.arange(100_000) < 25_000, np.arange(100_000), -1)
    before, started = _peak(), time.perf_counter()
    combination = semantic(aligned, target)
    rows = Initialization(combination, torch.arange(25_000)).rows(source)
    seconds = time.perf_counter() - started
    values = {
        "terms": len(rows),
        "seconds": round(seconds, 1),
        "peak_mb": round(_peak()),
        "peak_mb_before": round(before),
        "mean_support": round(len(combination.rows[25_000:]) / 75_000, 1),
        "threads": torch.get_num_threads(),
    }
    print(values)
    return values


def _order(texts: torch.Tensor, steps: int, seed: int) -> Iterator[torch.Tensor]:
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    return (texts[int(i)] for i in order[:steps])


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
