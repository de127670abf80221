"""``Index``: texts encoded and indexed in one call, for notebooks and tests.

The rows, the shard and the version are those of the jobs, so an ``Index`` answers as the index that the jobs build. The
core wheel is enough: what this module imports needs neither torch nor Ray nor the extra ``jobs``.

Without a model, the output vocabulary is the words of the texts, which are ranked by BM25: a document has the BM25
saturation of each of its words as weight; queries are inference-free (``formats.sparse``). Words are runs of letters,
digits and underscores in lower case; they are not stemmed.
"""

import datetime as dt
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from lsr_prod.corpus.source_rows import as_string
from lsr_prod.encoding.tables import impact_scale, live_rows
from lsr_prod.errors import ConfigError
from lsr_prod.indexing import base_shard, index_plan
from lsr_prod.indexing.impacts.postings import average_length_of
from lsr_prod.inference import BundleEncoder
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.search import index_snapshot, searcher
from lsr_prod.search.query.filters import shorten
from lsr_prod.storage import Store, disk, drafts, folders, index_shards, publications
from lsr_prod.storage.formats import digests, sparse, table_format
from lsr_prod.storage.formats.bundle_format import (
    BUNDLE_FILE,
    CARD_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    Bundle,
    EncoderCard,
    digest_bundle,
)
from lsr_prod.storage.formats.index_format import Analyzer, IndexVersion, Publication
from lsr_prod.storage.formats.stored_values import (
    TYPE_NAMES,
    AttributeType,
    arrow_type,
    is_type,
    kind_of,
    parse_value,
    value_text,
    value_to_json,
)
from lsr_prod.storage.formats.term_weights import IMPACT_STEP, word_impacts

_TEXT = "text"
_BITS, _STORE_K = 8, 256  # defaults of encode.impact_bits and encode.store_k
_BATCH = 2048  # texts whose tokens are in memory at once
_MISSING = ("NAType", "NaTType")  # of pandas, which is not imported here
_UNKNOWN = "[UNK]"  # has the id 0; no document and no query has it
_MAX_QUERY_WORDS = 4096


