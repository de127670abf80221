"""ESPLADE in Korean, small and whole: from random weights to an index, with BM25 beside it.

    python -m benchmarks.train.korean SHARED_DATA [--quick] [--work FOLDER] [--steps 400 400 300] [--seeds 3]

A BERT of two layers with the vocabulary of KcBERT learns to model tldr's Korean pages and the paragraphs of KorQuAD,
gets an output vocabulary U of the words that are there at least twice, is pre-trained on it (EMLM), and is fine-tuned
on descriptions of commands and on questions of three quarters of the paragraphs (papers/esplade-pretraining, appendices
B and C). Judged on the questions of the other paragraphs, which no training saw, over all paragraphs and 1,500 pages,
next to BM25 and to the same vocabulary without any training, whose head is the identity, with its bias as it is
("untrained") and lowered until 0.5 % of the outputs are above zero ("calibrated"). Seeds change the fine-tuning.
Required: half of BM25's R@100. Prints the size of U and ``RESULT {json}``; what is done is used again.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from benchmarks.train.held_out import Judged, figures, judged, published, show
from benchmarks.train.pruning_data import read_lines
from benchmarks.train.recipes_data import word_piece_tokenizer
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.chain import run_chain

DISTRACTORS = 1_500  # encoding all 6,647 pages takes four times as long
PIECE = 30  # words of a text that is modelled
LENGTHS = {"query": 32, "document": 128, "encoded": 384}  # tokens; a paragraph is encoded whole
REQUIRED = 0.5
STEPS = (400, 400, 300)  # of MLM, EMLM and fine-tuning


def main(argv: Sequence[str]) -> int:
    """Train, encode, index, search and print; 1: less than half of BM25's recall."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with korquad_dev/, tldr_ko/ and vocabularies/")
    parser.add_argument("--quick", action="store_true", help="a few steps: does it work at all?")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps what was made")
    parser.add_argument("--steps", type=int, nargs=3, default=STEPS, help="of MLM, EMLM and fine-tuning")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args(argv)
    log_to_stderr()
    start = time.perf_counter()
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="korean-")))
        stack.enter_context(ray_session(RaySettings(num_cpus=2)))
        steps, seeds = ((3, 3, 3), 1) if asked.quick else (tuple(asked.steps), asked.seeds)
        words, found = experiment(asked.data, work.absolute(), steps, seeds)
    show(found, "held-out questions of KorQuAD")
    recall = {name: found.systems[name].means["R@100"] for name in ("trained", "bm25")}
    ratio = round(recall["trained"] / recall["bm25"], 3)
    seconds = round(time.perf_counter() - start)
    print_result({**figures(found), "words": words, "recall_ratio": ratio, "steps": steps, "seconds": seconds})
    return 0 if asked.quick or ratio >= REQUIRED else 1


def experiment(data: Path, work: Path, steps: Sequence[int], seeds: int) -> tuple[int, Judged]:
    """The whole way for every seed; returns the size of U and what the systems reach."""
    if not (work / "bert").exists():
        write_data(data, work)
        save_small_bert(data / "vocabularies" / "kcbert-base-vocab.txt", work / "bert")
    stages = chain_stages(work, steps)
    untrained = [one for one in stages if one["stage"] in ("expand_vocabulary", "set_encoder")]
    calibrated = [one for one in stages if one["stage"] in ("expand_vocabulary", "calibrate", "set_encoder")]
    runs: dict[str, list[str]] = {"untrained": [], "calibrated": [], "trained": []}
    baselines = [("untrained", untrained, 0), ("calibrated", calibrated, 0)]
    for name, kinds, seed in [*baselines, *(("trained", stages, seed) for seed in range(seeds))]:
        seeded = [{**one, "seed": seed} if one["stage"] == "finetune" else one for one in kinds]
        model = work / "trained" / digest_json(seeded)[:12]
        settings = {"model": str(work / "bert"), "output": str(model), "work": str(work / "work"), "stages": seeded}
        rows = run_chain(Deployment.model_validate({"train": settings}))["stage_rows"]
        words = next(row["vocabulary_size"] for row in rows if row["kind"] == "expand_vocabulary")
        published(model, work, work / "runs" / model.name)
        runs[name].append(model.name)
    return words, judged(work, runs["untrained"][0], runs)


