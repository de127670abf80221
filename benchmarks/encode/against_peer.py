"""Documents per CPU second: our bundle, sentence-transformers' SparseEncoder, and our bundle with naive batches.

    python -m benchmarks.encode.against_peer SHARED_DATA [--quick] [--peer-python .venv-optimum/bin/python]

All contestants use the same model, texts and thread count, each in its own process; they run in turn, and the median
CPU seconds (user and system) count. Speed is measured on a 6x384 encoder, quality on splade-tiny. The peer's ONNX
backend needs an environment with an older transformers; without ``--peer-python`` it is skipped, and the output says
so. Prints tables and ``RESULT {json}``. ``docs_per_cpu_s_ratio`` is our fastest whole bundle against the fastest of
the peer's torch, bf16 and ONNX fp32; ``_8bit`` is against its graph in 8 bits. ``_cut`` is our 8-bit bundle without
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

import ir_measures
import numpy as np

from benchmarks.encode.models import MAX_LENGTH, make_six_layers, make_tiny
from lsr_prod import SparseEncoder
from lsr_prod.config import ExportSettings
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.export import export_bundle
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.terminal.run import print_result, print_table

COLLECTIONS = ("scifact", "debian_packages")
ROOT = Path(__file__).resolve().parents[2]
NDCG = ir_measures.nDCG @ 10


def main(argv: Sequence[str]) -> int:
    """Run all parts and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few texts, one run: smoke test")
    parser.add_argument("--peer-python", default=None, help="python with sentence-transformers 5 and optimum-onnx")
    asked = parser.parse_args(argv)
    probe, cut, sample, judged, runs = (48, 48, 16, 200, 1) if asked.quick else (400, 1_000, 200, 5_183, 3)
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
        contestants = specs(six, bundles, texts, peer=export_peer(six, asked.peer_python), python=asked.peer_python)
        speed = race(contestants, runs=runs)
        values = {**ratios(speed), **scaling(contestants["ours int8"], documents=sample)}
        values |= quality(asked.data / "scifact", tiny, bundles, limit=judged)
        values |= overlaps(tiny, bundles, mixed({"d": corpora["debian_packages"]}, min(judged, 2_000), seed=3))
    print_table("encode", values)
    print_result(values)
    return 0


FORMS = ("fp32", "int8", "int8 cut")


def read_texts(path: Path) -> list[str]:
    """Title and text of every document."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [" ".join(part for part in (row.get("title"), row["text"]) if part) for row in rows]


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


def export_peer(model: Path, python: str | None) -> Path | None:
    """Export the peer's ONNX graphs and return their folder, or None without the peer's environment."""
    if python is None:
        print("no --peer-python: sentence-transformers' ONNX backend is skipped")
        return None
    folder = model.with_name("peer")
    subprocess.run(
        [python, "-m", "benchmarks.encode.peer_export", str(model.absolute()), str(folder.absolute())],
        cwd=ROOT,
        check=True,
        stdout=sys.stderr,
    )
    return folder


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
    for name, file in (("", "model"), (" O3", "model_O3"), (" 8-bit", "model_qint8_avx512_vnni")):
        if peer is not None:
            onnx = {**common, "kind": "sentence-transformers", "backend": "onnx", "python": python, "batch": 2}
            found[f"peer onnx{name}"] = {**onnx, "folder": str(peer), "file": f"{file}.onnx"}
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
    eight = speed.get("peer onnx 8-bit")
    return {
        "docs_per_cpu_s_ratio": round(ours / peers[best], 2),
        "peer_best": best,
        "docs_per_cpu_s_ratio_8bit": round(ours / eight, 2) if eight else None,
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


def quality(folder: Path, model: Path, bundles: Mapping[tuple[str, str], Path], *, limit: int) -> dict[str, Any]:
    """nDCG@10 of torch and of both bundles, brute force over the collection, and their vectors' overlap."""
    judged = read_judged(folder / "queries.jsonl", folder / "qrels" / "test.tsv")
    with (folder / "corpus.jsonl").open(encoding="utf-8") as file:
        ids = [json.loads(line)["_id"] for line in file][:limit]
    texts, queries = read_texts(folder / "corpus.jsonl")[:limit], list(judged.queries.values())
    encoder = SparseEncoder.load(model)
    vectors = {"torch": (encoder.encode(texts, batch_size=8), encoder.encode(queries, "query"))}
    for form in FORMS:
        bundle = BundleEncoder(bundles[model.name, form])
        vectors[form] = bundle.encode(texts, kind="document"), bundle.encode(queries, kind="query")
    found: dict[str, float] = {}
    for name, (documents, asked) in vectors.items():
        scores = dense(asked, encoder.card.vocabulary_size) @ dense(documents, encoder.card.vocabulary_size).T
        run = [
            ir_measures.ScoredDoc(query, str(ids[int(j)]), float(row[j]))
            for query, row in zip(judged.queries, scores, strict=True)
            for j in np.argsort(-row, kind="stable")[:10]
        ]
        found[name] = float(ir_measures.calc_aggregate([NDCG], judged.qrels, run)[NDCG])
    print_table(f"nDCG@10, splade-tiny, {len(texts)} documents of {folder.name}", found)
    return {
        "topk_overlap_fp32": round(overlap(vectors["torch"][0], vectors["fp32"][0]), 5),
        "topk_overlap_int8": round(overlap(vectors["torch"][0], vectors["int8"][0]), 4),
        "topk_overlap_int8_cut": round(overlap(vectors["torch"][0], vectors["int8 cut"][0]), 4),
        "ndcg_fp32": round(found["fp32"], 4),
        "ndcg_drop_fp32": round(found["torch"] - found["fp32"], 4),
        "ndcg_drop_int8": round(found["torch"] - found["int8"], 4),
        "ndcg_drop_int8_cut": round(found["torch"] - found["int8 cut"], 4),
    }


def overlaps(model: Path, bundles: Mapping[tuple[str, str], Path], texts: Sequence[str]) -> dict[str, float]:
    """Overlap of the vectors of short texts with torch's."""
    encoder = SparseEncoder.load(model)
    expected = encoder.encode(texts, batch_size=8)
    return {
        f"topk_overlap_{form.replace(' ', '_')}_debian_packages": round(
            overlap(expected, BundleEncoder(bundles[model.name, form]).encode(texts, kind="document")), 5
        )
        for form in FORMS
    }


def overlap(ours: SparseBatch, theirs: SparseBatch) -> float:
    """Mean share of terms that two vectors of a text have in common."""
    shares = []
    for i in range(len(ours)):
        mine, yours = ours.row(i)[0], theirs.row(i)[0]
        longer = max(len(mine), len(yours))
        shares.append(len(np.intersect1d(mine, yours)) / longer if longer else 1.0)
    return float(np.mean(shares))


def dense(batch: SparseBatch, size: int) -> np.ndarray:
    """[n, V]."""
    rows = np.zeros((len(batch), size), np.float32)
    rows[np.repeat(np.arange(len(batch)), np.diff(batch.offsets)), batch.terms] = batch.weights
    return rows


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
