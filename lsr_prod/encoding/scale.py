"""The impact scale of a table with few documents: chosen again by the plans that bring more.

The first plan chooses the scale from a probe of its documents. If it has fewer than ``encode.probe_documents``, later
documents may have heavier weights, which would be clipped. So every following plan chooses the scale again, before its
first wave, as long as the table has fewer documents than that. The committed documents are adapted in the same commit:
their weights are impacts times the old step, and are rounded to the new step, which is never smaller. A table without
documents only gets the new step.

Exactly once: the commit names the plan in a property, and a plan whose name is there already keeps the scale. It is
made after the fence of the attempt, so no attempt encodes with another step than the table has at its first wave.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lsr_prod.config import EncodeSettings
from lsr_prod.corpus.pinned_file import Slice, check_pinned
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding.cells.cell import encode_batches
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE
from lsr_prod.encoding.plans.encode_plan import Plan
from lsr_prod.encoding.tables import Part, Table, TableFile, live_rows, read_part, write_part
from lsr_prod.encoding.tables.impact_scale import ImpactScale, impact_scale
from lsr_prod.logs import get_log
from lsr_prod.storage import in_threads
from lsr_prod.storage.formats.table_format import TableProperties, quantize

log = get_log(__name__)
SCALE_PROPERTY = "lsr_prod.scale_plan"
"""Table property with the digest of the plan that chose the scale; absent: the first plan did."""
Probe = Callable[[float], ImpactScale]
"""Measures the documents of a plan; the argument is the smallest step that may be chosen."""
_PLACES = 16  # slices of a probe at first: each costs one opened file and its first block


def settle_scale(committer: Committer, plan: Plan, encode: EncodeSettings, probe: Probe) -> TableProperties:
    """Choose the scale of the table again if it has few documents; call it after the fence, before the first wave.

    Returns:
        The properties that the waves of the plan have to be encoded with.
    """
    table = committer.load()
    if _is_open(table, plan, encode):
        after = _choose(table, probe)
        committer.until_accepted(lambda: _commit(committer, after), "the impact scale")
    return committer.load().sparse_properties


def with_scale(properties: TableProperties, scale: ImpactScale) -> TableProperties:
    """Return properties of a table with an impact scale and its errors."""
    return replace(
        properties,
        impact_step=scale.step,
        impact_error=scale.error,
        impact_error_max=scale.largest_error,
        impact_clipped=scale.clipped,
        probe_documents=scale.documents,
    )


def _is_open(table: Table, plan: Plan, encode: EncodeSettings) -> bool:
    """Return whether a plan has to choose: nothing of it is committed, and few documents would have to change."""
    return (
        plan.base is not None
        and plan.slice_table.num_rows > 0
        and encode.impact_step is None
        and table.sparse_properties.probe_documents < encode.probe_documents
        and table.properties.get(SCALE_PROPERTY) != plan.digest
        and waves_done(table, plan.digest) == 0
        and live_rows.total_live_rows(table.file_table()) < encode.probe_documents
    )


def _choose(table: Table, probe: Probe) -> TableProperties:
    before = table.sparse_properties
    documents = live_rows.total_live_rows(table.file_table())
    scale = probe(before.impact_step if documents else 0.0)
    if not scale.documents:
        return before
    return with_scale(before, replace(scale, documents=scale.documents + documents))


def _commit(committer: Committer, after: TableProperties) -> bool:
    table, plan = committer.load(), committer.epoch.plan
    if table.properties.get(SCALE_PROPERTY) == plan:
        return False  # another attempt was faster, or the answer to this commit was lost
    before = table.sparse_properties
    files = [] if before.impact_step == after.impact_step else table.files()
    origin = f"{plan}/scale"
    parts = in_threads(lambda file: _rescaled(table, file, before, after, origin), files)
    changed = [(file, part) for file, part in zip(files, parts, strict=True) if part is not None]
    adds: list[tuple[Part, Mapping[str, str | None]]] = [(part, file.partition) for file, part in changed]
    committer.epoch.check()
    table.commit(
        adds,
        [file.path for file, _ in changed],
        app=plan,
        version=waves_done(table, plan) - 1,
        epoch=committer.epoch.number,
        properties={**after.to_delta(), SCALE_PROPERTY: plan},
    )
    fields = {"step": after.impact_step, "before": before.impact_step, "probe_documents": after.probe_documents}
    log.info("impact scale chosen again", extra={"fields": {**fields, "parts": len(changed)}})
    return True


def _rescaled(
    table: Table, file: TableFile, before: TableProperties, after: TableProperties, origin: str
) -> Part | None:
    """Write the rows of a part that are not deleted with impacts of another step; None: all impacts stay the same."""
    rows = read_part(table.store, file, live_rows.part_schema(before))
    impacts = rows["impacts"].combine_chunks()
    old = impacts.flatten().to_numpy()
    values, _ = quantize(old.astype(np.float32) * np.float32(before.impact_step), after.impact_step, after.impact_bits)
    if np.array_equal(values, old):
        return None
    offsets = np.concatenate([[0], np.cumsum(impacts.value_lengths().to_numpy())]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=impacts.type)
    rows = rows.set_column(rows.schema.get_field_index("impacts"), rows.schema.field("impacts"), lists)
    return write_part(table.store, f"bucket={file.partition['bucket']}", rows, origin)


def probe_scale(
    reader: Reader, plan: Plan, encoder: TextEncoder, encode: EncodeSettings, floor: float = 0.0
) -> ImpactScale:
    """Encode documents from all over the slices of a plan and choose the impact scale for their weights.

    The vectors have the number of terms that is stored. A document that the model fails on is left out here; its wave
    quarantines it. The probe has fewer documents than asked for only if the plan has no more.
    """
    documents, weights, encoded = encode.probe_documents, [np.empty(0, np.float32)], 0
    for slices in spread_slices(plan, documents):
        texts = _sample(reader, slices, documents - encoded)
        vectors, failed = encode_batches(encoder, texts, batch_size=ISOLATED_BATCH_SIZE)
        weights.append(vectors.weights)
        encoded += len(texts) - len(failed)
        if encoded >= documents:
            break
    return impact_scale(
        np.concatenate(weights), encode.impact_bits, documents=encoded, step=encode.impact_step, floor=floor
    )


def spread_slices(plan: Plan, documents: int) -> Iterator[list[Slice]]:
    """Yield slices at even distances over the whole plan: a source may be sorted by length, topic or language.

    Yields:
        At most 16 and at most ``documents`` slices, in order; then, for a caller that needs more documents, further
        slices until every slice was yielded once. Always the same for a plan.
    """
    total = plan.slice_table.num_rows
    count = min(total, documents, _PLACES)
    seen: set[int] = set()
    while len(seen) < total:
        wanted = {(2 * i + 1) * total // (2 * count) for i in range(count)} - seen
        yield [piece for i, piece in enumerate(plan.slices()) if i in wanted]
        seen |= wanted
        count = min(total, max(2 * count, documents))


def _sample(reader: Reader, slices: Sequence[Slice], documents: int) -> list[str]:
    texts: list[str] = []
    by_size = sorted(slices, key=lambda piece: piece.size)  # larger slices make up for small ones that end early
    for left, piece in zip(range(len(by_size), 0, -1), by_size, strict=True):
        quota = math.ceil((documents - len(texts)) / left)
        texts += itertools.islice(_texts(reader, piece), quota)
        check_pinned(piece.file, reader.options)  # a slice that is not read to its end is not verified there
    return texts


def _texts(reader: Reader, piece: Slice) -> Iterator[str]:
    """Yield the texts of the good rows of a slice; the file is read only as far as needed."""
    for rows in reader.read(piece):
        for text, reason in zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True):
            if reason is None:
                yield text
