"""Build one shard from rows of the sparse table: a folder that is named by the digest of its input.

A shard may be larger than memory: its buckets are sorted one by one into mapped Arrow files, and each batch of the
shard merges one slice of every file.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod import errors, logs
from lsr_prod.encoding.tables import live_rows, part
from lsr_prod.indexing.boolean import BooleanWriter
from lsr_prod.indexing.impacts.postings import (
    TermField,
    WordSpill,
    WordVectors,
    joined_texts,
    write_dictionary,
    write_postings,
)
from lsr_prod.indexing.impacts.vectors import Vectors, VectorSpill
from lsr_prod.indexing.index_plan import ShardLayout, ShardPlan, parse_attributes
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.storage import Store, drafts, index_shards
from lsr_prod.storage.formats import digests, index_format, pages, stored_values, term_weights
from lsr_prod.storage.formats.shard_format import (
    BATCH_ROWS,
    DOCUMENTS_FILE,
    FORWARD_ARRAYS,
    IMPACTS_FOLDER,
    MATCHING_ARRAYS,
    TANTIVY_FOLDER,
    TEXT_TERMS_FILE,
    WORD_ARRAYS,
    array_name,
    is_mapped,
)

log = logs.get_log(__name__)


@dataclass(frozen=True, slots=True)
class BuiltShard:
    """A shard in the index, and the work that built it."""

    manifest: index_format.ShardManifest  # manifest of the shard
    reused: bool  # the index already had the shard
    seconds_impacts: float = 0.0  # time spent on arrays
    seconds_tantivy: float = 0.0  # time spent on the Tantivy index
    unreadable_attributes: int = 0  # values that cannot be parsed as the type of their attribute and became null


def build_shard(plan: ShardPlan, buckets: Iterable[pa.Table], index: Store | Path) -> BuiltShard:
    """Build the shard in an index, or return the one that is there; it appears completely or not at all."""
    there = index_shards.find_shard(index, plan.sha)
    if there is not None:
        return BuiltShard(there, reused=True)
    with index_shards.ShardDraft(index, plan.sha) as draft:
        built = _write(plan, buckets, index, draft.folder)
        manifest = draft.seal(built.manifest)
    # Another attempt may have sealed the same shard first; versions may name its files.
    return built if manifest == built.manifest else BuiltShard(manifest, reused=True)


def _write(plan: ShardPlan, buckets: Iterable[pa.Table], index: Store | Path, draft: Path) -> BuiltShard:
    layout = plan.layout
    spill = draft / "spill"
    spill.mkdir()
    documents = _Documents(draft, layout)
    with documents:
        vectors, words = _write_rows(buckets, plan, draft, documents, _term_reader(plan, index, spill))
    if len(vectors) != plan.documents:
        raise errors.ArtifactError(
            f"the table's log has {plan.documents} rows for this shard, but its parts have {len(vectors)}; "
            "encode the corpus again"
        )
    start = time.perf_counter()
    postings = write_arrays(draft, vectors, layout, words.finish() if words else None)
    seconds = time.perf_counter() - start
    del vectors, words  # they map the spilled files
    shutil.rmtree(spill)
    manifest = _write_manifest(draft, plan, postings)
    unreadable = documents.unreadable
    log.info("shard built", extra={"fields": {"shard": plan.sha, "documents": plan.documents, **unreadable}})
    return BuiltShard(manifest, False, seconds, documents.seconds, unreadable.total())


def _write_rows(
    buckets: Iterable[pa.Table], plan: ShardPlan, draft: Path, documents: "_Documents", reader: TermReader | None
) -> tuple[Vectors, WordSpill | None]:
    """Sort the rows by id; write the documents, the forward copy and the words.

    In the same pass, count the terms of texts: each row of the shard is counted once.
    """
    layout, spill = plan.layout, draft / "spill"
    (draft / IMPACTS_FOLDER).mkdir()
    vectors = VectorSpill(draft / IMPACTS_FOLDER, layout.vocabulary_size, prefix="forward_")
    words = None
    if layout.average_length is not None:
        words = WordSpill(spill / "words", layout.average_length, layout.analyzer)
    counts = None if reader is None else term_weights.TermCounts.none(layout.vocabulary_size)
    for batch in merge_by_id(spill_sorted(buckets, spill), BATCH_ROWS):
        vectors.add(Vectors.from_rows(batch, layout.vocabulary_size))
        texts = joined_texts(batch, layout.text_fields)
        documents.add(batch, texts)
        if words is not None:
            words.add(texts)
        if reader is not None:
            counts = reader.count(texts, counts)
    if counts is not None:
        drafts.write_file(draft / TEXT_TERMS_FILE, counts.to_bytes())
    return vectors.finish(), words


def _term_reader(plan: ShardPlan, index: Store | Path, scratch: Path) -> TermReader | None:
    """Return the reader of terms in texts; None if queries are not weighted by document frequencies of texts."""
    if plan.layout.text_terms is None:
        return None
    assert plan.bundle is not None
    return TermReader.open(index_shards.bundle_files(index, plan.bundle, TermReader.FILES, scratch))


def write_arrays(folder: Path, vectors: Vectors, layout: ShardLayout, words: WordVectors | None = None) -> int:
    """Write the posting arrays of a shard, whose forward copy has the vectors; return the postings, without words."""
    fields = [TermField(vectors, layout.vocabulary_size, layout.dk)]
    if words is not None:
        write_dictionary(folder, words.names)
        fields.append(TermField(words.vectors, len(words.names)))
    write_postings(folder, fields)
    return int(np.minimum(vectors.lengths, layout.dk).sum())


class _Documents:
    """Writer of ids, stored fields and attributes, and of the Tantivy index, by ordinal; a context manager."""

    def __init__(self, draft: Path, layout: ShardLayout) -> None:
        self.unreadable = Counter[str]()
        self._draft, self._layout = draft, layout
        self._attributes = dict(layout.attributes)
        self._boolean: BooleanWriter | None = None
        self._plain = ["doc_id", *(name for name in layout.stored_fields if name not in self._attributes)]
        strings = [pa.field(name, pa.large_string()) for name in self._plain]
        typed = [
            pa.field(index_format.attribute_column(name), stored_values.arrow_type(kind))
            for name, kind in layout.attributes
        ]
        self._schema = pa.schema([*strings, *typed])

    def __enter__(self) -> None:
        with ExitStack() as stack:  # closes what is open if the rest cannot be opened
            sink = stack.enter_context(pa.OSFile(str(self._draft / DOCUMENTS_FILE), "wb"))
            self._stored = stack.enter_context(pa.ipc.new_file(sink, self._schema))
            if self._layout.average_length is None:  # else the postings of words answer for the text
                self._boolean = stack.enter_context(BooleanWriter(self._draft, self._layout.analyzer))
            self._open = stack.pop_all()

    def __exit__(self, *raised: Any) -> None:
        self._open.__exit__(*raised)

    def add(self, rows: pa.Table, texts: Sequence[str]) -> None:
        """Append a batch of rows; only the final one may be smaller than ``BATCH_ROWS``."""
        columns, bad = parse_attributes(rows, self._attributes)
        self.unreadable.update(bad)
        if self._boolean is not None:
            self._boolean.add(texts)
        strings = [rows[name].cast(pa.large_string()) for name in self._plain]
        self._stored.write_table(pa.Table.from_arrays([*strings, *columns], schema=self._schema).combine_chunks())

    @property
    def seconds(self) -> float:
        """Seconds spent on Tantivy."""
        return 0.0 if self._boolean is None else self._boolean.seconds


def _write_manifest(draft: Path, plan: ShardPlan, postings: int) -> index_format.ShardManifest:
    """Write the digests of the pages; return the manifest with the digest of every file."""
    names = [path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file()]
    drafts.write_file(draft / pages.PAGE_DIGESTS_FILE, pages.page_digests(draft, filter(is_mapped, names)))
    files = digests.digest_folder(draft)
    size = dict.fromkeys(("impacts", "forward", "tantivy", "docs"), 0)
    for file in files:
        size[_component(file.path)] += file.size
    return index_format.ShardManifest(plan.sha, plan.documents, postings, plan.role, size, files)


def _component(path: str) -> str:
    if path.startswith(f"{TANTIVY_FOLDER}/"):
        return "tantivy"
    if path in map(array_name, FORWARD_ARRAYS):
        return "forward"
    return "impacts" if path in map(array_name, (*MATCHING_ARRAYS, *WORD_ARRAYS)) else "docs"


def read_buckets(plan: ShardPlan) -> Iterator[pa.Table]:
    """Yield the rows of a shard from the pinned version of the sparse table, one table per bucket."""
    from lsr_prod.encoding.tables import open_table  # the core wheel cannot open tables

    table = open_table(plan.table, plan.table_version)
    if table is None:
        raise errors.ArtifactError(f"{plan.table.uri} is no longer a table; encode the corpus again")
    columns = ["doc_id", "terms", "impacts", *plan.layout.stored_fields]
    schema = pa.schema([table.schema.field(name) for name in columns])
    files = live_rows.files_of_buckets(table.file_table(), plan.buckets)
    for bucket in plan.buckets:
        mine = live_rows.to_files(live_rows.files_of_buckets(files, [bucket]))
        parts = (live_rows.read_part(table.store, file, schema) for file in mine)
        yield pa.concat_tables([schema.empty_table(), *parts])


def spill_sorted(tables: Iterable[pa.Table], folder: Path) -> list[pa.Table]:
    """Sort each table by ``doc_id`` into a file in ``folder`` and map it; strings become ``large_string``."""
    spilled = []
    for number, table in enumerate(tables):
        if not table.num_rows:
            continue
        schema = part.large_strings(table.schema)
        path = str(folder / f"{number}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(table.cast(schema).sort_by("doc_id"))
        spilled.append(pa.ipc.open_file(pa.memory_map(path)).read_all())
    return spilled


def merge_by_id(tables: Sequence[pa.Table], batch_rows: int) -> Iterator[pa.Table]:
    """Merge tables sorted by ``doc_id`` and yield the rows in order, in tables of ``batch_rows`` rows."""
    if not tables:
        return
    ids = pa.chunked_array([chunk for table in tables for chunk in table["doc_id"].chunks])
    order = pc.sort_indices(ids).to_numpy()
    ends = np.cumsum([table.num_rows for table in tables])
    taken = np.zeros(len(tables), dtype=np.int64)
    last: str | None = None
    for start in range(0, len(order), batch_rows):
        owners = np.searchsorted(ends, order[start : start + batch_rows], side="right")
        counts = np.bincount(owners, minlength=len(tables))
        slices = [table.slice(at, n) for table, at, n in zip(tables, taken, counts, strict=True) if n]
        taken += counts
        batch = pa.concat_tables(slices).combine_chunks().sort_by("doc_id").combine_chunks()
        found = batch["doc_id"]
        repeated = found.slice(1).filter(pc.equal(found.slice(1), found.slice(0, len(found) - 1)))
        if len(repeated) or found[0].as_py() == last:
            name = repeated[0].as_py() if len(repeated) else last
            raise errors.ArtifactError(
                f"document {name!r} is in the table twice; the table is damaged, encode the corpus again"
            )
        last = found[-1].as_py()
        yield batch
