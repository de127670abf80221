"""The texts, training pairs and judged queries that all runs of ``benchmarks.results`` share."""

import json
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.stand_ins import LENGTH, stand_in
from benchmarks.train.pruning_data import Pair, Split, few_documents, few_queries, page_texts, split_tldr
from benchmarks.vocabulary.transfer import smollm2
from lsr_prod import Index, SparseEncoder
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.evaluation.measures import measure_by_query, parse_measures
from lsr_prod.evaluation.validation import Collection
from lsr_prod.model.export import export_bundle
from lsr_prod.storage.formats.digests import digest_json
from quickstart.models import model_folder

MEASURE = "RR@10"
DECODER = "smollm2"


@dataclass(frozen=True)
class Material:
    """Pages of tldr: what is trained on and what is judged.

    Attributes:
        data: folder of the collections.
        work: folder that keeps models and figures.
        quick: a few rows only.
    """

    data: Path
    work: Path
    quick: bool = False

    @cached_property
    def _split(self) -> Split:
        return split_tldr(self.data / "tldr_en")

    @property
    def pairs(self) -> list[Pair]:
        """Queries and pages to train on; none belongs to a page of a test query."""
        return self._split.train

    @cached_property
    def collections(self) -> dict[str, Collection]:
        """``tldr``: test queries over a part of the pages; ``lower``: the same queries in lower case."""
        queries, documents = (20, 60) if self.quick else (400, 1000)
        whole = few_documents(few_queries(self._split.test, queries), documents)
        lower = {query_id: text.lower() for query_id, text in whole.queries.items()}
        return {"tldr": whole, "lower": Collection(whole.documents, lower, whole.qrels)}

    @cached_property
    def groups(self) -> list[str]:
        """The page of every test query: queries of one page are no independent evidence."""
        owners = {qrel.query_id: qrel.doc_id for qrel in self.collections["tldr"].qrels}
        return [owners[query_id] for query_id in self.collections["tldr"].queries]

    @cached_property
    def texts(self) -> list[str]:
        """Plain text for adaptation: the pages, without held-out queries, and paragraphs of wikitext2, in turn."""
        pages = page_texts(self.data / "tldr_en")
        lines = (self.data / "wikitext2" / "wiki.train.tokens").read_text(encoding="utf-8").splitlines()
        paragraphs = [line.replace("<unk>", "").strip() for line in lines if len(line) > 200]
        return [text[:400] for both in zip(pages, paragraphs, strict=False) for text in both]

    def file(self, kind: str) -> Path:
        """A file for stages that read one: ``texts``, ``pages`` of the training pairs, or the pairs (``rows``)."""
        rows: list[dict[str, str]] = {
            "texts": [{"text": text} for text in self.texts],
            "pages": [{"text": page} for page in sorted({page for _, page in self.pairs})],
            "rows": [{"query": query, "positive": page} for query, page in self.pairs],
        }[kind]
        path = self.work / f"{kind}-{digest_json(rows)[:12]}.jsonl"
        if not path.exists():
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    def start(self, name: str) -> Path:
        """The model directory of a stand-in, or of SmolLM2-135M."""
        if name == DECODER:
            return self._decoder
        if name not in self._starts:  # its name is the digest of all texts
            quick: dict[str, Any] = {"work": self.work / "stand_ins", "steps": 3} if self.quick else {}
            self._starts[name] = stand_in(name, self.data, **quick)
        return self._starts[name]

    @cached_property
    def _decoder(self) -> Path:
        folder = self.work / DECODER
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=self.work) as scratch:
                plain = SparseEncoder.load(
                    smollm2(Path(scratch) / "plain"), query_max_length=32, document_max_length=LENGTH
                )
                plain.save(Path(scratch) / "model")
                (Path(scratch) / "model").rename(folder)
        return folder

    @cached_property
    def _starts(self) -> dict[str, Path]:
        return {}

    def bm25(self, collection: Collection) -> npt.NDArray[np.float64]:
        """The measure of every query for BM25 over the texts of the pages, by the public call."""
        bundle = self.work / "bundle"
        if not bundle.exists():
            plain = self.work / "splade-tiny"
            SparseEncoder.load(model_folder("splade-tiny")).save(plain)
            export = Deployment.model_validate({"export": {"model": str(plain), "output": str(bundle)}}).export
            assert export is not None
            with ray_session(RaySettings(num_cpus=1)):
                export_bundle(export)
        with Index.from_texts(collection.documents, bundle, bm25=True) as index:
            rankings = {
                query_id: [(hit.doc_id, hit.score) for hit in index.bm25(text, k=10).hits]
                for query_id, text in collection.queries.items()
            }
        measures = parse_measures("measures", [MEASURE])
        return measure_by_query(measures, collection.qrels, rankings, list(rankings))[MEASURE]
