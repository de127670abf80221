"""Build one shard from rows of the sparse table: a folder that is named by the digest of its input."""

import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.digest import digest_folder
from lsr_prod.formats.index import ATTRIBUTE_TYPES, ShardManifest, attribute_column
from lsr_prod.formats.pages import PAGE_DIGESTS_FILE, page_digests
from lsr_prod.formats.shard import (
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
from lsr_prod.formats.term_weights import TermCounts
from lsr_prod.indexing.boolean import BooleanWriter, segment_documents
from lsr_prod.indexing.impacts.arrays import compress_postings, create_array
from lsr_prod.indexing.impacts.bm25 import WordSpill, WordVectors, joined_texts, write_dictionary
from lsr_prod.indexing.impacts.vectors import TermField, Vectors, VectorSpill, order_documents, write_postings
from lsr_prod.indexing.plan import ShardLayout, ShardPlan, parse_attributes
from lsr_prod.indexing.rows import SpilledRows, merge_by_id, spill_sorted
from lsr_prod.inference.terms.term_reader import TermReader
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.index_shards import ShardDraft, bundle_files, find_shard

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class BuiltShard:
    """A shard in the index, and the work that built it."""

    manifest: ShardManifest  # manifest of the shard
    reused: bool  # the index already had the shard
    seconds_impacts: float = 0.0  # time spent on document order and arrays
    seconds_tantivy: float = 0.0  # time spent on the Tantivy index
    unreadable_attributes: int = 0  # values that cannot be parsed as the type of their attribute and became null


def build_shard(plan: ShardPlan, buckets: Iterable[pa.Table], index: Store | Path) -> BuiltShard:
    """Build the shard in an index, or return the one that is there; it appears completely or not at all."""
    there = find_shard(index, plan.sha)
    if there is not None:
        return BuiltShard(there, reused=True)
    with ShardDraft(index, plan.sha) as draft:
        built = _write(plan, buckets, index, draft.folder)
        manifest = draft.seal(built.manifest)
    # Another attempt may have sealed the same shard first; versions may name its files.
    return built if manifest == built.manifest else BuiltShard(manifest, reused=True)


def _write(plan: ShardPlan, buckets: Iterable[pa.Table], index: Store | Path, draft: Path) -> BuiltShard:
    layout = plan.layout
    spill = draft / "spill"
    spill.mkdir()
    rows, vectors, words = _spill(buckets, plan, draft, _term_reader(plan, index, spill))
    if len(vectors) != plan.documents:
        raise ArtifactError(
            f"the table's log has {plan.documents} rows for this shard, but its parts have {len(vectors)}; "
            "encode the corpus again"
        )
    start = time.perf_counter()
    order = np.arange(len(vectors), dtype=np.uint32)
    if layout.order == "content":
        order = order_documents(vectors, layout.vocabulary_size, layout.block_size)
    vectors, postings = write_arrays(draft, vectors, order, layout, words.finish(order) if words else None)
    seconds_impacts = time.perf_counter() - start
    seconds_tantivy, unreadable = _write_documents(draft, rows, vectors, order, layout)
    del rows, vectors, words  # they map the spilled files
    shutil.rmtree(spill)
    manifest = _write_manifest(draft, plan, postings)
    log.info("shard built", extra={"fields": {"shard": plan.sha, "documents": plan.documents, **unreadable}})
    return BuiltShard(manifest, False, seconds_impacts, seconds_tantivy, unreadable.total())


def _spill(
    buckets: Iterable[pa.Table], plan: ShardPlan, draft: Path, reader: TermReader | None
) -> tuple[SpilledRows, Vectors, WordSpill | None]:
    """Sort the rows by id, and write stored columns, vectors and words to files.

    In the same pass, count the terms of texts: each row of the shard is counted once.
    """
    layout, spill = plan.layout, draft / "spill"
    schema = pa.schema([pa.field(name, pa.large_string()) for name in ("doc_id", *layout.stored_fields)])
    rows = SpilledRows(spill / "rows.arrow", schema, BATCH_ROWS)
    vectors = VectorSpill(spill, layout.vocabulary_size)
    words = None if layout.average_length is None else WordSpill(spill / "words", layout.average_length)
    counts = None if reader is None else TermCounts.none(layout.vocabulary_size)
    for batch in merge_by_id(spill_sorted(buckets, spill), BATCH_ROWS):
        vectors.add(Vectors.from_rows(batch, layout.vocabulary_size))
        rows.add(batch)
        if words is not None:
            words.add(joined_texts(batch, layout.text_fields))
        if reader is not None:
            counts = reader.count(joined_texts(batch, layout.text_fields), counts)
    rows.finish()
    if counts is not None:
        write_file(draft / TEXT_TERMS_FILE, counts.to_bytes())
    return rows, vectors.finish(), words


def _term_reader(plan: ShardPlan, index: Store | Path, scratch: Path) -> TermReader | None:
    """Return the reader of terms in texts; None if queries are not weighted by document frequencies of texts."""
    if plan.layout.text_terms is None:
        return None
    assert plan.bundle is not None
    return TermReader.open(bundle_files(index, plan.bundle, TermReader.FILES, scratch))


def write_arrays(
    folder: Path, vectors: Vectors, order: npt.NDArray[Any], layout: ShardLayout, words: WordVectors | None = None
) -> tuple[Vectors, int]:
    """Write all arrays of a shard.

    Returns:
        The vectors by ordinal, mapped; and the number of postings, without words.
    """
    (folder / IMPACTS_FOLDER).mkdir()
    count = len(vectors)
    create_array(folder / array_name("id_rank"), np.dtype("<u4"), count)[:] = order
    create_array(folder / array_name("id_order"), np.dtype("<u4"), count)[order] = np.arange(count, dtype=np.uint32)
    forward = VectorSpill(folder / IMPACTS_FOLDER, layout.vocabulary_size, prefix="forward_")
    for start in range(0, count, BATCH_ROWS):
        forward.add(vectors.take(order[start : start + BATCH_ROWS]))
    ordered = forward.finish()
    fields = [TermField(ordered, layout.vocabulary_size, layout.dk)]
    if words is not None:
        write_dictionary(folder, words.names)
        fields.append(TermField(words.vectors, len(words.names)))
    write_postings(folder, fields, block_size=layout.block_size)
    if layout.compress:
        compress_postings(folder)
    return ordered, int(np.minimum(ordered.lengths, layout.dk).sum())


def _write_documents(
    draft: Path, rows: SpilledRows, vectors: Vectors, order: npt.NDArray[Any], layout: ShardLayout
) -> tuple[float, Counter[str]]:
    """Write ids, stored fields, attributes and the Tantivy index, by ordinal.

    Returns:
        Seconds spent on Tantivy; and the number of unreadable values by attribute.
    """
    attributes, unreadable = dict(layout.attributes), Counter[str]()
    strings = [pa.field(name, pa.large_string()) for name in ("doc_id", *layout.stored_fields)]
    typed = [pa.field(attribute_column(name), ATTRIBUTE_TYPES[kind]) for name, kind in attributes.items()]
    schema = pa.schema([*strings, *typed])
    postings = int(np.minimum(vectors.lengths, layout.dk).sum())
    size = segment_documents(len(order), postings, rows.text_bytes(layout.text_fields))
    with (
        BooleanWriter(draft, layout.text_fields, attributes, segment_documents=size) as boolean,
        pa.OSFile(str(draft / DOCUMENTS_FILE), "wb") as sink,
        pa.ipc.new_file(sink, schema) as stored,
    ):
        for start in range(0, len(order), BATCH_ROWS):
            ordinals = np.arange(start, min(start + BATCH_ROWS, len(order)))
            batch = rows.take(order[ordinals])
            columns, bad = parse_attributes(batch, attributes)
            unreadable.update(bad)
            boolean.add(vectors.take(ordinals).top(layout.dk), batch, columns)
            stored.write_table(pa.Table.from_arrays([*batch.columns, *columns], schema=schema))
    return boolean.seconds, unreadable


def _write_manifest(draft: Path, plan: ShardPlan, postings: int) -> ShardManifest:
    """Write the digests of the pages; return the manifest with the digest of every file."""
    names = [path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file()]
    write_file(draft / PAGE_DIGESTS_FILE, page_digests(draft, filter(is_mapped, names)))
    files = digest_folder(draft)
    size = dict.fromkeys(("impacts", "forward", "tantivy", "docs"), 0)
    for file in files:
        size[_component(file.path)] += file.size
    return ShardManifest(plan.sha, plan.documents, postings, plan.layout.block_size, plan.role, size, files)


def _component(path: str) -> str:
    if path.startswith(f"{TANTIVY_FOLDER}/"):
        return "tantivy"
    if path in map(array_name, FORWARD_ARRAYS):
        return "forward"
    return "impacts" if path in map(array_name, (*MATCHING_ARRAYS, *WORD_ARRAYS)) else "docs"
