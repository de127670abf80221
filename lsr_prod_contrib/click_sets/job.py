"""The click-set job: read the log, build the sets, check them for leaks, and write them with a manifest."""

import csv
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lsr_prod.config import Deployment
from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.config.section import quarantine_uri
from lsr_prod.encoding.tables.quarantine_rows import BadRowWriter
from lsr_prod.errors import ArtifactError, SourceError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.folders import absolute, refuse_file
from lsr_prod.storage.formats.digests import canonical_json, digest_folder, digest_json
from lsr_prod.training.data.row_jobs import MANIFEST, RowOutput
from lsr_prod_contrib.click_sets.build import build_sets
from lsr_prod_contrib.click_sets.files import SPLITS, write_pairs, write_set
from lsr_prod_contrib.click_sets.lexical import document_texts
from lsr_prod_contrib.click_sets.log import LogBuilder
from lsr_prod_contrib.click_sets.read import LogFiles, RowCounts, read_log
from lsr_prod_contrib.click_sets.rows import normalized

CLICK_SET_FORMAT = 1

# Settings that do not change the sets.
_ELSEWHERE = {"paths", "format", "output", "quarantine", "max_bad_fraction"}

log = get_log("lsr_prod.click_sets")


def make_click_set(deployment: Deployment) -> Mapping[str, Any]:
    """Make a test set, a validation set and training pairs from a click log. A finished job is not repeated.

    Returns:
        A flat summary: rows, sets, thirds, training pairs, seconds, digest.
    """
    settings, options = deployment.click_set, deployment.storage.options
    assert settings is not None  # the job requires the section
    started = time.monotonic()
    store = Store(absolute(settings.output), options)
    quarantine = Store(absolute(quarantine_uri(settings.quarantine, store.uri)), options)
    refuse_file("click_set.quarantine", quarantine.uri, "give a folder")
    files = LogFiles.find(settings, options)
    plan = {
        "format": CLICK_SET_FORMAT,
        "settings": settings.model_dump(mode="json", exclude=_ELSEWHERE),
        "files": [file.identity() for file in files.files],
    }
    output = RowOutput(store, digest_json(plan), "click_set.output", "files")
    if (done := output.manifest()) is not None:
        return _summary(done, store, quarantine, time.monotonic() - started, reused=True)
    bad = BadRowWriter(quarantine, output.digest, 0)
    builder, rows = read_log(files.slices, files.request, settings, bad, options)
    log.info("click log read", extra={"fields": {"rows": rows.rows, "used": rows.used, "seconds": _since(started)}})
    with scratch_folder(prefix="lsr-click-set-") as scratch:
        manifest = _write(scratch, builder, rows, settings)
        output.reserve(plan)
        for file in manifest["files"]:
            store.put_file(file["path"], scratch / file["path"], file["sha256"])
    store.put_new(MANIFEST, canonical_json(manifest))
    return _summary(manifest, store, quarantine, time.monotonic() - started, reused=False)


def _write(scratch: Path, builder: LogBuilder, rows: RowCounts, settings: ClickSetSettings) -> dict[str, Any]:
    """Build the sets, write them to a folder, and return the manifest, which has no path and no time."""
    clicks = builder.log()
    found = build_sets(clicks, settings)
    log.info("sets built", extra={"fields": {name: one.counts["queries"] for name, one in found.sets.items()}})
    for name, one in found.sets.items():
        if not len(one.queries):
            raise SourceError(
                f"the log gives no query for the {name} set: {one.counts['candidates']} candidates, dropped "
                f"{one.counts['dropped_candidates']}, of {found.counts['usable_queries']} usable queries; "
                "give a larger log, or lower min_clicks, min_documents, min_cluster_queries or negative_ratio",
            )
        write_set(scratch / name, SPLITS[name], one, clicks)
    write_pairs(scratch / "train", found.training, clicks)
    leaks = find_leaks(scratch)
    if leaks:
        raise ArtifactError(f"the sets leak ({dict(leaks)}) and were not written; report this as a bug")
    return {
        "format": CLICK_SET_FORMAT,
        "settings": settings.model_dump(mode="json", exclude=_ELSEWHERE),
        "rows": {
            "in": rows.rows,
            "used": rows.used,
            "skipped": rows.skipped,
            "quarantined": rows.quarantined,
        },
        "counts": found.counts,
        "leaks": 0,
        "files": [file.to_json() for file in digest_folder(scratch)],
    }


def _summary(
    manifest: Mapping[str, Any], store: Store, quarantine: Store, seconds: float, *, reused: bool
) -> dict[str, Any]:
    rows, counts = manifest["rows"], manifest["counts"]
    summary: dict[str, Any] = {
        "rows": rows["in"],
        "used": rows["used"],
        **{f"skipped.{rule}": number for rule, number in rows["skipped"].items()},
        "quarantined": sum(rows["quarantined"].values()),
        **{f"quarantined.{reason}": number for reason, number in rows["quarantined"].items()},
        "usable_queries": counts["usable_queries"],
        "clusters": counts["clusters"]["count"],
    }
    for name in SPLITS:
        of_set = counts[name]
        summary |= {f"{name}.{figure}": of_set[figure] for figure in ("queries", "positives", "negatives", "documents")}
        summary |= {f"{name}.{third}": figures["queries"] for third, figures in of_set["thirds"].items()}
    return {
        **summary,
        "train.queries": counts["training"]["queries"],
        "train.pairs": counts["training"]["pairs"],
        "leaks": manifest["leaks"],
        "digest": digest_json(manifest),
        "reused": reused,
        "seconds": seconds,
        "output": store.uri,
        "quarantine": quarantine.uri,
    }


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)


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
