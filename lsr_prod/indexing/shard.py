"""Build one shard: rows in, a folder named by its input out."""

import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lsr_prod.errors import ArtefactError
from lsr_prod.formats.digest import canonical_json, digest_files
from lsr_prod.formats.index import SHARD_FILE, ShardManifest, load_shard
from lsr_prod.formats.shard import DOCUMENTS_FILE
from lsr_prod.indexing.boolean import BooleanWriter
from lsr_prod.indexing.impacts import ImpactWriter
from lsr_prod.indexing.plan import ShardPlan
from lsr_prod.indexing.rows import document_blocks, spill_sorted

__all__ = ["BuiltShard", "build_shard", "sync_tree"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltShard:
    """What became of a shard's plan.

    Attributes:
        manifest: the shard as it lies in the index.
        reused: it was there already.
        seconds_impacts: spent on the impact arrays.
        seconds_tantivy: spent on the Tantivy index.
    """

    manifest: ShardManifest
    reused: bool
    seconds_impacts: float = 0.0
    seconds_tantivy: float = 0.0


def build_shard(plan: ShardPlan, buckets: Iterable[pa.Table], index: Path) -> BuiltShard:
    """Build the shard into ``<index>/shards/<sha>``, or return the one that is there.

    The folder appears whole or not at all: it is written under another name, synced, and renamed.

    Args:
        plan: what to build.
        buckets: its rows, one table a bucket; read only if the shard is not there.
        index: the index folder.

    Raises:
        ArtefactError: the rows are not what the plan or the table's contract says.
    """
    target = index / "shards" / plan.sha
    if target.is_dir():
        return BuiltShard(load_shard(target), reused=True)
    draft = index / "shards" / f".{plan.sha}.{uuid.uuid4().hex}.tmp"
    draft.mkdir(parents=True)
    try:
        built = _write(plan, buckets, draft)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            # Another attempt finished the same shard first: its arrays are equal, and versions may name its files.
            return BuiltShard(load_shard(target), reused=True)
        _sync(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return built


def _write(plan: ShardPlan, buckets: Iterable[pa.Table], draft: Path) -> BuiltShard:
    layout = plan.layout
    spill = draft / "spill"
    spill.mkdir()
    tables = spill_sorted(buckets, spill)
    schema = pa.schema([pa.field(name, pa.large_string()) for name in ("doc_id", *layout.stored_fields)])
    documents = 0
    with (
        ImpactWriter(draft, layout) as impacts,
        BooleanWriter(draft, layout.text_fields) as boolean,
        pa.OSFile(str(draft / DOCUMENTS_FILE), "wb") as sink,
        pa.ipc.new_file(sink, schema) as stored,
    ):
        for block in document_blocks(tables, layout.block_size):
            kept = impacts.add(block)
            boolean.add(kept, block)
            stored.write_table(block.select(schema.names).cast(schema))
            documents += block.num_rows
    del tables  # the maps of the spilled files
    shutil.rmtree(spill)
    if documents != plan.documents:
        raise ArtefactError(f"the table's log counts {plan.documents} rows in this shard, its parts hold {documents}")
    manifest = _seal(draft, plan, documents, impacts.postings)
    log.info("shard built", extra={"fields": {"shard": plan.sha, "documents": documents}})
    return BuiltShard(manifest, False, impacts.seconds, boolean.seconds)


def _seal(draft: Path, plan: ShardPlan, documents: int, postings: int) -> ShardManifest:
    """Record every file in ``shard.json`` and sync all of them."""
    files = digest_files(draft, [path for path in draft.rglob("*") if path.is_file()])
    size = dict.fromkeys(("impacts", "forward", "tantivy", "docs"), 0)
    for file in files:
        folder, _, name = file.path.partition("/")
        part = "docs" if folder == DOCUMENTS_FILE else "forward" if name.startswith("forward") else folder
        size[part] += file.size
    manifest = ShardManifest(plan.sha, documents, postings, plan.layout.block_size, plan.role, size, files)
    (draft / SHARD_FILE).write_bytes(canonical_json(manifest.to_json()) + b"\n")
    sync_tree(draft)
    return manifest


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below ``folder``, and itself, to the disk."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
