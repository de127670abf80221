"""The list of gates. A gate measures a version, compares the value with its limit, and says the finding in a sentence.

To add a gate, write a function that takes ``Versions`` and the value of the setting that turns it on, and list both in
``GATES``; its limits are fields of ``config.deployment.GatesSettings``. A gate with a limit that finds nothing to
measure refuses the version: what should have been checked was not.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from lsr_prod.config import deployment, evaluate, section
from lsr_prod.corpus.filelist import file_keys
from lsr_prod.encoding.tables import live_rows, open_table, quarantine_rows
from lsr_prod.errors import SourceError
from lsr_prod.evaluation import collection, comparisons, cost, systems
from lsr_prod.evaluation.measures import depth_of, measure, parse_measures
from lsr_prod.operations.audit.audit import problems
from lsr_prod.operations.canary import CanarySettings, run_canary
from lsr_prod.operations.gates.report import GateResult, Versions, audit_candidate, read_canaries, read_golden
from lsr_prod.storage import Store, folders, in_threads

_SHOWN = 3  # ids or queries in a sentence
_CHANGED = 20  # queries in the report that changed most


def documents(versions: Versions, max_shrink: float) -> GateResult:
    """Refuse a version with too few documents, or with far fewer or more than the current one."""
    limits, now = versions.limits, versions.candidate.version.documents
    current = versions.candidate.current
    if limits.min_documents is not None and now < limits.min_documents:
        return _refused(now, limits.min_documents, f"{now:,} documents, fewer than gates.min_documents")
    if current is None or not current.documents:
        return _passed(now, limits.min_documents, f"{now:,} documents; there is no current version")
    before = current.documents
    change = f"{now:,} documents in place of {before:,}"
    if before - now > max_shrink * before:
        return _refused((before - now) / before, max_shrink, f"{change}, above gates.max_shrink")
    if limits.max_growth is not None and now - before > limits.max_growth * before:
        return _refused((now - before) / before, limits.max_growth, f"{change}, above gates.max_growth")
    return _passed(now, max_shrink, change)


def quarantine(versions: Versions, limit: float) -> GateResult:
    """Refuse a version of a table with too many bad rows."""
    encode = versions.deployment.encode
    place = section.quarantine_uri(encode.quarantine if encode else None, versions.table.store.uri)
    table = open_table(Store(folders.absolute(place), dict(versions.options)))
    if table is None:
        return _refused(None, limit, f"there is no quarantine at {place}; give encode.quarantine")
    bad, good = live_rows.total(table.file_table(), "rows"), versions.candidate.version.documents
    if versions.files is not None:  # otherwise rows of files that were replaced or removed count, too
        keys = pa.array(file_keys(versions.files))
        found = in_threads(lambda file: quarantine_rows.places_of_files(table.store, file.path, keys), table.files())
        # A file that is read again has its bad rows twice.
        places = pa.concat_tables([quarantine_rows.PLACE_SCHEMA.empty_table(), *found])
        bad = places.group_by(quarantine_rows.PLACE_SCHEMA.names).aggregate([]).num_rows
    share = bad / max(bad + good, 1)
    return _at_most(share, limit, f"{bad:,} bad rows beside {good:,} documents", "max_quarantine_share")


def empty(versions: Versions, limit: float) -> GateResult:
    """Refuse a version in which too many documents have no term, so that no query finds them."""
    found = 0
    for reader in versions.searcher.snapshot.readers.values():
        without = np.diff(reader.shard.arrays.forward_offsets) == 0
        found += int(np.count_nonzero(without if reader.alive is None else without & (reader.alive > 0)))
    count = versions.candidate.version.documents
    return _at_most(found / max(count, 1), limit, f"{found:,} of {count:,} documents have no term", "max_empty_share")


def size(versions: Versions, limit: float) -> GateResult:
    """Refuse a version whose shards are too large for their documents."""
    version = versions.candidate.version
    value = sum(sum(shard.bytes_by_part.values()) for shard in version.shards) / max(version.documents, 1)
    return _at_most(value, limit, f"{value:,.0f} bytes per document", "max_bytes_per_document")


def impact_error(versions: Versions, limit: float) -> GateResult:
    """Refuse a version whose impacts differ too much from the weights of the encoder."""
    properties = versions.table.sparse_properties
    value = properties.impact_error
    if value > 0 or not properties.probe_documents:  # else all weights are multiples of the step
        # The table may have other documents than its probe. Rounding is off by a quarter of a unit on average.
        mean = versions.impacts.mean
        value = max(value, 0.25 / mean) if mean else value
    return _at_most(value, limit, f"the mean impact is off by {value:.4f}", "max_impact_error")


def clipped_weights(versions: Versions, limit: float) -> GateResult:
    """Refuse a version with too many weights above the largest impact, which rank as if they were equal."""
    found = versions.impacts
    value = found.largest_share
    sentence = f"{value:.4f} of {found.weights:,} weights are clipped to the largest impact"
    return _at_most(value, limit, sentence, "max_clipped_share")


def golden(versions: Versions, place: str) -> GateResult:
    """Refuse a version in which golden queries do not find their documents."""
    limits = versions.limits
    queries = read_golden(place, versions.options)
    failed, missing = [], []
    for query in queries:
        found = versions.searcher.search(query.text, query.k, overlap_threshold=limits.threshold)
        lost = set(query.must) - {hit.doc_id for hit in found.hits}
        if lost:
            failed.append(query.query_id)
            missing += [f"{query.query_id}: {doc_id}" for doc_id in sorted(lost)]
    share = (len(queries) - len(failed)) / len(queries)
    sentence = f"{len(queries) - len(failed)} of {len(queries)} golden queries find all of their documents"
    if missing:
        sentence += f"; missing {', '.join(missing[:_SHOWN])}" + (" …" if len(missing) > _SHOWN else "")
    return _at_least(share, limits.min_golden, sentence, "min_golden")


def overlap(versions: Versions, least: float) -> GateResult:
    """Refuse a version whose hits differ too much from those of the current version."""
    limits = versions.limits
    assert limits.canary_queries is not None
    queries = read_canaries(limits.canary_queries, versions.options, limits.canary_sample)
    if versions.current is None:
        return _passed(None, least, "there is no current version to compare with")
    settings = CanarySettings(k=limits.canary_k, threshold=limits.threshold, rows=_CHANGED, terms=0)
    canary = run_canary(versions.current, versions.searcher, queries, settings)
    if canary.overlap is None:
        return _refused(None, least, "no canary query finds anything in the current version")
    sentence = f"{canary.overlap:.3f} of the current top {canary.k} of {canary.compared} queries are found again"
    result = _at_least(canary.overlap, least, sentence, "min_overlap")
    changed = tuple(row.query_id for row in canary.rows if row.change > 0)
    if changed:
        shown = ", ".join(changed[:_SHOWN]) + (" …" if len(changed) > _SHOWN else "")
        result = replace(result, sentence=f"{result.sentence}; changed most: {shown}", queries=changed)
    return result


def quality(versions: Versions, max_loss: float) -> GateResult:
    """Refuse a version that ranks judged queries significantly worse than the current one."""
    limits = versions.limits
    if versions.current is None:
        return _passed(None, max_loss, "there is no current version to compare with")
    assert limits.judged_queries is not None
    assert limits.judged_qrels is not None
    judged = collection.read_judged(limits.judged_queries, limits.judged_qrels, versions.options)
    searchers = (versions.current, versions.searcher)
    if 0.5 ** len(judged.queries) >= limits.significance:
        problem = f"{len(judged.queries)} judged queries can show no loss at gates.significance"
        return _refused(None, max_loss, f"{problem} = {limits.significance:g}; judge more")
    try:
        collection.check_relevant(judged.qrels, limits.judged_qrels, *(each.snapshot.place for each in searchers))
    except SourceError as error:
        return _refused(None, max_loss, str(error))
    system = evaluate.SparseSystem(kind="sparse", name="search", overlap_threshold=limits.threshold)
    measures = parse_measures("gates.measure", [limits.measure])
    values = []
    for searcher in searchers:
        opened = systems.open_system(system, searcher, k=depth_of(measures), query_ids=list(judged.queries))
        queries = systems.encode_queries(searcher, judged.queries)
        values.append(measure(opened, queries, judged.qrels, measures).by_query[limits.measure])
    before, now = (float(each.mean()) for each in values)
    p = float(comparisons.paired_randomization((values[0] - values[1])[:, None], one_sided=True)[0])
    sentence = (
        f"{limits.measure} {now:.4f} in place of {before:.4f} over {len(judged.queries)} judged queries (p = {p:.3f})"
    )
    loss = before - now
    if loss > max_loss and p < limits.significance:
        return _refused(loss, max_loss, f"{sentence}, a loss above gates.max_loss")
    return _passed(loss, max_loss, sentence)


def latency(versions: Versions, limit: float) -> GateResult:
    """Refuse a version that answers the canary queries too slowly on this machine."""
    limits = versions.limits
    assert limits.canary_queries is not None
    texts = [query.text for query in read_canaries(limits.canary_queries, versions.options, limits.canary_sample)]
    for text in texts[: systems.WARM_UP_QUERIES]:
        versions.searcher.search(text, limits.canary_k, overlap_threshold=limits.threshold)
    times = []
    for text in texts:
        began = time.perf_counter()
        versions.searcher.search(text, limits.canary_k, overlap_threshold=limits.threshold)
        times.append((time.perf_counter() - began) * 1e3)
    value = cost.percentile(times, 95)
    return _at_most(value, limit, f"p95 {value:.1f} ms over {len(texts)} queries", "max_p95_ms")


def completeness(versions: Versions, limit: int) -> GateResult:
    """Refuse a version that lacks documents of the source, or has other ones, by an audit of ids."""
    if versions.files is None:
        return GateResult("", "off", None, limit, "this job does not read the source")
    found = audit_candidate(versions)
    source = versions.deployment.source
    accepted = {"unread": found.unread} if source is not None and source.on_damage == "skip" else {}
    lost = {name: count for name, count in problems(found, None).items() if name not in accepted}
    sentence = f"{found.documents:,} documents of the source are compared"
    if found.share > 1:
        sentence += f", one of {found.share}"
    for name, count in lost.items():
        shown = ", ".join(one.doc_id or one.place for one in found.examples.get(name, ())[:_SHOWN])
        sentence += f"; {count:,} {name.replace('_', ' ')}: {shown}" + (" …" if count > _SHOWN else "")
    return _at_most(found.lost - sum(accepted.values()), limit, sentence, "max_lost")


def _run(
    gate: Callable[[Versions, Any], GateResult], setting: Callable[[deployment.GatesSettings], Any], versions: Versions
) -> GateResult:
    """Run a gate, unless the setting that turns it on is absent."""
    limit = setting(versions.limits)
    if limit is None:
        return GateResult(gate.__name__, "off", None, None, "no limit is set")
    return replace(gate(versions, limit), gate=gate.__name__)


GATES: Mapping[str, Callable[[Versions], GateResult]] = MappingProxyType(
    {
        gate.__name__: partial(_run, gate, setting)
        for gate, setting in (
            (documents, lambda limits: limits.max_shrink),
            (quarantine, lambda limits: limits.max_quarantine_share),
            (empty, lambda limits: limits.max_empty_share),
            (size, lambda limits: limits.max_bytes_per_document),
            (impact_error, lambda limits: limits.max_impact_error),
            (clipped_weights, lambda limits: limits.max_clipped_share),
            (golden, lambda limits: limits.golden_queries),
            (overlap, lambda limits: limits.min_overlap),
            (quality, lambda limits: limits.max_loss),
            (latency, lambda limits: limits.max_p95_ms),
            (completeness, lambda limits: limits.max_lost),
        )
    }
)
"""Name -> gate, cheap ones first."""


def _passed(measured: float | None, limit: float | None, sentence: str) -> GateResult:
    return GateResult("", "passed", measured, limit, sentence)


def _refused(measured: float | None, limit: float | None, sentence: str) -> GateResult:
    return GateResult("", "refused", measured, limit, sentence)


def _at_most(value: float, limit: float, sentence: str, setting: str) -> GateResult:
    if value <= limit:
        return _passed(value, limit, sentence)
    return _refused(None if math.isnan(value) else value, limit, f"{sentence}, above gates.{setting} = {limit:g}")


def _at_least(value: float, limit: float, sentence: str, setting: str) -> GateResult:
    if value >= limit:
        return _passed(value, limit, sentence)
    return _refused(value, limit, f"{sentence}, below gates.{setting} = {limit:g}")
