"""Counts of an encode run: summed wave by wave, reported at its end."""

import json
import shlex
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

from lsr_prod.corpus.rows import remedy
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.results import Counts, WaveResult
from lsr_prod.encoding.tables import Table
from lsr_prod.encoding.tables.live_rows import total_live_rows
from lsr_prod.encoding.tables.quarantine import quarantined_by_reason
from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER
from lsr_prod.errors import QuarantineOverflowError
from lsr_prod.storage.formats.digest import record_bytes

TOTALS_FOLDER = f"{PROTOCOL_FOLDER}/totals"
_NOT_REPORTED = ("superseded", "displaced", "weights", "padded_tokens")
_DERIVED = ("quarantined", "unread_share", "clipped_share", "padding_share", "docs_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeSummary(Counts):
    """Result of an encode run: its ``Counts``, times and places.

    Rows and bad rows of a first plan are those of all its runs, those of an increment are those of this run; displaced
    documents are not among ``rows_out``. ``unread_bytes`` are those of all runs of the plan, other counts those of this
    run.
    """

    documents: int  # rows of the table
    max_clipped_share: float | None  # ``gates.max_clipped_share``; the run warns above it
    waves: int  # waves of the plan
    waves_skipped: int  # waves that were committed before this run
    actors: int  # encoder actors
    threads_per_actor: int  # ONNX Runtime threads of each
    seconds: float  # duration of this run
    encode_seconds: float  # time from the start of the first to the end of the last block of this run
    busy_share: float  # share of that time in which the models of the encoders ran
    source_bytes: int  # bytes that the plan reads
    table_bytes: int  # bytes of the parts of the table
    impact_step: float  # weight of one impact unit
    impact_error: float  # mean error of the impacts of the probe
    table: str  # URI of the sparse table
    quarantine: str  # URI of the quarantine table
    plan: str  # digest of the plan
    base_plan: str | None  # digest of the previous plan
    bundle_digest: str  # of the encoder
    table_version: int  # newest version of the table
    # digest of the contents of that version; None if rows of its parts are deleted, since they would have to be read
    # (``encoding.table_digest``, ``lsr-prod table status --digest``)
    table_digest: str | None

    @property
    def unread_share(self) -> float:
        """Share of the source bytes of the plan that do not decode."""
        return self.unread_bytes / max(self.source_bytes, 1)

    @property
    def docs_per_s(self) -> float:
        """Encoded documents per second of this run."""
        return self.encoded / self.seconds

    def result(self) -> dict[str, Any]:
        """Return the figures by name, for the ``RESULT`` line."""
        names = [each.name for each in fields(self) if each.name not in _NOT_REPORTED]
        return {name: getattr(self, name) for name in (*names, *_DERIVED)}


def counts_before(work: Work, table: Table, waves: int) -> Counts:
    """Return the counts of the waves that earlier runs of the plan committed, as ``EncodeSummary`` reports them."""
    plan = work.plan
    saved = work.table.get(_saved_totals(plan.digest)) if waves >= plan.waves else None
    if saved is not None:
        values = json.loads(saved)
        reasons, unread = Counter(values["reasons"]), values["unread_bytes"]
    else:
        # Cell 0, which is in wave 0 of an increment, has all rows with unread bytes.
        counted = waves if plan.base is None else min(waves, 1)
        reasons, unread = quarantined_by_reason(work.quarantine, plan.digest, counted)
    if plan.base is not None:
        return Counts(unread_bytes=unread)
    documents = total_live_rows(table.file_table())
    rows = documents + reasons.total()
    return Counts(rows_in=rows, rows_out=documents, quarantined_by_reason=reasons, unread_bytes=unread)


def save_counts(work: Work, counts: Counts) -> None:
    """Write the quarantined rows of a finished plan next to its table: a later run need not count them."""
    values = {"reasons": counts.quarantined_by_reason, "unread_bytes": counts.unread_bytes}
    work.table.put_new(_saved_totals(work.plan.digest), record_bytes(values))


def check_overflow(work: Work, before: Counts, result: WaveResult) -> None:
    """Refuse a wave that brings the bad share above the limit, before it is committed.

    The bad share is u + (1 - u) * r: u is the share of source bytes that were not read, r the share of bad rows
    among the rows that were.
    """
    wave = result.counts
    after = before + wave
    reasons, bad = Counter(after.quarantined_by_reason), after.quarantined
    rows = bad + before.document_rows + wave.rows_out
    unread, source_bytes = after.unread_bytes, work.plan.bytes_through(result.wave)
    few = work.plan.base is not None and rows < work.encode.bad_fraction_min_rows and not unread
    unread_share = unread / max(source_bytes, 1)
    if few or unread_share + (1 - unread_share) * bad / max(rows, 1) <= work.encode.max_bad_fraction:
        return
    source = work.source
    named = {"missing_id": f"missing_id: {source.column(source.id_field)}"}
    most = reasons.most_common(3)
    top = ", ".join(f"{named.get(reason, reason)} {count}" for reason, count in most)
    settings = dict.fromkeys(filter(None, (remedy(reason, source) for reason, _ in most)))
    solve = f"set {'; '.join(settings)}, " if settings else ""
    lost = f", and {unread} of {source_bytes} bytes were not read" if unread else ""
    raise QuarantineOverflowError(
        f"{bad} of {rows} rows are bad ({top}){lost}, more than encode.max_bad_fraction = "
        f"{work.encode.max_bad_fraction}; wave {result.wave} was not committed; see the rows with: "
        f"lsr-prod table quarantine {shlex.quote(work.quarantine.uri)} --plan {work.plan.digest[:12]} --wave "
        f"{result.wave}; then {solve}raise the fraction, or fix the source and run again "
        "(with --abandon if waves of this plan are committed)"
    )


def _saved_totals(plan: str) -> str:
    return f"{TOTALS_FOLDER}/{plan}.json"
