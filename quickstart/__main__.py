"""Run every step on real text: ``python -m quickstart --config quickstart/deployment.yaml``.

Builds a collection from the docstrings of the installed packages, exports a small SPLADE checkpoint, encodes, indexes,
publishes and evaluates it. Then trains the checkpoint on the rest of the collection and repeats these steps with the
trained model. Prints duration and results per step. The folder ``.quickstart`` is deleted first.
"""

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from lsr_prod import SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, load_deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation import evaluate_index
from lsr_prod.export import export_bundle
from lsr_prod.indexing import build_index
from lsr_prod.jobs.evaluate import print_systems
from lsr_prod.jobs.terminal.run import log_to_stderr, print_result
from lsr_prod.jobs.terminal.tables import print_columns
from lsr_prod.training.chain import run_chain
from quickstart.docstrings import collect, write_collection
from quickstart.models import model_folder

DOCUMENTS, QUERIES = 10_000, 1_000
FOLDER = Path(".quickstart")
_PER_DOCUMENT = ("collect", "encode", "index")


def main() -> int:
    """Run all steps, then print the tables and ``RESULT {json}``."""
    log_to_stderr()
    start = time.perf_counter()
    deployment = load_deployment(
        sys.argv[1:],
        job="quickstart",
        description=__doc__ or "",
        needs=("source", "export", "encode", "index", "evaluate", "train"),
    )
    shutil.rmtree(FOLDER, ignore_errors=True)
    seconds, summaries = run_stages(deployment)
    total = time.perf_counter() - start
    print_stages(seconds, summaries, total)
    print_systems(systems(summaries))
    print_result(result(seconds, summaries, total))
    return 0


def run_stages(deployment: Deployment) -> tuple[dict[str, float], dict[str, Mapping[str, Any]]]:
    """Run the steps from text and checkpoint to measures; returns seconds and summary per step."""
    seconds: dict[str, float] = {}
    summaries: dict[str, Mapping[str, Any]] = {}

    def stage(name: str, work: Any) -> None:
        Console(stderr=True).print(f"[bold]{name}[/bold] …")
        begin = time.perf_counter()
        summaries[name] = work()
        seconds[name] = time.perf_counter() - begin

    stage("collect", _collect)
    stage("export", lambda: _export(deployment))
    trained = of_trained_model(deployment)
    assert trained.export is not None
    with ray_session(deployment.ray):
        stage("encode", lambda: encode_corpus(deployment).result())
        stage("index", lambda: build_index(deployment).result())
        stage("evaluate", lambda: evaluate_index(deployment).result())
        stage("train", lambda: run_chain(deployment).result())
        stage("export 2", lambda: export_bundle(trained.export))
        stage("encode 2", lambda: encode_corpus(trained).result())
        stage("index 2", lambda: build_index(trained).result())
    stage("evaluate 2", lambda: evaluate_index(trained).result())
    return seconds, summaries


def of_trained_model(deployment: Deployment) -> Deployment:
    """Return the deployment with the trained model instead of the checkpoint, and with separate artifacts."""
    train, export, encode = deployment.train, deployment.export, deployment.encode
    index, evaluate = deployment.index, deployment.evaluate
    assert train is not None
    assert export is not None
    assert encode is not None
    assert index is not None
    assert evaluate is not None
    folder = Path(train.output).parent
    bundle, table, built = (str(folder / name) for name in ("bundle", "table", "index"))
    return deployment.model_copy(
        update={
            "export": export.model_copy(update={"model": train.output, "output": bundle}),
            "encode": encode.model_copy(update={"bundle": bundle, "table": table}),
            "index": index.model_copy(update={"bundle": bundle, "table": table, "output": built}),
            "evaluate": evaluate.model_copy(update={"index": built, "bm25": False, "runs": str(folder / "runs")}),
        }
    )


