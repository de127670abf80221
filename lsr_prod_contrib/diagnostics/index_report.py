"""Report of a published index: bytes, shards, lineage, publications, terms, and postings that queries read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.cost import alive_ordinals, multiplications, percentile, postings_curve
from lsr_prod.extras import contrib
from lsr_prod.indexing.tombstones import load_takedowns
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.search import Searcher
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import TOKENIZER_FILE
from lsr_prod.storage.formats.index_format import attribute_column
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod_contrib.diagnostics.unexplained import diagnose_vectors
from lsr_prod_contrib.diagnostics.vectors import TextTerms, dead_terms

_PUBLICATIONS = 50
_QUERIES = 100
_QUERY_TERMS = 8  # of a query that is made of a document
Sample = dict[int, npt.NDArray[np.int64]]
"""Ordinals of documents by number of the shard."""


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
        ``history`` (newest first), ``queries`` (postings that they read) and ``diagnosis`` (``diagnose_index``).
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
                "analyzer": version.analyzer,
                "average length": version.average_length,
                "query encoder": snapshot.card.query_encoder,
            },
            "bytes": _bytes(searcher),
            "shards": _shards(searcher),
            "tombstones": version.deleted,
            "takedowns": len(load_takedowns(store, version)),
            "history": [
                _publication(entry) for entry in contrib("publications").read_history(store, last=_PUBLICATIONS)
            ],
            "queries": {
                **_postings_read(snapshot, wanted),
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


def _postings_read(snapshot: Snapshot, queries: Sequence[SparseQuery]) -> dict[str, Any]:
    """Return the number of queries, and the postings of their terms: mean, median, 95th percentile."""
    read = multiplications([query.ids for query in queries], snapshot.document_frequencies).tolist()
    mean = sum(read) / len(read) if read else 0.0
    return {"queries": len(read), "mean": mean, "p50": percentile(read, 50), "p95": percentile(read, 95)}


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


def _publication(entry: Any) -> dict[str, Any]:
    publication, version = entry.publication, entry.version
    states = [name for name, there in (("current", entry.current), ("pinned", entry.pin is not None)) if there]
    forced = [f"gate {one.gate} overruled: {one.reason}" for one in publication.forced]
    return {
        "number": publication.number,
        "published_at": publication.published_at,
        "version": publication.version[:12],
        "state": ", ".join(states),
        "documents": version.documents if version else None,
        "bytes": contrib("publications").version_bytes(version) if version else None,
        "tombstones": version.deleted if version else None,
        "changed": entry.difference.sentence() if entry.difference else entry.problem,
        "by": publication.by,
        "why": "; ".join(text for text in (publication.note, *forced) if text),
    }


def diagnose_index(snapshot: Snapshot, *, sample: int, fields: Sequence[str] = ()) -> dict[str, Any]:
    """Return all figures of an open version, as plain values.

    Returns:
        ``documents``, ``terms``, ``postings`` and ``dead`` of the whole version, deleted documents included;
        ``sample`` and the keys of ``diagnose_vectors`` of the sample. ``missing`` says why a figure is None.
    """
    names, missing = snapshot.vocabulary.names, dict[str, str]()
    fields = fields or snapshot.version.text_fields
    snapshot.check_fields(fields)
    places = sample_documents(snapshot, sample)
    vectors = sample_vectors(snapshot, places)
    contained = None
    if not (snapshot.bundle / TOKENIZER_FILE).is_file():
        missing["expansion"] = "the bundle has no tokenizer, so the terms of a text are not known"
    elif fields:
        try:
            reader = TermReader.open(snapshot.bundle)
            contained = TextTerms.of(reader.documents(_texts(snapshot, places, fields)))
        except ConfigError as error:
            missing["expansion"] = error.problem
    else:
        missing["expansion"] = "the index stores no text; build it with index.text_fields, or name stored fields"
    return {
        "kind": "index",
        "version": snapshot.publication.version,
        "documents": snapshot.version.documents,
        "terms": len(names),
        "postings": asdict(postings_curve(snapshot.document_frequencies)),
        "dead": dead_terms(snapshot.document_frequencies, names),
        "sample": len(vectors),
        "fields": list(fields),
        **diagnose_vectors(vectors, contained, names),
        "missing": missing,
    }


def sample_documents(snapshot: Snapshot, count: int) -> Sample:
    """Return ordinals by shard of up to ``count`` documents that can be found, at equal distances."""
    alive = {number: alive_ordinals(reader) for number, reader in snapshot.readers.items()}
    total = sum(map(len, alive.values()))
    wanted = (
        np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64)) if total else np.zeros(0, np.int64)
    )
    places: Sample = {}
    before = 0
    for number, ordinals in alive.items():
        own = wanted[(wanted >= before) & (wanted < before + len(ordinals))] - before
        if len(own):
            places[number] = ordinals[own]
        before += len(ordinals)
    return places


def sample_vectors(snapshot: Snapshot, places: Sample) -> SparseBatch:
    """Return the vectors of some documents as they are in the postings, by shard and ordinal."""
    dk, step = snapshot.version.dk, snapshot.version.impact_step
    batches = []
    for number, ordinals in places.items():
        offsets, terms, impacts = snapshot.readers[number].shard.forward.gather(ordinals, dk)
        weights = (impacts * np.float64(step)).astype(np.float32)
        batches.append(SparseBatch(offsets, terms.astype(np.int32), weights))
    return SparseBatch.concatenate(batches)


def _texts(snapshot: Snapshot, places: Sample, fields: Sequence[str]) -> list[str]:
    typed = snapshot.version.attributes
    columns = {name: attribute_column(name) if name in typed else name for name in fields}
    found = []
    for number, ordinals in places.items():
        documents = snapshot.readers[number].shard.documents
        for ordinal in ordinals.tolist():
            values = documents.fields(ordinal, columns)
            found.append(" ".join(str(values[name]) for name in fields if values[name] is not None))
    return found
