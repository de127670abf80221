"""Models published by the jobs and judged on held-out questions, next to BM25: what two benchmarks share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.train.paired import Comparison, compare
from benchmarks.train.pruning_data import read_lines
from benchmarks.train.word_piece_bm25 import WordPieceBm25
from lsr_prod import Searcher
from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation.collection import JudgedQueries, read_judged
from lsr_prod.evaluation.cost import document_term_counts
from lsr_prod.evaluation.measures import measure_by_query, parse_measures
from lsr_prod.indexing import build_index
from lsr_prod.model.export import export_bundle
from lsr_prod.search import Hybrid
from lsr_prod.storage.formats.bundle_format import TOKENIZER_FILE

MEASURES = ["RR@10", "nDCG@10", "R@100"]
Answer = Callable[[str], list[tuple[str, float]]]
"""Ids and scores of the hits of a question, best first."""


@dataclass(frozen=True, slots=True)
class System:
    """Quality of one system, a model or BM25, on the held-out questions.

    Attributes:
        name: in the table.
        means: measure to mean over queries and seeds.
        seeds: RR@10 of every seed.
        by_query: RR@10 of every query, an array for each seed.
        against: RR@10 compared with BM25.
        terms: of a document, mean over documents and seeds; 0 for BM25.
    """

    name: str
    means: Mapping[str, float]
    seeds: Sequence[float]
    by_query: Sequence[npt.NDArray[np.float64]]
    against: Comparison
    terms: float = 0.0


@dataclass(frozen=True, slots=True)
class Judged:
    """All systems on one collection; ``groups`` has the document of every question."""

    systems: Mapping[str, System]
    groups: Sequence[str]
    documents: int

    def compare(self, ours: str, theirs: str) -> Comparison:
        """Two systems by RR@10; a system without seeds is compared with every seed of the other."""
        both = [self.systems[name].by_query for name in (ours, theirs)]
        count = max(map(len, both))
        one, other = ([row[number % len(row)] for number in range(count)] for row in both)
        return compare(one, other, self.groups)


def published(model: Path, work: Path, folder: Path) -> None:
    """Export, encode and index, by the jobs; skipped if done."""
    if (folder / "done").exists():
        return
    bundle, table, index = (str(folder / name) for name in ("bundle", "table", "index"))
    deployment = Deployment.model_validate(
        {
            "source": {"paths": [str(work / "collection")], "text_fields": ["text"], "stored_fields": ["text"]},
            "export": {"model": str(model), "output": bundle},
            "encode": {"bundle": bundle, "table": table},
            "index": {"table": table, "bundle": bundle, "output": index, "text_fields": ["text"], "bm25": True},
        }
    )
    assert deployment.export is not None
    export_bundle(deployment.export)
    encode_corpus(deployment)
    build_index(deployment)
    (folder / "done").touch()


def judged(work: Path, bm25: str, models: Mapping[str, Sequence[str]]) -> Judged:
    """Every system by query: BM25 of words and of word pieces, each model alone, and with BM25 as a hybrid.

    Args:
        work: folder with collection/ and runs/.
        bm25: run whose index answers by BM25.
        models: name of a system to its runs, one for each seed.
    """
    collection = work / "collection"
    questions = read_judged(collection / "queries.jsonl", collection / "qrels" / "test.tsv")
    opened = {name: [Searcher.open(work / "runs" / run / "index") for run in runs] for name, runs in models.items()}
    words = Searcher.open(work / "runs" / bm25 / "index")
    tokenizer = work / "runs" / bm25 / "bundle" / TOKENIZER_FILE
    documents = {row["_id"]: row["text"] for row in read_lines(collection / "corpus.jsonl")}
    answers: dict[str, list[Answer]] = {
        "bm25": [lambda text: [(hit.doc_id, hit.score) for hit in words.bm25(text, k=100).hits]],
        "bm25 of word pieces": [WordPieceBm25(tokenizer, documents).answer],
    }
    terms: dict[str, float] = {}
    for name, searchers in opened.items():
        answers[name] = [_plain(one) for one in searchers]
        answers[f"{name}, hybrid"] = [_hybrid(one) for one in searchers]
        lengths = [document_term_counts(one.snapshot).mean for one in searchers]
        terms[name] = terms[f"{name}, hybrid"] = float(np.mean(lengths))
    owners = {qrel.query_id: qrel.doc_id for qrel in questions.qrels}
    groups = [owners[query_id] for query_id in questions.queries]
    values = {name: [_values(answer, questions) for answer in seeds] for name, seeds in answers.items()}
    base = values["bm25"][0]["RR@10"]
    systems = {}
    for name, seeds in values.items():
        ours = [one["RR@10"] for one in seeds]
        means = {measure: float(np.mean([one[measure].mean() for one in seeds])) for measure in MEASURES}
        means_by_seed = [float(one.mean()) for one in ours]
        against = compare(ours, [base] * len(ours), groups)
        systems[name] = System(name, means, means_by_seed, ours, against, terms.get(name, 0.0))
    return Judged(systems, groups, words.documents)


def show(found: Judged, title: str) -> None:
    """Print a row for each system."""
    table = Table("system", *MEASURES, "difference to BM25 (RR@10)", "p", title=title)
    for one in found.systems.values():
        interval = f"{one.against.difference:+.4f} ({one.against.low:+.4f} to {one.against.high:+.4f})"
        table.add_row(one.name, *(f"{mean:.4f}" for mean in one.means.values()), interval, f"{one.against.p:.2g}")
    Console(width=140).print(table)


def figures(found: Judged) -> dict[str, object]:
    """Values of ``RESULT``."""
    rows: dict[str, object] = {"questions": len(found.groups), "documents": found.documents}
    for name, one in found.systems.items():
        rounded = {measure: round(mean, 4) for measure, mean in one.means.items()}
        seeds = [round(mean, 4) for mean in one.seeds]
        against = {"difference": round(one.against.difference, 4), "p": one.against.p}
        rows[name] = {**rounded, "seeds": seeds, **against, "terms": round(one.terms)}
    return rows


def _plain(searcher: Searcher) -> Answer:
    return lambda text: [(hit.doc_id, hit.score) for hit in searcher.search(text, k=100).hits]


def _hybrid(searcher: Searcher) -> Answer:
    return lambda text: [(hit.doc_id, hit.score) for hit in searcher.search(text, k=100, hybrid=Hybrid()).hits]


def _values(answer: Answer, judged: JudgedQueries) -> dict[str, npt.NDArray[np.float64]]:
    """Each measure of every query."""
    rankings = {query_id: answer(text) for query_id, text in judged.queries.items()}
    return measure_by_query(parse_measures("measures", MEASURES), judged.qrels, rankings, list(rankings))
