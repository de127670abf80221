"""Documents per CPU second: our bundle, sentence-transformers' SparseEncoder, and our bundle with naive batches.

    python -m benchmarks.encode.against_peer SHARED_DATA [--quick] [--peer-python .venv-optimum/bin/python]

All contestants use the same model, texts and thread count, each in its own process; they run in turn, and the median
CPU seconds (user and system) count. Speed is measured on a 6x384 encoder, quality on splade-tiny. The peer's ONNX and
OpenVINO backends need an environment with an older transformers; without ``--peer-python`` they are skipped, and the
output says so. Prints tables and ``RESULT {json}``. ``docs_per_cpu_s_ratio`` is our fastest whole bundle against the
fastest of the peer's torch, bf16, ONNX and OpenVINO forms of at least 16 bits; ``_8bit`` is our 8-bit bundle against
the fastest of its 8-bit forms (``peer_best_8bit``: ONNX dynamic, OpenVINO static). ``_cut`` is our 8-bit bundle without
the terms that a probe of other texts never activates, against the former; its overlap and nDCG show the loss.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.encode.forms import FORMS, PEER_FORMS, ROOT, export_peer, peer_spec, read_texts
from benchmarks.encode.models import MAX_LENGTH, make_six_layers, make_tiny
from benchmarks.encode.quality import overlaps, quality
from lsr_prod.config import ExportSettings
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.model.export import export_bundle

COLLECTIONS = ("scifact", "debian_packages")


def main(argv: Sequence[str]) -> int:
    """Run all parts and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few texts, one run: smoke test")
    parser.add_argument("--peer-python", default=None, help="python with sentence-transformers 5 and optimum-onnx")
    parser.add_argument("--documents", type=int, default=200, help="texts of the race")
    parser.add_argument("--runs", type=int, default=3, help="rounds of the race")
    asked = parser.parse_args(argv)
    probe, cut, sample, judged, runs = (
        (48, 48, 16, 200, 1) if asked.quick else (400, 1_000, asked.documents, 5_183, asked.runs)
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpora = {name: read_texts(asked.data / name / "corpus.jsonl") for name in COLLECTIONS}
        tiny = make_tiny(folder / "tiny")
        six = make_six_layers(folder / "six", tiny, mixed(corpora, probe, seed=1))
        drawn = mixed(corpora, cut + sample, seed=2)
        probe_file, texts = folder / "probe.jsonl", folder / "texts.json"
        probe_file.write_text("".join(json.dumps({"text": text}) + "\n" for text in drawn[:cut]))
        texts.write_text(json.dumps(drawn[cut:]))
        bundles = {(model.name, form): make_bundle(model, form, probe_file) for model in (tiny, six) for form in FORMS}
        calibration = folder / "calibration.json"
        calibration.write_text(json.dumps(drawn[:300]))
        peers = {model.name: export_peer(model, asked.peer_python, calibration) for model in (tiny, six)}
        contestants = specs(six, bundles, texts, peer=peers["six"], python=asked.peer_python)
        speed = race(contestants, runs=runs)
        values = {**ratios(speed), **scaling(contestants["ours int8"], documents=sample)}
        values |= quality(
            asked.data / "scifact", tiny, bundles, peer=peers["tiny"], python=asked.peer_python, limit=judged
        )
        values |= overlaps(tiny, bundles, mixed({"d": corpora["debian_packages"]}, min(judged, 2_000), seed=3))
    print_table("encode", values)
    print_result(values)
    return 0


def mixed(corpora: Mapping[str, Sequence[str]], count: int, *, seed: int) -> list[str]:
    """``count`` texts, as many of each collection, in random order: long and short texts are mixed."""
    generator = random.Random(seed)
    texts = [text for corpus in corpora.values() for text in generator.sample(list(corpus), count // len(corpora))]
    generator.shuffle(texts)
    return texts


def make_bundle(model: Path, form: str, probe: Path) -> Path:
    """Export one bundle next to the model and return its folder."""
    output = model.with_name(f"{model.name}-{form.replace(' ', '-')}")
    settings: dict[str, Any] = {"model": str(model), "output": str(output), "precision": form.split()[0]}
    # The head of the 6x384 encoder is untrained, so a low overlap in 8 bits is expected; its quality is not measured.
    settings["int8_min_overlap"] = 0.9 if model.name == "tiny" else 0.5
    if form.endswith("cut"):  # the loss is printed, so the export must not fail on it
        settings |= {"probe_texts": str(probe), "min_overlap": 0, "int8_min_overlap": 0}
    made = export_bundle(ExportSettings(**settings))
    if made["cut_terms"]:
        print(f"{model.name}: {made['cut_terms']} terms cut")
    return output


def specs(
    six: Path, bundles: Mapping[tuple[str, str], Path], texts: Path, *, peer: Path | None, python: str | None
) -> dict[str, dict[str, Any]]:
    """Return name -> spec of ``benchmarks.encode.worker``; each batch size is the contestant's best of those tried."""
    common = {"texts": str(texts), "threads": 1, "max_length": MAX_LENGTH["6x384"], "python": sys.executable}
    found: dict[str, dict[str, Any]] = {}
    for form in FORMS:
        bundle = {**common, "folder": str(bundles["six", form])}
        found[f"ours {form}"] = {**bundle, "kind": "ours", "batch": 512}
        if not form.endswith("cut"):
            found[f"naive {form}"] = {**bundle, "kind": "naive", "batch": 32}
    torch = {**common, "kind": "sentence-transformers", "backend": "torch", "folder": str(six)}
    for dtype in ("fp32", "bf16"):
        for batch in (4, 32):
            found[f"peer {dtype} {batch}"] = {**torch, "dtype": dtype, "batch": batch}
    if peer is not None:
        for name in PEER_FORMS:
            found[f"peer {name}"] = {**common, **peer_spec(name, peer), "python": python}
    return found


def start(spec: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Start the process of a contestant and wait until it is warm."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(spec, file)
    environment = {**os.environ, "OMP_NUM_THREADS": str(spec["threads"]), "TOKENIZERS_PARALLELISM": "false"}
    command = [str(spec["python"]), "-m", "benchmarks.encode.worker", file.name]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError(f"a contestant did not start: {spec}; see its error output above")
    Path(file.name).unlink()
    return process


def ask(process: subprocess.Popen[str]) -> None:
    """Request one run over all texts from a contestant."""
    assert process.stdin is not None
    print("go", file=process.stdin, flush=True)


def answer(process: subprocess.Popen[str]) -> dict[str, float]:
    """Return the times of the requested run."""
    assert process.stdout is not None
    found: dict[str, float] = json.loads(process.stdout.readline())
    return found


def stop(process: subprocess.Popen[str]) -> None:
    """Close the input of a contestant and wait until it exits."""
    process.communicate()


def race(contestants: Mapping[str, Mapping[str, Any]], *, runs: int) -> dict[str, float]:
    """Return documents per CPU second of each contestant; they run one after another for ``runs`` rounds."""
    documents = len(json.loads(Path(next(iter(contestants.values()))["texts"]).read_text()))
    processes = {name: start(spec) for name, spec in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(runs):
        for name, process in processes.items():
            ask(process)
            seconds[name].append(answer(process)["cpu_s"])
    for process in processes.values():
        stop(process)
    rates = {name: round(documents / median(times), 2) for name, times in seconds.items()}
    print_table("documents per CPU second, 6x384 encoder, one thread", rates)
    return rates


def ratios(speed: Mapping[str, float]) -> dict[str, Any]:
    """Return our speed relative to the peer's best contestants and to our naive batches."""
    ours = max(speed["ours fp32"], speed["ours int8"])
    peers = {name: rate for name, rate in speed.items() if name.startswith("peer") and "8-bit" not in name}
    best = max(peers, key=lambda name: peers[name])
    eight = {name: rate for name, rate in speed.items() if name.startswith("peer") and "8-bit" in name}
    best_eight = max(eight, key=lambda name: eight[name]) if eight else None
    return {
        "docs_per_cpu_s_ratio": round(ours / peers[best], 2),
        "peer_best": best,
        "docs_per_cpu_s_ratio_8bit": round(speed["ours int8"] / eight[best_eight], 2) if best_eight else None,
        "peer_best_8bit": best_eight,
        "docs_per_cpu_s_ratio_cut": round(speed["ours int8 cut"] / peers[best], 2),
        "docs_per_cpu_s_ratio_naive": round(ours / speed["naive int8"], 2),
        "docs_per_cpu_s_ratio_fp32": round(speed["ours fp32"] / max(speed["peer fp32 4"], speed["peer fp32 32"]), 2),
    }


def scaling(spec: Mapping[str, Any], *, documents: int) -> dict[str, float]:
    """Return documents per second of wall time with one encoder process and with two concurrent ones."""
    rates = []
    for count in (1, 2):
        processes = [start(spec) for _ in range(count)]
        begin = time.perf_counter()
        for process in processes:
            ask(process)
        for process in processes:
            answer(process)
        rates.append(count * documents / (time.perf_counter() - begin))
        for process in processes:
            stop(process)
    return {
        "docs_per_s_1_actor": round(rates[0], 1),
        "docs_per_s_2_actors": round(rates[1], 1),
        "actor_scaling": round(rates[1] / rates[0], 2),
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
