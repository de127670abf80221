"""Contents of the tables, read without the code under test and compared with the expected outcome of the corpus."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.storage import Store
from tests.faults.corpus import Corpus
from tests.faults.protocol import Job
from tests.faults.snapshots import delta_rows, snapshot

__all__ = ["FINDINGS", "Findings", "Vectors", "inspect", "read_rows", "vectors"]

Vectors = Mapping[str, frozenset[tuple[Any, ...]]]
"""doc_id -> accepted contents (terms, impacts, content_hash, source_file)."""

FINDINGS = ("lost", "stale", "doubled", "torn_visible", "wrong")
_CONTENT = ("terms", "impacts", "content_hash", "source_file")


@dataclass(slots=True)
class Findings:
    """Errors found in a pair of tables; zero and empty if there are none.

    Attributes:
        lost: rows of the corpus that are in neither table.
        stale: rows of an earlier state of the source, instead of the row of this one, or of none.
        doubled: rows that are twice in a table, in both tables, or not in the corpus.
        torn_visible: files of a snapshot that are missing, truncated, or have another number of rows than recorded.
        wrong: rows with an unexpected content or reason.
        sentences: description of each error.
    """

    lost: int = 0
    stale: int = 0
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
        for kind in FINDINGS:
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))
        self.sentences += other.sentences

    @property
    def clean(self) -> bool:
        """Whether no error was found."""
        return not self.sentences


def inspect(
    job: Job,
    corpus: Corpus,
    expected: Vectors,
    *,
    finished: bool,
    flaky: Sequence[str] = (),
    before: Corpus | None = None,
    version: int | None = None,
    abandoned: Counter[tuple[str, int, str | None, str]] | None = None,
) -> Findings:
    """Check the newest snapshot of both tables.

    Args:
        job: input and output of the job.
        corpus: source of the job.
        expected: contents of an undisturbed run.
        finished: every row must be in a table; otherwise only existing rows are checked.
        flaky: documents that fail by one of these words may be in quarantine instead.
        before: source of the last finished run; its rows are accepted as long as the work is not finished.
        version: version of the sparse table instead of the newest one.
        abandoned: rows of the quarantine that abandoned plans may have left.
    """
    findings = Findings()
    table, quarantine = job.stores
    documents = read_rows(table, ["doc_id", *_CONTENT], findings, version)
    bad = Counter(
        (row["source"].rpartition("/")[2], row["position"], row["doc_id"], row["reason"])
        for row in read_rows(quarantine, ["source", "position", "doc_id", "reason"], findings)
    )
    ids = Counter(row["doc_id"] for row in documents)
    accepted = corpus.documents | (before.documents if before and not finished else frozenset())
    for doc_id, count in ids.items():
        findings.note("doubled", count - 1, f"{doc_id} is {count} times in the table")
        findings.note(
            "doubled", int(doc_id not in accepted), f"{doc_id} is in the table but is not a document of the corpus"
        )
    for row in documents:
        found = _content(row)
        findings.note("wrong", int(found not in expected.get(row["doc_id"], {found})), f"content of {row['doc_id']}")
    excused = {
        (row.source, row.position, row.doc_id, "encode_failed")
        for row in (*corpus.rows, *corpus.former)
        if row.reason is None and any(map(row.text_fails, flaky))
    }
    for place, count in bad.items():
        # The bad rows of a wave are committed before its documents: between the two commits they are not final.
        allowed = max(corpus.quarantine[place] + (abandoned or {}).get(place, 0), int(place in excused))
        findings.note(
            "doubled" if allowed else "wrong",
            max(count - allowed, 0),
            f"{place} is {count} times in quarantine instead of {allowed}",
        )
    if finished:
        _account(findings, corpus, ids, bad)
    return findings


def _account(
    findings: Findings, corpus: Corpus, ids: Mapping[str, int], bad: Counter[tuple[str, int, str | None, str]]
) -> None:
    """Check that every row of the corpus is in exactly one of the tables."""
    for place, count in corpus.quarantine.items():
        findings.note("lost", max(count - bad[place], 0), f"{place} is {bad[place]} times in quarantine, not {count}")
    for row in corpus.rows:
        if row.reason is None:
            refused = bad[row.source, row.position, row.doc_id, "encode_failed"]
            findings.note("lost", int(row.doc_id not in ids and not refused), f"{row.doc_id} of {row.source}")
            findings.note("doubled", int(row.doc_id in ids and refused > 0), f"{row.doc_id} is in both tables")


def vectors(job: Job) -> Vectors:
    """Return the contents of the sparse table."""
    rows = read_rows(job.stores[0], ["doc_id", *_CONTENT], Findings())
    return {row["doc_id"]: frozenset({_content(row)}) for row in rows}


def _content(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in _CONTENT)


def read_rows(store: Store, columns: list[str], findings: Findings, version: int | None = None) -> list[dict[str, Any]]:
    """Return the live rows of a snapshot; every file is read and checked."""
    rows: list[dict[str, Any]] = []
    for file in snapshot(store, version):
        data = store.get(file.path)
        if data is None or len(data) != file.size:
            size = None if data is None else len(data)
            findings.note("torn_visible", 1, f"{file.path} has {size} bytes, expected {file.size}")
            continue
        try:
            found = pq.ParquetFile(pa.BufferReader(data)).read(columns=columns)
        except (pa.ArrowException, OSError, ValueError) as error:
            findings.note("torn_visible", 1, f"{file.path} cannot be read: {error}")
            continue
        if found.num_rows != file.rows:
            findings.note("torn_visible", 1, f"{file.path} has {found.num_rows} rows, expected {file.rows}")
        rows += found.to_pylist()
    try:
        live = delta_rows(store, columns, version)
    except Exception as error:  # noqa: BLE001 (delta-rs raises many kinds)
        findings.note("torn_visible", 1, f"delta-rs cannot read {store.uri}: {error}")
        return rows
    return rows if live is None else live
