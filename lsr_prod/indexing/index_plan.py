"""Plan an index job: check every input before anything is written, and assign buckets to shards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsr_prod.encoding.tables.live_rows import files_of_buckets, to_files, total_live_rows
from lsr_prod.errors import ArtifactError, ConfigError, LineageError, PublicationError
from lsr_prod.indexing.impacts.postings import average_length
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.storage import Store, folders, index_versions, publications, require_exists
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.index_format import INDEX_FORMAT, Analyzer, IndexVersion, ShardManifest, ShardRole
from lsr_prod.storage.formats.stored_values import AttributeType, arrow_type, kind_of, parse_value
from lsr_prod.storage.formats.table_format import TableProperties

if TYPE_CHECKING:
    from lsr_prod.config import Deployment, IndexSettings
    from lsr_prod.encoding.tables import Table

_DRIFT = 0.1  # relative change of the average length that hardly changes a score


def attributes_of(settings: "IndexSettings", properties: TableProperties) -> dict[str, AttributeType]:
    """Return the attributes of an index and their types."""
    types = {name: properties.stored_types.get(name, "string") for name in properties.stored_fields}
    if settings.attributes is None:
        return {name: kind for name, kind in types.items() if name not in settings.text_fields}
    for name, kind in settings.attributes.items():
        if name not in types:
            stored = ", ".join(types) or "none"
            problem = f"the table does not store {name!r}"
            raise ConfigError("index.attributes", problem, f"choose from its stored fields: {stored}")
        if types[name] not in ("string", kind):
            problem = f"the table has it as {types[name]}, not {kind}"
            raise ConfigError(f"index.attributes.{name}", problem, "give that type")
    # A column of texts cannot hold lists.
    return {**{name: kind for name, kind in types.items() if kind == "strings"}, **settings.attributes}


def parse_attributes(rows: pa.Table, attributes: Mapping[str, AttributeType]) -> tuple[list[pa.Array], dict[str, int]]:
    """Return the attributes of rows; texts of the table are parsed with ``parse_value``.

    Missing values are null, and so are empty texts. Texts that cannot be parsed become null and are counted.

    Returns:
        One array [rows] per attribute, in the order of ``attributes``; and the number of values that could not be
        parsed, by attribute, without zeros.
    """
    columns, unreadable = [], {}
    for name, kind in attributes.items():
        if kind == "string" or kind_of(rows[name].type) != "string":
            columns.append(rows[name].combine_chunks().cast(arrow_type(kind)))
            continue
        values = list(_values(rows[name].to_pylist(), kind))
        columns.append(pa.array((value for value, _ in values), arrow_type(kind), size=len(values)))
        if bad := sum(not readable for _, readable in values):
            unreadable[name] = bad
    return columns, unreadable


def _values(texts: Sequence[str | None], kind: AttributeType) -> Iterator[tuple[Any, bool]]:
    for text in texts:
        if text is None or not text.strip():
            yield None, True
            continue
        try:
            value = parse_value(text, kind)
            yield [value] if kind == "strings" else value, True
        except ValueError:
            yield None, False


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """Settings that, together with its rows, determine the bytes of a shard."""

    dk: int  # heaviest terms of a document that have postings
    vocabulary_size: int  # V; every term id is smaller
    stored_fields: tuple[str, ...]  # columns of ``docs.arrow`` besides ``doc_id``
    text_fields: tuple[str, ...]  # stored fields that are joined into Tantivy's text
    attributes: tuple[tuple[str, AttributeType], ...] = ()  # name and type of the stored fields that become attributes
    average_length: float | None = None  # average words per document, for BM25 impacts; None: words have no postings
    # digest of the rules that find output terms in texts; None: the terms of texts are not counted
    text_terms: str | None = None
    analyzer: Analyzer = "english"  # splits texts into words

    def identity(self) -> dict[str, Any]:
        """Return the values that the names of shards are derived from; unused options do not change a name."""
        return {name: value for name, value in asdict(self).items() if name != "text_terms" or value is not None}


def version_of(
    shards: tuple[ShardManifest, ...], properties: TableProperties, layout: ShardLayout, table_uri: str, version: int
) -> IndexVersion:
    """Return the version of shards that hold all rows of a table, with nothing hidden."""
    return IndexVersion(
        shards,
        properties.bundle_digest,
        properties.vocabulary_sha256,
        properties.impact_step,
        layout.dk,
        table_uri,
        version,
        layout.stored_fields,
        layout.text_fields,
        dict(layout.attributes),
        average_length=layout.average_length,
        analyzer=layout.analyzer,
    )


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Input and name of one shard."""

    sha: str  # sha256 of the layout and of the names and sizes of the parts, so that equal shards are never built twice
    table: Store  # the sparse table's folder
    table_version: int  # pinned version
    buckets: tuple[int, ...]  # buckets of the table that this shard holds
    documents: int  # rows of the shard
    layout: ShardLayout  # see ``ShardLayout``
    role: ShardRole = "base"  # ``base``: all rows of the buckets; ``delta``: chosen rows
    # digest of the bundle in the index that finds the terms of texts; None: they are not counted
    bundle: str | None = None


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Input of an index version."""

    shards: tuple[ShardPlan, ...]  # base shards, for a version that is built from scratch
    bundle: Path  # folder of the bundle on this machine
    properties: TableProperties  # properties of the table
    layout: ShardLayout  # layout of every shard
    snapshot: "Table"  # the table at the pinned version
    table_parts: str  # sha256 of the names and sizes of all parts of the snapshot; equal digests mean equal rows

    @property
    def layout_digest(self) -> str:
        """Digest of the layout and of the number of base shards."""
        return digest_json({"layout": self.layout.identity(), "shards": len(self.shards)})

    @property
    def documents(self) -> int:
        """Number of rows of the table."""
        return sum(shard.documents for shard in self.shards)


def plan_index(deployment: "Deployment") -> IndexPlan:
    """Check the inputs and assign buckets to shards: shard i gets every bucket b with b % shards == i."""
    settings = deployment.index
    assert settings is not None  # the job demanded the section
    folders.refuse_file("index.output", settings.output)
    index = Store(folders.absolute(settings.output), deployment.storage.options)
    if not folders.folder_exists(settings.bundle, deployment.storage.options):
        raise ConfigError("index.bundle", f"there is no bundle at {settings.bundle}", "give a path or URI that exists")
    folder, bundle = folders.open_bundle(settings.bundle, deployment.storage.options)
    card = EncoderCard.load(folder)
    require_exists("index.table", settings.table, deployment.storage.options)
    table = _open(Store(folders.absolute(settings.table), deployment.storage.options), settings.table_version)
    properties = table.sparse_properties
    if properties.bundle_digest != bundle.digest or properties.vocabulary_sha256 != card.vocabulary_sha256:
        raise LineageError(
            f"the table was made by bundle {properties.bundle_digest[:12]}, index.bundle is {bundle.digest[:12]}; "
            "set index.bundle to the bundle that made it, or encode the corpus again"
        )
    _check_fit(settings, properties, card)
    layout = ShardLayout(
        settings.dk or properties.store_k,
        card.vocabulary_size,
        properties.stored_fields,
        tuple(settings.text_fields),
        tuple(sorted(attributes_of(settings, properties).items())),
        _average_length(table, settings, index) if settings.bm25 else None,
        TermReader.digest(folder) if card.query_encoder == "idf" else None,
        settings.analyzer,
    )
    shards = tuple(
        _plan_shard(table, range(shard, properties.buckets, settings.shards), layout, bundle.digest)
        for shard in range(settings.shards)
    )
    return IndexPlan(shards, folder, properties, layout, table, digest_parts(table))


def digest_parts(table: "Table") -> str:
    """Return the sha256 of the names and sizes of all parts of a snapshot, and of which of their rows are deleted.

    Parts are named by their content, and deletion vectors too.
    """
    return digest_json(_identities(table.file_table()))


def _check_fit(settings: "IndexSettings", properties: TableProperties, card: EncoderCard) -> None:
    if properties.impact_bits > 8:
        problem = f"its impacts have {properties.impact_bits} bits, but an index supports at most 8"
        raise ConfigError("index.table", problem, "encode the corpus again with encode.impact_bits 8 or 4")
    if settings.shards > properties.buckets:
        problem = f"{settings.shards} is more than the table has buckets"
        raise ConfigError("index.shards", problem, f"set at most {properties.buckets}")
    if settings.dk is not None and settings.dk > properties.store_k:
        remedy = f"set at most {properties.store_k}, or encode the corpus again with a larger encode.store_k"
        raise ConfigError("index.dk", f"{settings.dk} is more than the table stores per document", remedy)
    attributes_of(settings, properties)
    if settings.bm25 and not settings.text_fields:
        raise ConfigError("index.bm25", "there are no text fields", "set index.text_fields, or set it to false")
    for name in settings.text_fields:
        if name not in properties.stored_fields or name in properties.stored_types:
            stored = ", ".join(one for one in properties.stored_fields if one not in properties.stored_types) or "none"
            problem = f"the table does not store {name!r} as text"
            raise ConfigError("index.text_fields", problem, f"choose from its stored texts: {stored}")
    if card.query_encoder == "idf" and not settings.text_fields:
        problem = "there are none, but queries of this bundle are weighted by the document frequency of terms in texts"
        remedy = "name the stored fields that were encoded; if there are none, encode again with source.stored_fields"
        raise ConfigError("index.text_fields", problem, remedy)


def _average_length(table: "Table", settings: "IndexSettings", index: Store) -> float:
    """Return the published version's average length unless the table drifted: a new value changes every shard."""
    found = average_length(table, settings.text_fields, settings.analyzer)
    try:
        version = index_versions.read_version(index, publications.current_publication(index).version)
    except (PublicationError, ArtifactError):  # no published version, or none that can be read
        return found
    kept, same = version.average_length, (tuple(settings.text_fields), settings.analyzer)
    if kept is None or (version.text_fields, version.analyzer) != same or abs(found - kept) > _DRIFT * kept:
        return found
    return kept


