"""A delta shard: some documents of the table, named by their rows, so that equal rows are never built twice."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.formats.digest import digest_json
from lsr_prod.formats.index import INDEX_FORMAT
from lsr_prod.indexing.changes import find_rows
from lsr_prod.indexing.plan import IndexPlan, ShardPlan
from lsr_prod.indexing.shard import BuiltShard, build_shard
from lsr_prod.storage import Store

__all__ = ["RowsDigest", "Selection", "build_delta", "digest_rows", "digest_selection", "plan_delta"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Documents of one bucket.

    Attributes:
        bucket: the bucket.
        store: the table's folder.
        paths: the bucket's parts at the pinned version.
        size: bytes of the parts.
        schema: columns to read.
        ids: large_string, sorted.
    """

    bucket: int
    store: Store
    paths: tuple[str, ...]
    size: int
    schema: pa.Schema
    ids: pa.Array

    def read(self) -> pa.Table:
        """Their rows, sorted by id.

        Raises:
            ArtifactError: a part is missing or damaged.
        """
        return find_rows(self.store, self.paths, self.schema, self.ids)


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """sha256 (hex) of the rows of one bucket, and their number."""

    sha256: str
    rows: int


def digest_selection(selection: Selection) -> RowsDigest:
    """Read the rows and digest them."""
    rows = selection.read()
    return RowsDigest(digest_rows(rows), rows.num_rows)


def digest_rows(rows: pa.Table) -> str:
    """sha256 (hex) of rows in their order: of each column its lengths and values, however Arrow keeps them."""
    sha = hashlib.sha256()
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        if pa.types.is_list(column.type):
            lengths = pc.list_value_length(column)
            values = column.flatten().to_numpy().astype("<i4").tobytes()
        else:
            lengths = pc.fill_null(pc.binary_length(column), -1)
            values = "".join(pc.fill_null(column, "").to_pylist()).encode()
        sha.update(lengths.to_numpy().astype("<i8").tobytes())
        sha.update(np.int64(len(values)).tobytes())
        sha.update(values)
    return sha.hexdigest()


def plan_delta(plan: IndexPlan, selections: Sequence[Selection], digests: Sequence[RowsDigest]) -> ShardPlan:
    """The shard of the selected documents; one without documents is not to be built."""
    identity = {
        "format": INDEX_FORMAT,
        "role": "delta",
        "buckets": [selection.bucket for selection in selections],
        "rows": [digest.sha256 for digest in digests],
        "layout": plan.layout.identity(),
    }
    return ShardPlan(
        digest_json(identity),
        plan.snapshot.store,
        plan.snapshot.version,
        tuple(selection.bucket for selection in selections),
        sum(digest.rows for digest in digests),
        plan.layout,
        "delta",
        plan.properties.bundle_digest,
    )


def build_delta(plan: ShardPlan, selections: Sequence[Selection], index: Path) -> BuiltShard:
    """Build it, or return the one that is there; one bucket's rows are in memory at a time.

    Raises:
        ArtifactError: a part is missing or damaged.
    """
    return build_shard(plan, _read_all(selections), index)


def _read_all(selections: Sequence[Selection]) -> Iterator[pa.Table]:
    for selection in selections:
        yield selection.read()
