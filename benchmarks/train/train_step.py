"""A training step's memory and speed: ours against sentence-transformers' SpladeLoss and CachedSpladeLoss.

    python -m benchmarks.train.train_step [--quick] [--vocabularies 30522 100000] [--lengths 64 256] [--rounds 3]
                                          [--steps 2] [--threads 1]
                                          [--memory-gb 18] [--precision fp32] [--engines NAME ...]

One run, the same model (a BERT of 6 layers x 384 with random weights), the same 32 pairs of texts, all of exactly L
tokens so that nobody gains by padding, the same loss, AdamW and dropout (the model's default) for all, one thread. Each
measurement is a process of its own (``benchmarks.train.train_step_worker`` counts memory); the engines take turns.
*Converged* shifts the bias of the vocabulary head so that 0.75 % of the terms are active in a text; all other weights
stay random. What an engine cannot run within ``--memory-gb`` is shown as out of memory, and has no part in a ratio.

Engines: ``ours`` keeps the activations of all layers, ``ours, checkpointed`` those of the last two
(``scale.gradient_checkpointing``, ``kept_layers: 2``); ``ours, two passes`` is the gradient cache (``batch.chunk``) by
1024 tokens; all three drop attention in tiles. ``SpladeLoss, checkpointed`` has gradient checkpointing as
transformers does it. ``cached N`` is CachedSpladeLoss in mini-batches of N texts, 32 is its default.

Each side multiplies in the type that it takes by itself: ours in bf16 where the processor has it
(``scale.precision: auto``; ``--precision fp32`` changes it), the peer in fp32. So where it has bf16, the pairings below
are alike in all but that; ``SpladeLoss, bf16`` is the peer under autocast.

Like for like are two pairings: ``plain`` (``ours`` and SpladeLoss) and ``checkpointed`` (both with gradient
checkpointing). Where SpladeLoss does not fit into memory, the pairing is ``ours, two passes`` and ``cached 32``.

Prints a table of every setting and ``RESULT {json}`` of the first vocabulary, the first length and random weights, and
of every setting under its name. Memory ratios are ours / peer, CPU ratios peer / ours, both in one run:

* ``memory_ratio_like`` and ``cpu_ratio_like``: the headline, the worse of the two pairings; each pairing is
  ``memory_ratio_like_plain``, ``cpu_ratio_like_checkpointed`` and so on.
* ``memory_ratio_bf16`` and ``cpu_ratio_bf16``: ``ours`` to SpladeLoss under autocast in bf16.
* ``peak_memory_ratio``: ``ours, checkpointed`` to SpladeLoss; ``_cached``: to CachedSpladeLoss as it comes,
  ``_cached_8``: in mini-batches of 8. ``cpu_ratio`` and ``steps_per_s_ratio``: to the cheapest and fastest peer.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from benchmarks.train.train_step_worker import draw
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.model import SparseEncoder

SIZES = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ACTIVE = 0.0075  # share of the terms that a converged document has
TOKENS = 1024  # of our two passes, at a time
ENGINES: dict[str, dict[str, Any]] = {
    "ours": {"engine": "ours", "chunk": None},
    "ours, checkpointed": {"engine": "ours", "chunk": None, "kept_layers": 2},
    "ours, two passes": {"engine": "ours"},  # the chunk follows from the length
    "SpladeLoss": {"engine": "peer", "chunk": None},
    "SpladeLoss, checkpointed": {"engine": "peer", "chunk": None, "checkpointed": True},
    "SpladeLoss, bf16": {"engine": "peer", "chunk": None, "bf16": True},
    "cached 32": {"engine": "peer", "chunk": 32},
    "cached 8": {"engine": "peer", "chunk": 8},
}
ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str]) -> int:
    """Measure every setting and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tiny model and few texts: does it work at all?")
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[30_522, 100_000])
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--sparsity", nargs="+", choices=["random", "converged"], default=["random", "converged"])
    parser.add_argument("--rounds", type=int, default=3, help="processes of every engine in a setting")
    parser.add_argument("--steps", type=int, default=2, help="timed steps of a process, after one that is not")
    parser.add_argument("--pairs", type=int, default=32)
    parser.add_argument("--memory-gb", type=float, default=18.0, help="what a process may take above the model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto", help="of ours")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    asked = parser.parse_args(argv)
    if asked.quick:
        asked.vocabularies, asked.lengths, asked.pairs, asked.rounds, asked.steps = [600], [16], 4, 1, 1
    settings = list(product(asked.vocabularies, asked.lengths, asked.sparsity))
    values: dict[str, Any] = {}
    for V, L, sparsity in settings:
        with tempfile.TemporaryDirectory() as scratch:
            spec = {"V": V, "L": L, "pairs": asked.pairs, "seed": 1, "steps": asked.steps, "threads": asked.threads}
            spec |= {"memory_bytes": int(asked.memory_gb * 1e9), "precision": asked.precision}
            folder, active = make_model(Path(scratch), spec, TINY if asked.quick else SIZES, sparsity)
            measured = race({**spec, "model": str(folder)}, asked.engines, rounds=asked.rounds)
        title = f"V={V} L={L} {sparsity}: {active:.2%} of the terms active in a document"
        show(title, measured)
        values[f"V{V}_L{L}_{sparsity}"] = {**ratios(measured), "active": round(active, 4), "engines": measured}
    first = values[f"V{asked.vocabularies[0]}_L{asked.lengths[0]}_{asked.sparsity[0]}"]
    print_result({**{name: first[name] for name in RATIOS}, "settings": values})
    return 0


