"""The stages of the quickstart: each runs one job of a deployment in this process, and is timed."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from lsr_prod import SparseEncoder
from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation import evaluate_index
from lsr_prod.indexing import build_index
from lsr_prod.model.export import export_bundle
from lsr_prod.training.chain import run_chain
from quickstart.docstrings import collect, write_collection
from quickstart.models import model_folder

__all__ = ["DEVELOPMENT", "DOCUMENTS", "FOLDER", "QUERIES", "Stage", "collect_documents", "run_path", "run_stage"]

DOCUMENTS, QUERIES, DEVELOPMENT = 10_000, 1_000, 500
FOLDER = Path(".quickstart")


@dataclass(frozen=True, slots=True)
class Stage:
    """A finished stage.

    Attributes:
        kind: ``collect``, ``train``, ``export``, ``encode``, ``index``, ``evaluate`` or ``pages``.
        prefix: variant that it belongs to; empty for the default deployment.
        seconds: its duration.
        summary: what the job returned.
    """

    kind: str
    prefix: str
    seconds: float
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Kind, after the prefix if there is one."""
        return f"{self.prefix} {self.kind}".strip()


def run_stage(kind: str, work: Callable[[], Mapping[str, Any]], prefix: str = "") -> Stage:
    """Run and time one stage; its name is printed on stderr when it starts."""
    Console(stderr=True).print(f"[bold]{f'{prefix} {kind}'.strip()}[/bold] …")
    begin = time.perf_counter()
    summary = work()
    return Stage(kind, prefix, time.perf_counter() - begin, summary)


def collect_documents() -> Mapping[str, Any]:
    """Write the collection, and the checkpoint that training starts from."""
    write_collection(FOLDER / "collection", collect(DOCUMENTS), QUERIES, development=DEVELOPMENT)
    encoder = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64)
    encoder.save(FOLDER / "start")
    return {"documents": DOCUMENTS, "queries": QUERIES}


def run_path(deployment: Deployment, prefix: str = "") -> list[Stage]:
    """Run the jobs of a deployment from training, if it has that section, to evaluation; needs a Ray session."""
    return [run_stage(kind, work, prefix) for kind, work in _jobs(deployment)]


def _jobs(deployment: Deployment) -> Iterator[tuple[str, Callable[[], Mapping[str, Any]]]]:
    export = deployment.export
    assert export is not None
    if deployment.train is not None:
        yield "train", lambda: run_chain(deployment)
    yield "export", lambda: export_bundle(export)
    yield "encode", lambda: encode_corpus(deployment).result()
    yield "index", lambda: build_index(deployment).result()
    yield "evaluate", lambda: evaluate_index(deployment).result()
