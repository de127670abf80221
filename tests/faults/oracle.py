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

Vectors = Mapping[str, frozenset[tuple[Any, ...]]]
"""doc_id -> accepted contents (terms, impacts, content_hash, source_file)."""

_CONTENT = ("terms", "impacts", "content_hash", "source_file")

_COMMIT = re.compile(r"_manifest/(\d{20})\.json$")
_CHECKPOINT = re.compile(r"_manifest/(\d{20})\.checkpoint\.parquet$")


@dataclass(slots=True)
class Findings:
    """Errors found in a pair of tables; zero and empty if there are none.

    Attributes:
        lost: rows of the corpus that are in neither table.
        doubled: rows that are twice in a table, in both tables, or not in the corpus.
        torn_visible: files of a snapshot that are missing, truncated, or have another number of rows than recorded.
        wrong: rows with an unexpected content or reason.
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
    documents = _read(table, ["doc_id", *_CONTENT], findings, version)
    bad = Counter(
        (row["source"].rpartition("/")[2], row["position"], row["doc_id"], row["reason"])
        for row in _read(quarantine, ["source", "position", "doc_id", "reason"], findings)
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
    rows = _read(job.stores[0], ["doc_id", *_CONTENT], Findings())
    return {row["doc_id"]: frozenset({_content(row)}) for row in rows}


def _content(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in _CONTENT)


def visible(store: Store) -> set[str]:
    """Return the paths of the newest snapshot."""
    return {file.path for file in _snapshot(store) or ()}


def _read(store: Store, columns: list[str], findings: Findings, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of every file of a snapshot, read one by one."""
    rows: list[dict[str, Any]] = []
    files = _snapshot(store, version)
    if files is None:
        findings.note("torn_visible", 1, f"the log of {store.uri} removes a file that it does not have")
        return rows
    for file in files:
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


def _snapshot(store: Store, version: int | None = None) -> list[_File] | None:
    """Return the files of a snapshot; None if its log contradicts itself."""
    names = store.names("_manifest")
    commits = {int(match[1]): name for name in names if (match := _COMMIT.search(name))}
    if commits:
        newest = max(commits) if version is None else version
        saved = {int(match[1]): name for name in names if (match := _CHECKPOINT.search(name))}
        base = max((number for number in saved if number <= newest), default=0)
        files = _checkpoint(store, saved[base]) if base else {}
        for number in range(base + 1, newest + 1):
            commit = json.loads(store.get(commits[number]) or b"")
            if not files.keys() >= {*commit["removes"]}:
                return None
            for path in commit["removes"]:
                del files[path]
            files |= {add["path"]: _File(add["path"], add["size"], add["rows"]) for add in commit["adds"]}
        return list(files.values())
    if not Path(store.uri).exists() and "://" not in store.uri:
        return []
    try:
        table = DeltaTable(store.location, version=version, storage_options=store.delta_options)
    except TableNotFoundError:
        return []
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [_File(action["path"], action["size_bytes"], action["num_records"]) for action in actions]


def _checkpoint(store: Store, name: str) -> dict[str, _File]:
    rows = pq.read_table(pa.BufferReader(store.get(name) or b"")).to_pylist()
    return {row["path"]: _File(row["path"], row["size"], row["rows"]) for row in rows}