RATIOS = (
    "memory_ratio_like",
    "cpu_ratio_like",
    "memory_ratio_like_plain",
    "cpu_ratio_like_plain",
    "memory_ratio_like_checkpointed",
    "cpu_ratio_like_checkpointed",
    "memory_ratio_bf16",
    "cpu_ratio_bf16",
    "peak_memory_ratio",
    "peak_memory_ratio_cached",
    "peak_memory_ratio_cached_8",
    "steps_per_s_ratio",
    "cpu_ratio",
)


def make_model(scratch: Path, spec: Mapping[str, Any], sizes: Mapping[str, int], sparsity: str) -> tuple[Path, float]:
    """A model directory, which the peer opens too, and the share of its terms that is active in a document."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, spec["V"]))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=spec["V"], **sizes))
    model.save_pretrained(scratch / "plain")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(scratch / "plain")
    encoder = SparseEncoder.load(scratch / "plain", document_max_length=spec["L"], query_max_length=spec["L"])
    torch.manual_seed(0)
    encoder.train()  # with dropout, as in the steps
    batch = draw({**spec, "seed": spec["seed"] + 1})
    if sparsity == "converged":
        maxima = torch.expm1(encoder.find_argmax(*batch).weights)  # [n, V]
        level = maxima.flatten().kthvalue(int((1 - ACTIVE) * maxima.numel())).values
        with torch.no_grad():
            encoder.model.get_output_embeddings().bias -= level
    active = (encoder.find_argmax(*batch).weights > 0).float().mean().item()
    encoder.save(scratch / "model")
    return scratch / "model", active


def race(spec: Mapping[str, Any], engines: Sequence[str], *, rounds: int) -> dict[str, dict[str, Any]]:
    """Steps a second (median of all rounds) and peak memory in MB (the most) of every engine; empty: out of memory."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name in engines:
            if not any("out_of_memory" in run for run in runs[name]):
                runs[name].append(run_worker(spec, name))
    return {
        name: {}
        if any("out_of_memory" in run for run in made)
        else {
            "steps_per_s": round(1 / median(second for run in made for second in run["seconds"]), 4),
            "cpu_s_per_step": round(median(second for run in made for second in run["cpu_seconds"]), 2),
            "peak_mb": round(max(run["peak_bytes"] for run in made) / 1e6, 1),
            "loss": round(made[0]["loss"], 4),
        }
        for name, made in runs.items()
    }


def run_worker(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One measurement."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"chunk": max(1, TOKENS // spec["L"]), **spec, **ENGINES[name]}, file)
        file.flush()
        environment = {**os.environ, "OMP_NUM_THREADS": str(spec["threads"]), "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-m", "benchmarks.train.train_step_worker", file.name]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == -signal.SIGKILL:  # by the kernel, where the machine has less than the limit
        return {"out_of_memory": True}
    done.check_returncode()
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


PAIRINGS = {"plain": ("ours", "SpladeLoss"), "checkpointed": ("ours, checkpointed", "SpladeLoss, checkpointed")}
CACHED = ("ours, two passes", "cached 32")


def ratios(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Ratios of ours and the peers; None where one of the two could not run."""
    ours = measured.get("ours, checkpointed", {})
    peers = {name: one for name, one in measured.items() if not name.startswith("ours") and one}
    fastest = max((one["steps_per_s"] for one in peers.values()), default=None)
    cheapest = min((one["cpu_s_per_step"] for one in peers.values()), default=None)

    def memory(peer: str) -> float | None:
        return round(ours["peak_mb"] / peers[peer]["peak_mb"], 3) if ours and peer in peers else None

    memory_bf16, cpu_bf16 = compared(measured.get("ours"), measured.get("SpladeLoss, bf16"))
    return {
        **like_for_like(measured),
        "memory_ratio_bf16": memory_bf16,
        "cpu_ratio_bf16": cpu_bf16,
        "peak_memory_ratio": memory("SpladeLoss"),
        "peak_memory_ratio_cached": memory("cached 32"),
        "peak_memory_ratio_cached_8": memory("cached 8"),
        "steps_per_s_ratio": round(ours["steps_per_s"] / fastest, 2) if ours and fastest else None,
        "cpu_ratio": round(cheapest / ours["cpu_s_per_step"], 2) if ours and cheapest else None,
    }


def like_for_like(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Memory and CPU ratios of both pairings, and the worse of each."""
    memory: dict[str, float | None] = {}
    cpu: dict[str, float | None] = {}
    for pairing, names in PAIRINGS.items():
        ours, peer = (measured.get(name, {}) for name in names)
        if not peer:
            ours, peer = (measured.get(name, {}) for name in CACHED)
        memory[pairing], cpu[pairing] = compared(ours, peer)
    return {
        "memory_ratio_like": max((one for one in memory.values() if one), default=None),
        "cpu_ratio_like": min((one for one in cpu.values() if one), default=None),
        **{f"memory_ratio_like_{pairing}": one for pairing, one in memory.items()},
        **{f"cpu_ratio_like_{pairing}": one for pairing, one in cpu.items()},
    }


def compared(ours: Mapping[str, Any] | None, peer: Mapping[str, Any] | None) -> tuple[float | None, float | None]:
    """Memory of ours / peer and CPU time of peer / ours; None where one of the two did not run."""
    if not ours or not peer:
        return None, None
    cpu = peer["cpu_s_per_step"] / ours["cpu_s_per_step"]
    return round(ours["peak_mb"] / peer["peak_mb"], 3), round(cpu, 2)


def show(title: str, measured: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a setting's table."""
    columns = {
        "steps/s": "steps_per_s",
        "CPU s a step": "cpu_s_per_step",
        "peak MB above the model": "peak_mb",
        "loss of step 1": "loss",
    }
    table = Table("engine", *columns, title=title, title_justify="left")
    for name, one in measured.items():
        table.add_row(name, *([f"{one[key]:,.3f}" for key in columns.values()] if one else ["out of memory"]))
    Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
