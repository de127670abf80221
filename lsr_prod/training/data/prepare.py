"""Training data is read, validated and tokenized once, by tasks of Ray, into a training set named by its digest.

The parts depend on the pins of the sources alone. One task writes a part and then its receipt, so that an interrupted
preparation resumes with the missing parts. The record that names all parts is written last.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray

from lsr_prod import errors, logs
from lsr_prod.cluster import tasks, workers
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus import pinned_file, read
from lsr_prod.storage import Store, artifacts, folders, transfer
from lsr_prod.storage.formats.digests import FileDigest, canonical_json, digest_json, record_bytes
from lsr_prod.training.data import known_positives, layouts, schemas, training_set
from lsr_prod.training.data.parts import PartMaker, quarantine_name, receipts_name
from lsr_prod.training.data.training_rows import check_bad_rows, cut_data, pin_files

log = logs.get_log(__name__)

_PART_BYTES = 16_000_000  # source bytes of a part, about
_MOST_PARTS = 256  # about; every part of a set is an open file in every training worker


@dataclass(frozen=True, slots=True)
class TrainingSetSummary:
    """A prepared training set."""

    digest: str  # names the set in the work store
    rows: int  # good rows
    quarantined: dict[str, int]  # bad rows by reason
    quarantine: str  # folder or URI of the bad rows, JSONL
    queries: int  # different queries
    positives: int  # different positives


def prepare_training_set(
    data: TrainingDataSettings,
    *,
    model: Path,
    query_max_length: int | None,
    document_max_length: int | None,
    store: Store,
    options: dict[str, str],
    needs_negative: bool = False,
    layout: layouts.Layout | None = None,
) -> TrainingSetSummary:
    """Prepare the training set of these settings unless it exists. Needs a Ray session.

    Rows are in the order of the source files and of the rows in them. Bad rows go into the quarantine.
    """
    if needs_negative and data.kind in ("pairs", "texts"):
        raise errors.ConfigError("data.kind", f"rows of kind {data.kind} have no negatives", "give rows with negatives")
    store = Store(folders.absolute(store.uri), store.options)
    files = pin_files(data, options)
    tokens = layouts.TokenSettings.of_model(
        model, query_max_length=query_max_length, document_max_length=document_max_length, plain=data.kind == "texts"
    )
    made_from = _made_from(files, data, tokens, layout, needs_negative=needs_negative)
    maker = PartMaker(data, tokens, needs_negative, digest_json(made_from), store, options, layout)
    record = _finished(store, maker.digest)
    if record is None:
        schemas.check_schemas(files, data, options)
        read.require_source_on_nodes(files, field="data.paths")
        limit = _part_bytes(files)
        groups = workers.group_by_size(list(cut_data(files, data, limit, options)), lambda piece: piece.size, limit)
        parts = _make_parts(maker, list(groups))
        _check_rows(training_set.SetRecord(made_from, parts), data, store)
        record = training_set.SetRecord(made_from, parts, _key_ranges(store, maker.digest, parts))
        _seal(store, record)
        record = _finished(store, maker.digest)
        assert record is not None
    _check_rows(record, data, store)
    summary = _summary(record, store)
    log.info("training set", extra={"fields": {**asdict(summary), "parts": len(record.parts)}})
    return summary


def _made_from(
    files: Sequence[pinned_file.SourceFile],
    data: TrainingDataSettings,
    tokens: layouts.TokenSettings,
    layout: layouts.Layout | None,
    *,
    needs_negative: bool,
) -> dict[str, Any]:
    pins = hashlib.sha256()
    for file in files:
        pins.update(record_bytes(file.identity()))
    made_from = {
        "format": training_set.SET_FORMAT,
        "part_bytes": _part_bytes(files),
        "files": len(files),
        "pins": pins.hexdigest(),
        "kind": data.kind,
        "columns": {field: data.column(field) for field in data.fields},
        "max_text_bytes": data.max_text_bytes,
        "needs_negative": needs_negative and data.kind != "pairs",
        "tokenizer": hashlib.sha256(tokens.tokenizer.encode()).hexdigest(),
        "query": None if data.kind == "texts" else asdict(tokens.query),
        "document": asdict(tokens.document),
    }
    if tokens.query_tokenizer is not None:
        made_from["query_tokenizer"] = hashlib.sha256(tokens.query_tokenizer.encode()).hexdigest()
    if layout is not None:
        made_from["layout"] = layout.to_json()
    return made_from


def _part_bytes(files: Sequence[pinned_file.SourceFile]) -> int:
    return max(_PART_BYTES, sum(file.size for file in files) // _MOST_PARTS)


def _make_parts(
    maker: PartMaker, groups: Sequence[Sequence[pinned_file.Slice]]
) -> tuple[training_set.TrainingPart, ...]:
    """Return every part of the set; parts with a receipt are not made again."""
    done = _receipts(maker.store, maker.digest)
    todo = [number for number in range(len(groups)) if number not in done]
    fields = {"digest": maker.digest, "parts": len(groups), "missing": len(todo)}
    log.info("preparing training set", extra={"fields": fields})
    held = ray.put(maker)
    calls = [(held, number, groups[number]) for number in todo]
    made = tasks.run_tasks(PartMaker.make, calls, task="reading training data")
    done |= {todo[call]: part for call, part in made}
    return tuple(done[number] for number in range(len(groups)))


def _key_ranges(
    store: Store, digest: str, parts: Sequence[training_set.TrainingPart]
) -> tuple[known_positives.KeyRange, ...]:
    """Write the known positives of the set, by one task per range of keys."""
    folder, files = store.child(training_set.set_name(digest)), [part.file for part in parts if part.file is not None]
    ranges = known_positives.key_ranges(sum(sum(part.batches) for part in parts))
    calls = [(folder, files, first, last) for first, last in ranges]
    done = dict(tasks.run_tasks(known_positives.write_key_range, calls, task="collecting the positives of queries"))
    return tuple(done[number] for number in range(len(ranges)))


def _receipts(store: Store, digest: str) -> dict[int, training_set.TrainingPart]:
    """Return the finished parts by number; delete the receipt of a part whose file is missing."""
    folder, files = store.child(receipts_name(digest)), store.child(training_set.set_name(digest))
    sizes = transfer.stored_sizes(files)
    found: dict[int, training_set.TrainingPart] = {}
    for name in folder.names():
        if name.endswith(".json") and (receipt := folder.get(name)) is not None:
            part = training_set.TrainingPart.from_json(json.loads(receipt))
            if part.file is None or sizes.get(transfer.object_name(files, part.file)) == part.file.size:
                found[int(name.removesuffix(".json"))] = part
            else:
                folder.delete(name)
    return found


def _seal(store: Store, record: training_set.SetRecord) -> None:
    """Write ``set.json``, then the manifest of the folder, which makes the set complete."""
    folder, data = store.child(training_set.set_name(record.digest)), canonical_json(record.to_json())
    file = FileDigest(training_set.SET_FILE, hashlib.sha256(data).hexdigest(), len(data))
    folder.put_new(transfer.object_name(folder, file), data)
    described: list[training_set.TrainingPart | known_positives.KeyRange] = [*record.parts, *record.keys]
    files = [file, *(one.file for one in described if one.file is not None)]
    artifacts.put_manifest(store, training_set.set_name(record.digest), sorted(files, key=lambda file: file.path))


def _finished(store: Store, digest: str) -> training_set.SetRecord | None:
    """Return the record of a complete set."""
    if not artifacts.has_artifact(store, training_set.set_name(digest)):
        return None
    data = artifacts.read_artifact_file(store, training_set.set_name(digest), training_set.SET_FILE)
    return None if data is None else training_set.SetRecord.from_json(json.loads(data))


def _check_rows(record: training_set.SetRecord, data: TrainingDataSettings, store: Store) -> None:
    summary = _summary(record, store)
    rows = sum(part.good for part in record.parts) + sum(summary.quarantined.values())
    check_bad_rows(rows, summary.quarantined, data, folder=summary.quarantine)
    if not summary.rows:
        raise errors.ConfigError("data.paths", f"{', '.join(data.paths)} has no good row", "give data that has rows")


def _summary(record: training_set.SetRecord, store: Store) -> TrainingSetSummary:
    quarantined = sum((Counter(part.quarantined) for part in record.parts), Counter[str]())
    return TrainingSetSummary(
        digest=record.digest,
        rows=sum(sum(part.batches) for part in record.parts),
        quarantined=dict(sorted(quarantined.items())),
        quarantine=store.child(quarantine_name(record.digest)).location,
        queries=sum(one.queries for one in record.keys),
        positives=sum(one.positives for one in record.keys),
    )