def write_data(data: Path, work: Path, *, pages: int = DISTRACTORS) -> None:
    """Texts to model, pairs to train on, and a BEIR folder whose questions are held out with their paragraphs.

    Args:
        data: folder of the collections.
        work: folder to write into.
        pages: pages of tldr that are searched next to the paragraphs.
    """
    commands, paragraphs = (read_lines(data / name / "corpus.jsonl") for name in ("tldr_ko", "korquad_dev"))
    collection = [
        {"_id": f"{name}-{row['_id']}", "text": f"{row.get('title', '')} {row['text']}".strip()}
        for name, rows in (("tldr", commands), ("korquad", paragraphs))
        for row in rows
    ]
    searched = [row for row in collection if row["_id"].startswith("korquad-")]
    searched += [row for row in collection if row["_id"].startswith("tldr-")][:pages]
    qrels = [line.split("\t") for line in _judgements(data / "korquad_dev" / "qrels")]
    owners = sorted({document for _, document, _ in qrels})
    held_out = set(random.Random(0).sample(owners, len(owners) // 4))
    questions = {row["_id"]: row["text"] for row in read_lines(data / "korquad_dev" / "queries.jsonl")}
    texts = {row["_id"]: row["text"] for row in collection}
    asked = [(query, document) for query, document, _ in qrels if document in held_out]
    pairs = [(row["query"], row["pos"]) for row in read_lines(data / "tldr_ko" / "pairs.jsonl")]
    pairs += [(questions[query], texts[f"korquad-{one}"]) for query, one, _ in qrels if one not in held_out]
    folder = work / "collection"
    _write(folder / "corpus.jsonl", searched)
    _write(folder / "queries.jsonl", [{"_id": query, "text": questions[query]} for query, _ in asked])
    _write(work / "pairs.jsonl", [{"query": query, "positive": text} for query, text in pairs])
    _write(work / "texts.jsonl", [{"text": piece} for row in collection for piece in _pieces(row["text"])])
    (folder / "qrels").mkdir(exist_ok=True)
    judged = "".join(f"{query}\tkorquad-{document}\t1\n" for query, document in asked)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, encoding="utf-8")


def save_small_bert(vocabulary: Path, folder: Path) -> None:
    """Two layers x 256 and the tokenizer of a vocabulary; weights are random, the head's transform is the identity.

    So a token predicts itself from the first step, which large models have learnt and a few hundred steps do not teach.
    """
    tokenizer = word_piece_tokenizer(vocabulary, lowercase=False)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024,
        max_position_embeddings=512, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.transform.dense.weight.copy_(torch.eye(config.hidden_size))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def chain_stages(work: Path, steps: Sequence[int]) -> list[dict[str, Any]]:
    """The stages; methods are the paper's, sizes and rates ours."""
    texts = {"paths": [str(work / "texts.jsonl")], "kind": "texts"}
    modelling = {"data": texts, "batch": {"texts": 32}, "max_length": 64, "dropout": 0.0}
    optimizer = {"learning_rate": 5e-4, "warmup_share": 0.1}
    sparsity = {
        "regularizers": [{"regularizer": "joint_flops", "joint": 0.005, "ramp": "quadratic", "ramp_share": 1.0}],
        "keep_query": 1000,
        "keep_document": 2000,
    }
    loss = {"loss": "info_nce", "similarity": "both", "temperature": 5.0}
    return [
        {"stage": "adapt_mlm", "trained": "all", "mask_rate": 0.15, "new_token_weight": 1, "steps": steps[0],
         "optimizer": optimizer, **modelling},
        {"stage": "expand_vocabulary", "data": texts, "size": 100_000, "min_count": 2},
        {"stage": "pretrain_emlm", "steps": steps[1], "optimizer": optimizer, **modelling},
        {"stage": "calibrate", "activation_rate": 0.005, "data": texts, "max_length": 64},
        {
            "stage": "finetune",
            "data": {"paths": [str(work / "pairs.jsonl")], "kind": "pairs"},
            "batch": {"queries": 32},
            "steps": steps[2],
            "objective": {"losses": [loss], "sparsity": sparsity},
            "optimizer": {"learning_rate": 2e-4, "warmup_share": 0.1},
            "query_max_length": LENGTHS["query"],
            "document_max_length": LENGTHS["document"],
            "dropout": 0.0,
        },
        {"stage": "set_encoder", "document_max_length": LENGTHS["encoded"]},
    ]  # fmt: skip


def _judgements(folder: Path) -> list[str]:
    (file,) = folder.glob("*.tsv")
    return [line for line in file.read_text(encoding="utf-8").splitlines()[1:] if line]


def _pieces(text: str) -> Iterable[str]:
    words = text.split()
    return (" ".join(words[start : start + PIECE]) for start in range(0, len(words), PIECE))


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
