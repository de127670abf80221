"""Contents of the tables, read without the code under test and compared with the expected outcome of the corpus."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lsr_prod.storage import Store
from tests.faults.corpus import Corpus
from tests.faults.protocol import Job

__all__ = ["Findings", "Vectors", "inspect", "vectors", "visible"]

Vectors = Mapping[str, tuple[Any, ...]]
"""doc_id -> (terms, impacts, content_hash)."""

_COMMIT = re.compile(r"_manifest/(\d{20})\.json$")


@dataclass(slots=True)
class Findings:
    """Errors found in a pair of tables; zero and empty if there are none.

    Attributes:
        lost: rows of the corpus that are in neither table.
        doubled: rows that are twice in a table, in both tables, or not in the corpus.
        torn_visible: files of a snapshot that are missing, truncated, or have another number of rows than recorded.
        wrong: rows with an unexpected vector or reason.
        sentences: description of each error.
    """

    lost: int = 0
    doubled: int = 0
    torn_visible: int = 0
    wrong: int = 0
    sentences: list[str] = field(default_factory=list)

    def note(self, kind: str, count: int, sentence: str) -> None:
        """Add to a count, with an explanation."""
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            self.sentences.append(f"{kind} {count}: {sentence}")

    def add(self, other: "Findings") -> None:
        """Add other findings."""
        for kind in ("lost", "doubled", "torn_visible", "wrong"):
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))
        self.sentences += other.sentences

    @property
    def clean(self) -> bool:
        """Whether no error was found."""
        return not self.sentences


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    rows: int | None


def inspect(job: Job, corpus: Corpus, expected: Vectors, *, finished: bool, flaky: Sequence[str] = ()) -> Findings:
    """Check the newest snapshot of both tables.

    Args:
        job: input and output of the job.
        corpus: source of the job.
        expected: vectors of an undisturbed run.
        finished: every row must be in a table; otherwise only existing rows are checked.
        flaky: documents that fail by one of these words may be in quarantine instead.
    """
    findings = Findings()
    table, quarantine = job.stores
    documents = _read(table, ["doc_id", "terms", "impacts", "content_hash"], findings)
    bad = _read(quarantine, ["source", "position", "reason"], findings)
    ids = Counter(row["doc_id"] for row in documents)
    places = Counter((row["source"], row["position"]) for row in bad)
    reasons = {(row["source"], row["position"]): row["reason"] for row in bad}
    for doc_id, count in ids.items():
        findings.note("doubled", count - 1, f"{doc_id} is {count} times in the table")
        findings.note(
            "doubled",
            int(doc_id not in corpus.documents),
            f"{doc_id} is in the table but is not a document of the corpus",
        )
    for place, count in places.items():
        # The bad rows of a wave are committed before its documents: between the two commits they are not final.
        findings.note("doubled", count - 1, f"{place} is {count} times in the quarantine table")
    known = {(row.source, row.position) for row in corpus.rows}
    findings.note("doubled", len(places.keys() - known), "rows in the quarantine that the corpus does not have")
    for row in documents:
        found = (tuple(row["terms"]), tuple(row["impacts"]), row["content_hash"])
        findings.note("wrong", int(found != expected.get(row["doc_id"], found)), f"vector of {row['doc_id']}")
    if finished:
        _account(findings, corpus, ids, reasons, flaky)
    return findings


def _account(
    findings: Findings,
    corpus: Corpus,
    ids: Mapping[str, int],
    reasons: Mapping[tuple[str, int], str],
    flaky: Sequence[str],
) -> None:
    """Check that every row of the corpus is in exactly one of the tables, with the expected reason."""
    for row in corpus.rows:
        reason = reasons.get((row.source, row.position))
        # The id of a duplicate is in the table with its first row.
        placed = (row.reason is None and row.doc_id in ids) + (reason is not None)
        findings.note("lost", int(placed == 0), f"{row.doc_id} of {row.source} at {row.position}")
        findings.note("doubled", int(placed == 2), f"{row.doc_id} is in both tables")
        excused = row.reason is None and reason == "encode_failed" and any(map(row.text_fails, flaky))
        findings.note("wrong", int(placed == 1 and reason != row.reason and not excused), f"{row} has reason {reason}")


def vectors(job: Job) -> Vectors:
    """Return the contents of the sparse table."""
    rows = _read(job.stores[0], ["doc_id", "terms", "impacts", "content_hash"], Findings())
    return {row["doc_id"]: (tuple(row["terms"]), tuple(row["impacts"]), row["content_hash"]) for row in rows}


def visible(store: Store) -> set[str]:
    """Return the paths of the newest snapshot."""
    return {file.path for file in _snapshot(store)}


def _read(store: Store, columns: list[str], findings: Findings) -> list[dict[str, Any]]:
    """Return the rows of every file of the newest snapshot, read one by one."""
    rows: list[dict[str, Any]] = []
    for file in _snapshot(store):
        data = store.get(file.path)
        if data is None or len(data) != file.size:
            size = None if data is None else len(data)
            findings.note("torn_visible", 1, f"{file.path} has {size} bytes, expected {file.size}")
            continue
        try:
            found = pq.ParquetFile(pa.BufferReader(data)).read(columns=columns)
        except (pa.ArrowException, OSError) as error:
            findings.note("torn_visible", 1, f"{file.path} cannot be read: {error}")
            continue
        if found.num_rows != file.rows:
            findings.note("torn_visible", 1, f"{file.path} has {found.num_rows} rows, expected {file.rows}")
        rows += found.to_pylist()
    return rows


def _snapshot(store: Store) -> list[_File]:
    commits = sorted(name for name in store.names("_manifest") if _COMMIT.search(name))
    if commits:
        files: dict[str, _File] = {}
        for name in commits[1:]:
            commit = json.loads(store.get(name) or b"")
            for path in commit["removes"]:
                del files[path]
            files |= {add["path"]: _File(add["path"], add["size"], add["rows"]) for add in commit["adds"]}
        return list(files.values())
    if not Path(store.uri).exists() and "://" not in store.uri:
        return []
    try:
        table = DeltaTable(store.location, storage_options=store.delta_options)
    except TableNotFoundError:
        return []
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [_File(action["path"], action["size_bytes"], action["num_records"]) for action in actions]
