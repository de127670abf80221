"""Expected contents of a table: a dictionary that follows from the files of the source and the rule for duplicates."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.live_rows import total_live_rows
from lsr_prod.storage import Store
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import content_hash
from tests.faults.corpus import POISON
from tests.faults.oracle import Findings, read_rows
from tests.faults.protocol import Job

__all__ = ["STEP", "VOCABULARY", "Document", "ModelStub", "check_tables", "documents_of", "read_documents"]

STEP = 1 / 64
VOCABULARY = 64
_TERMS = 5


@dataclass(frozen=True, slots=True)
class Document:
    """A document: vector (impact by term), text, title, and the key of its source file."""

    impacts: Mapping[int, int]
    text: str
    title: str | None
    key: int


@dataclass(frozen=True, slots=True)
class _Row:
    key: int
    position: int
    doc_id: str | None
    text: str
    title: str | None
    reason: str | None


class ModelStub:
    """Stand-in for a model: a vector that depends on the text and on the number of the model; some texts fail."""

    def __init__(self, number: int) -> None:
        self._number = number

    def impacts(self, text: str) -> dict[int, int]:
        """Return the impact of every term, heaviest first."""
        digest = hashlib.sha256(f"{self._number} {text}".encode()).digest()
        terms = dict.fromkeys(byte % VOCABULARY for byte in digest[:_TERMS])
        return {term: 255 - 40 * place - digest[8 + place] % 40 for place, term in enumerate(terms)}

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return the vectors."""
        if any(POISON in text for text in texts):
            raise ValueError("the model fails on this text")
        found = [self.impacts(text) for text in texts]
        offsets = np.cumsum([0, *map(len, found)])
        terms = np.array([term for each in found for term in each], np.int32)
        return SparseBatch(offsets, terms, np.array([i * STEP for each in found for i in each.values()], np.float32))


def documents_of(files: Mapping[str, bytes], rule: str, model: ModelStub) -> dict[str, Document]:
    """Return the documents that a table of these files has."""
    chosen: dict[str, _Row] = {}
    for row in _rows(files):
        if row.reason is None and row.doc_id is not None and (rule == "last" or row.doc_id not in chosen):
            chosen[row.doc_id] = row
    return {
        doc_id: Document(model.impacts(row.text), row.text, row.title, row.key)
        for doc_id, row in chosen.items()
        if POISON not in row.text
    }


def check_tables(job: Job, files: Mapping[str, bytes], rule: str, model: ModelStub) -> Findings:
    """Compare both tables after a finished night with the files of the source."""
    findings = Findings()
    expected, found = documents_of(files, rule, model), read_documents(job.stores[0], findings)
    for doc_id, document in expected.items():
        if doc_id not in found:
            findings.note("lost", 1, f"{doc_id} is not in the table")
        elif found[doc_id] != document:
            findings.note("stale", 1, f"{doc_id} is {found[doc_id]} in the table, not {document}")
    gone = sorted(found.keys() - expected.keys())
    findings.note("stale", len(gone), f"{gone[:3]} are in the table, but are no documents of the source")
    _check_quarantine(job, files, rule, findings)
    return findings


def _check_quarantine(job: Job, files: Mapping[str, bytes], rule: str, findings: Findings) -> None:
    """Find rows that are neither a document nor in the quarantine.

    A document that a row of a later night displaces is quarantined without its position.
    """
    columns = ["source_file", "position", "doc_id", "reason"]
    bad = {tuple(row[name] for name in columns) for row in read_rows(job.stores[1], columns, findings)}
    reasons: dict[tuple[int, int], set[str]] = {}
    for key, position, _, reason in bad:
        reasons.setdefault((key, position), set()).add(reason)
    chosen: dict[str, tuple[int, int]] = {}
    rows = list(_rows(files))
    for row in rows:
        if row.reason is None and row.doc_id is not None and (rule == "last" or row.doc_id not in chosen):
            chosen[row.doc_id] = (row.key, row.position)
    for row in rows:
        known = reasons.get((row.key, row.position), set())
        if row.reason is not None:
            missing = row.reason not in known
        elif POISON in row.text:
            missing = not known
        else:
            is_chosen = chosen[row.doc_id or ""] == (row.key, row.position)
            displaced = (row.key, -1, row.doc_id, "duplicate_id") in bad
            missing = not is_chosen and not displaced and "duplicate_id" not in known
        findings.note("lost", int(missing), f"{row} is neither a document nor in the quarantine")


def read_documents(store: Store, findings: Findings) -> dict[str, Document]:
    """Return the documents of a table, read by delta-rs where it is a Delta table."""
    columns = ["doc_id", "terms", "impacts", "content_hash", "source_file", "title", "text"]
    found: dict[str, Document] = {}
    rows = read_rows(store, columns, findings)
    for row in rows:
        findings.note("doubled", int(row["doc_id"] in found), f"{row['doc_id']} is twice in the table")
        impacts = dict(zip(row["terms"], row["impacts"], strict=True))
        found[row["doc_id"]] = Document(impacts, row["text"], row["title"], row["source_file"])
        wrong = row["content_hash"] != content_hash(row["text"])
        findings.note("wrong", int(wrong), f"content hash of {row['doc_id']}")
    table = open_table(store)
    ours = 0 if table is None else total_live_rows(table.file_table())
    findings.note("wrong", int(ours != len(rows)), f"{store.uri} has {ours} rows by its log, but {len(rows)} are read")
    return found


def _rows(files: Mapping[str, bytes]) -> Iterator[_Row]:
    for name, data in sorted(files.items()):
        basename = name.rpartition("/")[2]
        key = SourceFile("", basename, "jsonl", len(data), hashlib.sha256(data).hexdigest()).key
        at = 0
        for line in data.splitlines(keepends=True):
            yield _row(key, at, line)
            at += len(line)


def _row(key: int, at: int, line: bytes) -> _Row:
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:
        return _Row(key, at, None, "", None, "broken_json")
    doc_id, text, title = record.get("_id"), record.get("text", ""), record.get("title")
    if doc_id is None:
        return _Row(key, at, None, text, title, "missing_id")
    return _Row(key, at, doc_id, text, title, None if text.strip() else "empty_text")
