"""Kill a sweep in the middle, resume it, and compare the hybrid tuner with an exhaustive search.

    python -m benchmarks.evaluation.sweep DATA [--work FOLDER] [--documents 2000] [--quick]

DATA has ``scifact/`` and ``msmarco_5k/`` in the layout of BEIR. The sweep measures 3 models (splade-tiny that reads 64,
128 and 256 tokens of a document) x 12 prunings x 4 thresholds on both collections. Its process group gets SIGKILL when
a third of the points is measured; the same command then resumes it. The tuner chooses the weight of the words on both
collections twice, by refinement and among all weights.

Everything stays in FOLDER: ``page/sweep.html`` is the page of the sweep. RESULT: ``points``; ``finished``
before the kill; ``reused`` by the second run; ``rewritten``, finished points whose file changed (0); ``tuned``, per
collection the chosen and the best weight, their values, ``loss`` (at most 0.005), and the measured candidates of both.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from lsr_prod import Index, SparseEncoder
from lsr_prod.config import Deployment, ExportSettings
from lsr_prod.config.training import ValidationSettings
from lsr_prod.evaluation.validation import read_collection
from lsr_prod.jobs.terminal.shell import log_to_stderr, print_result
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.model.export import export_bundle
from lsr_prod_contrib.sweeps.tuning import TuneReport, tune_index
from quickstart.models import model_folder

LENGTHS = (64, 128, 256)  # tokens of a document
COLLECTIONS = ("scifact", "msmarco_5k")
LOSS = 0.005  # that the tuner may have
_COMMAND = (sys.executable, "-m", "lsr_prod", "sweep", "--config")


def main(argv: Sequence[str]) -> int:
    """Run both parts; returns 1 if a finished point was measured again, or a tuned weight is too far from the best."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with scifact/ and msmarco_5k/")
    parser.add_argument("--work", type=Path, default=Path("build/sweep"), help="folder that keeps everything")
    parser.add_argument("--documents", type=int, default=2000, help="documents of SciFact; all of msmarco_5k are used")
    parser.add_argument("--quick", action="store_true", help="one model, 3 prunings, few queries and documents")
    asked = parser.parse_args(argv)
    log_to_stderr()
    sizes: dict[str, Any] = {"scifact": {"documents": asked.documents}, "msmarco_5k": {}}
    if asked.quick:
        sizes = {"scifact": {"documents": 60, "max_queries": 10}, "msmarco_5k": {"documents": 600, "max_queries": 5}}
    places = {
        name: {"corpus": f"{asked.data / name / 'corpus.jsonl'}", "queries": f"{asked.data / name / 'queries.jsonl'}",
               "qrels": f"{asked.data / name / 'qrels' / 'test.tsv'}", **sizes[name]}
        for name in COLLECTIONS
    }  # fmt: skip
    bundles = {f"tiny-{length}": bundle(asked.work, length) for length in LENGTHS[: 1 if asked.quick else None]}
    swept = killed_and_resumed(asked.work, settings(asked.work, bundles, places, quick=asked.quick))
    print_table("sweep", swept)
    tuned = {name: compared(asked.work, name, [*bundles.values()][-1], places[name]) for name in COLLECTIONS}
    print_columns(
        "tuner", ["collection", *tuned[COLLECTIONS[0]]], [[name, *row.values()] for name, row in tuned.items()]
    )
    print_result({**swept, "tuned": tuned})
    return int(swept["rewritten"] > 0 or any(row["loss"] > LOSS for row in tuned.values()))


def bundle(work: Path, length: int) -> Path:
    """Return the bundle of splade-tiny for documents of ``length`` tokens; export it on first use."""
    folder = work / f"tiny-{length}"
    if not (folder / "bundle").exists():
        encoder = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=length, query_max_length=64)
        encoder.save(folder / "model")
        export_bundle(ExportSettings(model=str(folder / "model"), output=str(folder / "bundle")))
    return folder / "bundle"


def settings(work: Path, bundles: dict[str, Path], places: dict[str, Any], *, quick: bool) -> dict[str, Any]:
    """Return the section ``sweep``."""
    return {
        "models": [{"name": name, "bundle": str(place)} for name, place in bundles.items()],
        "collections": [{"name": name, **place} for name, place in places.items()],
        "qk": [0, 16, 8],
        "dk": [64] if quick else [0, 128, 64, 32],
        "thresholds": [0.0, 0.2, 0.4, 0.6],
        "measures": ["nDCG@10", "RR@10", "R@100"],
        "within": 0.02,
        "output": str(work / "sweep"),
        "slice_documents": 500,
    }


def killed_and_resumed(work: Path, section: dict[str, Any]) -> dict[str, Any]:
    """Run the sweep, kill it when a third of its points is measured, and run it again."""
    config = work / "sweep.yaml"
    config.write_text(yaml.safe_dump({"sweep": section, "report": str(work / "page")}))
    points = Path(section["output"]) / "points"
    count = len(section["models"]) * len(section["collections"]) * len(section["qk"]) * len(section["dk"]) * 4

    def finished() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in points.glob("[!.]*.json")}

    job = subprocess.Popen([*_COMMAND, str(config)], start_new_session=True, stdout=subprocess.DEVNULL)
    while job.poll() is None and len(finished()) < count // 3:
        time.sleep(0.05)
    killed = job.poll() is None
    if killed:
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    before = finished()
    answer = subprocess.run([*_COMMAND, str(config)], stdout=subprocess.PIPE, check=True)
    lines = answer.stdout.decode().splitlines()
    result = json.loads(next(line for line in lines if line.startswith("RESULT ")).removeprefix("RESULT "))
    after = finished()
    return {
        "points": result["points"],
        "killed": killed,
        "finished": len(before),
        "reused": result["points_reused"],
        "rewritten": sum(after[name] != changed for name, changed in before.items()),
        "sentence": result["sentence"],
    }


def compared(work: Path, name: str, model: Path, place: dict[str, Any]) -> dict[str, Any]:
    """Tune the weight of the words on a collection by refinement and exhaustively."""
    collection = read_collection(ValidationSettings(**place, measures=["nDCG@10"]))
    folder = work / "tuned" / name
    folder.mkdir(parents=True, exist_ok=True)
    queries = [json.dumps({"_id": query_id, "text": text}) for query_id, text in collection.queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    with Index.from_texts(collection.documents, model, bm25=True) as index:

        def tune(search: str) -> TuneReport:
            judged = {"queries": str(folder / "queries.jsonl"), "qrels": place["qrels"]}
            tuner = {"index": str(index.snapshot.index), **judged, "search": search, "output": str(folder / search)}
            return tune_index(Deployment.model_validate({"tune": tuner}))

        found, best = tune("refine"), tune("exhaustive")
    return {
        "queries": found.queries,
        "chosen": found.chosen.hybrid_weight,
        "value": found.value,
        "best": best.chosen.hybrid_weight,
        "best_value": best.value,
        "loss": best.value - found.value,
        "candidates": len(found.curve),
        "all_candidates": len(best.curve),
        "cross_validated": found.cross_validated,
        "low": found.low,
        "high": found.high,
        "no_words": found.no_words,
        "bm25": found.bm25,
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