class Index(searcher.Searcher):
    """A ``Searcher`` over texts, in a private temporary folder that ``close`` deletes.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["Locks and threads", "Parse a date"]) as index:
        ...     [hit.doc_id for hit in index.search("how do locks work").hits]
        ['0']
    """

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str] | Mapping[str, str],
        encoder: str | Path | None = None,
        *,
        fields: Mapping[str, Sequence[Any]] | None = None,
        attributes: Mapping[str, AttributeType] | None = None,
        bm25: bool = False,
        analyzer: Analyzer = "english",
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Encode texts and index them; the folder is about as large as the texts, the vectors and the bundle.

        Args:
            texts: text by id, or a list whose ids are "0", "1", and so on; stored as the field ``text``.
            encoder: folder or URI of the bundle, which ``lsr-prod export`` makes; None: no model, the words of the
                texts are the terms, and their scores are those of BM25.
            fields: values of further stored fields, in the order of the texts, and None where there is no value.
            attributes: type of the fields that filters can use (see ``source.types``), other fields are strings;
                default: all fields, with the type of their values.
            bm25: whether words have postings, for hybrid searches.
            analyzer: how texts become words for BM25 and filters, as ``index.analyzer``: a language, simple or bigrams.
            storage_options: options of the object store of the encoder.

        Raises:
            ConfigError: a text, an id or a value cannot be indexed.
            ArtifactError: the bundle is missing or damaged.
            MissingExtraError: ONNX Runtime is not installed.
        """
        if analyzer not in get_args(Analyzer):
            known = ", ".join(get_args(Analyzer))
            raise ConfigError("analyzer", f"{shorten(analyzer)} is none", f"choose from {known}")
        stored, typed = _checked_columns(texts, fields or {}, attributes)
        with ExitStack() as scratch:
            folder = scratch.enter_context(disk.scratch_folder(prefix="lsr_prod-index-"))
            vectors, source, bundle = _encode(folder, encoder, storage_options, stored)
            version = _build(folder, vectors, source, bundle, stored, typed, bm25, analyzer)
            publication = Publication(1, version.sha, dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
            publications.create_publication(folder, publication)  # another process can open the folder too
            index = cls(index_snapshot.Snapshot(folder, publication, verify=False), verify=False)
            index._folder = weakref.finalize(index, scratch.pop_all().close)
        return index

    _folder: "weakref.finalize[..., Index] | None" = None

    def refresh(self) -> bool:
        """Return False: the texts do not change."""
        _ = self.snapshot  # raises after close
        return False

    def close(self) -> None:
        """Delete the folder; a running query finishes unless it opens another file, later ones raise ``QueryError``."""
        super().close()
        if self._folder is not None:
            self._folder()


def write_word_bundle(folder: Path, texts: Sequence[str]) -> Bundle:
    """Write the bundle of the words of texts to an existing folder."""
    splitter = _tokenizer({_UNKNOWN: 0})
    vocabulary = [_UNKNOWN, *sorted({word for text in texts for word in _split(splitter, text)})]
    tokenizer = _tokenizer({word: number for number, word in enumerate(vocabulary)})
    tokenizer.add_special_tokens([_UNKNOWN])
    card = EncoderCard(
        "BM25",
        len(vocabulary),
        digests.digest_json(vocabulary),
        casing="lowercase",
        query_max_length=_MAX_QUERY_WORDS,
        query_encoder="idf",
    )
    drafts.write_file(folder / TOKENIZER_FILE, tokenizer.to_str().encode())
    drafts.write_file(folder / VOCABULARY_FILE, digests.record_bytes(vocabulary))
    drafts.write_file(folder / CARD_FILE, card.to_bytes())
    bundle = Bundle(files=digest_bundle(folder), precision="fp32", top_k=len(vocabulary), model_digest="", inputs=())
    drafts.write_file(folder / BUNDLE_FILE, bundle.to_bytes())
    return bundle


def encode_words(folder: Path, texts: Sequence[str]) -> sparse.SparseBatch:
    """Return the BM25 weights of the words of texts; ``folder`` is their bundle."""
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    lengths = [len(encoding.ids) for encoding in encodings]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    rows = []
    for encoding, length in zip(encodings, lengths, strict=True):
        terms, counts = np.unique(np.array(encoding.ids, np.int64), return_counts=True)
        weights = (word_impacts(counts, np.full(len(terms), length), average) * IMPACT_STEP).astype(np.float32)
        rows.append(sparse.SparseBatch.from_topk(terms[None], weights[None]))
    return sparse.SparseBatch.concatenate(rows)


def _checked_columns(
    texts: Any, fields: Mapping[str, Sequence[Any]], attributes: Mapping[str, AttributeType] | None
) -> tuple[dict[str, list[Any]], dict[str, AttributeType]]:
    """Return the columns of the index, ``doc_id`` and ``text`` first, and the types of its attributes."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence | Mapping):
        raise ConfigError("texts", f"{shorten(texts)} is no collection", "give a list of strings, or a text by id")
    by_id = texts if isinstance(texts, Mapping) else {str(number): text for number, text in enumerate(texts)}
    for doc_id in by_id:
        if not isinstance(doc_id, str) or not as_string("", doc_id)[0] or any(c < " " or c == "\x7f" for c in doc_id):
            raise ConfigError("texts", f"{shorten(doc_id)} is no id", "give valid strings without control characters")
    ids = list(by_id)
    columns: dict[str, list[Any]] = {"doc_id": ids}
    columns[_TEXT] = [_string("texts", doc_id, text, needed=True) for doc_id, text in by_id.items()]
    for name, values in fields.items():
        if name == _TEXT or not table_format.is_field_name(name):
            taken = ", ".join((_TEXT, *table_format.CORE_COLUMNS))
            raise ConfigError("fields", f"{shorten(name)} is no name", f"give a valid name without commas, not {taken}")
        if len(values) != len(ids):
            problem = f"has {len(values)} values for {len(ids)} documents"
            raise ConfigError(f"fields.{name}", problem, "give one per document")
        columns[name] = [None if type(value).__name__ in _MISSING else value for value in values]
    types = {name: _type_of(name, columns[name]) for name in fields} if attributes is None else dict(attributes)
    for name, kind in types.items():
        if not is_type(kind):
            raise ConfigError(f"attributes.{name}", f"{shorten(kind)} is no type", f"choose from {TYPE_NAMES}")
        if name not in columns or name == "doc_id":
            stored = ", ".join([*columns][1:])
            raise ConfigError("attributes", f"there is no field {name!r}", f"choose from {stored}")
    for name in fields:
        found = zip(ids, columns[name], strict=True)
        columns[name] = [_value(f"fields.{name}", doc_id, value, types.get(name)) for doc_id, value in found]
    return columns, dict(sorted(types.items()))


def _type_of(name: str, values: Sequence[Any]) -> AttributeType:
    try:
        kind = kind_of(pa.array(values).type)
    except (pa.ArrowException, OverflowError, TypeError, UnicodeError):  # also values of several types
        kind = None
    if kind is None:
        raise ConfigError(f"fields.{name}", "it has invalid or mixed values", f"give values of one type: {TYPE_NAMES}")
    return kind


