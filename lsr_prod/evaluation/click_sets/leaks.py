"""Leak check of finished evaluation sets: reads the files again and knows nothing of how they were made."""

import csv
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from lsr_prod.evaluation.click_sets.files import SPLITS
from lsr_prod.evaluation.click_sets.lexical import document_texts
from lsr_prod.evaluation.click_sets.rows import normalized


def find_leaks(folder: Path) -> Counter[str]:
    """Count what must not happen in evaluation sets and training pairs; queries and texts are compared normalized.

    Memory: the judged documents and the queries of the sets; corpus and training pairs are read as streams.

    Args:
        folder: with the sets and the training pairs.

    Returns:
        Number of findings by kind, empty if there are none:

        - ``query_in_training``: a query that a set uses is the query of a training pair;
        - ``query_in_both_sets``, ``repeated_query``: in the other set, or twice in one;
        - ``query_without_judgment``: it has no positive or no negative;
        - ``missing_document``: a judged document is not in the corpus;
        - ``positive_as_negative``: a negative of a query is its positive, or has the text of one;
        - ``positive_as_distractor``: a document that is not judged has the text of a positive.
    """
    found: Counter[str] = Counter()
    removed: dict[str, set[bytes]] = {}
    for name, split in SPLITS.items():
        removed[name] = _check_set(folder / name, split, found)
    found["query_in_both_sets"] += len(set.intersection(*removed.values()))
    everything = set.union(*removed.values())
    for query in _training_queries(folder / "train"):
        found["query_in_training"] += _key(query) in everything
    return +found


def _check_set(folder: Path, split: str, found: Counter[str]) -> set[bytes]:
    """Check one set and return the keys of all queries that it uses."""
    queries = [(str(row["_id"]), _key(str(row["text"]))) for row in _json_lines(folder / "queries.jsonl")]
    removed = [_key(str(row["text"])) for row in _json_lines(folder / "removed_queries.jsonl")]
    found["repeated_query"] += len(queries) - len({key for _, key in queries}) + len(removed) - len(set(removed))
    positives, negatives = _judgments(folder / "qrels" / f"{split}.tsv"), _judgments(folder / "negatives.tsv")
    judged = {doc_id for documents in (*positives.values(), *negatives.values()) for doc_id in documents}
    texts = {str(row["_id"]): _text(row) for row in _json_lines(folder / "corpus.jsonl") if str(row["_id"]) in judged}
    found["missing_document"] += len(judged - texts.keys())
    for query, _ in queries:
        found["query_without_judgment"] += not positives[query] or not negatives[query]
        own = {texts.get(doc_id) for doc_id in positives[query]} - {None}
        found["positive_as_negative"] += sum(
            doc_id in positives[query] or texts.get(doc_id) in own for doc_id in negatives[query]
        )
    relevant = {texts.get(doc_id) for documents in positives.values() for doc_id in documents}
    for row in _json_lines(folder / "corpus.jsonl"):
        found["positive_as_distractor"] += str(row["_id"]) not in judged and _text(row) in relevant
    return {*(key for _, key in queries), *removed}


def _judgments(path: Path) -> Mapping[str, set[str]]:
    documents: defaultdict[str, set[str]] = defaultdict(set)
    with path.open(encoding="utf-8", newline="") as file:
        for query, document, _ in list(csv.reader(file, delimiter="\t"))[1:]:
            documents[query].add(document)
    return documents


def _json_lines(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _training_queries(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as parquet:
            for batch in parquet.iter_batches(columns=["query"]):
                yield from batch["query"].unique().to_pylist()


def _text(row: Mapping[str, object]) -> bytes:
    return _key(document_texts([str(row["title"])], [str(row["text"])])[0])


def _key(text: str) -> bytes:
    return hashlib.blake2b(normalized(text).encode(), digest_size=16).digest()
