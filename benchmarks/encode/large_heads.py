"""Heads of 100,000 and 300,000 terms end to end: export, encode job, index, search.

    python -m benchmarks.encode.large_heads SHARED_DATA [--terms 100000 300000] [--quick]

splade-tiny gets an output layer of U words, the most frequent of the collections at hand and made-up ones after them;
rows are means over sub-tokens, and the bias is lowered until about 1 % of the terms are active in a text, as after
training. Both precisions are exported; the 8-bit bundle encodes SciFact's documents by the encode job, an index is
built, and its judged queries are searched by text. Prints seconds, bytes and peak memory of each step for each size,
and ``RESULT {json}``.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from transformers import PreTrainedTokenizerFast

from lsr_prod import SparseEncoder
from lsr_prod.config import Deployment, ExportSettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.indexing import build_index
from lsr_prod.inference import BundleEncoder
from lsr_prod.inference.terms.words import split_normalized, word_normalizer, word_pieces
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.export import export_bundle
from lsr_prod.search import Searcher
from lsr_prod.training.stages.vocabulary import expand
from quickstart.models import model_folder

SHARE_ACTIVE = 0.01
COLLECTIONS = ("scifact", "debian_packages", "msmarco_5k", "tldr_en")


def main(argv: Sequence[str]) -> int:
    """Run each size and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--terms", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--quick", action="store_true", help="200 documents and 20 queries: does it work at all?")
    asked = parser.parse_args(argv)
    corpora = {name: _texts(asked.data / name / "corpus.jsonl", 2_000 if asked.quick else None) for name in COLLECTIONS}
    words = frequent_words([text for texts in corpora.values() for text in texts], tokenizer_of_splade())
    values: dict[str, Any] = {}
    for terms in asked.terms:
        with tempfile.TemporaryDirectory() as scratch:
            found = run(Path(scratch), asked.data / "scifact", words, terms, documents=200 if asked.quick else None)
        print_table(f"{terms} output terms", found)
        values |= {f"{terms}_{name}": value for name, value in found.items()}
    print_result(values)
    return 0


def run(folder: Path, collection: Path, words: Sequence[str], terms: int, *, documents: int | None) -> dict[str, Any]:
    """One size, every step."""
    lines = (collection / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:documents]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = _texts(folder / "corpus.jsonl", 64)
    made = [*words[:terms], *(f"madeup{i}" for i in range(terms - len(words)))]
    model = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64)
    start = time.perf_counter()
    encoder, pieces = expand(model, made, drawn=False)
    settle_bias(encoder, texts)
    encoder.save(folder / "model")
    found: dict[str, Any] = {
        "words_seen": min(len(words), terms),
        "pieces_per_word": round(pieces, 2),
        "make_s": _since(start),
    }
    for precision in ("fp32", "int8"):
        output = folder / precision
        settings = {"model": str(folder / "model"), "output": str(output), "precision": precision}
        summary = export_bundle(ExportSettings(**settings, int8_min_overlap=0.5))  # no training has told rows apart
        found |= {
            f"export_{precision}_s": round(summary["seconds"], 1),
            f"graph_{precision}_mb": round(summary["graph_bytes"] / 1e6, 1),
            f"overlap_{precision}": round(summary["parity_overlap"], 4),
        }
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # a process of its own, for its memory
            found |= {f"{name}_{precision}": value for name, value in pool.apply(encode_alone, (output, texts)).items()}
    return found | search(folder, collection, queries=20 if documents else None)


def search(folder: Path, collection: Path, *, queries: int | None) -> dict[str, Any]:
    """Encode job, index, search by text."""
    deployment = Deployment.model_validate(
        yaml.safe_load(f"""
source: {{paths: ["{folder}/corpus.jsonl"]}}
encode: {{bundle: "{folder}/int8", table: "{folder}/table"}}
index: {{table: "{folder}/table", bundle: "{folder}/int8", output: "{folder}/index"}}
""")
    )
    start = time.perf_counter()
    encoded = encode_corpus(deployment)
    found: dict[str, Any] = {"encode_job_s": _since(start), "quarantined": encoded.quarantined}
    start = time.perf_counter()
    build_index(deployment)
    size = sum(path.stat().st_size for path in (folder / "index").rglob("*") if path.is_file())
    found |= {"index_s": _since(start), "index_mb": round(size / 1e6, 1)}
    judged = read_judged(collection / "queries.jsonl", collection / "qrels" / "test.tsv")
    searcher, seconds, hits = Searcher.open(folder / "index"), [], 0
    for text in list(judged.queries.values())[:queries]:
        start = time.perf_counter()
        hits += len(searcher.search(text, k=10).hits)
        seconds.append(time.perf_counter() - start)
    found |= {
        "search_p50_ms": round(1e3 * float(np.median(seconds)), 2),
        "search_p95_ms": round(1e3 * float(np.quantile(seconds, 0.95)), 2),
        "hits": hits,
        "peak_mb": _peak_mb(),
    }
    return found


def encode_alone(bundle: Path, texts: Sequence[str]) -> dict[str, float]:
    """Documents a second of one thread, and the memory of a process that only encodes."""
    encoder = BundleEncoder(bundle, threads=1)
    start = time.perf_counter()
    vectors = encoder.encode(texts, kind="document")
    seconds = time.perf_counter() - start
    return {
        "docs_per_s": round(len(texts) / seconds, 1),
        "l0_document": round(len(vectors.terms) / len(texts), 1),
        "encoder_peak_mb": _peak_mb(),
    }


def frequent_words(texts: Sequence[str], tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Words that the tokenizer can spell, by falling number, ties by name."""
    normalizer = word_normalizer(tokenizer.backend_tokenizer)
    counts = Counter(word for text in texts for word in split_normalized(text, normalizer))
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return [word for word, pieces in zip(words, word_pieces(words, tokenizer), strict=True) if pieces]


def tokenizer_of_splade() -> PreTrainedTokenizerFast:
    """Of the model that gets the heads."""
    return SparseEncoder.load(model_folder("splade-tiny")).tokenizer


@torch.no_grad()
def settle_bias(encoder: SparseEncoder, texts: Sequence[str]) -> None:
    """Lower the bias until about 1 % of the terms of a text are active."""
    _, bias = output_layer(encoder.model)
    assert bias is not None
    before = bias.clone()
    bias += 100.0  # every maximum above 0, so that it can be read back
    batch = encoder.encode(texts[:16])
    bias.copy_(before - float(np.quantile(np.expm1(batch.weights.astype(np.float64)) - 100.0, 1 - SHARE_ACTIVE)))


def _texts(path: Path, most: int | None) -> list[str]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:most]]
    return [" ".join(part for part in (row.get("title"), row["text"]) if part) for row in rows]


def _peak_mb() -> float:
    """Of this process alone: what getrusage says of a new process begins with the size of the one that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 0)


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
