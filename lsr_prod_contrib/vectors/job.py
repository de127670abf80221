"""The vectors job: check all settings, then import as one commit, or export as one file or one folder."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.config.section import quarantine_uri
from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.encoding.tables import Table, load_table, open_table
from lsr_prod.encoding.tables.live_rows import total_live_rows
from lsr_prod.encoding.tables.sparse_table import finished_table
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.storage import Store, is_remote, require_exists, store_digest
from lsr_prod.storage.folders import absolute, open_bundle, refuse_file
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.table_format import CORE_COLUMNS, TableProperties
from lsr_prod_contrib.vectors.read import VectorFile, find_vector_files, read_vectors
from lsr_prod_contrib.vectors.table_export import EXPORTS, ExportSummary, TableVectors, export_parquet, ids_path
from lsr_prod_contrib.vectors.table_import import (
    FinishedImport,
    ImportQuarantine,
    ImportSummary,
    Source,
    import_vectors,
)
from lsr_prod_contrib.vectors.vector import Rules, Vocabulary

IMPORT_FORMAT = 1


def move_vectors(deployment: Deployment) -> Mapping[str, Any]:
    """Import or export vectors. A finished import is not repeated; an interrupted one starts again.

    Returns:
        The flat summary of the import or export.
    """
    settings = deployment.vectors
    assert settings is not None  # the job requires the section
    options = deployment.storage.options
    try:
        vocabulary = Vocabulary.load(open_bundle(settings.bundle, options)[0])
    except ArtifactError as error:
        remedy = "give the folder or URI that lsr-prod export wrote"
        raise ConfigError("vectors.bundle", str(error), remedy) from error
    store = Store(absolute(settings.table), options)
    if settings.action == "import":
        return asdict(_import(settings, store, vocabulary))
    return asdict(_export(settings, store, vocabulary))


def _import(settings: VectorsSettings, store: Store, vocabulary: Vocabulary) -> ImportSummary | FinishedImport:
    started = time.monotonic()
    quarantine = Store(absolute(quarantine_uri(settings.quarantine, store.uri)), store.options)
    refuse_file("vectors.quarantine", quarantine.uri, "give a folder")
    _check_contents(settings)
    if not settings.paths:
        raise ConfigError("vectors.paths", "an import needs files", "add --vectors.paths VALUE")
    if settings.format == "parquet":
        raise ConfigError("vectors.format", "parquet is written only", "import jsonl, tsv, npz, ciff or csr")
    files = find_vector_files(settings.paths, settings.format, store.options, field="vectors.paths")
    tags = [_tag(file) for file in files]
    plan = _plan(settings, vocabulary, files, tags)
    if (done := finished_table("vectors.table", store, plan)) is not None:
        return _finished(done, plan)
    rules = Rules(
        vocabulary,
        drop_unknown=settings.unknown_terms == "drop",
        largest_impact=(1 << settings.impact_bits) - 1 if settings.quantized else None,
    )
    sources = [
        Source(file.location, int.from_bytes(bytes.fromhex(tag)[:8], "big", signed=True), read_vectors(file, rules))
        for file, tag in zip(files, tags, strict=True)
    ]
    refused = {"unknown_term": settings.unknown_terms, "bad_weight": settings.bad_weights}
    bad = ImportQuarantine(quarantine, plan, [reason for reason, what in refused.items() if what == "refuse"])
    imported = import_vectors(sources, store, vocabulary, settings, bad, plan)
    seconds, reasons = time.monotonic() - started, bad.reasons
    return ImportSummary(
        files=len(files),
        rows_in=imported.read + reasons.total() - reasons["duplicate_id"],
        documents=imported.documents,
        quarantined=reasons.total(),
        quarantined_by_reason={reason: count for reason, count in sorted(reasons.items()) if count},
        unknown_terms_dropped=imported.unknown,
        postings=imported.postings,
        clipped=imported.clipped,
        impact_step=imported.properties.impact_step,
        impact_error=imported.properties.impact_error,
        store_k=imported.properties.store_k,
        seconds=seconds,
        docs_per_s=imported.documents / seconds,
        table=store.uri,
        quarantine=quarantine.uri,
        plan=plan,
    )


def _finished(table: Table, plan: str) -> FinishedImport:
    properties = table.sparse_properties
    documents = total_live_rows(table.file_table())
    return FinishedImport(
        documents=documents,
        impact_step=properties.impact_step,
        store_k=properties.store_k,
        table=table.store.uri,
        plan=plan,
    )


def _check_contents(settings: VectorsSettings) -> None:
    name = settings.contents
    if name is not None and (name in CORE_COLUMNS or "," in name):
        raise ConfigError(
            "vectors.contents",
            f"{name!r} cannot be a stored field",
            f"give a name without a comma that is none of {', '.join(CORE_COLUMNS)}",
        )


def _tag(file: VectorFile) -> str:
    """Return the sha256 of the digests of a file and of its ids."""
    names = [name for name in (file.entry.name, file.ids) if name is not None]
    identity = []
    for name in names:
        entry = file.store.entry(name)
        if entry is None:
            raise ConfigError("vectors.paths", f"{file.store.uri}/{name} was deleted while it was listed", "run again")
        identity.append([entry.size, entry.etag or store_digest(file.store, name)])
    return digest_json(identity)


def _plan(settings: VectorsSettings, vocabulary: Vocabulary, files: Sequence[VectorFile], tags: Sequence[str]) -> str:
    names = {"format", "buckets", "impact_bits", "impact_step", "quantized", "store_k", "contents"}
    document = settings.model_dump(mode="json", include={*names, "unknown_terms", "bad_weights"})
    return digest_json(
        {
            "import": IMPORT_FORMAT,
            "settings": document,
            "bundle": vocabulary.bundle_digest,
            "files": [[file.entry.name, tag] for file, tag in zip(files, tags, strict=True)],
        }
    )


def _export(settings: VectorsSettings, store: Store, vocabulary: Vocabulary) -> ExportSummary:
    started = time.monotonic()
    output = _output_folder(settings, store) if settings.format == "parquet" else _output_path(settings)
    table = _snapshot(settings, store)
    contents = settings.contents if settings.format == "jsonl" else None
    vectors = TableVectors.open(table, vocabulary, floats=settings.weights == "floats", contents=contents)
    if isinstance(output, Store):
        _check_columns(settings, vectors.properties)
        documents, postings = export_parquet(vectors, output, settings.partition_by)
        size, place = sum(entry.size for entry in output.entries()), output.uri
    else:
        documents, postings = EXPORTS[settings.format](vectors, output)
        size, place = output.stat().st_size, str(output)
    seconds = time.monotonic() - started
    return ExportSummary(
        documents=documents,
        postings=postings,
        bytes=size,
        impact_step=vectors.properties.impact_step,
        seconds=seconds,
        docs_per_s=documents / seconds,
        table=store.uri,
        table_version=table.version,
        output=place,
    )


def _snapshot(settings: VectorsSettings, store: Store) -> Table:
    """Return the version of the table to export."""
    require_exists("vectors.table", store.uri, store.options)
    table = open_table(store)
    if table is None:
        raise ConfigError("vectors.table", f"{store.uri} is not a sparse table", "give what lsr-prod encode wrote")
    if settings.table_version is None:
        return table
    if settings.table_version > table.version:
        raise ConfigError(
            "vectors.table_version",
            f"the table has no version {settings.table_version}",
            f"give a version up to {table.version}",
        )
    return load_table(store, settings.table_version)


def _output_folder(settings: VectorsSettings, table: Store) -> Store:
    if settings.output is None:
        raise ConfigError("vectors.output", "an export needs a folder", "add --vectors.output VALUE")
    output = Store(absolute(settings.output), table.options)
    if names := output.names():
        raise ConfigError(
            "vectors.output", f"{output.uri} contains {names[0]}", "give a new folder, or delete what it contains"
        )
    return output


def _check_columns(settings: VectorsSettings, properties: TableProperties) -> None:
    stored, types = properties.stored_fields, properties.stored_types
    columns, known = settings.partition_by, ["bucket", *(name for name in stored if types.get(name) != "strings")]
    if settings.weights == "floats" and "weights" in stored:
        raise ConfigError("vectors.weights", "a stored field of the table is named weights", "export impacts")
    for name in columns:
        if name not in known or columns.count(name) > 1:
            raise ConfigError(
                "vectors.partition_by",
                f"{name!r} cannot partition the rows",
                f"give each column once, of {', '.join(known)}",
            )


def _output_path(settings: VectorsSettings) -> Path:
    endings = {"jsonl": (".jsonl", ".jsonl.gz"), "npz": (".npz",), "ciff": (".ciff", ".ciff.gz")}.get(settings.format)
    if endings is None:
        raise ConfigError("vectors.format", f"{settings.format} is read only", "export jsonl, npz, ciff or parquet")
    if settings.format == "ciff" and settings.weights == "floats":
        raise ConfigError("vectors.weights", "CIFF has integers only", "export impacts")
    if settings.output is None:
        raise ConfigError("vectors.output", "an export needs a file", "add --vectors.output VALUE")
    if is_remote(settings.output) or not settings.output.endswith(endings):
        raise ConfigError(
            "vectors.output", f"{settings.output} is not a local {' or '.join(endings)} file", "give such a file"
        )
    path = Path(settings.output).absolute()
    for taken in [path, *([ids_path(path)] if settings.format == "npz" else [])]:
        if taken.exists():
            raise ConfigError("vectors.output", f"{taken} exists already", "give a new file, or delete it")
    return path
