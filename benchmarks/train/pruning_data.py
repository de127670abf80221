"""The data of the pruning experiment: pages of tldr, asked for by the descriptions of their examples, and SciFact.

A page is known by its title and description, which do not hold the descriptions of its examples. Queries that name
several pages ("Display help") are left out. Test and development queries belong to pages of which no pair is trained,
and texts for language modeling have only title and description of these pages.
"""

import json
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import ir_measures

from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.config.training import ValidationSettings
from lsr_prod.evaluation.validation import Collection, read_collection
from lsr_prod.storage import Store
from lsr_prod.training.data.prepare import prepare_training_set
from lsr_prod.training.data.training_set import TrainingSet

SCIFACT_DOCUMENTS = 2_000  # cited abstracts first, then others

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Split:
    """What is trained on and what is judged.

    Attributes:
        train: query and page.
        development: for the choice of settings.
        test: for the result.
    """

    train: list[Pair]
    development: Collection
    test: Collection


def split_tldr(folder: Path, *, test_pages: int = 600, development_pages: int = 300, seed: int = 0) -> Split:
    """Draw the pages whose queries are held out; every page stays a document of both collections."""
    rows = read_lines(folder / "pairs.jsonl")
    pages = {row["pos_id"]: row["pos"] for row in rows}
    owners: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        owners[row["query"]].add(row["pos_id"])
    drawn = sorted(pages)
    random.Random(seed).shuffle(drawn)
    test, development = set(drawn[:test_pages]), set(drawn[test_pages : test_pages + development_pages])
    asked = {query: next(iter(found)) for query, found in owners.items() if len(found) == 1}
    return Split(
        train=[(query, pages[page]) for query, page in asked.items() if page not in test | development],
        development=_collection(pages, {query: page for query, page in asked.items() if page in development}),
        test=_collection(pages, {query: page for query, page in asked.items() if page in test}),
    )


def _collection(pages: dict[str, str], asked: dict[str, str]) -> Collection:
    queries = {f"q{number}": query for number, query in enumerate(asked)}
    qrels = [ir_measures.Qrel(query_id, asked[query], 1) for query_id, query in queries.items()]
    return Collection(pages, queries, qrels)


def page_texts(folder: Path, *, test_pages: int = 600, development_pages: int = 300) -> list[str]:
    """Title and text of every page; title and description for pages of held-out queries.

    The text of a page has the descriptions of its examples, which are the queries.
    """
    split = split_tldr(folder, test_pages=test_pages, development_pages=development_pages)
    held_out = {qrel.doc_id for one in (split.test, split.development) for qrel in one.qrels}
    return [
        split.test.documents[row["_id"]] if row["_id"] in held_out else f"{row['title']} {row['text']}"
        for row in read_lines(folder / "corpus.jsonl")
    ]


def few_documents(collection: Collection, count: int) -> Collection:
    """The same queries over fewer documents: the relevant ones, then others."""
    relevant = {qrel.doc_id for qrel in collection.qrels}
    taken = sorted(collection.documents, key=lambda doc_id: doc_id not in relevant)[: max(count, len(relevant))]
    return Collection({doc_id: collection.documents[doc_id] for doc_id in taken}, collection.queries, collection.qrels)


def few_queries(collection: Collection, count: int) -> Collection:
    """Some queries, from all over the collection, and the same documents."""
    ids = list(collection.queries)
    queries = {query_id: collection.queries[query_id] for query_id in ids[:: -(-len(ids) // count)]}
    return Collection(collection.documents, queries, [qrel for qrel in collection.qrels if qrel.query_id in queries])


def scifact_pairs(folder: Path) -> list[Pair]:
    """Claims of the training part and the abstracts that they cite, without abstracts that a test claim cites.

    The official split is by claim: claims of both parts cite the same abstracts, some in nearly the same words.
    """
    test = scifact_test(folder)
    cited = {test.documents[qrel.doc_id] for qrel in test.qrels if qrel.relevance > 0}
    pairs = ((row["query"], row["pos"]) for row in read_lines(folder / "pairs_train.jsonl"))
    return [(query, abstract) for query, abstract in pairs if abstract not in cited]


def scifact_test(folder: Path) -> Collection:
    """All test claims over a part of the abstracts."""
    return read_collection(
        ValidationSettings(
            corpus=str(folder / "corpus.jsonl"),
            queries=str(folder / "queries.jsonl"),
            qrels=str(folder / "qrels" / "test.tsv"),
            documents=SCIFACT_DOCUMENTS,
        )
    )


def training_data(pairs: list[Pair], file: Path) -> TrainingDataSettings:
    """Write the pairs and say how they are read."""
    file.write_text("".join(json.dumps({"query": query, "positive": text}) + "\n" for query, text in pairs))
    return TrainingDataSettings(paths=[str(file)], kind="pairs")


def training_set(
    data: TrainingDataSettings, model: Path, work: Path, *, query_length: int, document_length: int
) -> tuple[str, TrainingSet]:
    """Tokenise, unless that was done; the set and its digest."""
    store = Store(str(work))
    with ray_session(RaySettings(num_cpus=1)):
        summary = prepare_training_set(
            data,
            model=model,
            query_max_length=query_length,
            document_max_length=document_length,
            store=store,
            options={},
        )
    return summary.digest, TrainingSet.open(store, summary.digest)


def read_lines(path: Path) -> list[dict[str, str]]:
    """A JSONL file."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
