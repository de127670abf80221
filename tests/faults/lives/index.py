"""The index of a life, compared with a dictionary after every publication."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from lsr_prod.config import Deployment, IndexSettings, MaintainSettings
from lsr_prod.indexing import build_index, collect_garbage, delete_documents, restore_documents, rollback
from lsr_prod.operations.maintenance import job as maintenance
from lsr_prod.operations.maintenance import maintain
from lsr_prod.operations.table_generations import retire_tables
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import Bundle
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import publication_numbers, read_publication
from tests.faults.lives.expected import STEP, VOCABULARY, Document, read_documents
from tests.faults.oracle import Findings
from tests.indexing.corpus import make_bundle

__all__ = ["LifeIndex", "maintain_tables", "make_bundles"]

_SMALL_PART = 1  # MB, of a merged part


@dataclass(frozen=True, slots=True)
class _Version:
    """What a publication answers: the documents of its table version without those that are taken down."""

    documents: Mapping[str, Document]
    hidden: frozenset[str]


def make_bundles(folder: Path) -> list[Bundle]:
    """Write two bundles with one vocabulary; they have no graph."""
    bundles = []
    for number in range(2):
        names = [f"t{term}" for term in range(VOCABULARY - 1)] + [f"last{number}"]
        bundles.append(make_bundle(folder / f"bundle-{number}", names))
    return bundles


class LifeIndex:
    """An index and its expected publications."""

    def __init__(self, folder: Path, bundles: Path, buckets: int) -> None:
        self.folder, self._bundles, self._buckets = folder, bundles, buckets
        self._expected: dict[int, _Version] = {}
        self._now: _Version | None = None

    @property
    def is_published(self) -> bool:
        """Whether there is a publication."""
        return self._now is not None

    def build(self, table: Store, bundle: int, a: int, b: int, c: int) -> str:
        """Build the next version and publish it; returns its mode.

        Args:
            table: the sparse table.
            bundle: number of its bundle.
            a: chooses the number of shards.
            b: chooses how much may change before all shards are built again.
            c: chooses the number of delta shards.
        """
        settings = IndexSettings(
            table=table.uri,
            bundle=str(self._bundles / f"bundle-{bundle}"),
            output=str(self.folder),
            shards=min(1 + (a % 8 == 0), self._buckets),
            text_fields=["text"],
            max_delta=(0.0, 0.3, 1.0, 1.0)[b % 4],
            max_delta_shards=1 + c % 3,
        )
        summary = build_index(Deployment(index=settings))
        self._set(summary.publication, _Version(read_documents(table, Findings()), self._hidden))
        return summary.mode

    def take_down(self, ids: list[str]) -> None:
        """Take documents down."""
        done = delete_documents(self.folder, ids)
        self._set(done.publication.number, _Version(self._current.documents, self._hidden | {*ids}))

    def restore(self, ids: list[str]) -> None:
        """Restore documents."""
        done = restore_documents(self.folder, ids)
        self._set(done.publication.number, _Version(self._current.documents, self._hidden - {*ids}))

    def roll_back(self, a: int) -> None:
        """Publish an older version again; documents that were taken down since stay hidden."""
        numbers = publication_numbers(self.folder)
        older = self._expected[numbers[a % len(numbers)]]
        done = rollback(self.folder, numbers[a % len(numbers)])
        self._set(done.number, _Version(older.documents, older.hidden | self._hidden))

    def collect(self, a: int, first: Store, table: Store) -> None:
        """Delete old publications, and tables that no version names."""
        collect_garbage(self.folder, keep=1 + a % 3, age_s=0)
        retire_tables(Store(str(self.folder)), first, table, age_s=0)

    def some_ids(self, a: int, b: int) -> list[str]:
        """Return ids to take down or to restore: some of them known, one not."""
        known = sorted({*self._current.documents, *self._hidden, "unknown"})
        return [known[(a + 7 * place) % len(known)] for place in range(1 + b % 4)]

    @property
    def _current(self) -> _Version:
        assert self._now is not None
        return self._now

    @property
    def _hidden(self) -> frozenset[str]:
        return frozenset() if self._now is None else self._now.hidden

    def _set(self, number: int, version: _Version) -> None:
        self._expected[number] = self._now = version

    def names(self, table: Store) -> bool:
        """Return whether a publication uses a version of a table."""
        numbers = publication_numbers(self.folder) if self.is_published else []
        versions = {read_publication(self.folder, number).version for number in numbers}
        return any(read_version(self.folder, sha).table_uri == table.location for sha in versions)

    def check(self, findings: Findings) -> None:
        """Search for every document, and compare hits, scores and fields."""
        wanted = {i: d for i, d in self._current.documents.items() if i not in self._current.hidden}
        searcher = Searcher.open(self.folder)
        try:
            hits = searcher.search_vector(
                dict.fromkeys(range(VOCABULARY), 1.0), 10_000, qk=None, overlap_threshold=0.0, fields=("text", "title")
            ).hits
        finally:
            searcher.close()
        found = {hit.doc_id: (hit.score, hit.fields["text"], hit.fields["title"]) for hit in hits}
        findings.note("doubled", len(hits) - len(found), "documents are twice in the hits")
        expected = {i: (sum(d.impacts.values()) * STEP, d.text, d.title) for i, d in wanted.items()}
        for doc_id in sorted(expected.keys() - found.keys()):
            findings.note("lost", 1, f"{doc_id} is not found in the index")
        extra = sorted(found.keys() - expected.keys())
        findings.note("stale", len(extra), f"{extra[:3]} are found, but are no documents of the table or taken down")
        for doc_id in sorted(found.keys() & expected.keys()):
            differs = found[doc_id] != expected[doc_id]
            findings.note("stale", int(differs), f"{doc_id} is {found[doc_id]}, not {expected[doc_id]}")


def maintain_tables(table: Store, index: LifeIndex, *, retention: float, purge: bool) -> None:
    """Run the maintenance job in this process: merges are made one after the other instead of on Ray."""
    settings = MaintainSettings(
        table=table.uri,
        target_megabytes=_SMALL_PART,
        purge=purge,
        retention_hours=retention,
        indexes=[str(index.folder)] if index.names(table) else [],
    )
    with (
        patch.object(maintenance, "ray_session", lambda _: nullcontext()),
        patch.object(maintenance, "_on_ray", None),
    ):
        maintain(Deployment(maintain=settings))
