"""BM25 by Tantivy over all shards of a version."""

from collections.abc import Sequence

from lsr_prod.search.boolean_shard import BooleanShard
from lsr_prod.search.candidates import Candidates
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.search.snapshot import Snapshot


def rank_bm25(snapshot: Snapshot, tokens: Sequence[str], k: int) -> Candidates:
    """Return the best ``k`` documents by BM25; deleted documents count in ``matched`` until their shard is merged."""
    matched, ranked = 0, []
    for number, shard in snapshot.boolean.items():
        reader = snapshot.readers[number]
        found, best = _alive_best(shard, reader, tokens, k)
        matched += found
        ranked += [(-score, reader.shard.documents.doc_id(o), number, o, 0) for score, o in best]
    return Candidates(sorted(ranked)[:k], matched, snapshot.version.deleted == 0, False)


def _alive_best(
    shard: BooleanShard, reader: ShardReader, tokens: Sequence[str], k: int
) -> tuple[int, list[tuple[float, int]]]:
    """Ask Tantivy for more hits until ``k`` of them are not deleted: Tantivy does not know the tombstones.

    Tantivy breaks ties in its own order, so of documents with equal scores any may be among the best ``k``.
    """
    limit = k
    while True:
        found, best = shard.bm25(tokens, limit)
        alive = [row for row in best if reader.is_alive(row[1])]
        if len(alive) >= k or limit >= found:
            return found, alive[:k]
        limit *= 2
