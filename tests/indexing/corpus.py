"""Small corpora as tables and as indexes, for tests of indexing and search."""

import hashlib
import io
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lsr_prod.encoding.tables import create_table, write_part
from lsr_prod.indexing.base_shard import build_shard
from lsr_prod.indexing.index_plan import ShardLayout, ShardPlan
from lsr_prod.inference import BundleEncoder
from lsr_prod.inference.terms.analysis import words_of
from lsr_prod.search.shard.open_shard import OpenShard
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import (
    BUNDLE_FILE,
    CARD_FILE,
    VOCABULARY_FILE,
    Bundle,
    EncoderCard,
    digest_bundle,
)
from lsr_prod.storage.formats.digests import FileDigest, canonical_json, digest_json, record_bytes
from lsr_prod.storage.formats.index_format import Analyzer, IndexVersion, ShardManifest, Tombstones
from lsr_prod.storage.formats.stored_values import AttributeType
from lsr_prod.storage.formats.table_format import (
    TableProperties,
    bucket_of,
    content_hash,
    content_keys,
    quantize,
    sparse_schema,
)
from tests.indexing.publishing import publish

STEP = 0.03125
FIELDS = ("title", "text")


@dataclass(frozen=True, slots=True)
class Doc:
    """A document: impact by term id, heaviest first; its text; other stored fields."""

    terms: Mapping[int, int]
    text: str = ""
    stored: Mapping[str, str | None] = field(default_factory=dict)


def rows(corpus: Mapping[str, Doc], buckets: int, bucket: int | None = None, *, more: Sequence[str] = ()) -> pa.Table:
    """Return rows of the sparse table, of all buckets or of one; ``more`` are further stored fields."""
    chosen = [(i, d) for i, d in corpus.items() if bucket is None or bucket_of(i, buckets) == bucket]
    return pa.table(
        {
            "doc_id": [i for i, _ in chosen],
            "bucket": [bucket_of(i, buckets) for i, _ in chosen],
            "terms": [list(d.terms) for _, d in chosen],
            "impacts": [list(d.terms.values()) for _, d in chosen],
            "content_hash": [content_hash(d.text) for _, d in chosen],
            "content_key": content_keys(content_hash(d.text) for _, d in chosen),
            "source_file": [0 for _ in chosen],
            "title": [d.stored.get("title") for _, d in chosen],
            "text": [d.text for _, d in chosen],
            **{name: [d.stored.get(name) for _, d in chosen] for name in more},
        },
        schema=sparse_schema((*FIELDS, *more)),
    )


def make_bundle(folder: Path, vocabulary: Sequence[str]) -> Bundle:
    """Write a bundle without a graph, which is enough for an index when no text is encoded."""
    folder.mkdir(parents=True)
    terms = list(vocabulary)
    card = EncoderCard(architecture="None", vocabulary_size=len(terms), vocabulary_sha256=digest_json(terms))
    (folder / VOCABULARY_FILE).write_bytes(record_bytes(terms))
    (folder / CARD_FILE).write_bytes(card.to_bytes())
    bundle = Bundle(
        files=digest_bundle(folder), precision="fp32", top_k=64, model_digest="0" * 64, inputs=("input_ids",)
    )
    (folder / BUNDLE_FILE).write_bytes(bundle.to_bytes())
    return bundle


def make_table(
    folder: Path,
    corpus: Mapping[str, Doc],
    bundle: Path,
    *,
    buckets: int = 4,
    store_k: int = 64,
) -> str:
    """Write a sparse table."""
    properties = TableProperties(
        bundle_digest=Bundle.load(bundle).digest,
        vocabulary_sha256=EncoderCard.load(bundle).vocabulary_sha256,
        impact_step=STEP,
        impact_bits=8,
        store_k=store_k,
        buckets=buckets,
        stored_fields=FIELDS,
        vocabulary_size=EncoderCard.load(bundle).vocabulary_size,
    )
    store = Store(str(folder))
    table = create_table(store, sparse_schema(FIELDS), ["bucket"], properties.to_delta())
    some = {bucket: rows(corpus, buckets, bucket).drop(["bucket"]) for bucket in range(buckets)}
    adds = [
        (write_part(store, f"bucket={bucket}", part, "plan/0"), {"bucket": str(bucket)})
        for bucket, part in some.items()
        if part.num_rows
    ]
    table.commit(adds, [], app="corpus", version=0, epoch=1)
    return str(folder)


