"""Every recipe of ``jobs/recipes`` at a small size, the whole way: train, export, encode, index, search.

    python -m benchmarks.train.recipes SHARED_DATA [--quick] [--steps 60] [--work FOLDER] [--recipes NAME ...]

A recipe keeps its stages, its methods and their order. Replaced are paths, models (splade-tiny, itself moved onto other
byte pairs, or with a head five times as large; the cased BERT and the Llama of ``benchmarks.stand_ins``) and sizes:
steps, batches, lengths, vocabularies, learning rates, which are those of a small model, and the weight of joint FLOPS,
which is proportional to the batch (docs/training.md). Rows come from tldr; judged on
held-out queries over a part of its pages. The figures say that a recipe works, not what its method is worth: no model
is large enough and no training long enough for that.

Prints a row for each recipe (nDCG@10, MRR@10, L0, FLOPS) and ``RESULT {json}``.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.stand_ins import ACTIVE, stand_in
from benchmarks.train.pruning_data import page_texts
from benchmarks.train.recipes_data import (
    LENGTH,
    byte_pair_tokenizer,
    save_with_larger_head,
    write_collection,
    write_rows,
)
from lsr_prod import SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation import evaluate_index
from lsr_prod.indexing import build_index
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.model.export import export_bundle
from quickstart.models import model_folder

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = {  # model that a recipe names -> small one
    "distilbert/distilbert-base-uncased": "uncased",
    "models/bert-base-uncased": "uncased",
    "models/splade": "uncased",
    "google-bert/bert-base-cased": "cased",
    "FacebookAI/roberta-base": "byte-pairs",
    "answerdotai/ModernBERT-base": "large-head",
    "meta-llama/Llama-3.2-1B": "decoder",
}
RATES = {"finetune": 3e-4, "adapt_causal": 3e-4, "adapt_mlm": 1e-3, "pretrain_emlm": 1e-3, "distil_head": 1e-3}
LORA_FACTOR = 10  # low-rank updates need a larger rate than whole weights
MEASURES = ["nDCG@10", "RR@10", "R@10"]
LENGTH_FIELDS = {
    "max_length", "query_max_length", "document_max_length", "card_query_max_length", "card_document_max_length"
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the recipes and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/ and vocabularies/")
    parser.add_argument("--quick", action="store_true", help="a few steps and documents: does it work at all?")
    parser.add_argument("--steps", type=int, default=60, help="of every training stage")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps what was made")
    parser.add_argument("--recipes", nargs="+", default=[], help="names of recipes; default all")
    asked = parser.parse_args(argv)
    rows, texts, queries, documents, steps = 2000, 4000, 300, 1500, asked.steps
    if asked.quick:
        rows, texts, queries, documents, steps = 64, 200, 20, 40, 3
    with ExitStack() as stack:
        work = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recipes-")))
        work = work.absolute()
        (work / "models").mkdir(parents=True, exist_ok=True)
        pairs = write_collection(work / "collection", asked.data, queries=queries, documents=documents)
        small_models(work, asked.data, quick=asked.quick)
        teacher = SparseEncoder.load(work / "models" / "uncased")
        files = write_rows(work / "data", pairs[:rows], page_texts(asked.data / "tldr_en")[:texts], teacher)
        found: dict[str, dict[str, Any]] = {}
        for path in sorted((ROOT / "jobs" / "recipes").glob("*.yaml")):
            if not asked.recipes or path.stem in asked.recipes:
                found[path.stem] = run_recipe(path, work, files, steps=steps)
                Console(stderr=True).print(path.stem, found[path.stem])
    show(found)
    print_result(found)
    return 0


def small_models(work: Path, data: Path, *, quick: bool) -> None:
    """Make what stands in for the models that recipes name; trained ones come from the cache of ``stand_ins``."""
    models, vocabularies = work / "models", data / "vocabularies"
    makers: dict[str, Callable[[Path], object]] = {
        "uncased": lambda folder: SparseEncoder.load(
            model_folder("splade-tiny"), document_max_length=LENGTH, query_max_length=LENGTH
        ).save(folder),
        "large-head": lambda folder: save_with_larger_head(models / "uncased", folder, 5.0),
    }
    for name in ("cased", "decoder"):  # copied by every run: an earlier copy may be of a model that read other texts
        shutil.copytree(_trained(name, work, data, quick=quick), models / name, dirs_exist_ok=True)
    for name, make in makers.items():
        if not (models / name).exists():
            make(models / name)
    if not (models / "byte-pairs").exists():
        target = work / "tokenizers" / "byte-pairs"
        byte_pair_tokenizer(vocabularies, encoder=True).save_pretrained(target)
        stage = {"stage": "transfer_vocabulary", "target": str(target), "initialization": "subtoken", "bias": "rows"}
        chain = {"model": str(models / "uncased"), "output": str(models / "byte-pairs"), "work": str(work / "work")}
        train({"train": {**chain, "stages": [stage]}}, work / "byte-pairs.yaml")


def _trained(name: str, work: Path, data: Path, *, quick: bool) -> Path:
    return stand_in(name, data, work=work / "stand_ins", steps=3) if quick else stand_in(name, data)


def run_recipe(path: Path, work: Path, files: Mapping[str, Path], *, steps: int) -> dict[str, Any]:
    """Train by ``jobs/train.py``, then export, encode, index and search; returns the figures."""
    began = time.perf_counter()
    recipe = shrink(yaml.safe_load(path.read_text()), work, files, steps=steps)
    train(recipe, work / f"{path.stem}.yaml")
    trained = time.perf_counter()
    deployment = whole_way(Path(recipe["train"]["output"]), work / "collection", work / "runs" / path.stem)
    with ray_session(RaySettings(num_cpus=2)):
        assert deployment.export is not None
        export_bundle(deployment.export)
        encode_corpus(deployment)
        build_index(deployment)
    report = evaluate_index(deployment).result()
    system = next(one for one in report["systems"] if one["name"].startswith("threshold 0"))
    return {
        **{name: round(system["measures"][name], 4) for name in MEASURES},
        **{name: round(report[name], 4) for name in ("l0_query", "l0_document", "flops")},
        "train_s": round(trained - began, 1),
        "search_s": round(time.perf_counter() - trained, 1),
    }


def train(recipe: Mapping[str, Any], path: Path) -> None:
    """Run the job on a deployment that is written to ``path``."""
    path.write_text(yaml.safe_dump(dict(recipe), sort_keys=False))
    done = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "train.py"), "--config", str(path)], stdout=sys.stderr, check=False
    )
    if done.returncode:
        raise SystemExit(f"jobs/train.py --config {path} ended with {done.returncode}")


def shrink(recipe: dict[str, Any], work: Path, files: Mapping[str, Path], *, steps: int) -> dict[str, Any]:
    """The recipe with small models, small sizes and the rows at hand."""
    chain = recipe["train"]
    output = work / "trained" / Path(chain["output"]).name
    small = {"output": str(output), "work": str(work / "work"), "workers": 1, "use_gpu": False}
    chain |= small | {"model": str(small_model(chain["model"], work))}
    for stage in chain["stages"]:
        _shrink_stage(stage, work, files, steps)
    return recipe


def small_model(model: str, work: Path) -> Path:
    """The small model in the place of one that a recipe names: made here, or by a recipe before it."""
    if model in STAND_INS:
        return work / "models" / STAND_INS[model]
    return work / "trained" / Path(model).name


def _shrink_stage(stage: dict[str, Any], work: Path, files: Mapping[str, Path], steps: int) -> None:
    for field in ("target", "teacher"):
        if field in stage:
            stage[field] = str(small_model(stage[field], work))
    for holder in (stage, stage.get("train_tokenizer", {}), stage.get("validation", {})):
        if "data" in holder:
            holder["data"] |= {"paths": [str(files[holder["data"]["kind"]])]}
    if "idf_corpus" in stage:
        stage["idf_corpus"]["paths"] = [str(files["texts"])]
    for holder in (stage, stage.get("train_tokenizer", {})):
        if "size" in holder:
            holder["size"] = 3000
    for field in stage.keys() & LENGTH_FIELDS:
        stage[field] = LENGTH
    if "activation_rate" in stage:
        stage["activation_rate"] = max(stage["activation_rate"], ACTIVE)  # 0.5 % of 8,000 terms are 40
        stage["negative_shift"] = "zero"  # a stand-in may be sparser already
    if "corpus" in stage.get("validation", {}):
        names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}
        stage["validation"] |= {field: str(work / "collection" / name) for field, name in names.items()}
        stage["validation"] |= {"every": steps, "documents": 200, "max_queries": 50}
        stage["validation"]["keep_best"] = "last"  # what is measured is the model of the last step
    if stage["stage"] in RATES:
        _shrink_training(stage, steps)


def _shrink_training(stage: dict[str, Any], steps: int) -> None:
    whole = stage.pop("steps", None) or 1
    stage.pop("epochs", None)
    stage["steps"] = steps
    batch = stage["batch"]
    share = 16 / batch.get("queries", 16)  # joint FLOPS contain each pair's own score, divided by the batch
    if "queries" in batch:
        batch |= {"queries": 16, "negatives": min(batch.get("negatives", 0), 4)}
        batch |= {"chunk": 8} if "chunk" in batch else {}
    else:
        batch |= {"texts": 16} | ({"accumulate": 2} if "accumulate" in batch else {})
    optimizer = stage.setdefault("optimizer", {})
    factor = LORA_FACTOR if stage.get("scale", {}).get("lora") else 1
    optimizer["learning_rate"] = RATES[stage["stage"]] * factor
    for field in ("warmup_steps", "schedule_steps"):
        if field in optimizer:
            optimizer[field] = max(1, round(optimizer[field] / whole * steps))
    for one in stage.get("objective", {}).get("sparsity", {}).get("regularizers", []):
        if "ramp_steps" in one:
            one["ramp_steps"] = max(1, round(one["ramp_steps"] / whole * steps))
        if "joint" in one:
            one["joint"] *= share
    if "validation" in stage:
        stage["validation"]["every"] = steps


def whole_way(model: Path, collection: Path, folder: Path) -> Deployment:
    """Export, encode, index and search of a model."""
    places = {name: str(folder / name) for name in ("bundle", "table", "index")}
    return Deployment.model_validate(
        {
            "source": {"paths": [str(collection)]},
            "export": {"model": str(model), "output": places["bundle"]},
            "encode": {"bundle": places["bundle"], "table": places["table"]},
            "index": {"table": places["table"], "bundle": places["bundle"], "output": places["index"]},
            "evaluate": {
                "index": places["index"],
                "queries": str(collection / "queries.jsonl"),
                "qrels": str(collection / "qrels" / "test.tsv"),
                "measures": MEASURES,
                "thresholds": [0.0],
                "bm25": False,
            },
        }
    )


def show(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a row for each recipe."""
    table = Table("recipe", *MEASURES, "L0 query", "L0 document", "FLOPS", "train s", "search s")
    for name, one in found.items():
        table.add_row(name, *(f"{value:,.3f}" for value in one.values()))
    Console(width=130).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