def systems(summaries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the systems of both evaluations, named after their model."""
    return [
        {**system, "name": system["name"].replace("threshold", model)}
        for model, stage in (("checkpoint", "evaluate"), ("finetuned", "evaluate 2"))
        for system in summaries[stage]["systems"]
    ]


def _collect() -> Mapping[str, Any]:
    write_collection(FOLDER / "collection", collect(DOCUMENTS), QUERIES)
    return {"documents": DOCUMENTS, "queries": QUERIES}


def _export(deployment: Deployment) -> Mapping[str, Any]:
    assert deployment.export is not None
    encoder = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64)
    encoder.save(Path(deployment.export.model))
    return export_bundle(deployment.export)


def print_stages(seconds: Mapping[str, float], summaries: Mapping[str, Mapping[str, Any]], total: float) -> None:
    """Print seconds, rate and main figures of every step."""
    notes = {
        "collect": f"{DOCUMENTS:,} docstrings, {QUERIES:,} held-out queries",
        "train": _trained(summaries["train"]["stage_rows"][0]),
    }
    for run in ("", " 2"):
        export, encode, index = (summaries[name + run] for name in ("export", "encode", "index"))
        notes |= {
            f"export{run}": f"{export['precision']} graph of {export['graph_bytes'] / 1e6:.1f} MB",
            f"encode{run}": f"{encode['rows_out']:,} vectors, {encode['quarantined']} quarantined",
            f"index{run}": f"{index['bytes_per_doc']:.0f} bytes per document ({_bytes_by_part(index)})",
            f"evaluate{run}": _evaluated(summaries[f"evaluate{run}"]),
        }
    rates = {name: DOCUMENTS / value for name, value in seconds.items() if name.split()[0] in _PER_DOCUMENT}
    rows: list[list[Any]] = [
        [name, round(value, 1), round(rates[name]) if name in rates else None, notes[name]]
        for name, value in seconds.items()
    ]
    print_columns(
        "stages", ("stage", "seconds", "documents/s", "result"), [*rows, ["total", round(total, 1), None, None]]
    )


def _trained(row: Mapping[str, Any]) -> str:
    return f"{row['steps']} steps on {row['rows']:,} other docstrings, loss {row['loss']:.2f}"


def _evaluated(evaluate: Mapping[str, Any]) -> str:
    l0 = f"L0 {evaluate['l0_query']:.0f} per query, {evaluate['l0_document']:.0f} per document"
    systems = f"{evaluate['queries']:,} queries x {len(evaluate['systems'])} systems"
    return f"{systems}; {l0}, FLOPS {evaluate['flops']:.2f}"


def _bytes_by_part(index: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{part} {index[f'bytes_per_doc_{part}']:.0f}" for part in ("impacts", "forward", "tantivy", "docs")
    )


def result(seconds: Mapping[str, float], summaries: Mapping[str, Mapping[str, Any]], total: float) -> dict[str, Any]:
    """Return the figures of the run as a flat mapping."""
    values: dict[str, Any] = {"docs": DOCUMENTS, "queries": QUERIES, "seconds": round(total, 1)}
    values |= {f"seconds.{name.replace(' ', '_')}": round(value, 1) for name, value in seconds.items()}
    values |= {"encode_docs_per_s": round(DOCUMENTS / seconds["encode"], 1)}
    for system in systems(summaries):
        prefix, _, threshold = system["name"].partition(" ")
        suffix = f"_at_{threshold}" if threshold not in ("", "0") else ""
        values[f"{prefix}.mrr10{suffix}"] = round(system["measures"]["RR@10"], 4)
        values[f"{prefix}.r10{suffix}"] = round(system["measures"]["R@10"], 4)
        values[f"{prefix}.matched{suffix}"] = round(system["matched"], 1)
        if prefix == "checkpoint":
            values |= {
                f"{key}{suffix}": round(system[key], 3)
                for key in ("match_p50_ms", "match_p95_ms", "text_p50_ms", "text_p95_ms")
            }
    for key in ("mrr10", "r10"):
        values[f"finetuned.{key}_gain"] = round(values[f"finetuned.{key}"] - values[f"checkpoint.{key}"], 4)
    index, evaluate = summaries["index"], summaries["evaluate"]
    values |= {key: round(value, 1) for key, value in index.items() if key.startswith("bytes_per_doc")}
    costs = ("l0_query", "l0_document", "flops")
    values |= {key: round(evaluate[key], 4) for key in costs}
    return values | {f"finetuned.{key}": round(summaries["evaluate 2"][key], 4) for key in costs}


if __name__ == "__main__":
    raise SystemExit(main())
