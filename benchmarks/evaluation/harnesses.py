"""Compare mteb, PyTerrier and ``lsr-prod evaluate`` on SciFact, which ir_datasets hands to our jobs.

    python -m benchmarks.evaluation.harnesses DATA [--work FOLDER] [--documents N]

DATA has ``scifact/`` in the layout of BEIR; no hub is needed. It is registered as a dataset of ir_datasets, written as
inputs of the jobs, encoded with splade-tiny (documents of 128 tokens), indexed and evaluated. The harnesses then
search the published index, or encode the corpus themselves: mteb in an index (``IndexSearch``), as a sparse model
(``BundleModel``) and with its own wrapper of sentence-transformers around our model folder; PyTerrier with
``SparseIndexer``.

Everything stays in FOLDER. RESULT: nDCG@10, R@100 and RR@10 per system. Returns 1 if a system that searches an index
differs from ``lsr-prod evaluate`` by 0.00005 or more. Models without an index have weights of full precision.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import ir_measures
import mteb
import pandas as pd
import pyterrier as pt
import yaml
from datasets import Dataset
from ir_datasets.datasets.base import Dataset as Registered
from ir_datasets.formats import GenericQuery, JsonlDocs, JsonlQueries, TrecQrels
from ir_datasets.util import LocalDownload
from mteb.abstasks.retrieval import AbsTaskRetrieval
from sentence_transformers import SparseEncoder as PeerEncoder

from benchmarks.evaluation.sweep import bundle
from lsr_prod import Searcher
from lsr_prod.config import Deployment
from lsr_prod.evaluation import evaluate_index
from lsr_prod.integrations.ir_datasets import write_dataset
from lsr_prod.integrations.mteb import IndexSearch
from lsr_prod.integrations.mteb_model import BundleModel
from lsr_prod.integrations.pyterrier import SparseIndexer, SparseRetriever
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.jobs.terminal.tables import print_columns

MEASURES = {"nDCG@10": "ndcg_at_10", "R@100": "recall_at_100", "RR@10": "mrr_at_10"}
"""Name in ``ir_measures``, and in mteb."""
SAME = 0.00005
Measures = dict[str, float]


class TitledDoc(NamedTuple):
    """A document of BEIR."""

    doc_id: str
    title: str
    text: str

    def default_text(self) -> str:
        """Return title and text."""
        return f"{self.title} {self.text}".strip()


def main(argv: Sequence[str]) -> int:
    """Run all systems and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with scifact/")
    parser.add_argument("--work", type=Path, default=Path("build/harnesses"), help="folder that keeps everything")
    parser.add_argument("--documents", type=int, default=None, help="a part of SciFact; default: all")
    asked = parser.parse_args(argv)
    log_to_stderr()
    work = asked.work.absolute()
    encoder = bundle(work, 128)
    inputs = work / f"scifact-{asked.documents or 'all'}"
    if not inputs.exists():
        write_dataset(register(asked.data / "scifact", work / "part", asked.documents), inputs)
    index = built(work, inputs, encoder)
    task = local_task(inputs)
    with Searcher.open(index) as searcher:
        systems = {
            "lsr-prod evaluate": our_measures(index, inputs),
            "mteb, published index": mteb_measures(IndexSearch(searcher), task),
            "mteb, IndexSearch(bundle)": mteb_measures(IndexSearch(encoder), task),
            "PyTerrier, published index": terrier_measures(SparseRetriever(searcher), inputs),
            "PyTerrier, SparseIndexer(bundle)": terrier_measures(terrier_index(encoder, inputs), inputs),
        }
    exact = {
        "mteb, BundleModel": mteb_measures(BundleModel(encoder), task),
        "mteb, sentence-transformers": mteb_measures(PeerEncoder(str(encoder.parent / "model"), device="cpu"), task),
    }
    rows = {**systems, **exact}
    print_columns("SciFact", ["system", *MEASURES], [[name, *map(_digits, row.values())] for name, row in rows.items()])
    print_result(rows)
    ours = systems["lsr-prod evaluate"]
    return int(any(abs(row[name] - ours[name]) >= SAME for row in systems.values() for name in MEASURES))


