"""Report of a published index: bytes, shards, lineage, publications, terms, and blocks that a search skips."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lsr_prod.evaluation.blocks import count_blocks
from lsr_prod.indexing.tombstones import load_takedowns
from lsr_prod.operations.diagnosis.index import diagnose_index, sample_documents, sample_vectors
from lsr_prod.operations.publications import HistoryEntry, read_history, version_bytes
from lsr_prod.search import Searcher
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.storage import Store

_PUBLICATIONS = 50
_QUERIES = 100
_QUERY_TERMS = 8  # of a query that is made of a document


def describe_index(
    index: str,
    options: Mapping[str, str] | None = None,
    *,
    sample: int,
    fields: Sequence[str] = (),
    queries: Sequence[str] = (),
) -> dict[str, Any]:
    """Return all figures of the current version of an index, as plain values.

    Returns:
        ``publication``, ``lineage``, ``settings``, ``bytes`` by part, ``shards``, ``tombstones``, ``takedowns``,
        ``history`` (newest first), ``blocks`` (``BlockCounts`` and ``queries``) and ``diagnosis``
        (``operations.diagnosis.index``).
    """
    store = Store(index, dict(options or {}))
    with Searcher.open(index, storage_options=options) as searcher:
        snapshot, version = searcher.snapshot, searcher.version
        wanted = searcher.encode(list(queries)) if queries else _queries(searcher, sample)
        return {
            "index": index,
            "publication": searcher.publication.number,
            "version": searcher.publication.version,
            "documents": version.documents,
            "postings_total": searcher.postings,
            "lineage": {
                "bundle": version.bundle_digest,
                "vocabulary": version.vocabulary_sha256,
                "table": version.table_uri,
                "table version": version.table_version,
                "bundle parents": ", ".join(snapshot.card.parents) or None,
            },
            "settings": {
                "dk": version.dk,
                "impact step": version.impact_step,
                "stored fields": ", ".join(version.stored_fields) or None,
                "text fields": ", ".join(version.text_fields) or None,
                "attributes": ", ".join(f"{name}: {kind}" for name, kind in version.attributes.items()) or None,
                "average length": version.average_length,
                "query encoder": snapshot.card.query_encoder,
            },
            "bytes": _bytes(searcher),
            "shards": _shards(searcher),
            "tombstones": version.deleted,
            "takedowns": len(load_takedowns(store, version)),
            "history": [_publication(entry) for entry in read_history(store, last=_PUBLICATIONS)],
            "blocks": {
                **asdict(count_blocks(snapshot, wanted)),
                "queries": len(wanted),
                "source": "given queries" if queries else f"the {_QUERY_TERMS} heaviest terms of sampled documents",
            },
            "diagnosis": diagnose_index(snapshot, sample=sample, fields=fields),
        }


def _queries(searcher: Searcher, sample: int) -> list[SparseQuery]:
    """Return queries that consist of the heaviest terms of documents of the sample."""
    snapshot = searcher.snapshot
    vectors = sample_vectors(snapshot, sample_documents(snapshot, min(sample, _QUERIES)))
    rows = (vectors.row(number) for number in range(len(vectors)))
    return [SparseQuery(*row, ()).top(_QUERY_TERMS) for row in rows if len(row[0])]


def _bytes(searcher: Searcher) -> dict[str, int]:
    """Return bytes by part, largest first; ``tombstones`` and ``takedowns`` are lists of the version."""
    version = searcher.version
    parts = Counter[str]()
    for shard in version.shards:
        parts.update(shard.bytes_by_part)
        parts["other"] += sum(file.size for file in shard.files) - sum(shard.bytes_by_part.values())
    parts["bundle"] = sum(path.stat().st_size for path in searcher.snapshot.bundle.rglob("*") if path.is_file())
    parts["tombstones"] = sum(one.file.size for one in version.tombstones if one)
    parts["takedowns"] = version.takedowns.size if version.takedowns else 0
    return {name: size for name, size in parts.most_common() if size}


def _shards(searcher: Searcher) -> list[dict[str, Any]]:
    version = searcher.version
    return [
        {
            "shard": shard.sha[:12],
            "role": shard.role,
            "documents": shard.documents,
            "tombstones": tombstones.documents if tombstones else 0,
            "postings": shard.postings,
            "bytes": sum(file.size for file in shard.files),
            **shard.bytes_by_part,
        }
        for shard, tombstones in zip(version.shards, version.tombstones, strict=True)
    ]


def _publication(entry: HistoryEntry) -> dict[str, Any]:
    publication, version = entry.publication, entry.version
    states = [name for name, there in (("current", entry.current), ("pinned", entry.pin is not None)) if there]
    forced = [f"gate {one.gate} overruled: {one.reason}" for one in publication.forced]
    return {
        "number": publication.number,
        "published_at": publication.published_at,
        "version": publication.version[:12],
        "state": ", ".join(states),
        "documents": version.documents if version else None,
        "bytes": version_bytes(version) if version else None,
        "tombstones": version.deleted if version else None,
        "changed": entry.difference.sentence() if entry.difference else entry.problem,
        "by": publication.by,
        "why": "; ".join(text for text in (publication.note, *forced) if text),
    }
