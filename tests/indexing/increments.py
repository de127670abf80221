"""A sparse table with increments: parts that hold a superseded row are replaced."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from lsr_prod.config import Deployment, IndexSettings
from lsr_prod.encoding.tables import open_table, write_part
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import bucket_of
from tests.encoding.tables.deletions import delete_ids
from tests.indexing.corpus import Doc, make_bundle, make_table, rows

__all__ = [
    "VOCABULARY",
    "Increment",
    "change_table",
    "delete_rows",
    "deployment",
    "make_world",
    "random_doc",
    "random_increment",
]

VOCABULARY = 64


@dataclass(frozen=True, slots=True)
class Increment:
    """One increment: documents that are new or changed, and ids to delete."""

    upserts: Mapping[str, Doc]
    deletes: Collection[str] = ()

    def after(self, corpus: Mapping[str, Doc]) -> dict[str, Doc]:
        """Return the corpus after the increment."""
        return {i: d for i, d in {**corpus, **self.upserts}.items() if i not in self.deletes}


def make_world(root: Path, corpus: Mapping[str, Doc], *, buckets: int = 4) -> Deployment:
    """Make a bundle and a table at version 1; return the settings of an index of two shards."""
    make_bundle(root / "bundle", [f"t{i}" for i in range(VOCABULARY)])
    make_table(root / "table", corpus, root / "bundle", buckets=buckets, store_k=16)
    return deployment(root)


def deployment(root: Path, output: str = "index", **changes: object) -> Deployment:
    """Return the settings of an index of that table."""
    given = {"table": str(root / "table"), "bundle": str(root / "bundle"), "output": str(root / output), "shards": 2}
    return Deployment(index=IndexSettings(**{**given, "text_fields": ["text"], **changes}))


def change_table(root: Path, increment: Increment, *, buckets: int = 4, options: dict[str, str] | None = None) -> None:
    """Commit an increment: replace parts with superseded rows, and add a part with the new rows of each bucket."""
    store = Store(str(root / "table") if options is None else str(root), options or {})
    table = open_table(store)
    origin = f"increment {table.version}"
    leaving = {*increment.upserts, *increment.deletes}
    adds, removes = [], []
    for file in table.files():
        with store.open_reader(file.path) as data:
            part = pq.ParquetFile(data).read()
        stay = [i not in leaving for i in part["doc_id"].to_pylist()]
        if all(stay):
            continue
        removes.append(file.path)
        if any(stay):
            bucket = file.partition["bucket"]
            adds.append((write_part(store, f"bucket={bucket}", part.filter(stay), origin), {"bucket": bucket}))
    for bucket in range(buckets):
        new = rows(increment.upserts, buckets, bucket).drop(["bucket"])
        if new.num_rows:
            adds.append((write_part(store, f"bucket={bucket}", new, origin), {"bucket": str(bucket)}))
    table.commit(adds, removes, app="corpus", version=(table.transaction_version("corpus") or 0) + 1, epoch=1)


def delete_rows(root: Path, increment: Increment, *, buckets: int = 4) -> None:
    """Commit an increment with deletion vectors: no part is replaced."""
    store = Store(str(root / "table"))
    origin = f"increment {open_table(store).version}"
    new = [(bucket, rows(increment.upserts, buckets, bucket).drop(["bucket"])) for bucket in range(buckets)]
    adds = [
        (write_part(store, f"bucket={bucket}", part, origin), {"bucket": str(bucket)})
        for bucket, part in new
        if part.num_rows
    ]
    delete_ids(store, {*increment.upserts, *increment.deletes}, adds, app="corpus")


def random_doc(dice: random.Random) -> Doc:
    """Return a document of up to 12 terms, some of them frequent."""
    terms = {min(VOCABULARY - 1, int(dice.expovariate(0.08))) for _ in range(dice.randint(0, 12))}
    impacts = sorted((dice.randint(1, 255) for _ in terms), reverse=True)
    return Doc(dict(zip(sorted(terms, key=lambda _: dice.random()), impacts, strict=True)), f"text {dice.random()}")


def random_increment(dice: random.Random, corpus: Mapping[str, Doc], share: float, new_ids: str) -> Increment:
    """Return an increment that inserts, changes and deletes that share of the documents each."""
    n = max(1, round(len(corpus) * share))
    chosen = dice.sample(sorted(corpus), 2 * n)
    upserts = {f"{new_ids}{i:04d}": random_doc(dice) for i in range(n)}
    return Increment({**upserts, **{i: random_doc(dice) for i in chosen[:n]}}, frozenset(chosen[n:]))


def buckets_of(ids: Collection[str], buckets: int = 4) -> set[int]:
    """Return the buckets of the ids."""
    return {bucket_of(i, buckets) for i in ids}