def register(source: Path, work: Path, documents: int | None) -> str:
    """Register a folder in the layout of BEIR, or the part with the first documents, and return its name."""
    work.mkdir(parents=True, exist_ok=True)
    lines = (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:documents]
    ids = {json.loads(line)["_id"] for line in lines}
    judged = [line.split("\t") for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    judged = [row for row in judged if row[1] in ids]
    answered = {query_id for query_id, _, _ in judged}
    queries = (source / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [line for line in queries if json.loads(line)["_id"] in answered]
    qrels = [f"{query_id} 0 {doc_id} {grade}" for query_id, doc_id, grade in judged]
    for name, rows in (("corpus", lines), ("queries", asked), ("qrels", qrels)):
        (work / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    files = [LocalDownload(work / name) for name in ("corpus", "queries", "qrels")]
    dataset = Registered(
        JsonlDocs(files[0], TitledDoc, {"doc_id": "_id", "title": "title", "text": "text"}),
        JsonlQueries(files[1], GenericQuery, {"query_id": "_id", "text": "text"}),
        TrecQrels(files[2], {1: "relevant"}),
    )
    name = f"local/{work.parent.name}-{documents}"
    ir_datasets.registry.register(name, dataset)
    return name


def built(work: Path, inputs: Path, encoder: Path) -> Path:
    """Encode and index a corpus with the jobs, on first use."""
    place = work / f"jobs-{inputs.name}"
    if not (place / "index").exists():
        place.mkdir(parents=True, exist_ok=True)
        sections = {
            "source": {"paths": [str(inputs / "corpus.jsonl")]},
            "encode": {"bundle": str(encoder), "table": str(place / "table")},
            "index": {"table": str(place / "table"), "bundle": str(encoder), "output": str(place / "index")},
        }
        config = place / "deployment.yaml"
        config.write_text(yaml.safe_dump(sections))
        subprocess.run([sys.executable, "-m", "lsr_prod", "reindex", "--config", str(config)], check=True)
    return place / "index"


def our_measures(index: Path, inputs: Path) -> Measures:
    """Evaluate an index as ``lsr-prod evaluate`` does."""
    judged = {"queries": str(inputs / "queries.jsonl"), "qrels": str(inputs / "qrels.jsonl"), "measures": [*MEASURES]}
    systems = [{"kind": "sparse", "name": "all terms"}]
    section = {"index": str(index), **judged, "systems": systems, "resamples": 100}
    return dict(evaluate_index(Deployment.model_validate({"evaluate": section})).systems[0].measures)


class LocalTask(AbsTaskRetrieval):
    """SciFact for mteb, from local files: the metadata are those of its own task."""

    metadata = mteb.get_task("SciFact").metadata


def local_task(inputs: Path) -> LocalTask:
    """Return the task over the files that ``write_dataset`` wrote."""
    rows = {name: read_rows(inputs / f"{name}.jsonl") for name in ("corpus", "queries", "qrels")}
    grades: dict[str, dict[str, int]] = {}
    for row in rows["qrels"]:
        grades.setdefault(row["query_id"], {})[row["doc_id"]] = row["relevance"]
    texts = {
        name: Dataset.from_list([{"id": row["_id"], "text": row["text"]} for row in rows[name]])
        for name in ("corpus", "queries")
    }
    task = LocalTask()
    task.dataset = {"default": {"test": {**texts, "relevant_docs": grades, "top_ranked": None}}}
    task.data_loaded = True
    return task


def mteb_measures(system: Any, task: LocalTask) -> Measures:
    """Evaluate a system with mteb."""
    results = mteb.evaluate(system, task, cache=None, co2_tracker=False, show_progress_bar=False)
    scores = results.task_results[0].scores["test"][0]
    return {name: scores[theirs] for name, theirs in MEASURES.items()}


def terrier_index(encoder: Path, inputs: Path) -> SparseRetriever:
    """Index a corpus with PyTerrier's indexer."""
    documents = ({"docno": row["_id"], "text": row["text"]} for row in read_rows(inputs / "corpus.jsonl"))
    return SparseIndexer(encoder).index(documents)


def terrier_measures(retriever: pt.Transformer, inputs: Path) -> Measures:
    """Evaluate a pipeline with ``pt.Experiment``."""
    queries, judged = read_rows(inputs / "queries.jsonl"), read_rows(inputs / "qrels.jsonl")
    topics = pd.DataFrame(queries).rename(columns={"_id": "qid", "text": "query"})
    qrels = pd.DataFrame(judged).rename(columns={"query_id": "qid", "doc_id": "docno", "relevance": "label"})
    frame = pt.Experiment([retriever], topics, qrels, [ir_measures.parse_measure(name) for name in MEASURES])
    assert not pt.java.started()
    return {name: float(frame[name].iloc[0]) for name in MEASURES}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _digits(value: float) -> str:
    return f"{value:.4f}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