def _open(store: Store, version: int | None) -> "Table":
    from lsr_prod.encoding.tables import open_table

    newest = open_table(store)
    if newest is None:
        problem = f"{store.uri} is not a sparse table"
        raise ConfigError("index.table", problem, "name a table that lsr-prod encode wrote")
    if version is None:
        return newest
    if version > newest.version:
        raise ConfigError("index.table_version", f"the table has no version {version}", f"set at most {newest.version}")
    pinned = open_table(store, version)
    assert pinned is not None
    return pinned


def _identities(files: pa.Table) -> list[list[Any]]:
    """Return path and size of each part; where rows are deleted, also what distinguishes their deletion vector."""
    with_deletions = to_files(files.filter(files["deleted"].is_valid()))
    vectors = {file.path: [file.deleted.unique_id] for file in with_deletions if file.deleted}
    named = zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True)
    return [[path, size, *vectors.get(path, ())] for path, size in named]


def _plan_shard(table: "Table", buckets: Sequence[int], layout: ShardLayout, bundle: str) -> ShardPlan:
    mine = files_of_buckets(table.file_table(), buckets)
    if mine["rows"].null_count:
        raise ArtifactError(f"{table.store.uri} has parts without a row count; encode the corpus again")
    identity = {
        "format": INDEX_FORMAT,
        "buckets": list(buckets),
        "parts": _identities(mine),
        "layout": layout.identity(),
    }
    rows = total_live_rows(mine)
    return ShardPlan(digest_json(identity), table.store, table.version, tuple(buckets), rows, layout, bundle=bundle)