def _value(field: str, doc_id: str, value: Any, kind: AttributeType | None) -> Any:
    """Return a value with the type of its attribute; None: the field is no attribute."""
    if kind == "strings" and isinstance(value, Sequence) and not isinstance(value, str):
        return [_string(field, doc_id, item, needed=True) for item in value]
    text = _string(field, doc_id, value if kind is None else value_text(value))
    if text is None or kind is None or kind == "string":
        return text
    try:
        return parse_value(text, kind)
    except ValueError as error:
        raise ConfigError(field, f"document {shorten(doc_id)}: {error}", "correct the value, or give None") from error


def _string(field: str, doc_id: str, value: Any, *, needed: bool = False) -> str | None:
    text, problem = as_string(field, value)
    if problem is not None or (needed and text is None):
        raise ConfigError(field, f"document {shorten(doc_id)} has {shorten(value)}", "give a valid string")
    return text


def _encode(
    scratch: Path,
    encoder: str | Path | None,
    storage_options: Mapping[str, str] | None,
    stored: Mapping[str, list[Any]],
) -> tuple[sparse.SparseBatch, Path, Bundle]:
    """Return the vectors of the texts, and the bundle that made them: its folder and its manifest."""
    texts = [text or "" for text in stored[_TEXT]]
    if encoder is None:
        folder = scratch / "words"
        bundle = write_word_bundle(folder, texts)
        return encode_words(folder, texts), folder, bundle
    source, bundle = folders.open_bundle(str(encoder), None if storage_options is None else dict(storage_options))
    running = BundleEncoder(source)
    parts = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
    found = sparse.SparseBatch.concatenate([running.encode(part, kind="document", top_k=_STORE_K) for part in parts])
    return found, source, bundle


def _build(
    index: Path,
    vectors: sparse.SparseBatch,
    source: Path,
    bundle: Bundle,
    stored: Mapping[str, list[Any]],
    attributes: Mapping[str, AttributeType],
    bm25: bool,
    analyzer: Analyzer,
) -> IndexVersion:
    """Write bundle, shard and version to the folder of an index."""
    card, texts = EncoderCard.load(source), [text or "" for text in stored[_TEXT]]
    index_shards.add_bundle(index, source)
    store_k = max(_STORE_K, int(np.diff(vectors.offsets).max(initial=0)))  # words of a text have no limit
    step = impact_scale.impact_scale(vectors.weights, _BITS, documents=len(texts)).step
    names, text_fields = tuple(name for name in stored if name != "doc_id"), (_TEXT,)
    layout = index_plan.ShardLayout(
        store_k,
        card.vocabulary_size,
        names,
        text_fields,
        tuple(attributes.items()),
        average_length_of(texts, analyzer) if bm25 else None,
        text_terms=TermReader.digest(source) if card.query_encoder == "idf" else None,
        analyzer=analyzer,
    )
    properties = table_format.TableProperties(
        bundle_digest=bundle.digest,
        vocabulary_sha256=card.vocabulary_sha256,
        vocabulary_size=card.vocabulary_size,
        impact_step=step,
        impact_bits=_BITS,
        store_k=store_k,
        buckets=1,
        stored_fields=names,
        stored_types={name: kind for name, kind in attributes.items() if kind != "string"},
    )
    values = {name: list(map(value_to_json, stored[name])) for name in ("doc_id", *names)}
    identity = digests.digest_json([bundle.digest, layout.identity(), values])
    plan = index_plan.ShardPlan(identity, Store(str(index)), 0, (0,), len(texts), layout, bundle=bundle.digest)
    built = base_shard.build_shard(plan, [_rows(properties, vectors, stored)], index)
    version = index_plan.version_of((built.manifest,), properties, layout, "memory", 0)
    Store(str(index)).put_new(f"versions/{version.sha}.json", digests.record_bytes(version.to_json()))
    return version


def _rows(
    properties: table_format.TableProperties, vectors: sparse.SparseBatch, stored: Mapping[str, list[Any]]
) -> pa.Table:
    """Return the documents as rows of a sparse table."""
    impacts, _ = table_format.quantize(vectors.weights, properties.impact_step, properties.impact_bits)
    kinds = properties.stored_types
    columns = {name: pa.array(values, arrow_type(kinds.get(name, "string"))) for name, values in stored.items()}
    hashes = pa.array([table_format.content_hash(text or "") for text in stored[_TEXT]], pa.large_string())
    postings = vectors.offsets, pa.array(vectors.terms), impacts
    ids = columns.pop("doc_id")
    return live_rows.build_rows(properties, ids, postings, hashes, pa.array(np.zeros(len(ids), np.int64)), columns)


def _tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, _UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True)
    return tokenizer


def _split(tokenizer: Tokenizer, text: str) -> list[str]:
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]
