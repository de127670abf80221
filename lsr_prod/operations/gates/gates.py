"""The list of gates. A gate measures a version, compares the value with its limit, and says the finding in a sentence.

To add a gate, write a function that takes ``Versions`` and list it in ``GATES``; its limits are fields of
``config.index.GatesSettings``. A gate with a limit that finds nothing to measure refuses the version: what should have
been checked was not.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from lsr_prod.config.evaluate import SparseSystem
from lsr_prod.config.section import quarantine_uri
from lsr_prod.encoding.tables import Table, open_table
from lsr_prod.encoding.tables.live_rows import total
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.evaluation.comparisons import paired_randomization
from lsr_prod.evaluation.cost import percentile
from lsr_prod.evaluation.measures import measure, parse_measures
from lsr_prod.evaluation.systems import WARM_UP_QUERIES, encode_queries, open_system
from lsr_prod.operations.audit.deployment import problems
from lsr_prod.operations.canary import CanarySettings, run_canary
from lsr_prod.operations.gates.report import GateResult, audit_candidate, read_canaries, read_golden
from lsr_prod.operations.gates.versions import Versions
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute
from lsr_prod.storage.formats.table import TableProperties

Gate = Callable[[Versions], GateResult]

_JUDGED_HITS = 100
_SHOWN = 3  # ids or queries in a sentence
_CHANGED = 20  # queries in the report that changed most


def documents(versions: Versions) -> GateResult:
    """Refuse a version with too few documents, or with far fewer or more than the current one."""
    limits, now = versions.limits, versions.candidate.version.documents
    current = versions.candidate.current
    if limits.min_documents is not None and now < limits.min_documents:
        return _refused("documents", now, limits.min_documents, f"{now:,} documents, fewer than gates.min_documents")
    if current is None or not current.documents:
        return _passed("documents", now, limits.min_documents, f"{now:,} documents; there is no current version")
    before = current.documents
    change = f"{now:,} documents in place of {before:,}"
    if before - now > limits.max_shrink * before:
        return _refused("documents", (before - now) / before, limits.max_shrink, f"{change}, above gates.max_shrink")
    if limits.max_growth is not None and now - before > limits.max_growth * before:
        return _refused("documents", (now - before) / before, limits.max_growth, f"{change}, above gates.max_growth")
    return _passed("documents", now, limits.max_shrink, change)


def quarantine(versions: Versions) -> GateResult:
    """Refuse a version of a table with too many bad rows."""
    limit, encode = versions.limits.max_quarantine_share, versions.deployment.encode
    if limit is None:
        return _off("quarantine")
    settings = versions.deployment.index
    assert settings is not None
    place = quarantine_uri(encode.quarantine if encode else None, settings.table)
    table = _table(versions, place)
    if table is None:
        return _refused("quarantine", None, limit, f"there is no quarantine at {place}; give encode.quarantine")
    bad, good = total(table.file_table(), "rows"), versions.candidate.version.documents
    share = bad / max(bad + good, 1)
    return _at_most("quarantine", share, limit, f"{bad:,} bad rows beside {good:,} documents", "max_quarantine_share")


def empty(versions: Versions) -> GateResult:
    """Refuse a version in which too many documents have no term, so that no query finds them."""
    limit = versions.limits.max_empty_share
    if limit is None:
        return _off("empty")
    found = 0
    for reader in versions.searcher.snapshot.readers.values():
        without = np.diff(reader.shard.arrays.forward_offsets) == 0
        found += int(np.count_nonzero(without if reader.alive is None else without & (reader.alive > 0)))
    count = versions.candidate.version.documents
    return _at_most(
        "empty", found / max(count, 1), limit, f"{found:,} of {count:,} documents have no term", "max_empty_share"
    )


def size(versions: Versions) -> GateResult:
    """Refuse a version whose shards are too large for their documents."""
    limit, version = versions.limits.max_bytes_per_document, versions.candidate.version
    if limit is None:
        return _off("size")
    stored = sum(sum(shard.bytes_by_part.values()) for shard in version.shards)
    value = stored / max(version.documents, 1)
    return _at_most("size", value, limit, f"{value:,.0f} bytes per document", "max_bytes_per_document")


def impact_error(versions: Versions) -> GateResult:
    """Refuse a version whose impacts differ too much from the weights of the encoder."""
    limit, settings = versions.limits.max_impact_error, versions.deployment.index
    if limit is None:
        return _off("impact_error")
    assert settings is not None
    table = _table(versions, settings.table)
    if table is None:
        return _refused("impact_error", None, limit, f"there is no table at {settings.table}")
    properties = TableProperties.from_delta(dict(table.properties))
    value = properties.impact_error
    if value > 0 or not properties.probe_documents:  # else all weights are multiples of the step
        # The table may have other documents than its probe. Rounding is off by a quarter of a unit on average.
        mean = versions.impacts(table).mean
        value = max(value, 0.25 / mean) if mean else value
    return _at_most("impact_error", value, limit, f"the mean impact is off by {value:.4f}", "max_impact_error")


def clipped_weights(versions: Versions) -> GateResult:
    """Refuse a version with too many weights above the largest impact, which rank as if they were equal."""
    limit, settings = versions.limits.max_clipped_share, versions.deployment.index
    if limit is None:
        return _off("clipped_weights")
    assert settings is not None
    table = _table(versions, settings.table)
    if table is None:
        return _refused("clipped_weights", None, limit, f"there is no table at {settings.table}")
    found = versions.impacts(table)
    value = found.largest_share
    sentence = f"{value:.4f} of {found.weights:,} weights are clipped to the largest impact"
    return _at_most("clipped_weights", value, limit, sentence, "max_clipped_share")


def golden(versions: Versions) -> GateResult:
    """Refuse a version in which golden queries do not find their documents."""
    limits = versions.limits
    if limits.golden_queries is None:
        return _off("golden")
    queries = read_golden(limits.golden_queries, versions.options)
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
    return _at_least("golden", share, limits.min_golden, sentence, "min_golden")


def overlap(versions: Versions) -> GateResult:
    """Refuse a version whose hits differ too much from those of the current version."""
    limits = versions.limits
    if limits.min_overlap is None:
        return _off("overlap")
    assert limits.canary_queries is not None
    queries = read_canaries(limits.canary_queries, versions.options, limits.canary_sample)
    if versions.current is None:
        return _passed("overlap", None, limits.min_overlap, "there is no current version to compare with")
    settings = CanarySettings(k=limits.canary_k, threshold=limits.threshold, rows=_CHANGED, terms=0)
    canary = run_canary(versions.current, versions.searcher, queries, settings)
    if canary.overlap is None:
        return _refused("overlap", None, limits.min_overlap, "no canary query finds anything in the current version")
    sentence = f"{canary.overlap:.3f} of the current top {canary.k} of {canary.compared} queries are found again"
    result = _at_least("overlap", canary.overlap, limits.min_overlap, sentence, "min_overlap")
    changed = tuple(row.query_id for row in canary.rows if row.change > 0)
    if changed:
        shown = ", ".join(changed[:_SHOWN]) + (" …" if len(changed) > _SHOWN else "")
        result = replace(result, sentence=f"{result.sentence}; changed most: {shown}", queries=changed)
    return result


def quality(versions: Versions) -> GateResult:
    """Refuse a version that ranks judged queries significantly worse than the current one."""
    limits = versions.limits
    if limits.max_loss is None:
        return _off("quality")
    if versions.current is None:
        return _passed("quality", None, limits.max_loss, "there is no current version to compare with")
    assert limits.judged_queries is not None
    assert limits.judged_qrels is not None
    judged = read_judged(limits.judged_queries, limits.judged_qrels, versions.options)
    system = SparseSystem(kind="sparse", name="search", overlap_threshold=limits.threshold)
    measures = parse_measures("gates.measure", [limits.measure])
    values = []
    for searcher in (versions.current, versions.searcher):
        opened = open_system(system, searcher, k=_JUDGED_HITS, query_ids=list(judged.queries))
        queries = encode_queries(searcher, judged.queries)
        values.append(measure(opened, queries, judged.qrels, measures).by_query[limits.measure])
    before, now = (float(each.mean()) for each in values)
    p = float(paired_randomization((values[0] - values[1])[:, None], one_sided=True)[0])
    sentence = (
        f"{limits.measure} {now:.4f} in place of {before:.4f} over {len(judged.queries)} judged queries (p = {p:.3f})"
    )
    loss = before - now
    if loss > limits.max_loss and p < limits.significance:
        return _refused("quality", loss, limits.max_loss, f"{sentence}, a loss above gates.max_loss")
    return _passed("quality", loss, limits.max_loss, sentence)


def latency(versions: Versions) -> GateResult:
    """Refuse a version that answers the canary queries too slowly on this machine."""
    limits = versions.limits
    if limits.max_p95_ms is None:
        return _off("latency")
    assert limits.canary_queries is not None
    queries = read_canaries(limits.canary_queries, versions.options, limits.canary_sample)
    texts = [query.text for query in queries]
    for text in texts[:WARM_UP_QUERIES]:
        versions.searcher.search(text, limits.canary_k, overlap_threshold=limits.threshold)
    times = []
    for text in texts:
        began = time.perf_counter()
        versions.searcher.search(text, limits.canary_k, overlap_threshold=limits.threshold)
        times.append((time.perf_counter() - began) * 1e3)
    value = percentile(times, 95)
    return _at_most("latency", value, limits.max_p95_ms, f"p95 {value:.1f} ms over {len(texts)} queries", "max_p95_ms")


def completeness(versions: Versions) -> GateResult:
    """Refuse a version that lacks documents of the source, or has other ones, by an audit of ids."""
    limit = versions.limits.max_lost
    if limit is None:
        return _off("completeness")
    if versions.files is None:
        return GateResult("completeness", "off", None, limit, "this job does not read the source")
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
    return _at_most("completeness", found.lost - sum(accepted.values()), limit, sentence, "max_lost")


GATES: Mapping[str, Gate] = MappingProxyType(
    {
        gate.__name__: gate
        for gate in (
            documents,
            quarantine,
            empty,
            size,
            impact_error,
            clipped_weights,
            golden,
            overlap,
            quality,
            latency,
            completeness,
        )
    }
)
"""Name -> gate, cheap ones first."""


def gate_names() -> tuple[str, ...]:
    """Return the names of all gates."""
    return tuple(GATES)


def _table(versions: Versions, place: str) -> Table | None:
    return open_table(Store(absolute(place), dict(versions.options)))


def _off(gate: str) -> GateResult:
    return GateResult(gate, "off", None, None, "no limit is set")


def _passed(gate: str, measured: float | None, limit: float | None, sentence: str) -> GateResult:
    return GateResult(gate, "passed", measured, limit, sentence)


def _refused(gate: str, measured: float | None, limit: float | None, sentence: str) -> GateResult:
    return GateResult(gate, "refused", measured, limit, sentence)


def _at_most(gate: str, value: float, limit: float, sentence: str, setting: str) -> GateResult:
    if value <= limit:
        return _passed(gate, value, limit, sentence)
    measured = None if math.isnan(value) else value
    return _refused(gate, measured, limit, f"{sentence}, above gates.{setting} = {limit:g}")


def _at_least(gate: str, value: float, limit: float, sentence: str, setting: str) -> GateResult:
    if value >= limit:
        return _passed(gate, value, limit, sentence)
    return _refused(gate, value, limit, f"{sentence}, below gates.{setting} = {limit:g}")