def make_index(
    index: Path,
    corpus: Mapping[str, Doc],
    *,
    vocabulary_size: int = 0,
    bundle: Path | None = None,
    shards: int = 1,
    dk: int = 64,
    deleted: Collection[str] = (),
    bm25: bool = False,
    attributes: Mapping[str, AttributeType] | None = None,
    step: float = STEP,
    analyzer: Analyzer = "english",
) -> IndexVersion:
    """Build and publish an index of the corpus, without Ray and without a table.

    Its bundle is ``bundle``, or one without a graph whose ``vocabulary_size`` terms are called t0, t1 and so on.
    """
    digest, card = _add_bundle(index, bundle, vocabulary_size)
    average = mean_words(corpus, analyzer) if bm25 else None
    typed = dict(sorted((attributes or {}).items()))
    stored = (*FIELDS, *typed)
    layout = ShardLayout(dk, card.vocabulary_size, stored, ("text",), tuple(typed.items()), average, analyzer=analyzer)
    built = []
    for shard in range(shards):
        table = rows(corpus, shards, shard, more=tuple(typed))
        identity = [digest, shard, shards, dk, typed, average, analyzer, table.to_pylist()]
        plan = ShardPlan(digest_json(identity), Store("memory"), 0, (shard,), table.num_rows, layout)
        half = table.num_rows // 2
        built.append(build_shard(plan, [table.slice(half), table.slice(0, half)], index).manifest)
    version = IndexVersion(
        tuple(built), digest, card.vocabulary_sha256, step, dk, "memory", 0, stored, ("text",), typed
    )
    version = replace(version, average_length=average, analyzer=analyzer)
    if deleted:
        version = replace(version, tombstones=tuple(bury(index, shard, deleted) for shard in built))
    Store(str(index)).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()))
    publish(index, version.sha)
    return version


def mean_words(corpus: Mapping[str, Doc], analyzer: Analyzer = "english") -> float:
    """Return the average number of words per document; 1 if there are none."""
    return sum(len(words_of(doc.text, analyzer)) for doc in corpus.values()) / max(1, len(corpus)) or 1.0


def bury(index: Path, shard: ShardManifest, deleted: Collection[str]) -> Tombstones | None:
    """Write tombstones for the documents of a shard that are in ``deleted``."""
    opened = OpenShard(index / "shards" / shard.sha, shard, lazy=False)
    ordinals = [o for o in range(shard.documents) if opened.documents.doc_id(o) in deleted]
    if not ordinals:
        return None
    data = io.BytesIO()
    np.save(data, np.array(ordinals, np.uint32))
    sha = hashlib.sha256(data.getvalue()).hexdigest()
    Store(str(index)).put_new(f"tombstones/{sha}.npy", data.getvalue())
    return Tombstones(FileDigest(f"tombstones/{sha}.npy", sha, len(data.getvalue())), len(ordinals))


def _add_bundle(index: Path, bundle: Path | None, vocabulary_size: int) -> tuple[str, EncoderCard]:
    with tempfile.TemporaryDirectory() as scratch:
        source = bundle or Path(scratch) / "bundle"
        if bundle is None:
            make_bundle(source, [f"t{i}" for i in range(vocabulary_size)])
        digest = Bundle.load(source).digest
        if not (index / "bundles" / digest).exists():  # readers may have it open
            shutil.copytree(source, index / "bundles" / digest)
        return digest, EncoderCard.load(source)


def encode_corpus(bundle: Path, texts: Mapping[str, str], *, step: float = STEP, top_k: int = 64) -> dict[str, Doc]:
    """Encode texts with the encoder of a bundle and quantize the weights."""
    batch = BundleEncoder(bundle).encode(list(texts.values()), kind="document", top_k=top_k)
    corpus = {}
    for i, (doc_id, text) in enumerate(texts.items()):
        terms, weights = batch.row(i)
        corpus[doc_id] = Doc(dict(zip(terms.tolist(), quantize(weights, step)[0].tolist(), strict=True)), text)
    return corpus
